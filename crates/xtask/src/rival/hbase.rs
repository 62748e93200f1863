//! Apache HBase, pseudo-distributed, with one replica.
//!
//! ZooKeeper, NameNode, DataNode, master and region server are processes of their own; everything is on the loopback
//! interface. Ready means that HBase's own client says so (see `Ready.java` in `tests/rivals/hbase`), not that ports are
//! open.

mod benchmark;
mod configuration;
mod java;
mod options;

pub use benchmark::{EVALUATION, digest, evaluate, finished_rows, tool};

use super::party::{Member, Party};
use super::process::{self, Identity, Launch};
use super::{PartName, Place, Request};
use anyhow::{Context, Result, bail};
use java::Java;
use options::Options;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::process::Stdio;
use std::time::Duration;

/// The time a part needs to take connections; a JVM on a busy machine takes seconds.
const PORT_LIMIT: Duration = Duration::from_secs(120);

/// Until regions are assigned, after a crash with logs to split.
const READY_LIMIT: Duration = Duration::from_secs(240);

/// One process.
struct Part {
    name: &'static str,
    main: &'static str,
    arguments: &'static [&'static str],
    /// Largest heap, unless it is the region server, whose heap is a setting.
    heap: &'static str,
    /// Offsets from the first port, and the services there. The first one is waited for.
    ports: &'static [(u16, &'static str)],
    /// The region server flushes memtables before it ends.
    patience: Duration,
}

/// The name of the part that serves data.
const REGION_SERVER: &str = "regionserver";

/// In the order in which they are started; the port of each is waited for before the next.
const PARTS: [Part; 5] = [
    Part {
        name: "zookeeper",
        main: "org.apache.hadoop.hbase.zookeeper.HQuorumPeer",
        arguments: &[],
        heap: "256m",
        ports: &[(ZOOKEEPER, "ZooKeeper")],
        patience: Duration::from_secs(10),
    },
    Part {
        name: "namenode",
        main: "org.apache.hadoop.hdfs.server.namenode.NameNode",
        arguments: &[],
        heap: "512m",
        ports: &[(NAMENODE, "NameNode"), (NAMENODE_HTTP, "web page of the NameNode")],
        patience: Duration::from_secs(20),
    },
    Part {
        name: "datanode",
        main: "org.apache.hadoop.hdfs.server.datanode.DataNode",
        arguments: &[],
        heap: "1g",
        ports: &[
            (DATANODE, "DataNode"),
            (DATANODE_IPC, "calls to the DataNode"),
            (DATANODE_HTTP, "web page of the DataNode"),
        ],
        patience: Duration::from_secs(20),
    },
    Part {
        name: "master",
        main: "org.apache.hadoop.hbase.master.HMaster",
        arguments: &["start"],
        heap: "1g",
        ports: &[(MASTER, "HBase master")],
        patience: Duration::from_secs(30),
    },
    Part {
        name: REGION_SERVER,
        main: "org.apache.hadoop.hbase.regionserver.HRegionServer",
        arguments: &["start"],
        heap: "",
        ports: &[(REGION, "HBase region server")],
        patience: Duration::from_secs(90),
    },
];

const NAMENODE: u16 = 0;
const NAMENODE_HTTP: u16 = 1;
const DATANODE: u16 = 2;
const DATANODE_IPC: u16 = 3;
const DATANODE_HTTP: u16 = 4;
const ZOOKEEPER: u16 = 5;
const MASTER: u16 = 10;
const REGION: u16 = 20;

/// The last offset in use.
const PORT_SPAN: u16 = REGION;

/// Names of the parts, in the order of their start.
pub fn parts() -> Vec<PartName> {
    let name = |part: &Part| PartName {
        name: part.name,
        patience: part.patience,
    };
    PARTS.iter().map(name).collect()
}

/// Starts the missing parts.
pub fn complete(place: &Place, request: &Request) -> Result<Party> {
    let options = Options::parse(&request.settings)?;
    let missing = || PARTS.iter().filter(|part| process::running(place, part.name).is_none());
    for part in missing() {
        for (offset, purpose) in part.ports {
            process::expect_free(options.port + offset, purpose, process::PORT_PATIENCE)?;
        }
    }
    // Parts that run keep the jars and the configuration they were started with, and the others join them.
    let java = if missing().count() == PARTS.len() {
        configuration::write(place, &options, request.conf.as_deref())?;
        Java::build()?
    } else {
        Java::built()?
    };
    format_file_system(place, &java)?;
    for part in missing() {
        say!("starting {}", part.name);
        let identity = process::launch(place, &launch(place, &java, &options, part))?;
        let (offset, _) = part.ports.first().context("a part without a port")?;
        process::wait_for_port(place, part.name, &identity, options.port + offset, PORT_LIMIT)?;
    }
    let members = members(place)?;
    let address = format!("127.0.0.1:{}", options.port + REGION);
    wait_ready(place, &java, &address, &members)?;
    party(place, request, &java, &options, &address, members)
}

fn launch(place: &Place, java: &Java, options: &Options, part: &Part) -> Launch {
    Launch {
        part: part.name.to_owned(),
        program: Java::program(),
        arguments: java.server(place, part.name, &jvm_flags(options, part), part.main, part.arguments),
    }
}

/// The JVM options that are chosen here, as a report should show them.
fn jvm_flags(options: &Options, part: &Part) -> Vec<String> {
    if part.name == REGION_SERVER {
        options.region_server_flags()
    } else {
        vec![format!("-Xmx{}", part.heap), "-XX:+UseG1GC".to_owned()]
    }
}

/// A NameNode starts only on a directory that was formatted.
fn format_file_system(place: &Place, java: &Java) -> Result<()> {
    if configuration::name_dir(place).join("current/VERSION").exists() {
        return Ok(());
    }
    let log = place.log("namenode-format");
    let file = File::create(&log).with_context(|| format!("opening {}", log.display()))?;
    let succeeds = java
        .client(place, "256m", "org.apache.hadoop.hdfs.server.namenode.NameNode")
        .args(["-format", "-nonInteractive", "-force"])
        .into_command()
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .status()
        .context("formatting the NameNode's directory")?;
    if !succeeds.success() {
        bail!(
            "formatting the NameNode's directory failed:\n{}",
            process::log_tail(&log)
        );
    }
    Ok(())
}

fn members(place: &Place) -> Result<Vec<Member>> {
    let member = |part: &Part| {
        let identity = process::running(place, part.name);
        Ok(Member {
            name: part.name.to_owned(),
            identity: identity.with_context(|| died(place, part.name))?,
            gc_log: Some(place.gc_log(part.name)),
        })
    };
    PARTS.iter().map(member).collect()
}

fn died(place: &Place, part: &str) -> String {
    format!("{part} ended; its log ends:\n{}", process::log_tail(&place.log(part)))
}

/// Asks HBase's own client, and gives up early when a part dies.
fn wait_ready(place: &Place, java: &Java, address: &str, members: &[Member]) -> Result<()> {
    let log = place.log("ready");
    let file = File::create(&log).with_context(|| format!("opening {}", log.display()))?;
    let client = java
        .client(place, "256m", "stele.rivals.hbase.Ready")
        .args([address, &READY_LIMIT.as_secs().to_string()])
        .into_command()
        .stdin(Stdio::null())
        .stderr(file)
        .spawn()
        .context("starting the client that waits for HBase")?;
    let mut client = crate::server::Process::new(client);
    loop {
        if let Some(status) = client.ended()? {
            if status.success() {
                return Ok(());
            }
            let region_server = process::log_tail(&place.log(REGION_SERVER));
            let said = fs::read_to_string(&log).unwrap_or_default();
            bail!(
                "HBase does not serve: {}\nThe region server's log ends:\n{region_server}",
                said.trim()
            );
        }
        if let Some(member) = members.iter().find(|member| !member.identity.is_alive()) {
            bail!(died(place, &member.name));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn party(
    place: &Place,
    request: &Request,
    java: &Java,
    options: &Options,
    address: &str,
    members: Vec<Member>,
) -> Result<Party> {
    let printed = java.client(place, "256m", "stele.rivals.hbase.Effective").output()?;
    let (version, mut configuration) = effective(&printed)?;
    for part in &PARTS {
        let flags = jvm_flags(options, part).join(" ");
        configuration.insert(format!("jvm {}", part.name), flags);
    }
    Ok(Party {
        name: "hbase",
        version,
        url: format!("hbase://{address}"),
        members,
        configuration,
        data_dirs: vec![place.data()],
        settings: request.settings.clone(),
    })
}

/// HBase's version and its configuration from the output of `Effective.java`: kind, name and value with tabs between.
fn effective(printed: &str) -> Result<(String, BTreeMap<String, String>)> {
    let mut map = BTreeMap::new();
    for line in printed.lines() {
        let mut fields = line.splitn(3, '\t');
        let (Some(kind), Some(name), Some(value)) = (fields.next(), fields.next(), fields.next()) else {
            bail!("the effective configuration has a line {line:?}; expected kind, name and value");
        };
        map.insert(format!("{kind}: {name}"), value.to_owned());
    }
    let version = map.get("version: hbase").cloned();
    Ok((version.context("HBase did not say its version")?, map))
}

/// The running HBase, for clients: where it is and its parts.
fn running(place: &Place) -> Result<(String, Vec<Member>)> {
    let url = super::party::address_of(&place.party());
    let url = url.context("HBase does not run: cargo xtask rival start hbase")?;
    Ok((url, members(place)?))
}

/// CPU seconds of a part so far; `None` when it is dead.
fn cpu_seconds(identity: &Identity) -> Option<f64> {
    Some(identity.stat()?.cpu_seconds())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effective_configuration_is_read() -> Result<()> {
        let (version, map) = effective("version\thbase\t2.6\nhbase-site.xml\ta.b\tc\td\nhbase-default.xml\te\t\n")?;
        assert_eq!(version, "2.6");
        assert_eq!(map.get("hbase-site.xml: a.b").map(String::as_str), Some("c\td"));
        assert_eq!(map.get("hbase-default.xml: e").map(String::as_str), Some(""));
        assert!(effective("version\thbase\n").is_err());
        assert!(effective("hbase-site.xml\ta\tb\n").is_err());
        Ok(())
    }

    #[test]
    fn no_port_serves_two_purposes() {
        let mut offsets: Vec<u16> = PARTS
            .iter()
            .flat_map(|part| part.ports)
            .map(|(offset, _)| *offset)
            .collect();
        assert!(offsets.iter().all(|offset| *offset <= PORT_SPAN));
        let count = offsets.len();
        offsets.sort_unstable();
        offsets.dedup();
        assert_eq!(offsets.len(), count);
    }
}
