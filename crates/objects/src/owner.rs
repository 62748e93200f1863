//! Owner records and seals as objects; the protocol is that of [`stele_storage::remote::owner`].
//!
//! A record is an object of its own. A growing file is sealed by an empty part under the number that follows its last one:
//! whoever of the old owner's append and the seal comes second finds the number taken.

use crate::growing::{self, Parts};
use crate::store::Store;
use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use std::collections::BTreeMap;
use stele_storage::remote::owner::{self, DIRECTORY, Records};
use stele_storage::{Result, StorageError};

/// Seals put at once.
const SEALS_CONCURRENT: usize = 16;

/// Age at which a seal goes whose file is gone: more than anybody leaves a machine asleep for, and then lets it go on.
const SEAL_KEPT_MICROS: i64 = 7 * 24 * 3600 * 1_000_000;
/// How many such seals stay, the newest: one page of a listing. A takeover leaves about ten.
const SEALS_KEPT: usize = 1_000;
/// Age before which none goes, however many there are: two processes that take over from each other again and again under load make
/// as many within minutes, while one before them is only being moved to another machine.
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

/// Seals every growing file, and removes what is left of deleted ones; of their seals those that are old, or too many. `Fenced`
/// when another process has become the owner since this one made its record.
pub(crate) async fn seal_all(store: &Store, epoch: u64) -> Result<()> {
    let [logs, coordination] = growing::DIRECTORIES.map(|directory| store.list_dated(directory));
    // A new owner's way to its first answer is made of requests that follow each other.
    let (logs, coordination) = futures::try_join!(logs, coordination)?;
    // Not beside these: a listing of many pages, or one that is tried again, may show what an owner made who came since.
    let records = store.list_dated(owner::DIRECTORY).await?;
    owner::check_last(records.iter().map(|record| record.key.as_str()), epoch)?;
    // By the store's clock, as it dated our own record just now: a clock of ours that is fast would make every seal old.
    let now_micros = records
        .iter()
        .map(|record| record.made_micros)
        .max()
        .unwrap_or(i64::MIN);
    let mut files: BTreeMap<String, Vec<(u32, u64)>> = BTreeMap::new();
    // When the newest part of each was made.
    let mut made: BTreeMap<String, i64> = BTreeMap::new();
    for found in logs.iter().chain(&coordination) {
        if let Some((path, number)) = growing::parse_part(&found.key) {
            files.entry(path.to_owned()).or_default().push((number, found.len));
            let newest = made.entry(path.to_owned()).or_insert(found.made_micros);
            *newest = found.made_micros.max(*newest);
        }
    }
    let files: BTreeMap<String, Parts> = files
        .into_iter()
        .map(|(path, parts)| (path, Parts::new(parts)))
        .collect();
    debug_assert_eq!(files.len(), made.len(), "every file has a newest part");
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

/// The seals of deleted files that have done their duty.
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

    /// A path, its parts, and when the newest was made.
    type Left<'a> = (&'a str, Vec<(u32, u64)>, i64);

    #[test]
    fn seals_of_deleted_files_stay_for_a_week_and_not_too_many() {
        let now = 2 * SEAL_KEPT_MICROS;
        let of = |seals: &[Left<'_>]| {
            let files = seals
                .iter()
                .map(|(path, parts, _)| ((*path).to_owned(), Parts::new(parts.clone())));
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
