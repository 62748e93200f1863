//! Who owns a data root on a medium that several processes reach, and how the one before is kept from acknowledging
//! anything.
//!
//! An owner record `@owner/<n>` is created with put-if-absent under the next number; the highest number is the owner. To
//! take over:
//!
//! 1. make the next owner record ([`claim`]);
//! 2. list the growing files, see that nobody has come later ([`check_last`]), and seal every one that was listed, so that
//!    whoever of the old owner's append and the seal comes second fails. How is the medium's business.
//!
//! The old owner finds out at its next append. To make a *new* file it first creates the file and then looks at the owner
//! records ([`verify`]), before it appends. So either it sees the new record, or its file was there when the new owner
//! listed the files to seal (both listings see everything that was answered before they began). A sleeping owner loses
//! nothing by this but its life: no name it can make up gets past a seal.
//!
//! Records are never reused: a claim is looked at after it was made, as any other new file is, because the record that
//! had its number may have been deleted. The last [`RECORDS_KEPT`] stay, for people.

use super::Fence;
use crate::{Result, StorageError};
use async_trait::async_trait;
use bytes::Bytes;
use std::time::Duration;
use stele_env::Env;

/// Where the records are, below the root; no storage path has an `@`.
pub const DIRECTORY: &str = "@owner/";

/// Records that stay, the newest included.
const RECORDS_KEPT: u64 = 32;

/// Claims that may come between ours: more processes than anybody starts at once.
const RACES_MAX: usize = 64;

/// How often an owner asks whether it still is one: an idle one learns of it this late. 43,200 of the cheapest requests
/// a day.
const POLL_EVERY: Duration = Duration::from_secs(2);

/// One look in so many asks for our own record. It is deleted when [`RECORDS_KEPT`] others were made, and then so may be the
/// next one: a process that slept through as many takeovers would never learn of any.
const OWN_RECORD_EVERY: u64 = 16;

/// Largest number believed; the coordination log counts generations above it.
const EPOCH_MAX: u64 = (1 << 24) - 1;

/// What ownership asks of a medium: a directory with atomic creation and consistent listings.
#[async_trait]
pub trait Records: Send + Sync {
    /// The keys below [`DIRECTORY`], with it.
    async fn records(&self) -> Result<Vec<String>>;

    /// Makes a record, durably; `AlreadyExists` when somebody else did.
    async fn make_record(&self, key: &str, content: Bytes) -> Result<()>;

    /// Whether there is such a record.
    async fn has_record(&self, key: &str) -> Result<bool>;

    /// Deletes records, as far as they are there.
    async fn delete_records(&self, keys: &[String]) -> Result<()>;
}

/// The path of an owner's record.
pub fn record_path(epoch: u64) -> String {
    format!("{DIRECTORY}{epoch:08x}")
}

/// The owner of a record. Only what [`record_path`] makes is one.
pub fn parse_record(key: &str) -> Option<u64> {
    let epoch = u64::from_str_radix(key.strip_prefix(DIRECTORY)?, 16).ok()?;
    (record_path(epoch) == key).then_some(epoch)
}

/// All owners that can still be seen, oldest first.
async fn owners(device: &dyn Records) -> Result<Vec<u64>> {
    let records = device.records().await?;
    let mut owners: Vec<u64> = records.iter().filter_map(|key| parse_record(key)).collect();
    owners.sort_unstable();
    Ok(owners)
}

/// Makes this process the owner; its number.
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
            // Left over they cost nothing but their place in a listing.
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

/// Says `Fenced` when a listing of the records shows a later owner than this. To be asked before the files of a listing are
/// sealed: who was asleep since its claim would end the files of who came meanwhile, and with them the newest owner.
pub fn check_last<'a>(records: impl IntoIterator<Item = &'a str>, epoch: u64) -> Result<()> {
    match records.into_iter().filter_map(parse_record).max() {
        Some(newest) if newest > epoch => Err(StorageError::Fenced {
            path: record_path(epoch),
            by: name(newest),
        }),
        _ => Ok(()),
    }
}

/// Says `Fenced` when somebody else owns the root now. To be asked after a growing file was made.
pub async fn verify(device: &dyn Records, fence: &Fence, epoch: u64, path: &str) -> Result<()> {
    match owners(device).await?.last() {
        Some(newest) if *newest > epoch => Err(fence.trip(path, name(*newest))),
        // Our own record may be gone only where a newer one is.
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

/// Completes when somebody else owns the root, with its name.
pub async fn watch(device: &dyn Records, env: &Env, fence: &Fence, epoch: u64) -> String {
    let (next, own) = (record_path(epoch + 1), record_path(epoch));
    let mut look = 0u64;
    loop {
        look += 1;
        if let Some(by) = fence.by() {
            return by;
        }
        // Woken by whoever met the new owner first.
        let _ = env.timeout(POLL_EVERY, fence.tripped()).await;
        if fence.by().is_some() {
            continue;
        }
        // What fails now will be asked again; that something cannot be reached is no sign of a new owner.
        if device.has_record(&next).await.unwrap_or(false) {
            fence.trip(&next, name(epoch + 1));
        } else if look.is_multiple_of(OWN_RECORD_EVERY) && !device.has_record(&own).await.unwrap_or(true) {
            fence.trip(&own, format!("{} or a later one", name(epoch + RECORDS_KEPT)));
        }
    }
}

#[cfg(test)]
mod tests;
