//! Loads files into Stele and HBase with HBase's tool, and compares the tables.
//!
//! `BulkLoad.java` in `tests/rivals/hbase` writes the files, loads them, and prints all cells after each step.

use super::Target;
use super::tools::{configure, show};
use crate::rival;
use crate::server::{Scratch, Server, Start, build, free_address};
use anyhow::{Context, Result};

const MAIN: &str = "stele.rivals.hbase.BulkLoad";
/// Of the lines that are compared; others are of the log.
const MARK: &str = "= ";
/// Differences that are shown.
const SHOWN_MAX: usize = 20;

/// Whether both have the same cells after each step.
pub(super) fn run(settings: &[String]) -> Result<bool> {
    let scratch = Scratch::new("hbase-bulk-load")?;
    let hbase = Target::hbase(settings)?;
    let expected = observe(&hbase.address, &scratch, "of-hbase")?;
    build()?;
    let (data, log, stage) = (
        scratch.join("data"),
        scratch.join("server.log"),
        scratch.join("of-stele"),
    );
    let address = free_address()?;
    let root = format!("file://{}", stage.display());
    let server = Server::start(&Start {
        data: &data,
        log: &log,
        arguments: &["--hbase", &address, "--bulk-load-root", &root],
    })?;
    let found = observe(&address, &scratch, "of-stele")?;
    drop(server);
    let passed = compare(&expected, &found);
    println!("{} passed, {} failed", u8::from(passed), u8::from(!passed));
    if passed {
        scratch.passed();
    }
    Ok(passed)
}

/// The lines that the program prints about a server.
fn observe(address: &str, scratch: &Scratch, folder: &str) -> Result<Vec<String>> {
    let place = configure(address, &format!("hbase-bulk-load-{folder}"))?;
    let stage = format!("file://{}", scratch.join(folder).display());
    let mut output = Vec::new();
    let succeeded = rival::hbase_tool(&place, "1g", MAIN)?
        .args([address, &stage])
        .lines(|line| output.push(line.to_owned()))?;
    if !succeeded {
        show(&output);
    }
    let lines = output.iter().filter_map(|line| line.strip_prefix(MARK));
    let lines: Vec<String> = lines.map(str::to_owned).collect();
    (succeeded && !lines.is_empty())
        .then_some(lines)
        .with_context(|| format!("{MAIN} failed against {address}"))
}

fn compare(expected: &[String], found: &[String]) -> bool {
    println!("{} lines of HBase, {} of Stele", expected.len(), found.len());
    let differences = expected.iter().zip(found).filter(|(expected, found)| expected != found);
    for (expected, found) in differences.take(SHOWN_MAX) {
        println!("HBase {expected}\nStele {found}");
    }
    expected == found
}
