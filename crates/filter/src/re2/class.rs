//! Escapes and bracketed classes of RE2 patterns.

use super::byte_set::{ByteSet, perl_class, posix_class, unicode_class};
use std::collections::BTreeMap;

/// The meaning of an escape.
pub(super) enum Escape {
    Byte(u8),
    Set(ByteSet),
}

/// A cache of Unicode classes, because a lookup compiles a table.
pub(super) type UnicodeClasses = BTreeMap<String, Option<ByteSet>>;

const BAD_ESCAPE: &str = "invalid escape sequence";
const BAD_RANGE: &str = "invalid character class range";

/// Takes one byte off the front.
fn next(input: &mut &[u8]) -> Option<u8> {
    let (first, rest) = input.split_first()?;
    *input = rest;
    Some(*first)
}

/// Parses an escape, the backslash included, that means the same inside and outside of brackets.
pub(super) fn escape(input: &mut &[u8], fold_case: bool, classes: &mut UnicodeClasses) -> Result<Escape, &'static str> {
    let letter = *input.get(1).ok_or("trailing \\")?;
    let base = match letter {
        b'p' | b'P' => {
            *input = input.get(2..).unwrap_or_default();
            return unicode(input, letter == b'P', fold_case, classes).map(Escape::Set);
        }
        _ => perl_class(letter.to_ascii_lowercase()),
    };
    if let Some(base) = base {
        *input = input.get(2..).unwrap_or_default();
        let set = if fold_case { base.folded() } else { base };
        let negated = letter.is_ascii_uppercase();
        return Ok(Escape::Set(if negated { set.negated() } else { set }));
    }
    escaped_byte(input).map(Escape::Byte)
}

/// Parses the name after `\p` or `\P`.
fn unicode(
    input: &mut &[u8],
    negated: bool,
    fold_case: bool,
    classes: &mut UnicodeClasses,
) -> Result<ByteSet, &'static str> {
    let mut name = match next(input).ok_or(BAD_RANGE)? {
        b'{' => {
            let length = input.iter().position(|b| *b == b'}').ok_or(BAD_RANGE)?;
            let (name, rest) = input.split_at(length);
            *input = rest.get(1..).unwrap_or_default();
            name.to_vec()
        }
        letter => vec![letter],
    };
    let mut negated = negated;
    if name.first() == Some(&b'^') {
        name.remove(0);
        negated = !negated;
    }
    let name = String::from_utf8(name).map_err(|_| BAD_RANGE)?;
    let class = classes.entry(name).or_insert_with_key(|name| unicode_class(name));
    let set = class.ok_or(BAD_RANGE)?;
    let set = if fold_case { set.folded() } else { set };
    Ok(if negated { set.negated() } else { set })
}

/// Parses an escape that stands for one byte.
fn escaped_byte(input: &mut &[u8]) -> Result<u8, &'static str> {
    next(input);
    let letter = next(input).ok_or("trailing \\")?;
    Ok(match letter {
        b'a' => 0x07,
        b'f' => 0x0C,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 0x0B,
        b'x' => return hexadecimal(input),
        // A single digit would be a reference to a group, which RE2 does not have.
        b'1'..=b'7' if !matches!(input.first(), Some(b'0'..=b'7')) => return Err(BAD_ESCAPE),
        b'0'..=b'7' => {
            let mut code = u32::from(letter - b'0');
            for _ in 0..2 {
                if let Some(digit @ b'0'..=b'7') = input.first().copied() {
                    next(input);
                    code = code * 8 + u32::from(digit - b'0');
                }
            }
            return u8::try_from(code).map_err(|_| BAD_ESCAPE);
        }
        punctuation if punctuation.is_ascii() && !punctuation.is_ascii_alphanumeric() => letter,
        _ => return Err(BAD_ESCAPE),
    })
}

/// Parses the digits after `\x`: two of them, or any number in braces. A number that is no byte can never match.
fn hexadecimal(input: &mut &[u8]) -> Result<u8, &'static str> {
    let mut digit = || next(input).ok_or(BAD_ESCAPE);
    let value = |byte: u8| char::from(byte).to_digit(16).ok_or(BAD_ESCAPE);
    let first = digit()?;
    if first != b'{' {
        return Ok((value(first)? * 16 + value(digit()?)?) as u8);
    }
    let mut code = value(digit()?)?;
    loop {
        match digit()? {
            b'}' => return u8::try_from(code).map_err(|_| BAD_ESCAPE),
            byte => code = code.saturating_mul(16).saturating_add(value(byte)?),
        }
    }
}

/// Parses a class, both brackets included.
pub(super) fn parse(input: &mut &[u8], fold_case: bool, classes: &mut UnicodeClasses) -> Result<ByteSet, &'static str> {
    next(input);
    let negated = input.first() == Some(&b'^');
    if negated {
        next(input);
    }
    let fold = |set: ByteSet| if fold_case { set.folded() } else { set };
    let mut set = ByteSet::default();
    let mut first = true;
    loop {
        match input.first() {
            None => return Err("missing closing ]"),
            Some(b']') if !first => break,
            _ => {}
        }
        first = false;
        if let Some(named) = posix(input, &fold)? {
            set.union(named);
            continue;
        }
        let low = match input.first() {
            Some(b'\\') => match escape(input, fold_case, classes)? {
                Escape::Byte(byte) => byte,
                Escape::Set(named) => {
                    set.union(named);
                    continue;
                }
            },
            _ => next(input).ok_or("missing closing ]")?,
        };
        let high = match input {
            [b'-', after, ..] if *after != b']' => {
                next(input);
                range_end(input)?
            }
            _ => low,
        };
        if high < low {
            return Err(BAD_RANGE);
        }
        set.union(fold(ByteSet::of(&[(low, high)])));
    }
    next(input);
    Ok(if negated { set.negated() } else { set })
}

/// Parses the upper end of a range.
fn range_end(input: &mut &[u8]) -> Result<u8, &'static str> {
    match input.first() {
        Some(b'\\') => escaped_byte(input),
        _ => next(input).ok_or("missing closing ]"),
    }
}

/// Parses `[:name:]` or `[:^name:]` if the input begins with one.
fn posix(input: &mut &[u8], fold: &impl Fn(ByteSet) -> ByteSet) -> Result<Option<ByteSet>, &'static str> {
    let Some(named) = input.strip_prefix(b"[:") else {
        return Ok(None);
    };
    let Some(length) = named.windows(2).position(|w| w == b":]") else {
        return Ok(None);
    };
    let (name, rest) = named.split_at(length);
    let (negated, name) = match name.strip_prefix(b"^") {
        Some(name) => (true, name),
        None => (false, name),
    };
    let set = fold(posix_class(name).ok_or(BAD_RANGE)?);
    *input = rest.get(2..).unwrap_or_default();
    Ok(Some(if negated { set.negated() } else { set }))
}
