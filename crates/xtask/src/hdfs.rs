//! A real HDFS for tests, with a NameNode and DataNodes, and the tests on it.
//!
//! The jars come from Maven's registry once. All processes listen on loopback or in a network namespace only, with small heaps
//! and an empty file system each time.
//!
//! * [`conformance`]: the storage suite and the fencing tests, and whether the DataNode was made to call `fsync`.
//! * [`lose`]: a DataNode dies while a log is written.
//! * [`ends`]: a DataNode loses the ends of log files.
//! * [`survive`]: acknowledged rows outlive SIGKILL and an empty local disk.
//! * [`zombie`]: a second server takes over while the first is written to.

pub mod ends;

use crate::hosts::Host;
use crate::remote::{self, Remote};
use crate::rival::site::Site;
use crate::server::{Process, Scratch, http_get};
use crate::shell::Run;
use crate::tally::Tally;
use crate::{cargo_tests, tools, zombie as takeover};
use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Two JVMs on a busy machine.
const READY_WAIT: Duration = Duration::from_secs(90);
/// Metrics of a DataNode are up to ten seconds old.
const METRICS_WAIT: Duration = Duration::from_secs(20);
/// The tests sync more often than this.
const SYNCS_EXPECTED: u64 = 100;

/// Hadoop reaches into the JDK.
const JVM: [&str; 11] = [
    "-Xmx192m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.net.preferIPv4Stack=true",
    "--add-opens",
    "java.base/java.lang=ALL-UNNAMED",
    "--add-opens",
    "java.base/java.nio=ALL-UNNAMED",
    "--add-opens",
    "java.base/sun.nio.ch=ALL-UNNAMED",
];

/// DataNodes of one file system.
const DATA_NODES_MAX: usize = 4;

/// Its name here, and its class.
const NAME_NODE: (&str, &str) = ("namenode", "org.apache.hadoop.hdfs.server.namenode.NameNode");
const DATA_NODE: &str = "org.apache.hadoop.hdfs.server.datanode.DataNode";

const LOG4J: &str = "\
status = error
appender.err.type = Console
appender.err.name = ERR
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = %d{ISO8601} %-5p [%t] %c{2}: %.500m%n
rootLogger.level = INFO
rootLogger.appenderRef.err.ref = ERR
";

/// The name of a DataNode.
fn data_node(number: usize) -> String {
    format!("datanode-{number}")
}

/// Whether the machine can fetch and run Hadoop.
pub fn available() -> bool {
    ["mvn", "java"].iter().all(|program| {
        let version = Run::new(program).args(["-version"]).into_command().output();
        version.is_ok_and(|output| output.status.success())
    })
}

/// A running HDFS with an empty file system; killed when dropped.
pub struct Hdfs {
    // In the order in which they are to end.
    data_nodes: Vec<Process>,
    name_node: Process,
    address: String,
    data_node_http: String,
    host: Host,
}

/// Where a process of Hadoop finds itself and its jars.
struct Place<'a> {
    root: PathBuf,
    jars: PathBuf,
    host: &'a Host,
}

/// The addresses of a DataNode: of blocks, of calls, of HTTP.
struct DataNode([String; 3]);

impl Hdfs {
    /// Fetches the jars if need be, makes a file system and starts it with this number of DataNodes. Files have two
    /// replicas, or one where there is one DataNode.
    pub fn start(scratch: &Scratch, data_nodes: usize) -> Result<Hdfs> {
        Hdfs::start_at(Host::local(), scratch, data_nodes)
    }

    /// The same on a host of its own.
    pub fn start_at(host: Host, scratch: &Scratch, data_nodes: usize) -> Result<Hdfs> {
        ensure!(
            (1..=DATA_NODES_MAX).contains(&data_nodes),
            "1 to {DATA_NODES_MAX} DataNodes are started"
        );
        let addresses: [String; 2 + 3 * DATA_NODES_MAX] = host.addresses()?;
        let [name_node, name_node_http, ..] = &addresses;
        let nodes = addresses[2..].as_chunks::<3>().0.iter().take(data_nodes);
        let nodes: Vec<DataNode> = nodes.cloned().map(DataNode).collect();
        let place = Place {
            jars: tools::hadoop_jars()?,
            root: scratch.join("hdfs"),
            host: &host,
        };
        let of_names = [name_node.as_str(), name_node_http.as_str()];
        place.configure(NAME_NODE.0, of_names, &nodes[0], data_nodes)?;
        place.format()?;
        let name_node_process = place.launch(NAME_NODE.0, NAME_NODE.1)?;
        let mut started = Vec::new();
        for (node, number) in nodes.iter().zip(1..) {
            let name = data_node(number);
            place.configure(&name, of_names, node, data_nodes)?;
            started.push(place.launch(&name, DATA_NODE)?);
        }
        let mut hdfs = Hdfs {
            data_nodes: started,
            name_node: name_node_process,
            address: name_node.clone(),
            data_node_http: nodes[0].0[2].clone(),
            host: Host::local(),
        };
        hdfs.wait_ready(&place, name_node_http)?;
        hdfs.host = host;
        Ok(hdfs)
    }

    /// The host of all its processes.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The names and ids of all its processes.
    pub fn pids(&self) -> Vec<(String, u32)> {
        let name_node = (NAME_NODE.0.to_owned(), self.name_node.pid());
        let numbered = self.data_nodes.iter().zip(1..);
        let data_nodes = numbered.map(|(process, number)| (data_node(number), process.pid()));
        std::iter::once(name_node).chain(data_nodes).collect()
    }

    fn wait_ready(&mut self, place: &Place<'_>, name_node_http: &str) -> Result<()> {
        let deadline = Instant::now() + READY_WAIT;
        let data_nodes = self.data_nodes.len() as u64;
        loop {
            for process in self.data_nodes.iter_mut().chain([&mut self.name_node]) {
                if let Some(status) = process.ended()? {
                    bail!(
                        "a process ended at start: {status}\n{}\n{}",
                        place.log_tail(NAME_NODE.0),
                        place.log_tail(&data_node(1))
                    );
                }
            }
            let state = http_get(
                name_node_http,
                "/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState",
            );
            if state.is_ok_and(|state| {
                state.contains("\"FSState\" : \"Operational\"")
                    && number(&state, "NumLiveDataNodes") == Some(data_nodes)
            }) {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!(
                    "HDFS is not ready after {READY_WAIT:?}\n{}",
                    place.log_tail(NAME_NODE.0)
                );
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// How often the DataNode called `fsync` so far, as far as it says.
    fn syncs(&self) -> Result<u64> {
        let query = "/jmx?qry=Hadoop:service=DataNode,name=DataNodeActivity*";
        number(&http_get(&self.data_node_http, query)?, "FsyncCount").context("the DataNode does not count fsync")
    }
}

impl Remote for Hdfs {
    fn data(&self, prefix: &str) -> PathBuf {
        PathBuf::from(format!("hdfs://{}/stele/{prefix}", self.address))
    }

    fn arguments(&self) -> Vec<String> {
        Vec::new()
    }
}

fn host_of(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

/// A number of a JMX bean.
fn number(json: &str, name: &str) -> Option<u64> {
    let (_, rest) = json.split_once(&format!("\"{name}\" : "))?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

impl Place<'_> {
    fn conf(&self, name: &str) -> PathBuf {
        self.root.join(format!("conf-{name}"))
    }

    fn configure(
        &self,
        name: &str,
        [name_node, name_node_http]: [&str; 2],
        DataNode([blocks, calls, http]): &DataNode,
        data_nodes: usize,
    ) -> Result<()> {
        let replicas = data_nodes.min(2);
        let conf = self.conf(name);
        // Hadoop's servers insist on the directories of their web pages, which are not in the published jars.
        for page in ["hdfs", "datanode", "static"] {
            let dir = conf.join("webapps").join(page).join("WEB-INF");
            fs::create_dir_all(&dir)?;
            fs::write(dir.join("web.xml"), "<web-app/>\n")?;
        }
        fs::write(conf.join("log4j2.properties"), LOG4J)?;
        let mut core = Site::new();
        core.set("fs.defaultFS", format!("hdfs://{name_node}"))
            .set("hadoop.tmp.dir", self.root.join(format!("tmp-{name}")).display());
        fs::write(conf.join("core-site.xml"), core.xml())?;
        let directory = |name: String| format!("file://{}", self.root.join(name).display());
        let mut hdfs = Site::new();
        hdfs.set("dfs.replication", replicas)
            .set("dfs.namenode.name.dir", directory("names".to_owned()))
            .set("dfs.datanode.data.dir", directory(format!("blocks-{name}")))
            .set("dfs.namenode.rpc-address", name_node)
            .set("dfs.namenode.http-address", name_node_http)
            .set("dfs.datanode.address", blocks)
            .set("dfs.datanode.ipc.address", calls)
            .set("dfs.datanode.http.address", http)
            .set("dfs.datanode.hostname", host_of(blocks))
            .set("dfs.namenode.datanode.registration.ip-hostname-check", false)
            .set("dfs.namenode.safemode.extension", 0)
            // A node that has been silent for a few seconds gets no new blocks; otherwise a dead one gets them for ten minutes.
            .set("dfs.heartbeat.interval", 1)
            .set("dfs.namenode.heartbeat.recheck-interval", 5_000)
            .set("dfs.namenode.stale.datanode.interval", 3_000)
            .set("dfs.namenode.avoid.write.stale.datanode", true)
            .set("dfs.namenode.avoid.read.stale.datanode", true)
            // A test machine's disk may be small.
            .set("dfs.datanode.du.reserved", 0)
            .set("dfs.namenode.resource.du.reserved", 1 << 20);
        fs::write(conf.join("hdfs-site.xml"), hdfs.xml())?;
        Ok(())
    }

    fn java(&self, name: &str, main: &str) -> Run {
        let class_path = format!("{}:{}/*", self.conf(name).display(), self.jars.display());
        self.host.program("java").args(JVM).args(["-cp", &class_path, main])
    }

    fn log(&self, name: &str) -> Result<File> {
        let path = self.root.join(format!("{name}.log"));
        File::create(&path).with_context(|| format!("opening {}", path.display()))
    }

    fn log_tail(&self, name: &str) -> String {
        let text = fs::read_to_string(self.root.join(format!("{name}.log"))).unwrap_or_default();
        let tail: Vec<&str> = text.lines().rev().take(20).collect();
        tail.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// A NameNode starts only on a directory that was formatted.
    fn format(&self) -> Result<()> {
        let log = self.log("format")?;
        let status = self
            .java(NAME_NODE.0, NAME_NODE.1)
            .args(["-format", "-nonInteractive", "-force"])
            .into_command()
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .status()
            .context("running java")?;
        if !status.success() {
            bail!("formatting the file system failed\n{}", self.log_tail("format"));
        }
        Ok(())
    }

    fn launch(&self, name: &str, main: &str) -> Result<Process> {
        let log = self.log(name)?;
        let child = self
            .java(name, main)
            .into_command()
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting the {name}"))?;
        Ok(Process::new(child))
    }
}

fn tests(hdfs: &Hdfs, filter: &str, victim: &str) -> Result<Tally> {
    let address = format!("hdfs://{}", hdfs.address);
    let environment = [
        ("STELE_TEST_HDFS", Path::new(&address)),
        ("STELE_TEST_HDFS_VICTIM", Path::new(victim)),
    ];
    cargo_tests::run_one("hdfs::hdfs", Some(filter), &environment)
}

/// Writes that are acknowledged while one of two DataNodes dies are there afterwards.
pub fn lose() -> Result<bool> {
    let scratch = Scratch::new("hdfs-lose")?;
    let mut hdfs = Hdfs::start(&scratch, 2)?;
    let victim = hdfs
        .data_nodes
        .first_mut()
        .context("no DataNode")?
        .child()
        .id()
        .to_string();
    let tally = tests(&hdfs, "a_data_node_may_die", &victim)?;
    let passed = tally.failed == 0 && tally.passed == 1;
    if passed {
        drop(hdfs);
        scratch.passed();
    }
    Ok(passed)
}

/// The storage suite and the fencing tests on a real HDFS, and the DataNode's count of `fsync` calls.
pub fn conformance() -> Result<Tally> {
    let scratch = Scratch::new("hdfs")?;
    let hdfs = Hdfs::start(&scratch, 1)?;
    let mut tally = tests(&hdfs, "", "")?;
    let deadline = Instant::now() + METRICS_WAIT;
    while hdfs.syncs()? < SYNCS_EXPECTED && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(200));
    }
    let syncs = hdfs.syncs()?;
    println!("the DataNode called fsync {syncs} times");
    tally.add(Tally::one(syncs >= SYNCS_EXPECTED));
    if tally.failed == 0 {
        scratch.passed();
    }
    Ok(tally)
}

/// Whether `rows` acknowledged rows are all there after SIGKILL and a start with an empty cache folder.
pub fn survive(rows: u64) -> Result<bool> {
    let scratch = Scratch::new("hdfs-survive")?;
    let hdfs = Hdfs::start(&scratch, 1)?;
    let passed = remote::survive(&hdfs, &scratch, rows)?;
    if passed {
        drop(hdfs);
        scratch.passed();
    }
    Ok(passed)
}

/// Whether no acknowledged write is lost while servers take one directory from each other.
pub fn zombie(rounds: u32) -> Result<bool> {
    let scratch = Scratch::new("hdfs-zombie")?;
    let hdfs = Hdfs::start(&scratch, 1)?;
    let passed = takeover::run(&hdfs, &scratch, rounds)?;
    if passed {
        drop(hdfs);
        scratch.passed();
    }
    Ok(passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_processes_are_named() {
        let process = || Process::new(Run::new("sleep").args(["60"]).into_command().spawn().unwrap());
        let hdfs = Hdfs {
            data_nodes: vec![process(), process()],
            name_node: process(),
            address: String::new(),
            data_node_http: String::new(),
            host: Host::local(),
        };
        let pids = hdfs.pids();
        let names: Vec<&str> = pids.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["namenode", "datanode-1", "datanode-2"]);
        assert_eq!(pids[2].1, hdfs.data_nodes[1].pid());
    }

    #[test]
    fn numbers_of_beans() {
        let json = "{ \"FsyncCount\" : 12,\n \"FsyncNanosNumOps\" : 24, \"x\" : \"y\" }";
        assert_eq!(number(json, "FsyncCount"), Some(12));
        assert_eq!((number(json, "x"), number(json, "y")), (None, None));
    }
}
