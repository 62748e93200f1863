//! Rules about manifests: dependencies between crates point one way, and every external one is justified.

use super::{Problem, SourceFile};

/// The crates from the bottom up. A crate may depend only on crates to its left; `ARCHITECTURE.md` lists the knowledge
/// that each must not have.
const ORDER: &[&str] = &[
    "types",
    "assignment",
    "wire",
    "adminapi",
    "env",
    "memory",
    "storage",
    "objects",
    "hdfs",
    "encryption",
    "kms",
    "hfile",
    "coord",
    "etcd",
    "cache",
    "commitlog",
    "sstable",
    "filter",
    "memtable",
    "tablet",
    "catalog",
    "client",
    "access",
    "settings",
    "peer",
    "tabletserver",
    "master",
    "backup",
    "cluster",
    "serving",
    "bigtable",
    "hbase",
    "console",
    "hbaseclient",
    "cli",
    "migrate",
    "server",
    "bench",
    "enginebench",
    "sim",
];

fn rank(name: &str) -> Option<usize> {
    ORDER.iter().position(|layer| *layer == name)
}

/// The rules for one crate's manifest.
pub fn manifest(file: &SourceFile) -> Vec<Problem> {
    let Some(name) = file
        .path
        .strip_prefix("crates/")
        .and_then(|p| p.strip_suffix("/Cargo.toml"))
    else {
        return Vec::new();
    };
    let mut problems = Vec::new();
    if !file.text.contains("[lints]\nworkspace = true") {
        problems.push(Problem::new(&file.path, 0, "takes the workspace's lints"));
    }
    let own = rank(name);
    if own.is_none() && name != "xtask" {
        problems.push(Problem::new(&file.path, 0, "the crate has no place in the layers"));
    }
    for (index, line) in file.text.lines().enumerate() {
        let Some(dependency) = line
            .strip_prefix("stele-")
            .and_then(|l| l.split(['.', ' ', '=']).next())
        else {
            continue;
        };
        let allowed = match (own, rank(dependency)) {
            (Some(own), Some(other)) => other < own,
            _ => false,
        };
        if !allowed {
            let what = format!("`{name}` must not depend on `{dependency}`");
            problems.push(Problem::new(&file.path, index + 1, what));
        }
    }
    problems
}

/// In the workspace's manifest, a comment stands above every external dependency, or above the family it belongs to
/// (`tonic`, `tonic-prost`).
pub fn workspace_comments(file: &SourceFile) -> Vec<Problem> {
    if file.path != "Cargo.toml" {
        return Vec::new();
    }
    let mut problems = Vec::new();
    let mut inside = false;
    let mut explained: Option<String> = None;
    let mut after_comment = false;
    for (index, line) in file.text.lines().enumerate() {
        if line.starts_with('[') {
            inside = line == "[workspace.dependencies]";
        } else if line.starts_with('#') {
            after_comment = true;
            continue;
        } else if inside && let Some((name, _)) = line.split_once(" = ") {
            let family = name.split(['-', '_']).next().unwrap_or(name).to_owned();
            if after_comment {
                explained = Some(family);
            } else if name != "stele" && !name.starts_with("stele-") && explained.as_ref() != Some(&family) {
                let what = format!("a sentence above `{name}` says why it is needed");
                problems.push(Problem::new(&file.path, index + 1, what));
            }
        }
        after_comment = false;
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn arrows_point_down() {
        let text = "[lints]\nworkspace = true\n[dependencies]\nstele-types.workspace = true\n";
        assert!(manifest(&file("crates/tablet/Cargo.toml", text)).is_empty());
        let text = format!("{text}stele-client = {{ workspace = true }}\n");
        let problems = manifest(&file("crates/tablet/Cargo.toml", &text));
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].what, "`tablet` must not depend on `client`");
        assert!(manifest(&file("crates/sim/Cargo.toml", &text)).is_empty());
    }

    #[test]
    fn strangers_and_missing_lints_are_named() {
        assert_eq!(
            manifest(&file("crates/stranger/Cargo.toml", "[dependencies]\n")).len(),
            2
        );
        assert!(manifest(&file("crates/xtask/Cargo.toml", "[lints]\nworkspace = true\n")).is_empty());
    }

    #[test]
    fn dependencies_are_explained() {
        let good = "[workspace.dependencies]\nstele-a = { path = \"a\" }\n\n# Why.\ntonic = \"1\"\ntonic-b = \"1\"\n";
        assert!(workspace_comments(&file("Cargo.toml", good)).is_empty());
        let bad = format!("{good}other = \"1\"\n[profile.dev]\nx = 1\n");
        assert_eq!(workspace_comments(&file("Cargo.toml", &bad)).len(), 1);
    }
}
