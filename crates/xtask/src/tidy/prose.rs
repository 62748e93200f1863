//! Checks the language of comments and documents.
//!
//! | rule | fault |
//! |---|---|
//! | `free_relatives` | a relative clause in place of a noun ([`relatives`]) |
//! | `banned_words` | a word with a better one in [`words`] |
//! | `long_sentences` | a sentence of more than [`SENTENCE_WORDS_MAX`] words |
//! | `long_headers` | a first sentence of a file header of more than [`HEADER_WORDS_MAX`] words |
//!
//! Comments of Rust files and Markdown documents are read as paragraphs ([`paragraphs`]), so a sentence may span lines.
//! Code spans and fenced code are ignored. Each rule is a ratchet over the whole workspace.

mod paragraphs;
mod relatives;
mod words;

use super::ratchet::{Direction, Measure};
use super::{Problem, SourceFile};
use paragraphs::Paragraph;

/// A reader holds about this many words at a time.
const SENTENCE_WORDS_MAX: usize = 35;

/// A header's first sentence is read in lists of files.
const HEADER_WORDS_MAX: usize = 15;

/// The rules, in the order of the table above.
pub const RULES: [&str; 4] = ["free_relatives", "banned_words", "long_sentences", "long_headers"];

/// A fault of one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub rule: &'static str,
    pub problem: Problem,
}

/// All faults of the workspace, and the size of the text.
#[derive(Default)]
pub struct Findings {
    pub faults: Vec<Fault>,
    /// Lines of Rust files with a comment.
    pub comment_lines: usize,
}

impl Findings {
    /// Checks comments of Rust files and Markdown documents.
    pub fn of(files: &[SourceFile]) -> Findings {
        let mut findings = Findings::default();
        for file in files {
            let paragraphs = if file.path.ends_with(".rs") {
                let (paragraphs, lines) = paragraphs::of_rust(&file.text);
                findings.comment_lines += lines;
                paragraphs
            } else if file.path.ends_with(".md") {
                paragraphs::of_markdown(&file.text)
            } else {
                continue;
            };
            findings
                .faults
                .extend(paragraphs.iter().flat_map(|p| faults(&file.path, p)));
        }
        findings
    }

    /// How often each rule is broken.
    pub fn measures(&self) -> Vec<Measure> {
        let count = |rule: &str| self.faults.iter().filter(|fault| fault.rule == rule).count();
        let measure = |rule: &str| Measure {
            rule: rule.to_owned(),
            value: count(rule) as f64,
            direction: Direction::Falls,
        };
        RULES.into_iter().map(measure).collect()
    }

    /// The counts on one line.
    pub fn summary(&self) -> String {
        let counts: Vec<String> = self
            .measures()
            .iter()
            .map(|m| format!("{} {}", m.value, m.rule))
            .collect();
        let in_comments = |fault: &&Fault| fault.rule == "free_relatives" && fault.problem.file.ends_with(".rs");
        let relatives = self.faults.iter().filter(in_comments).count();
        let rate = relatives as f64 * 1_000.0 / self.comment_lines.max(1) as f64;
        format!(
            "prose: {} ({rate:.1} free relatives per 1,000 comment lines)",
            counts.join(", ")
        )
    }
}

fn faults(path: &str, paragraph: &Paragraph) -> Vec<Fault> {
    let mut faults = Vec::new();
    let sentences = paragraph.sentences();
    for (index, sentence) in sentences.iter().enumerate() {
        let mut fault = |rule, line, what: String| {
            let problem = Problem::new(path, line, what);
            faults.push(Fault { rule, problem });
        };
        for at in relatives::find(sentence) {
            let place = sentence.excerpt(at);
            fault(
                RULES[0],
                sentence.line_of(at),
                format!("free relative: name the thing in `{place}`"),
            );
        }
        for (at, found, better) in words::find(sentence) {
            fault(RULES[1], sentence.line_of(at), format!("`{found}`: use {better}"));
        }
        let words = sentence.words();
        if words > SENTENCE_WORDS_MAX {
            let what = format!(
                "a sentence of {words} words, above {SENTENCE_WORDS_MAX}: `{}`",
                sentence.excerpt(0)
            );
            fault(RULES[2], sentence.line_of(0), what);
        }
        if paragraph.opens_file && index == 0 && words > HEADER_WORDS_MAX {
            let what = format!("the first sentence of the header has {words} words, above {HEADER_WORDS_MAX}");
            fault(RULES[3], sentence.line_of(0), what);
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, text: &str) -> Vec<(&'static str, usize)> {
        let file = SourceFile {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let findings = Findings::of(&[file]);
        findings
            .faults
            .iter()
            .map(|fault| (fault.rule, fault.problem.line))
            .collect()
    }

    #[test]
    fn each_rule_finds_its_fault_in_comments() {
        let text = "//! Keeps what\n//! waits.\nlet x = \"what waits\"; // tried anew\n";
        assert_eq!(check("a.rs", text), [("free_relatives", 1), ("banned_words", 3)]);
        let long = format!("//! {}end.\n", "word ".repeat(SENTENCE_WORDS_MAX));
        assert_eq!(check("a.rs", &long), [("long_sentences", 1), ("long_headers", 1)]);
        let header = format!("//! {}end.\n//! Then more.\n", "word ".repeat(HEADER_WORDS_MAX));
        assert_eq!(check("a.rs", &header), [("long_headers", 1)]);
        let fits = format!("//! {}end. {}end.\n", "word ".repeat(14), "word ".repeat(34));
        assert_eq!(check("a.rs", &fits), []);
    }

    #[test]
    fn documents_are_checked_outside_code() {
        let text = "# A title\n\nKeeps `what waits` and\nwhat waits.\n\n```\nwhat waits\n```\n\n| a | what waits |\n";
        assert_eq!(check("a.md", text), [("free_relatives", 4), ("free_relatives", 10)]);
    }

    #[test]
    fn the_summary_counts_every_rule() {
        let file = SourceFile {
            path: "a.rs".to_owned(),
            text: "//! Keeps what waits anew.\n//! More.\n".to_owned(),
        };
        assert_eq!(
            Findings::of(&[file]).summary(),
            "prose: 1 free_relatives, 1 banned_words, 0 long_sentences, 0 long_headers (500.0 free relatives per 1,000 comment lines)"
        );
    }
}
