//! Patterns of names: Java's regular expressions, which must match a whole name.

use crate::failure::{Failure, Outcome};
use crate::names;
use regex::{Regex, RegexBuilder};
use stele_types::TableName;

/// Memory of a compiled pattern: enough for thousands of names in one alternation.
const COMPILED_BYTES_MAX: usize = 4 << 20;

/// A compiled pattern.
#[derive(Debug)]
pub(super) struct Pattern(Regex);

impl Pattern {
    /// Compiles a pattern. Java's look-around and back-references are refused.
    pub fn compile(java: &str) -> Outcome<Self> {
        let whole = format!("^(?:{})$", unquoted(java));
        let compiled = RegexBuilder::new(&whole).size_limit(COMPILED_BYTES_MAX).build();
        compiled.map(Pattern).map_err(|error| {
            let message = format!("The pattern {java:?} of names is not supported: {error}");
            Failure::do_not_retry(message)
        })
    }

    /// Whether a table has such a name. The default namespace may be written or left out.
    pub fn matches(&self, name: &TableName) -> bool {
        let text = names::to_text(name);
        let with_namespace = format!("{}:{}", name.namespace, name.table);
        self.0.is_match(&text) || self.0.is_match(&with_namespace)
    }
}

/// A pattern without Java's quotes: text between `\Q` and `\E` stands for itself.
fn unquoted(java: &str) -> String {
    let mut plain = String::with_capacity(java.len());
    let mut left = java;
    while let Some((before, quoted)) = left.split_once(r"\Q") {
        let (text, after) = quoted.split_once(r"\E").unwrap_or((quoted, ""));
        plain.push_str(before);
        plain.push_str(&regex::escape(text));
        left = after;
    }
    plain.push_str(left);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_whole_names() {
        let t1 = TableName::new("default", "t1");
        let other = TableName::new("ns", "t1");
        for (pattern, in_default, in_ns) in [
            ("t1", true, false),
            ("t", false, false),
            ("t.*", true, false),
            (".*", true, true),
            ("ns:t1", false, true),
            ("default:t1", true, false),
            ("a|t1", true, false),
            (r"\Qt1\E", true, false),
            (r"\Qt.\E", false, false),
            (r"\Qns:t\E\d", false, true),
        ] {
            let compiled = Pattern::compile(pattern).unwrap();
            assert_eq!(
                (compiled.matches(&t1), compiled.matches(&other)),
                (in_default, in_ns),
                "{pattern}"
            );
        }
        assert!(Pattern::compile("(?=a)").is_err() && Pattern::compile("a{1000}{1000}").is_err());
    }
}
