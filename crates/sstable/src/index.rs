//! Index blocks of both levels map separators to the handles of child blocks.
//!
//! ```text
//! separators | positions: u16 or u32 × n | ends: u32 × n | base (8) | common (4) | n (4), bit 31 set, bit 30: u32 positions
//! ```
//!
//! Children that follow each other in the file without gaps, as a writer leaves them, need no handles of their own. The
//! n-th child ends, with its frame, `ends[n]` bytes after `base`, and the next child begins there. Blocks whose children do
//! not adjoin, or span 4 GiB or more, list handles instead:
//!
//! ```text
//! entries: offset (8) | length (4) | separator      positions: u32 × n      n (4)
//! ```
//!
//! A separator is above every key of the previous child and not above the first key of its own child. The only child
//! that can hold a key is therefore the last one whose separator is not above the key. Separators differ in few bytes
//! after their common prefix. A search compares eight of those bytes as a number, and whole separators only where the
//! numbers are equal.

use crate::error::DecodeError;
use crate::frame::{self, HANDLE_BYTES, Handle};
use bytes::Bytes;
use std::cmp::Ordering;

/// In the count: children adjoin.
const ADJOINING: u32 = 1 << 31;
/// In the count: positions are u32, because separators take 64 KiB or more.
const WIDE: u32 = 1 << 30;
/// Base, common length and count.
const TAIL_BYTES: usize = 16;

/// Builds one index block.
#[derive(Debug, Default)]
pub struct IndexBuilder {
    separators: Vec<u8>,
    positions: Vec<u32>,
    children: Vec<Handle>,
    /// Length of the common prefix of all separators but the first.
    common: usize,
}

impl IndexBuilder {
    /// Adds a child; separators must be strictly increasing.
    pub fn add(&mut self, separator: &[u8], child: Handle) {
        if let (Some(last), Some(before)) = (self.positions.last(), self.children.last()) {
            let last = self.separators.get(*last as usize..).unwrap_or(&[]);
            assert!(last < separator, "separators strictly ascend");
            assert!(
                before.offset <= child.offset,
                "children are added in the order of the file"
            );
        }
        let position = u32::try_from(self.separators.len());
        assert!(
            position.is_ok(),
            "the separators of an index block take less than 4 GiB"
        );
        match *self.positions.as_slice() {
            [] => {}
            [_] => self.common = separator.len(),
            [_, second, ..] => {
                let second = self.separators.get(second as usize..).unwrap_or(&[]);
                let second = second.get(..self.common).unwrap_or(second);
                self.common = common_prefix(second, separator);
            }
        }
        self.positions.push(self.separators.len() as u32);
        self.separators.extend_from_slice(separator);
        self.children.push(child);
    }

    /// Number of children so far.
    pub(crate) fn children(&self) -> usize {
        self.children.len()
    }

    /// Approximate size so far.
    pub fn len(&self) -> usize {
        self.separators.len() + 6 * self.positions.len()
    }

    /// Whether it has no child.
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// The block's content; the builder is empty afterwards.
    pub fn finish(&mut self) -> Vec<u8> {
        assert!(!self.is_empty(), "an index block has at least one child");
        assert_eq!(self.positions.len(), self.children.len(), "every child has a separator");
        let builder = std::mem::take(self);
        match builder.ends() {
            Some(ends) => builder.finish_adjoining(&ends),
            None => builder.finish_listed(),
        }
    }

    /// The end of every child relative to the start of the first one; `None` unless they adjoin.
    fn ends(&self) -> Option<Vec<u32>> {
        let base = self.children.first()?.offset;
        let mut at = base;
        let mut end_of = |child: &Handle| {
            let adjoins = child.offset == at;
            at = child.end()?;
            u32::try_from(at - base).ok().filter(|_| adjoins)
        };
        self.children.iter().map(&mut end_of).collect()
    }

    fn finish_adjoining(self, ends: &[u32]) -> Vec<u8> {
        debug_assert_eq!(ends.len(), self.positions.len(), "every child has an end");
        debug_assert!(
            ends.is_sorted_by(|a, b| a < b),
            "children that adjoin end one after the other"
        );
        let base = self.children.first().map_or(0, |child| child.offset);
        let mut count = self.positions.len() as u32 | ADJOINING;
        let mut out = self.separators;
        if out.len() <= usize::from(u16::MAX) {
            for position in &self.positions {
                out.extend_from_slice(&(*position as u16).to_le_bytes());
            }
        } else {
            count |= WIDE;
            for position in &self.positions {
                out.extend_from_slice(&position.to_le_bytes());
            }
        }
        for end in ends {
            out.extend_from_slice(&end.to_le_bytes());
        }
        out.extend_from_slice(&base.to_le_bytes());
        out.extend_from_slice(&(self.common as u32).to_le_bytes());
        out.extend_from_slice(&count.to_le_bytes());
        out
    }

    fn finish_listed(self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut positions = Vec::with_capacity(4 * self.positions.len());
        for (n, child) in self.children.iter().enumerate() {
            positions.extend_from_slice(&(out.len() as u32).to_le_bytes());
            child.encode(&mut out);
            let start = self.positions.get(n).map_or(0, |at| *at as usize);
            let end = self
                .positions
                .get(n + 1)
                .map_or(self.separators.len(), |at| *at as usize);
            out.extend_from_slice(self.separators.get(start..end).unwrap_or(&[]));
        }
        out.extend_from_slice(&positions);
        out.extend_from_slice(&(self.positions.len() as u32).to_le_bytes());
        out
    }
}

/// The representation of handles.
#[derive(Clone, Copy, Debug)]
enum Children {
    /// Each before its separator.
    Listed,
    /// As ends relative to a base.
    Adjoining {
        base: u64,
        ends_at: usize,
        /// Length of the common prefix of all separators but the first.
        common: usize,
        wide: bool,
    },
}

/// A decoded index block.
#[derive(Clone, Debug)]
pub struct IndexBlock {
    content: Bytes,
    count: usize,
    positions_at: usize,
    children: Children,
}

impl IndexBlock {
    /// Checks the block's tail; entries are checked when they are used.
    pub fn parse(content: Bytes) -> Result<IndexBlock, DecodeError> {
        let len = content.len();
        Self::parse_tail(content).ok_or_else(|| DecodeError::new(len, "index block with an impossible count"))
    }

    fn parse_tail(content: Bytes) -> Option<IndexBlock> {
        let flagged = u32::from_le_bytes(*content.last_chunk()?);
        if flagged & ADJOINING == 0 {
            let count = flagged as usize;
            let positions_at = content.len().checked_sub(count.checked_mul(4)? + 4)?;
            return (count > 0 && positions_at >= count * HANDLE_BYTES).then_some(IndexBlock {
                content,
                count,
                positions_at,
                children: Children::Listed,
            });
        }
        let count = (flagged & !ADJOINING & !WIDE) as usize;
        let wide = flagged & WIDE != 0;
        let (before, tail) = content.split_last_chunk::<TAIL_BYTES>()?;
        let (base, common) = tail.split_first_chunk::<8>()?;
        let ends_at = before.len().checked_sub(count.checked_mul(4)?)?;
        let positions_at = ends_at.checked_sub(count * if wide { 4 } else { 2 })?;
        let children = Children::Adjoining {
            base: u64::from_le_bytes(*base),
            ends_at,
            common: u32::from_le_bytes(*common.first_chunk()?) as usize,
            wide,
        };
        (count > 0).then_some(IndexBlock {
            content,
            count,
            positions_at,
            children,
        })
    }

    /// Number of children, at least 1.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Always false: a block without children does not parse.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Memory of the block.
    pub fn bytes(&self) -> usize {
        self.content.len()
    }

    /// Whether children have handles of their own.
    pub fn lists_handles(&self) -> bool {
        matches!(self.children, Children::Listed)
    }

    /// The n-th separator; `None` when the entry is malformed or absent.
    #[inline]
    pub fn separator(&self, n: usize) -> Option<&[u8]> {
        let entry = self.entry(n)?;
        match self.children {
            Children::Listed => entry.get(HANDLE_BYTES..),
            Children::Adjoining { .. } => Some(entry),
        }
    }

    /// The n-th child; `None` when the entry is malformed or absent.
    pub fn child(&self, n: usize) -> Option<Handle> {
        let Children::Adjoining { base, ends_at, .. } = self.children else {
            return Handle::decode(self.entry(n)?);
        };
        if n >= self.count {
            return None;
        }
        let start = match n.checked_sub(1) {
            Some(before) => u32_at(&self.content, ends_at + 4 * before)?,
            None => 0,
        };
        let framed = u32_at(&self.content, ends_at + 4 * n)?.checked_sub(start)?;
        Some(Handle {
            offset: base.checked_add(u64::from(start))?,
            len: framed.checked_sub(frame::TAIL_BYTES as u32)?,
        })
    }

    /// The last child whose separator is at most `target` (`inclusive`) or below it; the first child when none is.
    pub fn find(&self, target: &[u8], inclusive: bool) -> Result<usize, DecodeError> {
        let mut common = 0;
        if let Children::Adjoining { common: len, .. } = self.children
            && self.count > 1
        {
            let second = self.separator(1).and_then(|separator| separator.get(..len));
            let second = second.ok_or_else(|| self.malformed(1))?;
            match second.cmp(target.get(..len).unwrap_or(target)) {
                Ordering::Less => return Ok(self.count - 1),
                Ordering::Greater => return Ok(0),
                Ordering::Equal => common = len,
            }
        }
        let positions = self.content.get(self.positions_at..).unwrap_or(&[]);
        let found = match self.children {
            Children::Adjoining { wide: false, .. } => {
                let positions = positions.as_chunks().0;
                let position = |n| positions.get(n).map(|at| usize::from(u16::from_le_bytes(*at)));
                self.search(target, inclusive, common, 0, position)
            }
            children => {
                let positions = positions.as_chunks().0;
                let position = |n| positions.get(n).map(|at| u32::from_le_bytes(*at) as usize);
                let before = if matches!(children, Children::Listed) {
                    HANDLE_BYTES
                } else {
                    0
                };
                self.search(target, inclusive, common, before, position)
            }
        };
        found.map_err(|n| self.malformed(n))
    }

    /// Searches separators that begin `before` bytes after their positions. They and the target have a common prefix of
    /// `common` bytes, except for the first separator. The error is the number of a malformed entry.
    fn search(
        &self,
        target: &[u8],
        inclusive: bool,
        common: usize,
        before: usize,
        position: impl Fn(usize) -> Option<usize>,
    ) -> Result<usize, usize> {
        let content = &self.content[..];
        let wanted = target.get(common..).unwrap_or(&[]);
        let number = leading_number(wanted, 0, wanted.len());
        let (mut low, mut high) = (0, self.count);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            let start = position(middle).ok_or(middle)? + before;
            let end = if middle + 1 == self.count {
                self.positions_at
            } else {
                position(middle + 1).ok_or(middle)?
            };
            let found = leading_number(content, start + common, end);
            let mut is_below = found < number;
            if found == number {
                let separator = content.get(start..end).ok_or(middle)?;
                is_below = separator < target || (inclusive && separator == target);
            }
            if is_below {
                low = middle;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// The error for an entry that `separator` or `child` rejected.
    #[cold]
    pub fn malformed(&self, n: usize) -> DecodeError {
        DecodeError::new(self.positions_at, format!("index entry {n} is malformed"))
    }

    fn entry(&self, n: usize) -> Option<&[u8]> {
        let (start, end) = self.bounds(n)?;
        self.content.get(start..end)
    }

    /// Bounds of the n-th entry, which must be in order and before the positions.
    #[inline]
    fn bounds(&self, n: usize) -> Option<(usize, usize)> {
        let start = self.position(n)?;
        let end = if n + 1 == self.count {
            self.positions_at
        } else {
            self.position(n + 1)?
        };
        (start <= end && end <= self.positions_at).then_some((start, end))
    }

    #[inline]
    fn position(&self, n: usize) -> Option<usize> {
        if n >= self.count {
            return None;
        }
        if let Children::Adjoining { wide: false, .. } = self.children {
            let bytes = self.content.get(self.positions_at + 2 * n..)?.first_chunk()?;
            return Some(usize::from(u16::from_le_bytes(*bytes)));
        }
        u32_at(&self.content, self.positions_at + 4 * n).map(|at| at as usize)
    }
}

#[inline]
fn u32_at(content: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*content.get(at..)?.first_chunk()?))
}

/// The bytes from `start` to `end`, at most eight, as a big-endian number padded with zeros; 0 when there are none. Two
/// such numbers that differ are in the order of the bytes.
#[inline]
pub(crate) fn leading_number(content: &[u8], start: usize, end: usize) -> u64 {
    let len = end.saturating_sub(start);
    if let Some(word) = content.get(start..).and_then(|rest| rest.first_chunk()) {
        let word = u64::from_be_bytes(*word);
        return if len < 8 { word & !(u64::MAX >> (8 * len)) } else { word };
    }
    let mut word = [0; 8];
    for (to, from) in word.iter_mut().zip(content.get(start..end).unwrap_or(&[])) {
        *to = *from;
    }
    u64::from_be_bytes(word)
}

/// The shortest prefix of `next` that is above `previous`. Requires `previous < next`.
pub fn separator<'a>(previous: &[u8], next: &'a [u8]) -> &'a [u8] {
    debug_assert!(previous < next, "keys ascend");
    let common = common_prefix(previous, next);
    let separator = next.get(..=common).unwrap_or(next);
    debug_assert!(
        previous < separator && separator <= next,
        "a separator separates two keys"
    );
    separator
}

/// Length of the longest common prefix, compared eight bytes at a time.
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
        fn find_is_the_last_not_above(separators in prop::collection::btree_set(bytes(), 1..40), target in bytes(), adjoining: bool) {
            let mut builder = IndexBuilder::default();
            for (i, separator) in separators.iter().enumerate() {
                let offset = if adjoining { 7 + 6 * i as u64 } else { 9 * i as u64 };
                builder.add(separator, Handle { offset, len: 1 });
            }
            let block = IndexBlock::parse(Bytes::from(builder.finish())).expect("just built");
            let upto = |keep: &dyn Fn(&&Vec<u8>) -> bool| separators.iter().filter(keep).count().saturating_sub(1);
            prop_assert_eq!(block.find(&target, true), Ok(upto(&|s| **s <= target)));
            prop_assert_eq!(block.find(&target, false), Ok(upto(&|s| **s < target)));
            let read: BTreeSet<Vec<u8>> =
                (0..block.len()).filter_map(|n| block.separator(n)).map(<[u8]>::to_vec).collect();
            prop_assert_eq!(read, separators);
            prop_assert_eq!(block.lists_handles(), !adjoining && block.len() > 1);
            for i in 0..block.len() {
                let offset = if adjoining { 7 + 6 * i as u64 } else { 9 * i as u64 };
                prop_assert_eq!(block.child(i), Some(Handle { offset, len: 1 }));
            }
            prop_assert_eq!(block.child(block.len()), None);
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
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), count in 0u32..20, flags in 0u32..4) {
            let mut bytes = bytes;
            bytes.extend_from_slice(&(count | flags << 30).to_le_bytes());
            if let Ok(block) = IndexBlock::parse(Bytes::from(bytes)) {
                let _ = (block.find(b"x", true), block.find(b"", false));
                for n in 0..=block.len() {
                    let _ = (block.separator(n), block.child(n));
                }
            }
        }
    }
}
