//! Patterns: RE2 over bytes, translated to the `regex` crate.
//!
//! Bigtable's patterns are RE2 in Latin-1 mode: a character is a byte, `.` is any byte but newline, `\C` any byte, and
//! a pattern must match the whole subject. The `regex` crate has the same linear-time guarantee but a different syntax.
//! So a pattern is parsed by RE2's rules, and written with the few constructs that mean the same in both: literal
//! bytes, byte classes, groups, alternation, repetition and assertions. Flags and case folding are resolved. Greediness
//! and captures are dropped, because they cannot change whether a whole subject matches.
//!
//! Terms: an *atom* is the operand of a repetition operator. *Weight* estimates the states of the automaton.
//!
//! Invariants:
//! * The output is ASCII and needs no flags but `unicode(false)`.
//! * Parsing is total and uses no recursion; its memory is proportional to the pattern.
//! * Every limit is checked before the `regex` crate sees anything.
//!
//! Source: RE2's syntax page and the behaviour of its parser (`re2/parse.cc`) for errors and corner cases.

mod byte_set;
mod class;
mod group;
mod pattern;
mod repetition;

use byte_set::{ByteSet, other_case};
use class::Escape;
use group::Group;
pub(crate) use pattern::AUTOMATON_WEIGHT;
pub use pattern::Pattern;
use repetition::{REPEAT_MAX, repetition};

/// Longest pattern: that of the longest filter that Bigtable takes (data.proto, `RowFilter`).
pub const PATTERN_BYTES_MAX: usize = 20_480;

/// Ranges of a class that weigh as much as a state: each takes 8 bytes of its state, which there is for either direction.
const RANGES_PER_WEIGHT: usize = 2;

/// Largest weight. A state takes about 40 bytes in either direction, so a pattern stays below 3 MiB.
pub(crate) const PATTERN_WEIGHT_MAX: usize = 32_768;

/// A pattern in the syntax of the `regex` crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Translation {
    /// The expression to compile, anchored at both ends.
    pub regex: String,
    /// Every match begins with this.
    pub prefix: Vec<u8>,
    /// The possible continuations of the prefix.
    pub tail: Tail,
    /// Estimate of the automaton's states.
    pub weight: usize,
}

/// The rest of a pattern after its literal prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// Nothing: the pattern is a literal.
    Empty,
    /// `\C*`
    AnyBytes,
    /// `.*`
    AnyButNewline,
    /// Something that takes an automaton.
    Other,
}

const ANY_BYTE: &str = "[\\x00-\\xFF]";
const ANY_BUT_NEWLINE: &str = "[\\x00-\\x09\\x0B-\\xFF]";

/// Translates a pattern. Errors have RE2's words.
pub fn translate(pattern: &[u8]) -> Result<Translation, &'static str> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err("pattern too large");
    }
    let mut parser = Parser::new(pattern);
    while let Some(byte) = parser.input.first().copied() {
        parser.step(byte)?;
    }
    parser.finish()
}

#[derive(Clone, Copy, Default)]
struct Flags {
    fold_case: bool,
    dot_newline: bool,
    multi_line: bool,
}

/// The last atom of the current concatenation.
#[derive(Clone, Copy)]
struct Atom {
    /// Where it begins in the output.
    start: usize,
    weight: usize,
    /// The largest product of nested counted repetitions in it.
    repeats: u32,
    /// It ends in a repetition operator and needs a group before it can take another.
    repeated: bool,
}

/// How far the pattern is known to begin with a literal.
#[derive(Clone, Copy, PartialEq)]
enum Prefix {
    /// All of it so far is a literal.
    Open,
    /// A literal and then the end of the text, at this place in the output.
    Ended(usize),
    /// It continues with something else at this place in the output.
    Closed(usize),
}

struct Parser<'a> {
    input: &'a [u8],
    out: String,
    flags: Flags,
    groups: Vec<Group>,
    atom: Option<Atom>,
    /// Of the current group, without the current atom.
    weight: usize,
    repeats: u32,
    /// The last thing parsed was a repetition operator.
    after_repeat: bool,
    prefix: Vec<u8>,
    prefix_state: Prefix,
    classes: class::UnicodeClasses,
}

impl<'a> Parser<'a> {
    fn new(input: &'a [u8]) -> Self {
        Parser {
            input,
            out: String::from("\\A(?:"),
            flags: Flags::default(),
            groups: Vec::new(),
            atom: None,
            weight: 0,
            repeats: 1,
            after_repeat: false,
            prefix: Vec::new(),
            prefix_state: Prefix::Open,
            classes: Default::default(),
        }
    }

    /// Parses one construct, which begins with `byte`.
    fn step(&mut self, byte: u8) -> Result<(), &'static str> {
        let was_repeat = std::mem::take(&mut self.after_repeat);
        match byte {
            b'\\' => return self.escape(),
            b'[' => {
                let set = class::parse(&mut self.input, self.flags.fold_case, &mut self.classes)?;
                self.push_set(set);
                return self.check_weight();
            }
            b'(' => return self.open(),
            b'*' | b'+' | b'?' | b'{' => {
                if let Some((low, high, length)) = repetition(self.input)? {
                    self.skip(length);
                    return self.repeat(low, high, was_repeat);
                }
                self.push_literal(byte);
            }
            b')' => return self.close(),
            b'|' => self.alternate(),
            b'.' if self.flags.dot_newline => self.push_atom(ANY_BYTE),
            b'.' => self.push_atom(ANY_BUT_NEWLINE),
            b'^' if self.flags.multi_line => self.push_atom("(?m:^)"),
            b'^' => self.push_text_start(),
            b'$' if self.flags.multi_line => self.push_atom("(?m:$)"),
            b'$' => self.push_text_end(),
            literal => self.push_literal(literal),
        }
        self.skip(1);
        self.check_weight()
    }

    fn finish(mut self) -> Result<Translation, &'static str> {
        if !self.groups.is_empty() {
            return Err("missing closing )");
        }
        self.flush_atom();
        let tail = match self.prefix_state {
            Prefix::Open | Prefix::Ended(_) => Tail::Empty,
            Prefix::Closed(start) => match self.out.get(start..).and_then(|tail| tail.strip_suffix('*')) {
                Some(ANY_BYTE) => Tail::AnyBytes,
                Some(ANY_BUT_NEWLINE) => Tail::AnyButNewline,
                _ => Tail::Other,
            },
        };
        self.out.push_str(")\\z");
        Ok(Translation {
            regex: self.out,
            prefix: self.prefix,
            tail,
            weight: self.weight,
        })
    }

    fn skip(&mut self, bytes: usize) {
        self.input = self.input.get(bytes..).unwrap_or_default();
    }

    fn check_weight(&self) -> Result<(), &'static str> {
        let atom = self.atom.map_or(0, |a| a.weight);
        if self.weight.saturating_add(atom) > PATTERN_WEIGHT_MAX {
            return Err("pattern too large - compile failed");
        }
        Ok(())
    }

    /// Counts the current atom into its group.
    fn flush_atom(&mut self) {
        if let Some(atom) = self.atom.take() {
            self.weight = self.weight.saturating_add(atom.weight);
            self.repeats = self.repeats.max(atom.repeats);
        }
    }

    /// The literal prefix ends where the output is now. After an end-of-text assertion it has ended already: the
    /// assertion is in the tail and lets nothing follow, regardless of the rest of the pattern.
    fn close_prefix(&mut self) {
        self.prefix_state = match self.prefix_state {
            Prefix::Open => Prefix::Closed(self.out.len()),
            Prefix::Ended(end) | Prefix::Closed(end) => Prefix::Closed(end),
        };
    }

    fn begin_atom(&mut self) {
        self.flush_atom();
        self.atom = Some(Atom {
            start: self.out.len(),
            weight: 1,
            repeats: 1,
            repeated: false,
        });
    }

    fn push_atom(&mut self, text: &str) {
        self.close_prefix();
        self.begin_atom();
        self.out.push_str(text);
    }

    fn push_set(&mut self, set: ByteSet) {
        self.close_prefix();
        self.begin_atom();
        if let Some(atom) = &mut self.atom {
            atom.weight = atom.weight.saturating_add(set.ranges() / RANGES_PER_WEIGHT);
        }
        set.write(&mut self.out);
    }

    fn push_literal(&mut self, byte: u8) {
        if let (true, Some(other)) = (self.flags.fold_case, other_case(byte)) {
            return self.push_set(ByteSet::of(&[(byte, byte), (other, other)]));
        }
        if self.prefix_state == Prefix::Open && self.groups.is_empty() {
            self.prefix.push(byte);
        } else {
            self.close_prefix();
        }
        self.begin_atom();
        if byte.is_ascii_alphanumeric() {
            self.out.push(char::from(byte));
        } else {
            self.out.push_str(&format!("\\x{byte:02X}"));
        }
    }

    /// The beginning of the text, which is always there before the first byte.
    fn push_text_start(&mut self) {
        if self.prefix_state != Prefix::Open || !self.prefix.is_empty() {
            self.close_prefix();
        }
        self.begin_atom();
        self.out.push_str("(?:\\A)");
    }

    /// The end of the text, which is always there after the last byte.
    fn push_text_end(&mut self) {
        if self.prefix_state == Prefix::Open && self.groups.is_empty() {
            self.prefix_state = Prefix::Ended(self.out.len());
        }
        self.begin_atom();
        self.out.push_str("(?:\\z)");
    }

    fn alternate(&mut self) {
        if self.groups.is_empty() {
            // Another branch may begin with anything.
            self.prefix.clear();
            self.prefix_state = Prefix::Closed(self.out.len());
        }
        self.flush_atom();
        self.weight = self.weight.saturating_add(1);
        self.out.push('|');
    }

    fn repeat(&mut self, low: u32, high: Option<u32>, was_repeat: bool) -> Result<(), &'static str> {
        // Greediness cannot matter to a match of the whole subject.
        if self.input.first() == Some(&b'?') {
            self.skip(1);
        }
        if was_repeat {
            return Err("bad repetition operator");
        }
        let Some(mut atom) = self.atom else {
            return Err("no argument for repetition operator");
        };
        self.unsettle_prefix(atom.start);
        if atom.repeated {
            self.out.insert_str(atom.start, "(?:");
            self.out.push(')');
        }
        match (low, high) {
            (0, None) => self.out.push('*'),
            (1, None) => self.out.push('+'),
            (0, Some(1)) => self.out.push('?'),
            (low, None) => self.out.push_str(&format!("{{{low},}}")),
            (low, Some(high)) => self.out.push_str(&format!("{{{low},{high}}}")),
        }
        let times = high.unwrap_or(low).max(1);
        atom.repeats = atom.repeats.saturating_mul(times);
        if times > 1 && atom.repeats > REPEAT_MAX {
            return Err("invalid repetition size");
        }
        atom.weight = atom.weight.saturating_mul(times as usize).saturating_add(1);
        atom.repeated = true;
        self.atom = Some(atom);
        self.after_repeat = true;
        self.check_weight()
    }

    /// Takes the atom at `start`, which turns out to be repeated, out of the literal prefix.
    fn unsettle_prefix(&mut self, start: usize) {
        match self.prefix_state {
            Prefix::Open => {
                // An assertion may stand there instead of a byte; a shorter prefix is as true.
                self.prefix.pop();
                self.prefix_state = Prefix::Closed(start);
            }
            Prefix::Ended(_) => self.prefix_state = Prefix::Closed(start),
            Prefix::Closed(_) => {}
        }
    }

    fn escape(&mut self) -> Result<(), &'static str> {
        if let Some(quoted) = self.input.strip_prefix(b"\\Q") {
            let end = quoted.windows(2).position(|w| w == b"\\E");
            quoted
                .iter()
                .take(end.unwrap_or(quoted.len()))
                .for_each(|b| self.push_literal(*b));
            self.input = end.and_then(|end| quoted.get(end + 2..)).unwrap_or_default();
            return self.check_weight();
        }
        match self.input.get(1) {
            Some(b'A') => self.push_text_start(),
            Some(b'z') => self.push_text_end(),
            Some(b'b') => self.push_atom("(?:\\b)"),
            Some(b'B') => self.push_atom("(?:\\B)"),
            Some(b'C') => self.push_atom(ANY_BYTE),
            _ => {
                match class::escape(&mut self.input, self.flags.fold_case, &mut self.classes)? {
                    Escape::Byte(byte) => self.push_literal(byte),
                    Escape::Set(set) => self.push_set(set),
                }
                return self.check_weight();
            }
        }
        self.skip(2);
        self.check_weight()
    }
}

#[cfg(test)]
mod tests;
