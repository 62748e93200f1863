//! `SubstringComparator`: finds text anywhere in stored text, without regard to case.
//!
//! Both are in lower case as Java's `toLowerCase` makes it, and malformed bytes become U+FFFD. A large value is decoded in pieces, so
//! that its copy is as large as a piece.

/// Bytes that are brought to lower case at a time. Pieces are as long as the text that is sought, if that is longer: then each byte is
/// searched twice at most.
const PIECE_BYTES: usize = 32 << 10;

/// Text around a piece that decides how its capital sigmas end: with a letter before and none behind, they become `ς`. Between the
/// sigma and that letter may be apostrophes, accents and the like, which no text has more of.
const CONTEXT_BYTES: usize = 256;

/// Whether stored text has this text in it, which is in lower case.
pub(super) fn occurs(text: &str, stored: &[u8]) -> bool {
    occurs_by(text, stored, PIECE_BYTES)
}

fn occurs_by(text: &str, stored: &[u8], piece_bytes: usize) -> bool {
    if stored.len() <= piece_bytes {
        return String::from_utf8_lossy(stored).to_lowercase().contains(text);
    }
    let mut search = Search {
        text,
        piece_bytes: piece_bytes.max(text.len()),
        pending: String::new(),
        passed: 0,
        lower: String::new(),
    };
    for chunk in stored.utf8_chunks() {
        let mut valid = chunk.valid();
        while !valid.is_empty() {
            let (piece, rest) = valid.split_at(valid.ceil_char_boundary(search.piece_bytes));
            if search.add(piece) {
                return true;
            }
            valid = rest;
        }
        if !chunk.invalid().is_empty() && search.add("\u{FFFD}") {
            return true;
        }
    }
    search.advance(0)
}

struct Search<'t> {
    text: &'t str,
    piece_bytes: usize,
    /// Context that was searched, then text that was not.
    pending: String,
    /// Bytes of that context.
    passed: usize,
    /// The end of the text in lower case that was searched: shorter than the text that is sought.
    lower: String,
}

impl Search<'_> {
    /// Adds decoded text. Whether the text that is sought has been found.
    fn add(&mut self, decoded: &str) -> bool {
        self.pending.push_str(decoded);
        let is_full = self.pending.len() >= self.passed + self.piece_bytes + CONTEXT_BYTES;
        is_full && self.advance(CONTEXT_BYTES)
    }

    /// Searches the pending text, but for this number of bytes at its end.
    fn advance(&mut self, behind: usize) -> bool {
        let end = self.pending.floor_char_boundary(self.pending.len() - behind);
        let (context, behind) = (&self.pending[..self.passed], &self.pending[end..]);
        let all = self.pending.to_lowercase();
        // Lower case of a character has the same length in any context.
        let piece = context.to_lowercase().len()..all.len() - behind.to_lowercase().len();
        self.lower.push_str(&all[piece]);
        if self.lower.contains(self.text) {
            return true;
        }
        let kept = self.lower.len().saturating_sub(self.text.len().saturating_sub(1));
        self.lower.drain(..self.lower.floor_char_boundary(kept));
        self.passed = end - self.pending.floor_char_boundary(end.saturating_sub(CONTEXT_BYTES));
        self.pending.drain(..end - self.passed);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at_once(text: &str, stored: &[u8]) -> bool {
        String::from_utf8_lossy(stored).to_lowercase().contains(text)
    }

    proptest! {
            #[test]
            fn pieces_find_the_same_as_the_whole(
                parts in prop::collection::vec(
    prop::sample::select(vec![&b"\xCE\xA3"[..], b"a", b"B", b"'", b" ", b"\xFF", "İ".as_bytes()]),
                    0..1_500,
                ),
                text in "[aσςb' i\u{307}\u{FFFD}]{0,4}",
                piece in 1usize..20,
            ) {
                let stored = parts.concat();
                prop_assert_eq!(occurs_by(&text, &stored, piece), at_once(&text, &stored));
            }
        }

    #[test]
    fn text_across_pieces_is_found() {
        let mut stored = vec![b'x'; 3 * PIECE_BYTES];
        let place = PIECE_BYTES + CONTEXT_BYTES - 2;
        stored[place..place + 5].copy_from_slice(b"HeLlO");
        assert!(occurs("hello", &stored) && !occurs("hallo", &stored));
        // Text that is longer than a piece.
        let long = "y".repeat(2 * PIECE_BYTES);
        assert!(!occurs(&long, &stored));
        stored.extend_from_slice(long.to_uppercase().as_bytes());
        assert!(occurs(&long, &stored));
        assert!(occurs("", &stored));
    }

    #[test]
    fn the_copy_of_a_large_value_is_small() {
        let mut search = Search {
            text: "absent",
            piece_bytes: PIECE_BYTES,
            pending: String::new(),
            passed: 0,
            lower: String::new(),
        };
        for _ in 0..200_000 {
            assert!(!search.add("\u{FFFD}") && !search.add("aΣ"));
        }
        assert!(search.pending.capacity() + search.lower.capacity() < 8 * PIECE_BYTES);
    }
}
