//! Imports Debian's package list with `stele import` and checks it with `cbt`.

use crate::server::{self, Scratch, Server, Start};
use crate::shell::{Run, root};
use crate::tools;
use anyhow::{Context, Result};
use std::fs;
use std::path::PathBuf;

/// The lists that `apt-get update` fetched.
const LISTS: &str = "/var/lib/apt/lists";

/// Whether both agree on everything.
pub fn run() -> Result<bool> {
    server::build()?;
    let python = tools::python()?;
    let cbt = tools::cbt()?;
    let scratch = Scratch::new("debian")?;
    let (data, log) = (scratch.join("data"), scratch.join("server.log"));
    let server = Server::start(&Start {
        data: &data,
        log: &log,
        arguments: &[],
    })?;
    let passed = Run::new(&python)
        .args([
            "-B".into(),
            root().join("tests/clients/debian/compare.py").into_os_string(),
        ])
        .args(["--address", server.address(), "--stele"])
        .args([server::stele()])
        .args(["--cbt".into(), cbt.into_os_string()])
        .args(["--packages".into(), package_list()?.into_os_string()])
        .args(["--scratch".into(), scratch.join("").into_os_string()])
        .succeeds()?;
    if passed {
        scratch.passed();
    }
    Ok(passed)
}

/// The largest list there is: that of the main archive.
fn package_list() -> Result<PathBuf> {
    let mut lists = Vec::new();
    for entry in fs::read_dir(LISTS).context("reading apt's lists; this task needs a Debian")? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().contains("_Packages") {
            lists.push((entry.metadata()?.len(), entry.path()));
        }
    }
    lists.sort();
    let (_, path) = lists.pop().context("no package lists; run apt-get update")?;
    Ok(path)
}
