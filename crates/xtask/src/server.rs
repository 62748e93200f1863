//! A real `stele` process on free ports with a data directory of its own.
//!
//! It is killed when dropped.

use crate::proc_stat::ProcStat;
use crate::shell::{Run, cargo, target_dir};
use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Recovery of the largest log we test takes seconds; a minute means that something hangs.
const READY_WAIT: Duration = Duration::from_secs(60);

/// A child process that does not outlive this value.
pub struct Process {
    child: Child,
}

impl Process {
    /// Wraps a child.
    pub fn new(child: Child) -> Process {
        Process { child }
    }

    /// SIGKILL, and waits until it is gone.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// The exit status when it has ended by itself.
    pub fn ended(&mut self) -> Result<Option<std::process::ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// The child, for pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Its id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// CPU seconds used so far, user and system.
    pub fn cpu_seconds(&self) -> Result<f64> {
        Ok(ProcStat::read(&self.child.id().to_string())?.cpu_seconds())
    }

    /// SIGTERM, and waits until it has ended.
    pub fn terminate(&mut self) -> Result<()> {
        self.signal(Signal::TERM)?;
        self.child.wait()?;
        Ok(())
    }

    /// SIGSTOP: it does nothing until it is resumed.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// SIGCONT.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// The resident set now, in bytes.
    pub fn rss_bytes(&self) -> Result<u64> {
        self.status_bytes("VmRSS:")
    }

    /// The largest resident set so far, in bytes.
    pub fn peak_rss_bytes(&self) -> Result<u64> {
        self.status_bytes("VmHWM:")
    }

    /// Forgets the largest resident set so far.
    pub fn forget_peak_rss(&self) -> Result<()> {
        fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5").context("forgetting the peak")
    }

    fn status_bytes(&self, name: &str) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status
            .lines()
            .find_map(|l| l.strip_prefix(name))
            .with_context(|| format!("no {name}"))?;
        let kib: u64 = line.trim().trim_end_matches(" kB").trim().parse()?;
        Ok(kib * 1024)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already; there is nobody to tell either way.
        let _ = self.kill();
    }
}

/// A running server.
pub struct Server {
    process: Process,
    bigtable: String,
    http: String,
}

/// How to start one.
pub struct Start<'a> {
    pub data: &'a Path,
    pub log: &'a Path,
    pub arguments: &'a [&'a str],
}

impl Server {
    /// Starts a server and waits until it is ready.
    pub fn start(start: &Start<'_>) -> Result<Server> {
        Server::start_with(start, &[])
    }

    /// The same with variables of its environment.
    pub fn start_with(start: &Start<'_>, environment: &[(&str, &str)]) -> Result<Server> {
        let bigtable = free_address()?;
        let http = free_address()?;
        let log = File::options().create(true).append(true).open(start.log)?;
        let child = Run::new(stele())
            .args(["start", "--bigtable", &bigtable, "--http", &http, "--data"])
            .args([start.data])
            .args(start.arguments)
            .into_command()
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("starting the server")?;
        let mut server = Server {
            process: Process::new(child),
            bigtable,
            http,
        };
        if let Err(error) = server.wait_ready() {
            let log = fs::read_to_string(start.log).unwrap_or_default();
            let tail: Vec<&str> = log.lines().rev().take(20).collect();
            bail!("{error:#}\n{}", tail.into_iter().rev().collect::<Vec<_>>().join("\n"));
        }
        Ok(server)
    }

    fn wait_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + READY_WAIT;
        while Instant::now() < deadline {
            if let Some(status) = self.process.ended()? {
                bail!("the server ended at start: {status}");
            }
            if http_get(&self.http, "/readyz").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("the server is not ready after {READY_WAIT:?}")
    }

    /// Where it serves the Bigtable API.
    pub fn address(&self) -> &str {
        &self.bigtable
    }

    /// Where it serves health and metrics.
    pub fn http(&self) -> &str {
        &self.http
    }

    /// The value of one of its metrics now; with its labels, where it has any.
    pub fn metric(&self, name: &str) -> Result<f64> {
        let metrics = http_get(&self.http, "/metrics")?;
        metric_of(&metrics, name).with_context(|| format!("the server has no metric {name}"))
    }

    /// The process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}

/// Which build of the server the tasks of this process start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// As users run it.
    Release,
    /// As the cargo tests build it, with debug assertions.
    Tests,
}

static BUILD: OnceLock<Build> = OnceLock::new();

/// Chooses the build. Only the first choice counts; without any it is [`Build::Release`].
pub fn choose(build: Build) {
    BUILD.get_or_init(|| build);
}

fn chosen() -> Build {
    BUILD.get().copied().unwrap_or(Build::Release)
}

/// The server's program.
pub fn stele() -> PathBuf {
    match chosen() {
        Build::Release => target_dir().join("release/stele"),
        Build::Tests => target_dir().join("debug/stele"),
    }
}

/// The command that builds the release.
pub fn building() -> Run {
    cargo(["build", "--release", "--package", "stele"])
}

/// Builds the server. The one of the tests is built together with them, before this process begins.
pub fn build() -> Result<()> {
    match chosen() {
        Build::Release => building().check(),
        Build::Tests => {
            ensure!(stele().exists(), "the server is built by `cargo xtask test`");
            Ok(())
        }
    }
}

/// Runs a command of `stele` at the server with this address, for at most this long; its output.
pub fn command(address: &str, wait: Duration, arguments: &[&str]) -> Result<String> {
    Run::new("timeout")
        .args([wait.as_secs().to_string()])
        .args([stele()])
        .args(arguments)
        .args(["--address", address])
        .output()
}

/// An address nobody listens on. Somebody might take it before the caller does; then the start fails loudly.
pub fn free_address() -> Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

/// A plain GET; the answer with its headers.
pub fn http_get(address: &str, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// A value of a page of metrics.
pub fn metric_of(metrics: &str, name: &str) -> Option<f64> {
    let mut values = metrics
        .lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    values.next()?.trim().parse().ok()
}

/// A directory below `target/` that is emptied first and removed when dropped, unless the test failed.
pub struct Scratch {
    path: PathBuf,
    keep: bool,
}

impl Scratch {
    /// Makes it.
    pub fn new(name: &str) -> Result<Scratch> {
        let path = target_dir()
            .join("scratch")
            .join(format!("{name}-{}", std::process::id()));
        if path.exists() {
            fs::remove_dir_all(&path)?;
        }
        fs::create_dir_all(&path)?;
        Ok(Scratch { path, keep: true })
    }

    /// A path in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Its contents are not needed any more.
    pub fn passed(mut self) {
        self.discard();
    }

    /// Its contents are removed in any case.
    pub fn discard(&mut self) {
        self.keep = false;
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.keep {
            eprintln!("kept for inspection: {}", self.path.display());
        } else {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}
