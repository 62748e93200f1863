//! Rules about one source file: header, size, names, words that must not stay.

use super::{Problem, SourceFile};

/// Past this, a file holds two concepts.
const FILE_LINES_MAX: usize = 1_000;

/// Past this, nobody reads a function.
const FUNCTION_LINES_MAX: usize = 100;

/// Words that say that something is unfinished, or that belong to one machine. Split, so that this file passes.
const FORBIDDEN: [&str; 6] = [
    concat!("to", "do!"),
    concat!("unimpl", "emented!"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("not yet ", "implemented"),
    concat!("/ro", "ot/"),
];

/// Module names that say nothing about their contents.
const EMPTY_NAMES: [&str; 5] = ["utils", "util", "common", "misc", "helpers"];

/// All rules for a Rust file.
pub fn rust(file: &SourceFile) -> Vec<Problem> {
    let mut problems = words(file);
    let lines = file.text.lines().count();
    if lines > FILE_LINES_MAX {
        let what = format!("{lines} lines, above {FILE_LINES_MAX}: which concept wants out?");
        problems.push(Problem::new(&file.path, 0, what));
    }
    problems.extend(long_functions(file));
    problems.extend(module_name(file));
    if is_crate_source(&file.path) && !file.text.starts_with("//!") {
        problems.push(Problem::new(&file.path, 1, "a file begins with `//!` and its purpose"));
    }
    problems
}

/// Forbidden words, for any kind of text.
pub fn words(file: &SourceFile) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        for word in FORBIDDEN {
            if line.contains(word) {
                problems.push(Problem::new(&file.path, index + 1, format!("contains `{word}`")));
            }
        }
    }
    problems
}

/// Test modules in files of their own carry their purpose in their name.
fn is_crate_source(path: &str) -> bool {
    path.starts_with("crates/") && path.contains("/src/") && !path.ends_with("/tests.rs") && !path.contains("/tests/")
}

fn module_name(file: &SourceFile) -> Option<Problem> {
    let name = file.path.rsplit('/').next()?.strip_suffix(".rs")?;
    if name == "mod" {
        return Some(Problem::new(&file.path, 0, "`foo.rs` beside `foo/`, never `mod.rs`"));
    }
    let in_empty_directory = file.path.split('/').any(|part| EMPTY_NAMES.contains(&part));
    (EMPTY_NAMES.contains(&name) || in_empty_directory)
        .then(|| Problem::new(&file.path, 0, "a module is named after what it does"))
}

/// Finds functions by rustfmt's layout: a function ends at the first `}` indented like its `fn`.
fn long_functions(file: &SourceFile) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut open: Option<(usize, usize, String)> = None;
    for (index, line) in file.text.lines().enumerate() {
        let indent = line.len() - line.trim_start().len();
        if let Some(name) = function_name(line) {
            open = Some((index, indent, name));
        }
        if let Some((start, start_indent, name)) = &open
            && line.trim_start().starts_with('}')
            && indent == *start_indent
        {
            let length = index - start + 1;
            if length > FUNCTION_LINES_MAX {
                let what = format!("`{name}` has {length} lines, above {FUNCTION_LINES_MAX}");
                problems.push(Problem::new(&file.path, start + 1, what));
            }
            open = None;
        }
    }
    problems
}

fn function_name(line: &str) -> Option<String> {
    let mut words = line.trim_start().split(' ').peekable();
    loop {
        match words.next()? {
            "fn" => break,
            "pub" | "async" | "const" | "unsafe" | "extern" => {}
            word if word.starts_with("pub(") => {}
            _ => return None,
        }
    }
    let name: String = words
        .next()?
        .chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect();
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, text: &str) -> Vec<String> {
        let file = SourceFile {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        rust(&file).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_clean_file_passes() {
        assert!(check("crates/a/src/b.rs", "//! Why.\n\nfn f() {\n}\n").is_empty());
        assert!(check("crates/a/src/b/tests.rs", "use super::*;\n").is_empty());
    }

    #[test]
    fn a_header_is_asked_for() {
        assert_eq!(
            check("crates/a/src/b.rs", "fn f() {}\n"),
            ["crates/a/src/b.rs:1: a file begins with `//!` and its purpose"]
        );
    }

    #[test]
    fn names_say_something() {
        assert_eq!(check("crates/a/src/utils.rs", "//! X.\n").len(), 1);
        assert_eq!(check("crates/a/src/common/b.rs", "//! X.\n").len(), 1);
        assert_eq!(check("crates/a/src/b/mod.rs", "//! X.\n").len(), 1);
    }

    #[test]
    fn leftovers_are_found() {
        let text = format!("//! X.\n// {}: later\n", FORBIDDEN[2]);
        assert_eq!(check("crates/a/src/b.rs", &text).len(), 1);
    }

    #[test]
    fn sizes_are_bounded() {
        let body = "    let x = 1;\n".repeat(FUNCTION_LINES_MAX - 2);
        let fits = format!("//! X.\n    pub(crate) async fn f() {{\n{body}    }}\n");
        assert!(check("crates/a/src/b.rs", &fits).is_empty());
        let long = format!("//! X.\nfn f() {{\n{body}    one;\n}}\n");
        assert_eq!(
            check("crates/a/src/b.rs", &long),
            ["crates/a/src/b.rs:2: `f` has 101 lines, above 100"]
        );
        assert_eq!(
            check("crates/a/src/b.rs", &"//! X.\n".repeat(FILE_LINES_MAX + 1)).len(),
            1
        );
    }
}
