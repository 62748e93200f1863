//! Checks dependencies: licences, sources, forbidden crates, known vulnerabilities.
//!
//! `deny.toml` lists the permitted ones. The list of vulnerabilities is fetched from its repository; where that cannot be
//! reached, everything else can still be checked.

use crate::shell::{Run, root};
use crate::tools;
use anyhow::Result;

/// Whether everything is as `deny.toml` says. `offline` leaves out known vulnerabilities, and uses the files that cargo
/// has fetched already.
pub fn run(offline: bool) -> Result<bool> {
    let program = tools::cargo_deny()?;
    let checks: &[&str] = match offline {
        true => &["--offline", "check", "bans", "licenses", "sources"],
        false => &["check"],
    };
    Run::new(program).args(checks).dir(root()).succeeds()
}
