//! Owner records and seals as objects; the protocol is that of [`stele_storage::remote::owner`].
//!
//! A record is an object. A growing file is sealed by an empty part under the number after its last one. Of the old
//! owner's append and the seal, the second one finds the number taken.

use crate::growing::{self, Object, Parts};
use crate::store::Store;
use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use std::collections::BTreeMap;
use stele_storage::remote::owner::{self, DIRECTORY, Records};
use stele_storage::{Result, StorageError};

/// Seals put concurrently.
const SEALS_CONCURRENT: usize = 16;

/// Age at which the seal of a deleted file is removed: longer than a machine is left asleep and then continues.
const SEAL_KEPT_MICROS: i64 = 7 * 24 * 3600 * 1_000_000;
/// Number of such seals that stay, the newest: one page of a listing. A takeover leaves about ten.
const SEALS_KEPT: usize = 1_000;
/// Age before which none is removed, even if there are many. Two processes that repeatedly take over from each other
/// under load create as many within minutes, while an earlier owner may only be migrating to another machine.
const SEAL_KEPT_MICROS_MIN: i64 = 3600 * 1_000_000;

#[async_trait]
impl Records for Store {
    async fn records(&self) -> Result<Vec<String>> {
        Ok(self.list(DIRECTORY).await?.into_iter().map(|(key, _)| key).collect())
    }

    async fn make_record(&self, key: &str, content: Bytes) -> Result<()> {
        self.put_new(key, &[content]).await
    }

    async fn has_record(&self, key: &str) -> Result<bool> {
        match self.head(key).await {
            Ok(_) => Ok(true),
            Err(StorageError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn delete_records(&self, keys: &[String]) -> Result<()> {
        self.delete_many(keys).await
    }
}

/// Seals every growing file, and removes the remains of deleted ones, with seals that are old or too many. `Fenced`
/// when another process has become the owner since this one made its record.
pub(crate) async fn seal_all(store: &Store, epoch: u64) -> Result<()> {
    let [logs, coordination] = growing::DIRECTORIES.map(|directory| store.list_dated(directory));
    // Requests in sequence delay a new owner's first response.
    let (logs, coordination) = futures::try_join!(logs, coordination)?;
    // Not concurrently with these: a listing of many pages, or one that is retried, may show files of an owner that
    // came later.
    let records = store.list_dated(owner::DIRECTORY).await?;
    owner::check_last(records.iter().map(|record| record.key.as_str()), epoch)?;
    // By the store's clock, which dated our own record just now: a fast local clock would make every seal old.
    let now_micros = records
        .iter()
        .map(|record| record.made_micros)
        .max()
        .unwrap_or(i64::MIN);
    let mut files: BTreeMap<String, Vec<(Object, u64)>> = BTreeMap::new();
    // Creation time of the newest object of each file.
    let mut made: BTreeMap<String, i64> = BTreeMap::new();
    for found in logs.iter().chain(&coordination) {
        if let Some((path, object)) = growing::parse_key(&found.key) {
            files.entry(path.to_owned()).or_default().push((object, found.len));
            let newest = made.entry(path.to_owned()).or_insert(found.made_micros);
            *newest = found.made_micros.max(*newest);
        }
    }
    let files: BTreeMap<String, Parts> = files
        .into_iter()
        .map(|(path, parts)| (path, Parts::new(parts)))
        .collect();
    debug_assert_eq!(files.len(), made.len(), "every file has a newest object");
    store.delete_many(&outlived(&files, &made, now_micros)).await?;
    let seals = files.into_iter().map(|(path, parts)| async move {
        if !parts.is_file() {
            store.delete_many(&parts.keys_but_seal(&path)).await
        } else if store.skips_seal() {
            Ok(())
        } else {
            growing::seal(store, &path, parts).await
        }
    });
    futures::stream::iter(seals)
        .buffer_unordered(SEALS_CONCURRENT)
        .try_collect::<()>()
        .await
}

/// The seals of deleted files that are no longer needed.
fn outlived(files: &BTreeMap<String, Parts>, made: &BTreeMap<String, i64>, now_micros: i64) -> Vec<String> {
    let lone = files.iter().filter_map(|(path, parts)| {
        let made_micros = made.get(path).copied().unwrap_or(now_micros);
        parts.lone_seal(path).map(|key| (made_micros, key))
    });
    let mut lone: Vec<(i64, String)> = lone.collect();
    lone.sort_unstable_by(|a, b| b.cmp(a));
    let older = |made: i64, age: i64| now_micros.saturating_sub(made) > age;
    let outlived = lone.into_iter().enumerate();
    outlived
        .filter(|(newer, (made, _))| {
            let is_surplus = *newer >= SEALS_KEPT && older(*made, SEAL_KEPT_MICROS_MIN);
            is_surplus || older(*made, SEAL_KEPT_MICROS)
        })
        .map(|(_, (_, key))| key)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path, its parts, and the creation time of the newest one.
    type Left<'a> = (&'a str, Vec<(u32, u64)>, i64);

    #[test]
    fn seals_of_deleted_files_stay_for_a_week_and_not_too_many() {
        let now = 2 * SEAL_KEPT_MICROS;
        let of = |seals: &[Left<'_>]| {
            let files = seals.iter().map(|(path, parts, _)| {
                let parts = parts.iter().map(|(number, len)| (Object::Part(*number), *len));
                ((*path).to_owned(), Parts::new(parts))
            });
            let made = seals.iter().map(|(path, _, made)| ((*path).to_owned(), *made));
            outlived(&files.collect(), &made.collect(), now)
        };
        let old = now - SEAL_KEPT_MICROS - 1;
        let seals = [
            ("young", vec![(3, 0)], now - SEAL_KEPT_MICROS),
            ("old", vec![(3, 0)], old),
            ("of a file", vec![(0, 9), (3, 0)], old),
            ("of a deletion under way", vec![(2, 7), (3, 0)], old),
            ("no seal", vec![(3, 9)], old),
            ("of the future", vec![(1, 0)], now + 1),
        ];
        assert_eq!(of(&seals), ["old/@00000003"]);
        let names: Vec<String> = (0..SEALS_KEPT + 2).map(|n| format!("{n:05}")).collect();
        let many = names.iter().enumerate();
        let many: Vec<_> = many
            .map(|(n, name)| (name.as_str(), vec![(1, 0)], now - SEAL_KEPT_MICROS_MIN - n as i64))
            .collect();
        assert_eq!(of(&many), ["01000/@00000001", "01001/@00000001"]);
        let young: Vec<_> = many
            .into_iter()
            .map(|(name, parts, made)| (name, parts, made + SEALS_KEPT as i64))
            .collect();
        assert_eq!(of(&young), ["01001/@00000001"]);
    }
}
