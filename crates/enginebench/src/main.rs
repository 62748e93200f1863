//! `stele-bench-engine`: the tablet engine against RocksDB, in one process and one run.
//!
//! The engine is a whole tablet server (commit log, memtable, sstables, caches, maintenance) over the local disk,
//! called in process: no transport, no front end. The rival gets the same keys and values, log setting, compression and
//! filter bits. It also gets as much memory for memtables and block cache, which both may move between the two unless
//! `--fixed-memory` is given. The two take turns run by run, so that a noisy machine harms both equally. The report
//! gives the median of the ratios of neighbouring runs.
//!
//! `docs/benchmarking.md` describes the workloads, and the equal and unequal settings of the two.
#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "measures real time on a real disk; nothing here is simulated"
)]

mod clock;
mod compare;
mod concurrent;
mod count;
mod data;
mod descheduled;
mod device;
mod engine;
mod governor;
mod host;
mod measured;
#[cfg(feature = "rocksdb")]
mod rocks;
mod stele;
mod watch;
mod workload;

use anyhow::bail;
use clap::Parser;
use std::path::PathBuf;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures the tablet engine by itself.
#[derive(Parser)]
#[command(name = "stele-bench-engine", max_term_width = 100)]
struct Arguments {
    /// Workloads to run; all that take less than a minute when none is given. `list` lists them.
    workloads: Vec<String>,
    /// Measures this rival too, turn by turn.
    #[arg(long, value_name = "rocksdb")]
    against: Option<String>,
    /// Writes the results as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Runs of each engine; the medians are reported.
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// Multiplies the number of rows.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// How long sustained writes, and reads concurrent with writes, go on, instead of the workload's own time.
    #[arg(long)]
    seconds: Option<u64>,
    /// Memory budget of each engine, MiB.
    #[arg(long, default_value_t = 512)]
    memory_mib: u64,
    /// Instead of measuring: does this many operations of the one path that is named, in one thread and in memory, so
    /// that instructions can be counted. The paths are put, put-batch, get, get-kept, multi-get, get-absent,
    /// scan-served, scan-served-reverse.
    #[arg(long, value_name = "OPERATIONS")]
    count: Option<u64>,
    /// Has the rival leave flushed files uncompressed, as Stele does in a load; by itself it compresses everything.
    #[arg(long)]
    rival_urgent: bool,
    /// Has both leave their memory divided: two fifths for memtables, two fifths for blocks. Otherwise each gives nearly all to
    /// blocks where there are only reads.
    #[arg(long)]
    fixed_memory: bool,
    /// Where data is put; a folder that can be deleted is made in it.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if arguments.workloads.iter().any(|w| w == "list") {
        workload::ALL
            .iter()
            .for_each(|w| println!("{:28} {}", w.name, w.describe()));
        println!(
            "{:28} the memory governor against fixed divisions; a table of its own",
            "governor"
        );
        println!("{:28} the engine beside the bare disk; a table of its own", "medium");
        return Ok(());
    }
    if let Some(operations) = arguments.count {
        let [path] = arguments.workloads.as_slice() else {
            bail!("--count takes one path");
        };
        return count::run(path.parse()?, operations);
    }
    let rival = match arguments.against.as_deref() {
        None => false,
        Some("rocksdb") if cfg!(feature = "rocksdb") => true,
        Some("rocksdb") => bail!("built without the rival: build with --features rocksdb"),
        Some(other) => bail!("{other:?} is no rival; there is rocksdb"),
    };
    if arguments.repeats == 0 {
        bail!("--repeats must be at least 1");
    }
    let table = match arguments.workloads.as_slice() {
        [name] if name == "governor" || name == "medium" => Some(name.as_str()),
        _ => None,
    };
    let chosen = match table {
        Some(_) => Vec::new(),
        None => workload::choose(&arguments.workloads)?,
    };
    let parent = arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::Builder::new().prefix("stele-engine-").tempdir_in(parent)?;
    let setup = workload::Setup {
        folder: folder.path().to_owned(),
        scale: arguments.scale,
        memory: arguments.memory_mib << 20,
        seconds: arguments.seconds,
        rival_urgent: arguments.rival_urgent,
        fixed_memory: arguments.fixed_memory,
    };
    match table {
        Some("governor") => return governor::run(&setup, arguments.json.as_deref()),
        Some(_) => {
            let lines = device::run(&setup, arguments.repeats)?;
            let list: Vec<_> = lines.iter().map(device::Line::json).collect();
            return match &arguments.json {
                Some(path) => Ok(std::fs::write(path, serde_json::to_vec_pretty(&list)?)?),
                None => Ok(()),
            };
        }
        None => {}
    }
    let mut results = Vec::new();
    for workload in chosen {
        let result = compare::run(workload, &setup, arguments.repeats, rival)?;
        println!("{result}");
        results.push(result);
        if let Some(path) = &arguments.json {
            // After each, so that an interrupted run leaves the results so far.
            let list: Vec<_> = results.iter().map(compare::Comparison::json).collect();
            std::fs::write(path, serde_json::to_vec_pretty(&list)?)?;
        }
    }
    Ok(())
}
