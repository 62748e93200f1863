//! Asks git which files a branch changes.

use crate::shell::Run;
use std::process::Stdio;

/// Names under which a clone may know the main branch.
const MAIN: [&str; 2] = ["origin/main", "main"];

/// Whether any file below these paths differs from the point where the branch left main, commits and working tree
/// together. `None` where that is not known: no git, no main branch, or no commit of its own.
pub fn since_main(paths: &[&str]) -> Option<bool> {
    let head = git(&["rev-parse", "HEAD"])?;
    let base = MAIN.iter().find_map(|main| git(&["merge-base", "HEAD", main]))?;
    if base == head {
        return None;
    }
    let of = |arguments: &[&str]| git(&[arguments, &["--"], paths].concat());
    let changed = of(&["diff", "--name-only", &base])?;
    let untracked = of(&["ls-files", "--others", "--exclude-standard"])?;
    Some(!changed.is_empty() || !untracked.is_empty())
}

/// The output of a git command that succeeds.
fn git(arguments: &[&str]) -> Option<String> {
    let mut command = Run::new("git").args(arguments).into_command();
    let output = command.stderr(Stdio::null()).output();
    let output = output.ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
