//! What is known to be damaged of an open file, and what stands for one that cannot be opened.
//!
//! Invariant: a file that cannot be read in part never gives fewer cells in silence. What stands for an unreadable file
//! claims every key that the file may have had, so that whoever asks for one gets the error.

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

/// Whether an error says that stored bytes are not what was written.
pub fn is_damage(error: &SstableError) -> bool {
    error.kind() == ErrorKind::Corruption
}

/// What was found damaged. Takes the room of a pointer until something is.
#[derive(Debug, Default)]
pub struct Damage {
    found: OnceLock<Box<Found>>,
}

#[derive(Debug, Default)]
struct Found {
    /// Nothing of the file can be read; every read says so in the words of `cells`.
    unreadable: bool,
    /// The first damage to cells or their index.
    cells: OnceLock<SstableError>,
    /// What the device could not read when it was last asked. It may think better of it, as after an outage of a network.
    unread: Mutex<Option<SstableError>>,
    /// Damage to the filter, without which the file is read all the same.
    filter: OnceLock<SstableError>,
    /// How often damage was met, by opening the file or by reading.
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

    /// Remembers that the filter cannot be used.
    pub(crate) fn note_filter(&self, error: SstableError) {
        assert!(is_damage(&error), "only damage is remembered");
        let found = self.found.get_or_init(Box::default);
        found.met.fetch_add(1, Ordering::Relaxed);
        found.filter.get_or_init(|| error);
    }

    /// Remembers damage that a read met; returns the error for that read.
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

    /// The first damage to cells or to the index, or what the device cannot read for now: merging the file would meet it again.
    pub fn of_cells(&self) -> Option<SstableError> {
        let found = self.found.get()?;
        found.cells.get().cloned().or_else(|| found.unread())
    }

    /// Where the device could not read the file when it was last asked.
    pub(crate) fn unreadable_at(&self) -> Option<u64> {
        unreadable_offset(&self.found.get()?.unread()?)
    }

    /// The device can read what it could not.
    pub(crate) fn forget_unread(&self) {
        if let Some(found) = self.found.get() {
            *found.unread.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    /// Why nothing of the file can be read, when that is so. Which keys it has may then be unknown, too.
    pub fn of_everything(&self) -> Option<&SstableError> {
        self.found.get().filter(|found| found.unreadable)?.cells.get()
    }

    /// Whether nothing of the file can be read because the device could not read what is needed to open it.
    pub(crate) fn is_unopened(&self) -> bool {
        self.of_everything().and_then(unreadable_offset).is_some()
    }

    /// Why the filter is not used, when it is damaged.
    pub fn of_filter(&self) -> Option<&SstableError> {
        self.found.get()?.filter.get()
    }

    /// The first damage of any kind.
    pub fn first(&self) -> Option<SstableError> {
        self.of_cells().or_else(|| self.of_filter().cloned())
    }

    /// How often damage was met.
    pub fn times_met(&self) -> u64 {
        self.found.get().map_or(0, |found| found.met.load(Ordering::Relaxed))
    }
}

impl Found {
    fn unread(&self) -> Option<SstableError> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Where the device could not read, if that is the error.
fn unreadable_offset(error: &SstableError) -> Option<u64> {
    match error {
        SstableError::Storage(StorageError::Unreadable { offset, .. }) => Some(*offset),
        _ => None,
    }
}

/// A file of no bytes, in place of one that cannot be read.
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

/// No key sorts above a run of FFs longer than any key. One for all files: in an outage there are thousands of them.
static ABOVE_ALL_KEYS: [u8; CELL_KEY_BYTES_MAX] = [0xff; CELL_KEY_BYTES_MAX];

/// Properties that exclude nothing: every key, time, sequence number and kind may be there.
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
