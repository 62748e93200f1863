//! The servers' processes: start, CPU time, end.

use anyhow::{Context, bail};
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use stele_bench::xray::process_cpu;

/// Opening an empty folder takes milliseconds.
const READY_SECONDS_MAX: u64 = 20;

/// A server under test. If this value started it, dropping the value ends it.
pub struct Server {
    name: String,
    pid: u32,
    address: String,
    child: Option<Child>,
    /// Removed with this value.
    _data: Option<tempfile::TempDir>,
}

impl Server {
    /// The echo, by this same program.
    pub fn echo() -> anyhow::Result<Self> {
        let program = std::env::current_exe()?;
        let mut child = Command::new(program).arg("--echo").stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        let stdout = child.stdout.take().context("no output")?;
        BufReader::new(stdout).read_line(&mut line)?;
        Ok(Server {
            name: "echo".to_owned(),
            pid: child.id(),
            address: line.trim().to_owned(),
            child: Some(child),
            _data: None,
        })
    }

    /// Stele over an empty folder.
    pub fn stele(program: PathBuf, arguments: &[String]) -> anyhow::Result<Self> {
        let data = tempfile::tempdir()?;
        let (address, http) = (free_address()?, free_address()?);
        let child = Command::new(&program)
            .args(["start", "--durability", "flush", "--log", "warn"])
            .args(["--bigtable", &address, "--http", &http, "--data"])
            .arg(data.path())
            .args(arguments)
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        let mut server = Server {
            name: program.display().to_string(),
            pid: child.id(),
            address,
            child: Some(child),
            _data: Some(data),
        };
        server.wait_ready(&http)?;
        Ok(server)
    }

    /// A server that the user has started.
    pub fn running(address: &str, pid: u32) -> Self {
        Server {
            name: address.to_owned(),
            pid,
            address: address.to_owned(),
            child: None,
            _data: None,
        }
    }

    /// Its name in tables.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// User and system time so far.
    pub fn cpu_seconds(&self) -> anyhow::Result<f64> {
        process_cpu(self.pid).context("the server is gone")
    }

    fn wait_ready(&mut self, http: &str) -> anyhow::Result<()> {
        let end = Instant::now() + Duration::from_secs(READY_SECONDS_MAX);
        while Instant::now() < end {
            if let Some(status) = self.child.as_mut().and_then(|child| child.try_wait().transpose()) {
                bail!("the server ended: {}", status?);
            }
            if is_ready(http) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("the server is not ready after {READY_SECONDS_MAX} s")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended by itself.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

fn is_ready(http: &str) -> bool {
    use std::io::{Read, Write};
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(http)?;
        write!(
            stream,
            "GET /readyz HTTP/1.1\r\nHost: {http}\r\nConnection: close\r\n\r\n"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

/// `target/release/stele` for `target/release/examples/server_cost`.
pub fn beside_this() -> anyhow::Result<PathBuf> {
    let this = std::env::current_exe()?;
    let folder = this.ancestors().nth(2).context("this program's folder")?;
    Ok(folder.join("stele"))
}

fn free_address() -> std::io::Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}
