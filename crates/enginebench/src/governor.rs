//! The memory governor against fixed divisions of the same budget, on a load that changes.
//!
//! Three phases over one table four times the budget: rows are overwritten at random, then read by Zipf's law, then scanned
//! while a few are read. Every division, the governor's included, runs all three in a row on a server of its own. The cost
//! of a phase is processor time of all threads, flushes and compactions included; its second half is told apart, because
//! there a division that moves has settled.

use crate::clock::Clock;
use crate::data::{self, Zipf};
use crate::engine::Engine;
use crate::stele::{FixedDivision, SteleEngine, SteleOptions};
use crate::workload::{Setup, write_batches};
use anyhow::ensure;
use rand_pcg::Pcg64Mcg;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use stele_types::Compression;

const VALUE_BYTES: usize = 1000;
/// Data in multiples of the budget.
const DATA_PER_MEMORY: u64 = 4;
/// Rows written, rows read and scans in each half of a phase, for each row of data. A half has to last ten seconds and
/// more with a budget of 64 MiB: the governor checks once a second and weighs the last few seconds.
const WRITES: f64 = 12.0;
const READS: f64 = 32.0;
const SCANS: u64 = 30;
/// Rows read by Zipf's law in each half of the phase of scans, for each row of data: some after each scan.
const READS_DURING_SCANS: f64 = 10.0;

const PHASES: [&str; 3] = ["write", "zipf read", "scan"];

/// Percent of the budget: memtables and row cache. The block cache has the rest of 94.
const DIVISIONS: [(u64, u64); 7] = [(80, 2), (60, 10), (40, 5), (30, 30), (10, 50), (10, 10), (10, 2)];

/// Costs of the halves of the phases.
struct Costs {
    name: String,
    halves: [[Duration; 2]; 3],
    resident: u64,
}

/// Runs all divisions and prints their costs; writes them to a file, too, after each.
pub fn run(setup: &Setup, json: Option<&Path>) -> anyhow::Result<()> {
    let write = |all: &[&Costs]| {
        let list: Vec<Value> = all.iter().map(|costs| costs.json()).collect();
        json.map_or(Ok(()), |path| {
            std::fs::write(path, serde_json::to_vec_pretty(&list)?).map_err(anyhow::Error::from)
        })
    };
    let memory = setup.memory;
    let rows = ((memory * DATA_PER_MEMORY) as f64 * setup.scale / VALUE_BYTES as f64) as u64;
    println!("budget {} MiB, {rows} rows of {VALUE_BYTES} bytes", memory >> 20);
    println!(
        "{:34} {:>21} {:>21} {:>21} {:>8} {:>6}",
        "CPU seconds", PHASES[0], PHASES[1], PHASES[2], "all", "MiB"
    );
    let mut fixed = Vec::new();
    let ours = one(setup, None, rows)?;
    ours.print();
    write(&[&ours])?;
    for (memtables, row_cache) in DIVISIONS {
        let of = |percent| memory / 100 * percent;
        let division = FixedDivision {
            memtables: of(memtables),
            blocks: of(94 - memtables - row_cache),
            rows: of(row_cache),
        };
        let costs = one(setup, Some(division), rows)?;
        costs.print();
        fixed.push(costs);
        write(&std::iter::once(&ours).chain(&fixed).collect::<Vec<_>>())?;
    }
    for (phase, name) in PHASES.iter().enumerate() {
        let settled = |costs: &Costs| costs.halves[phase][1].as_secs_f64();
        let best = fixed.iter().map(settled).fold(f64::MAX, f64::min);
        println!(
            "{name}: {:.3} of the best fixed division, settled",
            settled(&ours) / best
        );
    }
    let best = fixed.iter().map(Costs::all).min().unwrap_or_default();
    println!(
        "all: {:.3} of the best fixed division",
        ours.all().as_secs_f64() / best.as_secs_f64()
    );
    Ok(())
}

fn one(setup: &Setup, fixed: Option<FixedDivision>, rows: u64) -> anyhow::Result<Costs> {
    let folder = setup.folder.join("governor");
    std::fs::create_dir_all(&folder)?;
    let options = SteleOptions {
        memory: setup.memory,
        compression: Compression::Snappy,
        row_cache: true,
        fixed,
    };
    let engine = SteleEngine::open(&folder, options)?;
    let mut halves = [[Duration::ZERO; 2]; 3];
    engine.on_this_thread(&mut || {
        write_batches(&engine, VALUE_BYTES, rows, 1000, |i| i)?;
        engine.settle()?;
        for (phase, halves) in halves.iter_mut().enumerate() {
            for (half, cost) in halves.iter_mut().enumerate() {
                let clock = Clock::start();
                run_half(&engine, phase, rows, (phase * 2 + half) as u64)?;
                *cost = clock.took().cpu;
            }
        }
        Ok(())
    })?;
    let name = match fixed {
        None => "governor".to_owned(),
        Some(d) => format!(
            "memtables {} blocks {} rows {}",
            d.memtables >> 20,
            d.blocks >> 20,
            d.rows >> 20
        ),
    };
    let resident = resident_bytes();
    drop(engine);
    std::fs::remove_dir_all(&folder)?;
    Ok(Costs { name, halves, resident })
}

fn run_half(engine: &SteleEngine, phase: usize, rows: u64, seed: u64) -> anyhow::Result<()> {
    let (zipf, mut random) = (Zipf::new(rows, 0.99), data::generator(seed));
    let of_rows = |factor: f64| (rows as f64 * factor) as u64;
    match phase {
        0 => write_batches(engine, VALUE_BYTES, of_rows(WRITES), 1000, |_| {
            data::below(&mut random, rows)
        })
        .map(drop),
        1 => read(engine, of_rows(READS), &zipf, &mut random),
        _ => {
            for _ in 0..SCANS {
                let (found, _) = engine.scan(false)?;
                ensure!(found == rows, "the scan found {found} rows of {rows}");
                read(engine, of_rows(READS_DURING_SCANS) / SCANS, &zipf, &mut random)?;
            }
            Ok(())
        }
    }
}

fn read(engine: &SteleEngine, reads: u64, zipf: &Zipf, random: &mut Pcg64Mcg) -> anyhow::Result<()> {
    for _ in 0..reads {
        let found = engine.get(&data::key(zipf.next(random)))?;
        ensure!(found == Some(VALUE_BYTES), "found {found:?}");
    }
    Ok(())
}

/// Memory of this process, the file cache left out.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

impl Costs {
    fn all(&self) -> Duration {
        self.halves.iter().flatten().sum()
    }

    fn json(&self) -> Value {
        let halves = |phase: usize| self.halves[phase].map(|half| half.as_secs_f64());
        json!({
            "division": self.name,
            "unit": "CPU seconds of each half of a phase",
            "write": halves(0),
            "zipf_read": halves(1),
            "scan": halves(2),
            "all": self.all().as_secs_f64(),
            "resident_bytes": self.resident,
        })
    }

    fn print(&self) {
        let [write, read, scan] = self.halves.map(|[first, second]| {
            let (first, second) = (first.as_secs_f64(), second.as_secs_f64());
            format!("{first:.2} then {second:.2}")
        });
        let (all, mib) = (self.all().as_secs_f64(), self.resident >> 20);
        println!("{:34} {write:>21} {read:>21} {scan:>21} {all:>8.2} {mib:>6}", self.name);
    }
}
