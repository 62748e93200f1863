//! A cluster on this machine: etcd of three members, an S3 server, and nodes of Stele, all on loopback.
//!
//! * Without options it runs until it is interrupted.
//! * `--kills N`: kills a node in each of N rounds while Google's client writes through the others. No acknowledged write may
//!   be missing afterwards.

mod failures;
mod members;

use crate::server::{self, Process, Scratch, free_address, http_get};
use crate::shell::Run;
use crate::stores::{self, Store};
use anyhow::{Context, Result, bail, ensure};
use members::Members;
use std::time::{Duration, Instant};

/// Memory of each node, unless the command line says otherwise.
const MEMORY: &str = "512MiB";
/// A node joins in seconds.
const READY_WAIT: Duration = Duration::from_secs(60);

/// The options of `cargo xtask cluster`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Nodes.
    #[arg(long, default_value_t = 3)]
    nodes: usize,
    /// Rounds in each of which a node is killed under load, and another one takes its place.
    #[arg(long, value_name = "ROUNDS")]
    kills: Option<u32>,
    /// Further arguments of `stele start`.
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Everything that runs; killed when dropped.
pub struct Cluster {
    scratch: Scratch,
    etcd: Members,
    store: Store,
    nodes: Vec<Node>,
    arguments: Vec<String>,
    started: usize,
}

/// One node.
pub struct Node {
    name: String,
    process: Process,
    bigtable: String,
    hbase: String,
    http: String,
}

/// Runs a cluster; whether everything was in order.
pub fn run(arguments: &Arguments) -> Result<bool> {
    ensure!(arguments.nodes > 0, "a cluster has a node at least");
    let mut cluster = Cluster::start(arguments.nodes, &arguments.arguments)?;
    let passed = match arguments.kills {
        Some(rounds) => failures::kills(&mut cluster, rounds)?,
        None => {
            cluster.show();
            cluster.wait()?;
            false
        }
    };
    if passed {
        cluster.scratch.passed();
    }
    Ok(passed)
}

impl Cluster {
    /// Starts etcd, the S3 server and the nodes.
    fn start(nodes: usize, arguments: &[String]) -> Result<Cluster> {
        server::build()?;
        let scratch = Scratch::new("cluster")?;
        let etcd = Members::start(&scratch)?;
        let store = stores::start_s3(&scratch)?;
        let mut cluster = Cluster {
            scratch,
            etcd,
            store,
            nodes: Vec::new(),
            arguments: arguments.to_vec(),
            started: 0,
        };
        for _ in 0..nodes {
            cluster.add_node()?;
        }
        Ok(cluster)
    }

    /// Starts one more node, and waits until it serves.
    fn add_node(&mut self) -> Result<()> {
        self.started += 1;
        let name = format!("node-{}", self.started);
        let [bigtable, hbase, http, peer] = [free_address()?, free_address()?, free_address()?, free_address()?];
        let log = self.scratch.join(&format!("{name}.log"));
        let file = std::fs::File::create(&log).with_context(|| format!("making {}", log.display()))?;
        let child = Run::new(server::stele())
            .args(["start", "--cluster", &self.etcd.url("test"), "--peer", &peer])
            .args(["--bigtable", &bigtable, "--hbase", &hbase, "--http", &http])
            .args(["--data", &format!("{}/cluster", self.store.url()), "--memory", MEMORY])
            .args(["--data-option", self.store.options()])
            .args(&self.arguments)
            .into_command()
            .stdin(std::process::Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .context("starting a node")?;
        let mut process = Process::new(child);
        let deadline = Instant::now() + READY_WAIT;
        while !http_get(&http, "/readyz").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")) {
            if let Some(status) = process.ended()? {
                bail!("{name} ended at start: {status}; see {}", log.display());
            }
            ensure!(Instant::now() < deadline, "{name} is not ready; see {}", log.display());
            std::thread::sleep(Duration::from_millis(20));
        }
        self.nodes.push(Node {
            name,
            process,
            bigtable,
            hbase,
            http,
        });
        Ok(())
    }

    fn show(&self) {
        println!("etcd    {}", self.etcd.url("test"));
        println!("data    {}/cluster", self.store.url());
        for node in &self.nodes {
            let Node {
                name,
                bigtable,
                hbase,
                http,
                ..
            } = node;
            println!("{name}  Bigtable {bigtable}  HBase {hbase}  http://{http}");
        }
        if let Some(node) = self.nodes.first() {
            println!("export BIGTABLE_EMULATOR_HOST={}", node.bigtable);
        }
        println!("Ctrl-C ends the cluster.");
    }

    /// Waits until a node ends by itself. An interrupt of the terminal ends all processes.
    fn wait(&mut self) -> Result<()> {
        loop {
            for node in &mut self.nodes {
                if let Some(status) = node.process.ended()? {
                    bail!("{} ended: {status}", node.name);
                }
            }
            std::thread::sleep(Duration::from_millis(500));
        }
    }
}
