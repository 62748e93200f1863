//! Finds tests in doc comments: fenced code that rustdoc would compile and run.

use super::SourceFile;
use super::lexer::{Kind, lex};

/// Attributes of fences that rustdoc takes for Rust; a fence without any is Rust too.
const RUST: [&str; 5] = ["rust", "no_run", "should_panic", "compile_fail", "edition"];

/// Whether a doc comment of this file has a test.
pub fn has_doc_test(file: &SourceFile) -> bool {
    let mut fenced = false;
    for comment in lex(&file.text).comments {
        let Some(info) = comment
            .text
            .trim()
            .strip_prefix("```")
            .filter(|_| comment.kind != Kind::Plain)
        else {
            continue;
        };
        let is_rust = info.is_empty() || RUST.iter().any(|name| info.starts_with(name));
        if !fenced && is_rust {
            return true;
        }
        fenced = !fenced;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> bool {
        has_doc_test(&SourceFile {
            path: "crates/a/src/b.rs".to_owned(),
            text: text.to_owned(),
        })
    }

    #[test]
    fn fences_of_rust_are_tests() {
        assert!(check("//! ```\n//! f();\n//! ```\n"));
        assert!(check("/// ```text\n/// f\n/// ```\n/// ```no_run\n/// f();\n/// ```\n"));
    }

    #[test]
    fn other_fences_are_not() {
        assert!(!check("//! ```text\n//! f\n//! ```\n// ```\nlet x = \"```\";\n"));
    }
}
