//! Replaces the nodes of an earlier version under load. No client may see an error.
//!
//! Before the first replacement and after each, tablets move and are split, a snapshot is taken and restored, and the leader
//! is killed. So nodes of both versions lead, and take over the tablets and logs of the other version.

use super::fault::{self, Fault};
use super::{Cluster, chaos, moves, snapshots};
use crate::registers::{Registers, Window};
use crate::server;
use crate::shell::{Run, cargo, target_dir};
use anyhow::{Context, Result};
use std::fs;
use std::ops::Range;
use std::path::PathBuf;

/// Splits in each stage.
const SPLITS: u32 = 12;

/// The server of a revision. Its sources are built once, which takes as long as every release.
pub fn program(revision: &str) -> Result<PathBuf> {
    let commit = format!("{revision}^{{commit}}");
    let hash = Run::new("git").args(["rev-parse", "--verify", &commit]).output()?;
    let dir = target_dir().join("versions").join(hash.trim());
    let program = dir.join("stele");
    if !program.exists() {
        let sources = dir.join("sources");
        fs::create_dir_all(&sources).with_context(|| format!("making {}", sources.display()))?;
        let archive = dir.join("sources.tar");
        Run::new("git")
            .args(["archive", hash.trim(), "--output"])
            .args([&archive])
            .check()?;
        Run::new("tar").args(["xf"]).args([&archive]).dir(&sources).check()?;
        let target = dir.join("target");
        cargo(["build", "--release", "--locked", "--package", "stele"])
            .dir(&sources)
            .env("CARGO_TARGET_DIR", &target)
            .check()?;
        fs::rename(target.join("release/stele"), &program)?;
        for dir in [&sources, &target] {
            fs::remove_dir_all(dir).with_context(|| format!("removing {}", dir.display()))?;
        }
        fs::remove_file(&archive)?;
    }
    Ok(program)
}

/// Whether no request failed, every row behaved like a register, and every snapshot was exact.
pub fn run(cluster: &mut Cluster) -> Result<bool> {
    let mut registers = Registers::start(&cluster.addresses(), &["-history"])?;
    cluster.settle()?;
    let (earlier, nodes) = (cluster.program.clone(), cluster.nodes.len());
    let mut splits = 0..SPLITS;
    let mut passed = true;
    for upgraded in 0..=nodes {
        if upgraded > 0 {
            cluster.program = server::stele();
            let is_earlier = |node: &super::Node| node.program == earlier;
            let at = cluster.nodes.iter().position(is_earlier).context("an earlier node")?;
            registers.begin()?;
            let name = moves::restart(cluster, &mut registers, at)?;
            passed &= is_good(&format!("{name} is replaced"), &registers.end()?);
        }
        passed &= stage(cluster, &mut registers, splits.clone(), upgraded)?;
        splits = splits.end..splits.end + SPLITS;
    }
    let node = cluster.nodes.first().context("no node")?;
    let check = node.command_within(moves::CHECK_WAIT, &["cluster", "check", "--fresh"])?;
    println!("{}", check.trim_end());
    Ok(passed)
}

/// Changes the cluster in every way while as many nodes are of this tree.
fn stage(cluster: &mut Cluster, registers: &mut Registers, splits: Range<u32>, upgraded: usize) -> Result<bool> {
    registers.begin()?;
    moves::move_around(cluster, moves::TABLETS)?;
    moves::split(cluster, splits)?;
    let mut passed = is_good("moves and splits", &registers.end()?);
    registers.begin()?;
    passed &= snapshots::one(cluster, registers, u32::try_from(upgraded)?)?;
    passed &= is_good("a snapshot", &registers.end()?);
    let leader = cluster.nodes.get(fault::leader(cluster)?).context("a leader")?;
    // The one that takes its place has its version.
    cluster.program = leader.program.clone();
    let version = if leader.program == server::stele() {
        "this"
    } else {
        "the earlier"
    };
    let nodes = cluster.nodes.len();
    registers.begin()?;
    let name = Fault::KillLeader.happen(cluster, registers, 0)?;
    chaos::replace_ended(cluster, registers, nodes)?;
    cluster.settle()?;
    let window = registers.end()?;
    passed &= is_good(&format!("{name} of {version} version is killed"), &window);
    println!("{upgraded} of {nodes} nodes have this version");
    Ok(passed)
}

fn is_good(name: &str, window: &Window) -> bool {
    moves::show(name, window);
    window.is_clean()
}
