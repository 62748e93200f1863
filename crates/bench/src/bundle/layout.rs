//! Paths in a bundle's folder, safe on every file system, and the index in `bundle.json`.

use super::{Bundle, Witness};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const INDEX: &str = "bundle.json";
pub(super) const SUITE: &str = "suite.json";
pub(super) const PROCESSES: &str = "xray/processes.csv";
pub(super) const HOSTS: &str = "xray/hosts.csv";
pub(super) const PAUSES: &str = "xray/pauses.csv";
pub(super) const DIFFERENCES_JSON: &str = "configuration-differences.json";
pub(super) const DIFFERENCES_TEXT: &str = "configuration-differences.md";
pub(super) const REPORT: &str = "report.html";
pub(super) const SUMS: &str = "SHA256SUMS";
/// Present while a bundle is being written.
pub(super) const INCOMPLETE: &str = "INCOMPLETE";

/// Longest name made from foreign text. With suffixes it stays below the 255 bytes that file systems allow.
const NAME_BYTES_MAX: usize = 80;

/// `bundle.json`: the bundle without the contents of the other files.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Index {
    pub format: u32,
    pub tool: String,
    pub command: Vec<String>,
    pub started_at: f64,
    pub ended_at: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeats: Option<u32>,
    pub machine: BTreeMap<String, String>,
    pub witnesses: Vec<Witness>,
    pub parties: Vec<String>,
    pub runs: Vec<RunFiles>,
}

/// The files of one run.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct RunFiles {
    pub file: String,
    pub series: Option<String>,
}

impl Index {
    /// The index of `bundle`, with a path for every target and run.
    pub fn of(bundle: &Bundle) -> Self {
        let mut taken = Taken::default();
        let parties = bundle
            .parties
            .iter()
            .map(|party| taken.path("parties", &safe(&party.name), "json"))
            .collect();
        let runs = bundle.runs.iter().map(|run| {
            let party = bundle
                .parties
                .get(run.party)
                .map_or("unknown", |party| party.name.as_str());
            let name = format!("{}--{}--{}", safe(&run.label), safe(party), run.repeat);
            let experiment = safe(&run.experiment);
            let file = taken.path(&format!("runs/{experiment}"), &name, "json");
            let series = || taken.path(&format!("series/{experiment}"), &name, "csv");
            RunFiles {
                file,
                series: (!run.series.is_empty()).then(series),
            }
        });
        Self {
            format: super::FORMAT,
            tool: bundle.tool.clone(),
            command: bundle.command.clone(),
            started_at: bundle.started_at,
            ended_at: bundle.ended_at,
            repeats: bundle.repeats,
            machine: bundle.machine.clone(),
            witnesses: bundle.witnesses.clone(),
            runs: runs.collect(),
            parties,
        }
    }
}

/// Paths in use, compared without regard to case, since some file systems compare so.
#[derive(Default)]
struct Taken(BTreeSet<String>);

impl Taken {
    fn path(&mut self, folder: &str, name: &str, extension: &str) -> String {
        let mut path = format!("{folder}/{name}.{extension}");
        let mut number = 2u64;
        while !self.0.insert(path.to_ascii_lowercase()) {
            path = format!("{folder}/{name}-{number}.{extension}");
            number += 1;
        }
        path
    }
}

/// `name` as a file name: only letters, digits, `.`, `_`, `-`, not hidden, not empty, not long.
pub(super) fn safe(name: &str) -> String {
    let keep = |(at, byte): (usize, u8)| match byte {
        b'.' if at == 0 => '_',
        byte if is_safe(byte) => char::from(byte),
        _ => '_',
    };
    let name: String = name.bytes().take(NAME_BYTES_MAX).enumerate().map(keep).collect();
    if name.is_empty() { "_".to_owned() } else { name }
}

/// Whether this format allows `path`: relative, at most three names of the safe kind.
pub(super) fn is_path(path: &str) -> bool {
    let is_name = |name: &str| !name.is_empty() && !name.starts_with('.') && name.bytes().all(is_safe);
    path.len() < 1024 && path.split('/').all(is_name) && path.split('/').count() <= 3
}

fn is_safe(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_become_safe_paths() {
        for name in [
            "../../etc/passwd",
            "",
            ".",
            "..",
            "a/b",
            "a\0b",
            "näme",
            "<b>",
            &"x".repeat(500),
            "-rf",
        ] {
            let path = format!("runs/{}/{}.json", safe(name), safe(name));
            assert!(is_path(&path), "{name:?} became {path:?}");
        }
    }

    #[test]
    fn paths_that_leave_the_folder_are_refused() {
        for path in [
            "",
            "/etc/passwd",
            "../x",
            "runs/../../x",
            "runs//x",
            "a/b/c/d",
            "runs/.hidden",
            "c:\\x",
            "a b",
        ] {
            assert!(!is_path(path), "{path:?}");
        }
    }

    #[test]
    fn equal_names_get_different_paths() {
        let mut taken = Taken::default();
        assert_eq!(taken.path("parties", "stele", "json"), "parties/stele.json");
        assert_eq!(taken.path("parties", "Stele", "json"), "parties/Stele-2.json");
        assert_eq!(taken.path("parties", "stele", "json"), "parties/stele-3.json");
        assert_eq!(taken.path("runs", "stele", "json"), "runs/stele.json");
    }
}
