//! Opens the places that the servers of a cluster share.
//!
//! The format of such a place has the number of its cluster. Servers of another one would delete the files as leftovers, and take
//! over the logs of servers with the same numbers. So a server compares the numbers before it does anything there.

use super::{FORMAT, SHARED, check_version, marks, put_format_text, refuse_promoted};
use anyhow::bail;
use bytes::Bytes;
use std::sync::Arc;
use stele_env::Env;
use stele_env::metrics::Metrics;
use stele_hdfs::{HdfsMetrics, HdfsStorage};
use stele_objects::{ObjectMetrics, ObjectStorage};
use stele_settings::Place;
use stele_storage::Storage;
use stele_storage::remote::cache::CacheOptions;

/// Refuses a place that has anything but the beginning of a promotion, before it is opened.
pub async fn check_empty(place: &Place, env: &Env) -> anyhow::Result<()> {
    let any = match place {
        Place::Folder(_) => {
            bail!("the servers of a cluster cannot share a folder: give s3://, gs://, az:// or hdfs://")
        }
        _ if marks::peek(place, env, marks::INCOMING).await?.is_some() => None,
        Place::Objects(address) => ObjectStorage::any_key(address, env.clone()).await?,
        Place::Hdfs(address) => HdfsStorage::any_key(address, env.clone()).await?,
    };
    // A promotion that was interrupted at its beginning leaves data keys, of which all other files come later.
    match any.filter(|key| !format!("{key}/").starts_with(stele_encryption::DIRECTORY)) {
        None => Ok(()),
        Some(key) => bail!("{place} is not empty (it has {key:?}): give another for the cluster"),
    }
}

/// Opens a place that the servers of the cluster with a number share, and makes it when needed.
pub async fn share(
    place: &Place,
    cluster: &[u8; 16],
    cache: Option<CacheOptions>,
    env: Env,
    metrics: &Metrics,
) -> anyhow::Result<Arc<dyn Storage>> {
    let mut format = marks::peek(place, &env, FORMAT).await?;
    let any = match (&format, place) {
        (_, Place::Folder(_)) => bail!("the servers of a cluster cannot share a folder"),
        (None, Place::Objects(address)) => ObjectStorage::any_key(address, env.clone()).await?,
        (None, Place::Hdfs(address)) => HdfsStorage::any_key(address, env.clone()).await?,
        _ => None,
    };
    if any.is_some() {
        for mark in [marks::INCOMING, marks::PROMOTED] {
            if marks::peek(place, &env, mark).await?.is_some() {
                bail!("a promotion to {place} has not finished: run `stele cluster promote` again");
            }
        }
        // Another server of the cluster may have been the first one meanwhile.
        format = marks::peek(place, &env, FORMAT).await?;
    }
    let shown = place.to_string();
    check_shared(&shown, cluster, format.as_ref(), any)?;
    let storage: Arc<dyn Storage> = match place {
        Place::Hdfs(address) => HdfsStorage::share(address, env, cache, HdfsMetrics::new(metrics)).await?,
        Place::Objects(address) => ObjectStorage::share(address, env, cache, ObjectMetrics::new(metrics)).await?,
        Place::Folder(_) => bail!("the servers of a cluster cannot share a folder"),
    };
    if format.is_none() {
        put_format_text(&*storage, marks::shared_format(cluster)).await?;
        // A server of another cluster may have been faster.
        let format = storage.read_all(FORMAT).await?;
        check_shared(&shown, cluster, Some(&format), None)?;
    }
    Ok(storage)
}

/// Refuses a place that is not of this cluster.
fn check_shared(shown: &str, cluster: &[u8; 16], format: Option<&Bytes>, any: Option<String>) -> anyhow::Result<()> {
    match (format, any) {
        (Some(text), _) => {
            let text = String::from_utf8_lossy(text);
            let Some((own, number)) = text.trim().split_once(SHARED) else {
                refuse_promoted(&text, shown)?;
                bail!(
                    "{shown} has the data of a single server: `stele cluster promote` makes them those of a cluster, or give \
                     another place"
                );
            };
            check_version(own, &format!("{shown}/{FORMAT}"), shown)?;
            let wanted = marks::hex(cluster);
            if number != wanted {
                bail!(
                    "{shown} belongs to cluster {number}, and the coordinator knows this one as {wanted}: the name in --cluster \
                     or the place is wrong, or the coordinator has lost its records. The data have not been touched"
                );
            }
            Ok(())
        }
        (None, Some(key)) => {
            bail!("{shown} is not empty and has no {FORMAT} of Stele (it has {key:?}): give another place")
        }
        (None, None) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: [u8; 16] = [7; 16];
    const THEIRS: [u8; 16] = [9; 16];

    fn checked(format: Option<String>, any: Option<&str>) -> Result<(), String> {
        let format = format.map(Bytes::from);
        let checked = check_shared("s3://bucket/prod", &OURS, format.as_ref(), any.map(str::to_owned));
        checked.map_err(|error| error.to_string())
    }

    #[test]
    fn a_place_of_this_cluster_or_an_empty_one_is_taken() {
        checked(Some(marks::shared_format(&OURS)), None).unwrap();
        checked(Some(marks::shared_format(&OURS)), Some("sst/1")).unwrap();
        checked(None, None).unwrap();
    }

    #[test]
    fn a_place_of_another_cluster_is_refused_with_both_numbers() {
        let refused = checked(Some(marks::shared_format(&THEIRS)), None).unwrap_err();
        for number in [marks::hex(&OURS), marks::hex(&THEIRS)] {
            assert!(refused.contains(&number), "{refused}");
        }
    }

    #[test]
    fn other_places_are_refused() {
        let newer = marks::shared_format(&OURS).replace("stele-data 1", "stele-data 99");
        let cases = [
            (Some(newer), None, "data format 99"),
            (Some("stele-data 1\n".to_owned()), None, "stele cluster promote"),
            (Some("stele-data 1 shared\n".to_owned()), None, "single server"),
            (Some("hello\n".to_owned()), None, "single server"),
            (
                Some("stele-data 1 promoted to etcd://a/b with the data in s3://c\n".to_owned()),
                None,
                "was promoted",
            ),
            (None, Some("servers/1/log"), "no FORMAT"),
            (None, Some("sst/1"), "no FORMAT"),
        ];
        for (format, any, why) in cases {
            let refused = checked(format.clone(), any).unwrap_err();
            assert!(refused.contains(why), "{format:?}: {refused}");
        }
    }
}
