//! Lets a second server take storage over and proves that no acknowledged write is lost.
//!
//! The storage is a prefix of an object store or a directory of HDFS. Each round begins with the server that won the
//! round before. 64 writers write to it, and go on while another one is started over the same storage and after it is
//! ready.
//!
//! In every second round the first server is stopped (SIGSTOP) before the takeover and woken afterwards, at any point of
//! its work. In every fourth it sleeps until the files of its log are gone: the second server flushes its data and ends,
//! and a third one, at its start, deletes them.
//!
//! Then the writers end, the first server must end by itself, and `crashload` reads every row back from the last one.
//! The data of all rounds is kept.

use crate::choices;
use crate::remote::Remote;
use crate::server::{self, Process, Scratch, Server, Start};
use crate::writers::{Proof, is_proof};
use anyhow::{Result, bail};
use std::time::{Duration, Instant};

/// Small, so that flushes and compactions happen between takeovers.
const MEMORY_BYTES: &str = "67108864";
/// As small as may be, so that tablets split between and during takeovers.
const TABLET_BYTES: &str = "1MiB";
/// How long writers go on after the takeover: long enough for thousands of tries.
const AFTERWARDS: Duration = Duration::from_millis(300);
/// A replaced server asks every two seconds whether it still is the owner, and then ends.
const END_WAIT: Duration = Duration::from_secs(20);

/// The state of the first server while another one takes over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Old {
    Awake,
    /// Until the next one is ready.
    Asleep,
    /// Until its log was flushed and deleted.
    AsleepForLong,
}

impl Old {
    fn in_round(round: u32) -> Old {
        match round % 4 {
            0 => Old::AsleepForLong,
            2 => Old::Asleep,
            _ => Old::Awake,
        }
    }

    fn describe(self) -> &'static str {
        match self {
            Old::Awake => "",
            Old::Asleep => "asleep, ",
            Old::AsleepForLong => "asleep until its log was deleted, ",
        }
    }
}

struct Setting<'a> {
    scratch: &'a Scratch,
    remote: &'a dyn Remote,
    proof: Proof,
}

/// Whether no acknowledged write was lost in any round.
pub fn run(remote: &dyn Remote, scratch: &Scratch, rounds: u32) -> Result<bool> {
    server::build()?;
    let seed = choices::seed(None)?;
    println!("zombie: {rounds} rounds, seed {seed}");
    let setting = Setting {
        scratch,
        remote,
        proof: Proof::new(scratch.join("state"))?,
    };
    let mut owner = setting.start(0)?;
    let mut acknowledged = 0;
    for round in 1..=rounds {
        match setting.round(round, seed + u64::from(round), owner)? {
            Some((next, more)) => {
                owner = next;
                acknowledged += more;
            }
            None => return Ok(false),
        }
    }
    drop(owner);
    if !is_proof(acknowledged, rounds) {
        return Ok(false);
    }
    println!("zombie: {rounds} of {rounds} rounds without a loss");
    Ok(true)
}

impl Setting<'_> {
    fn start(&self, number: u32) -> Result<Server> {
        let log = self.scratch.join(&format!("server-{number}.log"));
        let mut arguments = vec!["--memory", MEMORY_BYTES, "--tablet-size", TABLET_BYTES];
        let own = self.remote.arguments();
        arguments.extend(own.iter().map(String::as_str));
        Server::start(&Start {
            data: &self.remote.data("zombie"),
            log: &log,
            arguments: &arguments,
        })
    }

    /// The new owner and the writes acknowledged by the old one, or `None` when something was wrong.
    fn round(&self, round: u32, seed: u64, mut old: Server) -> Result<Option<(Server, u64)>> {
        let Some(writers) = self.proof.write(old.address(), seed)? else {
            return Ok(None);
        };
        std::thread::sleep(Duration::from_millis(100 + seed * 7_919 % 900));
        let how = Old::in_round(round);
        if how != Old::Awake {
            old.process().pause()?;
        }
        let takeover = Instant::now();
        let mut new = self.start(round)?;
        let takeover = takeover.elapsed();
        if how == Old::AsleepForLong {
            new = self.replace_flushed(round, new)?;
        }
        if how != Old::Awake {
            old.process().resume()?;
        }
        std::thread::sleep(AFTERWARDS);
        let Some(acknowledged) = writers.stop()? else {
            return Ok(None);
        };
        let Some(ended_ms) = wait_for_end(old.process())? else {
            eprintln!("round {round}: the replaced server did not end by itself");
            return Ok(None);
        };
        let (passed, report) = self.proof.verify(new.address())?;
        println!(
            "round {round}: {acknowledged} acknowledged, {}taken over in {} ms, the old one ended {ended_ms} ms after the writers, {report}",
            how.describe(),
            takeover.as_millis(),
        );
        Ok(passed.then_some((new, acknowledged)))
    }

    /// Ends a server, which flushes all it has, and starts one that has no use for the logs of those before it.
    fn replace_flushed(&self, round: u32, mut server: Server) -> Result<Server> {
        server.process().terminate()?;
        let next = self.start(round)?;
        let retained = next.metric("stele_commitlog_retained_bytes")?;
        if retained != 0.0 {
            bail!("round {round}: {retained} bytes of log are still there after a shutdown and a start");
        }
        Ok(next)
    }
}

/// The exit codes of a server that has told why it ends: an error at its storage, or the new owner. One that panics is ended
/// by a signal.
const REFUSED: [i32; 2] = [1, 4];

/// Milliseconds until the process ended with an error that it tells, as a replaced server must; `None` when it did not.
fn wait_for_end(process: &mut Process) -> Result<Option<u128>> {
    let start = Instant::now();
    while start.elapsed() < END_WAIT {
        if let Some(status) = process.ended()? {
            if !status.code().is_some_and(|code| REFUSED.contains(&code)) {
                eprintln!("it ended with {status}");
                return Ok(None);
            }
            return Ok(Some(start.elapsed().as_millis()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(None)
}
