//! The work of a lazily built automaton for each byte, estimated from its pattern.
//!
//! The states of such an automaton are sets of the pattern's positions. Usually few sets occur. If many positions are
//! independent of each other, more sets occur than fit into the cache. Then the `regex` crate steps through all positions
//! for each byte. `\C*a\C{n}c\C*` over random `a` and `b` takes 2 ns a byte up to n = 10, 400 ns from n = 11 on, and
//! 20 µs with n = 1,000.
//!
//! Terms: a position is *wide* if it takes several bytes, and if matches may reach it at different lengths. Positions of
//! single bytes depend on each other: the last bytes read decide which of them have been reached.

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind, Look};

/// Wide positions up to which all sets of them fit.
const FITTING_WIDE_MAX: usize = 10;

/// The pace of patterns between that and [`USUAL_WIDE_MAX`]. It refuses nothing, so it may be too high for most of them. Batches of a
/// quarter of a megabyte cost little. Where sets do not fit, such a batch is a tenth of a second.
const PACE_OF_USUAL: usize = 16;

/// Wide positions up to this are no reason to count more. Patterns of addresses, times and identifiers have as many, and their states
/// fit because their parts exclude each other. The worst of such patterns take about 600 times as long, which a larger cost
/// of all of them would not be worth.
const USUAL_WIDE_MAX: usize = 32;

/// Up to this the cost grows slowly: texts with a gap of some hundred bytes are searched, and few of them make many states.
const LARGE_WIDE_MAX: usize = 256;

/// The same for the slow growth: positions for each more of the cost.
const POSITIONS_PER_COST: usize = 16;

/// Weight of a class is at most this: the tables of a large one are shared by its uses.
const CLASS_WEIGHT_MAX: usize = 64;

/// How many times the work of a small automaton that of a pattern's may be, for each byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AutomatonCost {
    /// For limits of work: one for usual patterns.
    pub(crate) usual: usize,
    /// For the moments at which others get their turn: as bad as it may be.
    pub(crate) pace: usize,
}

impl AutomatonCost {
    /// Of a small automaton, and of patterns without one.
    pub(crate) const ONE: AutomatonCost = AutomatonCost { usual: 1, pace: 1 };

    /// Of `regex`, which is as the `regex` crate takes it.
    pub(crate) fn of(regex: &str, is_unicode: bool) -> Self {
        // Where nothing is counted, few positions can be wide: a class of bytes takes several.
        if regex.len() <= USUAL_WIDE_MAX && !regex.contains('{') {
            return AutomatonCost::ONE;
        }
        let mut parser = ParserBuilder::new();
        parser.unicode(is_unicode).utf8(is_unicode);
        let Ok(hir) = parser.build().parse(regex) else {
            return AutomatonCost::ONE;
        };
        let is_anchored = hir.properties().look_set_prefix().contains(Look::Start);
        let mut varies = !is_anchored;
        let size = size(&hir, &mut varies);
        match size.wide {
            0..=FITTING_WIDE_MAX => AutomatonCost::ONE,
            wide if wide <= USUAL_WIDE_MAX => AutomatonCost {
                usual: 1,
                pace: PACE_OF_USUAL,
            },
            wide if wide <= LARGE_WIDE_MAX => {
                let usual = 1 + size.weight / POSITIONS_PER_COST;
                AutomatonCost {
                    usual,
                    pace: usual.max(PACE_OF_USUAL),
                }
            }
            _ => AutomatonCost {
                usual: size.weight,
                pace: size.weight,
            },
        }
    }
}

/// How many times the work of a small automaton that of this one may be, for each byte. One for usual patterns, and for those
/// that are none. `regex` is as the `regex` crate takes it.
pub fn automaton_cost(regex: &str, is_unicode: bool) -> usize {
    AutomatonCost::of(regex, is_unicode).usual
}

#[derive(Clone, Copy, Default)]
struct Size {
    /// About the number of all positions.
    weight: usize,
    wide: usize,
}

impl Size {
    fn new(weight: usize, wide: usize) -> Self {
        Size { weight, wide }
    }

    fn and(self, other: Size) -> Self {
        Size {
            weight: self.weight.saturating_add(other.weight),
            wide: self.wide.saturating_add(other.wide),
        }
    }

    fn times(self, times: usize) -> Self {
        Size {
            weight: self.weight.saturating_mul(times),
            wide: self.wide.saturating_mul(times),
        }
    }
}

/// The size of a part. `varies` says whether the matches of the parts before it differ in length, and is kept up to date.
/// Recursion is as deep as the syntax, which the parser bounds.
fn size(hir: &Hir, varies: &mut bool) -> Size {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => Size::new(1, 0),
        HirKind::Literal(literal) => Size::new(literal.0.len(), 0),
        HirKind::Class(class) => {
            let (ranges, is_case) = match class {
                Class::Bytes(class) => (class.ranges().len(), class.iter().all(|r| r.start() == r.end())),
                Class::Unicode(class) => (class.ranges().len(), class.iter().all(|r| r.start() == r.end())),
            };
            // A letter in either case is one letter.
            let is_letter = is_case && ranges <= 3;
            Size::new(1 + ranges.min(CLASS_WEIGHT_MAX) / 2, usize::from(*varies && !is_letter))
        }
        HirKind::Capture(capture) => size(&capture.sub, varies),
        HirKind::Concat(parts) => {
            let parts = parts.iter().map(|part| size(part, varies));
            parts.fold(Size::default(), Size::and)
        }
        HirKind::Alternation(branches) => {
            // Which of the branches are still possible is as open as a choice of bytes.
            let varied = std::mem::replace(varies, true);
            let branches = branches.iter().map(|branch| size(branch, varies).and(Size::new(1, 0)));
            branches.fold(Size::new(1, usize::from(varied)), Size::and)
        }
        HirKind::Repetition(repetition) => {
            let is_class = matches!(repetition.sub.kind(), HirKind::Class(_));
            let is_fixed = repetition.max == Some(repetition.min);
            // Within a repeated class alone, the length tells the position.
            *varies |= !is_fixed && !is_class;
            let sub = size(&repetition.sub, varies);
            *varies |= !is_fixed;
            let times = repetition.max.unwrap_or(repetition.min).max(1) as usize;
            let mut whole = sub.times(times).and(Size::new(1, 0));
            if is_class && repetition.max.is_none() {
                // Its last position is one of which nothing is forgotten.
                whole.wide -= sub.wide;
            }
            whole
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::re2::translate;

    fn cost(pattern: &str) -> usize {
        automaton_cost(&translate(pattern.as_bytes()).unwrap().regex, false)
    }

    #[test]
    fn usual_patterns_cost_one() {
        let words: Vec<String> = (0..300).map(|word| format!("word{word}")).collect();
        for pattern in [
            r"[ab]",
            r".*error.*(timeout|refused|reset).*",
            r"(?i)\C*this is a long text in which the letters may have either case\C*",
            r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})",
            r".*\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}.*",
            r".*[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
            r"[a-z0-9._%+-]{1,64}@[a-z0-9.-]+\.[a-z]{2,}",
            r"[0-9a-f]{64}:.*",
            &format!(r".*({}).*", words.join("|")),
            r"\C*a\C{10}b\C*",
        ] {
            assert_eq!(cost(pattern), 1, "{pattern}");
        }
    }

    #[test]
    fn the_pace_is_of_the_worst() {
        let pace = |pattern: &str| AutomatonCost::of(&translate(pattern.as_bytes()).unwrap().regex, false).pace;
        for pattern in [
            "[ab]",
            r".*error.*(timeout|refused|reset).*",
            r"\C*a\C{10}b\C*",
            r"a\C{20}b",
        ] {
            assert_eq!(pace(pattern), 1, "{pattern}");
        }
        for pattern in [r"\C*a\C{20}b\C*", r"\C*ERROR\C{0,200}timeout\C*"] {
            assert_eq!((cost(pattern) < 16, pace(pattern)), (true, 16), "{pattern}");
        }
        assert!(pace(r"\C*a\C{1000}b\C*") > 1_000);
    }

    #[test]
    fn patterns_of_very_many_states_cost_more() {
        assert!(cost(r"\C*a\C{1000}b\C*") > 1_000);
        assert!(cost(r"\C*ERROR\C{0,200}timeout\C*") < 20);
        assert!(cost(r"\C*a\C{100}b\C*") > 5);
        for pattern in [
            r"\C*ab(ab|ba|bb){500}c\C*",
            r"\C*a(\C\C\C){300}b",
            r"\C*a\C{1000,}b",
            r"(a|\Ca)\C{600}b",
            r"(\C{0,1000}a)?\C{600}b",
        ] {
            assert!(cost(pattern) > 100, "{pattern} {}", cost(pattern));
        }
        let spelled = format!(r"\C*a{}b\C*", r"\C".repeat(500));
        assert!(cost(&spelled) > 500);
        // Where a match may begin at any place, nothing has to come before.
        assert!(automaton_cost("a.{500}b", true) > 500 && automaton_cost("^a.{500}b", true) == 1);
    }
}
