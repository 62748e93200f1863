//! Runs a suite of `stele-bench` against a cluster, and kills nodes for it.
//!
//! The suite calls all nodes. Its `--kill-command` leaves a file that says which nodes to kill, waits until they are dead, and
//! returns. The master is the node that leads. Nodes at the same addresses take their places [`ABSENCE`] later, so that the runs which follow have all nodes.

use super::{Cluster, Node};
use crate::rival::{Identity, Member, Party};
use crate::server::{Process, Scratch};
use crate::shell::{Run, target_dir};
use crate::{bench, choices};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the place of a killed node is empty: longer than its tablets are without an owner.
const ABSENCE: Duration = Duration::from_secs(10);

/// Pauses between two checks of the file.
const PAUSE: Duration = Duration::from_millis(20);

/// A suite, and how it is run.
#[derive(Default, clap::Args)]
pub struct Suite {
    /// A suite of `stele-bench` that is run against the cluster
    #[arg(long = "bench", value_name = "SUITE", group = "task")]
    pub name: Option<String>,
    /// The scale of the suite
    #[arg(long, default_value = "quick", requires = "name")]
    scale: String,
    /// Experiments of the suite; all when absent
    #[arg(long, requires = "name")]
    only: Option<String>,
    /// Repeats of each run
    #[arg(long, default_value_t = 3, requires = "name", value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    /// The folder of the suite's bundle; a new one in `target/bench` when absent
    #[arg(long, requires = "name")]
    out: Option<PathBuf>,
}

/// The files by which the suite and the cluster talk. The suite waits no longer when this is dropped.
struct Pull {
    /// The nodes to kill; it is removed when they are dead.
    file: PathBuf,
    command: PathBuf,
}

/// The nodes that a suite wants to be killed.
enum Wanted {
    Leader,
    Any(usize),
}

/// Nodes that were killed, and when others take their places.
struct Absent {
    nodes: Vec<Node>,
    until: Instant,
}

/// Whether the suite passed.
pub fn run(cluster: &mut Cluster, name: &str, suite: &Suite) -> Result<bool> {
    let program = bench::build()?;
    let pull = Pull::make(&cluster.scratch)?;
    let party = cluster.scratch.join("party.json");
    let url = describe(cluster, &party)?;
    let arguments = arguments(name, suite, &url, &pull.command)?;
    let mut command = Run::new(program).args(arguments).into_command();
    // It does not outlive an error here.
    let mut running = Process::new(command.spawn().context("starting stele-bench")?);
    let mut absent: Option<Absent> = None;
    loop {
        if let Some(status) = running.ended()? {
            return Ok(status.success());
        }
        if let Some(wanted) = pull.wanted()? {
            let killed = kill(cluster, &wanted)?;
            let absent = absent.get_or_insert_with(|| Absent {
                nodes: Vec::new(),
                until: Instant::now() + ABSENCE,
            });
            absent.nodes.extend(killed);
            fs::remove_file(&pull.file)?;
        }
        if absent.as_ref().is_some_and(|absent| Instant::now() >= absent.until) {
            for node in absent.take().into_iter().flat_map(|absent| absent.nodes) {
                cluster.replace(node)?;
            }
            // The suite reads the file again before its next run, and so finds the new processes.
            describe(cluster, &party)?;
        }
        std::thread::sleep(PAUSE);
    }
}

/// The arguments of `stele-bench`. Without a folder the bundle gets one of its own, because `stele-bench` takes only a new one.
fn arguments(name: &str, suite: &Suite, url: &str, kill_command: &Path) -> Result<Vec<OsString>> {
    let out = match &suite.out {
        Some(out) => out.clone(),
        None => target_dir().join(format!("bench/cluster-{name}-{}", choices::seed(None)?)),
    };
    let repeats = suite.repeats.to_string();
    let words = [
        "run",
        name,
        "--scale",
        &suite.scale,
        "--against",
        url,
        "--repeats",
        &repeats,
    ];
    let only = suite.only.iter().flat_map(|only| ["--only", only]);
    let mut arguments: Vec<OsString> = words.into_iter().chain(only).map(OsString::from).collect();
    arguments.extend(["--kill-command".into(), kill_command.into(), "--out".into(), out.into()]);
    Ok(arguments)
}

/// Kills nodes: the leader, or the first ones.
fn kill(cluster: &mut Cluster, wanted: &Wanted) -> Result<Vec<Node>> {
    let mut killed: Vec<Node> = match wanted {
        Wanted::Any(count) => cluster.nodes.drain(..(*count).min(cluster.nodes.len())).collect(),
        Wanted::Leader => {
            let status = cluster.status()?;
            let leads = |node: &Node| status.server_of(node).is_ok_and(|server| server.leads);
            let leader = cluster.nodes.iter().position(leads).context("no node leads")?;
            vec![cluster.nodes.remove(leader)]
        }
    };
    for node in &mut killed {
        node.process.kill()?;
    }
    Ok(killed)
}

/// Writes the party file, and returns the address of all nodes.
fn describe(cluster: &Cluster, path: &Path) -> Result<String> {
    let first = cluster.nodes.first().context("no node")?;
    let peers: Vec<&str> = cluster.addresses().into_iter().skip(1).collect();
    let mut members = Vec::new();
    for (name, pid) in cluster.pids() {
        members.push(Member {
            name,
            identity: Identity::of(pid)?,
            gc_log: None,
        });
    }
    let party = Party {
        name: "stele-cluster",
        version: env!("CARGO_PKG_VERSION").to_owned(),
        url: format!("bigtable://{}/bench", first.bigtable),
        members,
        configuration: BTreeMap::from([
            ("cluster: nodes".to_owned(), cluster.nodes.len().to_string()),
            ("cluster: storage".to_owned(), cluster.places().join(" ")),
        ]),
        data_dirs: Vec::new(),
        settings: cluster.arguments.clone(),
    };
    party.write(path)?;
    let peers: String = peers.iter().map(|peer| format!("&peer={peer}")).collect();
    Ok(format!("{}?party={}{peers}", party.url, path.display()))
}

impl Pull {
    fn make(scratch: &Scratch) -> Result<Pull> {
        let pull = Pull {
            file: scratch.join("pull"),
            command: scratch.join("pull.sh"),
        };
        let (file, own) = (pull.file.display(), std::process::id());
        // The file appears whole, because it is renamed. Nobody removes it when this program has ended.
        let script = format!(
            "#!/bin/sh\necho \"$STELE_BENCH_PULL $STELE_BENCH_PULL_COUNT\" > {file}.part && mv {file}.part {file}\n\
             while [ -e {file} ] && kill -0 {own}; do sleep 0.05; done\n\
             [ ! -e {file} ]\n"
        );
        fs::write(&pull.command, script)?;
        fs::set_permissions(&pull.command, fs::Permissions::from_mode(0o755))?;
        Ok(pull)
    }

    /// The nodes that the suite wants to be killed, if it wants that now.
    fn wanted(&self) -> Result<Option<Wanted>> {
        let Ok(text) = fs::read_to_string(&self.file) else {
            return Ok(None);
        };
        let count = text.split_whitespace().nth(1).and_then(|count| count.parse().ok());
        Ok(Some(match text.starts_with("master") {
            true => Wanted::Leader,
            false => Wanted::Any(count.context("the number of nodes to kill")?),
        }))
    }
}

impl Drop for Pull {
    fn drop(&mut self) {
        // Mostly it is not there.
        let _ = fs::remove_file(&self.file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_suite_has_a_folder_for_its_bundle() {
        let of = |out: Option<&str>| {
            let suite = Suite {
                out: out.map(PathBuf::from),
                ..Suite::default()
            };
            let arguments = arguments("hstack-2010", &suite, "bigtable://h:1/bench", Path::new("pull.sh")).unwrap();
            let at = arguments.iter().position(|argument| argument == "--out").unwrap();
            arguments[at + 1].to_string_lossy().into_owned()
        };
        assert_eq!(of(Some("/results")), "/results");
        assert!(of(None).contains("/bench/cluster-hstack-2010-"));
    }

    #[test]
    fn a_suite_that_waits_for_a_kill_goes_on_when_the_cluster_is_gone() {
        let scratch = Scratch::new("pull").unwrap();
        let pull = Pull::make(&scratch).unwrap();
        let mut command = Command::new("sh");
        command.arg(&pull.command);
        command
            .env("STELE_BENCH_PULL", "server")
            .env("STELE_BENCH_PULL_COUNT", "2");
        let mut waiting = Process::new(command.spawn().unwrap());
        let deadline = Instant::now() + Duration::from_secs(60);
        let wait = || {
            assert!(Instant::now() < deadline, "it takes too long");
            std::thread::sleep(PAUSE);
        };
        while !matches!(pull.wanted().unwrap(), Some(Wanted::Any(2))) {
            wait();
        }
        drop(pull);
        while waiting.ended().unwrap().is_none() {
            wait();
        }
        scratch.passed();
    }
}
