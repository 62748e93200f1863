//! Character classes: `[a-z&&[^b]]`.

use super::escape::{self, Escape};
use super::{Flags, is_space};
use std::iter::Peekable;
use std::str::Chars;

/// Deepest nesting of classes; the parser calls itself.
const DEPTH_MAX: usize = 50;

/// Parses behind the opening bracket; the result has its brackets.
pub(super) fn parse(input: &mut Peekable<Chars<'_>>, flags: Flags, depth: usize) -> Result<String, &'static str> {
    if depth > DEPTH_MAX {
        return Err("classes are nested too deeply");
    }
    let mut out = String::from("[");
    if input.next_if_eq(&'^').is_some() {
        out.push('^');
    }
    let mut empty = true;
    loop {
        match input.next().ok_or("a class is not closed")? {
            ']' if !empty => break,
            '[' => out.push_str(&parse(input, flags, depth + 1)?),
            '&' if input.next_if_eq(&'&').is_some() => out.push_str("&&"),
            char if flags.comments && is_space(char) => continue,
            '\\' if input.next_if_eq(&'Q').is_some() => quoted(input, flags, &mut out),
            char => member(char, input, flags, &mut out)?,
        }
        empty = false;
    }
    out.push(']');
    Ok(if depth == 0 && flags.folds_unicode() {
        format!("(?i:{out})")
    } else {
        out
    })
}

/// A character, a range or an escaped class.
fn member(char: char, input: &mut Peekable<Chars<'_>>, flags: Flags, out: &mut String) -> Result<(), &'static str> {
    let first = match single(char, input, flags)? {
        Escape::Char(first) => first,
        Escape::Class(class) => {
            out.push_str(&class);
            return Ok(());
        }
    };
    let mut ahead = input.clone();
    if ahead.next() != Some('-') || matches!(ahead.peek(), None | Some(']' | '[')) {
        range(first, first, flags, out);
        return Ok(());
    }
    *input = ahead;
    let char = input.next().ok_or("a class is not closed")?;
    match single(char, input, flags)? {
        Escape::Char(last) if first <= last => range(first, last, flags, out),
        _ => return Err("a range ends before it begins"),
    }
    Ok(())
}

fn single(char: char, input: &mut Peekable<Chars<'_>>, flags: Flags) -> Result<Escape, &'static str> {
    if char == '\\' {
        escape::parse(input, flags)
    } else {
        Ok(Escape::Char(char))
    }
}

/// Characters as they are, and ASCII letters in the other case if that is ignored.
fn range(first: char, last: char, flags: Flags, out: &mut String) {
    let mut push = |first: char, last: char| {
        out.push_str(&format!(r"\x{{{:X}}}-\x{{{:X}}}", u32::from(first), u32::from(last)));
    };
    push(first, last);
    if !flags.folds_ascii() {
        return;
    }
    let (lower_first, lower_last) = (first.max('a'), last.min('z'));
    if lower_first <= lower_last {
        push(lower_first.to_ascii_uppercase(), lower_last.to_ascii_uppercase());
    }
    let (upper_first, upper_last) = (first.max('A'), last.min('Z'));
    if upper_first <= upper_last {
        push(upper_first.to_ascii_lowercase(), upper_last.to_ascii_lowercase());
    }
}

fn quoted(input: &mut Peekable<Chars<'_>>, flags: Flags, out: &mut String) {
    while let Some(char) = input.next() {
        if char == '\\' && input.next_if_eq(&'E').is_some() {
            return;
        }
        range(char, char, flags, out);
    }
}
