//! Escapes that stand for a character or for a class of them.

use super::{Dialect, Flags};
use std::iter::Peekable;
use std::str::Chars;

/// The meaning of an escape.
pub(super) enum Escape {
    Char(char),
    /// A class with its brackets.
    Class(String),
}

/// Parses behind the backslash.
pub(super) fn parse(input: &mut Peekable<Chars<'_>>, flags: Flags) -> Result<Escape, &'static str> {
    let char = input.next().ok_or("an escape is not complete")?;
    let unicode = flags.dialect == Dialect::Joni;
    let class = |text: &str| Ok(Escape::Class(text.to_owned()));
    match char {
        't' => Ok(Escape::Char('\t')),
        'n' => Ok(Escape::Char('\n')),
        'r' => Ok(Escape::Char('\r')),
        'f' => Ok(Escape::Char('\u{C}')),
        'a' => Ok(Escape::Char('\u{7}')),
        'e' => Ok(Escape::Char('\u{1B}')),
        '0' => octal(input),
        'h' | 'H' | 'v' | 'V' if unicode => Err("an escape is not supported"),
        'x' if unicode && input.peek() == Some(&'{') => Err("an escape is not supported"),
        'x' => hexadecimal(input),
        'u' => digits(input, 4).map(Escape::Char),
        'c' => {
            let char = input
                .next()
                .filter(char::is_ascii)
                .ok_or("a control character is not complete")?;
            Ok(Escape::Char(char::from(char as u8 ^ 64)))
        }
        'd' | 'D' | 'w' | 'W' | 's' | 'S' if unicode => class(&format!(r"[\{char}]")),
        'd' => class("[0-9]"),
        'D' => class("[^0-9]"),
        'w' => class("[0-9A-Za-z_]"),
        'W' => class("[^0-9A-Za-z_]"),
        's' => class(r"[\t-\r ]"),
        'S' => class(r"[^\t-\r ]"),
        'h' => class(r"[ \t\xA0\x{1680}\x{180E}\x{2000}-\x{200A}\x{202F}\x{205F}\x{3000}]"),
        'H' => class(r"[^ \t\xA0\x{1680}\x{180E}\x{2000}-\x{200A}\x{202F}\x{205F}\x{3000}]"),
        'v' => class(r"[\n-\r\x{85}\x{2028}\x{2029}]"),
        'V' => class(r"[^\n-\r\x{85}\x{2028}\x{2029}]"),
        'p' | 'P' => property(input, char == 'P', flags),
        char if char.is_ascii_alphanumeric() => Err("an escape is not supported"),
        char => Ok(Escape::Char(char)),
    }
}

fn octal(input: &mut Peekable<Chars<'_>>) -> Result<Escape, &'static str> {
    let mut value = 0;
    let mut count = 0;
    while count < 3 {
        let fits = |char: &char| char.to_digit(8).is_some_and(|digit| value * 8 + digit <= 0xFF);
        let Some(digit) = input.next_if(fits).and_then(|char| char.to_digit(8)) else {
            break;
        };
        value = value * 8 + digit;
        count += 1;
    }
    if count == 0 {
        return Err("an octal number has digits");
    }
    char::from_u32(value).map(Escape::Char).ok_or("no such character")
}

fn hexadecimal(input: &mut Peekable<Chars<'_>>) -> Result<Escape, &'static str> {
    if input.next_if_eq(&'{').is_none() {
        return digits(input, 2).map(Escape::Char);
    }
    let mut value = 0u32;
    loop {
        match input.next().ok_or("a number is not closed")? {
            '}' => return char::from_u32(value).map(Escape::Char).ok_or("no such character"),
            char => {
                let digit = char.to_digit(16).ok_or("a number has hexadecimal digits")?;
                value = value.checked_mul(16).ok_or("no such character")? | digit;
            }
        }
    }
}

fn digits(input: &mut Peekable<Chars<'_>>, count: usize) -> Result<char, &'static str> {
    let mut value = 0;
    for _ in 0..count {
        let digit = input.next().and_then(|char| char.to_digit(16));
        value = value * 16 + digit.ok_or("a number has hexadecimal digits")?;
    }
    char::from_u32(value).ok_or("surrogates are not supported")
}

/// A class by name, such as `\p{Alpha}` or `\pL`.
fn property(input: &mut Peekable<Chars<'_>>, negated: bool, flags: Flags) -> Result<Escape, &'static str> {
    let mut name = String::new();
    match input.next().ok_or("a property is not complete")? {
        '{' => loop {
            match input.next().ok_or("a property is not closed")? {
                '}' => break,
                char => name.push(char),
            }
        },
        char => name.push(char),
    }
    let class = named(&name, flags)?;
    Ok(Escape::Class(if negated {
        format!("[^{class}]")
    } else {
        format!("[{class}]")
    }))
}

/// The classes of the engine `JONI` that are larger than Java's.
fn unicode(name: &str) -> &'static str {
    match name {
        "Lower" => r"\p{Lowercase}",
        "Upper" => r"\p{Uppercase}",
        "Punct" => r"\p{P}",
        "Space" => r"\s",
        "Blank" => r"\t\p{Zs}",
        _ => r"\p{Cc}",
    }
}

fn named(name: &str, flags: Flags) -> Result<String, &'static str> {
    let posix = match name {
        "Lower" | "Upper" | "Punct" | "Space" | "Blank" | "Cntrl" if flags.dialect == Dialect::Joni => {
            return Ok(unicode(name).to_owned());
        }
        "Lower" | "Upper" if flags.ignore_case => "[:alpha:]",
        "Lower" => "[:lower:]",
        "Upper" => "[:upper:]",
        "ASCII" => r"\x00-\x7F",
        "Alpha" => "[:alpha:]",
        "Digit" => "[:digit:]",
        "Alnum" => "[:alnum:]",
        "Punct" => "[:punct:]",
        "Graph" => "[:graph:]",
        "Print" => "[:print:]",
        "Blank" => "[:blank:]",
        "Cntrl" => "[:cntrl:]",
        "XDigit" => "[:xdigit:]",
        "Space" => "[:space:]",
        _ => {
            let plain = name.strip_prefix("Is").unwrap_or(name);
            let is_name = !plain.is_empty() && plain.chars().all(|char| char.is_ascii_alphanumeric() || char == '_');
            if !is_name || name.starts_with("In") || name.starts_with("java") {
                return Err("a property is not supported");
            }
            return Ok(format!(r"\p{{{plain}}}"));
        }
    };
    Ok(posix.to_owned())
}
