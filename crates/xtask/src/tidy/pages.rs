//! Limits on the length of the pages that everybody reads.

use super::links::outside_code;
use super::{Problem, SourceFile};

/// Words of ARCHITECTURE.md outside tables, headings and code.
const WORDS_OF_ARCHITECTURE: usize = 1_200;

const LINES_OF_README: usize = 120;

const ENTRIES_OF_THE_GLOSSARY: usize = 60;

const LINES_OF_A_DECISION: usize = 60;

/// The page, if it is too long.
pub fn length(file: &SourceFile) -> Option<Problem> {
    let (length, limit, unit) = match file.path.as_str() {
        "ARCHITECTURE.md" => (
            words_of_prose(&file.text),
            WORDS_OF_ARCHITECTURE,
            "words outside tables",
        ),
        "README.md" => (file.text.lines().count(), LINES_OF_README, "lines"),
        "docs/glossary.md" => (rows_of_tables(&file.text), ENTRIES_OF_THE_GLOSSARY, "entries"),
        path if path.starts_with("docs/adr/") => (file.text.lines().count(), LINES_OF_A_DECISION, "lines"),
        _ => return None,
    };
    (length > limit).then(|| Problem::new(&file.path, 0, format!("{length} {unit}; the limit is {limit}")))
}

/// Words of paragraphs and lists. A link counts as its text.
fn words_of_prose(text: &str) -> usize {
    let prose = outside_code(text).map(|(_, line)| line);
    let prose = prose.filter(|line| !line.starts_with('|') && !line.starts_with('#'));
    prose.flat_map(str::split_whitespace).count()
}

/// Rows of tables without their headings.
fn rows_of_tables(text: &str) -> usize {
    let rows = || outside_code(text).filter(|(_, line)| line.starts_with('|'));
    let rules = rows().filter(|(_, line)| line.starts_with("|---")).count();
    rows().count() - 2 * rules
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: String) -> SourceFile {
        SourceFile {
            path: path.to_owned(),
            text,
        }
    }

    #[test]
    fn words_are_of_paragraphs_and_lists() {
        let text = "# A heading\n\nThree words here.\n\n| a | table |\n```\nsome code\n```\n1. [two words](a/b.md)\n";
        assert_eq!(words_of_prose(text), 3 + 3);
    }

    #[test]
    fn rows_are_counted_without_headings() {
        assert_eq!(
            rows_of_tables("| a | b |\n|---|---|\n| 1 | 2 |\n\n| c |\n|---|\n| 3 |\n| 4 |\n"),
            3
        );
    }

    #[test]
    fn a_page_over_its_limit_is_a_problem() {
        let words = |count: usize| file("ARCHITECTURE.md", "word ".repeat(count));
        assert_eq!(length(&words(WORDS_OF_ARCHITECTURE)), None);
        assert!(length(&words(WORDS_OF_ARCHITECTURE + 1)).is_some());
        let decision = |lines: usize| file("docs/adr/0001-a.md", "line\n".repeat(lines));
        assert_eq!(length(&decision(LINES_OF_A_DECISION)), None);
        assert!(length(&decision(LINES_OF_A_DECISION + 1)).is_some());
        assert_eq!(length(&file("docs/other.md", "line\n".repeat(1_000))), None);
    }
}
