//! Runs a cluster on this machine.
//!
//! It has an etcd of three members, an S3 server, and nodes of Stele, all on loopback or in network namespaces.
//!
//! * Without options it runs until it is interrupted.
//! * `--kills N`: kills a node in each of N rounds while Google's client writes through the others. No acknowledged write may
//!   be missing afterwards.
//! * `--failovers N`: kills a node with a full log in each of N rounds, and measures how long rows are not available.
//! * `--moves N`: moves and splits tablets, and restarts all nodes under load; no client may see an error.
//! * `--upgrade-from REVISION`: replaces nodes of an earlier version one after the other under load; no client may see an error.
//! * `--hbase N`: moves and splits regions by HBase's client, which reads and writes, and then kills a node. No call may fail.
//! * `--moments N`: archives the logs, and restores a table to three moments of each of N rounds of faults. Each row must be as it was.
//! * `--snapshots N`: takes snapshots while tablets move under load. Each must have the rows of a moment between its beginning and end.
//! * `--sizes 1,2,4`: measures clusters of these sizes with HBase's own client.
//! * `--bench SUITE`: runs a suite of `stele-bench` against the nodes, and kills nodes when the suite says so.
//! * `--chaos TIME`: injects random faults, those of the network included, while every row must behave like one register.

mod chaos;
mod failover;
mod failures;
mod fault;
mod hbase;
pub mod members;
mod moments;
mod moves;
mod node;
mod sizes;
mod snapshots;
mod suites;
mod upgrade;

use crate::hdfs::Hdfs;
use crate::hosts::{self, Host, Network};
use crate::remote::Remote;
use crate::server::{self, Scratch};
use crate::stores::{self, Store};
use crate::tools;
use anyhow::{Context, Result, bail, ensure};
use clap::value_parser;
use members::Members;
use node::{Node, Status};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Tablets have owners again seconds after any fault.
const SETTLE_WAIT: Duration = Duration::from_secs(90);

/// The options of `cargo xtask cluster`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Nodes.
    #[arg(long, default_value_t = 3)]
    nodes: usize,
    /// Rounds in each of which a node is killed under load, and another one takes its place.
    #[arg(long, value_name = "ROUNDS", group = "task", value_parser = value_parser!(u32).range(1..))]
    kills: Option<u32>,
    /// Rounds in each of which a node is killed whose log holds as much as `--log-mib` says.
    #[arg(long, value_name = "ROUNDS", group = "task", value_parser = value_parser!(u32).range(1..))]
    failovers: Option<u32>,
    /// The log of a node that is killed, in MiB.
    #[arg(long, default_value_t = 256)]
    log_mib: u64,
    /// Moves of tablets under load, then splits, then a restart of each node.
    #[arg(long, value_name = "MOVES", group = "task")]
    moves: Option<u32>,
    /// Splits of tablets that follow the moves.
    #[arg(long, value_name = "SPLITS", default_value_t = 200)]
    splits: u32,
    /// A revision of this repository. All nodes have its version at first, and each gets this one under load.
    #[arg(long, value_name = "REVISION", group = "task")]
    upgrade_from: Option<String>,
    /// Moves of regions by HBase's own client, which reads and writes meanwhile. Then a node is killed.
    #[arg(long, value_name = "MOVES", group = "task", value_parser = value_parser!(u32).range(1..))]
    hbase: Option<u32>,
    /// Rounds of a fault and of restores to moments, by archived logs.
    #[arg(long, value_name = "ROUNDS", group = "task", value_parser = value_parser!(u32).range(1..))]
    moments: Option<u32>,
    /// Bytes of each value of `--moments`, in MiB, in three rows that are written slowly; numbers in many rows when absent.
    #[arg(long, value_name = "MIB", requires = "moments")]
    value_mib: Option<u32>,
    /// Snapshots that are taken while tablets move, and restored.
    #[arg(long, value_name = "SNAPSHOTS", group = "task", value_parser = value_parser!(u32).range(1..))]
    snapshots: Option<u32>,
    /// Numbers of nodes of clusters that are measured in one run.
    #[arg(long, value_name = "NODES", value_delimiter = ',', group = "task")]
    sizes: Vec<usize>,
    /// Minutes of random faults.
    #[arg(long, value_name = "MINUTES", group = "task", value_parser = value_parser!(u64).range(1..))]
    chaos: Option<u64>,
    #[command(flatten)]
    suite: suites::Suite,
    /// Where the data and the commit logs are.
    #[arg(long, value_enum, default_value_t = Medium::S3)]
    medium: Medium,
    /// Makes the choices of `--chaos` and `--moments` repeatable.
    #[arg(long)]
    seed: Option<u64>,
    /// Shows the checker wrong answers, so that `--chaos` and `--moments` must fail.
    #[arg(long)]
    planted_stale_reads: bool,
    /// Further arguments of `stele start`.
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// The storages of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Medium {
    /// An S3 server.
    S3,
    /// HDFS.
    Hdfs,
    /// Data on an S3 server, commit logs in HDFS.
    S3WithHdfsLogs,
}

/// DataNodes: files have two replicas.
const DATA_NODES: usize = 2;

/// Everything that runs; killed when dropped.
pub struct Cluster {
    scratch: Scratch,
    network: Option<Network>,
    etcd: Members,
    store: Store,
    store_host: Host,
    /// Where the nodes have data or logs in it.
    hdfs: Option<Hdfs>,
    medium: Medium,
    nodes: Vec<Node>,
    /// The program of nodes that start.
    program: PathBuf,
    arguments: Vec<String>,
    started: usize,
}

/// Runs a cluster; whether everything was in order.
pub fn run(arguments: &Arguments) -> Result<bool> {
    ensure!(arguments.nodes > 0, "a cluster has a node at least");
    if arguments.chaos.is_some() && !hosts::entered() {
        // Inside there is no network to build anything from.
        build()?;
        if arguments.medium != Medium::S3 {
            tools::hadoop_jars()?;
        }
        return hosts::enter();
    }
    if !hosts::entered() {
        build()?;
    }
    if !arguments.sizes.is_empty() {
        return sizes::measure(arguments);
    }
    let mut cluster = Cluster::start(arguments, arguments.nodes)?;
    let passed = if let Some(rounds) = arguments.kills {
        failures::kills(&mut cluster, rounds)?
    } else if let Some(rounds) = arguments.failovers {
        failover::measure(&mut cluster, rounds, arguments.log_mib)?
    } else if let Some(moves) = arguments.moves {
        moves::run(&mut cluster, moves, arguments.splits)?
    } else if arguments.upgrade_from.is_some() {
        upgrade::run(&mut cluster)?
    } else if let Some(moves) = arguments.hbase {
        hbase::run(&mut cluster, moves)?
    } else if let Some(rounds) = arguments.moments {
        moments::run(&mut cluster, arguments, rounds)?
    } else if let Some(snapshots) = arguments.snapshots {
        snapshots::run(&mut cluster, snapshots)?
    } else if let Some(minutes) = arguments.chaos {
        chaos::run(&mut cluster, arguments, Duration::from_secs(60 * minutes))?
    } else if let Some(suite) = &arguments.suite.name {
        suites::run(&mut cluster, suite, &arguments.suite)?
    } else {
        cluster.show();
        cluster.wait()?;
        false
    };
    if passed {
        cluster.scratch.passed();
    }
    Ok(passed)
}

/// Builds and installs everything that a cluster and its clients need.
fn build() -> Result<()> {
    server::build()?;
    let programs: [fn() -> Result<PathBuf>; 4] = [
        tools::debian::etcd,
        tools::versitygw,
        || tools::go_program("crashload"),
        || tools::go_program("registers"),
    ];
    programs.into_iter().try_for_each(|program| program().map(drop))
}

impl Cluster {
    /// Starts etcd, the S3 server and this many nodes.
    fn start(arguments: &Arguments, nodes: usize) -> Result<Cluster> {
        let revision = arguments.upgrade_from.as_deref();
        let program = revision.map_or_else(|| Ok(server::stele()), upgrade::program)?;
        // A measurement may start one on each storage.
        let scratch = Scratch::new(&format!("cluster-of-{nodes}-{:?}", arguments.medium))?;
        let mut network = hosts::entered().then(Network::new).transpose()?;
        let mut host = || network.as_mut().map_or_else(|| Ok(Host::local()), Network::host);
        let etcd = Members::start(&scratch, &mut host)?;
        let store_host = host()?;
        let store = stores::start_s3(&scratch, &store_host)?;
        let hdfs = match arguments.medium {
            Medium::S3 => None,
            Medium::Hdfs | Medium::S3WithHdfsLogs => Some(Hdfs::start_at(host()?, &scratch, DATA_NODES)?),
        };
        let mut cluster = Cluster {
            scratch,
            network,
            etcd,
            store,
            store_host,
            hdfs,
            medium: arguments.medium,
            nodes: Vec::new(),
            program,
            arguments: arguments.arguments.clone(),
            started: 0,
        };
        if arguments.moments.is_some() {
            let archiving = moments::archiving(&cluster);
            cluster.arguments.extend(archiving);
        }
        for _ in 0..nodes {
            cluster.add_node()?;
        }
        Ok(cluster)
    }

    /// A cluster of which the first node serves all tablets, with further arguments of its nodes. For measurements.
    pub fn of_one_owner(nodes: usize, medium: Medium, arguments: &[&str]) -> Result<Cluster> {
        let arguments = Arguments {
            nodes,
            kills: None,
            failovers: None,
            log_mib: 0,
            moves: None,
            splits: 0,
            upgrade_from: None,
            hbase: None,
            moments: None,
            value_mib: None,
            snapshots: None,
            sizes: Vec::new(),
            chaos: None,
            suite: suites::Suite::default(),
            medium,
            seed: None,
            planted_stale_reads: false,
            arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
        };
        let mut cluster = Cluster::start(&arguments, nodes)?;
        cluster.scratch.discard();
        let status = cluster.status()?;
        for node in cluster.nodes.iter().skip(1) {
            let number = status.server_of(node)?.number.to_string();
            node.command(&["cluster", "drain", &number])?;
        }
        Ok(cluster)
    }

    /// CPU seconds of all nodes so far.
    pub fn cpu_seconds(&self) -> Result<f64> {
        self.nodes.iter().map(|node| node.process.cpu_seconds()).sum()
    }

    /// The sum of a metric of all nodes now.
    pub fn metric(&self, name: &str) -> Result<f64> {
        self.nodes.iter().map(|node| node.metric(name)).sum()
    }

    /// Starts one more node, and waits until it serves.
    fn add_node(&mut self) -> Result<()> {
        let host = self.network.as_mut().map_or_else(|| Ok(Host::local()), Network::host)?;
        let addresses = host.addresses()?;
        self.add_node_at(addresses, host)
    }

    /// Starts a node at the addresses of one that has ended, and waits until it serves.
    fn replace(&mut self, node: Node) -> Result<()> {
        let Node {
            host,
            bigtable,
            hbase,
            http,
            peer,
            ..
        } = node;
        self.add_node_at([bigtable, hbase, http, peer], host)
    }

    fn add_node_at(&mut self, addresses: [String; 4], host: Host) -> Result<()> {
        self.started += 1;
        let name = format!("node-{}", self.started);
        let log = self.scratch.join(&format!("{name}.log"));
        let mut arguments = vec!["--cluster".to_owned(), self.etcd.url("test")];
        arguments.extend(self.places());
        arguments.extend(self.arguments.iter().cloned());
        let program = self.program.clone();
        self.nodes
            .push(Node::start(program, addresses, name, host, &arguments, &log)?);
        Ok(())
    }

    /// The host of the data.
    fn storage(&self) -> &Host {
        match &self.hdfs {
            Some(hdfs) if self.medium == Medium::Hdfs => hdfs.host(),
            _ => &self.store_host,
        }
    }

    /// The names and ids of all processes. No two have one name: the bench tells their CPU time apart by it.
    fn pids(&self) -> Vec<(String, u32)> {
        let nodes = self.nodes.iter().map(|node| (node.name.clone(), node.process.pid()));
        let store = ("s3".to_owned(), self.store.pid());
        let hdfs = self.hdfs.iter().flat_map(Hdfs::pids);
        nodes.chain(self.etcd.pids()).chain([store]).chain(hdfs).collect()
    }

    /// The arguments that name the storages.
    fn places(&self) -> Vec<String> {
        let in_s3 = [
            "--data".to_owned(),
            format!("{}/cluster", self.store.url()),
            "--data-option".to_owned(),
            self.store.options().to_owned(),
        ];
        let in_hdfs = |flag: &str, hdfs: &Hdfs| [flag.to_owned(), hdfs.data("cluster").display().to_string()];
        match &self.hdfs {
            None => in_s3.to_vec(),
            Some(hdfs) if self.medium == Medium::Hdfs => in_hdfs("--data", hdfs).to_vec(),
            Some(hdfs) => [in_s3.as_slice(), &in_hdfs("--commit-log", hdfs)].concat(),
        }
    }

    /// The state of the cluster as a node sees it. Asks the next one when a node does not answer.
    fn status(&self) -> Result<Status> {
        let answers = self.nodes.iter().rev().map(Node::status);
        let mut last = None;
        for answer in answers {
            match answer {
                Ok(status) => return Ok(status),
                Err(error) => last = Some(error),
            }
        }
        Err(last.context("no node")?)
    }

    /// Waits until every tablet is served and none moves.
    fn settle(&self) -> Result<()> {
        self.settle_within(SETTLE_WAIT, |_| true)
    }

    /// The same, until other nodes serve the tablets of this one.
    fn settle_without(&self, silent: &Node, wait: Duration) -> Result<()> {
        self.settle_within(wait, |status| status.server_of(silent).is_err())
            .with_context(|| format!("{} is silent", silent.name))
    }

    fn settle_within(&self, wait: Duration, holds: impl Fn(&Status) -> bool) -> Result<()> {
        let deadline = Instant::now() + wait;
        loop {
            let status = self.status();
            if matches!(&status, Ok(status) if status.unsettled == 0 && holds(status)) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let status = status.context("no node tells the state of the cluster")?;
                bail!(
                    "{} tablets of {} servers are not served or move after {wait:?}",
                    status.unsettled,
                    status.servers.len()
                );
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The addresses of all nodes for clients of Bigtable's API.
    pub fn addresses(&self) -> Vec<&str> {
        self.nodes.iter().map(|node| node.bigtable.as_str()).collect()
    }

    fn show(&self) {
        println!("etcd    {}", self.etcd.url("test"));
        println!("nodes   {}", self.places().join(" "));
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
