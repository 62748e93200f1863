//! The families that have entries in a file, stored in the properties as ranges.
//!
//! A range is a pair of numbers, its first and its last family; ranges ascend and do not touch. Thousands of families
//! created one after another are one pair.

use std::collections::BTreeSet;
use stele_types::FamilyId;

/// Ids below this are recorded in a bitmap of at most 128 KiB. A table gets higher ids only by dropping and creating
/// families a million times.
const BITMAP_IDS: u32 = 1 << 20;

/// A family in a key: the length of its id, and the id.
const FAMILY_BYTES_MAX: usize = 5;

/// The families seen so far.
#[derive(Debug, Default)]
pub(crate) struct FamilySet {
    /// The bytes of the last entry's family in its key, in the low bytes of a word. Most entries have the same family.
    last: u64,
    /// Selects those bytes of a word; 0 at first.
    mask: u64,
    /// Bit b of word w is family 64 w + b.
    low: Vec<u64>,
    high: BTreeSet<u32>,
}

impl FamilySet {
    /// Notes the family of an entry; `after_row` is the part of its key after the row.
    #[inline]
    pub(crate) fn note(&mut self, after_row: &[u8]) {
        // Every key has at least a word after the row.
        let word = after_row.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        if word & self.mask != self.last || self.mask == 0 {
            self.note_other(word, after_row);
        }
    }

    fn note_other(&mut self, word: u64, after_row: &[u8]) {
        let Some((&len, rest)) = after_row.split_first() else {
            return;
        };
        let id_len = usize::from(len).min(FAMILY_BYTES_MAX - 1);
        let Some(bytes) = rest.get(..id_len) else { return };
        let id = bytes.iter().fold(0u32, |id, byte| id << 8 | u32::from(*byte));
        self.mask = (1 << (8 * (1 + id_len))) - 1;
        self.last = word & self.mask;
        if id >= BITMAP_IDS {
            self.high.insert(id);
            return;
        }
        let word = id as usize / 64;
        if self.low.len() <= word {
            self.low.resize(word + 1, 0);
        }
        self.low[word] |= 1 << (id % 64);
    }

    /// The ranges, as the properties store them.
    pub(crate) fn ranges(&self) -> Vec<u32> {
        let words = self.low.iter().zip(0u32..);
        let low = words.flat_map(|(word, at)| {
            (0..64)
                .filter(move |bit| word >> bit & 1 == 1)
                .map(move |bit| at * 64 + bit)
        });
        let mut ranges: Vec<u32> = Vec::new();
        for id in low.chain(self.high.iter().copied()) {
            match ranges.last_mut() {
                Some(last) if *last + 1 == id => *last = id,
                _ => ranges.extend([id, id]),
            }
        }
        debug_assert!(are_sound(&ranges), "ranges of families ascend and do not touch");
        ranges
    }
}

/// Whether these are ranges that ascend and do not touch.
pub(super) fn are_sound(ranges: &[u32]) -> bool {
    let (pairs, rest) = ranges.as_chunks::<2>();
    let apart = pairs
        .windows(2)
        .all(|two| matches!(two, [[_, last], [first, _]] if *first > last.saturating_add(1)));
    rest.is_empty() && apart && pairs.iter().all(|[first, last]| first <= last)
}

/// Whether one of the ranges holds the family.
pub(super) fn contain(ranges: &[u32], family: FamilyId) -> bool {
    let (pairs, _) = ranges.as_chunks::<2>();
    let at = pairs.partition_point(|[_, last]| *last < family.0);
    pairs.get(at).is_some_and(|[first, _]| *first <= family.0)
}

/// The first and the last family of the ranges from `first` to `last`; `None` when there is none.
pub(super) fn within(ranges: &[u32], first: FamilyId, last: FamilyId) -> Option<(FamilyId, FamilyId)> {
    let (pairs, _) = ranges.as_chunks::<2>();
    let [begin, _] = pairs.get(pairs.partition_point(|[_, end]| *end < first.0))?;
    let [_, end] = pairs.get(pairs.partition_point(|[begin, _]| *begin <= last.0).checked_sub(1)?)?;
    let (first, last) = (first.0.max(*begin), last.0.min(*end));
    (first <= last).then_some((FamilyId(first), FamilyId(last)))
}

/// The number of families in the ranges, and the number of these within `others`, which do not overlap either. Row
/// tombstones are of no family.
pub(super) fn among(ranges: &[u32], others: &[(FamilyId, FamilyId)]) -> (u64, u64) {
    let (pairs, _) = ranges.as_chunks::<2>();
    let len = |first: u32, last: u32| (u64::from(last) + 1).saturating_sub(u64::from(first.max(1)));
    let all: u64 = pairs.iter().map(|[first, last]| len(*first, *last)).sum();
    let common = |(first, last): &(FamilyId, FamilyId)| {
        let from = pairs.partition_point(|[_, end]| *end < first.0);
        let within = pairs.iter().skip(from).take_while(|[begin, _]| *begin <= last.0);
        within
            .map(|[begin, end]| len(first.0.max(*begin), last.0.min(*end)))
            .sum::<u64>()
    };
    (all, others.iter().map(common).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_types::{CellKind, KeyBuf, SeqNo, Timestamp};

    #[test]
    fn what_two_ranges_have_in_common_is_found() {
        let ranges = [0, 0, 3, 5, 9, 9];
        let within = |first, last| within(&ranges, FamilyId(first), FamilyId(last)).map(|(a, b)| (a.0, b.0));
        for first in 0..12 {
            for last in first..12 {
                let held: Vec<u32> = (first..=last).filter(|id| contain(&ranges, FamilyId(*id))).collect();
                let expected = held.first().copied().zip(held.last().copied());
                assert_eq!(within(first, last), expected, "{first}..={last}");
            }
        }
    }

    #[test]
    fn families_among_others_are_counted() {
        let ranges = [0, 0, 3, 5, 9, 9];
        let among = |others: &[(u32, u32)]| {
            let others: Vec<_> = others.iter().map(|(a, b)| (FamilyId(*a), FamilyId(*b))).collect();
            among(&ranges, &others)
        };
        assert_eq!(among(&[]), (4, 0));
        for first in 0..12 {
            for last in first..12 {
                let held = (first.max(1)..=last)
                    .filter(|id| contain(&ranges, FamilyId(*id)))
                    .count() as u64;
                assert_eq!(among(&[(first, last)]), (4, held), "{first}..={last}");
            }
        }
        assert_eq!(among(&[(1, 3), (5, 5), (7, 20)]), (4, 3));
    }

    #[test]
    fn families_are_kept_as_ranges() {
        let mut set = FamilySet::default();
        let ids = [
            5,
            4,
            4,
            3,
            70_000,
            300,
            301,
            1,
            u32::MAX,
            BITMAP_IDS,
            BITMAP_IDS - 1,
            u32::MAX,
            5,
        ];
        for id in ids {
            let mut key = KeyBuf::new();
            key.set(b"r", FamilyId(id), b"q", Timestamp(1), SeqNo(1), CellKind::Put);
            set.note(&key.as_slice()[3..]);
        }
        let mut marker = KeyBuf::new();
        marker.set(b"r", FamilyId(0), b"", Timestamp(1), SeqNo(1), CellKind::DeleteRow);
        let ranges = |set: &FamilySet| set.ranges();
        let without = [
            1,
            1,
            3,
            5,
            300,
            301,
            70_000,
            70_000,
            BITMAP_IDS - 1,
            BITMAP_IDS,
            u32::MAX,
            u32::MAX,
        ];
        assert_eq!(ranges(&set), without);
        set.note(&marker.as_slice()[3..]);
        assert_eq!(ranges(&set)[..2], [0, 1]);
        assert!(are_sound(&without));
        for id in ids {
            assert!(contain(&without, FamilyId(id)), "{id}");
        }
        for id in [0, 2, 6, 299, 302, 69_999, 70_001, u32::MAX - 1] {
            assert!(!contain(&without, FamilyId(id)), "{id}");
        }
    }

    #[test]
    fn what_is_no_list_of_ranges_is_refused() {
        for bad in [
            &[1][..],
            &[2, 1],
            &[1, 2, 3, 4],
            &[5, 6, 1, 2],
            &[1, 1, 2],
            &[1, u32::MAX, 0, 0],
        ] {
            assert!(!are_sound(bad), "{bad:?}");
        }
        assert!(are_sound(&[]) && are_sound(&[0, 0, 2, u32::MAX]));
    }
}
