//! The real process for tests: started, asked, watched, ended.
#![allow(dead_code, reason = "each test uses a part of it")]

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};

/// The program.
pub const STELE: &str = env!("CARGO_BIN_EXE_stele");

/// The project's promise: the most memory that a server takes beyond its budget.
pub const OVERDRAFT_BYTES: u64 = 200_000_000;

/// The arguments by which a server listens on free ports.
pub const FREE_PORTS: [&str; 4] = ["--bigtable", "127.0.0.1:0", "--http", "127.0.0.1:0"];

/// The program with none of the caller's settings.
pub fn stele(arguments: &[&str]) -> Command {
    let mut command = Command::new(STELE);
    command.args(arguments).env_clear().stdin(Stdio::null());
    command
}

/// A running server on free ports, which is killed when this is dropped.
pub struct Server {
    child: Child,
    /// Where it serves the Bigtable API: `host:port`.
    pub bigtable: String,
    /// Where it serves the HBase API, if it does.
    pub hbase: Option<String>,
    /// Where it serves health and metrics.
    pub http: String,
}

impl Server {
    /// Starts one over a folder, with these further arguments.
    pub fn start(data: &Path, arguments: &[&str]) -> Server {
        Server::run(stele(&["start"]).arg("--data").arg(data).args(arguments))
    }

    /// Starts a server by a command that lacks only the ports, and waits until it prints its addresses.
    pub fn run(command: &mut Command) -> Server {
        let command = command.args(FREE_PORTS).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let bigtable = after(&mut lines, "Bigtable");
        let hbase = after(&mut lines, "HBase").and_then(|text| text.split([',', ' ']).next().map(str::to_owned));
        let health = after(&mut lines, "health");
        // Without addresses the process has ended, and its error output has no reader here; the exit status is all
        // there is.
        let ended = if health.is_none() { child.wait().ok() } else { None };
        assert!(bigtable.is_some() && health.is_some(), "no banner: {ended:?}");
        let (bigtable, health) = (bigtable.unwrap(), health.unwrap());
        let http = health.trim_start_matches("https://").trim_start_matches("http://");
        let http = http.split('/').next().unwrap();
        Server {
            child,
            bigtable,
            hbase: hbase.filter(|address| address != "off"),
            http: http.to_owned(),
        }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A command line client of this server.
    pub fn client_command(&self, arguments: &[&str]) -> Command {
        let mut command = stele(arguments);
        command.env("STELE_ADDRESS", &self.bigtable);
        command
    }

    /// The output of such a client.
    pub fn client(&self, arguments: &[&str]) -> Output {
        self.client_command(arguments).output().unwrap()
    }

    /// The standard output of a client that must succeed.
    pub fn says(&self, arguments: &[&str]) -> String {
        let output = self.client(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Status and whole response of a GET request.
    pub fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.http).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer)
    }

    /// A metric without labels.
    pub fn metric(&self, name: &str) -> u64 {
        let (_, answer) = self.get("/metrics");
        let mut lines = answer.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        assert!(value.is_some(), "no metric {name}");
        value.unwrap().trim().parse().unwrap()
    }

    /// Ends it by a signal; its exit code, if it has one.
    pub fn stop(mut self, signal: Signal) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        self.wait().code()
    }

    /// Waits until it ends by itself; its exit code, if it has one.
    pub fn wait_for_end(mut self) -> Option<i32> {
        self.wait().code()
    }

    fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Forgets the largest resident set so far.
    pub fn forget_peak(&self) {
        fs::write(format!("/proc/{}/clear_refs", self.pid()), "5").unwrap();
    }

    /// The largest resident set since that was forgotten.
    pub fn peak_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The rest of the next line that begins with `label`.
fn after(lines: &mut Lines<BufReader<ChildStdout>>, label: &str) -> Option<String> {
    lines.find_map(|line| {
        let line = line.ok()?;
        line.trim_start().strip_prefix(label).map(|rest| rest.trim().to_owned())
    })
}
