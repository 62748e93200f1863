//! Test programs, as cargo reports them while it builds.

use crate::jobs::{Counts, Job};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A test program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binary {
    /// The crate's folder, such as `sim`.
    pub package: String,
    /// The crate's folder and, for a test in a file of its own, the name of that: `sim`, `sim::damage`.
    pub name: String,
    pub program: PathBuf,
    /// The folder of the package: the working directory of its tests.
    pub folder: PathBuf,
    /// Parts of the names of tests that are not run.
    pub skipped: Vec<String>,
    /// A part of the names of all tests that are run.
    pub only: Option<String>,
}

impl Binary {
    /// The job that runs its tests with these variables.
    pub fn job(self, environment: &[(&str, &Path)]) -> Job {
        let mut command = Command::new(&self.program);
        for skipped in &self.skipped {
            command.args(["--skip", skipped]);
        }
        command.args(&self.only).current_dir(&self.folder);
        command
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .envs(environment.iter().copied());
        Job {
            name: self.name,
            command,
            counts: Counts::Cargo,
        }
    }
}

/// The test program that a line of `cargo test --message-format=json` reports, if it reports one.
pub fn from_message(line: &str) -> Option<Binary> {
    let message: Value = serde_json::from_str(line).ok()?;
    let text = |pointer: &str| message.pointer(pointer).and_then(Value::as_str);
    let is_test = message.pointer("/profile/test").and_then(Value::as_bool) == Some(true);
    // Examples are built so that they are linted. They have no tests.
    let is_example = text("/target/kind/0") == Some("example");
    if text("/reason") != Some("compiler-artifact") || !is_test || is_example {
        return None;
    }
    let program = PathBuf::from(text("/executable")?);
    let folder = PathBuf::from(text("/manifest_path")?).parent()?.to_owned();
    let package = folder.file_name()?.to_string_lossy().into_owned();
    let name = match text("/target/kind/0")? {
        "test" => format!("{package}::{}", text("/target/name")?),
        _ if program_is_main(&message) => format!("{package}::main"),
        _ => package.clone(),
    };
    Some(Binary {
        package,
        name,
        program,
        folder,
        skipped: Vec::new(),
        only: None,
    })
}

fn program_is_main(message: &Value) -> bool {
    message.pointer("/target/kind/0").and_then(Value::as_str) == Some("bin")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: &str, name: &str, test: bool) -> String {
        serde_json::json!({
            "reason": "compiler-artifact",
            "manifest_path": "/w/crates/sim/Cargo.toml",
            "target": { "kind": [kind], "name": name },
            "profile": { "test": test },
            "executable": "/w/target/debug/deps/x",
        })
        .to_string()
    }

    #[test]
    fn test_programs_are_named_after_crate_and_file() {
        let name = |kind: &str| from_message(&message(kind, "damage", true)).map(|binary| binary.name);
        assert_eq!(name("test").as_deref(), Some("sim::damage"));
        assert_eq!(name("lib").as_deref(), Some("sim"));
        assert_eq!(name("bin").as_deref(), Some("sim::main"));
        let folder = from_message(&message("lib", "stele_sim", true)).unwrap().folder;
        assert_eq!(folder, PathBuf::from("/w/crates/sim"));
    }

    #[test]
    fn a_job_runs_the_wanted_tests_in_the_folder_of_the_package() {
        let mut binary = from_message(&message("test", "damage", true)).unwrap();
        binary.skipped.push("slow".to_owned());
        binary.only = Some("some".to_owned());
        let job = binary.job(&[("WHERE", Path::new("/there"))]);
        let arguments: Vec<_> = job.command.get_args().collect();
        assert_eq!(arguments, ["--skip", "slow", "some"]);
        assert_eq!(job.command.get_current_dir(), Some(Path::new("/w/crates/sim")));
        assert_eq!((job.name.as_str(), job.counts), ("sim::damage", Counts::Cargo));
    }

    #[test]
    fn other_messages_are_no_test_programs() {
        assert_eq!(from_message(&message("bin", "stele-sim", false)), None);
        assert_eq!(from_message(&message("example", "measure", true)), None);
        assert_eq!(from_message("{\"reason\":\"build-finished\",\"success\":true}"), None);
        assert_eq!(from_message("not JSON"), None);
    }
}
