//! Compiled patterns.

use super::{Tail, Translation, translate};
use regex::bytes::{Regex, RegexBuilder};

/// Compiled form of one pattern, in memory. `PATTERN_WEIGHT_MAX` keeps ordinary patterns below it; classes with many
/// ranges may still pass it and are refused.
const REGEX_BYTES_MAX: usize = 4 << 20;

/// Cache of lazily built states per pattern and thread. Smaller than the default of 2 MiB because a filter may hold
/// hundreds of patterns; a pattern that outgrows it is matched more slowly, in time still linear.
const STATES_BYTES_MAX: usize = 256 << 10;

/// Deepest syntax tree; a group takes up to four levels (repetition, group, alternation, concatenation) and there are at
/// most 32 within each other.
const SYNTAX_DEEP_MAX: u32 = 140;

/// A pattern that matches whole subjects.
#[derive(Clone, Debug)]
pub struct Pattern {
    prefix: Vec<u8>,
    rest: Rest,
    weight: usize,
}

/// How to match a subject that begins with the prefix.
#[derive(Clone, Debug)]
enum Rest {
    /// Nothing may follow.
    Empty,
    /// Anything may follow.
    AnyBytes,
    /// Anything but a newline may follow.
    AnyButNewline,
    /// The automaton for the whole subject decides.
    Automaton(Regex),
}

impl Pattern {
    /// Compiles an RE2 pattern; the error says what is wrong with it.
    pub fn compile(pattern: &[u8]) -> Result<Pattern, String> {
        let Translation {
            regex,
            prefix,
            tail,
            weight,
        } = translate(pattern)?;
        let rest = match tail {
            Tail::Empty => Rest::Empty,
            Tail::AnyBytes => Rest::AnyBytes,
            Tail::AnyButNewline => Rest::AnyButNewline,
            Tail::Other => Rest::Automaton(build(&regex)?),
        };
        Ok(Pattern { prefix, rest, weight })
    }

    /// Whether the whole subject matches.
    pub fn is_match(&self, subject: &[u8]) -> bool {
        let Some(rest) = subject.strip_prefix(&self.prefix[..]) else {
            return false;
        };
        match &self.rest {
            Rest::Empty => rest.is_empty(),
            Rest::AnyBytes => true,
            Rest::AnyButNewline => !rest.contains(&b'\n'),
            Rest::Automaton(regex) => regex.is_match(subject),
        }
    }

    /// Every match begins with this.
    pub fn literal_prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// The only match, when there is but one and that is obvious.
    pub fn as_literal(&self) -> Option<&[u8]> {
        matches!(self.rest, Rest::Empty).then_some(&self.prefix[..])
    }

    /// Estimate of the automaton's states.
    pub(crate) fn weight(&self) -> usize {
        self.weight
    }
}

fn build(regex: &str) -> Result<Regex, String> {
    RegexBuilder::new(regex)
        .unicode(false)
        .nest_limit(SYNTAX_DEEP_MAX)
        .size_limit(REGEX_BYTES_MAX)
        .dfa_size_limit(STATES_BYTES_MAX)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => "pattern too large - compile failed".to_owned(),
            other => other.to_string(),
        })
}
