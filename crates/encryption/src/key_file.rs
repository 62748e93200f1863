//! Key-encryption keys in a file of the operator.
//!
//! Errors name the line and never quote it: it may be a key.

use crate::cipher::RandomBytes;
use crate::record::is_key_id;
use crate::service::{DataKey, KEY_BYTES, KeyContext, KeyError, KeyService, Wrapped};
use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use std::sync::Arc;
use zeroize::{Zeroize, Zeroizing};

/// More would be a mistake: each rotation needs one more, and a start makes the former ones unnecessary.
const KEYS_MAX: usize = 64;

/// A key file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyFileError {
    /// It has no key.
    #[error("there is no key in it: give a line with an id, a space, and 64 hexadecimal digits")]
    Empty,
    /// It has too many keys.
    #[error("it has more than {KEYS_MAX} keys")]
    TooMany,
    /// A line is no id and key.
    #[error("line {line}: {problem}")]
    Line {
        /// From 1.
        line: usize,
        /// Without anything of the line.
        problem: &'static str,
    },
    /// Two lines have the same id.
    #[error("line {line}: the id is that of line {first} as well")]
    Twice {
        /// The second one.
        line: usize,
        /// The first one.
        first: usize,
    },
}

struct WrappingKey {
    id: String,
    line: usize,
    key: LessSafeKey,
}

/// The keys of a file. The first one wraps.
pub struct KeyFile {
    keys: Vec<WrappingKey>,
    random: Arc<dyn RandomBytes>,
}

impl KeyFile {
    /// Reads the text of a key file.
    pub fn parse(text: &str, random: Arc<dyn RandomBytes>) -> Result<KeyFile, KeyFileError> {
        let mut keys: Vec<WrappingKey> = Vec::new();
        let lines = (1..).zip(text.lines()).map(|(line, text)| (line, text.trim()));
        for (line, text) in lines.filter(|(_, text)| !text.is_empty() && !text.starts_with('#')) {
            let problem = |problem| KeyFileError::Line { line, problem };
            let mut words = text.split_whitespace();
            let (Some(id), Some(key), None) = (words.next(), words.next(), words.next()) else {
                return Err(problem("it is not an id and a key with a space between them"));
            };
            if !is_key_id(id) {
                return Err(problem(
                    "an id has 1 to 64 letters, digits, dots, dashes and underscores",
                ));
            }
            if let Some(first) = keys.iter().find(|key| key.id == id) {
                return Err(KeyFileError::Twice {
                    line,
                    first: first.line,
                });
            }
            let bytes = decode(key)
                .ok_or_else(|| problem("the key is neither 64 hexadecimal digits nor the base64 of 32 bytes"))?;
            if keys.len() == KEYS_MAX {
                return Err(KeyFileError::TooMany);
            }
            let key = UnboundKey::new(&AES_256_GCM, &bytes[..]).map_err(|_| problem("the key cannot be used"))?;
            keys.push(WrappingKey {
                id: id.to_owned(),
                line,
                key: LessSafeKey::new(key),
            });
        }
        match keys.is_empty() {
            true => Err(KeyFileError::Empty),
            false => Ok(KeyFile { keys, random }),
        }
    }
}

/// The 32 bytes of a key.
fn decode(text: &str) -> Option<Zeroizing<[u8; KEY_BYTES]>> {
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    if text.len() == 2 * KEY_BYTES {
        for (to, digits) in key.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
            *to = (digit(digits.first())? << 4 | digit(digits.get(1))?) as u8;
        }
        return Some(key);
    }
    let engine = if text.ends_with('=') { STANDARD } else { STANDARD_NO_PAD };
    let bytes = Zeroizing::new(engine.decode(text).ok()?);
    if bytes.len() != KEY_BYTES {
        return None;
    }
    key.copy_from_slice(&bytes);
    Some(key)
}

#[async_trait]
impl KeyService for KeyFile {
    fn current(&self) -> &str {
        self.keys.first().map_or("", |key| &key.id)
    }

    async fn wrap(&self, key: &DataKey, context: &KeyContext) -> Result<Wrapped, KeyError> {
        let by = self
            .keys
            .first()
            .ok_or_else(|| KeyError::Failed("there is no key".to_owned()))?;
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).map_err(KeyError::Failed)?;
        let mut sealed = key.bytes().to_vec();
        let nonce_of = Nonce::assume_unique_for_key(nonce);
        let done = by
            .key
            .seal_in_place_append_tag(nonce_of, Aad::from(context), &mut sealed);
        done.map_err(|_| KeyError::Failed("the key cannot be encrypted".to_owned()))?;
        Ok(Wrapped {
            by: by.id.clone(),
            bytes: [&nonce[..], &sealed].concat(),
        })
    }

    async fn unwrap(&self, wrapped: &Wrapped, context: &KeyContext) -> Result<DataKey, KeyError> {
        let Some(by) = self.keys.iter().find(|key| key.id == wrapped.by) else {
            let known: Vec<&str> = self.keys.iter().map(|key| &key.id[..]).collect();
            return Err(KeyError::Unknown {
                id: wrapped.by.clone(),
                known: known.join(", "),
            });
        };
        let refused = || KeyError::Refused { id: by.id.clone() };
        let (nonce, sealed) = wrapped.bytes.split_first_chunk::<NONCE_LEN>().ok_or_else(refused)?;
        let mut sealed = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = by.key.open_in_place(nonce, Aad::from(context), &mut sealed);
        let key = opened.ok().and_then(|key| <[u8; KEY_BYTES]>::try_from(&*key).ok());
        sealed.zeroize();
        key.map(DataKey::new).ok_or_else(refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemRandom;

    const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F";
    const BASE64: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    fn parse(text: &str) -> Result<KeyFile, KeyFileError> {
        KeyFile::parse(text, Arc::new(SystemRandom))
    }

    #[tokio::test]
    async fn both_spellings_are_one_key() {
        let hex = parse(&format!("# keys\n\n  a {HEX} \n")).unwrap();
        let wrapped = hex.wrap(&DataKey::new([9; 32]), &[1; 32]).await.unwrap();
        assert_eq!(wrapped.by, "a");
        for text in [BASE64, BASE64.trim_end_matches('=')] {
            let other = parse(&format!("b {HEX}\na\t{text}\r\n")).unwrap();
            assert_eq!(other.unwrap(&wrapped, &[1; 32]).await.unwrap().bytes(), &[9; 32]);
        }
        assert_eq!(
            hex.unwrap(&wrapped, &[2; 32]).await.unwrap_err(),
            KeyError::Refused { id: "a".to_owned() },
            "a key for another use"
        );
    }

    #[tokio::test]
    async fn another_key_and_every_changed_bit_are_refused() {
        let file = parse(&format!("a {HEX}")).unwrap();
        let wrapped = file.wrap(&DataKey::new([9; 32]), &[0; 32]).await.unwrap();
        assert_eq!(wrapped.bytes.len(), 12 + 32 + 16);
        assert_ne!(
            file.wrap(&DataKey::new([9; 32]), &[0; 32]).await.unwrap(),
            wrapped,
            "a nonce is new"
        );
        for bit in 0..wrapped.bytes.len() * 8 {
            let mut changed = wrapped.clone();
            changed.bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(file.unwrap(&changed, &[0; 32]).await.is_err(), "bit {bit}");
        }
        for len in 0..wrapped.bytes.len() {
            let cut = Wrapped {
                bytes: wrapped.bytes[..len].to_vec(),
                ..wrapped.clone()
            };
            assert!(file.unwrap(&cut, &[0; 32]).await.is_err(), "{len} bytes");
        }
        let other = parse(&format!("a {}", HEX.replace("00", "ff"))).unwrap();
        assert!(matches!(
            other.unwrap(&wrapped, &[0; 32]).await,
            Err(KeyError::Refused { .. })
        ));
        let absent = parse(&format!("b {HEX}\nc {HEX}")).unwrap();
        let error = absent.unwrap(&wrapped, &[0; 32]).await.unwrap_err().to_string();
        assert!(error.contains("\"a\"") && error.contains("(b, c)"), "{error}");
    }

    #[test]
    fn a_wrong_file_is_told_without_its_keys() {
        let short = &HEX[..62];
        for (text, why) in [
            (String::new(), "no key"),
            ("# only this\n".to_owned(), "no key"),
            (HEX.to_owned(), "line 1: it is not an id"),
            (format!("a {HEX}\nb {HEX} more"), "line 2: it is not an id"),
            (format!("a/b {HEX}"), "line 1: an id has"),
            (format!("{} {HEX}", "x".repeat(65)), "line 1: an id has"),
            (format!("a {short}"), "line 1: the key is neither"),
            (format!("a {short}zz"), "line 1: the key is neither"),
            (format!("a {HEX}00"), "line 1: the key is neither"),
            (
                format!("a {}", BASE64.replace("AAEC", "A!EC")),
                "line 1: the key is neither",
            ),
            ("a +123".to_owned(), "line 1: the key is neither"),
            (format!("a {HEX}\n\na {BASE64}"), "line 3: the id is that of line 1"),
            ((0..65).map(|id| format!("k{id} {HEX}\n")).collect(), "more than 64"),
        ] {
            let error = parse(&text).err().unwrap().to_string();
            assert!(error.contains(why), "{text:?}: {error}");
            assert!(!error.contains("0102") && !error.contains("AgMEBQ"), "{error}");
        }
    }
}
