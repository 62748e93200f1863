//! Builds for later steps of the pipeline while earlier ones run, at the lowest priority.
//!
//! Tests wait for disks and timers, so a compiler can use the idle processors. No step relies on it: each gives its
//! own build command. That command finds everything built, waits for cargo's lock, or builds the rest and reports its
//! errors. So this module prints nothing and counts nothing.

use crate::shell::Run;
use std::process::Stdio;
use std::thread::JoinHandle;

/// The priority below that of every other process.
const LOWEST: i32 = 19;

/// Builds under way.
pub struct Ahead {
    builder: JoinHandle<()>,
}

impl Ahead {
    /// Begins them, one after the other.
    pub fn begin(builds: Vec<Run>) -> Ahead {
        let builder = std::thread::spawn(move || {
            // On Linux that is the priority of this thread alone, and of the processes that it starts. Tests are not to be held up.
            if rustix::process::setpriority_process(None, LOWEST).is_err() {
                return;
            }
            for build in builds {
                let mut command = build.into_command();
                command.stdin(Stdio::null());
                command.stdout(Stdio::null()).stderr(Stdio::null());
                // The step that needs it builds it again, and reports the errors.
                let _ = command.status();
            }
        });
        Ahead { builder }
    }

    /// Waits until they have ended: later measurements have the machine to themselves.
    pub fn end(self) {
        // A panic has been told, and is none of the steps'.
        let _ = self.builder.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_run_at_the_lowest_priority_and_what_fails_stops_no_other() {
        let scratch = crate::server::Scratch::new("ahead").unwrap();
        let said = scratch.join("said");
        let script = format!("nice > {}", said.display());
        let builds = vec![
            Run::new("there is no such program"),
            Run::new("false"),
            Run::new("sh").args(["-c", &script]),
        ];
        let before = rustix::process::getpriority_process(None).unwrap();
        Ahead::begin(builds).end();
        assert_eq!(std::fs::read_to_string(&said).unwrap().trim(), "19");
        let after = rustix::process::getpriority_process(None).unwrap();
        assert_eq!(before, after, "who began them is as urgent as before");
        scratch.passed();
    }
}
