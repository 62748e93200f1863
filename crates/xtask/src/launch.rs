//! Starts the servers that tests and measurements need, and waits until they are ready.

use crate::server::Process;
use crate::shell::Run;
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// All of them start over an empty folder or without one.
const READY_WAIT: Duration = Duration::from_secs(20);

/// Starts a process with its output in `log`, and waits until it listens on the address.
pub fn listening(name: &str, command: Run, address: &str, log: &Path) -> Result<Process> {
    let mut process = spawned(name, command, log)?;
    wait(name, &mut process, || TcpStream::connect(address).is_ok())?;
    Ok(process)
}

/// Starts a process with its output in `log`.
pub fn spawned(name: &str, command: Run, log: &Path) -> Result<Process> {
    let log = File::create(log).with_context(|| format!("making {}", log.display()))?;
    let child = command
        .into_command()
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("starting {name}"))?;
    Ok(Process::new(child))
}

/// Waits until a process is ready. Fails if it ends before that.
pub fn wait(name: &str, process: &mut Process, ready: impl Fn() -> bool) -> Result<()> {
    let deadline = Instant::now() + READY_WAIT;
    while Instant::now() < deadline {
        if let Some(status) = process.ended()? {
            bail!("{name} ended at start: {status}");
        }
        if ready() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bail!("{name} is not ready after {READY_WAIT:?}")
}
