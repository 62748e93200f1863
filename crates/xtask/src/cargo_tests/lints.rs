//! Clippy as the compiler of the workspace: one build lints and makes the programs.
//!
//! `cargo clippy` checks every crate and every dependency a second time without making programs. Cargo runs the compiler of
//! workspace members through `RUSTC_WORKSPACE_WRAPPER`, and clippy's driver is a compiler that lints. [`compiler`] runs it.

use super::compiler;
use crate::shell::Run;
use anyhow::{Result, ensure};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The command, with clippy's driver as the compiler of workspace members.
pub fn with_clippy(command: Run) -> Result<Run> {
    let sysroot = Run::new("rustc").args(["--print", "sysroot"]).output()?;
    let driver = Path::new(sysroot.trim()).join("bin").join(driver_name());
    ensure!(
        driver.exists(),
        "{} is missing: `rustup component add clippy`",
        driver.display()
    );
    compiler::compiling(command, &driver)
}

fn driver_name() -> PathBuf {
    PathBuf::from("clippy-driver").with_extension(std::env::consts::EXE_EXTENSION)
}

/// Warnings and errors of a build, each once: a crate is compiled with its tests and without.
#[derive(Debug, Default)]
pub struct Lints {
    found: BTreeSet<String>,
}

impl Lints {
    /// Takes a line of cargo's JSON. Shows a warning or an error that is new.
    pub fn take(&mut self, line: &str) {
        if let Some(text) = finding(line)
            && !self.found.contains(&text)
        {
            println!("{text}");
            self.found.insert(text);
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.found.len()
    }
}

/// The text of a warning or an error at a place in the code.
fn finding(line: &str) -> Option<String> {
    let message: Value = serde_json::from_str(line).ok()?;
    let text = |pointer: &str| message.pointer(pointer).and_then(Value::as_str);
    if text("/reason") != Some("compiler-message") {
        return None;
    }
    let is_finding = matches!(text("/message/level"), Some("warning" | "error"));
    // A count of warnings has no place; an error of the linker has none either.
    let has_place = message
        .pointer("/message/spans")
        .and_then(Value::as_array)
        .is_some_and(|spans| !spans.is_empty());
    let is_error = text("/message/level") == Some("error");
    (is_finding && (has_place || is_error)).then(|| text("/message/rendered").unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(level: &str, spans: usize, text: &str) -> String {
        let spans = vec![serde_json::json!({}); spans];
        let message = serde_json::json!({ "level": level, "spans": spans, "rendered": text });
        serde_json::json!({ "reason": "compiler-message", "message": message }).to_string()
    }

    #[test]
    fn each_warning_counts_once() {
        let mut lints = Lints::default();
        lints.take(&line("warning", 1, "unused"));
        lints.take(&line("warning", 1, "unused"));
        lints.take(&line("warning", 0, "1 warning emitted"));
        lints.take("{\"reason\":\"build-finished\",\"success\":true}");
        assert_eq!(lints.count(), 1);
        lints.take(&line("error", 0, "linking failed"));
        lints.take(&line("error", 2, "mismatched types"));
        assert_eq!(lints.count(), 3);
    }
}
