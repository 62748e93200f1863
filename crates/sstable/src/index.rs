//! Index blocks of both levels: separators with the handles of the blocks they stand before.
//!
//! ```text
//! entries: offset (8) | length (4) | separator      positions: u32 × n      n (4)
//! ```
//!
//! A separator is above every key of the previous child and not above the first key of its own, so the only child that
//! can hold a key is the last one whose separator is not above it.

use crate::error::DecodeError;
use crate::frame::{HANDLE_BYTES, Handle};
use bytes::Bytes;

/// Builds one index block.
#[derive(Debug, Default)]
pub struct IndexBuilder {
    content: Vec<u8>,
    positions: Vec<u32>,
}

impl IndexBuilder {
    /// Adds a child; separators must be strictly increasing.
    pub fn add(&mut self, separator: &[u8], child: Handle) {
        self.positions.push(self.content.len() as u32);
        child.encode(&mut self.content);
        self.content.extend_from_slice(separator);
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.content.len() + 4 * self.positions.len()
    }

    /// Whether it has no child.
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// The block's content; the builder is empty afterwards.
    pub fn finish(&mut self) -> Vec<u8> {
        let mut out = std::mem::take(&mut self.content);
        for position in &self.positions {
            out.extend_from_slice(&position.to_le_bytes());
        }
        out.extend_from_slice(&(self.positions.len() as u32).to_le_bytes());
        self.positions.clear();
        out
    }
}

/// A decoded index block.
#[derive(Clone, Debug)]
pub struct IndexBlock {
    content: Bytes,
    count: usize,
    positions_at: usize,
}

impl IndexBlock {
    /// Checks the block's tail; entries are checked when they are used.
    pub fn parse(content: Bytes) -> Result<IndexBlock, DecodeError> {
        let malformed = || DecodeError::new(content.len(), "index block with an impossible count");
        let count = content
            .last_chunk()
            .map(|n| u32::from_le_bytes(*n))
            .ok_or_else(malformed)?;
        let count = count as usize;
        let positions_at = count
            .checked_mul(4)
            .and_then(|len| content.len().checked_sub(len + 4))
            .ok_or_else(malformed)?;
        if count == 0 || positions_at < count * HANDLE_BYTES {
            return Err(malformed());
        }
        Ok(IndexBlock {
            content,
            count,
            positions_at,
        })
    }

    /// Number of children, at least 1.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Never: a block without children does not parse.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Memory held.
    pub fn bytes(&self) -> usize {
        self.content.len()
    }

    /// The n-th separator; `None` when the entry is malformed or absent.
    pub fn separator(&self, n: usize) -> Option<&[u8]> {
        self.entry(n)?.get(HANDLE_BYTES..)
    }

    /// The n-th child; `None` when the entry is malformed or absent.
    pub fn child(&self, n: usize) -> Option<Handle> {
        Handle::decode(self.entry(n)?)
    }

    /// The last child whose separator is at most `target` (`inclusive`) or below it; the first child when none is.
    pub fn find(&self, target: &[u8], inclusive: bool) -> Result<usize, DecodeError> {
        let (mut low, mut high) = (0, self.count);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            let separator = self.separator(middle).ok_or_else(|| self.malformed(middle))?;
            if separator < target || (inclusive && separator == target) {
                low = middle;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// The error for an entry that `separator` or `child` refused.
    #[cold]
    pub fn malformed(&self, n: usize) -> DecodeError {
        DecodeError::new(self.positions_at + 4 * n, format!("index entry {n} is malformed"))
    }

    fn entry(&self, n: usize) -> Option<&[u8]> {
        if n >= self.count {
            return None;
        }
        let start = self.position(n)?;
        let end = if n + 1 == self.count {
            self.positions_at
        } else {
            self.position(n + 1)?
        };
        self.content.get(..self.positions_at)?.get(start..end)
    }

    fn position(&self, n: usize) -> Option<usize> {
        let at = self.positions_at + 4 * n;
        let bytes = self.content.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
    }
}

/// The shortest prefix of `next` that is above `previous`. Requires `previous < next`.
pub fn separator<'a>(previous: &[u8], next: &'a [u8]) -> &'a [u8] {
    debug_assert!(previous < next);
    let common = common_prefix(previous, next);
    next.get(..=common).unwrap_or(next)
}

/// Length of the longest common prefix; eight bytes at a time.
#[inline]
pub fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let mut len = 0;
    for (x, y) in a.chunks_exact(8).zip(b.chunks_exact(8)) {
        let (Ok(x), Ok(y)) = (x.try_into(), y.try_into()) else {
            break;
        };
        let difference = u64::from_le_bytes(x) ^ u64::from_le_bytes(y);
        if difference != 0 {
            return len + difference.trailing_zeros() as usize / 8;
        }
        len += 8;
    }
    let rest = a.iter().zip(b).skip(len);
    len + rest.take_while(|(x, y)| x == y).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(0u8..3, 0..20)
    }

    proptest! {
        #[test]
        fn find_is_the_last_not_above(separators in prop::collection::btree_set(bytes(), 1..40), target in bytes()) {
            let mut builder = IndexBuilder::default();
            for (i, separator) in separators.iter().enumerate() {
                builder.add(separator, Handle { offset: i as u64, len: 1 });
            }
            let block = IndexBlock::parse(Bytes::from(builder.finish())).expect("just built");
            let upto = |keep: &dyn Fn(&&Vec<u8>) -> bool| separators.iter().filter(keep).count().saturating_sub(1);
            prop_assert_eq!(block.find(&target, true), Ok(upto(&|s| **s <= target)));
            prop_assert_eq!(block.find(&target, false), Ok(upto(&|s| **s < target)));
            let read: BTreeSet<Vec<u8>> =
                (0..block.len()).filter_map(|n| block.separator(n)).map(<[u8]>::to_vec).collect();
            prop_assert_eq!(read, separators);
        }

        #[test]
        fn separators_separate(a in bytes(), b in bytes()) {
            prop_assert_eq!(common_prefix(&a, &b), a.iter().zip(&b).take_while(|(x, y)| x == y).count());
            if a < b {
                let s = separator(&a, &b);
                prop_assert!(a.as_slice() < s && s <= b.as_slice());
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), count in 0u32..20) {
            let mut bytes = bytes;
            bytes.extend_from_slice(&count.to_le_bytes());
            if let Ok(block) = IndexBlock::parse(Bytes::from(bytes)) {
                let _ = block.find(b"x", true);
                for n in 0..=block.len() {
                    let _ = (block.separator(n), block.child(n));
                }
            }
        }
    }
}
