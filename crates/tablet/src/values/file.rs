//! An open value file.
//!
//! Damage is remembered: the file is then not collected, because moving its values would meet the damage again and
//! again, and the damage is reported. Bytes that the device cannot read are damage until it can. A file that cannot be
//! opened, though a manifest names it, is held nevertheless, and fails every read of a value. If only the header of a
//! file is damaged, its values are read: each has a checksum over its place and its file of its own.

use super::{HEADER_BYTES, HeaderError, LENGTH_BYTES, ValueRef, decode_header, decode_record, record_len};
use crate::error::Result;
use bytes::Bytes;
use parking_lot::Mutex;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use stele_env::{trace, work};
use stele_sstable::compress::decompress;
use stele_sstable::damage::is_damage;
use stele_sstable::{DecodeError, SstableError};
use stele_storage::{ReadFile, StorageError};
use stele_types::{Compression, FileId};

/// An immutable file of values, open for reading.
pub struct ValueFile {
    id: FileId,
    path: String,
    /// Absent when it is missing, or the device does not open it.
    file: Option<Arc<dyn ReadFile>>,
    /// The first damage met. A failure of the device to read counts only when the file was opened.
    damage: OnceLock<SstableError>,
    /// The last failure of the device to read the open file, when it was last asked.
    unread: Mutex<Option<SstableError>>,
    times_met: AtomicU64,
}

impl std::fmt::Debug for ValueFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ValueFile")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl ValueFile {
    /// The range of a file that is read first when it is opened.
    pub const READ_FIRST: Range<u64> = 0..HEADER_BYTES as u64;

    /// Opens a file that was written under `id`.
    pub async fn open(file: Arc<dyn ReadFile>, id: FileId) -> Result<ValueFile> {
        let path = file.path().to_owned();
        check_header(&*file, id).await?;
        Ok(Self::held(id, path, Some(file), None))
    }

    fn held(id: FileId, path: String, file: Option<Arc<dyn ReadFile>>, damage: Option<SstableError>) -> ValueFile {
        ValueFile {
            id,
            path,
            file,
            times_met: AtomicU64::new(u64::from(damage.is_some())),
            damage: damage.map_or_else(OnceLock::new, OnceLock::from),
            unread: Mutex::default(),
        }
    }

    /// Like [`ValueFile::open`], but a file that is missing is one of which every read fails, and damage to the header
    /// is remembered. Other errors are errors, for they may pass. `opened` is the result of the backend for opening
    /// `path`.
    pub async fn open_or_damaged(
        opened: stele_storage::Result<Arc<dyn ReadFile>>,
        path: &str,
        id: FileId,
    ) -> Result<ValueFile> {
        let (file, error) = match opened {
            Ok(file) => {
                let header = check_header(&*file, id).await;
                (Some(file), header.err())
            }
            Err(StorageError::NotFound { .. }) => {
                let missing = SstableError::corruption(path, 0, "a manifest names this file, which is missing");
                (None, Some(missing))
            }
            Err(error) => (None, Some(error.into())),
        };
        match error {
            Some(error) if !is_damage(&error) => Err(error.into()),
            error => Ok(Self::held(id, path.to_owned(), file, error)),
        }
    }

    /// The file's id.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// Its path.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Its bytes; none when it cannot be opened.
    pub fn bytes(&self) -> u64 {
        self.file.as_ref().map_or(0, |file| file.len())
    }

    /// The first damage met, or the current failure of the device to read; and how often damage was met.
    pub fn damage(&self) -> Option<(SstableError, u64)> {
        let error = self.damage.get().cloned().or_else(|| self.unread.lock().clone())?;
        Some((error, self.times_met.load(Ordering::Relaxed)))
    }

    /// Whether the device could not read a place of the open file when it was last asked.
    pub fn is_unread(&self) -> bool {
        self.unread.lock().is_some()
    }

    /// Asks the device once more for such a place. If it can read that by now, it is no damage any more.
    pub async fn try_unreadable(&self) {
        let offset = self.unread.lock().as_ref().and_then(unreadable_offset);
        if let (Some(offset), Some(file)) = (offset, &self.file)
            && file.read_at(offset, 1).await.is_ok()
        {
            *self.unread.lock() = None;
        }
    }

    /// Whether it could be opened.
    pub fn is_open(&self) -> bool {
        self.file.is_some() && !self.is_unopened()
    }

    /// Whether it could not be opened, because the device could not read the bytes needed for that. The device may be
    /// able to by now, so opening it again may succeed.
    pub fn is_unopened(&self) -> bool {
        self.damage.get().and_then(unreadable_offset).is_some()
    }

    /// A value, read from the device and checked.
    pub async fn read(&self, reference: ValueRef) -> Result<Bytes> {
        Ok(self.fetch(reference).await?.value)
    }

    /// The same, and whether the device was waited for.
    pub(super) async fn fetch(&self, reference: ValueRef) -> Result<Fetched> {
        let Some(file) = &self.file else {
            let error = self.damage.get().cloned();
            return Err(self
                .note(error.unwrap_or_else(|| SstableError::corruption(&self.path, 0, "cannot be read")))
                .into());
        };
        let (offset, len) = (reference.offset, reference.record_len());
        let fits = offset >= HEADER_BYTES as u64 && offset.checked_add(len as u64).is_some_and(|end| end <= file.len());
        if !fits {
            let detail = format!("a reference to {len} bytes, the file has {}", file.len());
            return Err(self.corruption(offset, detail).into());
        }
        let at_hand = file.try_read_at(offset, len);
        let was_waited_for = at_hand.is_none();
        let read = match at_hand {
            Some(read) => read,
            None => {
                let mut reading = trace::stage("read value");
                reading.note(|facts| facts.bytes = len as u64);
                file.read_at(offset, len).await
            }
        };
        match read {
            Ok(record) => {
                debug_assert!(record.len() == len, "a read returns all bytes of the record");
                work::note(|work| {
                    work.values_read += 1;
                    work.value_bytes_read += record.len() as u64;
                    work.use_file(self.id.0);
                });
                let value = self.value(reference, &record)?;
                Ok(Fetched { value, was_waited_for })
            }
            Err(error @ StorageError::Unreadable { .. }) => Err(self.note(error.into()).into()),
            Err(error) => Err(error.into()),
        }
    }

    /// The value of a record that was read.
    fn value(&self, reference: ValueRef, bytes: &Bytes) -> std::result::Result<Bytes, SstableError> {
        let failed = |error: DecodeError| self.corruption(reference.offset, error);
        let record = decode_record(self.id, reference.offset, bytes).map_err(failed)?;
        if record.crc != reference.crc {
            let detail = format!(
                "a record of checksum {:08x}, the reference says {:08x}",
                record.crc, reference.crc
            );
            return Err(self.corruption(reference.offset, detail));
        }
        let value = match Compression::from_byte(record.compression) {
            Some(Compression::None) => bytes.slice(LENGTH_BYTES..LENGTH_BYTES + record.payload.len()),
            Some(kind) => Bytes::from(decompress(kind, record.payload).map_err(failed)?),
            None => {
                let detail = format!("unknown compression {}", record.compression);
                return Err(self.corruption(reference.offset, detail));
            }
        };
        if value.len() != reference.value_len as usize {
            let detail = format!(
                "a value of {} bytes, the reference says {}",
                value.len(),
                reference.value_len
            );
            return Err(self.corruption(reference.offset, detail));
        }
        Ok(value)
    }

    #[cold]
    fn corruption(&self, offset: u64, detail: impl std::fmt::Display) -> SstableError {
        self.note(SstableError::corruption(&self.path, offset, detail))
    }

    #[cold]
    fn note(&self, error: SstableError) -> SstableError {
        self.times_met.fetch_add(1, Ordering::Relaxed);
        if self.file.is_some() && unreadable_offset(&error).is_some() {
            self.unread.lock().get_or_insert_with(|| error.clone());
        } else {
            let _ = self.damage.get_or_init(|| error.clone());
        }
        error
    }
}

/// A value that was read.
pub(super) struct Fetched {
    pub value: Bytes,
    /// It was not in the memory of the system.
    pub was_waited_for: bool,
}

/// Where the device could not read, if that is the error.
fn unreadable_offset(error: &SstableError) -> Option<u64> {
    match error {
        SstableError::Storage(StorageError::Unreadable { offset, .. }) => Some(*offset),
        _ => None,
    }
}

pub(super) async fn check_header(file: &dyn ReadFile, id: FileId) -> std::result::Result<(), SstableError> {
    let len = HEADER_BYTES.min(usize::try_from(file.len()).unwrap_or(HEADER_BYTES));
    let header = file.read_at(0, len).await?;
    match decode_header(&header) {
        Ok(found) if found == id => Ok(()),
        Ok(found) => {
            let detail = format!("written as file {found}, opened as {id}");
            Err(SstableError::corruption(file.path(), 16, detail))
        }
        Err(HeaderError::Corrupt(error)) => Err(SstableError::corruption(file.path(), 0, error)),
        Err(HeaderError::TooNew(found)) => Err(SstableError::UnknownVersion {
            file: file.path().to_owned(),
            found,
            supported: super::VERSION,
        }),
    }
}

/// The result of a check of every record of a file.
#[derive(Clone, Debug, Default)]
pub struct CheckedValues {
    /// Records that are as they were written.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The damage.
    pub findings: Vec<SstableError>,
}

/// Findings reported one by one; further ones are rarely news.
const FINDINGS_MAX: usize = 100;

/// Reads every record of a file; `each` is called with the number of bytes read, `show` with every sound record's place
/// and value bytes.
pub async fn check(
    file: &dyn ReadFile,
    id: FileId,
    mut each: impl FnMut(u64),
    mut show: impl FnMut(u64, usize, u8),
) -> std::result::Result<CheckedValues, SstableError> {
    let mut checked = CheckedValues::default();
    match check_header(file, id).await {
        // The records behind it need nothing of it.
        Err(error) if is_damage(&error) => checked.findings.push(error),
        header => header?,
    }
    each(HEADER_BYTES as u64);
    let mut at = HEADER_BYTES as u64;
    while at < file.len() && checked.findings.len() < FINDINGS_MAX {
        let left = usize::try_from(file.len() - at).unwrap_or(usize::MAX);
        let head = unless_unreadable(file.read_at(at, LENGTH_BYTES.min(left)).await, &mut checked)?;
        let Some(len) = record_len(&head).filter(|len| *len <= left) else {
            let detail = "no record begins here; what follows cannot be told apart";
            checked.findings.push(SstableError::corruption(file.path(), at, detail));
            each(left as u64);
            break;
        };
        let record = unless_unreadable(file.read_at(at, len).await, &mut checked)?;
        match decode_record(id, at, &record) {
            Ok(sound) => {
                checked.records += 1;
                checked.bytes += len as u64;
                show(at, sound.payload.len(), sound.compression);
            }
            Err(_) if record.is_empty() => {}
            Err(error) => checked.findings.push(SstableError::corruption(file.path(), at, error)),
        }
        at += len as u64;
        each(len as u64);
    }
    Ok(checked)
}

/// Nothing in place of bytes that the device cannot read, which is a finding.
fn unless_unreadable(
    read: stele_storage::Result<Bytes>,
    checked: &mut CheckedValues,
) -> std::result::Result<Bytes, SstableError> {
    match read {
        Err(error @ StorageError::Unreadable { .. }) => {
            checked.findings.push(error.into());
            Ok(Bytes::new())
        }
        other => Ok(other?),
    }
}

/// Prints a value file: a line for the whole, and when `verbose` one for each record.
pub async fn inspect(file: Arc<dyn ReadFile>, verbose: bool) -> std::result::Result<String, SstableError> {
    let len = HEADER_BYTES.min(usize::try_from(file.len()).unwrap_or(HEADER_BYTES));
    let header = file.read_at(0, len).await?;
    let id = match decode_header(&header) {
        Ok(id) => id,
        // Says the same once more, as an error of this file.
        Err(_) => {
            return Err(check_header(&*file, FileId(0))
                .await
                .err()
                .unwrap_or_else(|| SstableError::corruption(file.path(), 0, "not a value file")));
        }
    };
    let mut lines = String::new();
    let show = |offset: u64, bytes: usize, compression: u8| {
        if verbose {
            let codec = Compression::from_byte(compression);
            let codec = codec.map_or_else(|| format!("{compression}?"), |kind| format!("{kind:?}"));
            let _ = writeln!(lines, "  record at {offset}: {bytes} bytes, compression {codec}");
        }
    };
    let checked = check(&*file, id, |_| {}, show).await?;
    if let Some(error) = checked.findings.first() {
        return Err(error.clone());
    }
    Ok(format!(
        "value file {id}: {} bytes, {} records\n{lines}",
        file.len(),
        checked.records
    ))
}
