//! Options of a locality group.
//!
//! Options hold for files written from now on. Existing files keep their options until a compaction rewrites them.
//! `None` takes the program's default, which may improve with a later version.

use super::Compression;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// Options for the files of a locality group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupOptions {
    /// Codec of blocks.
    pub compression: Compression,
    /// Level of [`Compression::Zstd`]; ignored for other codecs.
    pub zstd_level: u8,
    /// Size of the dictionary that a file of [`Compression::Zstd`] is compressed with; 0 for none.
    pub dictionary_bytes: u32,
    /// Content of a data block.
    pub block_bytes: Option<u32>,
    /// Bits per row of the bloom filter; 0 for none.
    pub filter_bits_per_row: Option<u32>,
    /// Blocks are loaded into the cache when a file is opened. They have priority over those of other groups, as far as
    /// the cache allows.
    pub in_memory: bool,
    /// Size at which a file is closed.
    pub file_bytes: Option<u64>,
}

impl Default for GroupOptions {
    fn default() -> Self {
        GroupOptions {
            compression: Compression::Lz4,
            zstd_level: 1,
            dictionary_bytes: 0,
            block_bytes: None,
            filter_bits_per_row: None,
            in_memory: false,
            file_bytes: None,
        }
    }
}

impl GroupOptions {
    /// Levels of Zstandard. Higher ones take hundreds of megabytes for their windows.
    pub const ZSTD_LEVELS: RangeInclusive<u8> = 1..=19;
    /// Bytes of a dictionary: a smaller one has no effect, a larger one is held by every open file.
    pub const DICTIONARY_BYTES: RangeInclusive<u32> = 1 << 10..=256 << 10;
    /// Content of a data block: below it the index grows to a part of the data, above it a point read is a scan.
    pub const BLOCK_BYTES: RangeInclusive<u32> = 1 << 10..=1 << 20;
    /// Bits per row: more gain nothing, see `docs/adr/0010-bloom-filter.md`.
    pub const FILTER_BITS_PER_ROW_MAX: u32 = 16;
    /// Bytes of a file: smaller ones are too many to hold open, larger ones too much to rewrite in one piece.
    pub const FILE_BYTES: RangeInclusive<u64> = 1 << 20..=4 << 30;

    /// Fails with a reason when the options are out of range or contradict each other.
    pub fn check(&self) -> Result<(), String> {
        let is_zstd = self.compression == Compression::Zstd;
        if !Self::ZSTD_LEVELS.contains(&self.zstd_level) {
            return Err(outside("the level of zstd", self.zstd_level, &Self::ZSTD_LEVELS));
        }
        if self.zstd_level != 1 && !is_zstd {
            return Err("a level is an option of zstd".to_owned());
        }
        if self.dictionary_bytes > 0 {
            if !is_zstd {
                return Err("a dictionary is an option of zstd".to_owned());
            }
            if !Self::DICTIONARY_BYTES.contains(&self.dictionary_bytes) {
                let what = "the bytes of a dictionary";
                return Err(outside(what, self.dictionary_bytes, &Self::DICTIONARY_BYTES));
            }
        }
        if let Some(bytes) = self.block_bytes.filter(|bytes| !Self::BLOCK_BYTES.contains(bytes)) {
            return Err(outside("the bytes of a block", bytes, &Self::BLOCK_BYTES));
        }
        let bits_max = Self::FILTER_BITS_PER_ROW_MAX;
        if let Some(bits) = self.filter_bits_per_row.filter(|bits| *bits > bits_max) {
            return Err(outside("the filter's bits per row", bits, &(0..=bits_max)));
        }
        if let Some(bytes) = self.file_bytes.filter(|bytes| !Self::FILE_BYTES.contains(bytes)) {
            return Err(outside("the bytes of a file", bytes, &Self::FILE_BYTES));
        }
        Ok(())
    }
}

fn outside<T: std::fmt::Display>(what: &str, found: T, range: &RangeInclusive<T>) -> String {
    format!("{what} must be {} to {}, not {found}", range.start(), range.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_had_is_named() {
        let zstd = GroupOptions {
            compression: Compression::Zstd,
            ..GroupOptions::default()
        };
        let all = GroupOptions {
            zstd_level: 19,
            dictionary_bytes: 64 << 10,
            block_bytes: Some(4 << 10),
            filter_bits_per_row: Some(0),
            in_memory: true,
            file_bytes: Some(1 << 20),
            ..zstd.clone()
        };
        for good in [GroupOptions::default(), zstd.clone(), all.clone()] {
            assert_eq!(good.check(), Ok(()));
        }
        let lz4 = GroupOptions::default();
        #[rustfmt::skip]
        let bad = [
            (GroupOptions { zstd_level: 20, ..zstd.clone() }, "the level of zstd must be 1 to 19, not 20"),
            (GroupOptions { zstd_level: 3, ..lz4.clone() }, "a level is an option of zstd"),
            (GroupOptions { dictionary_bytes: 4096, ..lz4.clone() }, "a dictionary is an option of zstd"),
            (GroupOptions { dictionary_bytes: 1, ..zstd }, "the bytes of a dictionary must be 1024 to 262144, not 1"),
            (GroupOptions { block_bytes: Some(0), ..lz4.clone() }, "the bytes of a block must be 1024 to 1048576, not 0"),
            (GroupOptions { filter_bits_per_row: Some(17), ..lz4.clone() }, "the filter's bits per row must be 0 to 16, not 17"),
            (GroupOptions { file_bytes: Some(5), ..lz4 }, "the bytes of a file must be 1048576 to 4294967296, not 5"),
        ];
        for (options, why) in bad {
            assert_eq!(options.check(), Err(why.to_owned()));
        }
    }
}
