//! Ranges of qualifiers, and comparisons of bytes with bounds.

use bytes::Bytes;
use std::ops::Bound;

/// Qualifiers between two bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QualifierRange {
    /// First qualifier.
    pub start: Bound<Bytes>,
    /// Last qualifier.
    pub end: Bound<Bytes>,
}

impl QualifierRange {
    /// Every qualifier.
    pub fn all() -> Self {
        QualifierRange {
            start: Bound::Unbounded,
            end: Bound::Unbounded,
        }
    }

    /// One qualifier.
    pub fn exact(qualifier: Bytes) -> Self {
        QualifierRange {
            start: Bound::Included(qualifier.clone()),
            end: Bound::Included(qualifier),
        }
    }

    /// The only qualifier inside, when the range is written as one.
    pub fn as_exact(&self) -> Option<&Bytes> {
        match (&self.start, &self.end) {
            (Bound::Included(a), Bound::Included(b)) if a == b => Some(a),
            _ => None,
        }
    }

    /// Whether `qualifier` is inside.
    pub fn contains(&self, qualifier: &[u8]) -> bool {
        above(&self.start, qualifier) && below(&self.end, qualifier)
    }

    /// Whether no qualifier can be inside, as far as the bounds tell.
    pub fn is_empty(&self) -> bool {
        match (&self.start, &self.end) {
            (Bound::Included(a), Bound::Included(b)) => a > b,
            (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => a >= b,
            (_, Bound::Excluded(b)) => b.is_empty(),
            _ => false,
        }
    }

    /// The qualifiers in both; `None` when there are none.
    pub(crate) fn intersect(&self, other: &QualifierRange) -> Option<QualifierRange> {
        let tighter_start = lower(&self.start, &other.start) == std::cmp::Ordering::Less;
        let tighter_end = upper(&self.end, &other.end) == std::cmp::Ordering::Greater;
        let range = QualifierRange {
            start: if tighter_start {
                other.start.clone()
            } else {
                self.start.clone()
            },
            end: if tighter_end {
                other.end.clone()
            } else {
                self.end.clone()
            },
        };
        (!range.is_empty()).then_some(range)
    }

    /// The smallest range around both.
    pub(crate) fn hull(&self, other: &QualifierRange) -> QualifierRange {
        let wider_start = lower(&self.start, &other.start) == std::cmp::Ordering::Greater;
        let wider_end = upper(&self.end, &other.end) == std::cmp::Ordering::Less;
        QualifierRange {
            start: if wider_start {
                other.start.clone()
            } else {
                self.start.clone()
            },
            end: if wider_end { other.end.clone() } else { self.end.clone() },
        }
    }
}

/// Whether `bytes` is past the lower bound `start`.
pub(crate) fn above(start: &Bound<Bytes>, bytes: &[u8]) -> bool {
    match start {
        Bound::Included(s) => bytes >= &s[..],
        Bound::Excluded(s) => bytes > &s[..],
        Bound::Unbounded => true,
    }
}

/// Whether `bytes` is before the upper bound `end`.
pub(crate) fn below(end: &Bound<Bytes>, bytes: &[u8]) -> bool {
    match end {
        Bound::Included(e) => bytes <= &e[..],
        Bound::Excluded(e) => bytes < &e[..],
        Bound::Unbounded => true,
    }
}

/// Orders lower bounds by where they begin.
fn lower(a: &Bound<Bytes>, b: &Bound<Bytes>) -> std::cmp::Ordering {
    let rank = |bound: &Bound<Bytes>| match bound {
        Bound::Unbounded => (Bytes::new(), 0),
        Bound::Included(s) => (s.clone(), 0),
        Bound::Excluded(s) => (s.clone(), 1),
    };
    rank(a).cmp(&rank(b))
}

/// Orders upper bounds by where they end.
fn upper(a: &Bound<Bytes>, b: &Bound<Bytes>) -> std::cmp::Ordering {
    let rank = |bound: &Bound<Bytes>| match bound {
        Bound::Unbounded => (1, Bytes::new(), 0),
        Bound::Included(s) => (0, s.clone(), 1),
        Bound::Excluded(s) => (0, s.clone(), 0),
    };
    rank(a).cmp(&rank(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every range with ends of up to two letters of a small alphabet.
    fn ranges() -> Vec<QualifierRange> {
        let keys = ["", "a", "ab", "b"].map(|key| Bytes::from_static(key.as_bytes()));
        let included = keys.iter().cloned().map(Bound::Included);
        let excluded = keys.iter().cloned().map(Bound::Excluded);
        let bounds: Vec<_> = included.chain(excluded).chain([Bound::Unbounded]).collect();
        let with = |start: &Bound<Bytes>| {
            let start = start.clone();
            bounds.iter().map(move |end| QualifierRange {
                start: start.clone(),
                end: end.clone(),
            })
        };
        bounds.iter().flat_map(with).collect()
    }

    #[test]
    fn ranges_meet_and_join() {
        let keys = [&b""[..], b"\0", b"a", b"a\0", b"aa", b"ab", b"ab\0", b"b", b"c"];
        for a in ranges() {
            assert!(!a.is_empty() || !keys.iter().any(|key| a.contains(key)), "{a:?}");
            for b in ranges() {
                let (both, hull) = (a.intersect(&b), a.hull(&b));
                for key in keys {
                    let inside = both.as_ref().is_some_and(|range| range.contains(key));
                    assert_eq!(inside, a.contains(key) && b.contains(key), "{a:?} {b:?}");
                    let either = a.contains(key) || b.contains(key);
                    assert!(!either || hull.contains(key), "{a:?} {b:?}");
                }
                assert_eq!(a.hull(&a), a);
            }
        }
    }
}
