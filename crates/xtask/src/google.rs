//! Google's own integration tests of its Go and Java clients, over TLS with a token.
//!
//! They are published with the clients, and run unmodified against the managed service, or any server that has its address. A small
//! metadata server hands out the token, as on a machine of Google's cloud.

mod go;
mod java;

use crate::launch::{listening, spawned, wait};
use crate::server::{self, Build, Process, Scratch, free_address, stele};
use crate::shell::{Run, cargo};
use crate::tally::Tally;
use crate::tools;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// The names of the server: its endpoint, that to which the client reports its own metrics, and the endpoint of one client for
/// which the tests forget to set another.
const NAMES: &str = "localhost,monitoring.googleapis.com,bigtableadmin.googleapis.com";

/// Whether all of them pass, but for those that are left out.
pub fn run() -> Result<bool> {
    // As the cargo tests build it; the answers are the same.
    server::choose(Build::Tests);
    cargo(["build", "--package", "stele"]).check()?;
    let tally = with_server(|secured| {
        let mut tally = go::check(secured)?;
        println!("Go client: {} passed, {} failed", tally.passed, tally.failed);
        tally.add(java::check(secured)?);
        Ok(tally)
    })?;
    println!("{} passed, {} failed", tally.passed, tally.failed);
    Ok(tally.failed == 0 && tally.passed > 0)
}

/// The tests of the Go client, with a server that is built already.
pub fn check() -> Result<Tally> {
    with_server(go::check)
}

fn with_server(suites: impl FnOnce(&Secured) -> Result<Tally>) -> Result<Tally> {
    let scratch = Scratch::new("google")?;
    let tally = suites(&Secured::start(&scratch)?)?;
    if tally.failed == 0 {
        scratch.passed();
    }
    Ok(tally)
}

fn say_left_out(tests: &[(&str, &str)]) {
    for (test, needs) in tests {
        println!("left out: {test}: needs {needs}");
    }
}

/// A server with TLS and access rules, and the place where clients find a token for it.
struct Secured {
    _server: Process,
    _metadata: Process,
    /// Where the server is, with a name that is in its certificate.
    endpoint: String,
    /// The metadata server, which is a proxy as well.
    metadata: String,
    authority: PathBuf,
    /// File with the token.
    token: PathBuf,
    /// For trust stores and logs.
    dir: PathBuf,
}

impl Secured {
    fn start(scratch: &Scratch) -> Result<Secured> {
        let (certificates, tokens) = (scratch.join("certificates"), scratch.join("tokens"));
        Run::new(stele())
            .args(["certificates", "--server", NAMES, "--dir"])
            .args([&certificates])
            .check()?;
        let token = scratch.join("token");
        let made = Run::new(stele())
            .args(["token", "create", "root", "--file"])
            .args([&tokens])
            .output()?;
        fs::write(&token, made).with_context(|| format!("writing {}", token.display()))?;
        let address = free_address()?;
        let (_, port) = address.rsplit_once(':').context("an address without a port")?;
        let authority = certificates.join("ca.pem");
        ensure!(authority.exists(), "no authority was made");
        let server = server(scratch, &certificates, &tokens, &address)?;
        let metadata = free_address()?;
        let program = Run::new(tools::go_program("metadata")?)
            .args([&metadata])
            .args([&token])
            .args([&address]);
        Ok(Secured {
            _server: server,
            _metadata: listening("metadata", program, &metadata, &scratch.join("metadata.log"))?,
            endpoint: format!("localhost:{port}"),
            metadata,
            authority,
            token,
            dir: scratch.join("clients"),
        })
    }
}

fn server(scratch: &Scratch, certificates: &Path, tokens: &Path, address: &str) -> Result<Process> {
    let http = free_address()?;
    let command = Run::new(stele())
        .args([
            "start",
            "--hbase",
            "off",
            "--bigtable",
            address,
            "--http",
            &http,
            "--data",
        ])
        .args([scratch.join("data")])
        .args(["--tls-cert"])
        .args([certificates.join("localhost.pem")])
        .args(["--tls-key"])
        .args([certificates.join("localhost.key")])
        .args(["--access", "rules", "--superusers", "root", "--tokens"])
        .args([tokens]);
    let mut process = spawned("stele", command, &scratch.join("server.log"))?;
    wait("stele", &mut process, || {
        let health = Run::new(stele())
            .args(["health", "--http", &format!("https://{http}"), "--tls-ca"])
            .args([certificates.join("ca.pem")]);
        let quiet = health
            .into_command()
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        quiet.is_ok_and(|status| status.success())
    })?;
    Ok(process)
}
