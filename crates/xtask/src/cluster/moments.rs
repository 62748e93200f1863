//! Restores a table to moments of a run with faults, moves and splits. Each row must be as it was at the moment, and behave like a
//! register all the time.

use super::chaos::replace_ended;
use super::fault::Fault;
use super::moves;
use super::{Arguments, Cluster};
use crate::choices::{self, Choices, micros};
use crate::registers::{Registers, TABLE, are_none};
use anyhow::{Context, Result, bail};
use std::time::{Duration, Instant};

/// A moment can be restored by then: idle servers write a part every six intervals, and the leader ends the archives of dead ones.
const RESTORE_WAIT: Duration = Duration::from_secs(240);
/// Between two tries.
const TRIED_EVERY: Duration = Duration::from_secs(2);
/// The command of a backup or a restore ends by then.
const COMMAND_WAIT: Duration = Duration::from_secs(180);
/// Between a fault and the next one.
const CALM: Duration = Duration::from_secs(3);
/// The error of a planted moment: each row is written about thirty times meanwhile.
const LATER_MICROS: i64 = 1_000_000;
/// Rounds until another backup is made.
const BACKUP_EVERY: u32 = 4;

/// Faults of processes and of etcd. Links are not cut: the command runs outside of namespaces.
const FAULTS: [Fault; 5] = [
    Fault::Kill,
    Fault::KillLeader,
    Fault::Restart,
    Fault::Pause,
    Fault::Member,
];

/// The arguments of the nodes: their logs are archived.
pub fn archiving(cluster: &Cluster) -> Vec<String> {
    let url = format!("{}/archive", cluster.store.url());
    let options = cluster.store.options();
    let text = [
        "--archive-log",
        &url,
        "--archive-log-option",
        options,
        "--archive-log-interval",
        "1s",
    ];
    text.map(str::to_owned).to_vec()
}

/// Options of the program of the registers. Large values would fill the disk at the usual pace.
fn options(value_mib: Option<u32>) -> Vec<String> {
    let mut options = vec!["-history".to_owned()];
    if let Some(mebibytes) = value_mib {
        let bytes = (mebibytes << 20).to_string();
        let slow = ["-rows", "3", "-readers", "1", "-pace", "5s", "-value-bytes", &bytes];
        options.extend(slow.map(str::to_owned));
    }
    options
}

/// Whether all moments could be restored, each row was as at its moment, and none misbehaved meanwhile.
pub fn run(cluster: &mut Cluster, arguments: &Arguments, rounds: u32) -> Result<bool> {
    let seed = choices::seed(arguments.seed)?;
    println!("{rounds} rounds of faults and restores to moments, seed {seed}");
    let options = options(arguments.value_mib);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let mut registers = Registers::start(&cluster.addresses(), &options)?;
    cluster.settle()?;
    let mut choices = Choices(seed);
    first_backup(cluster)?;
    let begun = micros()?;
    let mut passed = true;
    for round in 1..=rounds {
        moves::spread(cluster)?;
        moves::split(cluster, round * 3..round * 3 + 3)?;
        let before = micros()?;
        let fault = *FAULTS.get(choices.below(FAULTS.len())).context("a fault")?;
        let name = fault.happen(cluster, &mut registers, choices.below(1 << 16))?;
        replace_ended(cluster, &mut registers, arguments.nodes)?;
        cluster.settle()?;
        std::thread::sleep(CALM);
        let now = micros()?;
        let within = |from: i64, choice: usize| from + (now - from) * choice as i64 / 1000;
        let moments = [
            within(before, choices.below(1000)),
            within(begun, choices.below(1000)),
            now,
        ];
        println!("round {round}: {fault:?}, {name}");
        for (at, number) in moments.into_iter().zip(0..) {
            let name = format!("m{round}x{number}");
            restore(cluster, at, &name)?;
            let planted = if arguments.planted_stale_reads { LATER_MICROS } else { 0 };
            passed &= is_right(cluster, &mut registers, &name, at + planted)?;
        }
        if round % BACKUP_EVERY == 0 {
            backup(cluster, round)?;
        }
    }
    Ok(have_behaved(&mut registers)? && passed)
}

/// Whether every row was a register since the start. Errors of clients are shown only: `--chaos` judges them.
fn have_behaved(registers: &mut Registers) -> Result<bool> {
    let window = registers.end()?;
    println!(
        "{} requests, p99 {:.0} ms, longest pause of a row {:.0} ms, errors: [{}]",
        window.requests, window.p99_ms, window.pause_max_ms, window.errors
    );
    Ok(window.is_linearizable())
}

/// Arguments of a command of backups at their place.
fn ordered(cluster: &Cluster, words: &[&str]) -> Vec<String> {
    let place = format!("{}/backups", cluster.store.url());
    let (verb, more) = words.split_first().unwrap_or((&"", &[]));
    let mut ordered = vec!["backup".to_owned(), (*verb).to_owned(), place];
    for option in cluster.store.options().split(',') {
        ordered.extend(["--option".to_owned(), option.to_owned()]);
    }
    ordered.extend(more.iter().map(|word| (*word).to_owned()));
    ordered
}

fn command(cluster: &Cluster, words: &[&str]) -> Result<String> {
    let words = ordered(cluster, words);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let node = cluster.nodes.first().context("no node")?;
    node.command_within(COMMAND_WAIT, &words)
}

fn backup(cluster: &Cluster, number: u32) -> Result<()> {
    let name = format!("b{number}");
    command(cluster, &["create", "--backup", &name, "--table", TABLE]).map(drop)
}

/// Makes backups until moments can be restored: from one that was begun after the archive.
fn first_backup(cluster: &Cluster) -> Result<()> {
    let start = Instant::now();
    for number in 1_000.. {
        backup(cluster, number)?;
        std::thread::sleep(CALM);
        if command(cluster, &["list"])?.contains("any moment from") {
            break;
        }
        if start.elapsed() > RESTORE_WAIT {
            bail!("no moment can be restored after {RESTORE_WAIT:?}");
        }
    }
    Ok(())
}

/// Restores the table of the registers to a moment, under a name.
fn restore(cluster: &Cluster, at: i64, name: &str) -> Result<()> {
    let (start, text) = (Instant::now(), at.to_string());
    let target = format!("registers/{name}");
    let words = ["restore", "--at", &text, "--table", TABLE, "--as", &target];
    let mut tries = 1;
    while let Err(error) = command(cluster, &words) {
        if start.elapsed() > RESTORE_WAIT {
            bail!("moment {at} is not restored after {tries} tries: {error:#}");
        }
        tries += 1;
        std::thread::sleep(TRIED_EVERY);
    }
    let took = start.elapsed().as_secs_f64();
    println!("  moment {at}: restored in {took:.1} s with {tries} tries");
    Ok(())
}

/// Whether the rows of a table are those of the moment. The table is deleted.
fn is_right(cluster: &Cluster, registers: &mut Registers, name: &str, at: i64) -> Result<bool> {
    let (rows, violations) = registers.moment(name, at)?;
    let node = cluster.nodes.first().context("no node")?;
    node.command(&["drop-table", &format!("registers/{name}")])?;
    Ok(are_none(&violations) && rows > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::Run;

    #[test]
    fn a_row_that_was_no_register_fails_the_run() {
        let passes = |violations: &str| {
            let figures = r#""p99_ms":1,"p999_ms":1,"max_ms":1,"pause_p50_ms":1,"pause_max_ms":1"#;
            let window = format!(r#"{{"requests":1,"errors":{{}},{figures},"violations":[{violations}]}}"#);
            let script = format!("echo '{{}}'; read command; echo '{window}'");
            let mut registers = Registers::by(Run::new("sh").args(["-c", &script])).unwrap();
            have_behaved(&mut registers).unwrap()
        };
        assert!(passes(""));
        assert!(!passes(r#""row r went back""#));
    }
}
