//! Known damage of open files, and stand-ins for files that cannot be opened.
//!
//! Invariant: a partly unreadable file never silently gives fewer cells. The stand-in for an unreadable file claims
//! every key that the file may have had, so that a read of one of them gets the error.

use crate::error::{Result, SstableError};
use crate::frame::Handle;
use crate::index::{IndexBlock, IndexBuilder};
use crate::properties::Properties;
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use stele_storage::{ReadFile, StorageError};
use stele_types::ErrorKind;
use stele_types::limits::CELL_KEY_BYTES_MAX;

/// Whether the error says that stored bytes differ from the written ones.
pub fn is_damage(error: &SstableError) -> bool {
    error.kind() == ErrorKind::Corruption
}

/// Damage found so far. Takes one pointer until there is some.
#[derive(Debug, Default)]
pub struct Damage {
    found: OnceLock<Box<Found>>,
}

#[derive(Debug, Default)]
struct Found {
    /// The whole file is unreadable; every read fails with the error in `cells`.
    unreadable: bool,
    /// The first damage to cells or their index.
    cells: OnceLock<SstableError>,
    /// The last read that the device failed. A later read may succeed, as after a network outage.
    unread: Mutex<Option<SstableError>>,
    /// Damage to the filter; the file stays usable.
    filter: OnceLock<SstableError>,
    /// Number of times that damage was met, by opening the file or by reading.
    met: AtomicU64,
}

impl Damage {
    fn of(found: Found) -> Self {
        Damage {
            found: OnceLock::from(Box::new(found)),
        }
    }

    pub(crate) fn unreadable(error: SstableError) -> Self {
        assert!(is_damage(&error), "only damage makes a file unreadable");
        Self::of(Found {
            unreadable: true,
            cells: OnceLock::from(error),
            met: AtomicU64::new(1),
            ..Found::default()
        })
    }

    pub(crate) fn without_filter(error: SstableError) -> Self {
        let damage = Damage::default();
        damage.note_filter(error);
        damage
    }

    /// Records that the filter cannot be used.
    pub(crate) fn note_filter(&self, error: SstableError) {
        assert!(is_damage(&error), "only damage is remembered");
        let found = self.found.get_or_init(Box::default);
        found.met.fetch_add(1, Ordering::Relaxed);
        found.filter.get_or_init(|| error);
    }

    /// Records damage that a read met; returns the error for that read.
    #[cold]
    pub(crate) fn note(&self, error: SstableError) -> SstableError {
        assert!(is_damage(&error), "only damage is remembered");
        let found = self.found.get_or_init(Box::default);
        found.met.fetch_add(1, Ordering::Relaxed);
        if unreadable_offset(&error).is_some() {
            let mut unread = found.unread.lock().unwrap_or_else(PoisonError::into_inner);
            unread.get_or_insert_with(|| error.clone());
            return error;
        }
        let first = found.cells.get_or_init(|| error.clone());
        if found.unreadable { first.clone() } else { error }
    }

    /// The first damage to cells or to the index, or a place that the device cannot read now: a compaction would meet
    /// it again.
    pub fn of_cells(&self) -> Option<SstableError> {
        let found = self.found.get()?;
        found.cells.get().cloned().or_else(|| found.unread())
    }

    /// The place that the device could not read last time.
    pub(crate) fn unreadable_at(&self) -> Option<u64> {
        unreadable_offset(&self.found.get()?.unread()?)
    }

    /// Forgets that place after a successful read.
    pub(crate) fn forget_unread(&self) {
        if let Some(found) = self.found.get() {
            *found.unread.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    /// The reason why the whole file is unreadable, in that case. Its keys may then be unknown, too.
    pub fn of_everything(&self) -> Option<&SstableError> {
        self.found.get().filter(|found| found.unreadable)?.cells.get()
    }

    /// Whether the whole file is unreadable because the device failed when it was opened.
    pub(crate) fn is_unopened(&self) -> bool {
        self.of_everything().and_then(unreadable_offset).is_some()
    }

    /// The reason why the filter is not used, when it is damaged.
    pub fn of_filter(&self) -> Option<&SstableError> {
        self.found.get()?.filter.get()
    }

    /// The first damage of any kind.
    pub fn first(&self) -> Option<SstableError> {
        self.of_cells().or_else(|| self.of_filter().cloned())
    }

    /// Number of times that damage was met.
    pub fn times_met(&self) -> u64 {
        self.found.get().map_or(0, |found| found.met.load(Ordering::Relaxed))
    }
}

impl Found {
    fn unread(&self) -> Option<SstableError> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The unreadable place, if that is the error.
fn unreadable_offset(error: &SstableError) -> Option<u64> {
    match error {
        SstableError::Storage(StorageError::Unreadable { offset, .. }) => Some(*offset),
        _ => None,
    }
}

/// A file of no bytes, in place of an unreadable one.
#[derive(Debug)]
pub(crate) struct Unreadable {
    path: String,
}

impl Unreadable {
    pub(crate) fn new(path: &str) -> Self {
        Unreadable { path: path.to_owned() }
    }

    fn refuse(&self, offset: u64, len: usize) -> StorageError {
        StorageError::OutOfBounds {
            path: self.path.clone(),
            offset,
            wanted: len as u64,
            len: 0,
        }
    }
}

#[async_trait]
impl ReadFile for Unreadable {
    async fn read_at(&self, offset: u64, len: usize) -> stele_storage::Result<Bytes> {
        Err(self.refuse(offset, len))
    }

    fn try_read_at(&self, offset: u64, len: usize) -> Option<stele_storage::Result<Bytes>> {
        Some(Err(self.refuse(offset, len)))
    }

    fn len(&self) -> u64 {
        0
    }

    fn path(&self) -> &str {
        &self.path
    }
}

/// No key sorts above a run of FFs longer than any key. All files share it: in an outage there are thousands of them.
static ABOVE_ALL_KEYS: [u8; CELL_KEY_BYTES_MAX] = [0xff; CELL_KEY_BYTES_MAX];

/// Properties that exclude nothing: every key, time, sequence number and kind may be present.
pub(crate) fn any_properties() -> Properties {
    Properties {
        smallest_key: Vec::new(),
        largest_key: Bytes::from_static(&ABOVE_ALL_KEYS),
        cells: 1,
        rows: 1,
        timestamp_min: Some(i64::MIN),
        timestamp_max: Some(i64::MAX),
        seq_max: u64::MAX,
        ..Properties::default()
    }
}

/// An index whose only block lies in a file of no bytes.
pub(crate) fn no_index() -> Result<IndexBlock> {
    let mut builder = IndexBuilder::default();
    builder.add(&[], Handle::default());
    IndexBlock::parse(Bytes::from(builder.finish())).map_err(|e| SstableError::corruption("index", 0, e))
}
