//! Tests of the whole social network over a store in memory.
//!
//! It must find no error there, and must find every error of a faulty connection.

use super::*;
use crate::activity::Step;
use crate::outcome::Verdict;
use crate::target::{self, Columns, Connection, Put, Result, Row, Scan, Target, TargetError};
use async_trait::async_trait;
use bytes::Bytes;
use futures::future::join_all;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const SEED: u64 = 42;

fn spec(users: u64, friends: u32, image_bytes: u32, mode: SocialMode) -> SocialSpec {
    SocialSpec {
        users,
        friends,
        resources: 10,
        image_bytes,
        zipf_mean: 0.27,
        mode,
    }
}

fn actions(spec: &SocialSpec, mix: &[(SocialAction, f64)]) -> SocialSpec {
    SocialSpec {
        mode: SocialMode::Actions(mix.to_vec()),
        ..spec.clone()
    }
}

/// Sums of all steps, by kind.
#[derive(Default)]
struct Tally {
    operations: Vec<u32>,
    idle: u32,
    errors: u32,
    bytes: u64,
    verdict: Verdict,
}

impl Tally {
    fn add(&mut self, kinds: usize, step: Result<Step>) {
        self.operations.resize(kinds - 1, 0);
        match step {
            Err(_) => self.errors += 1,
            Ok(step) if step.operations == 0 => {
                assert_eq!(usize::from(step.kind), kinds - 1);
                self.idle += 1;
            }
            Ok(step) => {
                self.operations[usize::from(step.kind)] += 1;
                self.bytes += step.bytes;
                self.verdict.merge(&step.verdict);
            }
        }
    }
}

/// A store with a loaded network, and one worker that knows it.
struct World {
    target: Arc<dyn Target>,
    state: State,
    spec: SocialSpec,
}

impl World {
    async fn load(name: &str, users: u64, friends: u32, image_bytes: u32) -> Self {
        let target = target::open(&format!("memory://social-{name}")).await.unwrap();
        let spec = spec(users, friends, image_bytes, SocialMode::Load);
        for table in tables(&spec) {
            assert!(table.name.starts_with("bench-bg-"));
            target.create_table(&table).await.unwrap();
        }
        let world = Self {
            target,
            state: State::default(),
            spec,
        };
        world.state.prepare(&world.spec, 0, 1).unwrap();
        let mut loader = world.actor(&world.spec, world.target.connect().await.unwrap());
        for user in 0..users {
            let step = loader.step(user).await.unwrap();
            assert_eq!((step.operations, step.rows), (1, 11));
        }
        assert!(loader.step(users).await.is_err());
        world
    }

    fn actor(&self, spec: &SocialSpec, connection: Arc<dyn Connection>) -> Box<dyn Actor> {
        actor(
            spec,
            &self.state,
            ActorContext {
                connection,
                worker: 0,
                workers: 1,
                client: 0,
                clients: 16,
                seed: SEED,
            },
        )
        .unwrap()
    }

    /// 16 clients on four threads carry out these actions.
    async fn play(&self, mix: &[(SocialAction, f64)], count: u64, fault: Fault, every: u64) -> Tally {
        let spec = actions(&self.spec, mix);
        self.state.prepare(&spec, 0, 1).unwrap();
        let connection = Faulty::new(self.target.connect().await.unwrap(), fault, every);
        let (kinds, next, tally) = (kinds(&spec).len(), AtomicU64::new(0), Mutex::new(Tally::default()));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let clients = (0..4).map(|_| async {
                        let mut actor = self.actor(&spec, connection.clone());
                        loop {
                            let index = next.fetch_add(1, Ordering::Relaxed);
                            if index >= count {
                                break;
                            }
                            let step = actor.step(index).await;
                            tally.lock().add(kinds, step);
                        }
                    });
                    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                    runtime.block_on(join_all(clients));
                });
            }
        });
        tally.into_inner()
    }
}

/// The error of a connection in every n-th call that it concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// Returns the first response that a read ever had.
    OldRow,
    /// Acknowledges a put and drops it.
    LostPut,
    /// Acknowledges a delete and drops it.
    LostDelete,
    /// Fails a put or delete after having done it, or without (by turns).
    FailedWrite,
    /// Leaves out the last column of a row.
    MissingColumn,
    /// Returns no row.
    MissingRow,
    /// Adds a column that names user 0 as a friend or inviter.
    ExtraColumn,
    /// Changes a byte of the last value.
    WrongValue,
    /// Returns a column twice.
    Twice,
}

struct Faulty {
    inner: Arc<dyn Connection>,
    fault: Fault,
    every: u64,
    calls: AtomicU64,
    done: AtomicU64,
    first: Mutex<HashMap<(Bytes, String), Option<Row>>>,
}

impl Faulty {
    fn new(inner: Arc<dyn Connection>, fault: Fault, every: u64) -> Arc<Self> {
        let (calls, done, first) = Default::default();
        Arc::new(Self {
            inner,
            fault,
            every,
            calls,
            done,
            first,
        })
    }

    fn turn(&self, faults: &[Fault]) -> bool {
        let turn =
            faults.contains(&self.fault) && self.calls.fetch_add(1, Ordering::Relaxed) % self.every == self.every - 1;
        self.done.fetch_add(u64::from(turn), Ordering::Relaxed);
        turn
    }

    fn spoil(&self, columns: &Columns, row: &mut Option<Row>) {
        let Some(last) = row.as_mut().and_then(|row| row.cells.last_mut()) else {
            return;
        };
        match self.fault {
            Fault::WrongValue => last.value = last.value.iter().map(|byte| byte ^ 1).collect(),
            Fault::Twice => {
                let cell = last.clone();
                row.as_mut().unwrap().cells.push(cell);
            }
            Fault::ExtraColumn => {
                let mut cell = last.clone();
                cell.family = Bytes::copy_from_slice(columns.families.last().unwrap().as_bytes());
                cell.qualifier = network::user_key(0);
                row.as_mut().unwrap().cells.push(cell);
            }
            Fault::MissingColumn => drop(row.as_mut().unwrap().cells.pop()),
            _ => *row = None,
        }
    }
}

#[async_trait]
impl Connection for Faulty {
    async fn put(&self, table: &str, put: Put) -> Result<()> {
        if self.turn(&[Fault::LostPut]) {
            return Ok(());
        }
        if !self.turn(&[Fault::FailedWrite]) {
            return self.inner.put(table, put).await;
        }
        if self.done.load(Ordering::Relaxed).is_multiple_of(2) {
            self.inner.put(table, put).await?;
        }
        Err(TargetError::Timeout(1))
    }

    async fn put_many(&self, table: &str, mut puts: Vec<Put>) -> Result<()> {
        if self.turn(&[Fault::LostPut, Fault::FailedWrite]) {
            puts.truncate(1);
            self.inner.put_many(table, puts).await?;
            if self.fault == Fault::LostPut {
                Ok(())
            } else {
                Err(TargetError::Timeout(1))
            }
        } else {
            self.inner.put_many(table, puts).await
        }
    }

    async fn get(&self, table: &str, key: Bytes, columns: &Columns) -> Result<Option<Row>> {
        let mut row = self.inner.get(table, key.clone(), columns).await?;
        if self.fault == Fault::OldRow {
            let old = self
                .first
                .lock()
                .entry((key, columns.families.join(",")))
                .or_insert_with(|| row.clone())
                .clone();
            return Ok(if self.turn(&[Fault::OldRow]) { old } else { row });
        }
        use Fault::{ExtraColumn, MissingColumn, MissingRow, Twice, WrongValue};
        if row.is_some() && self.turn(&[ExtraColumn, MissingColumn, MissingRow, Twice, WrongValue]) {
            self.spoil(columns, &mut row);
        }
        Ok(row)
    }

    async fn scan(
        &self,
        table: &str,
        scan: &Scan,
        sink: &mut (dyn for<'r> FnMut(&'r Row) -> ControlFlow<()> + Send),
    ) -> Result<()> {
        let mut spoil = |row: &Row| {
            let mut row = Some(row.clone());
            if self.turn(&[Fault::MissingRow, Fault::WrongValue, Fault::MissingColumn, Fault::Twice]) {
                self.spoil(&scan.columns, &mut row);
            }
            row.map_or(ControlFlow::Continue(()), |row| sink(&row))
        };
        self.inner.scan(table, scan, &mut spoil).await
    }

    async fn increment(&self, _: &str, _: Bytes, _: &str, _: Bytes, _: i64) -> Result<i64> {
        Err(TargetError::Unsupported("not used".into()))
    }

    async fn check_and_put(&self, _: &str, _: &str, _: Bytes, _: Option<Bytes>, _: Put) -> Result<bool> {
        Err(TargetError::Unsupported("not used".into()))
    }

    async fn delete(&self, table: &str, key: Bytes, family: Option<&str>, qualifiers: &[Bytes]) -> Result<()> {
        if self.turn(&[Fault::LostDelete]) {
            return Ok(());
        }
        if !self.turn(&[Fault::FailedWrite]) {
            return self.inner.delete(table, key, family, qualifiers).await;
        }
        if self.done.load(Ordering::Relaxed).is_multiple_of(2) {
            self.inner.delete(table, key, family, qualifiers).await?;
        }
        Err(TargetError::Timeout(1))
    }

    fn retries(&self) -> u64 {
        0
    }
}

fn high() -> Vec<(SocialAction, f64)> {
    mix("high").unwrap()
}

#[tokio::test]
async fn every_mix_is_right_over_a_store_that_is() {
    for (name, images) in mix::NAMES.into_iter().zip([2400, 2400, 0, 0, 2400]) {
        let world = World::load(&format!("mix-{name}"), 200, 10, images).await;
        let mix = mix(name).unwrap();
        let tally = world.play(&mix, 20_000, Fault::None, 1).await;
        assert!(tally.verdict.is_right(), "{name}: {:?}", tally.verdict);
        assert_eq!(tally.errors, 0);
        let sum: f64 = mix.iter().map(|(_, weight)| weight).sum();
        for ((action, weight), done) in mix.iter().zip(&tally.operations) {
            // A few updates may find no user while there are no invitations yet.
            let expected = 20_000.0 * weight / sum;
            let slack = 5.0 * expected.sqrt() + if is_update(*action) { f64::from(tally.idle) } else { 0.0 };
            assert!(
                (f64::from(*done) - expected).abs() <= slack,
                "{name} {action:?}: {done} for {expected}"
            );
        }
        let reads: u32 = mix
            .iter()
            .zip(&tally.operations)
            .filter(|((a, _), _)| !is_update(*a))
            .map(|(_, n)| n)
            .sum();
        assert_eq!(tally.verdict.checked, u64::from(reads));
        assert!(tally.idle < 100, "{}", tally.idle);
    }
}

#[tokio::test]
async fn each_action_does_what_it_says() {
    use SocialAction::*;
    let world = World::load("each", 50, 4, 1200).await;
    let connection = world.target.connect().await.unwrap();
    let spec = actions(&world.spec, &[(ViewProfile, 1.0)]);
    world.state.prepare(&spec, 0, 1).unwrap();
    let one = |action| {
        let (spec, connection, world) = (actions(&world.spec, &[(action, 1.0)]), connection.clone(), &world);
        async move { world.actor(&spec, connection).step(7).await.unwrap() }
    };
    let fields: u64 = network::PROFILE_FIELDS
        .iter()
        .map(|(name, bytes)| (name.len() + bytes) as u64)
        .sum();
    let key = network::USER_KEY_BYTES as u64;

    let profile = one(ViewProfile).await;
    assert_eq!(
        (profile.rows, profile.bytes),
        (1, key + fields + 4 + 1200 + 4 * (key + 1))
    );
    let friends = one(ListFriends).await;
    assert_eq!(
        (friends.rows, friends.bytes),
        (5, key + 4 * (key + 1) + 4 * (key + fields + 4 + 100))
    );
    assert_eq!(one(ViewTopResources).await.rows, 5);
    assert_eq!(one(ViewComments).await.rows, 1);
    assert_eq!(one(ViewFriendRequests).await.rows, 0);
    for action in [AcceptFriend, RejectFriend] {
        assert_eq!(
            (one(action).await.operations, one(action).await.kind),
            (0, 1),
            "nobody has been invited"
        );
    }

    let cells = || async {
        let scan = Scan {
            columns: Columns {
                families: vec!["confirmed".into(), "pending".into()],
                ..Columns::default()
            },
            ..Scan::default()
        };
        let (mut confirmed, mut pending) = (0, 0);
        let mut sink = |row: &Row| {
            confirmed += row.cells.iter().filter(|cell| cell.family == "confirmed").count();
            pending += row.cells.iter().filter(|cell| cell.family == "pending").count();
            ControlFlow::Continue(())
        };
        connection.scan(network::USERS_TABLE, &scan, &mut sink).await.unwrap();
        (confirmed, pending)
    };
    assert_eq!(cells().await, (200, 0));
    for (action, after) in [
        (InviteFriend, (200, 1)),
        (AcceptFriend, (202, 0)),
        (InviteFriend, (202, 1)),
        (RejectFriend, (202, 0)),
        (ThawFriendship, (200, 0)),
    ] {
        assert_eq!(one(action).await.operations, 1, "{action:?}");
        assert_eq!(cells().await, after, "{action:?}");
    }
}

#[tokio::test]
async fn an_operation_depends_on_seed_and_number_only() {
    let world = World::load("same", 100, 4, 0).await;
    let reads = mix("very-low")
        .unwrap()
        .into_iter()
        .filter(|(action, _)| !is_update(*action))
        .collect::<Vec<_>>();
    let spec = actions(&world.spec, &reads);
    world.state.prepare(&spec, 0, 1).unwrap();
    let connection = world.target.connect().await.unwrap();
    let (mut first, mut second) = (world.actor(&spec, connection.clone()), world.actor(&spec, connection));
    let mut backwards = Vec::new();
    for index in (0..200).rev() {
        let step = second.step(index).await.unwrap();
        backwards.push((step.kind, step.rows, step.bytes));
    }
    for index in 0..200 {
        let step = first.step(index).await.unwrap();
        assert_eq!(Some((step.kind, step.rows, step.bytes)), backwards.pop());
    }
}

#[tokio::test]
async fn old_rows_are_stale() {
    let world = World::load("old", 100, 4, 0).await;
    let tally = world.play(&high(), 20_000, Fault::OldRow, 10).await;
    let Verdict {
        checked,
        missing,
        unexpected,
        wrong,
        stale,
        ..
    } = tally.verdict;
    assert!(
        stale > 100 && stale < checked / 5,
        "{stale} of {checked}: {:?}",
        tally.verdict
    );
    assert_eq!((missing, unexpected, wrong), (0, 0, 0));
}

#[tokio::test]
async fn lost_writes_are_found() {
    for fault in [Fault::LostPut, Fault::LostDelete] {
        let world = World::load(&format!("lost-{fault:?}"), 100, 4, 0).await;
        let tally = world.play(&high(), 20_000, fault, 5).await;
        assert!(tally.verdict.stale > 0, "{fault:?}: {:?}", tally.verdict);
        let again = world.play(&mix("list-friends").unwrap(), 5000, Fault::None, 1).await;
        assert!(
            again.verdict.stale > 0,
            "{fault:?}: what was lost stays lost in later runs"
        );
    }
}

#[tokio::test]
async fn a_write_that_failed_is_held_against_nobody() {
    let world = World::load("failed", 200, 10, 0).await;
    let tally = world.play(&high(), 20_000, Fault::FailedWrite, 20).await;
    assert!(tally.errors > 50, "{}", tally.errors);
    assert!(tally.verdict.is_right(), "{:?}", tally.verdict);
}

#[tokio::test]
async fn spoiled_rows_are_found() {
    for fault in [
        Fault::MissingRow,
        Fault::MissingColumn,
        Fault::ExtraColumn,
        Fault::WrongValue,
        Fault::Twice,
    ] {
        let world = World::load(&format!("spoiled-{fault:?}"), 100, 4, 1200).await;
        let reads: Vec<_> = high().into_iter().filter(|(action, _)| !is_update(*action)).collect();
        for read in reads {
            // No user has invited another, so the fault finds nothing to change. Scans have no column added.
            let is_empty = read.0 == SocialAction::ViewFriendRequests
                || (read.0 == SocialAction::ViewTopResources && fault == Fault::ExtraColumn);
            let tally = world.play(&[read], 500, fault, 5).await;
            let Verdict {
                missing,
                unexpected,
                wrong,
                stale,
                ..
            } = tally.verdict;
            let found = match fault {
                _ if is_empty => missing + unexpected + wrong == 0,
                Fault::MissingRow | Fault::MissingColumn => missing >= 90,
                Fault::WrongValue => wrong >= 90,
                _ => unexpected >= 90,
            };
            assert!(found && stale == 0, "{fault:?} {read:?}: {:?}", tally.verdict);
        }
    }
}

#[tokio::test]
async fn steps_that_are_given_up_half_way_leave_no_false_trail() {
    let world = World::load("dropped", 60, 4, 0).await;
    let spec = actions(&world.spec, &high());
    world.state.prepare(&spec, 0, 1).unwrap();
    let connection = world.target.connect().await.unwrap();
    let mut actor = world.actor(&spec, connection);
    let mut dropped = 0;
    for index in 0..4000u64 {
        let patience = async {
            for _ in 0..index % 7 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            step = actor.step(index) => assert!(step.unwrap().verdict.is_right()),
            () = patience => dropped += 1,
        }
    }
    assert!(dropped > 500, "{dropped}");
    let tally = world.play(&high(), 5000, Fault::None, 1).await;
    assert!(tally.verdict.is_right(), "{:?}", tally.verdict);
    assert_eq!(tally.errors, 0);
}

#[tokio::test]
async fn workers_share_a_network_without_knowing_of_each_other() {
    let world = World::load("workers", 120, 6, 0).await;
    let spec = actions(&world.spec, &high());
    let connection = world.target.connect().await.unwrap();
    let mut clients = Vec::new();
    for worker in 0..3 {
        let state = State::default();
        assert!(state.prepare(&spec, worker, 3).is_err(), "it has not seen the load");
        state.prepare(&world.spec, worker, 3).unwrap();
        state.prepare(&spec, worker, 3).unwrap();
        for client in 0..4 {
            let connection = connection.clone();
            let context = ActorContext {
                connection,
                worker,
                workers: 3,
                client,
                clients: 12,
                seed: SEED,
            };
            clients.push((actor(&spec, &state, context).unwrap(), u64::from(worker * 4 + client)));
        }
        let other = if worker == 0 { 1 } else { 0 };
        assert!(
            state.prepare(&spec, other, 3).is_err(),
            "others have changed what it knows"
        );
    }
    let runs = clients.into_iter().map(|(mut actor, first)| async move {
        let mut verdict = Verdict::default();
        for index in (first..12_000).step_by(12) {
            verdict.merge(&actor.step(index).await.unwrap().verdict);
        }
        verdict
    });
    for verdict in join_all(runs).await {
        assert!(verdict.is_right() && verdict.checked > 500, "{verdict:?}");
    }
}

#[test]
fn a_run_that_is_refused_leaves_the_network_as_it_was() {
    let (state, load) = (State::default(), spec(10, 2, 0, SocialMode::Load));
    let (this, another) = (
        actions(&load, &high()),
        actions(&spec(20, 2, 0, SocialMode::Load), &high()),
    );
    state.prepare(&load, 0, 1).unwrap();
    assert!(state.stage(&this).is_err(), "only the load has been prepared");
    assert!(state.prepare(&another, 0, 1).is_err());
    assert!(state.prepare(&this, 1, 1).is_err());
    state.prepare(&this, 0, 1).unwrap();
    assert!(state.stage(&this).is_ok());
    assert!(state.stage(&load).is_err() && state.stage(&another).is_err());
}

#[test]
fn kinds_are_the_mix_and_idleness() {
    let load = spec(10, 2, 0, SocialMode::Load);
    assert_eq!(kinds(&load), ["load-user"]);
    let kinds = kinds(&actions(&load, &high()));
    assert_eq!(kinds.len(), 10);
    assert_eq!((kinds[3].as_str(), kinds[9].as_str()), ("invite-friend", IDLE));
}
