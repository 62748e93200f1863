//! Targets and their descriptions: name, version, processes, configuration.
//!
//! A *`party` file* (parameter `party` of an address, `docs/rivals.md`) describes a target completely. Without one, the
//! process that listens on a loopback port is found, and the report names the unknown facts.

use crate::bundle::Party;
use crate::engine::conductor::Rival;
use crate::target::{self, TargetUrl};
use crate::xray::{self, Watched};
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// A file that `cargo xtask rival start` writes, or a user.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PartyFile {
    version: String,
    processes: Vec<Watched>,
    configuration: BTreeMap<String, String>,
    data_dirs: Vec<String>,
    settings: Vec<String>,
}

/// Opens all targets.
///
/// # Errors
/// An address or a `party` file that is invalid; two targets of one name.
pub async fn open_all(urls: &[String]) -> Result<Vec<Rival>> {
    let mut rivals: Vec<Rival> = Vec::new();
    for url in urls {
        let rival = open(url).await.with_context(|| format!("target {url}"))?;
        let name = &rival.party.name;
        let taken = rivals.iter().any(|r| r.party.name == *name);
        ensure!(!taken, "two targets are called {name}; add `name=` to an address");
        rivals.push(rival);
    }
    Ok(rivals)
}

/// Protocols that these targets speak, for the controls.
pub fn protocols(urls: &[String]) -> Vec<String> {
    let schemes: BTreeSet<String> = urls
        .iter()
        .filter_map(|u| TargetUrl::parse(u).ok())
        .map(|u| u.scheme)
        .collect();
    schemes
        .into_iter()
        .filter(|s| s == "hbase" || s == "bigtable")
        .collect()
}

/// A target's processes at this moment. Its `party` file is read again, because a server that was killed has another
/// process afterwards. None if the file cannot be read.
pub fn processes_now(party: &Party) -> Vec<Watched> {
    let Ok(url) = TargetUrl::parse(&party.url) else {
        return Vec::new();
    };
    let is_there = |process: &Watched| xray::process_time(process.pid).is_some();
    if url.parameter("party").is_none() && party.processes.iter().all(is_there) {
        // To find them again, every process of the machine is read.
        return party.processes.clone();
    }
    read_file(&url).map_or_else(|_| Vec::new(), |file| processes(&url, file.processes, &party.name))
}

async fn open(text: &str) -> Result<Rival> {
    let url = TargetUrl::parse(text)?;
    let file = read_file(&url)?;
    let target = target::open(text).await?;
    let description = target.describe().await?;
    let mut configuration = file.configuration;
    if !file.settings.is_empty() {
        configuration.insert("settings".into(), file.settings.join(" "));
    }
    let name = target.name().to_owned();
    let processes = processes(&url, file.processes, &name);
    let party = Party {
        name,
        version: file.version,
        url: text.to_owned(),
        processes,
        configuration,
        data_dirs: file.data_dirs,
        description,
    };
    Ok(Rival { party, target })
}

/// The `party` file of an address; empty if it names none.
fn read_file(url: &TargetUrl) -> Result<PartyFile> {
    let Some(path) = url.parameter("party") else {
        return Ok(PartyFile::default());
    };
    let text = std::fs::read_to_string(path).with_context(|| format!("reading `party` file {path}"))?;
    serde_json::from_str(&text).with_context(|| format!("`party` file {path}"))
}

/// The processes that a file describes, or the one that is found. Each has a name of its own among all targets' ones.
fn processes(url: &TargetUrl, described: Vec<Watched>, party: &str) -> Vec<Watched> {
    let mut processes = described;
    if processes.is_empty() {
        processes.extend(listening(url));
    }
    let mut taken = BTreeSet::new();
    for process in &mut processes {
        let name = if process.name == party {
            process.name.clone()
        } else {
            format!("{party} {}", process.name)
        };
        process.name.clone_from(&name);
        // Members of a cluster may have one name. Figures are kept by name, so that the others would be lost.
        let mut number = 1;
        while !taken.insert(process.name.clone()) {
            number += 1;
            process.name = format!("{name} {number}");
        }
    }
    processes
}

/// The process behind a loopback address, if it can be found.
fn listening(url: &TargetUrl) -> Option<Watched> {
    let loopback = matches!(url.host.as_str(), "localhost" | "127.0.0.1" | "[::1]" | "::1");
    let port = url.port.filter(|_| loopback)?;
    xray::listener(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A target whose `party` file describes these processes.
    fn party(folder: &std::path::Path, processes: &[(&str, u32)]) -> Party {
        let file = folder.join("party.json");
        let processes: Vec<_> = processes
            .iter()
            .map(|(name, pid)| serde_json::json!({"name": name, "pid": pid}))
            .collect();
        let text = serde_json::json!({ "processes": processes }).to_string();
        std::fs::write(&file, text).unwrap();
        Party {
            name: "cluster".into(),
            url: format!("bigtable://h:1/i?party={}", file.display()),
            ..Party::default()
        }
    }

    fn names(processes: &[Watched]) -> Vec<&str> {
        processes.iter().map(|process| process.name.as_str()).collect()
    }

    #[test]
    fn processes_of_one_name_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let described = [("etcd", 1), ("etcd", 2), ("cluster", 3), ("etcd 2", 4), ("etcd", 5)];
        let found = processes_now(&party(folder.path(), &described));
        let expected = [
            "cluster etcd",
            "cluster etcd 2",
            "cluster",
            "cluster etcd 2 2",
            "cluster etcd 3",
        ];
        assert_eq!(names(&found), expected);
    }

    #[test]
    fn a_changed_file_names_other_processes() {
        let folder = tempfile::tempdir().unwrap();
        let party_of = |pid| party(folder.path(), &[("node", pid)]);
        let at_first = party_of(11);
        assert_eq!(processes_now(&at_first)[0].pid, 11);
        party_of(12);
        assert_eq!(processes_now(&at_first)[0].pid, 12);
        std::fs::remove_file(folder.path().join("party.json")).unwrap();
        assert_eq!(processes_now(&at_first), []);
    }
}
