//! Entry points for fuzzers: the decoding of listings, without a cluster.

use crate::growing::pieces::{self, Pieces};

/// The file and number of a piece's key, and whether the piece is open.
pub fn piece(key: &str) -> Option<(&str, u32, bool)> {
    pieces::parse_piece(key)
}

/// The key of a piece.
pub fn piece_key(path: &str, number: u32, open: bool) -> String {
    if open {
        pieces::open_key(path, number)
    } else {
        pieces::piece_key(path, number)
    }
}

/// Checks a file whose listing shows pieces with these numbers, lengths and open flags, each name once.
///
/// # Panics
/// If the readable pieces, below piece `end` or all, are not the finished ones without a gap. If an open piece with
/// bytes is left out.
pub fn pieces(listing: &[(u32, u64, bool)], end: Option<u32>) {
    let mut pieces = Pieces::default();
    for (number, len, open) in listing {
        pieces.add(*number, *open, *len);
    }
    let finished = |n: u32| listing.iter().find(|(number, _, open)| *number == n && !open);
    assert_eq!(pieces.is_file(), finished(0).is_some());
    let below = |number: u32| end.is_none_or(|end| number < end);
    let Ok(readable) = pieces.readable("f", end) else {
        return;
    };
    for (expected, (number, len)) in (0..).zip(&readable) {
        assert_eq!(*number, expected, "a gap");
        assert_eq!(finished(expected).map(|(_, len, _)| len), Some(len));
    }
    for (number, len, open) in listing.iter().filter(|(number, ..)| below(*number)) {
        let is_read = readable.iter().any(|(read, _)| read == number);
        assert!(is_read || *open && *len == 0, "piece {number} is left out");
    }
}
