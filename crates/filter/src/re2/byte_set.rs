//! Sets of bytes, the form of character classes when characters are bytes.

use std::fmt::Write as _;

/// A set of bytes. Under RE2's Latin-1 view byte `b` is the character U+00`b`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ByteSet([u64; 4]);

impl ByteSet {
    /// The bytes of some inclusive ranges.
    pub(crate) fn of(ranges: &[(u8, u8)]) -> Self {
        let mut set = ByteSet::default();
        ranges.iter().for_each(|(first, last)| set.insert_range(*first, *last));
        set
    }

    /// Adds one byte.
    pub(crate) fn insert(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    /// Adds the bytes from `first` to `last` inclusive.
    pub(crate) fn insert_range(&mut self, first: u8, last: u8) {
        (first..=last).for_each(|byte| self.insert(byte));
    }

    /// Adds all bytes of another set.
    pub(crate) fn union(&mut self, other: ByteSet) {
        self.0.iter_mut().zip(other.0).for_each(|(a, b)| *a |= b);
    }

    /// All other bytes.
    pub(crate) fn negated(self) -> Self {
        ByteSet(self.0.map(|word| !word))
    }

    /// Whether `byte` is in.
    pub(crate) fn contains(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1
    }

    /// The set with the other case of each of its letters added.
    pub(crate) fn folded(self) -> Self {
        let mut set = self;
        for byte in (0..=255).filter(|b| self.contains(*b)) {
            if let Some(other) = other_case(byte) {
                set.insert(other);
            }
        }
        set
    }

    /// How many stretches of neighbours it has.
    pub(crate) fn ranges(&self) -> usize {
        let begins =
            |byte: &u8| self.contains(*byte) && byte.checked_sub(1).is_none_or(|before| !self.contains(before));
        (0..=255).filter(begins).count()
    }

    /// Writes the set as one atom of Rust's regex syntax, in ASCII.
    pub(crate) fn write(&self, out: &mut String) {
        out.push('[');
        if *self == ByteSet::default() {
            out.push_str("^\\x00-\\xFF");
        }
        let mut next = 0u16;
        while let Some(first) = (next..256).find(|b| self.contains(*b as u8)) {
            let last = (first..256)
                .take_while(|b| self.contains(*b as u8))
                .last()
                .unwrap_or(first);
            // Writing into a string cannot fail.
            let _ = write!(out, "\\x{first:02X}");
            if last > first {
                let _ = write!(out, "-\\x{last:02X}");
            }
            next = last + 1;
        }
        out.push(']');
    }
}

/// The other case of an ASCII letter. RE2 in Latin-1 mode folds no others.
pub(crate) fn other_case(byte: u8) -> Option<u8> {
    byte.is_ascii_alphabetic().then_some(byte ^ 0x20)
}

/// `\d`, `\s`, `\w`; the same letter in upper case is the complement and not listed here.
pub(crate) fn perl_class(letter: u8) -> Option<ByteSet> {
    Some(ByteSet::of(match letter {
        b'd' => &[(b'0', b'9')],
        // Without vertical tab, unlike `[[:space:]]`.
        b's' => &[(b'\t', b'\n'), (0x0C, b'\r'), (b' ', b' ')],
        b'w' => &[(b'0', b'9'), (b'A', b'Z'), (b'_', b'_'), (b'a', b'z')],
        _ => return None,
    }))
}

/// The class of a name within `[[:` and `:]]`.
pub(crate) fn posix_class(name: &[u8]) -> Option<ByteSet> {
    Some(ByteSet::of(match name {
        b"alnum" => &[(b'0', b'9'), (b'A', b'Z'), (b'a', b'z')],
        b"alpha" => &[(b'A', b'Z'), (b'a', b'z')],
        b"ascii" => &[(0, 0x7F)],
        b"blank" => &[(b'\t', b'\t'), (b' ', b' ')],
        b"cntrl" => &[(0, 0x1F), (0x7F, 0x7F)],
        b"digit" => &[(b'0', b'9')],
        b"graph" => &[(b'!', b'~')],
        b"lower" => &[(b'a', b'z')],
        b"print" => &[(b' ', b'~')],
        b"punct" => &[(b'!', b'/'), (b':', b'@'), (b'[', b'`'), (b'{', b'~')],
        b"space" => &[(b'\t', b'\r'), (b' ', b' ')],
        b"upper" => &[(b'A', b'Z')],
        b"word" => &[(b'0', b'9'), (b'A', b'Z'), (b'_', b'_'), (b'a', b'z')],
        b"xdigit" => &[(b'0', b'9'), (b'A', b'F'), (b'a', b'f')],
        _ => return None,
    }))
}

/// The Latin-1 part of a Unicode category or script.
pub(crate) fn unicode_class(name: &str) -> Option<ByteSet> {
    let known = name.len() <= 64 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !known || name.is_empty() {
        return None;
    }
    let class = regex::Regex::new(&format!("\\p{{{name}}}")).ok()?;
    let latin1: String = (0..=255u8).map(char::from).collect();
    let mut set = ByteSet::default();
    for found in class.find_iter(&latin1) {
        found
            .as_str()
            .chars()
            .filter_map(|c| u8::try_from(c).ok())
            .for_each(|b| set.insert(b));
    }
    Some(set)
}
