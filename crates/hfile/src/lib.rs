//! A reader of HBase's files of cells (HFiles), for bulk loads.
//!
//! `docs/formats/hfile.md` describes the format as far as it is read. HBase 2 and 3 write version 3; version 2 with minor
//! version 3, which HBase 0.96 and 0.98 wrote, is read as well.
//!
//! Terms, which are HBase's: the *trailer* is at the end of the file and has the place of everything else. *Data blocks*
//! hold the cells in order, each behind a header with checksums. The *file info* is a map of names to values, such as the
//! encoding of data blocks and the last key. The *data index* has the first key of each data block, in one to some levels.
//!
//! A file is opened by [`HFile::open`], which reads the trailer, the root of the index and the file info. [`HFile::scan`]
//! reads all cells in order, one block at a time.
//!
//! Invariants:
//! * No bytes cause a panic, an endless loop, or more memory than was reserved for a block: each error names file and
//!   offset.
//! * A scan returns as many cells as the trailer counts, and ends with the last key of the file info, or fails.
//! * Each block is verified by its checksums before anything of it is used.
#![forbid(unsafe_code)]

mod block;
mod checksum;
mod compression;
mod encoding;
mod error;
pub mod fuzzing;
mod index;
mod info;
mod input;
mod inspect;
mod key;
mod memory;
mod plain;
mod reader;
mod scan;
mod tags;
mod trailer;

pub use error::HFileError;
pub use inspect::inspect;
pub use memory::BlockMemory;
pub use reader::HFile;
pub use scan::{CellBlock, Scan};

/// The last bytes of every HFile before its version are behind this mark, [`trailer_offset`] bytes into the file.
pub const TRAILER_MAGIC: &[u8; 8] = b"TRABLK\"$";

pub use trailer::trailer_offset;

#[cfg(test)]
mod tests;
