//! One node of a cluster, and its view of the others.

use crate::hosts::Host;
use crate::server::{self, Process, http_get, metric_of};
use anyhow::{Context, Result, bail, ensure};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Memory of each node, unless the command line says otherwise.
const MEMORY: &str = "2GiB";
/// A node joins in seconds.
const READY_WAIT: Duration = Duration::from_secs(60);
/// How long a node may take for an answer about the cluster before another one is asked.
const STATUS_WAIT: Duration = Duration::from_secs(10);

/// One node.
pub struct Node {
    pub name: String,
    /// The version that it runs.
    pub program: PathBuf,
    pub host: Host,
    pub process: Process,
    pub bigtable: String,
    pub hbase: String,
    pub http: String,
    pub peer: String,
}

/// The state of the cluster as `stele cluster status` prints it.
pub struct Status {
    /// Tablets that nobody serves, or that move.
    pub unsettled: u64,
    pub servers: Vec<ServerLine>,
}

/// A living server of a cluster.
pub struct ServerLine {
    pub number: u32,
    pub leads: bool,
    pub tablets: u64,
    pub bigtable: String,
}

impl Node {
    /// Starts a node with these arguments besides its ports, and waits until it serves. The addresses are those of Bigtable's
    /// API, HBase's protocol, HTTP and other nodes.
    pub fn start(
        program: PathBuf,
        [bigtable, hbase, http, peer]: [String; 4],
        name: String,
        host: Host,
        arguments: &[String],
        log: &Path,
    ) -> Result<Node> {
        let file = File::create(log).with_context(|| format!("making {}", log.display()))?;
        let mut command = host
            .program(&program)
            .args(["start", "--peer", &peer, "--bigtable", &bigtable])
            .args(["--hbase", &hbase, "--http", &http]);
        if !arguments.iter().any(|argument| argument == "--memory") {
            command = command.args(["--memory", MEMORY]);
        }
        if host.is_remote() {
            // Ports of a namespace are no loopback, and nobody else is on its network.
            command = command.args(["--insecure"]);
        }
        let child = command
            .args(arguments)
            .into_command()
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .context("starting a node")?;
        let mut node = Node {
            name,
            program,
            host,
            process: Process::new(child),
            bigtable,
            hbase,
            http,
            peer,
        };
        let deadline = Instant::now() + READY_WAIT;
        while !node.is_ready() {
            if let Some(status) = node.process.ended()? {
                bail!("{} ended at start: {status}; see {}", node.name, log.display());
            }
            ensure!(
                Instant::now() < deadline,
                "{} is not ready; see {}",
                node.name,
                log.display()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(node)
    }

    /// Whether it says that it serves.
    pub fn is_ready(&self) -> bool {
        http_get(&self.http, "/readyz").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
    }

    /// The value of a metric now.
    pub fn metric(&self, name: &str) -> Result<f64> {
        metric_of(&http_get(&self.http, "/metrics")?, name).with_context(|| format!("{} has no {name}", self.name))
    }

    /// The state of the cluster as it sees it.
    pub fn status(&self) -> Result<Status> {
        Status::parse(&self.command(&["cluster", "status"])?)
    }

    /// The numbers of all tablets with those of their servers.
    pub fn tablets(&self) -> Result<Vec<(u64, u32)>> {
        self.command(&["cluster", "tablets"])?
            .lines()
            .map(|line| {
                let tablet = after(line, "tablet ")?.parse()?;
                Ok((tablet, after(line, "server ")?.parse()?))
            })
            .collect()
    }

    /// Runs `stele` with this node's address, for its output.
    pub fn command(&self, arguments: &[&str]) -> Result<String> {
        self.command_within(STATUS_WAIT, arguments)
    }

    /// The same of a command that waits for the cluster, for this long.
    pub fn command_within(&self, wait: Duration, arguments: &[&str]) -> Result<String> {
        server::command(&self.bigtable, wait, arguments)
    }
}

impl Status {
    fn parse(text: &str) -> Result<Status> {
        let (mut unsettled, mut servers) = (None, Vec::new());
        for line in text.lines() {
            let count = line.split_once(" tablet is not served");
            if let Some((count, _)) = count.or_else(|| line.split_once(" tablets are not served")) {
                unsettled = Some(count.parse()?);
            } else if line.starts_with("All tablets are served") {
                unsettled = Some(0);
            } else if ["serves", "leads", "drains"].iter().any(|state| line.contains(state)) {
                let tablets = line.split("  ").nth(2).context("no tablets")?;
                servers.push(ServerLine {
                    number: after(line, "server ")?.parse()?,
                    leads: line.contains("  leads  "),
                    tablets: tablets.trim_end_matches(" tablets").parse()?,
                    bigtable: after(line, "Bigtable ")?.to_owned(),
                });
            }
        }
        Ok(Status {
            unsettled: unsettled.context("no line about tablets that are not served")?,
            servers,
        })
    }

    /// The server that this node is.
    pub fn server_of(&self, node: &Node) -> Result<&ServerLine> {
        let own = self.servers.iter().find(|server| server.bigtable == node.bigtable);
        own.with_context(|| format!("{} is not in the cluster", node.name))
    }
}

/// The word after a label.
fn after<'a>(line: &'a str, label: &str) -> Result<&'a str> {
    let rest = line
        .split_once(label)
        .with_context(|| format!("no {label}in {line:?}"))?
        .1;
    Ok(rest.split(' ').next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_cluster_is_read_from_its_text() {
        let text = "server 3  leads  8 tablets  log 0 MiB  memtables 1 MiB  Bigtable 127.0.0.1:1  HBase h  http i\n\
            server 2  ended, its log is still needed  4 tablets\n\
            5 tablets are not served, or move.\n";
        let status = Status::parse(text).unwrap();
        assert_eq!((status.unsettled, status.servers.len()), (5, 1));
        let server = &status.servers[0];
        assert_eq!((server.number, server.tablets, server.leads), (3, 8, true));
        assert_eq!(server.bigtable, "127.0.0.1:1");
        for (text, unsettled) in [
            ("1 tablet is not served, or moves.\n", 1),
            ("All tablets are served, and none moves.\n", 0),
        ] {
            assert_eq!(Status::parse(text).unwrap().unsettled, unsettled);
        }
        assert!(Status::parse("in other words\n").is_err());
    }
}
