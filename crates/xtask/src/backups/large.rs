//! Times of snapshots and restores of a large table.
//!
//! Also the latencies of its clients meanwhile, and the bytes that a second backup copies.

use super::COMMAND_WAIT;
use crate::registers::{Registers, TABLE, Window};
use crate::server::{self, Scratch, Server, Start};
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

const CLIENTS: [&str; 4] = ["-rows", "64", "-tablets", "8"];
/// Far less than the data, far more than the smallest budget.
const ARGUMENTS: [&str; 2] = ["--memory", "1GiB"];
/// Snapshots and restores of the table.
const REPEATS: u32 = 5;
/// A window of clients, and the time between two snapshots.
const CALM: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_secs(4);
/// The longest snapshot or restore: the bar.
const LONGEST: Duration = Duration::from_secs(2);
/// The 99th percentile of latencies may be this much of that without snapshots, and this much longer.
const LATENCY_FACTOR: f64 = 1.5;
const LATENCY_MS: f64 = 5.0;
/// New rows before the second backup, and bytes that it may copy for each of theirs: keys, indexes, rows of the clients.
const MORE_MIB: u64 = 100;
const COPIED_FACTOR: f64 = 1.5;

/// Whether all of it was within its bounds.
pub fn run(scratch: &Scratch, mib: u64) -> Result<bool> {
    let (data, log) = (scratch.join("large"), scratch.join("large.log"));
    let server = Server::start(&Start {
        data: &data,
        log: &log,
        arguments: &ARGUMENTS,
    })?;
    let mut registers = Registers::start(&[server.address()], &CLIENTS)?;
    let start = Instant::now();
    registers.fill(mib)?;
    println!("{mib} MiB written in {:.0} s", start.elapsed().as_secs_f64());
    thread::sleep(CALM);
    let mut passed = snapshots(&server, &mut registers)?;
    passed &= increments(scratch, &server, &mut registers)?;
    Ok(passed)
}

fn command(server: &Server, arguments: &[&str]) -> Result<Duration> {
    let start = Instant::now();
    server::command(server.address(), COMMAND_WAIT, arguments)?;
    Ok(start.elapsed())
}

fn snapshots(server: &Server, registers: &mut Registers) -> Result<bool> {
    registers.begin()?;
    thread::sleep(CALM);
    let calm = registers.end()?;
    let (mut taken, mut restored) = (Vec::new(), Vec::new());
    registers.begin()?;
    for number in 0..REPEATS {
        taken.push(command(server, &["snapshot", "create", TABLE, &format!("s{number}")])?);
        thread::sleep(PAUSE);
    }
    let during = registers.end()?;
    for number in 0..REPEATS {
        let (snapshot, clone) = (format!("registers/s{number}"), format!("registers/c{number}"));
        restored.push(command(server, &["snapshot", "restore", &snapshot, &clone])?);
        command(server, &["drop-table", &clone])?;
        command(server, &["snapshot", "delete", &snapshot])?;
    }
    show("without snapshots", &calm);
    show("with snapshots", &during);
    let is_unharmed = during.p99_ms <= LATENCY_FACTOR * calm.p99_ms + LATENCY_MS;
    println!(
        "snapshots taken in {}, restored in {}",
        seconds(&taken),
        seconds(&restored)
    );
    let is_quick = taken.iter().chain(&restored).all(|took| *took <= LONGEST);
    let is_sound = during.is_linearizable() && calm.errors.is_empty() && during.errors.is_empty();
    Ok(is_unharmed && is_quick && is_sound)
}

/// Backs up to a folder, writes some more, and backs up again.
fn increments(scratch: &Scratch, server: &Server, registers: &mut Registers) -> Result<bool> {
    let destination = scratch.join("destination");
    let place = destination.to_str().context("a path that is no text")?;
    let create = |name| {
        command(
            server,
            &[
                "backup", "create", place, "--backup", name, "--table", TABLE, "--digest",
            ],
        )
    };
    let first = create("first")?;
    let before = bytes_of(&destination)?;
    registers.fill(MORE_MIB)?;
    let second = create("second")?;
    let copied = bytes_of(&destination)? - before;
    let new = (MORE_MIB << 20) as f64;
    println!(
        "first backup: {} MB in {:.1} s; second: {} MB of {:.0} MB new in {:.1} s",
        before / 1_000_000,
        first.as_secs_f64(),
        copied / 1_000_000,
        new / 1e6,
        second.as_secs_f64()
    );
    let verified = command(server, &["backup", "verify", place, "--backup", "second", "--digest"])?;
    let words = [
        "backup",
        "restore",
        place,
        "--backup",
        "second",
        "--table",
        TABLE,
        "--as",
        "registers/restored",
    ];
    let restored = command(server, &words)?;
    println!(
        "verified with its digest in {:.1} s, restored in {:.1} s",
        verified.as_secs_f64(),
        restored.as_secs_f64()
    );
    Ok(copied as f64 <= COPIED_FACTOR * new)
}

fn bytes_of(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += match metadata.is_dir() {
            true => bytes_of(&entry.path())?,
            false => metadata.len(),
        };
    }
    Ok(bytes)
}

fn show(name: &str, window: &Window) {
    println!(
        "{name}: {} requests, p99 {:.1} ms, p99.9 {:.1} ms, longest {:.0} ms, errors: [{}]",
        window.requests, window.p99_ms, window.p999_ms, window.max_ms, window.errors
    );
}

fn seconds(times: &[Duration]) -> String {
    let times: Vec<String> = times.iter().map(|time| format!("{:.2}", time.as_secs_f64())).collect();
    format!("{} s", times.join(", "))
}
