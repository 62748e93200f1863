//! The workloads, and one run of each against one engine.

use crate::clock::Clock;
use crate::concurrent;
use crate::data::{self, Values, Zipf};
use crate::engine::Engine;
use crate::host::HostShare;
use crate::measured::Measured;
use crate::watch::{SpaceWatch, Stalls, table_bytes};
use anyhow::{bail, ensure};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The settings that all workloads of a run share.
pub struct Setup {
    /// Where engines get their folders.
    pub folder: PathBuf,
    /// Multiplies rows.
    pub scale: f64,
    /// Budget of an engine, bytes.
    pub memory: u64,
    /// How long sustained writes go on, if not as long as the workload says.
    pub seconds: Option<u64>,
    /// The rival does not compress flushed files.
    #[cfg_attr(not(feature = "rocksdb"), expect(dead_code, reason = "there is no rival"))]
    pub rival_urgent: bool,
    /// Memory stays divided between memtables and blocks, in both engines.
    pub fixed_memory: bool,
}

/// The quantity of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Of wall time.
    RowsPerSecond,
    /// Of CPU time of all threads, flush and compaction included, also those that wait for the end of the writes.
    RowsPerCpuSecond,
    /// On disk after a major compaction; less is better.
    BytesPerRow,
    /// Bytes written to the storage for each byte of keys and values; less is better.
    WriteAmplification,
    /// The longest time of 99 in 100 operations, microseconds; less is better.
    Micros99,
}

impl Unit {
    /// As the results say it.
    pub fn name(self) -> &'static str {
        match self {
            Unit::RowsPerSecond => "rows/s",
            Unit::RowsPerCpuSecond => "rows/CPU-s",
            Unit::BytesPerRow => "bytes/row (less is better)",
            Unit::WriteAmplification => "bytes written/byte (less is better)",
            Unit::Micros99 => "µs, 99th percentile (less is better)",
        }
    }
}

/// The operations of a workload.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Rows one by one, at random keys, by some threads.
    Put { threads: u64, sync: bool },
    /// Rows in batches of this many, at random keys, by one thread.
    Batch { rows: u64 },
    /// Rows one by one for this long; rates of quarters and the longest stall count.
    Sustained { seconds: u64 },
    /// Every row overwritten this many times, at random.
    Overwrite { times: u64 },
    /// Point reads of rows that exist.
    Get,
    /// The same in sorted lists of a fixed number of keys.
    GetList { rows: u64 },
    /// Point reads of rows that do not.
    Absent,
    /// Point reads, Zipf-distributed with exponent 0.99.
    ZipfGet,
    /// One scan over all rows, in batches as requests have them.
    Scan { reversed: bool },
    /// The size of the files.
    DiskBytes,
    /// Point reads by one thread while another overwrites this many rows a second.
    GetDuringWrites { rows_per_second: u64, seconds: u64 },
}

/// Whom the engine is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// RocksDB.
    RocksDb,
    /// Itself without a row cache; also when no rival is asked for.
    NoRowCache,
}

/// A named workload.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// As on the command line.
    pub name: &'static str,
    /// The operations.
    pub kind: Kind,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Rows of the data, before scaling; for writes also the number written.
    pub rows: u64,
    /// The quantity that is counted.
    pub unit: Unit,
    /// The budget in MiB, where the workload is about it.
    pub memory_mib: Option<u64>,
    /// The rival.
    pub against: Against,
    /// Part of a run that names no workload.
    pub quick: bool,
}

const fn w(name: &'static str, kind: Kind, value_bytes: usize, rows: u64, unit: Unit) -> Workload {
    Workload {
        name,
        kind,
        value_bytes,
        rows,
        unit,
        memory_mib: None,
        against: Against::RocksDb,
        quick: true,
    }
}

const fn put(name: &'static str, value_bytes: usize, rows: u64) -> Workload {
    let kind = Kind::Put {
        threads: 1,
        sync: false,
    };
    w(name, kind, value_bytes, rows, Unit::RowsPerSecond)
}

const fn batch(name: &'static str, value_bytes: usize, rows: u64) -> Workload {
    w(
        name,
        Kind::Batch { rows: 1000 },
        value_bytes,
        rows,
        Unit::RowsPerCpuSecond,
    )
}

const fn scan(name: &'static str, value_bytes: usize, rows: u64, reversed: bool) -> Workload {
    w(name, Kind::Scan { reversed }, value_bytes, rows, Unit::RowsPerSecond)
}

const fn get(name: &'static str, kind: Kind, value_bytes: usize, rows: u64) -> Workload {
    w(name, kind, value_bytes, rows, Unit::RowsPerSecond)
}

/// All of them. Rows are chosen so that a run takes some seconds and writes several memtables.
pub const ALL: [Workload; 30] = [
    put("random-write-1000", 1000, 1_000_000),
    put("random-write-100", 100, 2_500_000),
    put("random-write-10", 10, 4_000_000),
    batch("batch-write-1000", 1000, 1_000_000),
    batch("batch-write-100", 100, 4_000_000),
    batch("batch-write-10", 10, 6_000_000),
    w(
        "sync-write-64",
        Kind::Put {
            threads: 64,
            sync: true,
        },
        100,
        200_000,
        Unit::RowsPerSecond,
    ),
    get("random-read", Kind::Get, 100, 1_000_000),
    get("random-read-1000", Kind::Get, 1000, 150_000),
    get("random-read-10", Kind::Get, 10, 2_000_000),
    Workload {
        memory_mib: Some(256),
        ..get("random-read-beyond-memory", Kind::Get, 1000, 1_000_000)
    },
    get("multi-get-100", Kind::GetList { rows: 100 }, 100, 1_000_000),
    get("multi-get-1000", Kind::GetList { rows: 100 }, 1000, 150_000),
    get("random-read-absent", Kind::Absent, 100, 1_000_000),
    get("zipf-read", Kind::ZipfGet, 1000, 1_000_000),
    Workload {
        against: Against::NoRowCache,
        ..get("zipf-read-row-cache", Kind::ZipfGet, 1000, 1_000_000)
    },
    scan("served-scan-1000", 1000, 1_000_000, false),
    scan("served-scan-100", 100, 2_000_000, false),
    scan("served-scan-10", 10, 3_000_000, false),
    scan("served-reverse-scan-1000", 1000, 1_000_000, true),
    scan("served-reverse-scan-100", 100, 2_000_000, true),
    scan("served-reverse-scan-10", 10, 3_000_000, true),
    w("disk-bytes-1000", Kind::DiskBytes, 1000, 500_000, Unit::BytesPerRow),
    w("disk-bytes-100", Kind::DiskBytes, 100, 1_000_000, Unit::BytesPerRow),
    w("disk-bytes-10", Kind::DiskBytes, 10, 2_000_000, Unit::BytesPerRow),
    Workload {
        quick: false,
        ..w(
            "sustained-write-10",
            Kind::Sustained { seconds: 600 },
            10,
            40_000_000,
            Unit::RowsPerSecond,
        )
    },
    Workload {
        quick: false,
        ..w(
            "sustained-write-1000",
            Kind::Sustained { seconds: 120 },
            1000,
            10_000_000,
            Unit::RowsPerSecond,
        )
    },
    Workload {
        quick: false,
        ..w(
            "overwrite-1000",
            Kind::Overwrite { times: 4 },
            1000,
            5_000_000,
            Unit::WriteAmplification,
        )
    },
    Workload {
        quick: false,
        ..w(
            "overwrite-64k",
            Kind::Overwrite { times: 4 },
            64 << 10,
            20_000,
            Unit::WriteAmplification,
        )
    },
    Workload {
        quick: false,
        ..w(
            "read-beside-writes",
            Kind::GetDuringWrites {
                rows_per_second: 100_000,
                seconds: 20,
            },
            1000,
            1_000_000,
            Unit::Micros99,
        )
    },
];

/// The workloads of these names, in the order of [`ALL`]; the quick ones for none. A name may be a prefix.
pub fn choose(names: &[String]) -> anyhow::Result<Vec<Workload>> {
    if let Some(unknown) = names
        .iter()
        .find(|n| !ALL.iter().any(|w| w.name.starts_with(n.as_str())))
    {
        bail!("no workload {unknown:?}; `list` lists them");
    }
    let exact = |w: &Workload| names.iter().any(|n| w.name == n);
    let begun = |w: &Workload| {
        let prefix = |n: &String| w.name.starts_with(n.as_str()) && !ALL.iter().any(|other| other.name == n);
        names.iter().any(prefix)
    };
    let chosen = ALL.into_iter();
    Ok(chosen
        .filter(|w| {
            if names.is_empty() {
                w.quick
            } else {
                exact(w) || begun(w)
            }
        })
        .collect())
}

/// How long reads go on before they are measured: memory is divided once a second, by the operations of the last few.
const SETTLING_TIME: Duration = Duration::from_secs(10);
/// Rows whose values are compared before anything is counted: many blocks of each file, in less than a second.
const COMPARED_ROWS: u64 = 10_000;
/// Number of the first uncounted run of a warm-up, which draws other rows than any counted one. The one before it is the last.
const WARM_UP_ROUND: u64 = 1 << 32;

impl Workload {
    /// One line.
    pub fn describe(&self) -> String {
        format!(
            "{:?}, {} rows of {} bytes, {}",
            self.kind,
            self.rows,
            self.value_bytes,
            self.unit.name()
        )
    }

    /// Rows of the data.
    pub fn rows(&self, setup: &Setup) -> u64 {
        ((self.rows as f64 * setup.scale) as u64).max(1000)
    }

    /// Bytes of the budget.
    pub fn memory(&self, setup: &Setup) -> u64 {
        self.memory_mib.map_or(setup.memory, |mib| mib << 20)
    }

    /// Whether runs share data that is loaded once.
    pub fn reads(&self) -> bool {
        matches!(
            self.kind,
            Kind::Get | Kind::GetList { .. } | Kind::Absent | Kind::ZipfGet | Kind::Scan { .. } | Kind::DiskBytes
        )
    }

    /// Whether results of hot reads may be cached, which the rival does not do by default. Only where reads are skewed,
    /// and concurrently with writes, which then pay for invalidating them.
    pub fn row_cache(&self) -> bool {
        !self.reads() || matches!(self.kind, Kind::ZipfGet)
    }

    /// Fills an engine for workloads that read.
    pub fn load(&self, engine: &dyn Engine, setup: &Setup) -> anyhow::Result<()> {
        let rows = self.rows(setup);
        engine.on_this_thread(&mut || write_batches(engine, self.value_bytes, rows, 1000, |i| i).map(drop))?;
        engine.settle()?;
        engine.compact()
    }

    /// Runs uncounted: caches fill, for as long as a division of memory takes to settle. The benchmark measures the
    /// benefit of caches, not how soon it comes.
    pub fn warm_up(&self, engine: &dyn Engine, setup: &Setup, folder: &Path) -> anyhow::Result<()> {
        let settling = match self.kind {
            // Half the rows that a row cache will have come every few seconds only, and twice before they are kept.
            Kind::ZipfGet => 2 * SETTLING_TIME,
            _ => SETTLING_TIME,
        };
        self.compare_values(engine, setup)?;
        let start = Instant::now();
        for round in 0.. {
            self.run(engine, setup, folder, WARM_UP_ROUND + round)?;
            if matches!(self.kind, Kind::DiskBytes) || start.elapsed() >= settling {
                break;
            }
        }
        Ok(())
    }

    /// Compares the values of some rows with those that were loaded. Counted reads look at lengths only: a comparison would be
    /// measured, too.
    fn compare_values(&self, engine: &dyn Engine, setup: &Setup) -> anyhow::Result<()> {
        let rows = self.rows(setup);
        let values = Values::new(self.value_bytes);
        let mut random = data::generator(41);
        engine.on_this_thread(&mut || {
            for _ in 0..COMPARED_ROWS {
                let number = data::below(&mut random, rows);
                let found = engine.value(&data::key(number))?;
                ensure!(
                    found.as_deref() == Some(values.nth(number)),
                    "row {number} has another value than was loaded"
                );
            }
            Ok(())
        })
    }

    /// One more run that does not count.
    pub fn run_uncounted(&self, engine: &dyn Engine, setup: &Setup, folder: &Path) -> anyhow::Result<()> {
        self.run(engine, setup, folder, WARM_UP_ROUND - 1).map(drop)
    }

    /// One run. `folder` is the engine's.
    /// Each `round` reads other rows, the same for both engines.
    pub fn run(&self, engine: &dyn Engine, setup: &Setup, folder: &Path, round: u64) -> anyhow::Result<Measured> {
        let rows = self.rows(setup);
        let value_bytes = self.value_bytes;
        match self.kind {
            Kind::Put { threads, sync } => self.puts(engine, rows, threads, sync),
            Kind::Batch { rows: batch } => {
                let written_before = written_by_process()?;
                let clock = Clock::start();
                let mut random = data::generator(17);
                engine.on_this_thread(&mut || {
                    write_batches(engine, value_bytes, rows, batch, |_| data::below(&mut random, rows)).map(drop)
                })?;
                let written = clock.took();
                engine.settle()?;
                let settled = clock.took();
                // Work that is left for a time without writes belongs to this load as well.
                engine.rest()?;
                let all = clock.took();
                let bytes = (written_by_process()? - written_before) as f64;
                let mut measured = Measured::of_cpu(rows, all);
                measured.extra.extend([
                    ("rows/s", rows as f64 / written.wall.as_secs_f64()),
                    ("rows/CPU-s before the quiet", Measured::of_cpu(rows, settled).figure),
                    ("written per byte", bytes / (rows * self.row_bytes()) as f64),
                ]);
                Ok(measured)
            }
            Kind::Sustained { seconds } => {
                let seconds = setup.seconds.unwrap_or(seconds).max(1);
                self.sustained(engine, rows, Duration::from_secs(seconds), folder)
            }
            Kind::Overwrite { times } => self.overwrite(engine, rows, times, folder),
            Kind::Get | Kind::Absent | Kind::ZipfGet => self.gets(engine, rows, round),
            Kind::GetList { rows: list } => self.lists(engine, rows, list, round),
            Kind::Scan { reversed } => self.scan(engine, rows, reversed),
            Kind::GetDuringWrites {
                rows_per_second,
                seconds,
            } => {
                let load = concurrent::Load {
                    rows,
                    value_bytes,
                    rows_per_second,
                    time: Duration::from_secs(setup.seconds.unwrap_or(seconds).max(1)),
                };
                self.load(engine, setup)?;
                concurrent::run(engine, &load)
            }
            Kind::DiskBytes => Ok(Measured {
                figure: table_bytes(folder) as f64 / rows as f64,
                ..Measured::default()
            }),
        }
    }

    fn scan(&self, engine: &dyn Engine, rows: u64, reversed: bool) -> anyhow::Result<Measured> {
        let clock = Clock::start();
        let mut seen = (0, 0);
        engine.on_this_thread(&mut || {
            seen = engine.scan(reversed)?;
            Ok(())
        })?;
        ensure!(
            seen == (rows, rows * self.value_bytes as u64),
            "the scan saw {seen:?} of {rows} rows"
        );
        Ok(Measured::of_wall(rows, clock.took()))
    }

    fn puts(&self, engine: &dyn Engine, rows: u64, threads: u64, sync: bool) -> anyhow::Result<Measured> {
        let each = rows / threads;
        let values: Vec<Values> = Values::for_writers(self.value_bytes, threads).collect();
        let clock = Clock::start();
        let longest = std::thread::scope(|scope| {
            let write = |thread: u64, mut values: Values| {
                let mut longest = Duration::ZERO;
                engine.on_this_thread(&mut || {
                    let mut random = data::generator(100 + thread);
                    for _ in 0..each {
                        let key = data::key(data::below(&mut random, rows));
                        let before = Instant::now();
                        engine.put(&key, values.next(), sync)?;
                        longest = longest.max(before.elapsed());
                    }
                    Ok(())
                })?;
                anyhow::Ok(longest)
            };
            let begin = |(thread, values)| scope.spawn(move || write(thread, values));
            let writers: Vec<_> = (0..).zip(values).map(begin).collect();
            let mut longest = Duration::ZERO;
            for writer in writers {
                match writer.join() {
                    Ok(outcome) => longest = longest.max(outcome?),
                    Err(_) => bail!("a writer panicked"),
                }
            }
            Ok(longest)
        })?;
        let took = clock.took();
        let mut measured = Measured::of_wall(each * threads, took);
        measured.longest = Some(longest);
        Ok(measured)
    }

    fn sustained(&self, engine: &dyn Engine, rows: u64, limit: Duration, folder: &Path) -> anyhow::Result<Measured> {
        let mut stalls = Stalls::default();
        let mut quarters = [0u64; 4];
        let mut of_host = [0.0; 4];
        let run = LongRun::start(folder)?;
        engine.on_this_thread(&mut || {
            let mut random = data::generator(5);
            let mut values = Values::new(self.value_bytes);
            let start = Instant::now();
            let mut before = start;
            let (mut share, mut last) = (HostShare::start(), 0);
            loop {
                let key = data::key(data::below(&mut random, rows));
                engine.put(&key, values.next(), false)?;
                let after = Instant::now();
                stalls.note(after - before, engine);
                before = after;
                let quarter = (4 * (after - start).as_micros() / limit.as_micros()) as usize;
                if quarter != last {
                    of_host[last] = share.percent();
                    last = quarter.min(3);
                }
                match quarters.get_mut(quarter) {
                    Some(count) => *count += 1,
                    None => return Ok(()),
                }
            }
        })?;
        let written = quarters.iter().sum();
        let mut measured = Measured::of_wall(written, run.clock.took());
        measured.longest = Some(stalls.longest);
        measured.remark = stalls.reasons();
        let names = ["quarter 1 rows/s", "quarter 2", "quarter 3", "quarter 4"];
        let rate = |rows: u64| rows as f64 / (limit.as_secs_f64() / 4.0);
        measured.extra.extend(names.into_iter().zip(quarters.map(rate)));
        let names = ["host's % of cores in quarter 1", "in 2", "in 3", "in 4"];
        measured.extra.extend(names.into_iter().zip(of_host));
        measured
            .extra
            .push(("last quarter/first", quarters[3] as f64 / quarters[0].max(1) as f64));
        let own = |quarter: usize| quarters[quarter] as f64 / (1.0 - of_host[quarter] / 100.0).max(0.01);
        let last_to_first = own(3) / own(0).max(1.0);
        measured.extra.push(("the same but for the host", last_to_first));
        measured.extra.extend(stalls.figures());
        let write_amplification = run.end(engine, written * self.row_bytes(), &mut measured)?;
        measured.extra.push(("write amplification", write_amplification));
        Ok(measured)
    }

    fn overwrite(&self, engine: &dyn Engine, rows: u64, times: u64, folder: &Path) -> anyhow::Result<Measured> {
        let written = rows * times;
        let mut stalls = Stalls::default();
        let mut random = data::generator(23);
        let run = LongRun::start(folder)?;
        engine.on_this_thread(&mut || {
            let number = |_| data::below(&mut random, rows);
            let batch = ((BATCH_BYTES_MAX / self.value_bytes) as u64).clamp(1, 1000);
            stalls = write_batches(engine, self.value_bytes, written, batch, number)?;
            Ok(())
        })?;
        let mut measured = Measured::of_wall(written, run.clock.took());
        measured.extra.push(("rows/s", measured.figure));
        measured.longest = Some(stalls.longest);
        measured.remark = stalls.reasons();
        measured.extra.extend(stalls.figures());
        measured.figure = run.end(engine, written * self.row_bytes(), &mut measured)?;
        Ok(measured)
    }

    /// Bytes of a row's key and value.
    fn row_bytes(&self) -> u64 {
        (self.value_bytes + data::KEY_BYTES) as u64
    }

    fn lists(&self, engine: &dyn Engine, rows: u64, list: u64, round: u64) -> anyhow::Result<Measured> {
        let reads = rows.clamp(100_000, 1_000_000);
        let mut random = data::generator(37 + round);
        let clock = Clock::start();
        let mut keys = Vec::new();
        let mut read = 0;
        engine.on_this_thread(&mut || {
            while read < reads {
                keys.clear();
                keys.extend((0..list).map(|_| data::key(data::below(&mut random, rows))));
                keys.sort_unstable();
                keys.dedup();
                let expected = (keys.len() as u64, (keys.len() * self.value_bytes) as u64);
                let found = engine.get_list(&keys)?;
                ensure!(found == expected, "found {found:?} of a list, expected {expected:?}");
                read += found.0;
            }
            Ok(())
        })?;
        Ok(Measured::of_wall(read, clock.took()))
    }

    fn gets(&self, engine: &dyn Engine, rows: u64, round: u64) -> anyhow::Result<Measured> {
        // Reads by Zipf's law from the row cache are the fastest there are, and their run is to take seconds, too.
        let times = if matches!(self.kind, Kind::ZipfGet) { 4 } else { 1 };
        let reads = times * rows.clamp(100_000, 1_000_000);
        let zipf = matches!(self.kind, Kind::ZipfGet).then(|| Zipf::new(rows, 0.99));
        let absent = matches!(self.kind, Kind::Absent);
        let mut random = data::generator(31 + round);
        let clock = Clock::start();
        engine.on_this_thread(&mut || {
            for _ in 0..reads {
                let number = match &zipf {
                    Some(zipf) => zipf.next(&mut random),
                    None => data::below(&mut random, rows) + if absent { rows } else { 0 },
                };
                let found = engine.get(&data::key(number))?;
                let expected = (!absent).then_some(self.value_bytes);
                ensure!(
                    found == expected,
                    "row {number}: found {found:?}, expected {expected:?}"
                );
            }
            Ok(())
        })?;
        Ok(Measured::of_wall(reads, clock.took()))
    }
}

/// Writes `rows` rows in batches, the i-th with the number that `number(i)` gives. How long batches took.
pub fn write_batches(
    engine: &dyn Engine,
    value_bytes: usize,
    rows: u64,
    batch: u64,
    mut number: impl FnMut(u64) -> u64,
) -> anyhow::Result<Stalls> {
    let mut stalls = Stalls::default();
    let mut values = Values::new(value_bytes);
    let mut bytes = Vec::new();
    let mut done = 0;
    while done < rows {
        let now = batch.min(rows - done);
        bytes.clear();
        (0..now).for_each(|_| bytes.extend_from_slice(values.next()));
        let mut pieces = bytes.chunks(value_bytes);
        let made: Vec<_> = (done..done + now)
            .map(|i| (data::key(number(i)), pieces.next().unwrap_or_default()))
            .collect();
        let before = Instant::now();
        engine.put_batch(&made)?;
        stalls.note(before.elapsed(), engine);
        done += now;
    }
    Ok(stalls)
}

/// Time without writes after a long run: some compactions are made then that would not be worthwhile during writes. The
/// bytes that they write count.
const QUIET_TIME: Duration = Duration::from_secs(60);

/// Bytes of values in a batch of large ones.
const BATCH_BYTES_MAX: usize = 4 << 20;

/// The part of a long run, of minutes, that is measured from its beginning to after its end.
struct LongRun<'a> {
    clock: Clock,
    folder: &'a Path,
    space: SpaceWatch,
    written_before: u64,
}

impl<'a> LongRun<'a> {
    fn start(folder: &'a Path) -> anyhow::Result<Self> {
        Ok(LongRun {
            clock: Clock::start(),
            folder,
            space: SpaceWatch::start(folder),
            written_before: written_by_process()?,
        })
    }

    /// Waits until no work is left, adds the run's cost in space, and returns its write amplification: bytes of log,
    /// flushes and compactions for each of `user_bytes`. Space is compared with the size of the data when every row is
    /// there once.
    fn end(self, engine: &dyn Engine, user_bytes: u64, measured: &mut Measured) -> anyhow::Result<f64> {
        let before = Instant::now();
        engine.settle()?;
        let settling = before.elapsed();
        let settled = table_bytes(self.folder);
        std::thread::sleep(QUIET_TIME);
        engine.settle()?;
        let written = written_by_process()? - self.written_before;
        let peak = self.space.peak();
        let quiet = table_bytes(self.folder);
        engine.compact()?;
        let live = table_bytes(self.folder).max(1) as f64;
        measured.extra.extend([
            ("seconds to settle", settling.as_secs_f64()),
            ("GB in the end", live / 1e9),
            ("space amplification, settled", settled as f64 / live),
            ("space amplification, a minute later", quiet as f64 / live),
            ("space amplification, peak", peak as f64 / live),
        ]);
        Ok(written as f64 / user_bytes as f64)
    }
}

/// Bytes this process has handed to the kernel for files.
fn written_by_process() -> anyhow::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/io")?;
    let line = text.lines().find_map(|l| l.strip_prefix("wchar: "));
    Ok(line.unwrap_or_default().parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Row;
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    /// Rows in memory. A faulty one changes a byte of each value that is read.
    #[derive(Default)]
    struct Rows {
        rows: Mutex<BTreeMap<[u8; data::KEY_BYTES], Vec<u8>>>,
        is_faulty: bool,
    }

    impl Engine for Rows {
        fn put(&self, key: &[u8; data::KEY_BYTES], value: &[u8], _: bool) -> anyhow::Result<()> {
            self.put_batch(&[(*key, value)])
        }

        fn put_batch(&self, rows: &[Row<'_>]) -> anyhow::Result<()> {
            let rows = rows.iter().map(|(key, value)| (*key, value.to_vec()));
            self.rows.lock().unwrap().extend(rows);
            Ok(())
        }

        fn get(&self, key: &[u8; data::KEY_BYTES]) -> anyhow::Result<Option<usize>> {
            Ok(self.value(key)?.map(|value| value.len()))
        }

        fn value(&self, key: &[u8; data::KEY_BYTES]) -> anyhow::Result<Option<Vec<u8>>> {
            let mut value = self.rows.lock().unwrap().get(key).cloned();
            if let (true, Some(value)) = (self.is_faulty, &mut value) {
                value[0] ^= 1;
            }
            Ok(value)
        }

        fn get_list(&self, _: &[[u8; data::KEY_BYTES]]) -> anyhow::Result<(u64, u64)> {
            bail!("no lists")
        }

        fn scan(&self, _: bool) -> anyhow::Result<(u64, u64)> {
            bail!("no scans")
        }

        fn settle(&self) -> anyhow::Result<()> {
            Ok(())
        }

        fn compact(&self) -> anyhow::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_engine_with_other_values_is_not_measured() {
        let folder = tempfile::tempdir().unwrap();
        let setup = Setup {
            folder: folder.path().to_owned(),
            scale: 0.001,
            memory: 1 << 20,
            seconds: None,
            rival_urgent: false,
            fixed_memory: false,
        };
        let warms_up = |is_faulty: bool| {
            let engine = Rows {
                is_faulty,
                ..Rows::default()
            };
            let workload = choose(&["disk-bytes-1000".to_owned()]).unwrap()[0];
            workload.load(&engine, &setup).unwrap();
            workload.warm_up(&engine, &setup, folder.path()).is_ok()
        };
        assert!(warms_up(false));
        assert!(!warms_up(true));
    }

    #[test]
    fn names_choose_by_prefix_and_exactly() {
        let names = |wanted: &[&str]| -> Vec<&str> {
            let wanted: Vec<String> = wanted.iter().map(|s| (*s).to_owned()).collect();
            choose(&wanted).unwrap().iter().map(|w| w.name).collect()
        };
        assert_eq!(names(&["random-read"]), ["random-read"]);
        assert_eq!(names(&["batch"]).len(), 3);
        assert_eq!(names(&["served-scan"]).len(), 3);
        assert_eq!(names(&["served"]).len(), 6);
        assert_eq!(names(&["served-scan-10", "sync"]), ["sync-write-64", "served-scan-10"]);
        assert!(!names(&[]).contains(&"sustained-write-10"));
        assert!(choose(&["nothing".to_owned()]).is_err());
    }
}
