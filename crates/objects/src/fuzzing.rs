//! Entry points for fuzzers: the decoding of listings, without a store.

use crate::growing::{self, Object, Parts};

/// The file and number of a part's key.
pub fn part(key: &str) -> Option<(&str, u32)> {
    match growing::parse_key(key)? {
        (path, Object::Part(number)) => Some((path, number)),
        (_, Object::Joined { .. }) => None,
    }
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
    let parts = Parts::new(listing.iter().map(|(number, len)| (Object::Part(*number), *len)));
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

/// Checks the reading of a file whose listing shows these parts, each once, and joined parts: first, last, length.
///
/// # Panics
/// If the objects to read do not hold the numbers from 1 on, each once.
pub fn extents(listing: &[(u32, u64)], joined: &[(u32, u32, u64)]) {
    let objects = listing.iter().map(|(number, len)| (Object::Part(*number), *len));
    let joined = joined
        .iter()
        .map(|&(first, last, len)| (Object::Joined { first, last }, len));
    let parts = Parts::new(objects.chain(joined));
    let numbers = |object: Object| match object {
        Object::Part(number) => (number, number),
        Object::Joined { first, last } => (first, last),
    };
    let extents = parts.extents();
    let mut read = 0;
    for extent in &extents {
        let (first, last) = numbers(extent.object);
        assert!(first > read && last >= first && extent.len > 0, "numbers ascend");
        read = last;
    }
    assert_eq!(parts.len(), extents.iter().map(|extent| extent.len).sum::<u64>());
    assert!(
        parts.next().is_none_or(|next| next > read || next == 0),
        "nothing is read behind the end"
    );
    if let Some(hole) = parts.hole() {
        assert!(hole > read, "nothing is read behind a hole");
    }
}
