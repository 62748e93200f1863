//! Readers and writers race on threads of their own, as fast as they come. A read that begins after a write was
//! acknowledged sees that write or a later one.
#![allow(clippy::disallowed_methods, reason = "threads are what is tested")]

use super::*;
use std::sync::Barrier;
use std::sync::atomic::AtomicBool;

/// Few, so that reads and writes of a row meet; the last two share a stripe with others only by chance.
const ROWS: usize = 4;
const WRITERS: usize = 2;
const READERS: usize = 3;
const WRITES: u64 = if cfg!(miri) { 50 } else { 60_000 };

/// The tablet.
#[derive(Default)]
struct Values {
    /// Values visible to reads of the tablet.
    visible: [AtomicU64; ROWS],
    /// Acknowledged values.
    acknowledged: [AtomicU64; ROWS],
    /// Numbers given to writes.
    next: AtomicU64,
}

fn value_of(batch: &RowBatch) -> u64 {
    let (_, cells) = batch.rows().next().unwrap();
    u64::from_be_bytes(cells[0].value.as_ref().try_into().unwrap())
}

fn batch_of(name: &Bytes, value: u64) -> RowBatch {
    let mut batch = RowBatch::default();
    let value = Bytes::copy_from_slice(&value.to_be_bytes());
    batch.push_row(name, [Cell::put(FAMILY, Bytes::from_static(b"q"), Timestamp(1), value)]);
    batch.seal();
    batch
}

/// Reads a row as the server does. Returns the value, and whether the cache had it.
fn read(cache: &RowCache, values: &Values, schema: &Arc<TableSchema>, number: usize) -> (u64, bool) {
    let name = row(number);
    let read = RowRead {
        tablet: TABLET,
        schema: SchemaMark::of(schema),
        row: &name,
        filter: None,
    };
    let reading = match cache.lookup(&read, || 0) {
        Lookup::Hit(kept) => return (value_of(&kept.to_batch()), true),
        Lookup::Miss(reading) => Some(reading),
        Lookup::Uncached => None,
    };
    let value = values.visible[number].load(Ordering::Acquire);
    if let Some(reading) = reading {
        cache.install(reading, &read, &batch_of(&name, value), || schema.clone(), || 0);
    }
    (value, false)
}

/// Writes one or two rows as the server does: in the order of their numbers, row by row.
fn write(cache: &Arc<RowCache>, values: &Values, rows: &[usize]) {
    let value = values.next.fetch_add(1, Ordering::AcqRel) + 1;
    let names: Vec<Bytes> = rows.iter().map(|r| row(*r)).collect();
    let writing = cache.writing(cache.keys(TABLET, names.iter().map(|name| &name[..])));
    for &number in rows {
        values.visible[number].fetch_max(value, Ordering::AcqRel);
    }
    drop(writing);
    for &number in rows {
        values.acknowledged[number].fetch_max(value, Ordering::AcqRel);
    }
}

#[test]
fn no_read_after_an_acknowledgement_sees_less() {
    let (cache, values, schema) = (cache(1 << 20), Values::default(), Arc::new(schema(1, None)));
    let (done, begin) = (AtomicBool::new(false), Barrier::new(WRITERS + READERS));
    let hits = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let reader = |thread: usize| {
            begin.wait();
            let mut newest = [0; ROWS];
            for turn in thread.. {
                let number = turn % ROWS;
                let least = values.acknowledged[number].load(Ordering::Acquire).max(newest[number]);
                let (value, hit) = read(&cache, &values, &schema, number);
                assert!(value >= least, "row {number}: {value} after {least}, hit: {hit}");
                newest[number] = value;
                hits.fetch_add(u64::from(hit), Ordering::Relaxed);
                if done.load(Ordering::Acquire) {
                    return;
                }
            }
        };
        (0..READERS).for_each(|thread| drop(scope.spawn(move || reader(thread))));
        let writer = |thread: usize| {
            begin.wait();
            for turn in 0..WRITES as usize {
                let first = (turn / 3 + thread) % ROWS;
                let both = [first, (first + 1) % ROWS];
                write(&cache, &values, if turn % 2 == 0 { &both } else { &both[..1] });
                // Long enough that rows are kept now and then, short enough that most readings meet a write.
                if turn % 16 == 0 {
                    std::thread::yield_now();
                }
                if turn % 5_000 == 0 {
                    drop(cache.clearing(TABLET));
                }
            }
        };
        let writers: Vec<_> = (0..WRITERS).map(|thread| scope.spawn(move || writer(thread))).collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::Release);
    });
    assert!(hits.load(Ordering::Relaxed) > 0, "nothing was ever kept");
}
