//! Migrates a table of a real HBase to Stele while users write to it.
//!
//! The steps are those of `docs/migrating-from-hbase.md`: tables, peer, copy, comparison. A region of the source is split
//! during the copy, and the copy is stopped once and continued. Writing ends before the last comparison.

use super::Target;
use super::tools::small_program;
use crate::server::{Process, stele};
use crate::shell::Run;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{ChildStdout, Stdio};
use std::time::Duration;

/// The users of the table: `Migrate.java`, which obeys lines.
struct Users {
    process: Process,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Users {
    /// Starts them; the table is filled when this returns.
    fn start(source: &Target, quorum: &str, rows: u32) -> Result<Users> {
        let child = small_program("512m", "Migrate")?
            .args([source.address.as_str(), quorum, &rows.to_string()])
            .into_command()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the users of the table")?;
        let mut process = Process::new(child);
        let stdout = process.child().stdout.take().context("the users have no output")?;
        let answers = BufReader::new(stdout).lines();
        let mut users = Users { process, answers };
        users.answer()?;
        Ok(users)
    }

    fn answer(&mut self) -> Result<()> {
        let line = self.answers.next().context("the users have ended")??;
        println!("users: {line}");
        Ok(())
    }

    fn tell(&mut self, order: &str) -> Result<()> {
        let stdin = self.process.child().stdin.as_mut().context("the users have no input")?;
        writeln!(stdin, "{order}")?;
        self.answer()
    }

    /// Removes peer and table.
    fn end(mut self) -> Result<()> {
        let stdin = self.process.child().stdin.take().context("the users have no input")?;
        writeln!(&stdin, "end")?;
        drop(stdin);
        let status = self.process.child().wait()?;
        ensure!(status.success(), "the users ended with {status}");
        Ok(())
    }
}

/// Runs all steps; whether source and target have the same rows in the end.
pub fn run(source: &Target, target: &Target, rows: u32) -> Result<bool> {
    let quorum = target
        .quorum
        .as_deref()
        .context("--migration needs the facade of this server")?;
    let (_, scratch) = target.started.as_ref().context("the server is started here")?;
    let state = scratch.join("migrate.state");
    let command = |options: &[&str]| {
        Run::new(stele())
            .args([
                "migrate",
                &format!("hbase://{}", source.address),
                "--to",
                &target.address,
            ])
            .args(["--tables", "migrated", "--state"])
            .args([&state])
            .args(options)
    };
    let mut users = Users::start(source, quorum, rows)?;
    command(&["--schema-only"]).check()?;
    users.tell("peer")?;
    // A row has some 200 bytes, so this copy takes ten seconds if it is not stopped.
    let slowly = (u64::from(rows) * 20).to_string();
    let mut first = Process::new(command(&["--max-bytes-per-second", &slowly]).into_command().spawn()?);
    users.tell("split")?;
    while !fs::read_to_string(&state).is_ok_and(|text| text.contains("\"through\":\"")) {
        if let Some(status) = first.ended()? {
            bail!("the copy ended before it was stopped: {status}");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    first.terminate()?;
    println!("stopped the copy");
    let copied = command(&["--verify"]).succeeds()?;
    println!(
        "compared while users write: {}",
        if copied { "equal" } else { "different" }
    );
    users.tell("stop")?;
    let equal = command(&["--verify-only"]).succeeds()?;
    users.end()?;
    println!("{} passed, {} failed", u8::from(equal), u8::from(!equal));
    Ok(equal)
}
