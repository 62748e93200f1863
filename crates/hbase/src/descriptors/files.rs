//! Attributes that say how files are written.
//!
//! HBase has them by family. Families with equal options share a locality group (`master::groups`).

use super::attributes::{self, get, is_true, number, set};
use crate::failure::{Failure, Outcome};
use stele_client::GroupUpdate;
use stele_types::{Compression, GroupOptions};
use stele_wire::messages::{BytesBytesPair, ColumnFamilySchema};

/// HBase's default, which stands for the program's own.
const DEFAULT_BLOCK_BYTES: u32 = 64 << 10;

/// Blocks that HBase takes.
const BLOCK_BYTES: std::ops::RangeInclusive<u32> = 1 << 10..=16 << 20;

/// Filter of a table that had none: the program's default when nothing is set.
const FILTER_BITS_PER_ROW: u32 = 10;

/// The options of files that HBase's attributes know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileOptions {
    pub compression: Compression,
    /// `None` for the program's default.
    pub block_bytes: Option<u32>,
    pub has_filter: bool,
    pub in_memory: bool,
}

impl FileOptions {
    /// The wishes of a family.
    pub fn of_family(family: &ColumnFamilySchema) -> Outcome<Self> {
        let attributes = &family.attributes;
        let block_bytes = number(attributes, attributes::BLOCKSIZE)?.unwrap_or(DEFAULT_BLOCK_BYTES);
        if !BLOCK_BYTES.contains(&block_bytes) {
            let name = family.name.escape_ascii();
            let message = format!("Block size for column family {name}  must be between 1K and 16MB.");
            return Err(Failure::do_not_retry(message));
        }
        let allowed = GroupOptions::BLOCK_BYTES;
        Ok(FileOptions {
            compression: compression(get(attributes, attributes::COMPRESSION).unwrap_or("NONE"))?,
            block_bytes: (block_bytes != DEFAULT_BLOCK_BYTES)
                .then(|| block_bytes.clamp(*allowed.start(), *allowed.end())),
            has_filter: has_filter(get(attributes, attributes::BLOOMFILTER).unwrap_or("ROW"))?,
            in_memory: is_true(attributes, attributes::IN_MEMORY),
        })
    }

    /// The options of a group.
    pub fn of_group(options: &GroupOptions) -> Self {
        FileOptions {
            compression: options.compression,
            block_bytes: options.block_bytes,
            has_filter: options.filter_bits_per_row != Some(0),
            in_memory: options.in_memory,
        }
    }

    /// The change that gives a group these options; `None` if it has them.
    pub fn update(&self, group: &GroupOptions) -> Option<GroupUpdate> {
        let has = Self::of_group(group);
        let filter = if self.has_filter { FILTER_BITS_PER_ROW } else { 0 };
        let update = GroupUpdate {
            compression: (self.compression != has.compression).then_some(self.compression),
            block_bytes: (self.block_bytes != has.block_bytes).then(|| self.block_bytes.unwrap_or(0)),
            filter_bits_per_row: (self.has_filter != has.has_filter).then_some(filter),
            in_memory: (self.in_memory != has.in_memory).then_some(self.in_memory),
            ..GroupUpdate::default()
        };
        (update != GroupUpdate::default()).then_some(update)
    }

    /// Makes attributes say these options.
    pub fn show(&self, attributes: &mut Vec<BytesBytesPair>) {
        let compression = match self.compression {
            Compression::None => "NONE",
            Compression::Lz4 => "LZ4",
            Compression::Snappy => "SNAPPY",
            Compression::Zstd => "ZSTD",
        };
        set(attributes, attributes::COMPRESSION, compression);
        let block_bytes = self.block_bytes.unwrap_or(DEFAULT_BLOCK_BYTES);
        set(attributes, attributes::BLOCKSIZE, block_bytes.to_string());
        set(
            attributes,
            attributes::BLOOMFILTER,
            if self.has_filter { "ROW" } else { "NONE" },
        );
        set(
            attributes,
            attributes::IN_MEMORY,
            if self.in_memory { "true" } else { "false" },
        );
    }
}

/// A codec. One that asks for density in exchange for time gets the densest of this program.
fn compression(name: &str) -> Outcome<Compression> {
    Ok(match name.to_ascii_uppercase().as_str() {
        "NONE" => Compression::None,
        "LZ4" => Compression::Lz4,
        "SNAPPY" => Compression::Snappy,
        "ZSTD" | "GZ" => Compression::Zstd,
        _ => {
            let message = format!("COMPRESSION {name:?} is not supported; NONE, LZ4, SNAPPY, ZSTD and GZ are");
            return Err(Failure::do_not_retry(message));
        }
    })
}

/// Filters are of rows here, and those of rows and columns also find rows.
fn has_filter(name: &str) -> Outcome<bool> {
    match name {
        "NONE" => Ok(false),
        "ROW" | "ROWCOL" | "ROWPREFIX_FIXED_LENGTH" => Ok(true),
        _ => Err(Failure::do_not_retry(format!("BLOOMFILTER {name:?} does not exist"))),
    }
}
