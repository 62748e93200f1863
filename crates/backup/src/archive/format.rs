//! The documents of an archive of logs as bytes. Byte tables: `docs/formats/log-archive.md`.
//!
//! Decoders are pure functions over bytes: they refuse damage with an error that names the path, and never panic.

use crate::error::{BackupError, Result};
use crate::format::encode;
use bytes::Bytes;
use prost::Message;
use stele_tablet::FileKind;

/// The file that marks an archive.
pub const FORMAT: &str = "FORMAT";
/// Its content.
pub const FORMAT_TEXT: &str = "stele-log-archive 1\n";
/// Its content in the place of a cluster, which has an archive of tables and one of each server.
pub const CLUSTER_TEXT: &str = "stele-log-archive-of-cluster 1\n";
/// Its content in the archive of the tables of a cluster.
pub const TABLES_TEXT: &str = "stele-log-archive-of-tables 1\n";
/// Its content in the archive of a server of a cluster.
pub const SERVER_TEXT: &str = "stele-log-archive-of-server 1\n";
/// The archive of the tables in the place of a cluster.
pub const TABLES: &str = "tables";
/// The archives of servers in the place of a cluster.
pub const SERVERS: &str = "servers/";
/// The directory of parts.
pub const PARTS: &str = "parts/";
/// The directory of pieces.
pub const PIECES: &str = "pieces/";
/// The magic of a part.
pub const PART_MAGIC: [u8; 8] = *b"STELEAPT";
/// The magic of a piece of changes.
pub const CHANGES_MAGIC: [u8; 8] = *b"STELEACH";
/// Largest payload: 100,000 pieces take five megabytes, and a million barriers twenty.
const BYTES_MAX: usize = 64 << 20;
/// Bytes of changes in a part, and in a piece of changes. More are in several pieces; a larger change is alone in one.
pub const CHANGES_BYTES: usize = 1 << 20;
/// Version of a part whose changes are in pieces: a program that did not know these would follow tables without them.
const VERSION_PIECES: u32 = 2;

const PART: FileKind = FileKind {
    magic: PART_MAGIC,
    version_max: VERSION_PIECES,
    bytes_max: BYTES_MAX,
    name: "a part of a log archive",
};

const CHANGES: FileKind = FileKind {
    magic: CHANGES_MAGIC,
    version_max: 1,
    bytes_max: BYTES_MAX,
    name: "changes of tables in a log archive",
};

/// The path of a part.
pub fn part_path(number: u64) -> String {
    format!("{PARTS}part-{number:016x}")
}

/// The number of a part's path. Each has one spelling.
pub fn parse_part(path: &str) -> Option<u64> {
    let digits = path.strip_prefix(PARTS)?.strip_prefix("part-")?;
    let number = u64::from_str_radix(digits, 16).ok()?;
    (part_path(number) == path).then_some(number)
}

/// The path of a piece: of a part, by the server of an epoch.
pub fn piece_path(part: u64, epoch: u32, piece: u32) -> String {
    format!("{PIECES}{part:016x}/{epoch:08x}-{piece:08x}")
}

/// The part of a piece's path.
pub fn parse_piece(path: &str) -> Option<u64> {
    let (part, name) = path.strip_prefix(PIECES)?.split_once('/')?;
    let (epoch, piece) = name.split_once('-')?;
    let hex = |digits: &str| u32::from_str_radix(digits, 16).ok();
    let part = u64::from_str_radix(part, 16).ok()?;
    (piece_path(part, hex(epoch)?, hex(piece)?) == path).then_some(part)
}

/// The archive of a server in the place of a cluster.
pub fn server_place(server: u32) -> String {
    format!("{SERVERS}{server:08x}")
}

/// The server of a path below the place of a cluster.
pub fn parse_server(path: &str) -> Option<u32> {
    let (digits, _) = path.strip_prefix(SERVERS)?.split_once('/')?;
    let server = u32::from_str_radix(digits, 16).ok()?;
    server_place(server)
        .strip_prefix(SERVERS)
        .filter(|name| *name == digits)
        .map(|_| server)
}

/// A part: the log of a server between two moments.
#[derive(Clone, PartialEq, Message)]
pub struct Part {
    /// Its number; they ascend by one.
    #[prost(uint64, tag = "1")]
    pub number: u64,
    /// The data root that the log is of, 16 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub root: Vec<u8>,
    /// The chain of logs that it belongs to, 16 bytes.
    #[prost(bytes = "vec", tag = "3")]
    pub chain: Vec<u8>,
    /// The epoch of the server that wrote it.
    #[prost(uint32, tag = "4")]
    pub epoch: u32,
    /// The first part of its range.
    #[prost(uint64, tag = "5")]
    pub range_first: u64,
    /// Wall-clock microseconds from which on the range has every acknowledged write.
    #[prost(int64, tag = "6")]
    pub range_from: i64,
    /// The moment up to which the parts before have the log: that of the part before, or where the range begins.
    #[prost(int64, tag = "7")]
    pub from_micros: i64,
    /// The moment up to which this part has it, exclusive.
    #[prost(int64, tag = "8")]
    pub to_micros: i64,
    /// Pieces of segments, in the order of these.
    #[prost(message, repeated, tag = "9")]
    pub pieces: Vec<Piece>,
    /// How far each stream is archived with this part.
    #[prost(message, repeated, tag = "10")]
    pub ends: Vec<StreamEnd>,
    /// Changes of tables since the part before, in their order.
    #[prost(message, repeated, tag = "11")]
    pub changes: Vec<TableChange>,
    /// If a server began with this part: the moment at which the tables were those of `changes`, and no others; else 0.
    #[prost(int64, tag = "12")]
    pub restated_micros: i64,
    /// Why the range begins; empty in its other parts.
    #[prost(string, tag = "13")]
    pub gap: String,
    /// The number in the path of its first piece. Pieces of attempts that were given up have those below.
    #[prost(uint32, tag = "14")]
    pub first_piece: u32,
    /// Changes of files of tablets that the log does not describe.
    #[prost(message, repeated, tag = "15")]
    pub barriers: Vec<Barrier>,
    /// Where the changes are too many for this document: pieces of them, in their order. Then `changes` is empty.
    #[prost(message, repeated, tag = "16")]
    pub change_pieces: Vec<ChangesPiece>,
    /// In the archive of the tables of a cluster: the servers that may have written since the part before.
    #[prost(message, repeated, tag = "17")]
    pub lives: Vec<Life>,
    /// In the archive of a server of a cluster: the server acknowledges nothing any more, and all that it has acknowledged is here.
    #[prost(bool, tag = "18")]
    pub is_last: bool,
}

/// One life of a server of a cluster, from its start to the end of its log.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Life {
    /// Its number.
    #[prost(uint32, tag = "1")]
    pub server: u32,
    /// A moment, in wall-clock microseconds, before its first write.
    #[prost(int64, tag = "2")]
    pub from_micros: i64,
    /// A moment after its last write; 0 if it may still write. A backup that was begun from then on has all its writes.
    #[prost(int64, tag = "3")]
    pub ended_micros: i64,
    /// How often it has let log go that the archive does not have.
    #[prost(uint32, tag = "4")]
    pub gaps: u32,
}

impl Life {
    /// The number of the chain that its log is archived in.
    pub fn chain(&self) -> [u8; 16] {
        let mut chain = [0; 16];
        let (life, from) = chain.split_at_mut(8);
        life.copy_from_slice(&(u64::from(self.server) << 32 | u64::from(self.gaps)).to_le_bytes());
        from.copy_from_slice(&self.from_micros.to_le_bytes());
        chain
    }
}

/// A file with changes of a part.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ChangesPiece {
    /// Bytes of the file.
    #[prost(uint64, tag = "1")]
    pub len: u64,
    /// CRC-32 of the file.
    #[prost(fixed32, tag = "2")]
    pub crc: u32,
}

/// The content of such a file.
#[derive(Clone, PartialEq, Message)]
pub struct TableChanges {
    /// In their order.
    #[prost(message, repeated, tag = "1")]
    pub changes: Vec<TableChange>,
}

impl TableChanges {
    /// Encodes with header and checksum; fails if it would be larger than any that is read.
    pub fn encode_file(&self) -> Result<Bytes> {
        encode(&CHANGES, CHANGES.version_max, self, "a change of a table")
    }

    /// Decodes a whole file; `path` is for errors.
    pub fn decode_file(path: &str, bytes: &[u8]) -> Result<TableChanges> {
        let decoded = CHANGES.decode(path, bytes, |payload| TableChanges::decode(payload));
        decoded.map_err(BackupError::ArchiveDocument)
    }
}

/// A change of the files of a tablet that no record describes.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Barrier {
    /// Wall-clock microseconds.
    #[prost(int64, tag = "1")]
    pub at_micros: i64,
    /// Which tablet.
    #[prost(uint64, tag = "2")]
    pub tablet: u64,
    /// 1 rows were dropped, 2 files were loaded.
    #[prost(uint32, tag = "3")]
    pub cause: u32,
}

/// Some bytes of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Piece {
    /// The stream.
    #[prost(uint32, tag = "1")]
    pub stream: u32,
    /// The segment.
    #[prost(uint64, tag = "2")]
    pub segment: u64,
    /// The offset of the first byte.
    #[prost(uint64, tag = "3")]
    pub from: u64,
    /// Bytes.
    #[prost(uint64, tag = "4")]
    pub len: u64,
    /// CRC-32 of the bytes.
    #[prost(fixed32, tag = "5")]
    pub crc: u32,
}

/// How far a stream is archived: segments below this one to their ends, and this one up to an offset.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct StreamEnd {
    /// The stream.
    #[prost(uint32, tag = "1")]
    pub stream: u32,
    /// The segment.
    #[prost(uint64, tag = "2")]
    pub segment: u64,
    /// The offset in it.
    #[prost(uint64, tag = "3")]
    pub end: u64,
}

/// A table as it is from a moment on.
#[derive(Clone, PartialEq, Message)]
pub struct TableChange {
    /// Wall-clock microseconds of the change.
    #[prost(int64, tag = "1")]
    pub at_micros: i64,
    /// The number of the table.
    #[prost(uint64, tag = "2")]
    pub table: u64,
    /// Its record in the catalog with its version byte; empty when the table is gone.
    #[prost(bytes = "vec", tag = "3")]
    pub record: Vec<u8>,
    /// Its tablets that it did not have before; all tablets, where a server began.
    #[prost(uint64, repeated, tag = "4")]
    pub tablets: Vec<u64>,
}

impl Part {
    /// Encodes with header and checksum; fails if it would be larger than any that is read.
    pub fn encode_file(&self) -> Result<Bytes> {
        let version = if self.change_pieces.is_empty() {
            1
        } else {
            VERSION_PIECES
        };
        encode(&PART, version, self, "a part of the archive")
    }

    /// Decodes a whole file; `path` is for errors.
    pub fn decode_file(path: &str, bytes: &[u8]) -> Result<Part> {
        let decoded = PART.decode(path, bytes, |payload| Part::decode(payload));
        decoded.map_err(BackupError::ArchiveDocument)
    }

    /// The path of one of its pieces.
    pub fn piece_path(&self, index: usize) -> String {
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        piece_path(self.number, self.epoch, self.first_piece.saturating_add(index))
    }

    /// The path of one of its pieces of changes: they are behind those of the log.
    pub fn change_path(&self, index: usize) -> String {
        self.piece_path(self.pieces.len().saturating_add(index))
    }

    /// Whether it is the first of its range.
    pub fn begins_range(&self) -> bool {
        self.range_first == self.number
    }
}

/// Prints a part, or a piece of changes; `None` when it is neither.
pub fn inspect(path: &str, bytes: &[u8]) -> Option<Result<String>> {
    match *bytes.first_chunk::<8>()? {
        PART_MAGIC => Some(Part::decode_file(path, bytes).map(|part| shown(&part))),
        CHANGES_MAGIC => Some(TableChanges::decode_file(path, bytes).map(|piece| shown_changes(&piece.changes))),
        _ => None,
    }
}

/// A part with the schemas of its tables as such.
fn shown(part: &Part) -> String {
    let text = shown_changes(&part.changes);
    let part = Part {
        changes: Vec::new(),
        ..part.clone()
    };
    format!("{part:#?}\n{text}")
}

/// Changes, and the schemas of tables as such.
fn shown_changes(changes: &[TableChange]) -> String {
    let mut text = String::new();
    for change in changes.iter().filter(|change| !change.record.is_empty()) {
        text += &match stele_catalog::record::decode_table(&change.record) {
            Ok((schema, _)) => format!("{schema:#?}\n"),
            Err(why) => format!("a table record that cannot be decoded: {why}\n"),
        };
    }
    for change in changes {
        let change = TableChange {
            record: Vec::new(),
            ..change.clone()
        };
        text += &format!("{change:#?}\n");
    }
    text
}

#[cfg(test)]
mod tests;
