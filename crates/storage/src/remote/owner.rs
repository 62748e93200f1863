//! Ownership of a data root that several processes can reach.
//!
//! A new owner keeps the previous owner from acknowledging anything.
//!
//! An owner record `@owner/<n>` is created with put-if-absent under the next number; the highest number is the owner. A
//! takeover has two steps:
//!
//! 1. Make the next owner record ([`claim`]).
//! 2. List the growing files, check that no later owner exists ([`check_last`]), and seal every listed file. Of the old
//!    owner's append and the seal, the second one fails. The backend decides how.
//!
//! The old owner learns of it at its next append. To make a *new* file it first creates the file, then checks the owner
//! records ([`verify`]), and only then appends. So either it sees the new record, or its file existed when the new
//! owner listed the files to seal. Both listings see every operation that was answered before they began. An owner
//! that slept loses only its life: no name it can make up gets past a seal.
//!
//! Record numbers are never reused. A claim checks the records after it made its own, like the creation of any new
//! file. The record that had its number may have been deleted. The last [`RECORDS_KEPT`] stay, for people.

use super::Fence;
use crate::{Result, StorageError};
use async_trait::async_trait;
use bytes::Bytes;
use std::time::Duration;
use stele_env::Env;

/// Directory of the records, below the root; no storage path has an `@`.
pub const DIRECTORY: &str = "@owner/";

/// Records that stay, the newest included.
const RECORDS_KEPT: u64 = 32;

/// Claims of other processes that may interfere with ours: more than are ever started concurrently.
const RACES_MAX: usize = 64;

/// Interval at which an owner checks its ownership: an idle owner learns of a takeover this late. 43,200 of the
/// cheapest requests a day.
const POLL_EVERY: Duration = Duration::from_secs(2);

/// One check in this many asks for our own record. It is deleted when [`RECORDS_KEPT`] others were made, and then so
/// may be the next one. A process that slept through that many takeovers would otherwise never learn of any.
const OWN_RECORD_EVERY: u64 = 16;

/// Largest valid number; the coordination log counts generations above it.
const EPOCH_MAX: u64 = (1 << 24) - 1;

/// The requirements of ownership on a backend: a directory with atomic creation and consistent listings.
#[async_trait]
pub trait Records: Send + Sync {
    /// The keys below [`DIRECTORY`], including that prefix.
    async fn records(&self) -> Result<Vec<String>>;

    /// Makes a record, durably; `AlreadyExists` when another process did.
    async fn make_record(&self, key: &str, content: Bytes) -> Result<()>;

    /// Whether there is such a record.
    async fn has_record(&self, key: &str) -> Result<bool>;

    /// Deletes records, if they exist.
    async fn delete_records(&self, keys: &[String]) -> Result<()>;
}

/// The path of an owner's record.
pub fn record_path(epoch: u64) -> String {
    format!("{DIRECTORY}{epoch:08x}")
}

/// The owner of a record. Only keys from [`record_path`] are valid.
pub fn parse_record(key: &str) -> Option<u64> {
    let epoch = u64::from_str_radix(key.strip_prefix(DIRECTORY)?, 16).ok()?;
    (record_path(epoch) == key).then_some(epoch)
}

/// All owners whose records exist, oldest first.
async fn owners(device: &dyn Records) -> Result<Vec<u64>> {
    let records = device.records().await?;
    let mut owners: Vec<u64> = records.iter().filter_map(|key| parse_record(key)).collect();
    owners.sort_unstable();
    Ok(owners)
}

/// The number of the newest owner; 0 where there has been none.
pub async fn newest(device: &dyn Records) -> Result<u64> {
    Ok(owners(device).await?.last().copied().unwrap_or(0))
}

/// Makes this process the owner. Returns its number.
pub async fn claim(device: &dyn Records, env: &Env) -> Result<u64> {
    for _ in 0..RACES_MAX {
        let epoch = owners(device)
            .await?
            .last()
            .map_or(1, |newest| newest.saturating_add(1));
        if epoch > EPOCH_MAX {
            return Err(failed(format!("owner {epoch}: the numbers are used up")));
        }
        let record = format!(
            "stele-owner 1\nepoch {epoch}\nprocess {}\nstarted_micros {}\n",
            std::process::id(),
            env.wall_micros()
        );
        match device.make_record(&record_path(epoch), Bytes::from(record)).await {
            Err(StorageError::AlreadyExists { .. }) => continue,
            put => put?,
        }
        let owners = owners(device).await?;
        if owners.last() == Some(&epoch) {
            assert!(
                (1..=EPOCH_MAX).contains(&epoch),
                "owners are numbered from 1, within 24 bits"
            );
            let old: Vec<String> = owners
                .iter()
                .filter(|owner| **owner + RECORDS_KEPT <= epoch)
                .map(|owner| record_path(*owner))
                .collect();
            // Records that remain cost only their place in a listing.
            let _ = device.delete_records(&old).await;
            return Ok(epoch);
        }
    }
    Err(failed(format!("{RACES_MAX} other processes were faster")))
}

fn failed(message: String) -> StorageError {
    StorageError::Io {
        path: DIRECTORY.to_owned(),
        operation: "claim",
        message,
    }
}

/// Fails with `Fenced` when a listing of the records shows an owner later than `epoch`. Must be called before the files
/// of a listing are sealed. A process that slept since its claim would otherwise seal the files of a later owner, and
/// thereby end that owner.
pub fn check_last<'a>(records: impl IntoIterator<Item = &'a str>, epoch: u64) -> Result<()> {
    match records.into_iter().filter_map(parse_record).max() {
        Some(newest) if newest > epoch => Err(StorageError::Fenced {
            path: record_path(epoch),
            by: name(newest),
        }),
        _ => Ok(()),
    }
}

/// Fails with `Fenced` when another process owns the root. Must be called after a growing file was made.
pub async fn verify(device: &dyn Records, fence: &Fence, epoch: u64, path: &str) -> Result<()> {
    match owners(device).await?.last() {
        Some(newest) if *newest > epoch => Err(fence.trip(path, name(*newest))),
        // Our own record may be gone only if a newer one exists.
        Some(newest) if *newest == epoch => Ok(()),
        _ => Err(StorageError::Io {
            path: record_path(epoch),
            operation: "verify",
            message: "the record of this owner is gone".to_owned(),
        }),
    }
}

fn name(epoch: u64) -> String {
    format!("owner {epoch}")
}

/// Completes when another process owns the root, with the name of that owner.
pub async fn watch(device: &dyn Records, env: &Env, fence: &Fence, epoch: u64) -> String {
    let (next, own) = (record_path(epoch + 1), record_path(epoch));
    let mut look = 0u64;
    loop {
        look += 1;
        if let Some(by) = fence.by() {
            return by;
        }
        // A caller that met the new owner wakes this.
        let _ = env.timeout(POLL_EVERY, fence.tripped()).await;
        if fence.by().is_some() {
            continue;
        }
        // A failed check is repeated later: an unreachable storage is no sign of a new owner.
        if device.has_record(&next).await.unwrap_or(false) {
            fence.trip(&next, name(epoch + 1));
        } else if look.is_multiple_of(OWN_RECORD_EVERY) && !device.has_record(&own).await.unwrap_or(true) {
            fence.trip(&own, format!("{} or a later one", name(epoch + RECORDS_KEPT)));
        }
    }
}

#[cfg(test)]
mod tests;
