//! Google's own integration tests of its Go client, over TLS with a token.
//!
//! They are in the module of the client, and run unmodified against the managed service, or any server that has its address. A small
//! metadata server hands out the token, as on a machine of Google's cloud.

use crate::launch::{listening, spawned, wait};
use crate::server::{self, Build, Process, Scratch, free_address, stele};
use crate::shell::{Run, cargo, root};
use crate::tally::{GoEvents, Tally};
use crate::tools;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// The names of the server: its endpoint, that to which the client reports its own metrics, and the endpoint of one client for
/// which the tests forget to set another.
const NAMES: &str = "localhost,monitoring.googleapis.com,bigtableadmin.googleapis.com";

/// Tests that need calls which the server refuses with UNIMPLEMENTED, or services besides Bigtable.
const LEFT_OUT: [(&str, &str); 13] = [
    ("TestIntegration_Admin$", "tiered storage"),
    ("TestIntegration_AdminCreateInstance", "editions of instances"),
    (
        "TestIntegration_AdminEncryptionInfo",
        "a key of Google's service for keys",
    ),
    ("TestIntegration_AdminLogicalView", "logical views"),
    ("TestIntegration_AdminMaterializedView", "materialized views"),
    ("TestIntegration_AdminSchemaBundle", "schema bundles"),
    ("TestIntegration_CreateTableWithRowKeySchema", "schemas of row keys"),
    ("TestIntegration_DataMaterializedView", "materialized views"),
    ("TestIntegration_EnableChangeStream", "change streams"),
    ("TestIntegration_Execute", "SQL"),
    ("TestIntegration_ExportBuiltInMetrics", "Google's service for metrics"),
    ("TestIntegration_SessionVRpc", "no server: they bring one of their own"),
    ("TestIntegration_UpdateRowKeySchemaInTable", "schemas of row keys"),
];

/// Whether all of them pass, but for those that are left out.
pub fn run() -> Result<bool> {
    // As the cargo tests build it; the answers are the same.
    server::choose(Build::Tests);
    cargo(["build", "--package", "stele"]).check()?;
    let tally = check()?;
    println!("{} passed, {} failed", tally.passed, tally.failed);
    Ok(tally.failed == 0 && tally.passed > 0)
}

/// The same with a server that is built already.
pub fn check() -> Result<Tally> {
    let scratch = Scratch::new("google")?;
    let secured = Secured::start(&scratch)?;
    let mut events = GoEvents::default();
    let success = secured.tests()?.lines(|line| {
        if let Some(other) = events.line(line) {
            println!("{other}");
        }
    })?;
    let (tally, report) = events.finish();
    if !success {
        print!("{report}");
    }
    for (test, needs) in LEFT_OUT {
        println!("left out: {test}: needs {needs}");
    }
    if tally.failed == 0 {
        scratch.passed();
    }
    Ok(tally.with_exit(success))
}

/// A server with TLS and access rules, and the place where clients find a token for it.
struct Secured {
    _server: Process,
    _metadata: Process,
    port: String,
    metadata: String,
    authority: PathBuf,
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
        let server = server(scratch, &certificates, &tokens, &address)?;
        let metadata = free_address()?;
        let program = Run::new(tools::go_program("metadata")?)
            .args([&metadata])
            .args([&token])
            .args([&address]);
        Ok(Secured {
            _server: server,
            _metadata: listening("metadata", program, &metadata, &scratch.join("metadata.log"))?,
            port: port.to_owned(),
            metadata,
            authority,
        })
    }

    /// The command that runs the tests.
    fn tests(&self) -> Result<Run> {
        // The name is in the certificate.
        let endpoint = format!("localhost:{}", self.port);
        let left_out: Vec<&str> = LEFT_OUT.iter().map(|(test, _)| *test).collect();
        ensure!(self.authority.exists(), "no authority was made");
        Ok(Run::new("go")
            .args([
                "test",
                "-trimpath",
                "-json",
                "-count=1",
                "-timeout=15m",
                "-run=TestIntegration",
            ])
            .args([format!("-skip={}", left_out.join("|"))])
            .args(["cloud.google.com/go/bigtable", "-args", "-it.use-prod"])
            // A server has an instance of each name, with this cluster.
            .args(["-it.project=p", "-it.instance=i", "-it.cluster=stele"])
            .args([
                format!("-it.admin-endpoint={endpoint}"),
                format!("-it.data-endpoint={endpoint}"),
            ])
            .dir(root().join("tests/clients/go"))
            .env("GCE_METADATA_HOST", &self.metadata)
            .env("HTTPS_PROXY", format!("http://{}", self.metadata))
            .env("SSL_CERT_FILE", &self.authority)
            .env("GCLOUD_TESTS_BIGTABLE_UNIVERSE_DOMAIN", "googleapis.com"))
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
