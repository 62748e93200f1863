//! Owner records and seals as objects; the protocol is that of [`stele_storage::remote::owner`].
//!
//! A record is an object. A growing file is sealed by an empty part under the number after its last one. Of the old
//! owner's append and the seal, the second one finds the number taken.

use crate::growing::{self, Object, Parts};
use crate::store::{Listed, Store};
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

/// Files by their paths.
pub(crate) type Files = BTreeMap<String, Parts>;

/// Seals every growing file, and removes the remains of deleted ones, with seals that are old or too many. `Fenced`
/// when another process has become the owner since this one made its record.
///
/// Returns the files, each as a listing showed it that began after the put of its seal: nothing is appended to them any more. A file
/// that the old owner made later is not among them. It knows by its check that it was replaced, and appends nothing.
pub(crate) async fn seal_all(store: &Store, epoch: u64) -> Result<Files> {
    let found = list(store).await?;
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
    // Creation time of the newest object of each file.
    let mut made: BTreeMap<String, i64> = BTreeMap::new();
    for found in &found {
        if let Some((path, _)) = growing::parse_key(&found.key) {
            let newest = made.entry(path.to_owned()).or_insert(found.made_micros);
            *newest = found.made_micros.max(*newest);
        }
    }
    let files = files_of(&found);
    debug_assert_eq!(files.len(), made.len(), "every file has a newest object");
    store.delete_many(&outlived(&files, &made, now_micros)).await?;
    seal_files(store, files).await
}

/// The objects of all growing files.
async fn list(store: &Store) -> Result<Vec<Listed>> {
    let [logs, coordination] = growing::DIRECTORIES.map(|directory| store.list_dated(directory));
    // Requests in sequence delay a new owner's first response.
    let (mut found, coordination) = futures::try_join!(logs, coordination)?;
    found.extend(coordination);
    Ok(found)
}

/// The growing files of these objects.
pub(crate) fn files_of(found: &[Listed]) -> Files {
    let mut files: BTreeMap<String, Vec<(Object, u64)>> = BTreeMap::new();
    for found in found {
        if let Some((path, object)) = growing::parse_key(&found.key) {
            files.entry(path.to_owned()).or_default().push((object, found.len));
        }
    }
    let files = files.into_iter();
    files.map(|(path, parts)| (path, Parts::new(parts))).collect()
}

/// Seals the files of a listing, and removes the remains of others. One listing that begins after all puts tells which seals count. Rows
/// wait for it: a listing for each file takes longer. Files whose seals do not count yet are sealed one by one.
pub(crate) async fn seal_files(store: &Store, files: Files) -> Result<Files> {
    let puts = files.into_iter().map(|(path, parts)| async move {
        if !parts.is_file() {
            store.delete_many(&parts.keys_but_seal(&path)).await?;
            return Ok(None);
        }
        if store.skips_seal() {
            return Ok(None);
        }
        let known = growing::put_seal(store, &path, &parts).await?;
        Ok::<_, StorageError>(Some((path, known)))
    });
    let puts = futures::stream::iter(puts).buffer_unordered(SEALS_CONCURRENT);
    let known: Vec<Option<(String, Option<u32>)>> = puts.try_collect().await?;
    let known: Vec<(String, Option<u32>)> = known.into_iter().flatten().collect();
    if known.is_empty() {
        return Ok(Files::new());
    }
    let mut listed = files_of(&list(store).await?);
    let settled = known.into_iter().map(|(path, known)| {
        let parts = listed.remove(&path).unwrap_or_default();
        async move {
            let is_sealed = parts.is_sealed_at(known);
            let settled = match is_sealed {
                true => growing::settle(store, &path, parts).await?,
                false => growing::seal(store, &path, parts).await?,
            };
            Ok::<_, StorageError>(settled.map(|parts| (path, parts)))
        }
    });
    let settled: Vec<_> = settled.collect();
    let settled = futures::stream::iter(settled).buffer_unordered(SEALS_CONCURRENT);
    let files: Vec<Option<(String, Parts)>> = settled.try_collect().await?;
    let files: Files = files.into_iter().flatten().collect();
    assert!(
        files.values().all(|parts| parts.seal().is_some() || parts.is_full()),
        "the old owner can append to none of these files"
    );
    assert!(
        files.values().all(|parts| parts.is_file()),
        "files are handed over, and no remains of any"
    );
    Ok(files)
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
