//! Running commands: with their output shown, captured line by line, or both.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The workspace this program was built from.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap_or(Path::new("."))
}

/// Cargo's output folder; relative settings are relative to the workspace.
pub fn target_dir() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// Runs a program that prints one line of JSON.
pub fn json_line(command: Run) -> Result<Value> {
    let output = command.output()?;
    let line = output.lines().last().unwrap_or_default();
    serde_json::from_str(line).with_context(|| format!("not JSON: {line:?}"))
}

/// A command run in the workspace.
pub struct Run {
    command: Command,
    line: String,
}

/// `cargo` with these arguments, by the toolchain the workspace asks for.
pub fn cargo<const N: usize>(arguments: [&str; N]) -> Run {
    Run::new("cargo").args(arguments)
}

impl Run {
    /// A program from the path or by its full name.
    pub fn new(program: impl AsRef<OsStr>) -> Run {
        let mut command = Command::new(program.as_ref());
        command.current_dir(root());
        // Set by the cargo that runs this program; a cargo below would see them change and build things again.
        for (name, _) in std::env::vars_os() {
            let name_text = name.to_string_lossy();
            if name_text.starts_with("CARGO_PKG_") || name_text.starts_with("CARGO_MANIFEST_") {
                command.env_remove(&name);
            }
        }
        Run {
            command,
            line: program.as_ref().to_string_lossy().into_owned(),
        }
    }

    /// Appends arguments.
    pub fn args(mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Run {
        for argument in arguments {
            self.line.push(' ');
            self.line.push_str(&argument.as_ref().to_string_lossy());
            self.command.arg(argument);
        }
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Run {
        self.command.env(name, value);
        self
    }

    /// Removes an environment variable.
    pub fn without_env(mut self, name: &str) -> Run {
        self.command.env_remove(name);
        self
    }

    /// Runs in this directory instead of the workspace root.
    pub fn dir(mut self, dir: impl AsRef<Path>) -> Run {
        self.command.current_dir(dir);
        self
    }

    /// Writes standard error to a file instead of showing it.
    pub fn errors_to(mut self, file: File) -> Run {
        self.command.stderr(file);
        self
    }

    /// Runs with output shown; whether it succeeded.
    pub fn succeeds(mut self) -> Result<bool> {
        let status = self
            .command
            .status()
            .with_context(|| format!("running {}", self.line))?;
        Ok(status.success())
    }

    /// Runs with output shown; a failure is an error.
    pub fn check(self) -> Result<()> {
        let line = self.line.clone();
        if !self.succeeds()? {
            bail!("{line} failed");
        }
        Ok(())
    }

    /// Hands every line of standard output to `each` as it comes; whether it succeeded.
    pub fn lines(mut self, mut each: impl FnMut(&str)) -> Result<bool> {
        let mut child = self
            .command
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("running {}", self.line))?;
        let output = child.stdout.take().context("no standard output")?;
        for line in BufReader::new(output).split(b'\n') {
            each(String::from_utf8_lossy(&line?).trim_end_matches('\r'));
        }
        Ok(child.wait()?.success())
    }

    /// Standard output of a command that must succeed; its standard error is shown.
    pub fn output(mut self) -> Result<String> {
        let output = self
            .command
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("running {}", self.line))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            bail!("{} failed: {text}", self.line);
        }
        Ok(text)
    }

    /// The command itself, for those who need pipes of their own.
    pub fn into_command(self) -> Command {
        self.command
    }
}
