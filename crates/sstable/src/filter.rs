//! The bloom filter of a file's rows. All bits of one row are in one 64-byte line, so a probe costs one cache miss.
//!
//! Putze, Sanders, Singler, "Cache-, Hash- and Space-Efficient Bloom Filters" (2007); probing as in RocksDB's
//! FastLocalBloom. At 10 bits per row about 1 in 100 absent rows passes. Layout: lines, then the number of probes (1
//! byte). ADR 10 says why this is not a binary fuse filter (`docs/adr/0010-bloom-filter.md`).

mod held;

pub use held::BloomMemory;
pub(crate) use held::HeldFilter;

use crate::error::DecodeError;
use crate::limits;
use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64;

const LINE_BYTES: usize = 64;
const PROBES_MAX: u8 = 16;

/// The hash of an encoded row prefix (with its terminator).
pub fn row_hash(row_prefix: &[u8]) -> u64 {
    xxh3_64(row_prefix)
}

/// Collects the hashes of a file's rows.
#[derive(Debug)]
pub struct FilterBuilder {
    bits_per_row: u32,
    hashes: Vec<u64>,
    /// There were more rows than [`limits::FILTER_ROWS_MAX`], so there is no filter.
    overflowed: bool,
}

impl FilterBuilder {
    /// `bits_per_row` of 0 makes no filter. A value above the limit is reduced to the limit.
    pub fn new(bits_per_row: u32) -> Self {
        let bits_per_row = bits_per_row.min(limits::FILTER_BITS_PER_ROW_MAX);
        FilterBuilder {
            bits_per_row,
            hashes: Vec::new(),
            overflowed: false,
        }
    }

    /// Adds a row; once per row.
    pub fn add(&mut self, row_prefix: &[u8]) {
        self.add_hash(row_hash(row_prefix));
    }

    /// Adds the row with this hash; once per row.
    pub fn add_hash(&mut self, hash: u64) {
        if self.bits_per_row == 0 || self.overflowed {
            return;
        }
        if self.hashes.len() == limits::FILTER_ROWS_MAX {
            self.overflowed = true;
            self.hashes = Vec::new();
            return;
        }
        self.hashes.push(hash);
        debug_assert!(
            self.hashes.len() <= limits::FILTER_ROWS_MAX,
            "the rows of a filter are bounded"
        );
    }

    /// Memory of the hashes, all of which are retained until the end.
    pub fn bytes(&self) -> usize {
        self.hashes.len() * size_of::<u64>()
    }

    /// The filter block's content; `None` when the file has no filter.
    pub fn finish(self) -> Option<Vec<u8>> {
        if self.hashes.is_empty() {
            return None;
        }
        let bits = self.hashes.len() as u64 * u64::from(self.bits_per_row);
        let lines = bits.div_ceil(LINE_BYTES as u64 * 8).max(1);
        let probes = (self.bits_per_row * 69 / 100).clamp(1, u32::from(PROBES_MAX)) as u8;
        let mut out = vec![0u8; lines as usize * LINE_BYTES + 1];
        assert!(
            out.len() <= limits::FILTER_BYTES_MAX,
            "a filter is within the format's limit"
        );
        for hash in self.hashes {
            let start = line_of(hash, lines) * LINE_BYTES;
            for bit in bits_of(hash, probes) {
                out[start + bit / 8] |= 1 << (bit % 8);
            }
        }
        if let Some(last) = out.last_mut() {
            *last = probes;
        }
        Some(out)
    }
}

/// A loaded filter.
#[derive(Clone, Debug)]
pub struct Filter {
    content: Bytes,
    lines: u64,
    probes: u8,
}

impl Filter {
    /// Checks the content of a filter block.
    pub fn parse(content: Bytes) -> Result<Filter, DecodeError> {
        let (&probes, lines) = content
            .split_last()
            .ok_or_else(|| DecodeError::new(0, "empty filter"))?;
        let well_formed = !lines.is_empty()
            && lines.len().is_multiple_of(LINE_BYTES)
            && content.len() <= limits::FILTER_BYTES_MAX
            && (1..=PROBES_MAX).contains(&probes);
        if !well_formed {
            let detail = format!("filter of {} bytes with {probes} probes", content.len());
            return Err(DecodeError::new(0, detail));
        }
        let lines = (lines.len() / LINE_BYTES) as u64;
        Ok(Filter { content, lines, probes })
    }

    /// False when the row is certainly absent.
    pub fn may_contain(&self, hash: u64) -> bool {
        let start = line_of(hash, self.lines) * LINE_BYTES;
        let Some(line) = self.content.get(start..start + LINE_BYTES) else {
            return true;
        };
        bits_of(hash, self.probes).all(|bit| line[bit / 8] & 1 << (bit % 8) != 0)
    }

    /// Memory of the filter.
    pub fn bytes(&self) -> usize {
        self.content.len()
    }
}

fn line_of(hash: u64, lines: u64) -> usize {
    let line = ((hash >> 32) * lines) >> 32;
    debug_assert!(line < lines, "a row's line lies within the filter");
    line as usize
}

/// Bit positions within a line, each below 512.
fn bits_of(hash: u64, probes: u8) -> impl Iterator<Item = usize> {
    let mut g = hash as u32;
    (0..probes).map(move |_| {
        g = g.wrapping_mul(0x9e37_79b9);
        (g >> 23) as usize
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn build(bits: u32, rows: u32) -> Option<Filter> {
        let mut builder = FilterBuilder::new(bits);
        for row in 0..rows {
            builder.add(&row.to_le_bytes());
        }
        builder
            .finish()
            .map(|content| Filter::parse(Bytes::from(content)).expect("just built"))
    }

    #[test]
    fn knows_every_row_and_few_others() {
        for (bits, wrong_max) in [(1, 900), (10, 15), (16, 4), (99, 4)] {
            let filter = build(bits, 50_000).expect("has rows");
            let asks = |range: std::ops::Range<u32>| {
                range
                    .filter(|row| filter.may_contain(row_hash(&row.to_le_bytes())))
                    .count()
            };
            assert_eq!(asks(0..50_000), 50_000);
            let wrong = asks(50_000..150_000) / 100;
            assert!(wrong <= wrong_max, "{bits} bits: {wrong} in 1000 wrong");
        }
        assert!(build(0, 10).is_none());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), hash: u64) {
            if let Ok(filter) = Filter::parse(Bytes::from(bytes)) {
                filter.may_contain(hash);
            }
        }
    }
}
