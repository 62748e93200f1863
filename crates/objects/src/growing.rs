//! Growing files: a sequence of parts, `<path>/@<number, 8 hex digits>`.
//!
//! * Part 0 has no content. The file exists as long as it does: it is created first and deleted first.
//! * Parts 1, 2, … hold the bytes appended between two syncs, each created with put-if-absent, one after the other.
//! * An empty part is a seal: a new owner ended the file, and nothing comes after it. The seal outlives the file. An
//!   owner that slept when the file was sealed may wake up after it was deleted, and must find its next number taken.
//! * A put that was lost on its way, and repeated, may arrive at any later time. While the part exists, the put finds
//!   the number taken. After the file was deleted it does not: such a part 0 is a file again. The next owner recognizes
//!   it by its missing parts ([`Parts::is_void`]). If it arrives after a takeover, it has no seal ([`is_file`]).
//!
//! An append is buffered in memory until the `sync`, which is one put. A put that failed may have happened or may yet
//! happen; nothing follows it in this file, as the trait demands.
//!
//! Reading shows the parts as one file. They are listed when it is opened. Small parts are joined to one object ([`join`]),
//! because a new owner waits for each request.

mod append;
mod join;
mod parts;
mod read;

pub(crate) use append::GrowingAppend;
pub(crate) use parts::{Object, Parts, parse_key, part_key};
pub(crate) use read::{of_listing, open};

use crate::shared::Shared;
use crate::store::Store;
use bytes::Bytes;
use std::sync::Arc;
use stele_storage::remote::{Access, owner};
use stele_storage::{Result, StorageError};

/// Directories of growing files: the prefixes of [`stele_storage::grows`].
pub(crate) const DIRECTORIES: [&str; 2] = ["log/", "coord/log-"];

/// Bytes of a large part that take as long as a small part. Of 32 concurrent requests each takes some 30 ms, and together
/// they could transfer 70 MB/s.
pub(crate) const PART_COST_BYTES: u64 = 64 << 10;

/// Ends a file with these parts; its parts, if it is still there. Of a void file only the seal stays: a reader would take it for a file
/// that lost the data synced before its deletion.
///
/// The old owner may have joined and deleted parts while they were listed. Then the number of a part that it put long
/// ago seems free, and a seal there would not stop it. So a seal counts only when a listing that began after its put
/// shows no part with its number or a later one: that listing shows the joined parts.
pub(crate) async fn seal(store: &Store, path: &str, mut parts: Parts) -> Result<Option<Parts>> {
    while parts.is_file() && !parts.is_full() {
        let known = put_seal(store, path, &parts).await?;
        parts = Parts::list(store, path).await?;
        if parts.is_sealed_at(known) {
            break;
        }
    }
    settle(store, path, parts).await
}

/// Puts a seal behind these parts of a file, if they have none. Its number, if it was not taken. A listing that begins later tells
/// whether the seal counts ([`seal`]).
pub(crate) async fn put_seal(store: &Store, path: &str, parts: &Parts) -> Result<Option<u32>> {
    assert!(parts.is_file(), "only a file is sealed");
    // With a seal, or full.
    let Some(number) = parts.next() else {
        return Ok(parts.seal());
    };
    assert!(number > 0, "a seal follows part 0");
    match store.put_new(&part_key(path, number), &[]).await {
        Ok(()) => Ok(Some(number)),
        // The old owner was faster, and its part counts. Or another new owner was, and its seal serves as well.
        Err(StorageError::AlreadyExists { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The parts of a file whose seal counts; `None` if the file was deleted meanwhile, or is void.
pub(crate) async fn settle(store: &Store, path: &str, parts: Parts) -> Result<Option<Parts>> {
    if parts.is_void() {
        store.delete(&part_key(path, 0)).await?;
        return Ok(None);
    }
    Ok(parts.is_file().then_some(parts))
}

/// Whether the objects of a listing are a file, and not the remains of a deletion. A takeover seals all files, so one of an earlier
/// owner that has no seal came back after its deletion: its first part was put twice, and one put was late.
pub(crate) async fn is_file(shared: &Shared, path: &str, parts: &Parts) -> Result<bool> {
    if !parts.is_file() || parts.seal().is_some() {
        return Ok(parts.is_file());
    }
    let sealer = match shared.access {
        // Its own files grow. Those that came back whole are left to the next takeover.
        Access::Owner if parts.is_only_begun() => shared.epoch,
        Access::Reader if shared.is_sealed && !parts.has_joined() => owner::newest(&shared.store).await?,
        _ => return Ok(true),
    };
    let maker = maker(&shared.store, path).await?;
    assert!(
        shared.access != Access::Owner || sealer > 0,
        "an owner has a number that its files name"
    );
    Ok(maker.is_none_or(|maker| maker >= sealer))
}

/// The number of the owner that made a file, as part 0 has it. `None` if there is no part 0, or it does not say.
pub(crate) async fn maker(store: &Store, path: &str) -> Result<Option<u64>> {
    let text = match store.get(&part_key(path, 0)).await {
        Ok(text) => text,
        Err(StorageError::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    debug_assert!(!text.is_empty(), "an empty part is a seal, and part 0 is none");
    let text = str::from_utf8(&text).unwrap_or_default();
    let owner = text.lines().find_map(|line| line.strip_prefix("owner "));
    Ok(owner.and_then(|owner| owner.parse().ok()))
}

pub(crate) async fn delete(store: &Store, path: &str) -> Result<()> {
    let parts = Parts::list(store, path).await?;
    store.delete(&part_key(path, 0)).await?;
    store.delete_many(&parts.keys_but_seal(path)).await
}

/// Creates part 0.
async fn begin(shared: &Shared, path: &str) -> Result<()> {
    let first = format!("stele-growing 1\nowner {}\n", shared.epoch);
    let made = shared.store.put_new(&part_key(path, 0), &[Bytes::from(first)]).await;
    made.map_err(|error| taken(path, error))
}

/// Names the path as taken, instead of one of its parts.
fn taken(path: &str, error: StorageError) -> StorageError {
    match error {
        StorageError::AlreadyExists { .. } => StorageError::AlreadyExists { path: path.to_owned() },
        other => other,
    }
}

/// Creates a whole file of one part, atomically: there is no file before part 0 exists. An interruption leaves the same
/// as a deletion.
pub(crate) async fn put(shared: &Shared, path: &str, content: Bytes) -> Result<()> {
    // Otherwise the content would become a part of an existing file.
    if Parts::list(&shared.store, path).await?.is_file() {
        return Err(StorageError::AlreadyExists { path: path.to_owned() });
    }
    if !content.is_empty() {
        let put = shared.store.put_new(&part_key(path, 1), &[content]).await;
        put.map_err(|error| taken(path, error))?;
    }
    begin(shared, path).await?;
    shared.verify(path).await
}

pub(crate) async fn create(shared: &Arc<Shared>, path: &str) -> Result<GrowingAppend> {
    begin(shared, path).await?;
    if let Err(error) = shared.verify(path).await {
        if !matches!(error, StorageError::Fenced { .. }) {
            // No caller knows of it, and there may be one for each group of writes while the store lists nothing.
            let (shared, first) = (Arc::clone(shared), part_key(path, 0));
            let env = shared.env.clone();
            env.spawn("log file given up", async move {
                let _ = shared.store.delete(&first).await;
            });
        }
        return Err(error);
    }
    Ok(GrowingAppend::new(shared, path))
}
