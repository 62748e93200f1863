//! Tests of tablets that cannot be flushed, next to others that can.
#![allow(clippy::disallowed_methods, reason = "the tests run on the real clock")]

use super::*;
use crate::recovery::tests::{TABLETS, Watched, first_with, options};
use crate::server::TabletServer;
use bytes::Bytes;
use std::sync::Weak;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use stele_client::{ServiceResult, TabletService};
use stele_memory::Reclaim;
use stele_storage::memory::MemoryStorage;
use stele_types::{ErrorKind, FamilyId, Mutation, RowMutation, Timestamp};

/// Longer than anything takes that happens by itself, once a second.
const SOON: Duration = Duration::from_secs(20);

async fn write(server: &TabletServer, tablet: TabletId, number: u64, bytes: usize) -> ServiceResult<()> {
    let prefix = if tablet == TABLETS[0] { "a" } else { "z" };
    let mutation = Mutation::Put {
        family: FamilyId(1),
        qualifier: Bytes::from_static(b"q"),
        timestamp: Timestamp(1),
        value: Bytes::from(vec![7; bytes]),
    };
    let row = RowMutation {
        row: Bytes::from(format!("{prefix}{number}")),
        mutations: vec![mutation],
    };
    server.mutate(tablet, vec![row].into(), None).await
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < SOON, "not {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// With a small budget its memtables are in the way long before the log is.
#[tokio::test]
async fn a_tablet_that_cannot_be_flushed_stops_no_other() {
    let device = Watched::over(MemoryStorage::new());
    let server = first_with(&device, None, options()).await;
    let share = server.parts.options.memtables.bytes_max();
    device.refuses_manifests.store(true, Ordering::Relaxed);
    let mut refused = None;
    for number in 0..1_000 {
        refused = write(&server, TABLETS[0], number, 100 << 10).await.err();
        if refused.is_some() {
            break;
        }
    }
    let refused = refused.expect("there is an end to what is kept");
    assert_eq!(refused.kind, ErrorKind::ResourceExhausted, "{refused}");
    assert!(refused.to_string().contains("memtables"), "{refused}");
    // Others are flushed, and go on, also when it alone takes more than all may.
    server.parts.options.memtables.set_share(share / 8);
    assert!(server.parts.context.memory.bytes() > share / 8 + share / 32);
    let all = 2 * share / (100 << 10);
    for number in 0..all {
        write(&server, TABLETS[1], number, 100 << 10).await.unwrap();
    }
    device.refuses_manifests.store(false, Ordering::Relaxed);
    until("flushed", || server.parts.admission.unflushable.tablets().is_empty()).await;
    write(&server, TABLETS[0], 0, 10).await.unwrap();
    server.shut_down().await;
}

/// Splits, drops of rows and merges of all flush, too.
#[tokio::test]
async fn a_tablet_that_another_has_flushed_is_not_stuck() {
    let device = Watched::over(MemoryStorage::new());
    let server = first_with(&device, None, options()).await;
    device.refuses_manifests.store(true, Ordering::Relaxed);
    write(&server, TABLETS[0], 0, 10).await.unwrap();
    let tablet = server.served(TABLETS[0]).unwrap().tablet.clone();
    let error = tablet.flush().await.unwrap_err();
    server.parts.admission.unflushable.failed(TABLETS[0], error.to_string());
    device.refuses_manifests.store(false, Ordering::Relaxed);
    tablet.flush().await.unwrap();
    // There is nothing to flush that anybody would flush it for.
    write(&server, TABLETS[0], 1, 10).await.unwrap();
    until("forgotten", || server.parts.admission.unflushable.tablets().is_empty()).await;
    // One that is no more is forgotten as well.
    server
        .parts
        .admission
        .unflushable
        .failed(TabletId(77), "gone".to_owned());
    until("forgotten", || server.parts.admission.unflushable.tablets().is_empty()).await;
    server.shut_down().await;
}

#[tokio::test]
async fn attempts_leave_nothing_behind() {
    let device = Watched::over(MemoryStorage::new());
    let server = first_with(&device, None, options()).await;
    let tablet = server.served(TABLETS[0]).unwrap().tablet.clone();
    device.refuses_manifests.store(true, Ordering::Relaxed);
    for number in 0..20 {
        write(&server, TABLETS[0], number, 10).await.unwrap();
        tablet.flush().await.unwrap_err();
    }
    assert_eq!(tablet.state().frozen.len(), 1);
    device.refuses_manifests.store(false, Ordering::Relaxed);
    assert!(tablet.flush().await.unwrap());
    assert_eq!(tablet.state().memtable_bytes(), 0);
    server.shut_down().await;
}

/// Cells read from a memtable retain its chunks when it has been flushed.
#[tokio::test]
async fn what_readers_hold_is_not_flushed_for() {
    let device = Watched::over(MemoryStorage::new());
    let server = first_with(&device, None, options()).await;
    let half = server.parts.options.memtables.bytes_max() / 2;
    let tablet = server.served(TABLETS[0]).unwrap().tablet.clone();
    let mut held = Vec::new();
    for number in (0..).step_by(30) {
        if server.parts.context.memory.bytes() > half + (1 << 20) {
            break;
        }
        for number in number..number + 30 {
            write(&server, TABLETS[0], number, 40 << 10).await.unwrap();
        }
        let row = format!("a{number}");
        held.extend(server.get_row(TABLETS[0], row.as_bytes(), None).unwrap());
        tablet.flush().await.unwrap();
    }
    let flushes = server.parts.context.metrics.flushes.get();
    for number in 0..20 {
        write(&server, TABLETS[1], number, 10).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(server.parts.context.memory.bytes() > half && !held.is_empty());
    assert!(server.parts.context.metrics.flushes.get() - flushes <= 1);
    server.shut_down().await;
}

/// Counts the requests to reclaim memory.
#[derive(Default)]
struct Asked(AtomicUsize);

impl Reclaim for Asked {
    fn reclaim(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    fn reclaim_overdraft(&self) {}
}

/// Nobody else would ask for it, and writers would wait as long as clients like.
#[tokio::test]
async fn what_answers_keep_of_memtables_is_asked_for_while_memory_is_short() {
    let device = Watched::over(MemoryStorage::new());
    let server = first_with(&device, None, options()).await;
    let asked = Arc::new(Asked::default());
    let holder: Weak<Asked> = Arc::downgrade(&asked);
    server.parts.options.pool.add_reclaimer(holder);
    let enough = server.parts.options.memtables.bytes_max() / 4 * 3;
    let tablet = server.served(TABLETS[0]).unwrap().tablet.clone();
    let mut held = Vec::new();
    for number in 0..200 {
        if server.parts.context.memory.bytes() >= enough {
            break;
        }
        // So large that its chunk is shared, and small enough to be read without waiting.
        write(&server, TABLETS[0], number, 600 << 10).await.unwrap();
        let row = format!("a{number}");
        held.extend(server.get_row(TABLETS[0], row.as_bytes(), None).unwrap());
    }
    assert!(server.parts.context.memory.bytes() >= enough, "{} are held", held.len());
    tablet.flush().await.unwrap();
    until("asked for", || asked.0.load(Ordering::Relaxed) > 0).await;
    drop(held);
    // It goes on until memory is no longer short, not for ever.
    until("forgotten", || server.parts.context.memory.bytes() < enough / 2).await;
    server.shut_down().await;
}

/// A flush loop that has looked at all there is would decide the same again.
#[tokio::test]
async fn what_has_been_looked_at_wakes_nobody() {
    let device = Watched::over(MemoryStorage::new());
    let server = first_with(&device, None, options()).await;
    write(&server, TABLETS[0], 0, 100 << 10).await.unwrap();
    // Nothing below waits, so the loop does not run in between.
    let worth = server.parts.options.memtables.tablet_bytes() + 1;
    assert!(!server.parts.flushes.presses(TABLETS[0], worth - 1));
    assert!(server.parts.flushes.presses(TABLETS[0], worth));
    assert!(!server.parts.flushes.presses(TABLETS[0], worth), "announced already");
    assert!(server.parts.flushes.presses(TABLETS[1], worth));
    let bytes = server.parts.context.memory.bytes();
    server.parts.options.memtables.set_share(bytes);
    server.parts.flushes.set_checked(bytes - 1);
    assert!(
        server.parts.flushes.presses(TABLETS[0], 0),
        "there is more memory than when the loop looked"
    );
    server.parts.flushes.set_checked(bytes);
    assert!(!server.parts.flushes.presses(TABLETS[0], 0));
    server.parts.options.memtables.set_share(64 << 20);
    server.shut_down().await;
}

/// Writes while no tablet can be flushed are flushed when that has ended, regardless of the order of wake-ups.
#[tokio::test]
async fn what_presses_meanwhile_is_not_forgotten() {
    let device = Watched::over(MemoryStorage::new());
    let server = first_with(&device, None, options()).await;
    device.refuses_manifests.store(true, Ordering::Relaxed);
    let worth = server.parts.options.memtables.tablet_bytes();
    let tablet = server.served(TABLETS[0]).unwrap().tablet.clone();
    let mut number = 0;
    while tablet.write_load().active_bytes <= worth {
        write(&server, TABLETS[0], number, 10 << 10).await.unwrap();
        number += 1;
    }
    write(&server, TABLETS[0], number, 10).await.unwrap();
    until("tried", || !server.parts.admission.unflushable.tablets().is_empty()).await;
    device.refuses_manifests.store(false, Ordering::Relaxed);
    until("flushed", || tablet.state().memtable_bytes() == 0).await;
    server.shut_down().await;
}
