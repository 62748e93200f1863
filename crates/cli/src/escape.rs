//! Bytes as text, for terminals, command lines and text formats.
//!
//! Keys, qualifiers and values are arbitrary bytes. Three spellings occur:
//! * **Escaped** (terminal output, command line arguments): UTF-8 as is. Control characters, invalid bytes and the
//!   backslash are written `\n`, `\t`, `\r`, `\\` or `\xNN`.
//! * **`base64:`** (CSV and TSV fields): valid UTF-8 as is. Other bytes, and any text that itself begins with
//!   `base64:`, are that prefix and standard base64. So every byte string has exactly one spelling.
//! * **JSON**: a string if the bytes are UTF-8, else the object `{"b64": "..."}`. The object also replaces a string
//!   that would be longer, because most of its bytes would need escapes of six. So the text of a row is little more
//!   than 4/3 of it.
//!
//! Invariant: decoding an encoded byte string gives the same bytes, for each of the three.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::borrow::Cow;
use std::fmt::Write;

/// Marks a CSV field whose rest is base64.
pub const BASE64_PREFIX: &[u8] = b"base64:";

/// Writes bytes so that a terminal shows them and [`unescape`] reads them back.
pub fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
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

fn push_hex(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(out, "\\x{byte:02x}");
    }
}

/// Decodes the form that [`escape`] writes. Keys and values on the command line have the same form.
pub fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match rest.next() {
            Some(b'\\') => out.push(b'\\'),
            Some(b'n') => out.push(b'\n'),
            Some(b'r') => out.push(b'\r'),
            Some(b't') => out.push(b'\t'),
            Some(b'x') => match (rest.next().and_then(hex), rest.next().and_then(hex)) {
                (Some(high), Some(low)) => out.push(high << 4 | low),
                _ => return Err(format!("`{text}`: \\x needs two hexadecimal digits")),
            },
            _ => {
                return Err(format!("`{text}`: after a backslash comes one of \\ n r t xNN"));
            }
        }
    }
    Ok(out)
}

fn hex(digit: u8) -> Option<u8> {
    (digit as char).to_digit(16).map(|value| value as u8)
}

/// The CSV spelling of a byte string.
pub fn to_field(bytes: &[u8]) -> Cow<'_, [u8]> {
    if std::str::from_utf8(bytes).is_ok() && !bytes.starts_with(BASE64_PREFIX) {
        return Cow::Borrowed(bytes);
    }
    let mut field = BASE64_PREFIX.to_vec();
    field.extend_from_slice(STANDARD.encode(bytes).as_bytes());
    Cow::Owned(field)
}

/// Reads the CSV spelling; only used when the importer is told that fields are in it.
pub fn from_field(field: &[u8]) -> Result<Cow<'_, [u8]>, String> {
    match field.strip_prefix(BASE64_PREFIX) {
        None => Ok(Cow::Borrowed(field)),
        Some(encoded) => STANDARD
            .decode(encoded)
            .map(Cow::Owned)
            .map_err(|error| format!("invalid base64 after `base64:`: {error}")),
    }
}

/// The JSON spelling of a byte string.
pub fn to_json(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) if json_string_len(bytes) <= json_object_len(bytes) => Value::String(text.to_owned()),
        _ => serde_json::json!({ "b64": STANDARD.encode(bytes) }),
    }
}

/// Bytes of a JSON string, quotes included.
fn json_string_len(bytes: &[u8]) -> usize {
    let escaped = bytes.iter().map(|byte| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..0x20 => 6,
        _ => 1,
    });
    escaped.sum::<usize>() + 2
}

/// Bytes of the JSON object.
fn json_object_len(bytes: &[u8]) -> usize {
    bytes.len().div_ceil(3) * 4 + r#"{"b64":""}"#.len()
}

/// Decodes the text inside `{"b64": "..."}`.
pub fn from_b64(text: &str) -> Result<Vec<u8>, String> {
    STANDARD
        .decode(text)
        .map_err(|error| format!("invalid base64 in \"b64\": {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn terminal_text_is_readable() {
        assert_eq!(escape("Zoë\t\\".as_bytes()), "Zoë\\t\\\\");
        assert_eq!(escape(b"a\xff\x00\x1b["), "a\\xff\\x00\\x1b[");
        assert_eq!(unescape("a\\xfF\\x00").unwrap(), b"a\xff\x00");
    }

    #[test]
    fn bad_escapes_are_refused() {
        for text in ["\\", "\\q", "\\x", "\\x1", "\\xg0"] {
            assert!(unescape(text).is_err(), "{text}");
        }
    }

    #[test]
    fn fields_are_plain_where_possible() {
        assert_eq!(&*to_field(b"plain"), b"plain");
        assert_eq!(&*to_field(b"\xff"), b"base64:/w==");
        assert_eq!(&*to_field(b"base64:x"), b"base64:YmFzZTY0Ong=");
    }

    #[test]
    fn json_is_never_much_longer_than_the_bytes() {
        assert_eq!(
            to_json(b"two\nlines, \"quoted\""),
            Value::String("two\nlines, \"quoted\"".to_owned())
        );
        assert_eq!(to_json(b"\0"), Value::String("\0".to_owned()));
        for byte in 0..=255 {
            let bytes = vec![byte; 30_000];
            let json = to_json(&bytes);
            let text = json.to_string();
            assert!(text.len() <= 40_010, "{byte}: {} bytes", text.len());
            let back = match json {
                Value::String(text) => text.into_bytes(),
                object => from_b64(object["b64"].as_str().unwrap()).unwrap(),
            };
            assert_eq!(back, bytes);
        }
    }

    proptest! {
        #[test]
        fn every_spelling_round_trips(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            prop_assert_eq!(unescape(&escape(&bytes)).unwrap(), bytes.clone());
            prop_assert_eq!(from_field(&to_field(&bytes)).unwrap().into_owned(), bytes);
        }
    }
}
