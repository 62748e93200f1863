//! Google's own integration tests of its Go and Java clients, over TLS with a token.
//!
//! They are published with the clients, and run unmodified against the managed service, or any server that has its address. A small
//! metadata server hands out the token, as on a machine of Google's cloud.

mod go;
mod java;

use crate::credentials::{self, Certificates};
use crate::launch::{listening, spawned, wait};
use crate::server::{self, Build, Process, Scratch, free_address, stele};
use crate::shell::{Run, cargo};
use crate::tally::Tally;
use crate::tools;
use anyhow::{Context, Result, ensure};
use std::ffi::OsString;
use std::path::PathBuf;

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
        println!("Go client: {tally}");
        tally.add(java::check(secured)?);
        Ok(tally)
    })?;
    println!("{tally}");
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
        let certificates = Certificates::make(&stele(), scratch.join("certificates"), NAMES)?;
        let (authority, token) = (certificates.authority(), scratch.join("token"));
        ensure!(authority.exists(), "no authority was made");
        let rights = credentials::superuser(&stele(), "root", scratch.join("tokens"), &token)?;
        let address = free_address()?;
        let (_, port) = address.rsplit_once(':').context("an address without a port")?;
        let server = server(scratch, &certificates, rights, &address)?;
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

fn server(scratch: &Scratch, certificates: &Certificates, rights: Vec<OsString>, address: &str) -> Result<Process> {
    let http = free_address()?;
    let command = Run::new(stele())
        .args(["start", "--hbase", "off", "--bigtable", address])
        .args(["--http", &http, "--data"])
        .args([scratch.join("data")])
        .args(certificates.of_server())
        .args(rights);
    let mut process = spawned("stele", command, &scratch.join("server.log"))?;
    wait("stele", &mut process, || certificates.is_ready(&stele(), &http))?;
    Ok(process)
}
