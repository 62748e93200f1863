//! Estimates the memory of a compiled filter before it is compiled.
//!
//! A few bytes may describe a large automaton: a group of 30 dots, repeated a thousand times, has 30,000 states.
//! Accounts that charge a request for its bytes add this estimate.

use crate::ast::Filter;
use crate::limits::{NESTING_MAX, WEIGHT_MAX};
use crate::re2::{AUTOMATON_WEIGHT, Pattern, translate};

/// Patterns shorter than this, without counted repetitions, fit into the memory that any call may take.
const SHORT_PATTERN_BYTES: usize = 64;
/// Automata that fit into the memory that any call may take.
const AUTOMATA_FREE: usize = 16;
/// Memory for each unit of weight. The states of both directions take 80 bytes: the four largest patterns that a filter
/// may have take 10 MB. The automaton that is built lazily while text is matched takes as much again.
const BYTES_PER_WEIGHT: usize = 160;

impl Filter {
    /// Estimates the bytes of the automata of large patterns, or of very many patterns; 0 for most filters. Invalid
    /// patterns and filters nested too deeply do not count, because compilation refuses them.
    pub fn automata_bytes(&self) -> usize {
        let patterns = self.patterns();
        let large: usize = patterns.iter().map(|pattern| weight(pattern)).sum();
        let many = match patterns.len() {
            0..=AUTOMATA_FREE => 0,
            _ => automata(&patterns).saturating_sub(AUTOMATA_FREE) * AUTOMATON_WEIGHT,
        };
        // Larger filters are refused before they take more.
        (large + many).min(WEIGHT_MAX) * BYTES_PER_WEIGHT
    }

    /// All patterns of the filter, down to the depth that a filter may have.
    pub(crate) fn patterns(&self) -> Vec<&[u8]> {
        let mut patterns = Vec::new();
        self.patterns_within(NESTING_MAX + 1, &mut patterns);
        patterns
    }

    fn patterns_within<'a>(&'a self, depth_left: usize, patterns: &mut Vec<&'a [u8]>) {
        let Some(deeper) = depth_left.checked_sub(1) else {
            return;
        };
        match self {
            Filter::Chain(members) | Filter::Interleave(members) => {
                members
                    .iter()
                    .for_each(|member| member.patterns_within(deeper, patterns));
            }
            Filter::Condition {
                predicate,
                on_true,
                on_false,
            } => {
                let branches = [Some(predicate), on_true.as_ref(), on_false.as_ref()];
                let branches = branches.into_iter().flatten();
                branches.for_each(|member| member.patterns_within(deeper, patterns));
            }
            Filter::RowKeyRegex(pattern)
            | Filter::FamilyRegex(pattern)
            | Filter::QualifierRegex(pattern)
            | Filter::ValueRegex(pattern) => patterns.push(pattern),
            _ => {}
        }
    }
}

/// How many of the patterns may take an automaton.
pub(crate) fn automata(patterns: &[&[u8]]) -> usize {
    let may = |pattern: &&&[u8]| Pattern::may_take_automaton(pattern);
    patterns.iter().filter(may).count()
}

fn weight(pattern: &[u8]) -> usize {
    let is_small = pattern.len() < SHORT_PATTERN_BYTES && !pattern.contains(&b'{');
    if is_small || !Pattern::may_take_automaton(pattern) {
        return 0;
    }
    translate(pattern).map_or(0, |translation| translation.weight)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    const LARGE: &str = "(..............................){1000}";

    fn of(pattern: &str) -> Filter {
        Filter::ValueRegex(Bytes::from(pattern.to_owned()))
    }

    #[test]
    fn only_large_patterns_count() {
        let long_list = vec!["column-name"; 100].join("|");
        for free in ["", "a.*b", "\\pL+", &long_list, "(", "a{99999}"] {
            assert_eq!(of(free).automata_bytes(), 0, "{free}");
        }
        let large = of(LARGE).automata_bytes();
        assert!((4 << 20..6 << 20).contains(&large), "{large}");
        let four = Filter::Condition {
            predicate: Box::new(Filter::Chain(vec![of(LARGE), of(LARGE)])),
            on_true: Some(Box::new(of(LARGE))),
            on_false: Some(Box::new(of(LARGE))),
        };
        assert_eq!(four.automata_bytes(), 4 * large);
        let columns = |count, pattern| Filter::Interleave((0..count).map(|_| of(pattern)).collect()).automata_bytes();
        assert_eq!((columns(16, "a.*b"), columns(400, "column")), (0, 0));
        assert_eq!(columns(416, "a.*b"), 400 * AUTOMATON_WEIGHT * BYTES_PER_WEIGHT);
        let many = Filter::Interleave((0..100).map(|_| of(LARGE)).collect());
        assert_eq!(many.automata_bytes(), WEIGHT_MAX * BYTES_PER_WEIGHT);
    }

    #[test]
    fn no_depth_is_too_deep() {
        let deep = (0..100).fold(of(LARGE), |inner, _| Filter::Chain(vec![inner, Filter::PassAll]));
        assert_eq!(deep.automata_bytes(), 0);
    }
}
