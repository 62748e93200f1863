//! A server that archives its log, under power losses and kills.
//!
//! Clients write rows, each client its own. Now and then all of them pause: a *moment* is a time of the clock of the log between
//! the last acknowledgement and the next write. At the end the archive is completed, and tables are restored to some moments on other
//! servers. Each row must have the last version that was acknowledged by then, or one of a write behind it whose client never heard of its
//! outcome.
//!
//! The data are on a disk, archive and backups in a bucket with a network that loses requests. The wall clock jumps.

pub mod bounds;
mod hindrance;
mod model;
mod server;

use crate::backend::{Backend, network_faults};
use crate::bucket::Bucket;

use crate::runtime::Sim;
use model::{Model, Moment};
use parking_lot::Mutex;
use server::{Archiving, Server, open};
use std::sync::Arc;
use std::time::Duration;
use stele_env::{Env, PlantedBug, Priority};
use stele_storage::Storage;
use stele_storage::memory::MemoryStorage;
use stele_types::ErrorKind;

/// The options of a run.
#[derive(Clone, Copy, Debug)]
pub struct ArchivePlan {
    /// The seed of all randomness.
    pub seed: u64,
    /// A planted bug that the run shall find.
    pub planted: Option<PlantedBug>,
    /// Print all events.
    pub prints: bool,
}

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveVerdict {
    /// The violations; empty is good.
    pub violations: Vec<String>,
    /// Hash of every decision and every result.
    pub trace: u64,
    /// Writes acknowledged.
    pub acknowledged: u64,
    /// Lives of the server.
    pub lives: u64,
    /// Moments restored.
    pub restored: u64,
    /// Moments refused because a tablet was replaced shortly before a kill: nobody knows the table of its writes.
    pub refused: u64,
}

/// Steps of one run.
const STEPS_MAX: u64 = 10_000_000;
/// Clients, and rows of each.
const CLIENTS: u64 = 3;
const ROWS: u64 = 8;
/// Moments that are restored of a run.
const CHECKED_MAX: usize = 4;
/// Longest virtual time until a clock that stands still goes on, a bit more than the largest jump back.
const STILL_MAX: Duration = Duration::from_secs(4);
/// Largest jumps of the wall clock.
const BACK_MICROS: u64 = 3_000_000;
const AHEAD_MICROS: u64 = 3_600_000_000;
/// Attempts to complete the archive, and at a work on backups.
const ATTEMPTS_MAX: u32 = 100;

/// The machine, its disk, and the bucket.
struct World {
    sim: Sim,
    env: Env,
    planted: Option<PlantedBug>,
    disk: Backend,
    bucket: Bucket,
    model: Mutex<Model>,
    violations: Mutex<Vec<String>>,
}

/// Runs one seed.
pub fn run(plan: ArchivePlan) -> ArchiveVerdict {
    let sim = Sim::new(plan.seed, STEPS_MAX);
    if plan.prints {
        sim.print_trace();
    }
    let env = sim.process().env();
    let world = Arc::new(World {
        disk: Backend::disk(env.clone()),
        bucket: Bucket::new(sim.process().env()),
        sim: sim.clone(),
        env,
        planted: plan.planted,
        model: Mutex::default(),
        violations: Mutex::default(),
    });
    let mut seen = Seen::default();
    match sim.run(live(world.clone())) {
        Ok(Ok(all)) => seen = all,
        Ok(Err(why)) => world.violate(why),
        Err(stalled) => world.violate(stalled.to_string()),
    }
    let violations = world.violations.lock().clone();
    let acknowledged = world.model.lock().acknowledged();
    ArchiveVerdict {
        violations,
        trace: sim.trace_hash(),
        acknowledged,
        lives: seen.lives,
        restored: seen.restored,
        refused: seen.refused,
    }
}

#[derive(Default)]
struct Seen {
    lives: u64,
    restored: u64,
    refused: u64,
}

/// The lives of the server, and the restores. An error says why it could not go on.
async fn live(world: Arc<World>) -> Result<Seen, String> {
    let (mut seen, mut moments) = (Seen::default(), Vec::new());
    let lives = 3 + world.env.random_below(4);
    for life in 0..lives {
        world.bucket.requests().set_network(Default::default());
        let server = world.start().await?;
        if life == 0 {
            server.make_table().await?;
            server.complete_archive(&world.env, ATTEMPTS_MAX).await?;
            server
                .back_up("first")
                .await
                .map_err(|error| format!("the first backup: {error}"))?;
        }
        world.bucket.requests().set_network(network_faults(&world.env));
        let one = one_life(&world, &server, &mut moments, life);
        let longest = Duration::from_micros(50_000 + world.env.random_below(8_000_000));
        let _ = world.env.timeout(longest, one).await;
        world.end(server).await;
        seen.lives += 1;
    }
    world.bucket.requests().set_network(Default::default());
    let server = world.start().await?;
    server.complete_archive(&world.env, ATTEMPTS_MAX).await?;
    world.check_archive(&server).await?;
    for moment in some_of(&world.env, moments) {
        world.check_moment(&moment, &mut seen).await?;
    }
    Ok(seen)
}

/// Bursts of writes with pauses between them, until it is dropped.
async fn one_life(world: &Arc<World>, server: &Arc<Server>, moments: &mut Vec<Moment>, life: u64) {
    for burst in 0u64.. {
        let clients = (0..CLIENTS).map(|client| {
            let (world, server) = (world.clone(), server.clone());
            async move {
                for _ in 0..world.env.random_below(12) {
                    write(&world, &server, client * ROWS + world.env.random_below(ROWS)).await;
                }
            }
        });
        futures::future::join_all(clients).await;
        if world.env.random_below(2) == 0
            && let Some(moment) = pause(world, server).await
        {
            moments.push(moment);
        }
        match world.env.random_below(8) {
            0 => {
                let made = server.back_up(&format!("b{life}-{burst}")).await;
                world.sim.note(&format!("backup: {made:?}"));
            }
            1 => jump_wall_clock(world),
            2..5 => {
                world
                    .env
                    .sleep(Duration::from_millis(world.env.random_below(900)))
                    .await
            }
            _ => {}
        }
    }
}

/// Writes the next version of a row. Unless it is acknowledged, it may or may not be there from then on.
async fn write(world: &World, server: &Arc<Server>, row: u64) {
    // Before the write is sent: its client may be dropped at any time.
    let version = world.model.lock().begin(row);
    match server.write(&world.env, row, version).await {
        Ok(()) => world.model.lock().acknowledge(row, version),
        Err(why) => world.sim.note(&format!("write of {row}: {why}")),
    }
}

/// A moment behind all writes so far. No write begins until the clock of the log has left it.
async fn pause(world: &World, server: &Server) -> Option<Moment> {
    let at = server.clock.now();
    let moment = world.model.lock().moment(at);
    let left = async {
        while server.clock.now() <= at {
            world.env.sleep(Duration::from_millis(1)).await;
        }
    };
    world.env.timeout(STILL_MAX, left).await.ok().map(|()| moment)
}

fn jump_wall_clock(world: &World) {
    let ahead = match world.env.random_below(3) {
        0 => world.env.random_below(AHEAD_MICROS) as i64,
        _ => -(world.env.random_below(BACK_MICROS) as i64),
    };
    world.sim.note(&format!("the wall clock jumps by {ahead}"));
    world.sim.jump_wall_clock(ahead);
}

/// The last moment, and some others.
fn some_of(env: &Env, mut moments: Vec<Moment>) -> Vec<Moment> {
    let mut some: Vec<Moment> = moments.pop().into_iter().collect();
    while some.len() < CHECKED_MAX && !moments.is_empty() {
        let at = env.random_below(moments.len() as u64) as usize;
        some.push(moments.swap_remove(at));
    }
    some
}

impl World {
    fn violate(&self, what: String) {
        self.sim.note(&format!("VIOLATION {what}"));
        self.violations.lock().push(what);
    }

    async fn start(&self) -> Result<Arc<Server>, String> {
        let process = self.sim.process();
        let mut env = process.env();
        if let Some(bug) = self.planted {
            env = env.with_planted_bug(bug);
        }
        let storage = self.disk.open(env.clone()).await?.storage;
        let opening = open(
            process,
            env.clone(),
            storage,
            self.bucket.clone(),
            Some(Archiving::default()),
        );
        let opened = env.spawn_join(Priority::Foreground, "start", opening).await;
        let server = opened.map_err(|_| "the start was dropped".to_owned())??;
        self.sim.note("started");
        Ok(Arc::new(server))
    }

    async fn end(&self, server: Arc<Server>) {
        let how = self.env.random_below(5);
        if how == 0 {
            server.shut_down(&self.env).await;
        }
        server.kill();
        self.sim.note(&format!("end {how}"));
        self.disk.lose_process(how > 2);
    }

    /// No life of the server has ended so that the archive may have a gap.
    async fn check_archive(&self, server: &Server) -> Result<(), String> {
        let ranges = server.ranges().await?;
        match ranges {
            1 => Ok(()),
            _ => Err(format!(
                "the archive has {ranges} ranges, and nothing of the log was given up"
            )),
        }
    }

    /// Restores to a moment on a server of its own, and compares.
    async fn check_moment(&self, moment: &Moment, seen: &mut Seen) -> Result<(), String> {
        let process = self.sim.process();
        let env = process.env();
        let storage: Arc<dyn Storage> = MemoryStorage::new();
        let opening = open(process, env.clone(), storage, self.bucket.clone(), None);
        let opened = env.spawn_join(Priority::Foreground, "start", opening).await;
        let server = opened.map_err(|_| "the start was dropped".to_owned())??;
        match server.restore(moment.at).await {
            Ok(()) => seen.restored += 1,
            // Splits are not archived before the next round, and nobody knows the halves after a kill.
            Err(error)
                if error.kind == ErrorKind::FailedPrecondition && error.message.contains("has writes of tablet") =>
            {
                seen.refused += 1;
                return Ok(());
            }
            Err(error) => return Err(format!("moment {} is not restored: {error}", moment.at)),
        }
        let found = server.rows().await?;
        for row in 0..CLIENTS * ROWS {
            let version = found.get(&row).copied();
            if !moment.allows(row, version) {
                self.violate(format!(
                    "row {row} at {} has version {version:?}, and not one of {:?}",
                    moment.at,
                    moment.versions(row)
                ));
            }
        }
        server.kill();
        Ok(())
    }
}
