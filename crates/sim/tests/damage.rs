//! One flipped bit, anywhere in a data folder.
//!
//! A server fills a small folder with every kind of file: coordination snapshot and log, manifests, sstables, value files, a
//! commit log with records that are in no file yet. Then, for one bit after the other, a server is started on a copy with that bit
//! flipped. It may refuse to start, naming the file; or it serves, and every row is either exactly right or an error of
//! kind `Corruption` that names the file. Nothing is ever missing, stale or made up, nothing panics, nothing hangs.
//!
//! Known exceptions, which bytes alone cannot tell: damage to the last group of the commit log, or to the last record of
//! the coordination log, resembles a tail that was never acknowledged. The folder ends in a write and a table that may
//! go missing for that reason, and nothing else may.
//!
//! Damage to files of tablets must also pass without a trace: when the file is whole again after the server has
//! written, flushed, compacted and swept meanwhile, everything is there.
//!
//! Of the first and last bytes of each file every sixteenth is flipped, and some between by chance. `DAMAGE_FLIPS` sets how
//! many of those per file, and takes all at the ends; `DAMAGE_FLIPS=all` takes each byte.

use crate::support::tables;

use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use stele_client::{MutateRows, ReadRows, ServiceError, TableAdmin, TableService};
use stele_sim::cluster::{CACHE_BYTES, Node, open_node, options};
use stele_sim::runtime::{Process, Sim};
use stele_storage::Storage;
use stele_storage::memory::MemoryStorage;
use stele_tabletserver::{MemtableLimits, ServerOptions};
use stele_types::{Cell, ErrorKind, FamilyId, Mutation, RowMutation, RowRange, RowSet, TableName, Timestamp};
use tables::plain_table;

/// Steps of one start with its reads; more is a livelock.
const STEPS_MAX: u64 = 1_000_000;
/// Rows of each of the two tablets.
const ROWS: u64 = 24;
/// Bytes of a value. Values of full length go to value files: with three to a block of the default size, a file of
/// several blocks would have too many.
const VALUE_BYTES: usize = 9_000;
/// Bytes at either end of a file that count as its ends: longer than any header or footer.
const ENDS: u64 = 64;
/// Every how manyth of those is flipped when nothing else is asked for. A flip takes a third of a second in a debug
/// build, and all of them together a minute.
const ENDS_STEP: usize = 16;
/// Bytes between the ends that are flipped then, per file.
const BETWEEN: u64 = 4;
/// Among how many threads the flips are shared: each flip is a machine of its own.
const THREADS: usize = 2;
/// The row that may be lost with the end of the log.
const LAST_ROW: &[u8] = b"zz-last";

type Files = BTreeMap<String, Bytes>;
type Rows = BTreeMap<Bytes, Option<Bytes>>;

struct Folder {
    files: Files,
    /// The content of every row ever written; `None` for a deleted one.
    rows: Rows,
}

fn table(name: &str) -> TableName {
    TableName::new("damage", name)
}

fn settings() -> ServerOptions {
    ServerOptions {
        // No background work: the test alone changes the folder.
        memtables: MemtableLimits::new(64 << 20, 32 << 20),
        log_bytes_max: 64 << 20,
        log_segment_bytes: 256 << 10,
        log_queue_bytes: 1 << 20,
        tablet_bytes_max: 64 << 20,
        value_separate_bytes: VALUE_BYTES,
        ..options()
    }
}

async fn memory_of(files: &Files) -> Arc<MemoryStorage> {
    let storage = MemoryStorage::new();
    for (path, content) in files {
        storage
            .put_if_absent(path, content.clone())
            .await
            .expect("a new medium");
    }
    storage
}

async fn start(process: &Process, storage: Arc<dyn Storage>) -> Result<Node, String> {
    open_node(process.clone(), process.env(), storage, settings(), CACHE_BYTES).await
}

fn put(value: Bytes) -> Mutation {
    Mutation::Put {
        family: FamilyId(1),
        qualifier: Bytes::from_static(b"q"),
        timestamp: Timestamp(1),
        value,
    }
}

async fn write(node: &Node, row: &Bytes, mutation: Mutation) -> Result<(), ServiceError> {
    let request = MutateRows {
        id: None,
        table: table("t"),
        rows: vec![RowMutation {
            row: row.clone(),
            mutations: vec![mutation],
        }]
        .into(),
        durability: None,
    };
    node.router.mutate_rows(request).await?.into_iter().collect()
}

async fn read(node: &Node, rows: RowSet) -> Result<Vec<(Bytes, Vec<Cell>)>, ServiceError> {
    let mut stream = node.router.read_rows(ReadRows::new(table("t"), rows)).await?;
    let mut found: Vec<(Bytes, Vec<Cell>)> = Vec::new();
    while let Some(batch) = stream.next().await? {
        found.extend(batch.shared_rows().map(|(row, cells)| (row, cells.to_vec())));
    }
    Ok(found)
}

async fn flush_all(node: &Node) {
    for served in node.server().all_served() {
        served.tablet.flush().await.expect("memory does not fail");
    }
}

/// Three generations of rows: two in files of their own, the third in the log alone. Each overwrites some of the rows
/// before it and deletes others, so that losing any of them would show an older value.
async fn make_folder(sim: Sim) -> Folder {
    let storage = MemoryStorage::new();
    let process = sim.process();
    let node = start(&process, storage.clone()).await.expect("an empty medium");
    let master = &node.master;
    let made = master
        .create_table(plain_table(table("t"), vec![Bytes::from_static(b"n")]))
        .await;
    made.expect("a new table");
    let mut rows = Rows::new();
    for generation in 0..3u64 {
        for n in 0..ROWS {
            for tablet in ["a", "p"] {
                let row = Bytes::from(format!("{tablet}{n:03}"));
                let written = n % 3 >= generation;
                let deleted = generation > 0 && n % 6 == 5;
                if deleted {
                    let gone = Mutation::DeleteRow { up_to: Timestamp::MAX };
                    write(&node, &row, gone).await.expect("a healthy medium");
                    rows.insert(row, None);
                } else if written {
                    // Every other value is large enough for a value file.
                    let bytes = VALUE_BYTES - (n as usize % 2);
                    let value = Bytes::from(vec![b'0' + generation as u8 * 3 + (n % 3) as u8; bytes]);
                    write(&node, &row, put(value.clone())).await.expect("a healthy medium");
                    rows.insert(row, Some(value));
                }
            }
        }
        if generation < 2 {
            flush_all(&node).await;
        }
    }
    let last = Bytes::from_static(LAST_ROW);
    write(&node, &last, put(last.clone())).await.expect("a healthy medium");
    rows.insert(last.clone(), Some(last));
    let made = master.create_table(plain_table(table("last"), Vec::new())).await;
    made.expect("a new table");
    let mut files = Files::new();
    for info in storage.list("").await.expect("memory does not fail") {
        let content = storage.read_all(&info.path).await.expect("memory does not fail");
        files.insert(info.path, content);
    }
    process.kill();
    Folder { files, rows }
}

/// The outcome of one flipped bit, or of several.
#[derive(Debug, Default)]
struct Seen {
    refused_starts: u64,
    right_rows: u64,
    failed_rows: u64,
}

impl Seen {
    fn add(&mut self, other: &Seen) {
        self.refused_starts += other.refused_starts;
        self.right_rows += other.right_rows;
        self.failed_rows += other.failed_rows;
    }
}

/// Reads every row on its own; the errors by the first letter of the row, which tells its tablet.
async fn read_rows(node: &Node, path: &str, rows: &Rows, seen: &mut Seen) -> Result<(), String> {
    let mut failed = std::collections::BTreeSet::new();
    for (row, expected) in rows {
        match read(node, RowSet::new(vec![RowRange::single(row)])).await {
            Ok(found) => {
                let value = found
                    .first()
                    .and_then(|(_, cells)| cells.first())
                    .map(|cell| &cell.value);
                let lost_end = row == LAST_ROW && path.starts_with("log/") && value.is_none();
                if value != expected.as_ref() && !lost_end {
                    return Err(format!("row {} is wrong", row.escape_ascii()));
                }
                seen.right_rows += 1;
            }
            Err(error) => {
                check_error(path, &error)?;
                failed.insert(row.first().map(|letter| *letter < b'n'));
                seen.failed_rows += 1;
            }
        }
    }
    if failed.len() > 1 {
        return Err("one damaged file stopped two tablets".to_owned());
    }
    Ok(())
}

fn check_error(path: &str, error: &ServiceError) -> Result<(), String> {
    if error.kind != ErrorKind::Corruption || !error.message.contains(path) {
        return Err(format!("refused as {:?}: {error}", error.kind));
    }
    Ok(())
}

/// Starts a server on a damaged copy and reads everything, before and after flushes and compactions had their turn.
async fn examine(sim: Sim, files: Files, path: String, whole: Bytes, mut rows: Rows) -> Result<Seen, String> {
    let mut seen = Seen::default();
    let process = sim.process();
    let storage = memory_of(&files).await;
    let node = match start(&process, storage.clone()).await {
        Ok(node) => node,
        Err(why) if why.contains(&path) => {
            seen.refused_starts += 1;
            return Ok(seen);
        }
        Err(why) => return Err(format!("refused to start without naming the file: {why}")),
    };
    read_rows(&node, &path, &rows, &mut seen).await?;
    match read(&node, RowSet::all()).await {
        Ok(found) => {
            let right = rows.iter().filter(|(_, value)| value.is_some()).count();
            if found.len() != right && !(path.starts_with("log/") && found.len() + 1 == right) {
                return Err(format!("a scan gave {} rows of {right}", found.len()));
            }
        }
        Err(error) => check_error(&path, &error)?,
    }
    // Blind writes are accepted, except where the files of a tablet are unknown.
    for row in [&b"a-new"[..], b"p-new"].map(Bytes::from_static) {
        match write(&node, &row, put(row.clone())).await {
            Ok(()) => drop(rows.insert(row.clone(), Some(row))),
            Err(error) if path.starts_with("tablets/") => check_error(&path, &error)?,
            Err(error) => return Err(format!("a write was refused: {error}")),
        }
    }
    for served in node.server().all_served() {
        served.tablet.flush().await.map_err(|e| format!("flush: {e}"))?;
        if let Err(error) = served.tablet.compact_all().await
            && (error.kind() != ErrorKind::Corruption || !error.to_string().contains(&path))
        {
            return Err(format!("compaction: {error}"));
        }
    }
    process.env().sleep(Duration::from_secs(3)).await;
    read_rows(&node, &path, &rows, &mut seen).await?;
    process.kill();
    if path.starts_with("sst/") || path.starts_with("tablets/") {
        heal(&sim, &storage, &path, whole, &rows).await?;
    }
    Ok(seen)
}

/// Puts the file back as it was, and expects everything to be there.
async fn heal(sim: &Sim, storage: &Arc<MemoryStorage>, path: &str, whole: Bytes, rows: &Rows) -> Result<(), String> {
    let text = |error: stele_storage::StorageError| format!("{path}: {error}");
    if !storage.list(path).await.map_err(text)?.is_empty() {
        storage.delete(path).await.map_err(text)?;
        storage.put_if_absent(path, whole).await.map_err(text)?;
    }
    let process = sim.process();
    let node = start(&process, storage.clone()).await?;
    let mut seen = Seen::default();
    read_rows(&node, path, rows, &mut seen).await?;
    process.kill();
    match seen.failed_rows {
        0 => Ok(()),
        failed => Err(format!("{failed} rows could not be read from the whole file")),
    }
}

/// The bytes to flip in each file.
#[derive(Clone, Copy)]
enum Flips {
    All,
    /// Every `step`th byte of the ends, and a number of random ones between them.
    Some {
        step: usize,
        between: u64,
    },
}

/// Offsets to flip.
fn offsets(len: u64, seed: u64, flips: Flips) -> Vec<u64> {
    let ends = (0..len.min(ENDS)).chain(len.saturating_sub(ENDS).max(ENDS.min(len))..len);
    let body = ENDS..len.saturating_sub(ENDS).max(ENDS);
    let Flips::Some { step, between } = flips else {
        return (0..len).collect();
    };
    // Not the same bytes of each file.
    let ends = ends.skip(seed as usize % step).step_by(step);
    let mut chance = seed;
    let between = (0..between.min(body.end - body.start)).map(|_| {
        chance = chance
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        body.start + (chance >> 16) % (body.end - body.start)
    });
    let between: Vec<u64> = between.collect();
    ends.chain(between).collect()
}

/// A byte of a file, and that file's number among all.
#[derive(Clone, Copy)]
struct Place<'a> {
    number: usize,
    path: &'a str,
    offset: u64,
}

/// The outcomes of flips: for each kind of file their number and their sum.
#[derive(Default)]
struct Outcome {
    by_kind: BTreeMap<String, (u64, Seen)>,
    failures: Vec<String>,
}

impl Outcome {
    fn add(&mut self, other: Outcome) {
        for (kind, (flips, seen)) in other.by_kind {
            let (all, sum) = self.by_kind.entry(kind).or_default();
            *all += flips;
            sum.add(&seen);
        }
        self.failures.extend(other.failures);
    }
}

/// Flips a bit in each of these places, one after the other.
fn flip_all<'a>(folder: &Folder, places: impl Iterator<Item = Place<'a>>) -> Outcome {
    let mut outcome = Outcome::default();
    for Place { number, path, offset } in places {
        let content = &folder.files[path];
        let mut damaged = content.to_vec();
        let bit = (offset * 5 + number as u64) % 8;
        damaged[offset as usize] ^= 1 << bit;
        let mut files = folder.files.clone();
        files.insert(path.to_owned(), Bytes::from(damaged));
        let sim = Sim::new(offset, STEPS_MAX);
        let examined = examine(
            sim.clone(),
            files,
            path.to_owned(),
            content.clone(),
            folder.rows.clone(),
        );
        let seen = sim.run(examined).unwrap_or_else(|stalled| Err(stalled.to_string()));
        let seen = match seen {
            Ok(seen) => seen,
            Err(why) => {
                let failure = format!("{path} byte {offset} bit {bit}: {why}");
                outcome.failures.push(failure);
                continue;
            }
        };
        let kind = if path.ends_with(".val") {
            "values".to_owned()
        } else {
            path.split(['/', '-']).next().unwrap_or_default().to_owned()
        };
        let (flips, sum) = outcome.by_kind.entry(kind).or_default();
        *flips += 1;
        sum.add(&seen);
    }
    outcome
}

#[test]
fn a_flipped_bit_is_never_taken_for_data() {
    let flips = match std::env::var("DAMAGE_FLIPS").as_deref() {
        Ok("all") => Flips::All,
        Ok(number) => Flips::Some {
            step: 1,
            between: number.parse().expect("DAMAGE_FLIPS is a number or \"all\""),
        },
        Err(_) => Flips::Some {
            step: ENDS_STEP,
            between: BETWEEN,
        },
    };
    let sim = Sim::new(1, STEPS_MAX);
    let folder = sim.run(make_folder(sim.clone())).expect("a folder");
    let mut places = Vec::new();
    for (number, (path, content)) in folder.files.iter().enumerate() {
        let offsets = offsets(content.len() as u64, number as u64, flips).into_iter();
        places.extend(offsets.map(move |offset| Place { number, path, offset }));
    }
    let (folder, places) = (&folder, &places);
    let Outcome { by_kind, failures } = std::thread::scope(|scope| {
        let shares = (0..THREADS).map(|n| {
            let share = places.iter().copied().skip(n).step_by(THREADS);
            scope.spawn(move || flip_all(folder, share))
        });
        // All of them are begun before one is waited for.
        let shares: Vec<_> = shares.collect();
        let mut all = Outcome::default();
        for share in shares {
            all.add(share.join().expect("no flip makes a server panic"));
        }
        all
    });
    assert!(failures.is_empty(), "{failures:#?}");
    let of = |kind: &str| by_kind.get(kind).expect("a file of every kind");
    // Damage to tablets does not stop the server, unless it appears as a newer version.
    for kind in ["sst", "values", "tablets"] {
        let (flips, seen) = of(kind);
        assert!(seen.refused_starts * 4 < *flips, "{kind}: {seen:?}");
        assert!(
            seen.failed_rows > 0 && seen.right_rows > seen.failed_rows,
            "{kind}: {seen:?}"
        );
    }
    // Damage to the log or the catalog does, and is noticed nearly always.
    for kind in ["log", "coord"] {
        let (flips, seen) = of(kind);
        assert!(seen.refused_starts * 2 > *flips, "{kind}: {flips} flips, {seen:?}");
        assert_eq!(seen.failed_rows, 0, "{kind}");
    }
}
