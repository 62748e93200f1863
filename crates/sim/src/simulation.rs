//! One seed: clients, faults and restarts, then a verdict.

use crate::cluster::{Cluster, End};
use crate::runtime::Sim;
use crate::workload::Workload;
use futures::future::{BoxFuture, Either, join_all, select};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use stele_env::{PlantedBug, Priority};

/// The options of a run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The seed of all randomness.
    pub seed: u64,
    /// A planted bug that the run shall find.
    pub planted: Option<PlantedBug>,
    /// Print all events.
    pub prints: bool,
}

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The violations; empty is good.
    pub violations: Vec<String>,
    /// Hash of every decision and every result.
    pub trace: u64,
    /// Tasks polled.
    pub steps: u64,
    /// Writes acknowledged.
    pub acknowledged: u64,
    /// Lives of the server.
    pub lives: u64,
    /// Nodes that ran on when the next one began.
    pub replaced: u64,
    /// Faults injected.
    pub faults: u64,
    /// Most tablets at the end of a life.
    pub tablets: usize,
    /// Compactions that began while another of the same tablet ran.
    pub concurrent_compactions: u64,
    /// Puts (of manifests, mostly) interrupted by the end of a life: before their effect, and after it.
    pub puts_cut: (u64, u64),
}

/// Steps of one run. A run takes some 100,000; more than this is a livelock.
const STEPS_MAX: u64 = 5_000_000;
/// Concurrent clients.
const CLIENTS: u64 = 5;
/// One in this many lives has a rest.
const RESTING_LIVES: u64 = 5;

/// The seeds for a planted bug: only those of runs on a bucket, if the bug exists only there.
pub fn seeds_for(bug: PlantedBug) -> impl Iterator<Item = u64> {
    let has_bucket = |seed: u64| Cluster::new(Sim::new(seed, STEPS_MAX), None).is_shared();
    (0..).filter(move |seed| !bug.needs_bucket() || has_bucket(*seed))
}

/// Runs one seed.
pub fn run(plan: Plan) -> Verdict {
    run_on(plan, |sim| Cluster::new(sim, plan.planted))
}

/// Runs one seed on HDFS.
pub fn run_on_hdfs(plan: Plan) -> Verdict {
    run_on(plan, |sim| Cluster::on_hdfs(sim, plan.planted))
}

/// Runs one seed on an encrypted disk.
pub fn run_encrypted(plan: Plan) -> Verdict {
    run_on(plan, Cluster::encrypted)
}

fn run_on(plan: Plan, cluster: impl FnOnce(Sim) -> Arc<Cluster>) -> Verdict {
    let sim = Sim::new(plan.seed, STEPS_MAX);
    if plan.prints {
        sim.print_trace();
    }
    let cluster = cluster(sim.clone());
    let workload = Workload::new(cluster.clone());
    let outcome = sim.run(live(cluster.clone(), workload.clone()));
    let mut violations = workload.violations();
    violations.extend(cluster.alarms());
    let mut seen = Seen::default();
    match outcome {
        Ok(Ok(all)) => seen = all,
        Ok(Err(why)) => violations.push(why),
        Err(stalled) => violations.push(stalled.to_string()),
    }
    let happened = cluster.happened();
    sim.note(&format!("{happened:?}"));
    Verdict {
        violations,
        trace: sim.trace_hash(),
        steps: sim.steps(),
        acknowledged: workload.acknowledged(),
        lives: seen.lives,
        replaced: seen.replaced,
        faults: happened.faults,
        puts_cut: happened.puts_cut,
        tablets: seen.tablets,
        concurrent_compactions: seen.concurrent_compactions,
    }
}

/// Sums over the lives of the server.
#[derive(Default)]
struct Seen {
    lives: u64,
    replaced: u64,
    /// Most at the end of a life.
    tablets: usize,
    concurrent_compactions: u64,
}

impl Seen {
    /// Called before the end of a life.
    fn look(&mut self, cluster: &Cluster, end: End) {
        self.lives += 1;
        self.replaced += u64::from(end == End::Replaced);
        if let Some(node) = cluster.node() {
            self.tablets = self.tablets.max(node.tablets());
            self.concurrent_compactions += node.server().concurrent_compactions();
        }
    }
}

/// The lives of a server. An error tells why it could not go on.
async fn live(cluster: Arc<Cluster>, workload: Arc<Workload>) -> Result<Seen, String> {
    let env = cluster.env().clone();
    cluster.start().await?;
    workload.prepare().await?;
    let operations = (96 + env.random_below(192)) / if cluster.is_shared() { 2 } else { 1 };
    let spawn = |task: BoxFuture<'static, ()>| env.spawn_join(Priority::Foreground, "client", task);
    let mut clients: Vec<_> = (0..CLIENTS)
        .map(|_| spawn(Box::pin(workload.clone().client(operations))))
        .collect();
    clients.push(spawn(Box::pin(workload.clone().administrate(operations / 48))));
    let mut clients = Box::pin(join_all(clients));
    let mut seen = Seen::default();
    loop {
        cluster.trouble().await;
        jump_wall_clock(&cluster);
        let end = one_life(&cluster, &workload);
        if let Either::Left(_) = select(&mut clients, pin!(end)).await {
            break;
        }
        let end = some_end(&cluster);
        seen.look(&cluster, end);
        restart(&cluster, &workload, end).await?;
    }
    cluster.calm();
    // Faults of this life may have effects until its end; the node need not respond.
    workload.check_everything().await;
    for end in [some_end(&cluster), End::PowerLoss] {
        seen.look(&cluster, end);
        restart(&cluster, &workload, end).await?;
        workload.check_everything_is_answered().await;
    }
    seen.look(&cluster, End::PowerLoss);
    Ok(seen)
}

async fn restart(cluster: &Cluster, workload: &Workload, end: End) -> Result<(), String> {
    cluster.end(end).await?;
    let damage = cluster.damage().await?;
    if !damage.is_empty() {
        return Err(format!("after {end:?} it looks damaged: {damage:?}"));
    }
    cluster.start().await?;
    workload.recovered();
    Ok(())
}

/// Completes when a life is to end. Most lives are short, so that there are many and all events fall together. After a
/// failure the server waits a second or more before it tries again, and it checks for tablets to split every half
/// second. So in some lives all clients rest for longer than that and then go on. Otherwise no failed flush or
/// compaction would ever be followed by one that succeeds.
async fn one_life(cluster: &Cluster, workload: &Workload) {
    let env = cluster.env();
    let work = || cluster.pace() * Duration::from_micros(1_000 + env.random_below(200_000));
    let rests = env.random_below(RESTING_LIVES) == 0;
    if env.timeout(work(), workload.end_wanted()).await.is_ok() || !rests {
        return;
    }
    let rest = Duration::from_millis(600 + env.random_below(4_000));
    workload.rest(rest);
    env.sleep(rest).await;
    cluster.sim().note("rested");
    let _ = env.timeout(work(), workload.end_wanted()).await;
}

fn some_end(cluster: &Cluster) -> End {
    match cluster.env().random_below(8) {
        0 => End::Shutdown,
        1..4 => End::Kill,
        4..6 if cluster.is_shared() => End::Replaced,
        _ if !cluster.loses_power() => End::Replaced,
        _ => End::PowerLoss,
    }
}

/// People and time servers set clocks; only timestamps may depend on them.
fn jump_wall_clock(cluster: &Cluster) {
    const HOUR_MICROS: i64 = 3_600_000_000;
    if cluster.env().random_below(8) == 0 {
        cluster
            .sim()
            .jump_wall_clock(cluster.env().random_below(2 * HOUR_MICROS as u64) as i64 - HOUR_MICROS);
    }
}
