//! The compiler of workspace members: clippy's driver, without optimisation of test programs.
//!
//! Cargo compiles a library twice, for other crates and with its unit tests, and a profile has one optimisation for both. Optimised
//! programs of tests take minutes longer to build, and their tests save seconds: the code of other crates is optimised anyway. So test
//! programs are compiled without optimisation, but for crates whose own code computes much in its unit tests ([`OPTIMISED`]).
//!
//! Cargo runs a program in place of the compiler, and does not notice when that program changes. It is a copy of this one under another
//! name, because the build replaces this one. A shell would not do: some drop variables whose names have a dash, as cargo's have.

use crate::shell::{Run, target_dir};
use anyhow::{Context, Result};
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

/// The name of the copy.
const NAME: &str = "compiler-of-tests";
/// The variable with the path of clippy's driver.
const DRIVER: &str = "STELE_CLIPPY_DRIVER";
/// Crates whose tests are compiled as the profile says.
const OPTIMISED: [&str; 4] = ["stele_encryption", "stele_filter", "stele_memtable", "stele_storage"];

/// The command of cargo, with a copy of this program as the compiler of workspace members.
pub fn compiling(command: Run, driver: &Path) -> Result<Run> {
    let copy = target_dir().join(NAME).with_extension(env::consts::EXE_EXTENSION);
    // Another run may be using the old one.
    let fresh = copy.with_extension("new");
    fs::copy(env::current_exe()?, &fresh).with_context(|| format!("making {}", fresh.display()))?;
    fs::rename(&fresh, &copy).with_context(|| format!("making {}", copy.display()))?;
    Ok(command.env("RUSTC_WORKSPACE_WRAPPER", copy).env(DRIVER, driver))
}

/// Compiles, if this program runs in place of the compiler.
pub fn compiled() -> Option<ExitCode> {
    let mut arguments = env::args_os();
    let program = arguments.next()?;
    if Path::new(&program).file_stem() != Some(OsStr::new(NAME)) {
        return None;
    }
    let mut arguments: Vec<OsString> = arguments.collect();
    if is_plain(&arguments) {
        arguments.extend(["-C", "opt-level=0"].map(OsString::from));
    }
    let status = env::var_os(DRIVER).and_then(|driver| Command::new(driver).args(arguments).status().ok());
    let code = status
        .and_then(|status| status.code())
        .and_then(|code| u8::try_from(code).ok());
    Some(ExitCode::from(code.unwrap_or(u8::MAX)))
}

/// Whether these arguments of the compiler make a program of tests that is not optimised.
fn is_plain(arguments: &[OsString]) -> bool {
    let mut from_name = arguments.iter().skip_while(|argument| *argument != "--crate-name");
    let crate_name = from_name.nth(1);
    let is_test = arguments.iter().any(|argument| argument == "--test");
    is_test && crate_name.is_some_and(|name| OPTIMISED.iter().all(|optimised| name != optimised))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_of_tests_are_plain() {
        let is_plain = |line: &str| is_plain(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert!(is_plain(
            "rustc --crate-name stele_tablet --edition=2024 lib.rs --test -C opt-level=1"
        ));
        assert!(!is_plain(
            "rustc --crate-name stele_tablet --edition=2024 lib.rs -C opt-level=1"
        ));
        assert!(!is_plain(
            "rustc --crate-name stele_filter --edition=2024 lib.rs --test"
        ));
        assert!(!is_plain("rustc --print cfg"));
    }
}
