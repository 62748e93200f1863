//! Processes that outlive this program, and the files by which it finds them again.
//!
//! Terms: a *part* is one process of a rival; its *identity* is process id, start time and boot, kept in `run/<part>.pid`.
//!
//! Invariants:
//! * A signal goes only to a process whose start time and boot are the recorded ones. The process is pinned by a
//!   descriptor before that is checked, so the id cannot pass to another in between.
//! * Every wait has a deadline.

use super::Place;
use crate::proc_stat::ProcStat;
use crate::shell::root;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fmt;
use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How often a condition is looked at.
const PAUSE: Duration = Duration::from_millis(50);

/// How long a process may take to vanish after SIGKILL; longer means that it hangs in the kernel.
const KILL_WAIT: Duration = Duration::from_secs(20);

/// How long a part that has just died may hold its port: tearing down a heap of many gigabytes takes seconds.
pub const PORT_PATIENCE: Duration = Duration::from_secs(5);

/// Lines of a log shown when a process did not start.
const LOG_TAIL_LINES: usize = 25;

/// A process, told apart from any other that ever had the same id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its id.
    pub pid: u32,
    started_ticks: u64,
    boot: String,
}

/// How a process ended when it was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It was not running.
    WasGone,
    /// It ended when asked.
    Asked,
    /// It had to be killed.
    Killed,
}

impl Identity {
    /// That of a process that runs now.
    pub fn of(pid: u32) -> Result<Identity> {
        Ok(Identity {
            pid,
            started_ticks: ProcStat::read(&pid.to_string())?.started_ticks,
            boot: boot_id()?,
        })
    }

    fn parse(text: &str) -> Option<Identity> {
        let mut words = text.split_whitespace();
        let identity = Identity {
            pid: words.next()?.parse().ok()?,
            started_ticks: words.next()?.parse().ok()?,
            boot: words.next()?.to_owned(),
        };
        words.next().is_none().then_some(identity)
    }

    /// Its state by the system now; `None` when it has ended.
    pub fn stat(&self) -> Option<ProcStat> {
        let stat = ProcStat::read(&self.pid.to_string()).ok()?;
        let same = stat.started_ticks == self.started_ticks && boot_id().ok()? == self.boot;
        (same && stat.state != 'Z').then_some(stat)
    }

    /// Whether it runs.
    pub fn is_alive(&self) -> bool {
        self.stat().is_some()
    }

    /// Resident memory, in MiB.
    pub fn rss_mib(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
        let kib: u64 = line.trim().trim_end_matches(" kB").trim().parse().ok()?;
        Some(kib / 1024)
    }

    /// Sends a signal if it still is that process.
    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let pid = pid.with_context(|| format!("{} is no process id", self.pid))?;
        let Ok(pinned) = pidfd_open(pid, PidfdFlags::empty()) else {
            return Ok(());
        };
        if self.is_alive() {
            pidfd_send_signal(&pinned, signal).with_context(|| format!("signalling process {}", self.pid))?;
        }
        Ok(())
    }

    /// Asks it to end, and kills it when it has not after `patience`.
    pub fn stop(&self, patience: Duration) -> Result<Ending> {
        if !self.is_alive() {
            return Ok(Ending::WasGone);
        }
        self.signal(Signal::TERM)?;
        if self.ends_within(patience) {
            return Ok(Ending::Asked);
        }
        self.signal(Signal::KILL)?;
        if self.ends_within(KILL_WAIT) {
            return Ok(Ending::Killed);
        }
        bail!("process {} is still there {KILL_WAIT:?} after SIGKILL", self.pid)
    }

    fn ends_within(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while self.is_alive() {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(PAUSE);
        }
        true
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.pid, self.started_ticks, self.boot)
    }
}

/// Start times count from boot; this says which.
fn boot_id() -> Result<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").context("reading the boot id")?;
    Ok(text.trim().to_owned())
}

/// A part to be started.
pub struct Launch {
    /// Name of the part; names its pid file and its log.
    pub part: String,
    pub program: PathBuf,
    pub arguments: Vec<String>,
}

/// Starts a part in a session of its own, so that neither the end of this program nor Ctrl-C reaches it.
pub fn launch(place: &Place, launch: &Launch) -> Result<Identity> {
    let path = place.log(&launch.part);
    let log = File::options().create(true).append(true).open(&path);
    let log = log.with_context(|| format!("opening {}", path.display()))?;
    // `setsid` replaces itself by the program, because a child is not the leader of a process group: the id stays.
    let mut command = Command::new("setsid");
    for (name, _) in std::env::vars_os().filter(|(name, _)| configures(&name.to_string_lossy())) {
        command.env_remove(name);
    }
    let child = command
        .arg(&launch.program)
        .args(&launch.arguments)
        .current_dir(root())
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("starting {} by setsid", launch.part))?;
    let identity = Identity::of(child.id()).with_context(|| format!("{} has ended at once", launch.part))?;
    let pid_file = place.pid_file(&launch.part);
    fs::write(&pid_file, format!("{identity}\n")).with_context(|| format!("writing {}", pid_file.display()))?;
    Ok(identity)
}

/// Whether a variable would configure a part behind the back of its party file.
fn configures(variable: &str) -> bool {
    const JVM: [&str; 4] = ["JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "CLASSPATH"];
    const PREFIXES: [&str; 5] = ["STELE_", "HBASE_", "HADOOP_", "HDFS_", "ZOOKEEPER_"];
    JVM.contains(&variable) || PREFIXES.iter().any(|prefix| variable.starts_with(prefix))
}

/// The part as its pid file names it, whether alive or not.
pub fn recorded(place: &Place, part: &str) -> Option<Identity> {
    Identity::parse(&fs::read_to_string(place.pid_file(part)).ok()?)
}

/// The part, if it runs.
pub fn running(place: &Place, part: &str) -> Option<Identity> {
    recorded(place, part).filter(Identity::is_alive)
}

/// Stops a part and forgets it.
pub fn stop(place: &Place, part: &str, patience: Duration) -> Result<Ending> {
    let ending = match recorded(place, part) {
        Some(identity) => identity.stop(patience).with_context(|| format!("stopping {part}"))?,
        None => Ending::WasGone,
    };
    match fs::remove_file(place.pid_file(part)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing the pid file of {part}"))
        }
        _ => Ok(ending),
    }
}

/// An error if somebody listens there, and goes on doing so for `patience`: a process that was killed counts as dead before
/// the kernel is through with its memory and closes its sockets.
pub fn expect_free(port: u16, purpose: &str, patience: Duration) -> Result<()> {
    let deadline = Instant::now() + patience;
    loop {
        match TcpListener::bind(("127.0.0.1", port)) {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() >= deadline => bail!(
                "port {port} ({purpose}) cannot be had: {error}. Another program listens there; \
                 end it, or choose other ports with --set port=N"
            ),
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

/// Waits for a condition while the part lives.
pub fn wait_until(
    place: &Place,
    part: &str,
    identity: &Identity,
    limit: Duration,
    mut condition: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let deadline = Instant::now() + limit;
    loop {
        // Asked before the condition: a port that answers proves nothing about a part that is dead.
        if !identity.is_alive() {
            bail!("{part} ended at start; its log ends:\n{}", log_tail(&place.log(part)));
        }
        if condition()? {
            return Ok(());
        }
        if Instant::now() >= deadline {
            bail!(
                "{part} is not ready after {limit:?}; its log ends:\n{}",
                log_tail(&place.log(part))
            );
        }
        std::thread::sleep(PAUSE);
    }
}

/// Waits until a part takes connections.
pub fn wait_for_port(place: &Place, part: &str, identity: &Identity, port: u16, limit: Duration) -> Result<()> {
    wait_until(place, part, identity, limit, || {
        Ok(TcpStream::connect(("127.0.0.1", port)).is_ok())
    })
}

/// The last lines of a log, for an error message.
pub fn log_tail(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(LOG_TAIL_LINES);
    format!(
        "{}\n({})",
        lines.get(from..).unwrap_or_default().join("\n"),
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_written_and_read() {
        let identity = Identity::of(std::process::id()).expect("this process");
        assert_eq!(Identity::parse(&format!("{identity}\n")), Some(identity));
        for text in ["", "1", "1 2", "1 2 boot more", "x 2 boot", "1 x boot"] {
            assert_eq!(Identity::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn another_process_with_the_same_id_is_not_taken_for_it() {
        let own = Identity::of(std::process::id()).expect("this process");
        assert!(own.is_alive());
        let later = Identity {
            started_ticks: own.started_ticks + 1,
            ..own.clone()
        };
        assert!(!later.is_alive());
        // Were it taken for this process, the test would die here.
        assert_eq!(
            later.stop(Duration::from_secs(1)).expect("nothing to do"),
            Ending::WasGone
        );
        let other_boot = Identity {
            boot: "another".to_owned(),
            ..own
        };
        assert!(!other_boot.is_alive());
        assert_eq!(
            other_boot.stop(Duration::from_secs(1)).expect("nothing to do"),
            Ending::WasGone
        );
    }

    #[test]
    fn a_process_that_does_not_listen_to_reason_is_killed() {
        let stubborn = "trap '' TERM; echo ready; while :; do sleep 0.01; done";
        let child = Command::new("sh")
            .args(["-c", stubborn])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell");
        // Killed when dropped, should `stop` not have done it.
        let mut owner = crate::server::Process::new(child);
        let child = owner.child();
        let mut first = [0];
        std::io::Read::read_exact(child.stdout.as_mut().expect("piped"), &mut first).expect("says that it is ready");
        let identity = Identity::of(child.id()).expect("runs");
        assert_eq!(
            identity.stop(Duration::from_millis(200)).expect("stops"),
            Ending::Killed
        );
        assert!(!identity.is_alive());
    }

    #[test]
    fn a_port_in_use_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let error = expect_free(port, "test", Duration::ZERO)
            .expect_err("in use")
            .to_string();
        assert!(error.contains(&format!("port {port} (test)")), "{error}");
    }

    #[test]
    fn a_port_that_is_given_up_in_time_is_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| expect_free(port, "test", Duration::from_secs(60)));
            std::thread::sleep(PAUSE);
            drop(listener);
            waiting.join().expect("no panic").expect("free by now");
        });
    }
}
