//! Numbers that may only improve.
//!
//! `ratchet.txt`, next to this file, holds one number for each rule over the whole workspace. A rule that got worse is a
//! problem; one that got better is a hint to run `cargo xtask tidy --tighten`, which writes the better number down.

use super::Problem;
use std::collections::BTreeMap;

/// Where the numbers are, relative to the workspace.
pub const PATH: &str = "crates/xtask/src/tidy/ratchet.txt";

const HEAD: &str =
    "# One number for each rule, over the whole workspace. `cargo xtask tidy --tighten` writes improvements here.\n";

/// Which way a number improves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// A count of faults, aim 0.
    Falls,
    /// A rate.
    Rises,
}

/// The present number of one rule.
#[derive(Clone, Debug)]
pub struct Measure {
    pub rule: String,
    pub value: f64,
    pub direction: Direction,
}

/// The result of comparing the present numbers with the recorded ones.
#[derive(Default)]
pub struct Judgement {
    pub problems: Vec<Problem>,
    pub hints: Vec<String>,
}

/// Reads `rule = number` lines. A line that is neither that nor a comment is a problem.
pub fn parse(text: &str) -> Result<BTreeMap<String, f64>, Problem> {
    let mut numbers = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let number = line
            .split_once(" = ")
            .and_then(|(rule, number)| Some((rule, number.parse().ok()?)));
        let Some((rule, number)) = number else {
            return Err(Problem::new(PATH, index + 1, "not `rule = number`"));
        };
        numbers.insert(rule.to_owned(), number);
    }
    Ok(numbers)
}

/// Compares each measure with its recorded number.
pub fn judge(recorded: &BTreeMap<String, f64>, measures: &[Measure]) -> Judgement {
    let mut judgement = Judgement::default();
    for measure in measures {
        let (rule, now) = (&measure.rule, measure.value);
        let Some(before) = recorded.get(rule).copied() else {
            let what = format!("`{rule}` is {now} and has no number; `cargo xtask tidy --tighten` adds it");
            judgement.problems.push(Problem::new(PATH, 0, what));
            continue;
        };
        if is_better(measure.direction, before, now) {
            let hint = format!("`{rule}` improved from {before} to {now}: `cargo xtask tidy --tighten`");
            judgement.hints.push(hint);
        } else if now != before {
            let bound = match measure.direction {
                Direction::Falls => "may not exceed",
                Direction::Rises => "may not fall below",
            };
            let what = format!("`{rule}` is {now} and {bound} {before}");
            judgement.problems.push(Problem::new(PATH, 0, what));
        }
    }
    judgement
}

fn is_better(direction: Direction, before: f64, now: f64) -> bool {
    match direction {
        Direction::Falls => now < before,
        Direction::Rises => now > before,
    }
}

/// The text of the file with every improvement and every new rule; a rule that got worse keeps its number, and one
/// that is not measured any more goes.
pub fn tightened(recorded: &BTreeMap<String, f64>, measures: &[Measure]) -> String {
    let mut text = HEAD.to_owned();
    for measure in measures {
        let before = recorded.get(&measure.rule).copied();
        let kept = before.filter(|before| !is_better(measure.direction, *before, measure.value));
        text.push_str(&format!("{} = {}\n", measure.rule, kept.unwrap_or(measure.value)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measures() -> Vec<Measure> {
        let measure = |rule: &str, value, direction| Measure {
            rule: rule.to_owned(),
            value,
            direction,
        };
        vec![
            measure("worse", 5.0, Direction::Falls),
            measure("better", 3.0, Direction::Falls),
            measure("rate_worse", 0.8, Direction::Rises),
            measure("rate_better", 1.2, Direction::Rises),
            measure("same", 7.0, Direction::Falls),
        ]
    }

    const RECORD: &str = "# Why.\nworse = 4\nbetter = 4\nrate_worse = 0.9\nrate_better = 1.1\nsame = 7\ngone = 1\n";

    #[test]
    fn a_worse_number_is_a_problem_and_a_better_one_a_hint() {
        let judgement = judge(&parse(RECORD).unwrap(), &measures());
        let problems: Vec<&str> = judgement.problems.iter().map(|p| p.what.as_str()).collect();
        assert_eq!(
            problems,
            [
                "`worse` is 5 and may not exceed 4",
                "`rate_worse` is 0.8 and may not fall below 0.9"
            ]
        );
        assert_eq!(judgement.hints.len(), 2);
        assert!(judgement.hints[0].starts_with("`better` improved from 4 to 3"));
    }

    #[test]
    fn a_rule_without_a_number_is_a_problem() {
        assert_eq!(judge(&BTreeMap::new(), &measures()).problems.len(), 5);
    }

    #[test]
    fn tightening_never_loosens() {
        let text = tightened(&parse(RECORD).unwrap(), &measures());
        assert!(
            text.ends_with("worse = 4\nbetter = 3\nrate_worse = 0.9\nrate_better = 1.2\nsame = 7\n"),
            "{text}"
        );
        assert_eq!(parse(&text).unwrap().len(), 5);
    }

    #[test]
    fn lines_that_are_no_numbers_are_named() {
        assert_eq!(parse("a = 1\nb: 2\n").unwrap_err().line, 2);
    }
}
