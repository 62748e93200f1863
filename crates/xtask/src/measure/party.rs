//! The servers that are measured: builds of Stele, Google's emulator, forms of the echo.

use super::load::{LARGE_BYTES, LARGE_ROWS};
use super::secured::{self, Secured};
use super::{Arguments, Beside};
use crate::bench;
use crate::cluster::{Cluster, Medium};
use crate::hosts::Host;
use crate::launch;
use crate::server::{self, Process, Scratch, free_address};
use crate::shell::{Run, json_line};
use crate::stores::{self, Store};
use crate::tools;
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::str::FromStr;

/// A kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    Stele,
    /// The first build of Stele as a single server with its data on an S3 server, as the nodes of the cluster have them.
    SteleS3,
    /// A cluster of three nodes, of which one serves all tablets: called directly, and through another node. CPU seconds are
    /// those of all nodes.
    SteleCluster,
    /// The node of such a cluster that serves all tablets, with data and commit logs in HDFS.
    SteleClusterHdfs,
    /// The same with data on the S3 server and commit logs in HDFS.
    SteleClusterHdfsLogs,
    /// The first build of Stele under TLS.
    SteleTls,
    /// The first build of Stele with access rules: each call shows a token.
    SteleRights,
    /// The first build of Stele with traces of one request in a hundred, which a collector takes.
    SteleTraces,
    /// Google's in-memory emulator.
    Emulator,
    /// Answers without storing, by tonic as usual.
    EchoPlain,
    /// The same with gathered output.
    EchoCoalesced,
    /// The same with gathered output and one thread per core.
    EchoCoalescedPerCore,
}

impl Kind {
    /// Those of a run without `--servers`.
    pub const DEFAULT: [Kind; 4] = [Kind::Stele, Kind::Emulator, Kind::EchoPlain, Kind::EchoCoalescedPerCore];

    fn name(self) -> &'static str {
        match self {
            Kind::Stele => "stele",
            Kind::SteleS3 => "stele-s3",
            Kind::SteleCluster => "stele-cluster",
            Kind::SteleClusterHdfs => "stele-cluster-hdfs",
            Kind::SteleClusterHdfsLogs => "stele-cluster-hdfs-logs",
            Kind::SteleTls => "stele-tls",
            Kind::SteleRights => "stele-rights",
            Kind::SteleTraces => "stele-traces",
            Kind::Emulator => "emulator",
            Kind::EchoPlain => "echo-plain",
            Kind::EchoCoalesced => "echo-coalesced",
            Kind::EchoCoalescedPerCore => "echo-coalesced-per-core",
        }
    }

    /// Whether clients need credentials.
    pub fn is_secured(self) -> bool {
        matches!(self, Kind::SteleTls | Kind::SteleRights)
    }

    /// Whether it is a build of Stele.
    pub fn is_built(self) -> bool {
        self.medium().is_some() || matches!(self, Kind::Stele | Kind::SteleS3 | Kind::SteleTraces) || self.is_secured()
    }

    /// Where the nodes have their files, if it is a cluster.
    fn medium(self) -> Option<Medium> {
        match self {
            Kind::SteleCluster => Some(Medium::S3),
            Kind::SteleClusterHdfs => Some(Medium::Hdfs),
            Kind::SteleClusterHdfsLogs => Some(Medium::S3WithHdfsLogs),
            _ => None,
        }
    }

    fn echo_form(self) -> Option<&'static str> {
        self.name().strip_prefix("echo-")
    }
}

/// A program of Stele and its name in tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedBuild {
    name: String,
    program: PathBuf,
}

impl NamedBuild {
    /// The one of this workspace.
    pub fn own() -> NamedBuild {
        NamedBuild {
            name: Kind::Stele.name().to_owned(),
            program: server::stele(),
        }
    }
}

impl FromStr for NamedBuild {
    type Err = String;

    /// `NAME=PATH`, or a path alone. Names of builds begin with `stele`, by which the ratios find them.
    fn from_str(text: &str) -> Result<NamedBuild, String> {
        let (name, path) = text.split_once('=').unwrap_or(("", text));
        if path.is_empty() {
            return Err(format!("no path in {text:?}"));
        }
        let name = match name {
            "" | "stele" => "stele".to_owned(),
            other => format!("stele-{other}"),
        };
        // Commands run in the workspace, and the path is relative to the user's folder.
        let program = std::path::absolute(path).map_err(|error| format!("{path}: {error}"))?;
        Ok(NamedBuild { name, program })
    }
}

/// Refuses two builds of one name: their files and their results would mix.
pub fn expect_distinct(builds: &[NamedBuild]) -> Result<()> {
    for (index, build) in builds.iter().enumerate() {
        if builds.iter().take(index).any(|earlier| earlier.name == build.name) {
            bail!("two builds are called {}; name them by --stele NAME=PATH", build.name);
        }
    }
    Ok(())
}

/// Builds the emulator and the echo, as far as they take part.
pub fn build_others(kinds: &[Kind]) -> Result<()> {
    if kinds.iter().any(|kind| kind.echo_form().is_some()) {
        bench::build_example("bigtable_echo")?;
    }
    let media: Vec<Medium> = kinds.iter().filter_map(|kind| kind.medium()).collect();
    if !media.is_empty() {
        tools::debian::etcd()?;
    }
    if !media.is_empty() || kinds.contains(&Kind::SteleS3) {
        tools::versitygw()?;
    }
    if media.iter().any(|medium| *medium != Medium::S3) {
        tools::hadoop_jars()?;
    }
    if kinds.contains(&Kind::Emulator) {
        tools::go_program("emulator")?;
    }
    Ok(())
}

/// A running server.
pub struct Party {
    name: String,
    address: String,
    processes: Processes,
    stores: bool,
    /// Arguments by which a client shows and demands credentials.
    credentials: Vec<OsString>,
    /// The collector of its traces.
    _collector: Option<Process>,
    /// The S3 server of its data.
    _store: Option<Store>,
}

/// The processes whose CPU seconds count.
enum Processes {
    One(Process),
    Nodes(Rc<Cluster>),
}

impl Party {
    /// Starts a server, or one for each build of Stele.
    pub fn start(kind: Kind, builds: &[NamedBuild], scratch: &Scratch) -> Result<Vec<Party>> {
        let address = free_address()?;
        let party = match kind.echo_form() {
            _ if kind == Kind::Stele => {
                let plain = |build: &NamedBuild| Party::stele(build, &build.name, Secured::default(), scratch);
                return builds.iter().map(plain).collect();
            }
            _ if kind.is_secured() => {
                let build = builds.first().context("no build of Stele")?;
                let secured = secured::make(kind, &build.program, scratch)?;
                Party::stele(build, kind.name(), secured, scratch)?
            }
            _ if kind == Kind::SteleS3 => Party::on_s3(builds, scratch)?,
            _ if kind == Kind::SteleTraces => Party::traced(builds, scratch)?,
            _ if kind.medium().is_some() => return Party::cluster(kind),
            Some(form) => {
                let program = bench::example("bigtable_echo");
                let large = LARGE_BYTES.to_string();
                let run = Run::new(program).args(["--form", form, "--large-bytes", &large, "--address", &address]);
                Party::spawn(kind.name(), run, address, scratch, false)?
            }
            None => {
                let run = Run::new(tools::go_program("emulator")?).args(["-address", &address]);
                Party::spawn(kind.name(), run, address, scratch, true)?
            }
        };
        Ok(vec![party])
    }

    fn on_s3(builds: &[NamedBuild], scratch: &Scratch) -> Result<Party> {
        let store = stores::start_s3(scratch, &Host::local())?;
        let data = Secured::serving(vec![
            "--data".into(),
            format!("{}/single", store.url()).into(),
            "--data-option".into(),
            store.options().into(),
        ]);
        let build = builds.first().context("no build of Stele")?;
        let mut party = Party::stele(build, Kind::SteleS3.name(), data, scratch)?;
        party._store = Some(store);
        Ok(party)
    }

    fn cluster(kind: Kind) -> Result<Vec<Party>> {
        let medium = kind.medium().context("a cluster")?;
        let arguments = ["--durability", "flush", "--log", "warn"];
        let cluster = Rc::new(Cluster::of_one_owner(3, medium, &arguments)?);
        let ways: &[&str] = if medium == Medium::S3 {
            &["-direct", "-hop"]
        } else {
            &[""]
        };
        let parties = ways.iter().zip(cluster.addresses());
        let parties = parties.map(|(way, address)| Party {
            name: format!("{}{way}", kind.name()),
            address: address.to_owned(),
            processes: Processes::Nodes(cluster.clone()),
            // One of them fills the tables for both.
            stores: *way != "-hop",
            credentials: Vec::new(),
            _collector: None,
            _store: None,
        });
        Ok(parties.collect())
    }

    fn traced(builds: &[NamedBuild], scratch: &Scratch) -> Result<Party> {
        let address = free_address()?;
        let run = Run::new(tools::go_program("collector")?).args(["-address", &address]);
        let collector = launch::listening("collector", run, &address, &scratch.join("collector.log"))?;
        let traces = Secured::serving(vec![
            "--otlp".into(),
            format!("http://{address}").into(),
            "--trace-sample".into(),
            "0.01".into(),
        ]);
        let build = builds.first().context("no build of Stele")?;
        let mut party = Party::stele(build, Kind::SteleTraces.name(), traces, scratch)?;
        party._collector = Some(collector);
        Ok(party)
    }

    fn stele(build: &NamedBuild, name: &str, secured: Secured, scratch: &Scratch) -> Result<Party> {
        let (address, http) = (free_address()?, free_address()?);
        // Acknowledged when the operating system has it: the emulator keeps everything in memory, and syncs would measure
        // the disk.
        let mut run = Run::new(&build.program)
            .args(["start", "--durability", "flush", "--log", "warn"])
            .args(["--bigtable", &address, "--http", &http])
            .args(&secured.server);
        if !secured.server.iter().any(|argument| argument == "--data") {
            let folder = scratch.join(&format!("{name}-data"));
            run = run.args(["--data".as_ref(), folder.as_os_str()]);
        }
        let mut party = Party::spawn(name, run, address, scratch, true)?;
        if let Processes::One(process) = &mut party.processes {
            launch::wait(name, process, || secured.is_ready(&build.program, &http))?;
        }
        party.credentials = secured.client;
        Ok(party)
    }

    fn spawn(name: &str, run: Run, address: String, scratch: &Scratch, stores: bool) -> Result<Party> {
        let log = scratch.join(&format!("{name}.log"));
        Ok(Party {
            name: name.to_owned(),
            processes: Processes::One(launch::listening(name, run, &address, &log)?),
            address,
            stores,
            credentials: Vec::new(),
            _collector: None,
            _store: None,
        })
    }

    /// Makes the tables of all phases. An echo has none.
    pub fn fill(&self, program: &Path, arguments: &Arguments) -> Result<()> {
        if !self.stores {
            return Ok(());
        }
        let own = [
            ("measure", arguments.rows, 1000),
            ("large", LARGE_ROWS, LARGE_BYTES),
            // Increments make the others.
            ("counters", 1, 1000),
        ];
        let besides = arguments.beside.map_or(&[][..], Beside::tables);
        for (table, rows, bytes) in own.iter().chain(besides) {
            let fill = Run::new(program)
                .args(["fill", "-address", &self.address, "-table", table])
                .args(["-rows", &rows.to_string(), "-value-bytes", &bytes.to_string()])
                .args(&self.credentials);
            println!("  {table}: {}", json_line(fill)?);
        }
        Ok(())
    }

    /// Its name in tables.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it serves.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Arguments by which a client shows and demands credentials.
    pub fn credentials(&self) -> &[OsString] {
        &self.credentials
    }

    /// CPU seconds of its process so far.
    pub fn cpu_seconds(&self) -> Result<f64> {
        let seconds = match &self.processes {
            Processes::One(process) => process.cpu_seconds(),
            Processes::Nodes(cluster) => cluster.cpu_seconds(),
        };
        seconds.with_context(|| format!("{} is gone", self.name))
    }

    /// Groups of writes in the commit logs of all nodes so far: each is a put of an object, or a sync of a file in HDFS. None of a
    /// single server.
    pub fn log_groups(&self) -> Result<Option<f64>> {
        match &self.processes {
            Processes::One(_) => Ok(None),
            Processes::Nodes(cluster) => cluster.metric("stele_commitlog_groups_total").map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_have_names_that_begin_alike() {
        let parsed = |text: &str| text.parse::<NamedBuild>().map(|build| build.name);
        assert_eq!(parsed("/a/stele"), Ok("stele".to_owned()));
        assert_eq!(parsed("old=/a/stele"), Ok("stele-old".to_owned()));
        assert_eq!(parsed("stele=/a/stele"), Ok("stele".to_owned()));
        assert!(parsed("old=").is_err());
        let build: NamedBuild = "old=/a=b/stele".parse().expect("a path with =");
        assert_eq!(build.program, Path::new("/a=b/stele"));
        assert!(expect_distinct(&[build.clone(), NamedBuild::own()]).is_ok());
        assert!(expect_distinct(&[build.clone(), build]).is_err());
    }
}
