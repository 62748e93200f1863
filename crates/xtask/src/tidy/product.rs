//! The product's own source files, without tests.
//!
//! A *product line* is any line, of code or comment or blank, of a file under `crates/*/src` outside test modules.
//! Load generators, the simulator, the engine's benchmark and this program are not part of the product.

use super::SourceFile;
use super::lexer::{lex, without_tests};
use std::collections::BTreeSet;

/// Crates that do not run in a server or its command line client.
const NOT_THE_PRODUCT: [&str; 5] = ["bench", "enginebench", "sim", "wire", "xtask"];

/// One source file of one crate.
pub struct ProductFile {
    /// Relative to the workspace.
    pub path: String,
    /// The folder of the crate below `crates/`.
    pub crate_name: String,
    /// The module path of the file; empty for `lib.rs` and `main.rs`.
    pub module: Vec<String>,
    /// The code, with comments, literals and tests blanked.
    pub code: String,
    /// Lines outside test modules.
    pub lines: usize,
}

impl ProductFile {
    /// Whether the file is part of the database.
    pub fn is_product(&self) -> bool {
        !NOT_THE_PRODUCT.contains(&self.crate_name.as_str())
    }
}

/// All files under `crates/*/src` that are not tests, of every crate.
pub fn files(sources: &[SourceFile]) -> Vec<ProductFile> {
    let mut tests = BTreeSet::new();
    let mut files = Vec::new();
    for source in sources {
        let Some((crate_name, module)) = place(&source.path) else {
            continue;
        };
        if module.last().is_some_and(|name| name == "tests") || module.iter().any(|name| name == "tests") {
            continue;
        }
        let code = lex(&source.text).code;
        let product = without_tests(&code);
        for name in product.test_modules {
            let mut test = module.clone();
            test.push(name);
            tests.insert((crate_name.clone(), test));
        }
        let blanked = code.lines().zip(product.code.lines()).filter(|(all, kept)| all != kept);
        files.push(ProductFile {
            path: source.path.clone(),
            crate_name,
            module,
            lines: source.text.lines().count() - blanked.count(),
            code: product.code,
        });
    }
    files.retain(|file| {
        let prefixes = (1..=file.module.len()).map(|length| file.module[..length].to_vec());
        !prefixes
            .into_iter()
            .any(|prefix| tests.contains(&(file.crate_name.clone(), prefix)))
    });
    files
}

/// Lines of the product.
pub fn lines(files: &[ProductFile]) -> usize {
    files
        .iter()
        .filter(|file| file.is_product())
        .map(|file| file.lines)
        .sum()
}

/// The crate and the module path of a source file of a crate.
fn place(path: &str) -> Option<(String, Vec<String>)> {
    let (crate_name, file) = path.strip_prefix("crates/")?.split_once("/src/")?;
    let module: Vec<String> = file.strip_suffix(".rs")?.split('/').map(str::to_owned).collect();
    let is_root = matches!(module.as_slice(), [name] if name == "lib" || name == "main");
    Some((crate_name.to_owned(), if is_root { Vec::new() } else { module }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> SourceFile {
        SourceFile {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn tests_and_tools_are_left_out() {
        let sources = [
            source("crates/a/src/lib.rs", "//! Why.\nmod b;\n#[cfg(test)]\nmod testing;\n"),
            source(
                "crates/a/src/b.rs",
                "fn f() {}\n#[cfg(test)]\nmod tests {\n    fn g() {}\n}\n",
            ),
            source("crates/a/src/b/tests.rs", "one\n"),
            source("crates/a/src/testing.rs", "one\n"),
            source("crates/a/src/testing/more.rs", "one\n"),
            source("crates/a/tests/b.rs", "one\n"),
            source("crates/sim/src/b.rs", "one\ntwo\n"),
        ];
        let files = files(&sources);
        let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(
            paths,
            ["crates/a/src/lib.rs", "crates/a/src/b.rs", "crates/sim/src/b.rs"]
        );
        assert_eq!(files[1].module, ["b"]);
        assert_eq!(files[1].lines, 1);
        assert_eq!(lines(&files), 3, "the simulator is no product");
    }
}
