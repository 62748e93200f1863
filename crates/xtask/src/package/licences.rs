//! The crates in the program: their licences, and a bill of materials (CycloneDX).
//!
//! Crates are those that the server's crate depends on, on this platform, without those of tests and build scripts.

use super::source;
use crate::shell::{Run, cargo};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// The crate whose program is packaged.
const PROGRAM: &str = "stele";
/// Folders below a crate's own that may have the licence of C sources.
const DEPTH_MAX: usize = 2;
/// A licence is a few kilobytes.
const TEXT_BYTES_MAX: u64 = 100_000;

/// The texts about the crates in the program.
pub struct Materials {
    /// The licences, with the crates that each is of.
    pub licences: String,
    /// CycloneDX 1.5 as JSON.
    pub sbom: String,
    /// How many crates.
    pub crates: usize,
    /// How many different texts of licences.
    pub texts: usize,
}

/// A crate of somebody else.
#[derive(Debug, PartialEq, Eq)]
struct Crate {
    name: String,
    version: String,
    /// An SPDX expression.
    licence: String,
    folder: PathBuf,
    /// Ids of crates that it depends on.
    needs: BTreeSet<String>,
}

impl Crate {
    /// Its package URL.
    fn url(&self) -> String {
        format!("pkg:cargo/{}@{}", self.name, self.version)
    }
}

/// Collects the texts.
pub fn of_program() -> Result<Materials> {
    let host = Run::new("rustc").args(["-vV"]).output()?;
    let host = host.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("rustc names its platform")?;
    let metadata = cargo(["metadata", "--format-version", "1", "--locked", "--filter-platform"]).args([host]);
    let metadata: Value = serde_json::from_str(&metadata.output()?)?;
    let (crates, direct) = crates(&metadata)?;
    let (licences, texts) = licences(&crates)?;
    let sbom = sbom(
        &crates,
        &direct,
        &checksums(&source("Cargo.lock")?),
        &own_version(&metadata)?,
    );
    Ok(Materials {
        licences,
        sbom: serde_json::to_string_pretty(&sbom)? + "\n",
        crates: crates.len(),
        texts,
    })
}

fn own_version(metadata: &Value) -> Result<String> {
    let packages = metadata["packages"].as_array().context("packages")?;
    let own = packages
        .iter()
        .find(|package| package["name"] == PROGRAM && package["source"].is_null());
    let version = own.and_then(|package| package["version"].as_str());
    Ok(version.context("the program's crate has a version")?.to_owned())
}

/// The crates of others by id, and those of them that the workspace depends on itself.
fn crates(metadata: &Value) -> Result<(BTreeMap<String, Crate>, BTreeSet<String>)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages = metadata["packages"].as_array().context("packages")?;
    let by_id: BTreeMap<String, &Value> = packages.iter().map(|package| (text(&package["id"]), package)).collect();
    let nodes = metadata["resolve"]["nodes"].as_array().context("nodes")?;
    let needs: BTreeMap<String, BTreeSet<String>> =
        nodes.iter().map(|node| (text(&node["id"]), needed(node))).collect();
    let is_own = |id: &str| by_id.get(id).is_some_and(|package| package["source"].is_null());
    let program = by_id
        .iter()
        .find(|(id, package)| is_own(id) && package["name"] == PROGRAM);
    let mut open = vec![program.context("the workspace has the program's crate")?.0.clone()];
    let (mut seen, mut found, mut direct) = (BTreeSet::new(), BTreeMap::new(), BTreeSet::new());
    while let Some(id) = open.pop() {
        if !seen.insert(id.clone()) {
            continue;
        }
        let needs = needs.get(&id).cloned().unwrap_or_default();
        open.extend(needs.iter().cloned());
        if is_own(&id) {
            direct.extend(needs.into_iter().filter(|id| !is_own(id)));
            continue;
        }
        let package = by_id.get(&id).context("each node is a package")?;
        let folder = Path::new(package["manifest_path"].as_str().unwrap_or_default());
        let made = Crate {
            name: text(&package["name"]),
            version: text(&package["version"]),
            licence: text(&package["license"]).replace('/', " OR "),
            folder: folder.parent().unwrap_or(folder).to_owned(),
            needs,
        };
        found.insert(id, made);
    }
    Ok((found, direct))
}

/// The crates that are linked into one.
fn needed(node: &Value) -> BTreeSet<String> {
    let normal = |dependency: &&Value| {
        let kinds = dependency["dep_kinds"].as_array();
        kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
    };
    let dependencies = node["deps"].as_array().into_iter().flatten().filter(normal);
    dependencies
        .filter_map(|dependency| Some(dependency["pkg"].as_str()?.to_owned()))
        .collect()
}

/// Checksums of the lock file by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let mut found = BTreeMap::new();
    for package in lock.split("[[package]]") {
        let value = |key: &str| {
            let line = package
                .lines()
                .find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
            line.map(|line| line.trim_matches('"').to_owned())
        };
        if let (Some(name), Some(version), Some(checksum)) = (value("name"), value("version"), value("checksum")) {
            found.insert((name, version), checksum);
        }
    }
    found
}

/// The bill of materials.
fn sbom(
    crates: &BTreeMap<String, Crate>,
    direct: &BTreeSet<String>,
    checksums: &BTreeMap<(String, String), String>,
    version: &str,
) -> Value {
    let urls = |ids: &BTreeSet<String>| -> Vec<String> {
        ids.iter().filter_map(|id| crates.get(id)).map(Crate::url).collect()
    };
    let component = |found: &Crate| {
        let mut component = json!({
            "type": "library", "bom-ref": found.url(), "purl": found.url(),
            "name": found.name, "version": found.version,
            "licenses": [{"expression": found.licence}],
        });
        if let Some(checksum) = checksums.get(&(found.name.clone(), found.version.clone())) {
            component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
        }
        component
    };
    let own = json!({"ref": PROGRAM, "dependsOn": urls(direct)});
    let others = crates
        .values()
        .map(|found| json!({"ref": found.url(), "dependsOn": urls(&found.needs)}));
    json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {"component": {
            "type": "application", "bom-ref": PROGRAM, "name": PROGRAM, "version": version,
            "licenses": [{"license": {"id": "Apache-2.0"}}],
        }},
        "components": crates.values().map(component).collect::<Vec<_>>(),
        "dependencies": std::iter::once(own).chain(others).collect::<Vec<_>>(),
    })
}

/// The licences with the crates that each is of, and the number of texts.
fn licences(crates: &BTreeMap<String, Crate>) -> Result<(String, usize)> {
    let mut out = String::from("The program contains these crates, in the form name, version, licence.\n\n");
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for found in crates.values() {
        let name = format!("{} {}", found.name, found.version);
        let _ = writeln!(out, "{name}  {}", found.licence);
        for file in licence_files(&found.folder, DEPTH_MAX)? {
            let text = String::from_utf8_lossy(&fs::read(&file)?).replace("\r\n", "\n");
            let of = texts.entry(text.trim_end().to_owned()).or_default();
            if of.last() != Some(&name) {
                of.push(name.clone());
            }
        }
    }
    let count = texts.len();
    for (text, of) in texts {
        let _ = write!(out, "\n{}\n{}\n\n{text}\n", "-".repeat(80), of.join(", "));
    }
    Ok((out, count))
}

/// The files of a folder whose names say that they are licences, also of C sources in folders below.
fn licence_files(folder: &Path, depth: usize) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut entries: Vec<_> = fs::read_dir(folder)?.collect::<std::io::Result<_>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, kind) = (entry.path(), entry.file_type()?);
        let name = entry.file_name().to_string_lossy().to_uppercase();
        let is_named = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"]
            .iter()
            .any(|word| name.starts_with(word));
        if kind.is_dir() && depth > 0 {
            found.extend(licence_files(&path, depth - 1)?);
        } else if kind.is_file() && is_named && entry.metadata()?.len() <= TEXT_BYTES_MAX && !name.ends_with(".RS") {
            found.push(path);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata() -> Value {
        let package = |name: &str, source: Value| {
            json!({"id": name, "name": name, "version": "1.0.0", "source": source, "license": "MIT/Apache-2.0",
                   "manifest_path": format!("/crates/{name}/Cargo.toml")})
        };
        let needs = |pkg: &str, kind: Value| json!({"pkg": pkg, "dep_kinds": [{"kind": kind}]});
        json!({
            "packages": [package("stele", Value::Null), package("own", Value::Null), package("a", "r".into()),
                         package("b", "r".into()), package("of-tests", "r".into())],
            "resolve": {"nodes": [
                {"id": "stele", "deps": [needs("own", Value::Null), needs("of-tests", "dev".into())]},
                {"id": "own", "deps": [needs("a", Value::Null)]},
                {"id": "a", "deps": [needs("b", Value::Null)]},
                {"id": "b", "deps": []},
                {"id": "of-tests", "deps": []},
            ]},
        })
    }

    #[test]
    fn linked_crates_are_materials() {
        let (crates, direct) = crates(&metadata()).unwrap();
        assert_eq!(crates.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(direct, BTreeSet::from(["a".to_owned()]));
        let lock =
            "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"ab12\"\n\n[[package]]\nname = \"stele\"\n";
        let sbom = sbom(&crates, &direct, &checksums(lock), "0.1.0");
        assert_eq!(sbom["components"][0]["purl"], "pkg:cargo/a@1.0.0");
        assert_eq!(sbom["components"][0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(sbom["components"][0]["hashes"][0]["content"], "ab12");
        assert_eq!(
            sbom["dependencies"][0],
            json!({"ref": "stele", "dependsOn": ["pkg:cargo/a@1.0.0"]})
        );
        assert_eq!(sbom["dependencies"][1]["dependsOn"][0], "pkg:cargo/b@1.0.0");
    }
}
