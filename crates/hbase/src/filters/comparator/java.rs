//! Translates Java's patterns to the `regex` crate.
//!
//! A pattern is parsed by Java's rules and written with constructs that mean the same in both. Flags are resolved, and
//! captures become plain groups: only whether the pattern is found matters. Look-around, back references, possessive
//! quantifiers and atomic groups need backtracking. They are refused, because matching must take linear time.
//!
//! Known differences: in multi-line mode only `\r` and `\n` end lines, and `^` also matches at the end of the text.
//! `\b` uses Unicode's words, where Java 19 and later use ASCII's.
//!
//! The engine `JONI` differs in its flags, and its classes such as `\w` and `\p{Punct}` are Unicode's. It differs from
//! the original in bytes that are not UTF-8, and in characters outside of ASCII when case is ignored.

mod class;
mod escape;

use escape::Escape;
use std::iter::Peekable;
use std::str::Chars;

/// The engine whose rules apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Java,
    Joni,
}

/// Flags at a place of the pattern.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flags {
    dialect: Dialect,
    unix_lines: bool,
    ignore_case: bool,
    comments: bool,
    multi_line: bool,
    dot_all: bool,
    unicode_case: bool,
}

const UNIX_LINES: i32 = 1;
const CASE_INSENSITIVE: i32 = 2;
const COMMENTS: i32 = 4;
const MULTILINE: i32 = 8;
const LITERAL: i32 = 16;
const DOTALL: i32 = 32;
const UNICODE_CASE: i32 = 64;
const KNOWN: i32 = UNIX_LINES | CASE_INSENSITIVE | COMMENTS | MULTILINE | LITERAL | DOTALL | UNICODE_CASE;

/// Java's line terminators.
const TERMINATORS: &str = r"\n\r\x{85}\x{2028}\x{2029}";

impl Flags {
    /// From the bits of `java.util.regex.Pattern`.
    pub(super) fn from_java(bits: i32, dialect: Dialect) -> Result<Self, &'static str> {
        if dialect == Dialect::Java && bits & !KNOWN != 0 {
            return Err("only the flags 1 to 64 are supported");
        }
        // JONI knows three of the flags and drops the others.
        let java = dialect == Dialect::Java;
        Ok(Self {
            dialect,
            unix_lines: bits & UNIX_LINES != 0 || !java,
            ignore_case: bits & CASE_INSENSITIVE != 0,
            comments: java && bits & COMMENTS != 0,
            multi_line: bits & MULTILINE != 0,
            dot_all: bits & DOTALL != 0,
            unicode_case: bits & UNICODE_CASE != 0 || !java,
        })
    }

    fn set(&mut self, flag: char, on: bool) -> Result<(), &'static str> {
        match flag {
            'd' => self.unix_lines = on,
            'i' => self.ignore_case = on,
            'm' => self.multi_line = on,
            's' => self.dot_all = on,
            'u' => self.unicode_case = on,
            'x' => self.comments = on,
            _ => return Err("a flag is not supported"),
        }
        Ok(())
    }

    /// Whether case is ignored for ASCII only.
    fn folds_ascii(self) -> bool {
        self.ignore_case && !self.unicode_case
    }

    /// Whether case is ignored for all characters.
    fn folds_unicode(self) -> bool {
        self.ignore_case && self.unicode_case
    }
}

/// The pattern in the syntax of the `regex` crate.
pub(super) fn translate(pattern: &str, flags: Flags, literal: bool) -> Result<String, &'static str> {
    let mut translator = Translator {
        input: pattern.chars().peekable(),
        out: String::with_capacity(pattern.len() + 16),
        flags,
        groups: Vec::new(),
        repeatable: false,
    };
    if literal {
        pattern.chars().for_each(|char| translator.literal(char));
        return Ok(translator.out);
    }
    while let Some(char) = translator.input.next() {
        translator.step(char)?;
    }
    if translator.groups.is_empty() {
        Ok(translator.out)
    } else {
        Err("a group is not closed")
    }
}

struct Translator<'a> {
    input: Peekable<Chars<'a>>,
    out: String,
    flags: Flags,
    /// Flags that return when the group ends.
    groups: Vec<Flags>,
    /// Whether a quantifier may follow.
    repeatable: bool,
}

impl Translator<'_> {
    fn step(&mut self, char: char) -> Result<(), &'static str> {
        match char {
            '\\' => self.escape(),
            '[' => {
                let class = class::parse(&mut self.input, self.flags, 0)?;
                self.atom(&class);
                Ok(())
            }
            '(' => self.open(),
            ')' => {
                self.flags = self.groups.pop().ok_or("a group is not open")?;
                self.atom(")");
                Ok(())
            }
            '|' => {
                self.out.push('|');
                self.repeatable = false;
                Ok(())
            }
            '*' | '+' | '?' => self.quantifier(&char.to_string()),
            '{' => self.counted(),
            '.' => {
                self.dot();
                Ok(())
            }
            '^' => {
                self.assertion(match (self.flags.multi_line, self.flags.unix_lines) {
                    (false, _) => r"\A",
                    (true, false) => "(?mR:^)",
                    (true, true) => "(?m:^)",
                });
                Ok(())
            }
            '$' => self.dollar(),
            '#' if self.flags.comments => {
                while self.input.next().is_some_and(|char| char != '\n') {}
                Ok(())
            }
            char if self.flags.comments && is_space(char) => Ok(()),
            char => {
                self.literal(char);
                Ok(())
            }
        }
    }

    fn atom(&mut self, text: &str) {
        self.out.push_str(text);
        self.repeatable = true;
    }

    fn assertion(&mut self, text: &str) {
        self.out.push_str(text);
        self.repeatable = true;
    }

    fn literal(&mut self, char: char) {
        if self.flags.folds_ascii() && char.is_ascii_alphabetic() {
            let both = format!("[{}{}]", char.to_ascii_lowercase(), char.to_ascii_uppercase());
            return self.atom(&both);
        }
        let mut buffer = [0; 4];
        let escaped = regex::escape(char.encode_utf8(&mut buffer));
        if self.flags.folds_unicode() {
            self.atom(&format!("(?i:{escaped})"));
        } else {
            self.atom(&escaped);
        }
    }

    fn dot(&mut self) {
        if self.flags.dot_all {
            self.atom("(?s:.)");
        } else if self.flags.unix_lines {
            self.atom(r"[^\n]");
        } else {
            self.atom(&format!("[^{TERMINATORS}]"));
        }
    }

    /// The end of the text, or the place before a terminator at its end. That terminator is consumed, so nothing that
    /// could match it may follow.
    fn dollar(&mut self) -> Result<(), &'static str> {
        if self.flags.multi_line {
            self.assertion(if self.flags.unix_lines { "(?m:$)" } else { "(?mR:$)" });
            return Ok(());
        }
        self.before_end()
    }

    fn before_end(&mut self) -> Result<(), &'static str> {
        if !matches!(self.input.peek(), None | Some(')' | '|' | '$')) {
            return Err("`$` is only supported at the end");
        }
        if self.flags.unix_lines {
            self.assertion(r"(?:\n?\z)");
        } else {
            self.assertion(&format!(r"(?:(?:\r\n|[{TERMINATORS}])?\z)"));
        }
        Ok(())
    }

    fn open(&mut self) -> Result<(), &'static str> {
        let outer = self.flags;
        if self.input.next_if_eq(&'?').is_some() && !self.special_group()? {
            return Ok(());
        }
        self.groups.push(outer);
        self.out.push_str("(?:");
        self.repeatable = false;
        Ok(())
    }

    /// The part behind `(?`. False if that set flags for the rest of the group.
    fn special_group(&mut self) -> Result<bool, &'static str> {
        const LOOK: &str = "look-around is not supported";
        match self.input.peek() {
            Some('=' | '!') => return Err(LOOK),
            Some('>') => return Err("atomic groups are not supported"),
            Some('<') => {
                self.input.next();
                if matches!(self.input.peek(), Some('=' | '!')) {
                    return Err(LOOK);
                }
                return if self.input.any(|char| char == '>') {
                    Ok(true)
                } else {
                    Err("a name does not end")
                };
            }
            _ => {}
        }
        let mut on = true;
        loop {
            match self.input.next().ok_or("a group is not closed")? {
                ':' => return Ok(true),
                ')' => return Ok(false),
                '-' => on = false,
                flag => self.flags.set(flag, on)?,
            }
        }
    }

    fn quantifier(&mut self, text: &str) -> Result<(), &'static str> {
        if !std::mem::take(&mut self.repeatable) {
            return Err("a quantifier has nothing to repeat");
        }
        if self.input.next_if_eq(&'+').is_some() {
            return Err("possessive quantifiers are not supported");
        }
        self.out.push_str(text);
        if self.input.next_if_eq(&'?').is_some() {
            self.out.push('?');
        }
        Ok(())
    }

    fn counted(&mut self) -> Result<(), &'static str> {
        let mut text = String::from("{");
        loop {
            let char = self.input.next().ok_or("a quantifier is not closed")?;
            text.push(char);
            match char {
                '}' => return self.quantifier(&text),
                '0'..='9' => {}
                ',' if text.len() > 2 => {}
                _ => return Err("a quantifier has digits only"),
            }
        }
    }

    fn escape(&mut self) -> Result<(), &'static str> {
        match self.input.peek() {
            Some('Q') => {
                self.input.next();
                self.quoted();
                return Ok(());
            }
            Some('E') => return Err(r"`\E` without `\Q`"),
            Some('A') => self.assertion(r"\A"),
            Some('z') => self.assertion(r"\z"),
            Some('b') => self.assertion(r"\b"),
            Some('B') => self.assertion(r"\B"),
            Some('R') if self.flags.dialect == Dialect::Java => {
                self.atom(r"(?:\r\n|[\n\x0B\x0C\r\x{85}\x{2028}\x{2029}])")
            }
            Some('Z') => {
                self.input.next();
                return self.before_end();
            }
            Some('G' | 'X' | 'N') => return Err(r"`\G`, `\X` and `\N` are not supported"),
            Some('k' | '1'..='9') => return Err("back references are not supported"),
            _ => {
                match escape::parse(&mut self.input, self.flags)? {
                    Escape::Char(char) => self.literal(char),
                    Escape::Class(class) => self.atom(&class),
                }
                return Ok(());
            }
        }
        self.input.next();
        Ok(())
    }

    /// Literal text up to `\E` or the end.
    fn quoted(&mut self) {
        while let Some(char) = self.input.next() {
            if char == '\\' && self.input.next_if_eq(&'E').is_some() {
                return;
            }
            self.literal(char);
        }
    }
}

fn is_space(char: char) -> bool {
    matches!(char, ' ' | '\t'..='\r')
}
