//! Tests random patterns against a model of their meaning.
//!
//! Terms: a *place* is between two bytes of a text; a set of places is a mask with a bit for each.
//!
//! A pattern is made together with its meaning: the places that each of its pieces leads to. The model shares nothing
//! with the translation, its literal prefix and tail, the lists of strings or the automaton. Pieces are chosen so that
//! they are meaningful next to each other. Random bytes are a pattern in a few of a hundred cases, and one like `a$.*`
//! in none.

use super::*;

/// Number of patterns. In about one of a hundred, a shortcut stands for everything after an end of the text.
const PATTERNS: usize = 1_000;
/// Groups within each other.
const DEEP_MAX: u32 = 2;
/// The bytes of texts: both cases of a letter, another letter, and a byte that `.` does not match.
const BYTES: [u8; 4] = *b"aAb\n";
/// Bytes of the longest text.
const TEXT_BYTES_MAX: usize = 3;

/// The bytes that a piece of a pattern matches.
enum Meaning {
    /// One of these bytes.
    Byte(Vec<u8>),
    /// Nothing, at places of which this is true.
    Place(fn(&[u8], usize) -> bool),
    /// One behind the other.
    All(Vec<Meaning>),
    /// One of them.
    Either(Vec<Meaning>),
    /// From so often to so often.
    Times(Box<Meaning>, u32, Option<u32>),
}

impl Meaning {
    fn is_match(&self, text: &[u8]) -> bool {
        (self.ends(text, 1) >> text.len()) & 1 == 1
    }

    /// Where matches end that begin at one of these places.
    fn ends(&self, text: &[u8], from: u32) -> u32 {
        let is_from = |at: &usize| (from >> at) & 1 == 1;
        match self {
            Meaning::Byte(bytes) => {
                let begins = (0..text.len()).filter(is_from).filter(|at| bytes.contains(&text[*at]));
                begins.fold(0, |ends, at| ends | (2 << at))
            }
            Meaning::Place(holds) => {
                let there = (0..=text.len()).filter(is_from).filter(|at| holds(text, *at));
                there.fold(0, |ends, at| ends | (1 << at))
            }
            Meaning::All(partial_rows) => partial_rows
                .iter()
                .fold(from, |from, partial_row| partial_row.ends(text, from)),
            Meaning::Either(branches) => branches.iter().fold(0, |ends, branch| ends | branch.ends(text, from)),
            Meaning::Times(partial_row, low, high) => {
                let mut last = (0..*low).fold(from, |from, _| partial_row.ends(text, from));
                let mut ends = last;
                // More rounds than there are bytes lead nowhere else.
                let more = high.map_or(text.len() as u32, |high| high - low);
                for _ in 0..more {
                    last = partial_row.ends(text, last);
                    ends |= last;
                }
                ends
            }
        }
    }
}

fn at_begin(_: &[u8], at: usize) -> bool {
    at == 0
}

fn at_end(text: &[u8], at: usize) -> bool {
    at == text.len()
}

fn at_line_begin(text: &[u8], at: usize) -> bool {
    at == 0 || text[at - 1] == b'\n'
}

fn at_line_end(text: &[u8], at: usize) -> bool {
    at == text.len() || text[at] == b'\n'
}

fn at_word_edge(text: &[u8], at: usize) -> bool {
    let is_word = |at: Option<usize>| at.and_then(|at| text.get(at)).is_some_and(u8::is_ascii_alphanumeric);
    is_word(at.checked_sub(1)) != is_word(Some(at))
}

fn off_word_edge(text: &[u8], at: usize) -> bool {
    !at_word_edge(text, at)
}

/// The text of a class, whether it is a complement, and its bytes.
type Class = (&'static str, bool, fn(u8) -> bool);

const CLASSES: [Class; 9] = [
    ("[ab]", false, |b| b == b'a' || b == b'b'),
    ("[A-a]", false, |b| (b'A'..=b'a').contains(&b)),
    ("[^a]", true, |b| b == b'a'),
    ("[^\\n]", true, |b| b == b'\n'),
    ("[\\s\\S]", false, |_| true),
    ("\\w", false, |b| b.is_ascii_alphanumeric()),
    ("\\W", true, |b| b.is_ascii_alphanumeric()),
    ("\\s", false, |b| b == b'\n'),
    ("[[:upper:]]", false, |b| b.is_ascii_uppercase()),
];

const REPETITIONS: [(&str, u32, Option<u32>); 7] = [
    ("*", 0, None),
    ("+", 1, None),
    ("?", 0, Some(1)),
    ("{2}", 2, Some(2)),
    ("{0,1}", 0, Some(1)),
    ("{1,}", 1, None),
    ("{0}", 0, Some(0)),
];

#[derive(Clone, Copy, Default)]
struct Modes {
    folds_case: bool,
    dot_is_any: bool,
    has_lines: bool,
}

/// Writes a pattern, and returns its meaning.
#[derive(Default)]
struct Maker {
    state: u64,
    pattern: Vec<u8>,
    modes: Modes,
    names: u32,
}

impl Maker {
    fn make(&mut self) -> (Vec<u8>, Meaning) {
        self.modes = Modes::default();
        let meaning = self.branches(DEEP_MAX);
        (std::mem::take(&mut self.pattern), meaning)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.state = self
            .state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.state >> 33) % bound
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    fn write(&mut self, text: &str) {
        self.pattern.extend_from_slice(text.as_bytes());
    }

    fn branches(&mut self, deep: u32) -> Meaning {
        let mut branches = vec![self.partial_rows(deep)];
        while self.below(6) == 0 {
            self.write("|");
            branches.push(self.partial_rows(deep));
        }
        Meaning::Either(branches)
    }

    fn partial_rows(&mut self, deep: u32) -> Meaning {
        let count = self.below(5);
        Meaning::All((0..count).map(|_| self.partial_row(deep)).collect())
    }

    fn partial_row(&mut self, deep: u32) -> Meaning {
        let atom = match self.below(22) {
            0..7 => self.literal(),
            7..11 => self.end(),
            11 => self.begin(),
            12 => self.edge(),
            13 => self.dot(),
            14..18 => {
                let dot = self.dot();
                return self.repeated(dot, ("*", 0, None));
            }
            18 => self.class(),
            19 => {
                self.write("(?");
                self.change_modes();
                self.write(")");
                return Meaning::All(Vec::new());
            }
            _ if deep > 0 => self.group(deep - 1),
            _ => self.literal(),
        };
        match self.below(4) {
            0 => {
                let repetition = self.one_of(&REPETITIONS);
                self.repeated(atom, repetition)
            }
            _ => atom,
        }
    }

    fn repeated(&mut self, atom: Meaning, (text, low, high): (&str, u32, Option<u32>)) -> Meaning {
        self.write(text);
        if self.below(4) == 0 {
            self.write("?");
        }
        Meaning::Times(Box::new(atom), low, high)
    }

    fn literal(&mut self) -> Meaning {
        let (text, byte) = self.one_of(&[
            ("a", b'a'),
            ("b", b'b'),
            ("A", b'A'),
            ("\n", b'\n'),
            ("\\n", b'\n'),
            ("\\x61", b'a'),
            ("\\142", b'b'),
            ("\\Qa\\E", b'a'),
        ]);
        self.write(text);
        self.bytes(|b| b == byte, false)
    }

    fn class(&mut self) -> Meaning {
        let (text, is_complement, is_of) = self.one_of(&CLASSES);
        self.write(text);
        self.bytes(is_of, is_complement)
    }

    /// The other case is in before the complement is taken.
    fn bytes(&self, is_of: impl Fn(u8) -> bool, is_complement: bool) -> Meaning {
        let folds_case = self.modes.folds_case;
        let is_in = |b: u8| is_of(b) || (folds_case && b.is_ascii_alphabetic() && is_of(b ^ 0x20));
        Meaning::Byte(BYTES.into_iter().filter(|b| is_in(*b) != is_complement).collect())
    }

    fn dot(&mut self) -> Meaning {
        let is_any = self.below(2) == 0;
        self.write(if is_any { "\\C" } else { "." });
        let is_any = is_any || self.modes.dot_is_any;
        Meaning::Byte(BYTES.into_iter().filter(|b| is_any || *b != b'\n').collect())
    }

    fn begin(&mut self) -> Meaning {
        let is_of_line = self.below(2) == 0;
        self.write(if is_of_line { "^" } else { "\\A" });
        if is_of_line && self.modes.has_lines {
            Meaning::Place(at_line_begin)
        } else {
            Meaning::Place(at_begin)
        }
    }

    fn end(&mut self) -> Meaning {
        let is_of_line = self.below(2) == 0;
        self.write(if is_of_line { "$" } else { "\\z" });
        if is_of_line && self.modes.has_lines {
            Meaning::Place(at_line_end)
        } else {
            Meaning::Place(at_end)
        }
    }

    fn edge(&mut self) -> Meaning {
        let is_on = self.below(2) == 0;
        self.write(if is_on { "\\b" } else { "\\B" });
        if is_on {
            Meaning::Place(at_word_edge)
        } else {
            Meaning::Place(off_word_edge)
        }
    }

    /// Modes that are changed within a group end with it.
    fn group(&mut self, deep: u32) -> Meaning {
        let outer = self.modes;
        match self.below(4) {
            0 => self.write("("),
            1 => self.write("(?:"),
            2 => {
                self.names += 1;
                self.write(&format!("(?P<n{}>", self.names));
            }
            _ => {
                self.write("(?");
                self.change_modes();
                self.write(":");
            }
        }
        let meaning = self.branches(deep);
        self.write(")");
        self.modes = outer;
        meaning
    }

    fn change_modes(&mut self) {
        let is_on = self.below(3) > 0;
        if !is_on {
            self.write("-");
        }
        match self.below(4) {
            0 => {
                self.write("i");
                self.modes.folds_case = is_on;
            }
            1 => {
                self.write("s");
                self.modes.dot_is_any = is_on;
            }
            2 => {
                self.write("m");
                self.modes.has_lines = is_on;
            }
            // The choice among several matches does not matter.
            _ => self.write("U"),
        }
    }
}

/// All texts up to a length.
fn texts() -> Vec<Vec<u8>> {
    let mut texts = vec![Vec::new()];
    let mut begin = 0;
    for _ in 0..TEXT_BYTES_MAX {
        let end = texts.len();
        for at in begin..end {
            texts.extend(BYTES.map(|byte| [&texts[at][..], &[byte]].concat()));
        }
        begin = end;
    }
    texts
}

#[test]
fn patterns_match_what_they_mean() {
    let texts = texts();
    let mut maker = Maker::default();
    let mut matches = 0;
    let mut shortest: Option<(Vec<u8>, Vec<u8>)> = None;
    for _ in 0..PATTERNS {
        let (pattern, meaning) = maker.make();
        let compiled = Pattern::compile(&pattern).map_err(|why| (pattern.escape_ascii().to_string(), why));
        let compiled = compiled.unwrap();
        for text in &texts {
            let is_match = meaning.is_match(text);
            matches += usize::from(is_match);
            let is_right = compiled.is_match(text) == is_match
                && (!is_match || text.starts_with(compiled.literal_prefix()))
                && compiled
                    .as_literal()
                    .is_none_or(|only| (only == text.as_slice()) == is_match);
            let is_shorter = shortest.as_ref().is_none_or(|(known, _)| pattern.len() < known.len());
            if !is_right && is_shorter {
                shortest = Some((pattern.clone(), text.clone()));
            }
        }
    }
    let shortest =
        shortest.map(|(pattern, text)| (pattern.escape_ascii().to_string(), text.escape_ascii().to_string()));
    assert_eq!(shortest, None, "a pattern and a text");
    assert!(matches > PATTERNS, "patterns that match nothing prove little");
}
