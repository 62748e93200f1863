//! A real S3 server for tests, and what is tested on it.
//!
//! The server is versitygw over a folder: conditional puts, ranges, uploads in pieces and listings as S3 has them. It is
//! built by the Go toolchain once and listens on loopback only.
//!
//! * [`conformance`]: the storage suite and the fencing tests, over the network.
//! * [`survive`]: acknowledged rows outlive SIGKILL and an empty local disk.
//! * [`zombie`]: a second server takes over while the first is written to.

use crate::remote::{self, Remote};
use crate::server::{Process, Scratch, free_address};
use crate::shell::{Run, cargo};
use crate::tally::Tally;
use crate::{tools, zombie as takeover};
use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

const BUCKET: &str = "stele";
const ACCESS: &str = "stele";
const SECRET: &str = "stele-secret";
/// It listens within a few tens of milliseconds.
const READY_WAIT: Duration = Duration::from_secs(20);

/// A running S3 server; killed when dropped.
pub struct Gateway {
    _process: Process,
    endpoint: String,
    /// Where it keeps its buckets.
    root: PathBuf,
}

impl Gateway {
    /// Starts one over an empty bucket.
    pub fn start(scratch: &Scratch) -> Result<Gateway> {
        let program = tools::versitygw()?;
        let root = scratch.join("s3");
        fs::create_dir_all(root.join(BUCKET))?;
        let address = free_address()?;
        let log = File::create(scratch.join("s3.log"))?;
        let child = Run::new(program)
            .args(["--port", &address, "--keep-alive", "--quiet", "posix"])
            .args([&root])
            .env("ROOT_ACCESS_KEY_ID", ACCESS)
            .env("ROOT_SECRET_ACCESS_KEY", SECRET)
            .into_command()
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("starting the S3 server")?;
        let mut process = Process::new(child);
        let deadline = Instant::now() + READY_WAIT;
        while TcpStream::connect(&address).is_err() {
            if let Some(status) = process.ended()? {
                bail!("the S3 server ended at start: {status}; it needs a file system with extended attributes");
            }
            if Instant::now() > deadline {
                bail!("the S3 server does not listen after {READY_WAIT:?}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Gateway {
            _process: process,
            endpoint: format!("http://{address}"),
            root,
        })
    }
}

impl Remote for Gateway {
    fn data(&self, prefix: &str) -> PathBuf {
        PathBuf::from(format!("s3://{BUCKET}/{prefix}"))
    }

    fn arguments(&self) -> Vec<String> {
        let option = format!(
            "endpoint={},allow_http=true,region=us-east-1,access_key_id={ACCESS},secret_access_key={SECRET}",
            self.endpoint
        );
        vec!["--data-option".to_owned(), option]
    }
}

/// The storage suite and the fencing tests on a real S3 server.
pub fn conformance() -> Result<Tally> {
    let scratch = Scratch::new("s3")?;
    let gateway = Gateway::start(&scratch)?;
    let mut tally = Tally::default();
    let mut success = true;
    for package in ["stele-objects", "stele"] {
        success &= tests(package, &gateway, &mut tally)?;
    }
    scratch.passed();
    Ok(tally.with_exit(success))
}

/// The tests of a package that want an S3 server; whether all passed.
fn tests(package: &str, gateway: &Gateway, tally: &mut Tally) -> Result<bool> {
    cargo(["test", "--package", package, "--test", "s3"])
        .env("STELE_TEST_S3", format!("s3://{BUCKET}"))
        .env("STELE_TEST_S3_FOLDER", gateway.root.join(BUCKET))
        .env("AWS_ENDPOINT_URL", &gateway.endpoint)
        .env("AWS_ALLOW_HTTP", "true")
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ACCESS_KEY_ID", ACCESS)
        .env("AWS_SECRET_ACCESS_KEY", SECRET)
        .lines(|line| {
            if !line.is_empty() {
                println!("{line}");
            }
            tally.cargo_line(line);
        })
}

/// Whether `rows` acknowledged rows are all there after SIGKILL and a start with an empty cache folder.
pub fn survive(rows: u64) -> Result<bool> {
    let scratch = Scratch::new("s3-survive")?;
    let gateway = Gateway::start(&scratch)?;
    let passed = remote::survive(&gateway, &scratch, rows)?;
    if passed {
        scratch.passed();
    }
    Ok(passed)
}

/// Whether no acknowledged write is lost while servers take one prefix from each other.
pub fn zombie(rounds: u32) -> Result<bool> {
    let scratch = Scratch::new("zombie")?;
    let gateway = Gateway::start(&scratch)?;
    let passed = takeover::run(&gateway, &scratch, rounds)?;
    if passed {
        scratch.passed();
    }
    Ok(passed)
}
