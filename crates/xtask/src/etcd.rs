//! The coordinator on a real etcd: the conformance suite and the failure tests.
//!
//! The tests start three members each, kill, pause and restart them, and stop them at their end. This task provides the
//! programs and a folder for the data: the machine's etcd or Debian's, and a newer version, whose watches behave in another
//! way. All addresses are free ports of the loopback interface.

use crate::server::Scratch;
use crate::shell::Run;
use crate::tally::Tally;
use crate::{cargo_tests, tools};
use anyhow::Result;
use std::fs;
use std::path::Path;

/// Whether the machine has etcd or can install Debian's.
pub fn available() -> bool {
    tools::debian::on_path("etcd").is_some()
        || ["apt-get", "dpkg-deb"].iter().all(|program| {
            let version = Run::new(program).args(["--version"]).into_command().output();
            version.is_ok_and(|output| output.status.success())
        })
}

/// The suite and the failure tests, with both versions.
pub fn conformance() -> Result<Tally> {
    let mut tally = with_program(&tools::debian::etcd()?, "etcd")?;
    tally.add(with_program(&tools::newer_etcd()?, "newer-etcd")?);
    Ok(tally)
}

fn with_program(program: &Path, name: &str) -> Result<Tally> {
    let scratch = Scratch::new(name)?;
    let folder = scratch.join("members");
    fs::create_dir_all(&folder)?;
    let environment: [(&str, &Path); 2] = [("STELE_TEST_ETCD", program), ("STELE_TEST_ETCD_FOLDER", &folder)];
    let tally = cargo_tests::run_one("etcd::all", None, &environment)?;
    if tally.failed == 0 {
        scratch.passed();
    }
    Ok(tally)
}
