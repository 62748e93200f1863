//! Fetches the values that cells of a read refer to.
//!
//! Values are in the block cache unless they are bulky there: one of those would push out thousands of blocks. The server's
//! [`ValueMemory`] bounds the memory of values on their way to readers, from the moment they are read until the last slice
//! of them is dropped, thus sent. It counts values of the cache as well, which may leave the cache meanwhile.
//!
//! A load reserves memory for all its values in one step. A small load reserves none, because a batch of any scan takes
//! that much, and because a batch may hold several of them. A load for a reader that holds values of earlier loads does
//! not wait: it reserves memory if there is enough. So loads do not wait for each other in a circle, or for themselves.
//! The memory it takes beyond that is bounded nevertheless, by the reader's reservation for its response, or for the row
//! of its write.

use super::ValueRef;
use super::file::ValueFile;
use crate::error::{Result, TabletError};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use stele_cache::BlockKey;
use stele_env::{Env, work};
use stele_memory::{Consumer, Part, Pool, Reservation};
use stele_sstable::{Cache, CachedBlock};
use stele_types::{Cell, CellKind, FileId};

/// Bytes that one load may take without a reservation: a batch.
const FREE_BYTES: usize = 1 << 20;
/// Values of one load that are read concurrently: distant storage takes as long for eight as for one.
const READS_CONCURRENT: usize = 8;
/// How long a load waits for memory before the server is called busy: a reader that takes longer to accept its values
/// does not get more of them by waiting.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// Memory that large values on their way to readers may take.
#[derive(Clone, Debug)]
pub struct ValueMemory(Consumer);

impl ValueMemory {
    /// A limit of this many bytes, in a pool of its own.
    pub fn new(bytes: usize) -> Self {
        ValueMemory::of(&Pool::with_limits(|_| bytes))
    }

    /// The part of a pool that is for values.
    pub fn of(pool: &Pool) -> Self {
        ValueMemory(pool.of(Part::Values))
    }

    /// Bytes that are reserved.
    pub fn taken(&self) -> u64 {
        self.0.used() as u64
    }

    /// Memory for a value that is moved to another file. A job does not wait for ever for readers that take nothing: after a
    /// while it moves the value without a reservation, one value at a time.
    pub(crate) async fn take_to_move(&self, bytes: usize, env: &Env) -> Option<Reservation> {
        self.take(bytes, env).await.unwrap_or(None)
    }

    /// Memory for `bytes`, or all of it when that is less, if it is free.
    fn take_free(&self, bytes: usize) -> Option<Reservation> {
        (bytes > FREE_BYTES).then(|| self.0.try_reserve(bytes)).flatten()
    }

    /// Waits for memory for `bytes`; for all of it when that is less. `None` for a load that needs no reservation.
    async fn take(&self, bytes: usize, env: &Env) -> Result<Option<Reservation>> {
        if bytes <= FREE_BYTES {
            return Ok(None);
        }
        let taken = self.0.reserve(env, bytes, WAIT_MAX).await;
        taken.map(Some).map_err(|_| TabletError::Busy {
            detail: "values on their way to readers take all the memory there is for them",
        })
    }
}

/// The value files a read may meet references to.
pub trait ValueFiles {
    /// The file, if it is one of them.
    fn value_file(&self, file: FileId) -> Option<Arc<ValueFile>>;
}

/// A value that frees its memory reservation when the last slice of it is dropped.
struct Charged {
    value: Bytes,
    _reservation: Reservation,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.value
    }
}

/// Gives every cell that is a reference its value. `holds_values` says whether the reader has values of earlier loads,
/// which keep memory reserved for as long as it waits here.
pub async fn load(
    cells: &mut [Cell],
    files: &impl ValueFiles,
    (cache, reservation): (&Cache, &ValueMemory),
    env: &Env,
    holds_values: bool,
) -> Result<()> {
    // A filter may have made several cells of one: each value is read once.
    let mut wanted: BTreeMap<(FileId, u64), ValueRef> = BTreeMap::new();
    for cell in cells.iter().filter(|cell| cell.kind == CellKind::Reference) {
        let reference = decoded(&cell.value)?;
        wanted.insert((reference.file, reference.offset), reference);
    }
    if wanted.is_empty() {
        return Ok(());
    }
    let bytes = wanted.values().map(|reference| reference.value_len as usize).sum();
    let taken = match holds_values {
        true => reservation.take_free(bytes),
        false => reservation.take(bytes, env).await?,
    };
    let mut reading = Vec::with_capacity(wanted.len());
    for (place, reference) in wanted {
        let file = files.value_file(reference.file).ok_or_else(|| unknown(reference))?;
        reading.push(async move { Ok::<_, TabletError>((place, value_of(cache, &file, reference).await?)) });
    }
    let mut reading = futures::stream::iter(reading).buffered(READS_CONCURRENT);
    let mut values: BTreeMap<(FileId, u64), Bytes> = BTreeMap::new();
    while let Some((place, value)) = reading.try_next().await? {
        values.insert(place, charged(value, taken.as_ref()));
    }
    for cell in cells.iter_mut().filter(|cell| cell.kind == CellKind::Reference) {
        let reference = decoded(&cell.value)?;
        let value = values.get(&(reference.file, reference.offset));
        cell.value = value.cloned().ok_or_else(|| unknown(reference))?;
        cell.kind = CellKind::Put;
    }
    debug_assert!(
        !cells.iter().any(Cell::is_reference),
        "each reference has got its value"
    );
    Ok(())
}

/// A value from the cache or its file. A value that was read enters the cache under the rules for blocks.
async fn value_of(cache: &Cache, file: &ValueFile, reference: ValueRef) -> Result<Bytes> {
    let key = BlockKey {
        file: reference.file.0,
        offset: reference.offset,
    };
    let weight = reference.value_len as usize + size_of::<CachedBlock>();
    if cache.is_bulky(&key, weight) {
        return file.read(reference).await;
    }
    // Only a damaged file has a reference to the place of a block. The read then finds the damage.
    if let Some(CachedBlock::Value(value)) = cache.get(&key)
        && value.len() == reference.value_len as usize
    {
        work::note(|work| {
            work.blocks_cached += 1;
            work.use_file(reference.file.0);
        });
        return Ok(value);
    }
    let fetched = file.fetch(reference).await?;
    let value = match fetched.was_waited_for {
        // A slice of the bytes that a remote storage has read would retain all of them for as long as it is cached.
        true => Bytes::copy_from_slice(&fetched.value),
        false if cache.is_worth_keeping(key, weight) => fetched.value,
        false => {
            cache.had(key, weight);
            return Ok(fetched.value);
        }
    };
    cache.insert(key, CachedBlock::Value(value.clone()), weight);
    Ok(value)
}

/// The value with its part of the reservation.
fn charged(value: Bytes, taken: Option<&Reservation>) -> Bytes {
    let Some(reservation) = taken.map(|taken| taken.split(value.len())) else {
        return value;
    };
    debug_assert!(
        reservation.bytes() <= value.len(),
        "a value keeps no more memory reserved than it has bytes"
    );
    Bytes::from_owner(Charged {
        value,
        _reservation: reservation,
    })
}

/// The reference that a cell of kind `Reference` holds.
pub(crate) fn decoded(value: &[u8]) -> Result<ValueRef> {
    ValueRef::decode(value).ok_or_else(|| TabletError::Corruption {
        path: Arc::from("value reference"),
        detail: format!("{} bytes that are none", value.len()),
    })
}

/// The error for a reference into a file that no manifest names.
#[cold]
pub(crate) fn unknown(reference: ValueRef) -> TabletError {
    TabletError::Corruption {
        path: Arc::from(crate::manifest::StoredFile::Values(reference.file).path()),
        detail: "an sstable refers to this value file, but its manifest does not name it".to_owned(),
    }
}
