//! Log files of which a DataNode lost the ends.
//!
//! A process writes two log files, syncs their beginnings, and dies. Their leases are taken, as a new owner does, and one gets
//! the note of its last sync. Then the DataNode dies, its block files are made shorter, and it starts again, as after a
//! power loss. A new owner must leave out the end of the noted file by itself. It must refuse the other one, until the note that
//! its error names is made by Hadoop's own shell.

use super::{DATA_NODE, Hdfs, NAME_NODE, Place, data_node};
use crate::cargo_tests;
use crate::hosts::Host;
use crate::server::Scratch;
use crate::tools;
use anyhow::{Context, Result, ensure};
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

const SHELL: &str = "org.apache.hadoop.fs.FsShell";
const DEBUG: &str = "org.apache.hadoop.hdfs.tools.DebugAdmin";
/// The open pieces of the files, without and with a note.
const OPEN: [&str; 2] = [
    "/test/ends/log/0000/1.log/@00000001.open",
    "/test/ends/log/0000/2.log/@00000001.open",
];
/// The note of the second one: it has 1,000 synced bytes.
const NOTE: &str = "/test/ends/log/0000/2.log/@00000001.synced-3e8";
/// Bytes that are left of each block. More were received, fewer were synced.
const LEFT_BYTES: u64 = 2_000_001;

/// Whether a new owner gives up the right bytes, and only with a note.
pub fn run() -> Result<bool> {
    let scratch = Scratch::new("hdfs-ends")?;
    let mut hdfs = Hdfs::start(&scratch, 1)?;
    let host = Host::local();
    let place = Place {
        jars: tools::hadoop_jars()?,
        root: scratch.join("hdfs"),
        host: &host,
    };
    let note = scratch.join("note");
    if !step(&hdfs, "write", &note)? {
        return Ok(false);
    }
    for open in OPEN {
        hadoop(&place, DEBUG, &["recoverLease", "-path", open, "-retries", "30"])?;
    }
    hadoop(&place, SHELL, &["-touchz", NOTE])?;
    let node = hdfs.data_nodes.first_mut().context("no DataNode")?;
    node.kill()?;
    let shorter = shorten(&place.root.join(format!("blocks-{}", data_node(1))))?;
    ensure!(shorter == OPEN.len(), "{shorter} blocks were made shorter");
    *node = place.launch(&data_node(1), DATA_NODE)?;
    if !step(&hdfs, "refuse", &note)? {
        return Ok(false);
    }
    let named = fs::read_to_string(&note).context("the name in the error")?;
    println!("the note that gives the end up: {named}");
    hadoop(&place, SHELL, &["-touchz", &named])?;
    let passed = step(&hdfs, "read", &note)?;
    if passed {
        drop(hdfs);
        scratch.passed();
    }
    Ok(passed)
}

/// Runs one step of the test, which is a process of its own.
fn step(hdfs: &Hdfs, step: &str, note: &Path) -> Result<bool> {
    let address = format!("hdfs://{}", hdfs.address);
    let environment = [
        ("STELE_TEST_HDFS", Path::new(&address)),
        ("STELE_TEST_HDFS_ENDS", Path::new(step)),
        ("STELE_TEST_HDFS_NOTE", note),
    ];
    let tally = cargo_tests::run_one("hdfs::hdfs", Some("lost_ends_are_given_up"), &environment)?;
    Ok(tally.failed == 0 && tally.passed == 1)
}

/// Runs a command of Hadoop.
fn hadoop(place: &Place<'_>, class: &str, arguments: &[&str]) -> Result<()> {
    let output = place.java(NAME_NODE.0, class).args(arguments).into_command().output()?;
    ensure!(
        output.status.success(),
        "{class} {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// Cuts the large block files below a directory; their number.
fn shorten(directory: &Path) -> Result<usize> {
    let mut shorter = 0;
    for entry in fs::read_dir(directory)? {
        let path: PathBuf = entry?.path();
        if path.is_dir() {
            shorter += shorten(&path)?;
            continue;
        }
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with("blk_") && !name.ends_with(".meta") && path.metadata()?.len() > LEFT_BYTES {
            OpenOptions::new().write(true).open(&path)?.set_len(LEFT_BYTES)?;
            shorter += 1;
        }
    }
    Ok(shorter)
}
