//! Counts assertions in the crates that keep data.
//!
//! Where state changes hands (flush, compaction commit, apply, recovery) a check that stops the process is cheaper than
//! a corrupt file. The aim is [`AIM`] for every 1,000 product lines; the ratchet holds the present rate of each crate.

use super::product::ProductFile;
use super::ratchet::{Direction, Measure};

/// Crates that must assert. One that does not exist is skipped.
const CRATES: [&str; 7] = [
    "memtable",
    "commitlog",
    "sstable",
    "tablet",
    "tabletserver",
    "objects",
    "hdfs",
];

/// Assertions for every 1,000 product lines.
pub const AIM: f64 = 10.0;

const MACROS: [&str; 6] = [
    "assert!",
    "assert_eq!",
    "assert_ne!",
    "debug_assert!",
    "debug_assert_eq!",
    "debug_assert_ne!",
];

/// The rate of each crate, rounded down to a tenth.
pub fn measure(files: &[ProductFile]) -> Vec<Measure> {
    let mut measures = Vec::new();
    for name in CRATES {
        let own = || files.iter().filter(|file| file.crate_name == name);
        let lines: usize = own().map(|file| file.lines).sum();
        if lines == 0 {
            continue;
        }
        let assertions: usize = own().map(|file| count(&file.code)).sum();
        measures.push(Measure {
            rule: format!("assertions.{name}"),
            value: (assertions * 10_000 / lines) as f64 / 10.0,
            direction: Direction::Rises,
        });
    }
    measures
}

fn count(code: &str) -> usize {
    let starts_word = |at: usize| {
        let before = code[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
    };
    let of = |name: &str| code.match_indices(name).filter(|(at, _)| starts_word(*at)).count();
    MACROS.into_iter().map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::SourceFile;
    use crate::tidy::product;

    #[test]
    fn each_assertion_counts_once() {
        assert_eq!(count("assert!(a); debug_assert!(b); debug_assert_eq!(c, d);"), 3);
        assert_eq!(count("prop_assert!(a); my_assert_eq!(b, c); assertion(d);"), 0);
    }

    #[test]
    fn the_rate_is_of_product_lines() {
        let mut text = "// A comment.\nassert!(true);\n".to_owned();
        text.push_str(&"x;\n".repeat(298));
        text.push_str("#[cfg(test)]\nmod tests {\n    assert!(true);\n}\n");
        let sources = [SourceFile {
            path: "crates/tablet/src/a.rs".to_owned(),
            text,
        }];
        let measures = measure(&product::files(&sources));
        assert_eq!(measures.len(), 1, "crates without files are skipped");
        assert_eq!(
            (measures[0].rule.as_str(), measures[0].value),
            ("assertions.tablet", 3.3)
        );
    }
}
