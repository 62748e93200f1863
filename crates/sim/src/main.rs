//! `stele-sim`: runs simulations, and proves that they find bugs.
#![forbid(unsafe_code)]

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};
use std::time::Duration;
use stele_env::PlantedBug;
use stele_sim::archived::{self, ArchivePlan};
use stele_sim::fleet::cluster::{ClusterPlan, Copies};
use stele_sim::fleet::scale::ScalePlan;
use stele_sim::fleet::throughput::{self, Load, ThroughputPlan};
use stele_sim::fleet::{self, FleetBug, FleetPlan, FleetVerdict};
use stele_sim::runtime::time_of_thread;
use stele_sim::simulation::{Plan, Verdict, run, run_on_hdfs, seeds_for};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

/// The allocator of the server.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Deterministic simulation of a Stele server.
#[derive(Parser)]
struct Arguments {
    /// Print the log of the simulated servers: a level, or a filter such as `stele_cluster=debug`
    #[arg(long, global = true, value_name = "FILTER")]
    log: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs seeds; fails if any of them finds a violation.
    Run {
        /// Number of seeds.
        #[arg(long, default_value_t = 1_000)]
        seeds: u64,
        /// First seed.
        #[arg(long, default_value_t = 0)]
        start: u64,
        /// Only this seed.
        #[arg(long)]
        seed: Option<u64>,
        /// Print every operation.
        #[arg(long)]
        trace: bool,
        /// Plant a bug: skip-fsync, drop-memtable, reuse-sequence, stale-row, drop-version, widen-delete, skip-seal,
        /// skip-verify, take-for-own, forget-own or forget-snapshots; skip-copy on HDFS.
        #[arg(long, value_parser = planted_bug)]
        planted: Option<PlantedBug>,
        /// The server has its data in HDFS.
        #[arg(long)]
        hdfs: bool,
    },
    /// Runs seeds of several servers that share a bucket; fails if any of them finds a violation.
    Fleet {
        /// Number of seeds.
        #[arg(long, default_value_t = 200)]
        seeds: u64,
        /// Only this seed.
        #[arg(long)]
        seed: Option<u64>,
        /// Print every operation.
        #[arg(long)]
        trace: bool,
        /// Break a promise of the master: skip-fence, reuse-epoch, drop-log-early or sweep-early.
        #[arg(long, value_parser = fleet_bug)]
        bug: Option<FleetBug>,
    },
    /// Runs seeds of a cluster that leads itself; fails if any of them finds a violation.
    Cluster {
        /// Number of seeds.
        #[arg(long, default_value_t = 100)]
        seeds: u64,
        /// First seed.
        #[arg(long, default_value_t = 0)]
        start: u64,
        /// Only this seed.
        #[arg(long)]
        seed: Option<u64>,
        /// Print every operation.
        #[arg(long)]
        trace: bool,
        /// Plant a bug: skip-lease, reuse-epochs, seal-nothing, sweep-snapshots, leave-streams-out, seal-first, skip-rest or
        /// forget-deletions; forget-rest with an archive.
        #[arg(long, value_parser = cluster_bug)]
        planted: Option<PlantedBug>,
        /// Make and restore backups meanwhile, instead of snapshots.
        #[arg(long)]
        backups: bool,
        /// Make backups, archive the logs, and restore to moments.
        #[arg(long, conflicts_with = "backups")]
        archive: bool,
        /// The servers share HDFS, and not a bucket.
        #[arg(long)]
        hdfs: bool,
    },
    /// Runs seeds of a server that archives its log, with restores to moments; fails if any of them finds a violation.
    Archive {
        /// Number of seeds.
        #[arg(long, default_value_t = 100)]
        seeds: u64,
        /// First seed.
        #[arg(long, default_value_t = 0)]
        start: u64,
        /// Only this seed.
        #[arg(long)]
        seed: Option<u64>,
        /// Print every operation.
        #[arg(long)]
        trace: bool,
        /// Plant a bug: archive-early.
        #[arg(long, value_parser = archive_bug)]
        planted: Option<PlantedBug>,
    },
    /// Runs seeds of writes without timestamps in a cluster whose clocks differ; fails if any of them finds a violation.
    Clocks {
        /// Number of seeds.
        #[arg(long, default_value_t = 100)]
        seeds: u64,
        /// Only this seed.
        #[arg(long)]
        seed: Option<u64>,
        /// Print every operation.
        #[arg(long)]
        trace: bool,
    },
    /// Runs seeds of access rules in a cluster; fails if any of them finds a violation.
    Rules {
        /// Number of seeds.
        #[arg(long, default_value_t = 100)]
        seeds: u64,
        /// Only this seed.
        #[arg(long)]
        seed: Option<u64>,
        /// Print every operation.
        #[arg(long)]
        trace: bool,
    },
    /// Builds a large cluster, kills its leader and another server, and prints the virtual times of both.
    Scale {
        /// Servers.
        #[arg(long, default_value_t = 100)]
        servers: usize,
        /// Tables.
        #[arg(long, default_value_t = 100)]
        tables: usize,
        /// Tablets of each table.
        #[arg(long, default_value_t = 1_000)]
        tablets: usize,
        /// The seed of all randomness.
        #[arg(long, default_value_t = 0)]
        seed: u64,
    },
    /// Measures the throughput of clusters of several sizes, where each server has a processor in virtual time.
    Throughput {
        /// Numbers of servers.
        #[arg(long, value_delimiter = ',', default_value = "1,2,4,8")]
        servers: Vec<usize>,
        /// Concurrent callers for each server. Writes wait for the bucket, so few do not occupy it.
        #[arg(long, default_value_t = 1_024)]
        callers: usize,
        /// Virtual milliseconds of a measurement.
        #[arg(long, default_value_t = 1_000)]
        milliseconds: u64,
        /// Repetitions, in turns.
        #[arg(long, default_value_t = 3)]
        repeats: u64,
        /// Only reads, or only writes.
        #[arg(long, value_parser = load)]
        load: Option<Load>,
    },
    /// Plants each bug in turn; fails if any of them goes unnoticed.
    Planted {
        /// Seeds to try per bug, among those of runs on a bucket for a bug that only these have.
        #[arg(long, default_value_t = 1_000)]
        seeds: u64,
    },
}

/// A server that loses the power of its storage in the moment of a takeover needs an operator: in one seed of this many at most.
const HELPED_ONE_IN: u64 = 200;

/// Log lines have the time of the simulated machine.
struct VirtualTime;

impl FormatTime for VirtualTime {
    fn format_time(&self, line: &mut Writer<'_>) -> std::fmt::Result {
        let now = time_of_thread().unwrap_or_default();
        write!(line, "{:>12.6}", now.as_secs_f64())
    }
}

fn planted_bug(name: &str) -> Result<PlantedBug, String> {
    let mut all = PlantedBug::ALL.iter().chain(&PlantedBug::OF_HDFS);
    let found = all.find(|(known, _)| *known == name);
    found.map(|(_, bug)| *bug).ok_or_else(|| "no such bug".to_owned())
}

fn cluster_bug(name: &str) -> Result<PlantedBug, String> {
    let mut all = PlantedBug::OF_CLUSTERS.iter().chain(&PlantedBug::OF_ARCHIVED_CLUSTERS);
    let found = all.find(|(known, _)| *known == name);
    found.map(|(_, bug)| *bug).ok_or_else(|| "no such bug".to_owned())
}

fn archive_bug(name: &str) -> Result<PlantedBug, String> {
    let found = PlantedBug::OF_ARCHIVES.iter().find(|(known, _)| *known == name);
    found.map(|(_, bug)| *bug).ok_or_else(|| "no such bug".to_owned())
}

fn load(name: &str) -> Result<Load, String> {
    match name {
        "reads" => Ok(Load::Reads),
        "writes" => Ok(Load::Writes),
        _ => Err("reads or writes".to_owned()),
    }
}

fn copies(archive: bool, backups: bool) -> Copies {
    match (archive, backups) {
        (true, _) => Copies::Archive,
        (_, true) => Copies::Backups,
        _ => Copies::Snapshots,
    }
}

fn fleet_bug(name: &str) -> Result<FleetBug, String> {
    let found = FleetBug::ALL.iter().find(|(known, _)| *known == name);
    found.map(|(_, bug)| *bug).ok_or_else(|| "no such bug".to_owned())
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if let Some(filter) = &arguments.log {
        let log = tracing_subscriber::fmt().with_timer(VirtualTime).with_ansi(false);
        log.with_env_filter(filter).init();
    }
    match arguments.command {
        Command::Fleet {
            seeds,
            seed,
            trace,
            bug,
        } => {
            let range = seed.map_or(0..seeds, |seed| seed..seed + 1);
            run_fleet(range, "fleet", |seed| {
                fleet::run(FleetPlan {
                    seed,
                    bug,
                    prints: trace,
                })
            })
        }
        Command::Clocks { seeds, seed, trace } => {
            let range = seed.map_or(0..seeds, |seed| seed..seed + 1);
            run_fleet(range, "clocks", |seed| fleet::clocks::run(seed, trace))
        }
        Command::Rules { seeds, seed, trace } => {
            let range = seed.map_or(0..seeds, |seed| seed..seed + 1);
            run_fleet(range, "rules", |seed| fleet::rules::run(seed, trace))
        }
        Command::Cluster {
            seeds,
            start,
            seed,
            trace,
            planted,
            backups,
            archive,
            hdfs,
        } => {
            check_planted(planted.is_some())?;
            let range = seed.map_or(start..start.saturating_add(seeds), |seed| seed..seed + 1);
            let plan = |seed| ClusterPlan {
                seed,
                planted,
                prints: trace,
                copies: copies(archive, backups),
                on_hdfs: hdfs,
            };
            let command = with_flags("cluster", &[("backups", backups), ("archive", archive), ("hdfs", hdfs)]);
            run_fleet(range, &command, |seed| fleet::cluster::run(plan(seed)))
        }
        Command::Archive {
            seeds,
            start,
            seed,
            trace,
            planted,
        } => {
            check_planted(planted.is_some())?;
            let range = seed.map_or(start..start.saturating_add(seeds), |seed| seed..seed + 1);
            run_archives(range, (trace, planted))
        }
        Command::Run {
            seeds,
            start,
            seed,
            trace,
            planted,
            hdfs,
        } => {
            let range = seed.map_or(start..start.saturating_add(seeds), |seed| seed..seed + 1);
            run_all(range, (trace, planted), hdfs)
        }
        Command::Scale {
            servers,
            tables,
            tablets,
            seed,
        } => {
            let plan = ScalePlan {
                seed,
                servers,
                tables,
                tablets,
            };
            measure_scale(plan)
        }
        Command::Throughput {
            servers,
            callers,
            milliseconds,
            repeats,
            load,
        } => measure_throughput(load, &servers, (callers, Duration::from_millis(milliseconds), repeats)),
        Command::Planted { seeds } => find_planted(seeds),
    }
}

fn measure_scale(plan: ScalePlan) -> Result<()> {
    let scale = fleet::scale::run(plan).map_err(anyhow::Error::msg)?;
    println!(
        "{} servers, {} tablets: another leader after {:?}; {} tablets of a dead server served after {:?}, {} requests to the \
         coordinator meanwhile",
        plan.servers,
        plan.tables * plan.tablets,
        scale.leader_change,
        scale.tablets,
        scale.failover,
        scale.coordinator_requests
    );
    Ok(())
}

fn measure_throughput(
    only: Option<Load>,
    servers: &[usize],
    (callers, time, repeats): (usize, Duration, u64),
) -> Result<()> {
    for load in only.map_or(vec![Load::Reads, Load::Writes], |load| vec![load]) {
        for seed in 0..repeats {
            for servers in servers.iter().copied() {
                let plan = ThroughputPlan {
                    seed,
                    servers,
                    callers,
                    load,
                    time,
                };
                let measured = throughput::run(plan).map_err(anyhow::Error::msg)?;
                println!(
                    "{load:?}, {servers} servers, repeat {seed}: {:.0} requests, {:.0} a second and server, {:.0} a second of work, processors \
                     {:.2} to {:.2} occupied, {} to {} tablets",
                    measured.per_second * time.as_secs_f64(),
                    measured.per_second / servers as f64,
                    measured.per_work_second,
                    measured.occupied.0,
                    measured.occupied.1,
                    measured.tablets.0,
                    measured.tablets.1
                );
            }
        }
    }
    Ok(())
}

fn run_all(seeds: std::ops::Range<u64>, (prints, planted): (bool, Option<PlantedBug>), hdfs: bool) -> Result<()> {
    check_planted(planted.is_some())?;
    let (mut failed, mut totals) = (Vec::new(), Totals::default());
    for seed in seeds.clone() {
        let run = if hdfs { run_on_hdfs } else { run };
        let verdict = run(Plan { seed, planted, prints });
        totals.add(&verdict);
        if !verdict.violations.is_empty() {
            report(seed, hdfs, &verdict);
            failed.push(seed);
        }
    }
    println!(
        "{} seeds: {} writes acknowledged, {} lives of the server, {} replaced while they ran, {} faults, {} steps, up to {} tablets, {} compactions concurrent \
         with others of their tablet",
        seeds.end - seeds.start,
        totals.acknowledged,
        totals.lives,
        totals.replaced,
        totals.faults,
        totals.steps,
        totals.tablets,
        totals.concurrent_compactions
    );
    if !failed.is_empty() {
        bail!("{} seeds failed: {failed:?}", failed.len());
    }
    Ok(())
}

fn run_fleet(seeds: std::ops::Range<u64>, command: &str, run: impl Fn(u64) -> FleetVerdict) -> Result<()> {
    let (mut failed, mut helped) = (Vec::new(), 0);
    let helped_max = (seeds.end - seeds.start).div_ceil(HELPED_ONE_IN);
    for seed in seeds {
        let verdict = run(seed);
        if verdict.given_up > 0 {
            helped += 1;
            println!(
                "seed {seed}: an operator gave up the ends of {} log files",
                verdict.given_up
            );
        }
        println!(
            "seed {seed}: {} writes acknowledged, {} moves, {} failures, {} files swept, {} tables of snapshots",
            verdict.acknowledged, verdict.moves, verdict.failovers, verdict.swept, verdict.copies
        );
        if let Some(violation) = verdict.violations.first() {
            println!("  {violation}\n  again: stele-sim {command} --seed {seed} --trace");
            failed.push(seed);
        }
    }
    if !failed.is_empty() {
        bail!("{} seeds failed: {failed:?}", failed.len());
    }
    if helped > helped_max {
        bail!("{helped} seeds needed an operator, and at most {helped_max} may");
    }
    Ok(())
}

fn run_archives(range: std::ops::Range<u64>, (prints, planted): (bool, Option<PlantedBug>)) -> Result<()> {
    let (mut acknowledged, mut lives, mut restored, mut refused, mut failed) = (0, 0, 0, 0, 0);
    for seed in range.clone() {
        let verdict = archived::run(ArchivePlan { seed, planted, prints });
        acknowledged += verdict.acknowledged;
        lives += verdict.lives;
        restored += verdict.restored;
        refused += verdict.refused;
        if !verdict.violations.is_empty() {
            failed += 1;
            println!("seed {seed} failed:");
            for violation in verdict.violations.iter().take(3) {
                println!("  {violation}");
            }
            println!("  again: stele-sim archive --seed {seed} --trace");
        }
    }
    println!(
        "{} seeds: {acknowledged} writes acknowledged, {lives} lives, {restored} moments restored, {refused} refused",
        range.count()
    );
    if failed > 0 {
        bail!("{failed} seeds found violations");
    }
    Ok(())
}

#[derive(Default)]
struct Totals {
    acknowledged: u64,
    lives: u64,
    replaced: u64,
    faults: u64,
    steps: u64,
    tablets: usize,
    concurrent_compactions: u64,
}

impl Totals {
    fn add(&mut self, verdict: &Verdict) {
        self.acknowledged += verdict.acknowledged;
        self.lives += verdict.lives;
        self.replaced += verdict.replaced;
        self.faults += verdict.faults;
        self.steps += verdict.steps;
        self.concurrent_compactions += verdict.concurrent_compactions;
        self.tablets = self.tablets.max(verdict.tablets);
    }
}

fn find_planted(seeds: u64) -> Result<()> {
    check_planted(true)?;
    let mut missed = Vec::new();
    let on_hdfs = PlantedBug::OF_HDFS.map(|(name, bug)| (name, bug, run_on_hdfs as fn(Plan) -> Verdict));
    let elsewhere = PlantedBug::ALL.map(|(name, bug)| (name, bug, run as fn(Plan) -> Verdict));
    for (name, bug, run) in elsewhere.into_iter().chain(on_hdfs) {
        let mut candidates = seeds_for(bug).take(usize::try_from(seeds).unwrap_or(usize::MAX));
        let found = candidates.find_map(|seed| {
            let verdict = run(Plan {
                seed,
                planted: Some(bug),
                prints: false,
            });
            verdict.violations.into_iter().next().map(|violation| (seed, violation))
        });
        match found {
            Some((seed, violation)) => println!("{name}: found by seed {seed}: {violation}"),
            None => {
                println!("{name}: not found by {seeds} seeds");
                missed.push(name);
            }
        }
    }
    if !missed.is_empty() {
        bail!("planted bugs went unnoticed: {}", missed.join(", "));
    }
    Ok(())
}

fn check_planted(wanted: bool) -> Result<()> {
    if wanted && !cfg!(feature = "planted-bugs") {
        bail!("bugs can be planted in builds with `--features planted-bugs` only");
    }
    Ok(())
}

/// A command with those of its flags that are set.
fn with_flags(command: &str, flags: &[(&str, bool)]) -> String {
    let set = flags.iter().filter(|(_, is_set)| *is_set);
    set.fold(command.to_owned(), |line, (flag, _)| format!("{line} --{flag}"))
}

fn report(seed: u64, hdfs: bool, verdict: &Verdict) {
    println!("seed {seed} failed after {} steps:", verdict.steps);
    for violation in verdict.violations.iter().take(3) {
        println!("  {violation}");
    }
    let command = with_flags("run", &[("hdfs", hdfs)]);
    println!("  again: stele-sim {command} --seed {seed} --trace");
}
