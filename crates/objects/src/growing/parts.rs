//! Keys of the objects that a growing file consists of, and their listing.

use crate::store::Store;
use stele_storage::Result;

/// An object of a growing file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    /// `<path>/@<number, 8 hex digits>`.
    Part(u32),
    /// `<path>/@<first>-<last>`: the bytes of these parts once more.
    Joined { first: u32, last: u32 },
}

impl Object {
    pub(crate) fn key(self, path: &str) -> String {
        match self {
            Object::Part(number) => part_key(path, number),
            Object::Joined { first, last } => format!("{path}/@{first:08x}-{last:08x}"),
        }
    }
}

pub(crate) fn part_key(path: &str, number: u32) -> String {
    format!("{path}/@{number:08x}")
}

/// The file that a key belongs to, and the object.
pub(crate) fn parse_key(key: &str) -> Option<(&str, Object)> {
    let (path, name) = key.rsplit_once("/@")?;
    let number = |digits: &str| u32::from_str_radix(digits, 16).ok();
    let object = match name.split_once('-') {
        None => Object::Part(number(name)?),
        Some((first, last)) => Object::Joined {
            first: number(first)?,
            last: number(last)?,
        },
    };
    let is_valid = match object {
        Object::Part(_) => true,
        Object::Joined { first, last } => 0 < first && first < last,
    };
    (is_valid && object.key(path) == key).then_some((path, object))
}

/// The objects of one file in a listing.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// Numbers and lengths, ascending.
    parts: Vec<(u32, u64)>,
    /// First parts, last parts and lengths, ascending.
    joined: Vec<(u32, u32, u64)>,
}

/// An object that holds bytes of the content.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) object: Object,
    pub(crate) len: u64,
}

/// The content as far as it is there.
struct Content {
    extents: Vec<Extent>,
    /// The first number that no object has, but a later one does.
    hole: Option<u32>,
}

impl Parts {
    /// The objects with their lengths, in any order.
    pub(crate) fn new(objects: impl IntoIterator<Item = (Object, u64)>) -> Parts {
        let mut found = Parts::default();
        for (object, len) in objects {
            match object {
                Object::Part(number) => found.parts.push((number, len)),
                Object::Joined { first, last } => found.joined.push((first, last, len)),
            }
        }
        found.parts.sort_unstable();
        found.joined.sort_unstable();
        found
    }

    pub(super) async fn list(store: &Store, path: &str) -> Result<Parts> {
        let keys = store.list(&format!("{path}/")).await?;
        let own = keys.iter().filter_map(|(key, len)| match parse_key(key) {
            Some((of, object)) if of == path => Some((object, *len)),
            _ => None,
        });
        Ok(Parts::new(own))
    }

    /// Whether there is a file, and not only the remains of a deletion.
    pub(crate) fn is_file(&self) -> bool {
        self.parts.first().is_some_and(|(number, _)| *number == 0)
    }

    /// Whether there are only the beginning of a file and its end. Then nothing was ever synced to it, or it was
    /// deleted and its first part has come back.
    pub(super) fn is_void(&self) -> bool {
        self.joined.is_empty() && matches!(self.parts.as_slice(), [(0, _), (_, 0)])
    }

    /// Whether parts were joined. A file that came back after its deletion has none: its first part alone was late.
    pub(super) fn has_joined(&self) -> bool {
        !self.joined.is_empty()
    }

    /// Whether the listing shows part 0 alone.
    pub(crate) fn is_only_begun(&self) -> bool {
        self.joined.is_empty() && matches!(self.parts.as_slice(), [(0, _)])
    }

    /// The last number that an object has.
    fn last(&self) -> Option<u32> {
        let part = self.parts.last().map(|(number, _)| *number);
        part.max(self.joined.iter().map(|(_, last, _)| *last).max())
    }

    /// The number of the seal, if there is one. An empty object with the number of a joined part is none: its number was free
    /// because the part was deleted, and the old owner goes on behind it.
    pub(crate) fn seal(&self) -> Option<u32> {
        let (number, len) = *self.parts.last()?;
        let is_last = self.joined.iter().all(|(_, last, _)| *last < number);
        (number > 0 && len == 0 && is_last).then_some(number)
    }

    /// Whether the seal with this number ends the file. For a listing that began when that seal had been put.
    pub(crate) fn is_sealed_at(&self, known: Option<u32>) -> bool {
        known.is_some() && self.seal() == known
    }

    /// Whether no number is left for a seal, or for anything else that the old owner may append.
    pub(crate) fn is_full(&self) -> bool {
        self.seal().is_none() && self.next().is_none()
    }

    /// The number after the last part, or `None` when the file is sealed.
    pub(crate) fn next(&self) -> Option<u32> {
        match self.last() {
            _ if self.seal().is_some() => None,
            last => last.map_or(Some(0), |number| number.checked_add(1)),
        }
    }

    /// The keys that a deletion removes: all but the seal.
    pub(crate) fn keys_but_seal(&self, path: &str) -> Vec<String> {
        let kept = self.seal();
        let numbers = self.parts.iter().map(|(number, _)| *number);
        let taken = numbers.filter(|number| kept != Some(*number)).map(Object::Part);
        let joined = self.joined.iter();
        let joined = joined.map(|&(first, last, _)| Object::Joined { first, last });
        taken.chain(joined).map(|object| object.key(path)).collect()
    }

    /// The key of the seal, where no other object is left.
    pub(crate) fn lone_seal(&self, path: &str) -> Option<String> {
        let seal = self.seal().filter(|_| self.parts.len() == 1 && self.joined.is_empty());
        seal.map(|number| part_key(path, number))
    }

    /// The first number that is missing before a later part.
    pub(crate) fn hole(&self) -> Option<u32> {
        self.content().hole
    }

    /// The objects to read for the content, in its order.
    pub(crate) fn extents(&self) -> Vec<Extent> {
        self.content().extents
    }

    /// Bytes of the content.
    pub(crate) fn len(&self) -> u64 {
        self.content().extents.iter().map(|extent| extent.len).sum()
    }

    /// Joined parts come before the parts that they were made of: these may be deleted at any time.
    fn content(&self) -> Content {
        let mut extents = Vec::new();
        let mut joined = self.joined.iter().filter(|(_, _, len)| *len > 0).peekable();
        let mut parts = self.parts.iter().skip_while(|(number, _)| *number == 0).peekable();
        let mut at = 1;
        loop {
            while joined.next_if(|(first, _, _)| *first < at).is_some() {}
            while parts.next_if(|(number, _)| *number < at).is_some() {}
            let found = if let Some(&(first, last, len)) = joined.next_if(|(first, _, _)| *first == at) {
                (Object::Joined { first, last }, len, last)
            } else if let Some(&(number, len)) = parts.next_if(|(number, _)| *number == at) {
                (Object::Part(number), len, number)
            } else {
                break;
            };
            let (object, len, last) = found;
            if len > 0 {
                extents.push(Extent { object, len });
            }
            match last.checked_add(1) {
                Some(next) => at = next,
                None => break,
            }
        }
        let is_end = joined.peek().is_none() && parts.peek().is_none();
        let hole = (!is_end).then_some(at);
        Content { extents, hole }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(first: u32, last: u32) -> Object {
        Object::Joined { first, last }
    }

    #[test]
    fn keys_have_one_spelling() {
        assert_eq!(parse_key("log/1/@0000000a"), Some(("log/1", Object::Part(10))));
        assert_eq!(parse_key("log/1/@00000001-0000000a"), Some(("log/1", joined(1, 10))));
        for other in [
            "log/1/@0000000A",
            "log/1/@a",
            "log/1/0000000a",
            "@0000000a",
            "log/1/@+000000a",
            "log/1/@00000001-a",
            "log/1/@00000002-00000002",
            "log/1/@00000000-00000002",
            "log/1/@00000003-00000002",
            "log/1/@00000001-00000002-00000003",
        ] {
            assert_eq!(parse_key(other), None, "{other}");
        }
    }

    #[test]
    fn joined_parts_replace_the_parts_that_they_hold() {
        let parts = [(0, 9), (1, 5), (2, 6), (3, 7), (4, 8), (5, 0)];
        let found = |parts: &[(u32, u64)], joints: &[(Object, u64)]| {
            let parts = parts.iter().map(|(number, len)| (Object::Part(*number), *len));
            Parts::new(joints.iter().copied().chain(parts))
        };
        let extents = |found: &Parts| -> Vec<(Object, u64)> {
            let extents = found.extents().into_iter();
            extents.map(|extent| (extent.object, extent.len)).collect()
        };
        let part = |number: u32| (Object::Part(number), parts[number as usize].1);
        assert_eq!(extents(&found(&parts, &[])), [part(1), part(2), part(3), part(4)]);
        let two_and_three = (joined(2, 3), 13);
        let both = found(&parts, &[two_and_three]);
        assert_eq!(extents(&both), [part(1), two_and_three, part(4)]);
        assert_eq!((both.hole(), both.next(), both.len()), (None, None, 26));
        // Some or all of the joined parts were deleted.
        for left in [&[0, 1, 2, 4, 5][..], &[0, 1, 4, 5]] {
            let left: Vec<(u32, u64)> = left.iter().map(|number| parts[*number]).collect();
            let found = found(&left, &[two_and_three]);
            assert_eq!(extents(&found), [part(1), two_and_three, part(4)]);
            assert_eq!((found.hole(), found.next()), (None, None));
        }
        let last = found(&parts[..2], &[two_and_three]);
        assert_eq!((extents(&last), last.next()), (vec![part(1), two_and_three], Some(4)));
        assert!(!last.is_void());
        let missing = found(&parts[..2], &[(joined(3, 4), 15)]);
        assert_eq!((missing.hole(), missing.next()), (Some(2), Some(5)));
    }

    #[test]
    fn a_seal_before_joined_parts_is_none() {
        let objects = [(Object::Part(0), 9), (Object::Part(2), 0), (joined(1, 8), 30)];
        let found = Parts::new(objects);
        assert_eq!((found.next(), found.hole(), found.len()), (Some(9), None, 30));
        assert_eq!(Parts::new([(Object::Part(0), 9), (Object::Part(1), 0)]).next(), None);
        let among = Parts::new([(Object::Part(0), 9), (Object::Part(8), 0), (joined(1, 8), 30)]);
        assert_eq!((among.seal(), among.next(), among.len()), (None, Some(9), 30));
    }

    #[test]
    fn a_deletion_takes_joined_parts_and_leaves_the_seal() {
        let found = Parts::new([(Object::Part(3), 0), (joined(1, 2), 3), (Object::Part(1), 3)]);
        assert_eq!(found.keys_but_seal("f"), ["f/@00000001", "f/@00000001-00000002"]);
        assert_eq!(found.lone_seal("f"), None);
        let rest = Parts::new([(Object::Part(3), 0), (joined(1, 2), 3)]);
        assert_eq!((rest.lone_seal("f"), rest.is_file()), (None, false));
        let orphan = Parts::new([(joined(1, 2), 3)]);
        assert!(!orphan.is_file());
    }
}
