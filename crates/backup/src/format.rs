//! The documents of a destination as bytes. Byte tables: `docs/formats/backup.md`.
//!
//! Decoders are pure functions over bytes: they refuse damage with an error that names the path, and never panic.

use crate::error::{BackupError, Result};
use bytes::Bytes;
use prost::Message;
use stele_tablet::{FileKind, StoredFile};
use stele_types::FileId;

/// Of records and lists. Of states 2: a program that does not know attempts would delete their files.
const VERSION: u32 = 1;
const STATE_VERSION: u32 = 2;
/// Largest payload: that of a record, which has the schemas of all tables. The catalog that they come from has no more bytes.
const BYTES_MAX: usize = 256 << 20;
/// Files of one list.
pub const LISTED_FILES_MAX: usize = 10_000;
/// Bytes at each end of a file that [`ListedFile::ends`] covers.
pub const END_BYTES: u64 = 4096;

/// The magic of a state.
pub const STATE_MAGIC: [u8; 8] = *b"STELEBST";
/// The magic of a record.
pub const RECORD_MAGIC: [u8; 8] = *b"STELEBRC";
/// The magic of a list of files.
pub const LIST_MAGIC: [u8; 8] = *b"STELEBFL";

const fn kind(magic: [u8; 8], version: u32, name: &'static str) -> FileKind {
    FileKind {
        magic,
        version_max: version,
        bytes_max: BYTES_MAX,
        name,
    }
}

const STATE: FileKind = kind(STATE_MAGIC, STATE_VERSION, "a state of backups");
const RECORD: FileKind = kind(RECORD_MAGIC, VERSION, "a record of a backup");
const LIST: FileKind = kind(LIST_MAGIC, VERSION, "a list of files of a backup");

/// A document with its own magic.
pub trait Document: Message + Default {
    /// Its header.
    #[doc(hidden)]
    fn file_kind() -> FileKind;

    /// Encodes with header and checksum; fails if it would be larger than any that is read.
    fn encode_file(&self, path: &str) -> Result<Bytes> {
        let kind = Self::file_kind();
        encode(&kind, kind.version_max, self, path)
    }

    /// Decodes a whole file; `path` is for errors.
    fn decode_file(path: &str, bytes: &[u8]) -> Result<Self> {
        let decoded = Self::file_kind().decode(path, bytes, |payload| Self::decode(payload));
        decoded.map_err(BackupError::Document)
    }
}

/// A document with header and checksum; an error with its `name` if it would be larger than any that is read.
pub(crate) fn encode(kind: &FileKind, version: u32, document: &impl Message, name: &str) -> Result<Bytes> {
    let payload = document.encode_to_vec();
    match payload.len() <= kind.bytes_max {
        true => Ok(kind.encode(version, &payload)),
        false => Err(BackupError::TooMuch(format!(
            "{name}: {} bytes, of {} at most",
            payload.len(),
            kind.bytes_max
        ))),
    }
}

/// All backups of a destination.
#[derive(Clone, PartialEq, Message)]
pub struct State {
    /// Its number.
    #[prost(uint64, tag = "1")]
    pub number: u64,
    /// Backups, complete and unfinished.
    #[prost(message, repeated, tag = "2")]
    pub backups: Vec<Entry>,
    /// Deleted backups whose files may still be in use.
    #[prost(message, repeated, tag = "3")]
    pub deleted: Vec<Deleted>,
}

/// A backup in a state.
#[derive(Clone, PartialEq, Message)]
pub struct Entry {
    /// The number of the backup.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Its name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// The root that it is of.
    #[prost(bytes = "vec", tag = "3")]
    pub root: Vec<u8>,
    /// Wall-clock microseconds at which it was begun; of a complete one, at which the attempt that completed it was begun.
    #[prost(int64, tag = "4")]
    pub begun_micros: i64,
    /// Wall-clock microseconds at which it was complete; 0 while it is not.
    #[prost(int64, tag = "5")]
    pub completed_micros: i64,
    /// Number of the state that first had it.
    #[prost(uint64, tag = "6")]
    pub since: u64,
    /// Tables.
    #[prost(uint64, tag = "7")]
    pub tables: u64,
    /// Files.
    #[prost(uint64, tag = "8")]
    pub files: u64,
    /// Bytes of the files.
    #[prost(uint64, tag = "9")]
    pub bytes: u64,
    /// Bytes that it copied itself.
    #[prost(uint64, tag = "10")]
    pub copied_bytes: u64,
    /// The attempts at it, oldest first; of a complete one, that which completed it. Empty in states of version 1, where the
    /// backup has one attempt of its own number.
    #[prost(uint64, repeated, tag = "11")]
    pub attempts: Vec<u64>,
}

impl Entry {
    /// Whether it can be restored.
    pub fn is_complete(&self) -> bool {
        self.completed_micros != 0
    }

    /// The attempts, oldest first; one at least.
    pub fn all_attempts(&self) -> &[u64] {
        match self.attempts.is_empty() {
            true => std::slice::from_ref(&self.id),
            false => &self.attempts,
        }
    }

    /// The attempt that completed it; of an unfinished backup the newest.
    pub fn attempt(&self) -> u64 {
        self.attempts.last().copied().unwrap_or(self.id)
    }
}

/// A backup that was complete and is deleted.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Deleted {
    /// The attempt that completed it.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Number of the state that first lacked it.
    #[prost(uint64, tag = "2")]
    pub since: u64,
}

/// The description of a backup: its tables.
#[derive(Clone, PartialEq, Message)]
pub struct Record {
    /// The number of the backup.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Its name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// The root that it is of.
    #[prost(bytes = "vec", tag = "3")]
    pub root: Vec<u8>,
    /// Its tables, by name.
    #[prost(message, repeated, tag = "4")]
    pub tables: Vec<TableOf>,
    /// Lists of files.
    #[prost(uint32, tag = "5")]
    pub lists: u32,
    /// Program and version.
    #[prost(string, tag = "6")]
    pub created_by: String,
    /// The attempt that completed it; 0 in records of earlier programs, where it is the number of the backup.
    #[prost(uint64, tag = "7")]
    pub attempt: u64,
    /// The tables were named, and others may have been left out. Not noted by earlier programs.
    #[prost(bool, tag = "8")]
    pub of_some: bool,
}

impl Record {
    /// The attempt that completed the backup: the one that wrote this record and its lists.
    pub fn attempt(&self) -> u64 {
        match self.attempt {
            0 => self.id,
            attempt => attempt,
        }
    }
}

/// A table of a backup.
#[derive(Clone, PartialEq, Message)]
pub struct TableOf {
    /// A table record of the catalog.
    #[prost(bytes = "vec", tag = "1")]
    pub table: Vec<u8>,
    /// Wall-clock microseconds at which its snapshot was begun.
    #[prost(int64, tag = "2")]
    pub created_micros: i64,
    /// Wall-clock microseconds at which its snapshot was complete.
    #[prost(int64, tag = "3")]
    pub completed_micros: i64,
    /// Parts of the snapshot.
    #[prost(uint32, tag = "4")]
    pub parts: u32,
    /// Tablets.
    #[prost(uint64, tag = "5")]
    pub tablets: u64,
    /// Bytes of rows, roughly.
    #[prost(uint64, tag = "6")]
    pub bytes: u64,
    /// SHA-256 of its rows; empty if it was not asked for.
    #[prost(bytes = "vec", tag = "7")]
    pub sha256: Vec<u8>,
    /// Rows in that.
    #[prost(uint64, tag = "8")]
    pub rows: u64,
    /// Cells in that.
    #[prost(uint64, tag = "9")]
    pub cells: u64,
}

/// Some files of a backup.
#[derive(Clone, PartialEq, Message)]
pub struct FileList {
    /// The attempt that wrote it.
    #[prost(uint64, tag = "1")]
    pub attempt: u64,
    /// The number of the list.
    #[prost(uint32, tag = "2")]
    pub number: u32,
    /// The files.
    #[prost(message, repeated, tag = "3")]
    pub files: Vec<ListedFile>,
}

/// A file of a backup.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ListedFile {
    /// Its number in its root.
    #[prost(uint64, tag = "1")]
    pub file: u64,
    /// 0 an sstable, 1 a value file.
    #[prost(uint32, tag = "2")]
    pub kind: u32,
    /// Bytes.
    #[prost(uint64, tag = "3")]
    pub len: u64,
    /// Checksum of all bytes.
    #[prost(fixed32, tag = "4")]
    pub crc: u32,
    /// Of earlier programs, and not used: it is the same for many files.
    #[prost(fixed32, tag = "5")]
    pub tail_crc: u32,
    /// The attempt that copied it, of this backup or of another.
    #[prost(uint64, tag = "6")]
    pub copied_by: u64,
    /// Hash of its first and last [`END_BYTES`]; 0 in lists of earlier programs, whose files are not taken over.
    #[prost(fixed64, tag = "7")]
    pub ends: u64,
}

impl ListedFile {
    /// Which file; `None` for a kind that this program does not know.
    pub fn stored(&self) -> Option<StoredFile> {
        match self.kind {
            0 => Some(StoredFile::Sstable(FileId(self.file))),
            1 => Some(StoredFile::Values(FileId(self.file))),
            _ => None,
        }
    }

    /// The number of its kind.
    pub fn kind_of(file: StoredFile) -> u32 {
        match file {
            StoredFile::Sstable(_) => 0,
            StoredFile::Values(_) => 1,
        }
    }
}

impl Document for State {
    fn file_kind() -> FileKind {
        STATE
    }
}

impl Document for Record {
    fn file_kind() -> FileKind {
        RECORD
    }
}

impl Document for FileList {
    fn file_kind() -> FileKind {
        LIST
    }
}

/// Prints a document; `None` when it is none.
pub fn inspect(path: &str, bytes: &[u8]) -> Option<Result<String>> {
    let magic: [u8; 8] = *bytes.first_chunk()?;
    match magic {
        STATE_MAGIC => Some(State::decode_file(path, bytes).map(|state| format!("{state:#?}\n"))),
        RECORD_MAGIC => Some(Record::decode_file(path, bytes).map(|record| shown(&record))),
        LIST_MAGIC => Some(FileList::decode_file(path, bytes).map(|list| format!("{list:#?}\n"))),
        _ => None,
    }
}

/// A record with the schemas of its tables as such.
fn shown(record: &Record) -> String {
    let mut text = String::new();
    for table in &record.tables {
        text += &match stele_catalog::record::decode_table(&table.table) {
            Ok((schema, _)) => format!("{schema:#?}\n"),
            Err(why) => format!("a table record that cannot be decoded: {why}\n"),
        };
    }
    let without_schemas = record.tables.iter().map(|table| TableOf {
        table: Vec::new(),
        ..table.clone()
    });
    let record = Record {
        tables: without_schemas.collect(),
        ..record.clone()
    };
    format!("{record:#?}\n{text}")
}

#[cfg(test)]
mod tests;
