//! `RegexStringComparator`: finds a Java pattern anywhere in stored text.
//!
//! Stored bytes become text by the comparator's character set, as in Java: malformed bytes become U+FFFD. The engine
//! `JONI` always reads UTF-8.

use super::java::{Dialect, Flags, translate};
use crate::filters::decode::Charge;
use crate::filters::error::FilterError;
use regex::{Regex, RegexBuilder};
use std::borrow::Cow;
use stele_wire::messages::RegexStringComparator;

/// Longest pattern. Patterns of people are shorter than a kilobyte.
const PATTERN_BYTES_MAX: usize = 16 * 1024;

/// Most memory of a compiled pattern, and of its lazily built automaton.
const PATTERN_MEMORY_MAX: usize = 1 << 20;

/// The same for most patterns. Those that take more are compiled again.
const SMALL_PATTERN_MEMORY: usize = 128 << 10;

const LITERAL: i32 = 16;

/// Values up to this size are decoded in memory that is not reserved.
const SMALL_TEXT_BYTES: usize = 64 << 10;

/// Bytes of U+FFFD in UTF-8.
const REPLACEMENT_BYTES: usize = char::REPLACEMENT_CHARACTER.len_utf8();

/// A compiled pattern.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    regex: Regex,
    charset: Charset,
    /// Work for each byte: 1 unless it may have very many states.
    cost: usize,
}

/// Values of which a pattern makes a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::filters) enum Copied {
    /// Those that are no UTF-8.
    Malformed,
    /// All, with at most this number of bytes for each byte.
    Always(usize),
}

impl Copied {
    /// Bytes to reserve for the copy of a value.
    pub(in crate::filters) fn reserved(self, stored: &[u8]) -> usize {
        match stored.len() <= SMALL_TEXT_BYTES {
            true => 0,
            false => self.bytes(stored),
        }
    }

    /// Bytes that the copy of a value takes at most.
    fn bytes(self, stored: &[u8]) -> usize {
        match self {
            Self::Malformed if std::str::from_utf8(stored).is_ok() => 0,
            Self::Malformed => REPLACEMENT_BYTES.saturating_mul(stored.len()),
            Self::Always(factor) => factor.saturating_mul(stored.len()),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Charset {
    Utf8,
    Ascii,
    Latin1,
    /// The bytes decide, big-endian without a mark.
    Utf16,
    Utf16Be,
    Utf16Le,
}

impl Pattern {
    pub(super) fn compile(message: &RegexStringComparator, charge: &mut Charge<'_>) -> Result<Self, FilterError> {
        let pattern = message.pattern.as_str();
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(FilterError::TooLarge("a pattern has at most 16 KiB"));
        }
        let refused = |cause: &str| FilterError::argument(format!("pattern {pattern:?}: {cause}"));
        let dialect = match message.engine.as_deref() {
            None | Some("JAVA") => Dialect::Java,
            Some("JONI") => Dialect::Joni,
            Some(other) => return Err(FilterError::argument(format!("no regex engine {other:?}"))),
        };
        let flags = Flags::from_java(message.pattern_flags, dialect).map_err(refused)?;
        let literal = dialect == Dialect::Java && message.pattern_flags & LITERAL != 0;
        let translated = translate(pattern, flags, literal).map_err(refused)?;
        let mut build = |bytes_max: usize| {
            // The pattern and its automaton.
            if !charge(2 * bytes_max) {
                return Err(FilterError::NoMemory);
            }
            let mut builder = RegexBuilder::new(&translated);
            Ok(builder.size_limit(bytes_max).dfa_size_limit(bytes_max).build())
        };
        let regex = match build(SMALL_PATTERN_MEMORY)? {
            Err(regex::Error::CompiledTooBig(_)) => build(PATTERN_MEMORY_MAX)?,
            built => built,
        };
        let regex = regex.map_err(|e| refused(&e.to_string()))?;
        let charset = match dialect {
            Dialect::Java => Charset::named(&message.charset)?,
            Dialect::Joni => Charset::Utf8,
        };
        Ok(Self {
            regex,
            charset,
            cost: stele_filter::automaton_cost(&translated, true),
        })
    }

    pub(super) fn cost(&self) -> usize {
        self.cost
    }

    /// Whether the pattern occurs in stored bytes.
    pub(super) fn finds(&self, stored: &[u8]) -> bool {
        self.regex.is_match(&self.charset.text(stored))
    }

    pub(super) fn copied(&self) -> Copied {
        self.charset.copied()
    }
}

impl Charset {
    fn named(name: &str) -> Result<Self, FilterError> {
        Ok(match name.to_ascii_uppercase().as_str() {
            "" | "UTF-8" | "UTF8" => Self::Utf8,
            "US-ASCII" | "ASCII" => Self::Ascii,
            "ISO-8859-1" | "ISO8859_1" | "ISO8859-1" | "LATIN1" => Self::Latin1,
            "UTF-16" => Self::Utf16,
            "UTF-16BE" => Self::Utf16Be,
            "UTF-16LE" => Self::Utf16Le,
            _ => {
                return Err(FilterError::argument(format!(
                    "character set {name:?} is not supported"
                )));
            }
        })
    }

    fn copied(self) -> Copied {
        match self {
            Self::Utf8 => Copied::Malformed,
            Self::Latin1 => Copied::Always(2),
            // Two bytes of UTF-16 become three at most, but a single one at the end does, too.
            Self::Ascii | Self::Utf16 | Self::Utf16Be | Self::Utf16Le => Copied::Always(REPLACEMENT_BYTES),
        }
    }

    /// Copies are made in place, so that none takes more than [`Copied::bytes`].
    fn text(self, bytes: &[u8]) -> Cow<'_, str> {
        let one_by_one = |last: u8| {
            let char = move |&byte: &u8| {
                if byte <= last {
                    char::from(byte)
                } else {
                    char::REPLACEMENT_CHARACTER
                }
            };
            collected(bytes.iter().map(char), self.copied().bytes(bytes)).into()
        };
        let utf16 = |bytes: &[u8], unit| collected(utf16(bytes, unit), self.copied().bytes(bytes)).into();
        match self {
            Self::Utf8 => utf8(bytes),
            Self::Ascii => one_by_one(0x7F),
            Self::Latin1 => one_by_one(0xFF),
            Self::Utf16 => match bytes {
                [0xFE, 0xFF, rest @ ..] => utf16(rest, u16::from_be_bytes),
                [0xFF, 0xFE, rest @ ..] => utf16(rest, u16::from_le_bytes),
                _ => utf16(bytes, u16::from_be_bytes),
            },
            Self::Utf16Be => utf16(bytes, u16::from_be_bytes),
            Self::Utf16Le => utf16(bytes, u16::from_le_bytes),
        }
    }
}

fn collected(chars: impl Iterator<Item = char>, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes);
    chars.for_each(|char| text.push(char));
    debug_assert!(text.len() <= bytes);
    text
}

/// As `String::from_utf8_lossy`, whose copy grows by doubling.
fn utf8(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return text.into();
    }
    let mut text = String::with_capacity(REPLACEMENT_BYTES.saturating_mul(bytes.len()));
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        if !chunk.invalid().is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
        }
    }
    text.into()
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> impl Iterator<Item = char> {
    let (units, rest) = bytes.as_chunks::<2>();
    let units = units.iter().map(move |&bytes| unit(bytes));
    let chars = char::decode_utf16(units).map(|char| char.unwrap_or(char::REPLACEMENT_CHARACTER));
    chars.chain((!rest.is_empty()).then_some(char::REPLACEMENT_CHARACTER))
}
