//! Archived logs of several servers, read as one, and the archive of the tables.

use crate::archive::format::{Barrier, Part, TableChange};
use crate::archive::memory::RestoreMemory;
use crate::archive::merged::{LogOf, Merged};
use crate::archive::orphans::{Orphan, Orphans};
use crate::archive::prune::prune;
use crate::archive::{AnyArchive, ArchiveMetrics, ClusterArchive, Life, Rest, archive_rest};
use crate::destination::Destination;
use crate::error::Result;
use crate::format::Entry;
use crate::restore_at::cluster;
use crate::restore_at::suspects::Suspects;
use crate::work::Work;
use crate::{PlaceToOpen, Places};
use async_trait::async_trait;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stele_client::{BackupDestination, ServiceResult};
use stele_commitlog::{
    Append, Completion, LogClock, LogError, LogMetrics, LogOptions, LogStream, Payload, Record, Submitted,
};
use stele_env::Env;
use stele_env::metrics::Metrics;
use stele_env::tokio_env::TokioRuntime;
use stele_memory::Pool;
use stele_storage::Storage;
use stele_storage::memory::MemoryStorage;
use stele_tabletserver::Moments;
use stele_types::{Durability, Epoch, SeqNo, TabletId};
use tokio::sync::oneshot;

/// The wall clock of the test is behind, so clocks stand at the times that they are moved to.
const TIME: i64 = 4_000_000_000_000_000;

struct Done(oneshot::Sender<std::result::Result<(), LogError>>);

impl Completion for Done {
    fn complete(self, outcome: std::result::Result<(), LogError>) {
        let _ = self.0.send(outcome);
    }
}

#[derive(Default)]
struct Noted(Mutex<i64>);

#[async_trait]
impl Moments for Noted {
    async fn noted(&self) -> ServiceResult<i64> {
        Ok(*self.0.lock())
    }

    async fn note(&self, micros: i64) -> ServiceResult<()> {
        let mut noted = self.0.lock();
        *noted = micros.max(*noted);
        Ok(())
    }
}

fn env() -> Env {
    TokioRuntime::current()
}

fn archive() -> ClusterArchive {
    let opened: Mutex<BTreeMap<String, Arc<MemoryStorage>>> = Mutex::default();
    let places = Places::new(Arc::new(move |PlaceToOpen { place, .. }| {
        let storage = opened.lock().entry(place.address).or_default().clone();
        Box::pin(async move { Ok((storage as Arc<dyn Storage>).into()) })
    }));
    let place = BackupDestination {
        address: "place".to_owned(),
        options: Vec::new(),
    };
    ClusterArchive::new(places, place)
}

/// The same whose servers all have one storage. It is for a test with one server.
pub(super) fn archive_at(storage: Arc<dyn Storage>) -> ClusterArchive {
    let places = Places::new(Arc::new(move |PlaceToOpen { place, .. }| {
        let of_server = place.address.contains('/').then(|| storage.clone());
        let storage = of_server.unwrap_or_else(|| MemoryStorage::new());
        Box::pin(async move { Ok(storage.into()) })
    }));
    let place = BackupDestination {
        address: "place".to_owned(),
        options: Vec::new(),
    };
    ClusterArchive::new(places, place)
}

pub(super) fn life(server: u32, from: i64) -> Life {
    Life {
        server,
        from_micros: TIME + from,
        ended_micros: 0,
        gaps: 0,
    }
}

/// Writes records of one mutation, each at a time with a tablet and a number.
pub(super) async fn log(server: u32, records: &[(i64, u64, u64)]) -> Arc<dyn Storage> {
    log_of(server, records, (100, 7)).await
}

/// The same in segments of a size, with payloads of a length.
async fn log_of(
    server: u32,
    records: &[(i64, u64, u64)],
    (segment_bytes, payload_len): (u64, usize),
) -> Arc<dyn Storage> {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let clock = LogClock::new(env(), TIME);
    let options = LogOptions {
        clock: Some(clock.clone()),
        segment_bytes,
        ..LogOptions::default()
    };
    let next = AtomicU64::new(u64::from(server) << 32);
    let next = Arc::new(move || next.fetch_add(1, Ordering::Relaxed) + 1);
    let metrics = LogMetrics::new(&Metrics::new());
    let stream = LogStream::start(storage.clone(), env(), 0, options, next, Vec::new(), metrics);
    for (micros, tablet, number) in records {
        clock.raise(TIME + micros);
        let (answer, answered) = oneshot::channel();
        let first = SeqNo::new(Epoch(server), *number);
        let append = Append {
            record: Record {
                tablet: TabletId(*tablet),
                first,
                last: first,
                payload: Payload::new(vec![b'x'; payload_len].into()),
            },
            durability: Durability::Sync,
            done: Done(answer),
        };
        let slot = stream.slot(append.record.payload.bytes().len()).await.unwrap();
        match slot.submit(append, Durability::Sync, |append| (append, ())) {
            Submitted::Lead(lead, append) => lead.hand_over(append),
            Submitted::Gathered(gathered, ()) => drop(gathered),
            Submitted::Queued(()) | Submitted::Closed => {}
        }
        answered.await.unwrap().unwrap();
    }
    stream.close().await;
    storage
}

pub(super) async fn end(archive: &ClusterArchive, life: Life, log: &Arc<dyn Storage>) -> Result<()> {
    let (env, moments) = (env(), Noted::default());
    let rest = Rest {
        env: &env,
        root: [7; 16],
        epoch: 99,
        life,
        log: &**log,
        clock: &LogClock::new(env.clone(), TIME),
        moments: &moments,
        metrics: &ArchiveMetrics::new(&Metrics::new()),
    };
    archive_rest(archive, &rest).await
}

/// The times, tablets and epochs of the records between a backup and a moment, in their order.
async fn read(archive: &ClusterArchive, lives: &[Life], moments: (i64, i64)) -> Result<Vec<(i64, u64, u32)>> {
    read_within((1 << 20, 1 << 20), archive, lives, moments).await
}

/// The same within a limit of memory; more than `used_max` is never used.
async fn read_within(
    (limit, used_max): (usize, usize),
    archive: &ClusterArchive,
    lives: &[Life],
    (begun, at): (i64, i64),
) -> Result<Vec<(i64, u64, u32)>> {
    let work = Work::new(env(), None, 1);
    let entry = Entry {
        begun_micros: TIME + begun,
        ..Entry::default()
    };
    let lives = lives.iter().map(|life| (life.server, *life)).collect();
    let logs = cluster::logs(archive, &lives, (&entry, TIME + at), &work).await?;
    let pool = Pool::with_limits(|_| limit);
    let memory = RestoreMemory::new(&pool);
    let used = || pool.of(stele_memory::Part::Restores).used();
    let mut merged = Merged::new(&logs, TIME + at, (&work, &memory));
    let mut found = Vec::new();
    while let Some(some) = merged.next().await? {
        let micros = some.micros - TIME;
        let records = some.records.iter();
        found.extend(records.map(|record| (micros, record.tablet.0, record.first.epoch().0)));
        assert!(used() <= used_max, "{} bytes", used());
    }
    assert_eq!(used(), 0);
    Ok(found)
}

async fn refused(archive: &ClusterArchive, lives: &[Life], moments: (i64, i64)) -> String {
    let refused = read(archive, lives, moments).await;
    refused.expect_err("log is missing").to_string()
}

/// Pieces of ninety kilobytes are read in steps of four, so that a group of ten has all of its bytes after some.
#[tokio::test]
async fn records_are_read_within_little_memory() {
    let archive = archive();
    let lives = [life(5, 1), life(6, 1)];
    let records: Vec<(i64, u64, u64)> = (1..=9).map(|n| (10 * n as i64, 7, n)).collect();
    for life in &lives {
        let log = log_of(life.server, &records, (1 << 20, 10_000)).await;
        end(&archive, *life, &log).await.unwrap();
    }
    let all = read_within((64 << 10, 64 << 10), &archive, &lives, (0, 100))
        .await
        .unwrap();
    assert_eq!(all.len(), 18);
    assert_eq!(all, read(&archive, &lives, (0, 100)).await.unwrap());
    // No group fits, and each is read nevertheless: twice a group and a step for each stream.
    let used_max = 2 * 2 * (10_200 + (4 << 10));
    let over = read_within((16 << 10, used_max), &archive, &lives, (0, 100));
    assert_eq!(all, over.await.unwrap());
}

/// Tablet 7 moves from server 5 to server 6 and back to 8, and has records of the same time on two of them.
#[tokio::test]
async fn records_of_a_tablet_come_in_their_order_whichever_server_wrote_them() {
    let archive = archive();
    let lives = [life(5, 1), life(6, 12), life(8, 25)];
    let logs = [
        log(5, &[(10, 7, 1), (15, 9, 1), (30, 7, 2), (30, 7, 3)]).await,
        log(6, &[(20, 8, 1), (30, 7, 1), (40, 7, 2)]).await,
        log(8, &[(40, 7, 1), (50, 8, 1)]).await,
    ];
    for (life, log) in lives.iter().zip(&logs) {
        end(&archive, *life, log).await.unwrap();
        // A leader may have ended before it had noted that.
        end(&archive, *life, log).await.unwrap();
    }
    let all = read(&archive, &lives, (0, 60)).await.unwrap();
    let expected = [
        (10, 7, 5),
        (15, 9, 5),
        (20, 8, 6),
        (30, 7, 5),
        (30, 7, 5),
        (30, 7, 6),
        (40, 7, 6),
        (40, 7, 8),
        (50, 8, 8),
    ];
    assert_eq!(all, expected);
    assert_eq!(read(&archive, &lives, (0, 39)).await.unwrap(), expected[..6]);
    // A server that joined after the moment is not asked.
    assert_eq!(read(&archive, &lives, (0, 24)).await.unwrap(), expected[..3]);
}

#[tokio::test]
async fn a_moment_is_refused_that_the_log_of_a_server_does_not_reach() {
    let archive = archive();
    let (known, unknown) = (life(5, 1), life(6, 2));
    let log = log(5, &[(10, 7, 1), (20, 7, 2)]).await;
    end(&archive, known, &log).await.unwrap();
    let why = refused(&archive, &[known, unknown], (0, 30)).await;
    assert!(why.contains("the log of server 6"), "{why}");
    // It had ended when the backup was begun, which has its writes.
    let ended = Life {
        ended_micros: TIME + 5,
        gaps: 1,
        ..unknown
    };
    assert_eq!(read(&archive, &[known, ended], (5, 30)).await.unwrap().len(), 2);
    let why = refused(&archive, &[known, ended], (4, 30)).await;
    assert!(why.contains("the log of server 6") && why.contains("backup"), "{why}");
}

#[tokio::test]
async fn a_moment_is_refused_behind_log_that_was_let_go() {
    let archive = archive();
    let known = life(5, 1);
    let server = archive.server(5).open(true).await.unwrap();
    let part = |number, to| Part {
        number,
        root: vec![7; 16],
        chain: known.chain().to_vec(),
        range_first: 1,
        range_from: known.from_micros,
        from_micros: known.from_micros,
        to_micros: TIME + to,
        ..Part::default()
    };
    for (number, to) in [(1, 1), (2, 8)] {
        assert!(server.put_part(&part(number, to)).await.unwrap().is_none());
    }
    assert_eq!(read(&archive, &[known], (0, 7)).await.unwrap(), []);
    let why = refused(&archive, &[known], (0, 8)).await;
    assert!(why.contains("server 5 up to 4000000000000008"), "{why}");
    // It let the rest go, and has ended: nothing of it is archived.
    let holed = Life { gaps: 1, ..known };
    let log = log(5, &[(10, 7, 1)]).await;
    end(&archive, holed, &log).await.unwrap();
    assert_eq!(read(&archive, &[holed], (0, 7)).await.unwrap(), []);
    refused(&archive, &[holed], (0, 8)).await;
    assert_eq!(server.numbers().await.unwrap(), [1, 2, 3]);
    // The same server without a gap: the rest of its log follows.
    let whole = Life {
        from_micros: TIME + 2,
        ..life(6, 1)
    };
    end(&archive, whole, &log_of_six().await).await.unwrap();
    assert_eq!(read(&archive, &[whole], (0, 70)).await.unwrap(), [(60, 7, 6)]);
}

async fn log_of_six() -> Arc<dyn Storage> {
    log(6, &[(60, 7, 1)]).await
}

/// Two leaders write parts of the tables, the second from part 5 on; each begins with a statement of two tables, with tablets 1 and 2.
async fn parts_of_tables(archive: &ClusterArchive, to: i64) {
    let tables = archive.tables().open(true).await.unwrap();
    for number in 1..=to {
        let states = matches!(number, 1 | 5);
        let at_micros = TIME + 10 * number;
        let stated = |tablet| TableChange {
            at_micros,
            table: tablet,
            tablets: vec![tablet],
            ..TableChange::default()
        };
        let part = Part {
            number: number as u64,
            root: vec![7; 16],
            chain: vec![8; 16],
            epoch: if number < 5 { 1 } else { 2 },
            range_first: 1,
            range_from: TIME + 10,
            from_micros: TIME + 10 * (number - 1).max(1),
            to_micros: at_micros,
            restated_micros: if states { at_micros } else { 0 },
            changes: if states { vec![stated(1), stated(2)] } else { Vec::new() },
            ..Part::default()
        };
        assert!(tables.put_part(&part).await.unwrap().is_none());
    }
}

/// A backup of the first table alone: its restore meets writes of tablet 2, and must know that these are of another table.
#[tokio::test]
async fn tables_that_no_backup_has_are_known_after_old_parts_are_gone() {
    // The begin of the oldest backup, and the first part that is left.
    for (begun, first_left) in [(125, 5), (55, 5), (45, 1), (25, 1)] {
        let archive = archive();
        parts_of_tables(&archive, 15).await;
        let tables = archive.tables().open(false).await.unwrap();
        let destination = Destination::open(MemoryStorage::new(), true).await.unwrap();
        let entry = Entry {
            id: 1,
            name: "b".to_owned(),
            root: vec![7; 16],
            begun_micros: TIME + begun,
            completed_micros: TIME + begun + 1,
            ..Entry::default()
        };
        let enter = |state: &mut crate::format::State| {
            state.backups = vec![entry.clone()];
            Ok(())
        };
        destination.change(enter).await.unwrap();
        let work = Work::new(env(), None, 1);
        let any = AnyArchive::Cluster(archive.clone(), tables.clone());
        let deleted = prune(&any, &destination, &work).await.unwrap();
        assert_eq!(deleted, first_left - 1, "{begun}");
        let left: Vec<u64> = (first_left..=15).collect();
        assert_eq!(tables.numbers().await.unwrap(), left, "{begun}");
        // As a restore of the backup does it.
        let range = tables.ranges().await.unwrap().remove(0);
        let first = tables.part_before(&range, entry.begun_micros).await.unwrap();
        let mut orphans = Orphans::default();
        for number in first..=range.last {
            orphans.know_of(&tables.part(number).await.unwrap().changes);
        }
        let pool = Pool::with_limits(|_| 1 << 20);
        let memory = RestoreMemory::new(&pool);
        for (tablet, is_known) in [(1, true), (2, true), (3, false)] {
            let orphan = Orphan {
                micros: TIME + begun + 5,
                tablet,
            };
            let found = (!orphans.knows(tablet)).then_some(orphan);
            let found = found.into_iter().collect();
            let found = orphans.resolve(found, (&tables, &memory), (&range, first), &work);
            let expected = (!is_known).then_some(orphan);
            assert_eq!(found.await.unwrap(), expected, "{begun}");
        }
    }
}

/// A tablet was made, its rows were dropped, and it was replaced, all between two parts of the tables.
#[tokio::test]
async fn a_barrier_of_a_tablet_that_no_part_of_the_tables_names_refuses_a_restore() {
    let archive = archive();
    parts_of_tables(&archive, 5).await;
    let tables = archive.tables().open(false).await.unwrap();
    let server = archive.server(3).open(true).await.unwrap();
    let barrier = |tablet, at| Barrier {
        tablet,
        at_micros: TIME + at,
        cause: 1,
    };
    let part = Part {
        number: 1,
        range_first: 1,
        range_from: TIME + 10,
        from_micros: TIME + 10,
        to_micros: TIME + 60,
        barriers: vec![
            barrier(1, 30),
            barrier(4, 19),
            barrier(3, 40),
            barrier(3, 35),
            barrier(5, 51),
        ],
        ..Part::default()
    };
    assert!(server.put_part(&part).await.unwrap().is_none());
    let ranges = |archive: crate::archive::Archive| async move { archive.ranges().await.unwrap().remove(0) };
    let logs = [LogOf {
        range: ranges(server.clone()).await,
        archive: server,
        first: 1,
        from: i64::MIN,
    }];
    let (mut orphans, work) = (Orphans::default(), Work::new(env(), None, 1));
    orphans.know_of(&tables.part(1).await.unwrap().changes);
    let suspects = Suspects {
        orphans,
        range: ranges(tables.clone()).await,
        first: 1,
        begun: TIME + 20,
        completed: TIME + 25,
    };
    let found = cluster::bar(&logs, (Vec::new(), &suspects), TIME + 50, &work);
    let found = found.await.unwrap();
    assert_eq!(found, [(3, TIME + 35)].into());
    let pool = Pool::with_limits(|_| 1 << 20);
    let memory = RestoreMemory::new(&pool);
    let refused = suspects.judge(found, (&tables, &memory), &work).await.unwrap_err();
    assert!(refused.to_string().contains("tablet 3"), "{refused}");
}
