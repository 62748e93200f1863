//! Writes one table through both APIs while it is split, and compares its digests.
//!
//! Google's Go client makes the table and writes one half in bulk, HBase's Java client writes the other half and splits the
//! table eight times meanwhile. Afterwards HBase's own client, and the generator over either protocol, compute a digest of all
//! cells. All three must agree.

use super::Target;
use super::tools::small_program;
use crate::server::Process;
use crate::shell::Run;
use crate::{bench, tools};
use anyhow::{Context, Result, ensure};

/// The instance of the Go program: a namespace of HBase.
const INSTANCE: &str = "measure";
const TABLE: &str = "halves";

/// Whether all clients read the same `rows` rows.
pub fn run(target: &Target, rows: u32) -> Result<bool> {
    let (server, _) = target.started.as_ref().context("the server is started here")?;
    let name = format!("{INSTANCE}:{TABLE}");
    let half = (rows / 2).to_string();
    let java = |arguments: &[&str]| small_program("1g", "Halves").map(|program| program.args(arguments));
    let fill = Run::new(tools::go_program("measure")?)
        .args(["fill", "-address", server.address(), "-table", TABLE])
        .args(["-rows", &half, "-value-bytes", "100"]);
    let mut writer = Process::new(
        java(&["write", &target.address, &name, &half])?
            .into_command()
            .spawn()?,
    );
    fill.check()?;
    let written = writer.child().wait()?;
    ensure!(written.success(), "HBase's client ended with {written}");
    let bench = bench::build()?;
    let digest_at = |url: String, table: &str| Run::new(&bench).args(["digest", "--target", &url, table]).output();
    let digests = [
        ("HBase's client", java(&["digest", &target.address, &name])?.output()?),
        (
            "HBase's protocol",
            digest_at(format!("hbase://{}", target.address), &name)?,
        ),
        (
            "Bigtable's API",
            digest_at(
                format!("bigtable://{}/{INSTANCE}?project={INSTANCE}", server.address()),
                TABLE,
            )?,
        ),
    ];
    for (client, digest) in &digests {
        println!("{client}: {}", digest.trim());
    }
    let [(_, first), rest @ ..] = &digests;
    let expected = format!("rows {} ", u64::from(rows / 2) * 2);
    let passed = first.starts_with(&expected) && rest.iter().all(|(_, digest)| digest.trim() == first.trim());
    println!("{} passed, {} failed", u8::from(passed), u8::from(!passed));
    Ok(passed)
}
