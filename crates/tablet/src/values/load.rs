//! Fetches the values that cells of a read refer to.
//!
//! Values go past the block cache: one of them would push out thousands of blocks, and the medium is asked once for each
//! anyway. What they take of memory is bounded by the server's [`ValueMemory`], from the moment they are read until the last
//! slice of them is dropped, thus sent.
//!
//! A load takes the room for all it wants at once, and a small one takes none, because it is what a batch of any scan takes,
//! and because a batch may hold several of them. So that loads do not wait for each other in a circle, or for themselves, one
//! for a reader that holds values of earlier loads does not wait: it takes room if there is enough. What it takes beyond that
//! is bounded nevertheless, by the room that the reader has for its answer, or for the row of its write.

use super::ValueRef;
use super::file::ValueFile;
use crate::error::{Result, TabletError};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use stele_env::Env;
use stele_types::{Cell, CellKind, FileId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes that one load may take without room: a batch.
const FREE_BYTES: usize = 1 << 20;
/// Values of one load that are read concurrently: distant storage takes as long for eight as for one.
const READS_CONCURRENT: usize = 8;
/// How long a load waits for room before the server is called busy: a reader that takes longer to accept its values
/// does not get more of them by waiting.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// Room is counted in units, so that it fits into a semaphore's 32 bits.
const UNIT: usize = 4 << 10;

/// Memory that large values on their way to readers may take.
#[derive(Clone, Debug)]
pub struct ValueMemory {
    semaphore: Arc<Semaphore>,
    units: usize,
    /// Bytes that are waited for.
    wanted: Arc<AtomicUsize>,
}

/// Counts the bytes that a load waits for, as long as it waits.
struct Wanted<'a>(&'a AtomicUsize, usize);

impl<'a> Wanted<'a> {
    fn new(wanted: &'a AtomicUsize, bytes: usize) -> Self {
        wanted.fetch_add(bytes, Ordering::Relaxed);
        Wanted(wanted, bytes)
    }
}

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        let wanted = self.0.fetch_sub(self.1, Ordering::Relaxed);
        assert!(wanted >= self.1, "a load that has waited was counted");
    }
}

impl ValueMemory {
    /// Room for so many bytes.
    pub fn new(bytes: usize) -> Self {
        ValueMemory::wanted_in(bytes, Arc::default())
    }

    /// Room for so many bytes, which says in `wanted` how many are waited for: whoever has some and does nothing with it, as
    /// an answer whose client has stopped reading, can give it back.
    pub fn wanted_in(bytes: usize, wanted: Arc<AtomicUsize>) -> Self {
        let units = (bytes / UNIT).clamp(1, u32::MAX as usize / 2);
        ValueMemory {
            semaphore: Arc::new(Semaphore::new(units)),
            units,
            wanted,
        }
    }

    /// Bytes that are taken.
    pub fn taken(&self) -> u64 {
        let free = self.semaphore.available_permits().min(self.units);
        ((self.units - free) * UNIT) as u64
    }

    /// Room for a value that is moved to another file. Readers that take nothing do not keep it waiting for ever: after a
    /// while it is moved without, one at a time for each job.
    pub(crate) async fn take_to_move(&self, bytes: usize, env: &Env) -> Option<OwnedSemaphorePermit> {
        self.take(bytes, env).await.unwrap_or(None)
    }

    /// Room for `bytes`, or all of it when that is less, if nobody has to be waited for.
    fn take_free(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let units = self.units_of(bytes)?;
        self.semaphore.clone().try_acquire_many_owned(units).ok()
    }

    /// What so many bytes take, all of it when that is less; `None` when they need no room.
    fn units_of(&self, bytes: usize) -> Option<u32> {
        (bytes > FREE_BYTES).then(|| bytes.div_ceil(UNIT).min(self.units) as u32)
    }

    /// Waits for room for `bytes`; for all of it when that is less. `None` for what needs none.
    async fn take(&self, bytes: usize, env: &Env) -> Result<Option<OwnedSemaphorePermit>> {
        let Some(units) = self.units_of(bytes) else {
            return Ok(None);
        };
        let _wanted = Wanted::new(&self.wanted, units as usize * UNIT);
        let waiting = self.semaphore.clone().acquire_many_owned(units);
        match env.timeout(WAIT_MAX, waiting).await {
            Ok(Ok(permit)) => Ok(Some(permit)),
            // Never closed.
            Ok(Err(_)) | Err(_) => Err(TabletError::Busy {
                detail: "values on their way to readers take all the memory there is for them",
            }),
        }
    }
}

/// The value files a read may meet references to.
pub trait ValueFiles {
    /// The file, if it is one of them.
    fn value_file(&self, file: FileId) -> Option<Arc<ValueFile>>;
}

/// A value that gives its room back when the last slice of it goes.
struct Charged {
    value: Bytes,
    _room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.value
    }
}

/// Gives every cell that is a reference its value. `holds_values` says whether the reader has values of earlier loads, which keep
/// room for as long as it waits here.
pub async fn load(
    cells: &mut [Cell],
    files: &impl ValueFiles,
    reservation: &ValueMemory,
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
    let mut taken = match holds_values {
        true => reservation.take_free(bytes),
        false => reservation.take(bytes, env).await?,
    };
    let mut reading = Vec::with_capacity(wanted.len());
    for (place, reference) in wanted {
        let file = files.value_file(reference.file).ok_or_else(|| unknown(reference))?;
        reading.push(async move { Ok::<_, TabletError>((place, file.read(reference).await?)) });
    }
    let mut reading = futures::stream::iter(reading).buffered(READS_CONCURRENT);
    let mut values: BTreeMap<(FileId, u64), Bytes> = BTreeMap::new();
    while let Some((place, value)) = reading.try_next().await? {
        values.insert(place, charged(value, &mut taken));
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

/// The value with its share of the room.
fn charged(value: Bytes, taken: &mut Option<OwnedSemaphorePermit>) -> Bytes {
    let Some(permit) = taken else { return value };
    let units = value.len().div_ceil(UNIT).min(permit.num_permits());
    match permit.split(units) {
        Some(reservation) => Bytes::from_owner(Charged {
            value,
            _room: reservation,
        }),
        None => value,
    }
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
