//! Every limit of the format, with its derivation. Bytes past one of these are a corruption.

use stele_types::limits::{CELL_KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// Content and payload of one block: the largest value has a block of its own, with its key; the slack covers the
/// entry header, the block's tail and what an index block holds besides one largest separator.
pub const BLOCK_BYTES_MAX: usize = VALUE_BYTES_MAX + CELL_KEY_BYTES_MAX + (128 << 10);

/// Values above this get a block of their own, so that reading a neighbour does not read them.
pub const VALUE_INLINE_BYTES_MAX: usize = 64 << 10;

/// Entries between two restarts. Fewer cost bytes, more cost seeks; it bounds what a step back must decode.
pub const RESTART_INTERVAL: usize = 16;

/// Bytes of entries after which the writer restarts earlier: a search that passes entries of a kilobyte touches new memory for
/// each, which costs more than the two dozen instructions of passing it.
pub const RESTART_BYTES: usize = 1 << 10;

/// What a writer keeps until the end, of its index or of the hashes of its rows, at which a file has its size whatever that was to
/// be ([`crate::SstableWriter::estimated_bytes`]): eight million rows.
pub const KEPT_BYTES_MAX: usize = 64 << 20;

/// Rows in a filter. The writer holds 8 bytes per row, so 256 MiB; a file of more rows, which only those write that do not cut files
/// at a size, has no filter.
pub const FILTER_ROWS_MAX: usize = 32 << 20;

/// The filter of that many rows at the most generous setting (16 bits a row), 64 MiB.
pub const FILTER_BYTES_MAX: usize = FILTER_ROWS_MAX * 2 + 1;

/// Filter bits per row the writer accepts; more gain nothing with lines of 512 bits.
pub const FILTER_BITS_PER_ROW_MAX: u32 = 16;

/// A dictionary: every open file that has one keeps it in memory.
pub const DICTIONARY_BYTES_MAX: usize = 256 << 10;

/// Target content of a data block unless somebody chooses another. A read that misses the cache reads, checks and decompresses
/// a whole block, and reads from memory search one; a scan hardly minds (`docs/adr/0014-small-blocks.md`, `docs/adr/0022-cache-admission-and-smaller-blocks.md`).
pub const BLOCK_TARGET_BYTES_DEFAULT: usize = 6 << 10;

/// Target content of a data block: from what still shares prefixes to what still makes random reads bearable.
pub const BLOCK_TARGET_BYTES_MIN: usize = 64;
/// See [`BLOCK_TARGET_BYTES_MIN`].
pub const BLOCK_TARGET_BYTES_MAX: usize = 4 << 20;

/// Content of an index block at which it is closed, or eight times the data blocks' target if that is smaller. At 16 bytes of
/// separator it holds 1,500 entries, 6 MB of data.
pub const INDEX_BLOCK_BYTES: usize = 32 << 10;

/// An index block is closed when it is this part of the top index block so far, if that is more than the above. The top thus
/// grows with the root of the index: 100 MiB of it, which is as much as can be read, stand for 60 GiB of separators of 20 KiB.
pub const TOP_PART: usize = 4;

/// What the top index block has of each index block beside its separator: position and end, or a handle.
pub const TOP_ENTRY_BYTES: usize = 16;

const _: () = assert!(BLOCK_BYTES_MAX == 105_119_808 && BLOCK_BYTES_MAX < u32::MAX as usize);
const _: () = assert!(FILTER_BYTES_MAX <= BLOCK_BYTES_MAX);
