//! Who owns a prefix, and how the one before is kept from acknowledging anything.
//!
//! An owner record `@owner/<n>` is created with put-if-absent under the next number; the highest number is the owner. To
//! take over:
//!
//! 1. make the next owner record;
//! 2. seal every growing file: an empty part under the number that follows its last one. Whoever of the old owner's append
//!    and the seal comes second finds the number taken.
//!
//! The old owner finds out at its next append. To make a *new* file it first creates the file's first part and then looks
//! at the owner records, before it appends. So either it sees the new record, or its file was there when the new owner
//! listed the files to seal (both listings see every put that was answered before they began). A sleeping owner loses
//! nothing by this but its life: no name it can make up gets past a seal.
//!
//! Records are never reused: a claim is looked at after it was made, as any other new file is, because the record that
//! had its number may have been deleted. The last [`RECORDS_KEPT`] stay, for people.

use crate::Shared;
use crate::growing::{self, Parts};
use crate::store::Store;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use std::collections::BTreeMap;
use std::time::Duration;
use stele_env::Env;
use stele_storage::{Result, StorageError};

const DIRECTORY: &str = "@owner/";

/// Records that stay, the newest included.
const RECORDS_KEPT: u64 = 32;

/// Claims that may come between ours: more processes than anybody starts at once.
const RACES_MAX: usize = 64;

/// How often an owner asks whether it still is one: an idle one learns of it this late. 43,200 of the cheapest requests
/// a day.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Seals put at once.
const SEALS_AT_ONCE: usize = 16;

/// Largest number believed; the coordination log counts generations above it.
const EPOCH_MAX: u64 = (1 << 24) - 1;

fn record_path(epoch: u64) -> String {
    format!("{DIRECTORY}{epoch:08x}")
}

fn parse_record(key: &str) -> Option<u64> {
    let epoch = u64::from_str_radix(key.strip_prefix(DIRECTORY)?, 16).ok()?;
    (record_path(epoch) == key).then_some(epoch)
}

/// All owners that can still be seen, oldest first.
async fn owners(store: &Store) -> Result<Vec<u64>> {
    let records = store.list(DIRECTORY).await?;
    let mut owners: Vec<u64> = records.iter().filter_map(|(key, _)| parse_record(key)).collect();
    owners.sort_unstable();
    Ok(owners)
}

/// Makes this process the owner; its number.
pub(crate) async fn claim(store: &Store, env: &Env) -> Result<u64> {
    for _ in 0..RACES_MAX {
        let epoch = owners(store).await?.last().map_or(1, |newest| newest + 1);
        if epoch > EPOCH_MAX {
            return Err(failed(format!("owner {epoch}: the numbers are used up")));
        }
        let record = format!(
            "stele-owner 1\nepoch {epoch}\nprocess {}\nstarted_micros {}\n",
            std::process::id(),
            env.wall_micros()
        );
        match store.put_new(&record_path(epoch), &[Bytes::from(record)]).await {
            Err(StorageError::AlreadyExists { .. }) => continue,
            put => put?,
        }
        let owners = owners(store).await?;
        if owners.last() == Some(&epoch) {
            let old: Vec<String> = owners
                .iter()
                .filter(|owner| **owner + RECORDS_KEPT <= epoch)
                .map(|owner| record_path(*owner))
                .collect();
            // Left over they cost nothing but their place in a listing.
            let _ = store.delete_many(&old).await;
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

/// Seals every growing file, and removes what is left of deleted ones.
pub(crate) async fn seal_all(store: &Store) -> Result<()> {
    let mut files: BTreeMap<String, Vec<(u32, u64)>> = BTreeMap::new();
    for directory in growing::DIRECTORIES {
        for (key, len) in store.list(directory).await? {
            if let Some((path, number)) = growing::parse_part(&key) {
                files.entry(path.to_owned()).or_default().push((number, len));
            }
        }
    }
    let seals = files.into_iter().map(|(path, parts)| async move {
        let parts = Parts::new(parts);
        match parts.is_file() {
            true => growing::seal(store, &path, parts.next()).await,
            false => store.delete_many(&parts.keys(&path)).await,
        }
    });
    futures::stream::iter(seals)
        .buffer_unordered(SEALS_AT_ONCE)
        .try_collect::<()>()
        .await
}

/// Says `Fenced` when somebody else owns the prefix now. To be asked after a growing file was made.
pub(crate) async fn verify(shared: &Shared, path: &str) -> Result<()> {
    match owners(&shared.store).await?.last() {
        Some(newest) if *newest > shared.epoch => Err(shared.fence.trip(path, name(*newest))),
        // Our own record may be gone only where a newer one is.
        Some(newest) if *newest == shared.epoch => Ok(()),
        _ => Err(StorageError::Io {
            path: record_path(shared.epoch),
            operation: "verify",
            message: "the record of this owner is gone".to_owned(),
        }),
    }
}

fn name(epoch: u64) -> String {
    format!("owner {epoch}")
}

/// Completes when somebody else owns the prefix.
pub(crate) async fn watch(shared: &Shared) -> String {
    let next = record_path(shared.epoch + 1);
    loop {
        if let Some(by) = shared.fence.by() {
            return by;
        }
        // Woken by whoever met the new owner first.
        let _ = shared.env.timeout(LOOK_EVERY, shared.fence.tripped()).await;
        // What fails now will be asked again; that something cannot be reached is no sign of a new owner.
        if shared.fence.by().is_none() && shared.store.head(&next).await.is_ok() {
            shared.fence.trip(&next, name(shared.epoch + 1));
        }
    }
}
