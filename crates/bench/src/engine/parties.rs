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

async fn open(text: &str) -> Result<Rival> {
    let url = TargetUrl::parse(text)?;
    let file = match url.parameter("party") {
        Some(path) => {
            let text = std::fs::read_to_string(path).with_context(|| format!("reading `party` file {path}"))?;
            serde_json::from_str(&text).with_context(|| format!("`party` file {path}"))?
        }
        None => PartyFile::default(),
    };
    let target = target::open(text).await?;
    let description = target.describe().await?;
    let mut processes = file.processes;
    if processes.is_empty() {
        processes.extend(listening(&url));
    }
    let mut configuration = file.configuration;
    if !file.settings.is_empty() {
        configuration.insert("settings".into(), file.settings.join(" "));
    }
    let name = target.name().to_owned();
    // One name for each process of all targets.
    for process in processes.iter_mut().filter(|p| p.name != name) {
        process.name = format!("{name} {}", process.name);
    }
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

/// The process behind a loopback address, if it can be found.
fn listening(url: &TargetUrl) -> Option<Watched> {
    let loopback = matches!(url.host.as_str(), "localhost" | "127.0.0.1" | "[::1]" | "::1");
    let port = url.port.filter(|_| loopback)?;
    xray::listener(port)
}
