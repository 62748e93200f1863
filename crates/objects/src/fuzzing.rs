//! Entry points for fuzzers: the decoding of listings, without a store.

use crate::growing::{self, Parts};

/// The file and number of a part's key.
pub fn part(key: &str) -> Option<(&str, u32)> {
    growing::parse_part(key)
}

/// The key of a part.
pub fn part_key(path: &str, number: u32) -> String {
    growing::part_key(path, number)
}

/// Checks a file whose listing shows parts with these numbers, each once, and lengths.
///
/// # Panics
/// If the next part does not follow all others, or a deletion takes other parts than all but the seal.
pub fn parts(listing: &[(u32, u64)]) {
    let parts = Parts::new(listing.to_vec());
    let has_first = listing.iter().any(|(number, _)| *number == 0);
    assert_eq!(parts.is_file(), has_first);
    let last = listing.iter().max();
    let seal = last.filter(|(number, len)| *number > 0 && *len == 0);
    let next = match (seal, last) {
        (Some(_), _) => None,
        (None, Some((number, _))) => number.checked_add(1),
        (None, None) => Some(0),
    };
    assert_eq!(parts.next(), next);
    let mut taken = parts.keys_but_seal("f");
    taken.extend(seal.map(|(number, _)| part_key("f", *number)));
    let mut all: Vec<String> = listing.iter().map(|(number, _)| part_key("f", *number)).collect();
    all.sort();
    assert_eq!(taken, all);
    assert_eq!(parts.lone_seal("f").is_some(), seal.is_some() && listing.len() == 1);
}
