//! Every limit of the format, with its derivation. Bytes beyond a limit are a corruption.

use stele_types::limits::{CELL_KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// Content and payload of one block. The largest value has a block of its own, with its key. The slack covers the entry
/// header, the block's tail and the parts of an index block besides one largest separator.
pub const BLOCK_BYTES_MAX: usize = VALUE_BYTES_MAX + CELL_KEY_BYTES_MAX + (128 << 10);

/// Values above this get a block of their own, so that reading a neighbour does not read them.
pub const VALUE_INLINE_BYTES_MAX: usize = 64 << 10;

/// Entries between two restarts. Fewer cost bytes, more cost seeks. It bounds the entries that a step back decodes.
pub const RESTART_INTERVAL: usize = 16;

/// Bytes of entries after which the writer restarts earlier. A search that passes entries of a kilobyte touches new
/// memory for each, which costs more than the two dozen instructions of passing it.
pub const RESTART_BYTES: usize = 1 << 10;

/// Memory for the index or for the row hashes, which a writer retains until the end, at which a file is full
/// ([`crate::SstableWriter::estimated_bytes`]): eight million rows.
pub const KEPT_BYTES_MAX: usize = 64 << 20;

/// Rows in a filter. The writer holds 8 bytes per row, so 256 MiB. A file of more rows has no filter; only a writer
/// that does not cut files at a size makes one.
pub const FILTER_ROWS_MAX: usize = 32 << 20;

/// The filter of that many rows at the largest setting (16 bits per row), 64 MiB.
pub const FILTER_BYTES_MAX: usize = FILTER_ROWS_MAX * 2 + 1;

/// Filter bits per row the writer accepts. More gain nothing with lines of 512 bits.
pub const FILTER_BITS_PER_ROW_MAX: u32 = 16;

/// Size of a dictionary: every open file that has one holds it in memory.
pub const DICTIONARY_BYTES_MAX: usize = 256 << 10;

/// Default target content of a data block. A read that misses the cache reads, checks and decompresses a whole block,
/// and a read from memory searches one. Scans depend little on it (`docs/adr/0014-small-blocks.md`,
/// `docs/adr/0022-cache-admission-and-smaller-blocks.md`).
pub const BLOCK_TARGET_BYTES_DEFAULT: usize = 6 << 10;

/// Bounds of the target content of a data block: at the lower one keys still share prefixes, at the upper one random
/// reads are still bearable.
pub const BLOCK_TARGET_BYTES_MIN: usize = 64;
/// See [`BLOCK_TARGET_BYTES_MIN`].
pub const BLOCK_TARGET_BYTES_MAX: usize = 4 << 20;

/// Content at which an index block is closed, unless eight times the data blocks' target is smaller. At 16 bytes per
/// separator it holds 1,500 entries, 6 MB of data.
pub const INDEX_BLOCK_BYTES: usize = 32 << 10;

/// An index block is closed when it is this part of the top index block so far, if that is more than the above. The top
/// thus grows with the root of the index: the readable maximum of 100 MiB stands for 60 GiB of separators of 20 KiB.
pub const TOP_PART: usize = 4;

/// Bytes of an index block's entry in the top index block besides its separator: position and end, or a handle.
pub const TOP_ENTRY_BYTES: usize = 16;

const _: () = assert!(BLOCK_BYTES_MAX == 105_119_808 && BLOCK_BYTES_MAX < u32::MAX as usize);
const _: () = assert!(FILTER_BYTES_MAX <= BLOCK_BYTES_MAX);
