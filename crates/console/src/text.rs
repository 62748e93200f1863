//! Row keys as text: as `stele get` and `stele scan` print and read them.
//!
//! UTF-8 as it is; control characters, other bytes and the backslash as `\n`, `\t`, `\r`, `\\` or `\xNN`. A key is cut for
//! people, but never where it is to be used again.
//!
//! A caller that may see a table but not read it gets [`HIDDEN`] instead of its keys: they are data.

use std::fmt::Write;

/// Stands for a key that the caller may not know.
pub const HIDDEN: &str = "hidden";

/// The spelling of the keys of one table for one caller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keys {
    /// The caller may know them.
    pub are_shown: bool,
}

impl Keys {
    /// A key as [`escape`] spells it.
    pub fn whole(self, key: &[u8]) -> String {
        self.told(key, escape)
    }

    /// A key as [`escape_cut`] spells it.
    pub fn cut(self, key: &[u8]) -> String {
        self.told(key, escape_cut)
    }

    /// The empty key is a bound of every table, and no secret.
    fn told(self, key: &[u8], spelled: fn(&[u8]) -> String) -> String {
        match self.are_shown || key.is_empty() {
            true => spelled(key),
            false => HIDDEN.to_owned(),
        }
    }
}

/// Bytes of a key that are shown to people.
const SHOWN_BYTES_MAX: usize = 96;

/// A key as text.
pub fn escape(key: &[u8]) -> String {
    let mut out = String::with_capacity(key.len());
    for chunk in key.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                c if c.is_control() => {
                    let mut buffer = [0; 4];
                    push_hex(&mut out, c.encode_utf8(&mut buffer).as_bytes());
                }
                c => out.push(c),
            }
        }
        push_hex(&mut out, chunk.invalid());
    }
    out
}

/// The beginning of a key as text, with an ellipsis if there is more.
pub fn escape_cut(key: &[u8]) -> String {
    match key.get(..SHOWN_BYTES_MAX) {
        Some(head) if key.len() > SHOWN_BYTES_MAX => format!("{}…", escape(head)),
        _ => escape(key),
    }
}

fn push_hex(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(out, "\\x{byte:02x}");
    }
}

/// The key of a text.
pub fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut key = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            key.push(byte);
            continue;
        }
        let byte = match rest.next() {
            Some(b'\\') => b'\\',
            Some(b'n') => b'\n',
            Some(b't') => b'\t',
            Some(b'r') => b'\r',
            Some(b'x') => match (rest.next().and_then(digit), rest.next().and_then(digit)) {
                (Some(high), Some(low)) => high << 4 | low,
                _ => return Err(r"\x needs two hexadecimal digits".to_owned()),
            },
            _ => return Err(r"after a backslash comes one of \ n r t xNN".to_owned()),
        };
        key.push(byte);
    }
    Ok(key)
}

fn digit(byte: u8) -> Option<u8> {
    let digit = char::from(byte).to_digit(16)?;
    u8::try_from(digit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_can_be_read_back() {
        let all: Vec<u8> = (0..=255).collect();
        for key in [&b""[..], b"user#1\\\n", "größe".as_bytes(), &all] {
            assert_eq!(unescape(&escape(key)).unwrap(), key);
        }
        assert_eq!(escape(b"a\x00\xff\\"), r"a\x00\xff\\");
        for bad in [r"\", r"\q", r"\x1", r"\xzz"] {
            assert!(unescape(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn hidden_keys_have_one_spelling() {
        let spelled = |are_shown| ["", "a", "b"].map(|key| Keys { are_shown }.cut(key.as_bytes()));
        assert_eq!(spelled(true), ["", "a", "b"]);
        assert_eq!(spelled(false), ["", HIDDEN, HIDDEN]);
    }

    #[test]
    fn long_keys_are_cut_for_people() {
        assert_eq!(escape_cut(&[b'a'; 96]).len(), 96);
        assert_eq!(escape_cut(&[b'a'; 97]).chars().count(), 97);
    }
}
