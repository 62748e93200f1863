//! Kills a process with those below it: its *descendants*.
//!
//! They are found by their parents. A process group would be found more easily. But an interrupt of the terminal reaches this program's
//! group only, so that it would leave the processes of other groups running. A process whose parent has ended is not found.

use crate::proc_stat::ProcStat;
use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fs;
use std::process::Child;

/// SIGKILL to a child and its descendants, and waits until the child is gone.
pub fn kill_all(child: &mut Child) -> Result<()> {
    let mut found = BTreeSet::from([child.id()]);
    loop {
        // A process that is stopped starts no other, and its id stays its own.
        found.iter().for_each(|pid| signal(*pid, Signal::STOP));
        let before = found.len();
        add_descendants(&mut found)?;
        if found.len() == before {
            break;
        }
    }
    found.iter().for_each(|pid| signal(*pid, Signal::KILL));
    child.wait()?;
    Ok(())
}

/// Adds all processes below those that are there.
fn add_descendants(found: &mut BTreeSet<u32>) -> Result<()> {
    let mut processes = Vec::new();
    for entry in fs::read_dir("/proc").context("listing processes")? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        // Some end meanwhile.
        if let (Ok(pid), Ok(stat)) = (name.parse::<u32>(), ProcStat::read(&name)) {
            processes.push((pid, stat.parent));
        }
    }
    loop {
        let before = found.len();
        for (pid, parent) in &processes {
            if found.contains(parent) {
                found.insert(*pid);
            }
        }
        if found.len() == before {
            return Ok(());
        }
    }
}

/// Sends a signal. A process that has ended takes none.
fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}
