//! Compiled patterns.

use super::{Tail, Translation, translate};
use crate::automaton_cost::AutomatonCost;
use regex::bytes::{Regex, RegexBuilder};

/// Compiled form of one pattern, in memory. `PATTERN_WEIGHT_MAX` keeps ordinary patterns below it; classes with many
/// ranges may still pass it and are refused.
const REGEX_BYTES_MAX: usize = 4 << 20;

/// Cache of lazily built states per pattern and thread. Smaller than the default of 2 MiB because a filter may hold
/// hundreds of patterns; a pattern that outgrows it is matched more slowly, in time still linear.
const STATES_BYTES_MAX: usize = 256 << 10;

/// The same for all patterns of a filter together, as far as each of them still gets enough. No account charges this
/// memory, and a filter of twenty kilobytes may have more than a thousand patterns that fill theirs on a value of ten.
const STATES_BYTES_TOGETHER: usize = 4 << 20;

/// With less than this, plus [`STATES_BYTES_PER_WEIGHT`] for each state of the pattern, no states are built at all.
const STATES_BYTES_MIN: usize = 16 << 10;
const STATES_BYTES_PER_WEIGHT: usize = 64;

/// Weight of an automaton besides its states. Two automata (one for each direction), tables of all bytes and cache
/// slots take some 8 KiB before they have any state.
pub(crate) const AUTOMATON_WEIGHT: usize = 256;

/// Deepest syntax tree; a group takes up to four levels (repetition, group, alternation, concatenation) and there are at
/// most 32 within each other.
const SYNTAX_DEEP_MAX: u32 = 140;

/// A pattern that matches whole subjects.
#[derive(Clone, Debug)]
pub struct Pattern {
    prefix: Vec<u8>,
    rest: Rest,
    weight: usize,
    /// Work for each byte that an automaton reads.
    cost: AutomatonCost,
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
    /// The whole subject must be one of these, which are sorted.
    OneOf(Vec<Vec<u8>>),
    /// The automaton for the whole subject decides.
    Automaton(Regex),
}

impl Pattern {
    /// Compiles an RE2 pattern; the error names the mistake.
    pub fn compile(pattern: &[u8]) -> Result<Pattern, String> {
        Self::compile_among(pattern, 1)
    }

    /// Whether a valid pattern may need an automaton. The check is also true for a few patterns that need none.
    pub(crate) fn may_take_automaton(pattern: &[u8]) -> bool {
        literals(pattern).is_none()
    }

    /// Compiles one of `automata` patterns of a filter that may need an automaton.
    pub(crate) fn compile_among(pattern: &[u8], automata: usize) -> Result<Pattern, String> {
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
            // An automaton takes tens of microseconds to build, more than reading a row does, and clients name families and
            // columns by alternatives in every request.
            Tail::Other => match literals(pattern).as_deref() {
                Some([only]) => {
                    let (prefix, rest) = (only.clone(), Rest::Empty);
                    return Ok(Pattern::new(prefix, rest, weight));
                }
                Some(several) => Rest::OneOf(several.to_vec()),
                None => {
                    let rest = Rest::Automaton(build(&regex, states_bytes(automata, weight))?);
                    let weight = weight.saturating_add(AUTOMATON_WEIGHT);
                    return Ok(Pattern {
                        cost: AutomatonCost::of(&regex, false),
                        ..Pattern::new(prefix, rest, weight)
                    });
                }
            },
        };
        Ok(Pattern::new(prefix, rest, weight))
    }

    fn new(prefix: Vec<u8>, rest: Rest, weight: usize) -> Self {
        Pattern {
            prefix,
            rest,
            weight,
            cost: AutomatonCost::ONE,
        }
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
            Rest::OneOf(literals) => literals.binary_search_by(|literal| literal[..].cmp(subject)).is_ok(),
            Rest::Automaton(regex) => regex.is_match(subject),
        }
    }

    /// Whether an automaton matches.
    pub(crate) fn has_automaton(&self) -> bool {
        matches!(self.rest, Rest::Automaton(_))
    }

    /// Estimates the work of matching a subject in bytes: an automaton reads each byte by itself, a comparison dozens
    /// per step. Patterns that may have very many states take longer for each byte.
    pub(crate) fn bytes_matched(&self, subject: &[u8]) -> usize {
        match &self.rest {
            Rest::Automaton(_) if subject.starts_with(&self.prefix) => subject.len().saturating_mul(self.cost.usual),
            Rest::AnyButNewline if subject.starts_with(&self.prefix) => subject.len() / 16,
            _ => self.prefix.len().min(subject.len()) / 16,
        }
    }

    /// Work for each byte at the worst, as a multiple of that of a usual pattern.
    pub(crate) fn pace(&self) -> usize {
        self.cost.pace
    }

    /// [`Self::bytes_matched`] at the worst.
    pub(crate) fn bytes_paced(&self, subject: &[u8]) -> usize {
        self.bytes_matched(subject).saturating_mul(self.cost.pace) / self.cost.usual
    }

    /// Every match begins with this.
    pub fn literal_prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// The only match, for a pattern that is a literal.
    pub fn as_literal(&self) -> Option<&[u8]> {
        matches!(self.rest, Rest::Empty).then_some(&self.prefix[..])
    }

    /// All matches, for a pattern that is a list of strings.
    pub(crate) fn alternatives(&self) -> Option<&[Vec<u8>]> {
        match &self.rest {
            Rest::Empty => Some(std::slice::from_ref(&self.prefix)),
            Rest::OneOf(literals) => Some(literals),
            _ => None,
        }
    }

    /// Estimate of the automaton's states, and of its memory besides them.
    pub(crate) fn weight(&self) -> usize {
        self.weight
    }
}

/// The strings that a valid pattern matches, sorted, if it is only a list of them: `a`, `a|b`, `(a|b)`, `(?:a|b)`, with
/// escaped punctuation. `None` for anything else, even if it matches few strings.
fn literals(pattern: &[u8]) -> Option<Vec<Vec<u8>>> {
    let inner = |p: &'_ [u8], open: &[u8]| p.strip_prefix(open)?.strip_suffix(b")").map(<[u8]>::to_vec);
    let group = inner(pattern, b"(?:").or_else(|| inner(pattern, b"("));
    let mut rest = group.as_deref().unwrap_or(pattern);
    let mut literals = vec![Vec::new()];
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        let literal = match byte {
            b'|' => {
                literals.push(Vec::new());
                continue;
            }
            b'\\' => {
                let (escaped, after) = rest.split_first()?;
                rest = after;
                Some(*escaped).filter(|b| b.is_ascii_punctuation() && *b != b'_')
            }
            b'_' | b'-' | b'/' | b'#' | b'@' | b'=' | b',' | b'%' | b':' => Some(*byte),
            _ => Some(*byte).filter(|b| b.is_ascii_alphanumeric() || *b >= 0x80),
        };
        literals.last_mut()?.push(literal?);
    }
    literals.sort_unstable();
    literals.dedup();
    Some(literals)
}

/// Bytes of lazily built states for a pattern of this weight, one of `automata` automata of a filter.
fn states_bytes(automata: usize, weight: usize) -> usize {
    let share = STATES_BYTES_TOGETHER / automata.max(1);
    let least = STATES_BYTES_MIN.saturating_add(STATES_BYTES_PER_WEIGHT.saturating_mul(weight));
    share.max(least).min(STATES_BYTES_MAX)
}

fn build(regex: &str, states_bytes: usize) -> Result<Regex, String> {
    RegexBuilder::new(regex)
        .unicode(false)
        .nest_limit(SYNTAX_DEEP_MAX)
        .size_limit(REGEX_BYTES_MAX)
        .dfa_size_limit(states_bytes)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => "pattern too large - compile failed".to_owned(),
            other => other.to_string(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn by_automaton(pattern: &[u8], subject: &[u8]) -> bool {
        let regex = translate(pattern).unwrap().regex;
        build(&regex, STATES_BYTES_MAX).unwrap().is_match(subject)
    }

    #[test]
    fn many_automata_share_what_one_may_have() {
        assert_eq!(states_bytes(1, 10), STATES_BYTES_MAX);
        assert_eq!(states_bytes(16, 10), STATES_BYTES_MAX);
        assert_eq!(states_bytes(64, 10), STATES_BYTES_TOGETHER / 64);
        assert_eq!(states_bytes(1_000, 10), STATES_BYTES_MIN + 640);
        assert_eq!(states_bytes(1_000, 32_768), STATES_BYTES_MAX);
        // They match the same with few states as with many.
        let pattern = b".*a.{12}[ab]";
        let byte = |n: u32| if n.count_ones().is_multiple_of(2) { b'a' } else { b'b' };
        let subject: Vec<u8> = (0..4_000).map(byte).collect();
        for end in [12, 13, 14, 100, 1_000, 3_999] {
            let subject = &subject[..end];
            let expected = end >= 14 && subject[end - 14] == b'a';
            for automata in [1, 1_000] {
                let compiled = Pattern::compile_among(pattern, automata).unwrap();
                assert_eq!(compiled.is_match(subject), expected, "{end} {automata}");
            }
        }
    }

    #[test]
    fn many_states_are_work() {
        let subject = vec![b'a'; 1 << 20];
        let bytes = |pattern: &[u8]| Pattern::compile(pattern).unwrap().bytes_matched(&subject);
        assert!(bytes(br"\C*a\C{1000}b\C*") > 50 << 20);
        assert_eq!(bytes(br"\C*error.*(timeout|refused)\C*"), 1 << 20);
        assert!(bytes(br"\C*") < 1 << 20);
    }

    #[test]
    fn an_automaton_has_a_weight_of_its_own() {
        let weight = |pattern: &str| Pattern::compile(pattern.as_bytes()).unwrap().weight();
        assert!(weight("[ab]") > AUTOMATON_WEIGHT && weight("ab|cd") < AUTOMATON_WEIGHT);
        assert!(Pattern::may_take_automaton(b"[ab]") && !Pattern::may_take_automaton(b"(ab|c\\.d)"));
    }

    #[test]
    fn lists_of_strings_need_no_automaton() {
        for pattern in ["(a)", "a|b", "(a|bc)", "(?:a|b\\.c|)", "(x\\-1|x\\-2)"] {
            let compiled = Pattern::compile(pattern.as_bytes()).unwrap();
            assert!(!matches!(compiled.rest, Rest::Automaton(_)), "{pattern}");
        }
        for pattern in ["(a)|(b)", "a.", "(?i)a|b", "a|b*", "(a|b)c", "\\d|a", "[ab]"] {
            assert!(literals(pattern.as_bytes()).is_none(), "{pattern}");
        }
    }

    proptest! {
        // Few letters and short texts, so that a good part of the pairs match.
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn a_list_of_strings_matches_what_its_automaton_matches(
            pattern in r"\(?(\?:)?[ab.|\\_)(]{0,5}\)?",
            subject in "[ab.|]{0,2}",
        ) {
            // Latin-1, as the protocol has it: a character is a byte.
            let pattern: Vec<u8> = pattern.chars().map(|c| c as u32 as u8).collect();
            if let Ok(compiled) = Pattern::compile(&pattern) {
                let subject = subject.as_bytes();
                prop_assert_eq!(compiled.is_match(subject), by_automaton(&pattern, subject));
                for literal in literals(&pattern).unwrap_or_default() {
                    prop_assert!(compiled.is_match(&literal) && by_automaton(&pattern, &literal));
                }
            }
        }
    }
}
