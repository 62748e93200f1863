//! Reservations of one consumer, alone and in competition.

use super::*;
use crate::pool::{Reclaim, Usage};
use parking_lot::Mutex;
use std::sync::Arc;
use stele_env::tokio_env::TokioRuntime;

const MIB: usize = 1 << 20;
const LONG: Duration = Duration::from_secs(60);

fn pool(mib: usize) -> Pool {
    Pool::with_limits(|_| mib * MIB)
}

#[tokio::test(start_paused = true)]
async fn waiters_are_served_in_order() {
    let env = TokioRuntime::current();
    let batches = pool(8).of(Part::Batches);
    let first = batches.try_reserve(6 * MIB).unwrap();
    let large = batches.reserve(&env, 7 * MIB, LONG);
    let small = batches.reserve(&env, MIB, LONG);
    let (mut large, mut small) = (Box::pin(large), Box::pin(small));
    assert!(futures::poll!(&mut large).is_pending());
    assert!(
        futures::poll!(&mut small).is_pending(),
        "it does not pass the one that came first"
    );
    assert!(batches.try_reserve(1).is_none(), "nor does a caller that does not wait");
    assert_eq!((batches.waiting(), batches.used()), (2, 6 * MIB));
    drop(first);
    assert_eq!((batches.waiting(), batches.used()), (0, 8 * MIB));
    assert_eq!(large.await.unwrap().bytes(), 7 * MIB);
    assert_eq!(small.await.unwrap().bytes(), MIB);
    assert_eq!(batches.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_gives_up_makes_way_for_the_next() {
    let env = TokioRuntime::current();
    let batches = pool(8).of(Part::Batches);
    let _first = batches.try_reserve(4 * MIB).unwrap();
    let mut large = Box::pin(batches.reserve(&env, 8 * MIB, Duration::from_secs(1)));
    let mut small = Box::pin(batches.reserve(&env, 2 * MIB, LONG));
    assert!(futures::poll!(&mut large).is_pending());
    assert!(futures::poll!(&mut small).is_pending());
    assert_eq!(large.await.err(), Some(Exhausted));
    assert_eq!(small.await.unwrap().bytes(), 2 * MIB);
}

#[tokio::test(start_paused = true)]
async fn granted_bytes_of_a_dropped_waiter_come_back() {
    let env = TokioRuntime::current();
    let batches = pool(8).of(Part::Batches);
    let first = batches.try_reserve(8 * MIB).unwrap();
    let mut waits = Box::pin(batches.reserve(&env, 8 * MIB, LONG));
    assert!(futures::poll!(&mut waits).is_pending());
    drop(first);
    assert_eq!(batches.used(), 8 * MIB, "granted, but not seen yet");
    drop(waits);
    assert_eq!((batches.used(), batches.waiting()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn more_than_the_limit_waits_for_all_of_it() {
    let env = TokioRuntime::current();
    let batches = pool(8).of(Part::Batches);
    let first = batches.try_reserve(1).unwrap();
    assert!(batches.try_reserve(100 * MIB).is_none());
    drop(first);
    assert_eq!(batches.reserve(&env, 100 * MIB, LONG).await.unwrap().bytes(), 8 * MIB);
}

#[tokio::test(start_paused = true)]
async fn one_overdraft_at_a_time() {
    let env = TokioRuntime::current();
    let pool = pool(8);
    let (rows, responses) = (pool.of(Part::WriteRows), pool.of(Part::Responses));
    let row = rows.reserve_large(&env, 9 * MIB, LONG).await.unwrap();
    assert_eq!(
        (row.bytes(), row.counted(), row.is_overdrawn()),
        (OVERDRAFT_BYTES, 8 * MIB, true)
    );
    assert!(pool.is_overdrawn() && pool.try_overdraft().is_none());
    let mut response = Box::pin(responses.reserve_large(&env, 9 * MIB, LONG));
    assert!(futures::poll!(&mut response).is_pending());
    assert_eq!(
        (pool.overdraft_waiters(), responses.used()),
        (1, 0),
        "it waits without a reservation"
    );
    drop(row);
    let mut response = response.await.unwrap();
    assert!(response.is_overdrawn());
    response.return_overdraft();
    assert_eq!((response.bytes(), pool.is_overdrawn()), (8 * MIB, false));
    let late = responses.reserve_large(&env, 9 * MIB, Duration::from_secs(3)).await;
    assert_eq!(late.err(), Some(Exhausted));
    assert!(!pool.is_overdrawn(), "a waiter that gives up returns the overdraft");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_for_most_of_a_limit_leaves_the_queue() {
    let env = TokioRuntime::current();
    let responses = pool(8).of(Part::Responses);
    let slow = responses.try_reserve(2 * MIB).unwrap();
    let mut most = Box::pin(responses.reserve(&env, 7 * MIB, LONG));
    assert!(futures::poll!(&mut most).is_pending());
    let mut small = Box::pin(responses.reserve(&env, MIB, LONG));
    assert!(futures::poll!(&mut small).is_pending());
    // The large waiter keeps its turn for a second; only its own polling ends that.
    for _ in 0..12 {
        env.sleep(Duration::from_millis(100)).await;
        assert!(futures::poll!(&mut most).is_pending());
    }
    let small = small.await.unwrap();
    assert_eq!((responses.waiting(), responses.used()), (0, 3 * MIB));
    drop((small, slow));
    assert_eq!(most.await.unwrap().bytes(), 7 * MIB);
}

/// Gives up a reservation when it is asked to.
struct Slow(Mutex<Option<Reservation>>);

impl Reclaim for Slow {
    fn reclaim(&self, bytes: usize) {
        assert!(bytes > 0);
        self.0.lock().take();
    }

    fn reclaim_overdraft(&self) {
        self.0.lock().take_if(|held| held.is_overdrawn());
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_have_reservations_without_progress_cancelled() {
    let env = TokioRuntime::current();
    let pool = pool(8);
    let slow = Arc::new(Slow(Mutex::new(pool.of(Part::Responses).try_reserve(8 * MIB))));
    let weak = Arc::downgrade(&slow);
    pool.add_reclaimer(weak);
    let taken = pool.of(Part::Responses).reserve(&env, MIB, LONG).await.unwrap();
    assert!(slow.0.lock().is_none());
    drop(taken);
    *slow.0.lock() = pool.of(Part::Responses).reserve_large(&env, 9 * MIB, LONG).await.ok();
    assert!(pool.is_overdrawn());
    assert!(pool.try_overdraft().is_some(), "its holder gives it up");
}

#[test]
fn the_listener_is_told_of_steps_of_calls() {
    let pool = pool(64);
    let told = Arc::new(Mutex::new(Vec::new()));
    let tells = Arc::clone(&told);
    pool.on_change(Arc::new(move |usage: &dyn Fn() -> Usage| {
        let usage = usage();
        tells
            .lock()
            .push((usage.calls / MIB, usage.memtables / MIB, usage.other / MIB));
        Duration::from_millis(7)
    }));
    let requests = pool.of(Part::Requests).empty();
    requests.grow(4 * MIB - 1).unwrap();
    assert_eq!(*told.lock(), [(0, 0, 0)], "less than a step");
    let values = pool.of(Part::Values).try_reserve(3 * MIB).unwrap();
    requests.grow(1).unwrap();
    pool.set_memtable_excess(8 * MIB);
    let permit = pool.try_overdraft().unwrap();
    assert_eq!(permit.settles(), Duration::from_millis(7));
    drop((permit, values, requests));
    pool.set_memtable_excess(0);
    let over = OVERDRAFT_BYTES / MIB;
    assert_eq!(
        told.lock()[1..],
        [(4, 0, 3), (4, 8, 3), (4 + over, 8, 3), (4, 8, 3), (0, 8, 0), (0, 0, 0)]
    );
}

#[test]
fn reservations_grow_shrink_and_split() {
    let pool = pool(8);
    let requests = pool.of(Part::Requests);
    let one = requests.empty();
    one.try_grow(6 * MIB).unwrap();
    assert_eq!(one.try_grow(3 * MIB), Err(Exhausted));
    assert_eq!(one.counted(), 6 * MIB, "a refusal changes nothing");
    assert_eq!(one.grow(3 * MIB), Err(Exhausted));
    assert_eq!(requests.used(), 9 * MIB, "memory that is taken already counts");
    assert_eq!(one.shrink_to(5 * MIB), 4 * MIB);
    assert_eq!(one.shrink_to(6 * MIB), 0, "it never grows so");
    let half = one.split(2 * MIB);
    assert_eq!(
        (one.counted(), half.counted(), requests.used()),
        (3 * MIB, 2 * MIB, 5 * MIB)
    );
    drop(one);
    assert_eq!(half.split(100 * MIB).counted(), 2 * MIB);
    assert_eq!((half.counted(), requests.used()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_part_that_gets_too_little_shares_the_overdraft() {
    let env = TokioRuntime::current();
    let pool = pool(8);
    let responses = pool.of(Part::Responses);
    let mut rest = responses.reserve_large(&env, 20 * MIB, LONG).await.unwrap();
    assert!(!rest.split_sharing(MIB).is_overdrawn(), "its bytes suffice");
    let part = rest.split_sharing(20 * MIB);
    assert_eq!((part.counted(), part.bytes()), (7 * MIB, OVERDRAFT_BYTES));
    rest.return_overdraft();
    assert!(pool.is_overdrawn(), "the part has it still");
    rest.absorb(part);
    assert_eq!((rest.counted(), rest.bytes()), (7 * MIB, OVERDRAFT_BYTES));
    drop(rest);
    assert_eq!((responses.used(), pool.is_overdrawn()), (0, false));
}

/// Many threads reserve and release; the sum never exceeds the limit, and nothing is lost or left waiting.
#[test]
fn threads_never_exceed_the_limit() {
    let pool = pool(1);
    std::thread::scope(|threads| {
        for seed in 0..4_usize {
            let values = pool.of(Part::Values);
            threads.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_time()
                    .build()
                    .unwrap();
                runtime.block_on(async {
                    let env = TokioRuntime::current();
                    for round in 0..500_usize {
                        let bytes = (seed * 7919 + round * 104_729) % MIB + 1;
                        let held = values.reserve(&env, bytes, LONG).await.unwrap();
                        assert!(values.used() <= MIB);
                        tokio::task::yield_now().await;
                        drop(held);
                    }
                });
            });
        }
    });
    assert_eq!((pool.of(Part::Values).used(), pool.of(Part::Values).waiting()), (0, 0));
}
