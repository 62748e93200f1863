//! The engine compared with the bare disk that it works on.
//!
//! The figures show how much of the disk's throughput reaches a user of the engine.
//!
//! Each line does one thing twice in turn, with system calls on a plain file, and through the engine:
//!
//! | line | the disk | the engine |
//! |---|---|---|
//! | `sync` | appends of a row's bytes, each followed by `fdatasync` | puts of one writer, durability `sync` |
//! | `sync-64` | the same | the same of 64 writers, who share syncs |
//! | `write` | the bytes of all rows in pieces of a MiB, then `fdatasync` | batches of rows, until all are in synced sstables; each byte is written twice and more |
//! | `read` | 8 KiB at random places, one thread, nothing in the page cache | point reads, one thread, files not in the page cache |
//! | `read-8` | the same from 8 threads | the same |
//! | `read-direct`, `read-direct-8` | the same with `O_DIRECT` | as above, which has no such way |
//! | `scan` | the file from its beginning to its end, not in the page cache | a scan of all rows, files not in the page cache |
//!
//! A virtual disk may have caches of its own below the system's; both the bare disk and the engine benefit from them.

use crate::compare::{least, median, most};
use crate::data::{self, KEY_BYTES, Values};
use crate::engine::Engine;
use crate::stele::{SteleEngine, SteleOptions};
use crate::watch::{table_bytes, tables};
use crate::workload::{Setup, write_batches};
use anyhow::{Context, ensure};
use rustix::fs::{Advice, OFlags, fadvise};
use serde_json::{Value, json};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use stele_types::Compression;

const VALUE_BYTES: usize = 1000;
/// Rows before scaling: half a gigabyte, which no cache of the engine holds with this budget.
const ROWS: f64 = 500_000.0;
const MEMORY: u64 = 64 << 20;
/// How long a line's turn takes where it is not given by its bytes.
const TURN: Duration = Duration::from_secs(2);
const PIECE_BYTES: usize = 1 << 20;
/// A block of the engine's, as it is read.
const READ_BYTES: usize = 8 << 10;
/// The share of a file's blocks that is read in a turn, one in this many: the rest would have been read before.
const COLD_SHARE: u64 = 8;
/// Numbers of rows that are not read begin here.
const CONCURRENT: u64 = 1 << 40;
/// Buffers and offsets must be multiples of this for `O_DIRECT`.
const ALIGNMENT: usize = 4096;

/// Figures of one line, in turns.
pub struct Line {
    name: &'static str,
    unit: &'static str,
    stele: Vec<f64>,
    device: Vec<f64>,
}

impl Line {
    fn new(name: &'static str, unit: &'static str) -> Self {
        Line {
            name,
            unit,
            stele: Vec::new(),
            device: Vec::new(),
        }
    }

    fn add(&mut self, device: f64, stele: f64) {
        self.device.push(device);
        self.stele.push(stele);
    }

    fn ratios(&self) -> Vec<f64> {
        self.stele.iter().zip(&self.device).map(|(s, m)| s / m).collect()
    }

    /// As the result file has it.
    pub fn json(&self) -> Value {
        let ratios = self.ratios();
        json!({
            "workload": format!("medium-{}", self.name),
            "unit": self.unit,
            "stele": median(&self.stele),
            "medium": median(&self.device),
            "ratio": median(&ratios),
            "spread": { "ratio": [least(&ratios), most(&ratios)] },
        })
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ratios = self.ratios();
        write!(
            f,
            "{:14} disk {:>10.1}  stele {:>10.1} {:8} ratio {:.2} ({:.2}–{:.2})",
            self.name,
            median(&self.device),
            median(&self.stele),
            self.unit,
            median(&ratios),
            least(&ratios),
            most(&ratios)
        )
    }
}

/// Runs all lines `repeats` times and prints them.
pub fn run(setup: &Setup, repeats: usize) -> anyhow::Result<Vec<Line>> {
    let rows = (ROWS * setup.scale) as u64;
    let mut syncs = [Line::new("sync", "rows/s"), Line::new("sync-64", "rows/s")];
    let mut write = Line::new("write", "MB/s");
    let mut reads = [
        (Line::new("read", "reads/s"), 1, false),
        (Line::new("read-8", "reads/s"), 8, false),
        (Line::new("read-direct", "reads/s"), 1, true),
        (Line::new("read-direct-8", "reads/s"), 8, true),
    ];
    let mut scan = Line::new("scan", "MB/s");
    for round in 0..repeats as u64 {
        let mut lot = round << 8;
        let folder = setup.folder.join("medium");
        std::fs::create_dir_all(&folder)?;
        let file = folder.join("file");
        let synced = append_and_sync(&folder.join("appends"))?;
        let written = write_file(&file, rows)?;
        let engine = open(&folder.join("stele"))?;
        let concurrent = AtomicU64::new(0);
        for (line, writers) in syncs.iter_mut().zip([1, 64]) {
            line.add(synced, synced_puts(&engine, writers, &concurrent)?);
        }
        write.add(written, write_rows(&engine, rows)?);
        engine.compact()?;
        for (line, threads, direct) in &mut reads {
            // Separate places for each line: bytes that another line has read are in caches below the system's.
            lot += 1;
            let disk = read_file(&file, *threads, *direct, lot)?;
            line.add(disk, get_rows(&engine, &folder.join("stele"), *threads, rows, lot)?);
        }
        let all = rows + concurrent.into_inner();
        scan.add(read_through(&file)?, scan_rows(&engine, &folder.join("stele"), all)?);
        drop(engine);
        std::fs::remove_dir_all(&folder)?;
        rustix::fs::sync();
    }
    let mut lines: Vec<Line> = syncs.into_iter().chain([write]).collect();
    lines.extend(reads.into_iter().map(|(line, ..)| line));
    lines.push(scan);
    lines.iter().for_each(|line| println!("{line}"));
    Ok(lines)
}

fn open(folder: &Path) -> anyhow::Result<SteleEngine> {
    std::fs::create_dir_all(folder)?;
    let options = SteleOptions {
        memory: MEMORY,
        // The disk moves every byte, so the engine does.
        compression: Compression::None,
        row_cache: false,
        fixed: None,
    };
    SteleEngine::open(folder, options)
}

/// Appends of a row's bytes a second, each durable before the next.
fn append_and_sync(path: &Path) -> anyhow::Result<f64> {
    let mut file = File::create_new(path)?;
    let row = [7; KEY_BYTES + VALUE_BYTES];
    per_second(u64::MAX, || {
        file.write_all(&row)?;
        Ok(file.sync_data()?)
    })
}

/// How often something is done a second, by one thread, which does it so often at the most.
fn per_second(most: u64, mut one: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let start = Instant::now();
    let mut done = 0u64;
    while done < most && start.elapsed() < TURN {
        one()?;
        done += 1;
    }
    Ok(done as f64 / start.elapsed().as_secs_f64())
}

/// The same by `threads` threads, which call the engine if there is one, each with a value of its own; at most `most`
/// times in all.
fn per_second_of<T: Send>(
    engine: Option<&SteleEngine>,
    (threads, most): (u64, u64),
    make: impl Fn(u64) -> anyhow::Result<T>,
    one: impl Fn(&mut T) -> anyhow::Result<()> + Sync,
) -> anyhow::Result<f64> {
    let own: Vec<T> = (0..threads).map(make).collect::<anyhow::Result<_>>()?;
    std::thread::scope(|scope| {
        let one = &one;
        let running: Vec<_> = own
            .into_iter()
            .map(|mut own| {
                scope.spawn(move || {
                    let mut rate = 0.0;
                    let mut run = || {
                        rate = per_second(most / threads, || one(&mut own))?;
                        Ok(())
                    };
                    match engine {
                        Some(engine) => engine.on_this_thread(&mut run)?,
                        None => run()?,
                    }
                    Ok(rate)
                })
            })
            .collect();
        let rates = running.into_iter().map(|thread| match thread.join() {
            Ok(rate) => rate,
            Err(_) => anyhow::bail!("a thread panicked"),
        });
        rates.sum()
    })
}

/// Puts rows next to those that are read, the first with the number that `concurrent` holds, and leaves their number in
/// it.
fn synced_puts(engine: &SteleEngine, writers: u64, concurrent: &AtomicU64) -> anyhow::Result<f64> {
    let value = [7; VALUE_BYTES];
    per_second_of(
        Some(engine),
        (writers, u64::MAX),
        |_| Ok(()),
        |()| {
            let number = CONCURRENT | concurrent.fetch_add(1, Ordering::Relaxed);
            engine.put(&data::key(number), &value, true)
        },
    )
}

/// MB a second of a file of the rows' bytes, until it is durable.
fn write_file(path: &Path, rows: u64) -> anyhow::Result<f64> {
    let bytes = rows * (KEY_BYTES + VALUE_BYTES) as u64;
    let mut values = Values::new(PIECE_BYTES);
    let mut file = File::create_new(path)?;
    let start = Instant::now();
    for _ in 0..bytes.div_ceil(PIECE_BYTES as u64) {
        file.write_all(values.next())?;
    }
    file.sync_data()?;
    Ok(megabytes(bytes, start))
}

fn write_rows(engine: &SteleEngine, rows: u64) -> anyhow::Result<f64> {
    let start = Instant::now();
    engine.on_this_thread(&mut || write_batches(engine, VALUE_BYTES, rows, 1000, |i| i).map(drop))?;
    engine.settle()?;
    Ok(megabytes(rows * (KEY_BYTES + VALUE_BYTES) as u64, start))
}

fn megabytes(bytes: u64, start: Instant) -> f64 {
    bytes as f64 / 1e6 / start.elapsed().as_secs_f64()
}

/// Takes a file out of the page cache.
fn forget(path: &Path) -> anyhow::Result<()> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    // Dirty pages stay.
    file.sync_data()?;
    Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
}

fn read_file(path: &Path, threads: u64, direct: bool, round: u64) -> anyhow::Result<f64> {
    forget(path)?;
    let mut options = OpenOptions::new();
    if direct {
        options.custom_flags(OFlags::DIRECT.bits() as i32);
    }
    let file = options.read(true).open(path)?;
    // Otherwise the system reads ahead blocks that were not requested.
    fadvise(&file, 0, None, Advice::Random)?;
    let places = file.metadata()?.len() / READ_BYTES as u64;
    per_second_of(
        None,
        (threads, places / COLD_SHARE),
        |thread| Ok((data::generator(round << 8 | thread), vec![0; READ_BYTES + ALIGNMENT])),
        |(random, buffer)| {
            let at = buffer.as_ptr().align_offset(ALIGNMENT);
            let aligned = buffer.get_mut(at..at + READ_BYTES).context("a page to align by")?;
            Ok(file.read_exact_at(aligned, data::below(random, places) * READ_BYTES as u64)?)
        },
    )
}

fn get_rows(engine: &SteleEngine, folder: &Path, threads: u64, rows: u64, round: u64) -> anyhow::Result<f64> {
    forget_all(folder)?;
    let blocks = table_bytes(folder) / READ_BYTES as u64;
    per_second_of(
        Some(engine),
        (threads, blocks / COLD_SHARE),
        |thread| Ok(data::generator(round << 8 | 0x80 | thread)),
        |random| {
            let found = engine.get(&data::key(data::below(random, rows)))?;
            ensure!(found == Some(VALUE_BYTES), "found {found:?}");
            Ok(())
        },
    )
}

fn read_through(path: &Path) -> anyhow::Result<f64> {
    forget(path)?;
    let mut file = File::open(path)?;
    let mut piece = vec![0; PIECE_BYTES];
    let (start, mut bytes) = (Instant::now(), 0);
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(megabytes(bytes, start)),
            read => bytes += read as u64,
        }
    }
}

fn scan_rows(engine: &SteleEngine, folder: &Path, rows: u64) -> anyhow::Result<f64> {
    forget_all(folder)?;
    let start = Instant::now();
    let (mut found, mut bytes) = (0, 0);
    engine.on_this_thread(&mut || {
        (found, bytes) = engine.scan(false)?;
        Ok(())
    })?;
    ensure!(found == rows, "the scan found {found} rows of {rows}");
    Ok(megabytes(bytes + found * KEY_BYTES as u64, start))
}

fn forget_all(folder: &Path) -> anyhow::Result<()> {
    tables(folder).iter().try_for_each(|(path, _)| forget(path))
}
