//! Sstables are immutable sorted files of cells (Bigtable §4, §5.3). Byte table: `docs/formats/sstable.md`.
//!
//! Terms: a *key* is an encoded cell key (`stele_types::key`). Its *trailer* is the last 17 bytes (timestamp, sequence,
//! kind), its *body* the rest. A *block* is the unit of I/O, checksum, compression and caching. A *separator* is a byte
//! string that separates two neighbouring blocks in the index.
//!
//! * [`SstableWriter`] takes strictly increasing keys and buffers finished blocks; only writing them out is async.
//! * [`Sstable`] is an open file. Footer, properties and top index are pinned, the bloom filter as far as its memory
//!   allows. All other blocks go through the block cache.
//! * [`Cursor`] moves over the cells in both directions. Its core is synchronous: it asks for an await
//!   ([`Step::Pending`]) only when a block is neither cached nor readable without blocking.
//!
//! Decoders ([`footer`], [`properties`], [`index`], [`filter`], [`block`], [`compress`], [`dictionary`]) are pure
//! functions over bytes. They never panic and never allocate more than a stated limit, so that each can be fuzzed.
#![forbid(unsafe_code)]

pub mod block;
pub mod check;
pub mod compress;
mod cursor;
pub mod damage;
pub mod dictionary;
mod error;
pub mod filter;
pub mod footer;
pub mod frame;
pub mod index;
mod inspect;
pub mod limits;
mod neighbours;
pub mod properties;
mod ranges;
mod reader;
mod renumber;
mod residence;
mod scratch;
mod warm;
mod writer;

pub use block::{Buffered, BufferedValue};
pub use cursor::{Cursor, CursorOptions, Missing, Step};
pub use damage::Damage;
pub use error::{DecodeError, Result, SstableError};
pub use filter::BloomMemory;
pub use inspect::inspect;
pub use properties::Properties;
pub use reader::{Cache, CachedBlock, Sstable};
pub use writer::{SstableMeta, SstableWriter, WriteOptions};

#[cfg(test)]
mod tests;
