//! `stele-bench run`: runs a suite against targets and writes a bundle.

use anyhow::{Context, Result, bail, ensure};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use stele_bench::bundle::{self, Bundle};
use stele_bench::engine::conductor::{Conductor, Rival};
use stele_bench::engine::dispatcher::{Dispatcher, Hiring};
use stele_bench::engine::progress::Progress;
use stele_bench::engine::warm::Warming;
use stele_bench::engine::{parties, witness};
use stele_bench::outcome::{Ending, RunOutcome};
use stele_bench::plan::{Role, Stage, Suite};
use stele_bench::report;
use stele_bench::suites::{self, SuiteOptions};
use stele_bench::xray::{self, Sampler, Watched};

/// Arguments of `run`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Name of a suite (`stele-bench list`), or a `suite.json` of another bundle.
    suite: String,
    /// The targets, separated by commas, such as `bigtable://127.0.0.1:8086/i,hbase://127.0.0.1:16020`. The others are
    /// compared with the first.
    #[arg(long, value_delimiter = ',', required = true)]
    against: Vec<String>,
    /// `quick` (about five minutes for two targets on two cores), or a factor of the document's own size.
    #[arg(long, default_value = "quick")]
    scale: String,
    /// Folder to write; must be new or empty.
    #[arg(long)]
    out: PathBuf,
    /// Only these experiments, by id, separated by commas.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Times that each experiment is run on each target.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    /// Pause in seconds between the turns of two targets [default: 60; with `--scale quick` 0.2].
    #[arg(long)]
    pause: Option<f64>,
    /// Seconds of mixed load for each target before the first experiment [default: 10. A server on a Java virtual
    /// machine, which compiles at run time, goes on until about a million operations, for 60 seconds at most].
    #[arg(long)]
    warm: Option<f64>,
    /// Worker processes started on this machine.
    #[arg(long, default_value_t = 1)]
    workers: u32,
    /// Number of workers to wait for that are started elsewhere.
    #[arg(long, default_value_t = 0)]
    remote_workers: u32,
    /// Address on which workers can join.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Generator threads of each local worker [default: half of the processors].
    #[arg(long)]
    threads: Option<usize>,
    /// Text from which values are cut, for the documents that used text; `cargo xtask corpus` fetches one.
    #[arg(long)]
    corpus: Option<String>,
    /// Shell command that kills a server, for the experiments that do so.
    #[arg(long)]
    kill_command: Option<String>,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Leaves out the control: the generator's own measurement against an echo server.
    #[arg(long)]
    no_witness: bool,
    /// Token that workers must present when they join; generated when absent.
    #[arg(long, env = "STELE_BENCH_TOKEN", hide_env_values = true)]
    token: Option<String>,
}

/// Runs the suite. Returns whether something was measured, and no run failed.
pub async fn run(arguments: Arguments) -> Result<bool> {
    let suite = suite(&arguments)?;
    // Refuses a folder that holds anything else, before hours are spent.
    bundle::write_partial(
        &Bundle {
            format: bundle::FORMAT,
            suite: suite.clone(),
            ..Bundle::default()
        },
        &arguments.out,
    )?;
    let rivals = parties::open_all(&arguments.against).await?;
    let mut dispatcher = Dispatcher::listen(hiring(&arguments)?).await?;
    if arguments.remote_workers > 0 {
        println!(
            "waiting for {} workers at {}",
            arguments.remote_workers,
            dispatcher.address()
        );
    }
    dispatcher.hire().await?;
    let sampler = Sampler::start(watched(&rivals, &dispatcher));
    let mut bundle = Bundle {
        format: bundle::FORMAT,
        tool: format!("stele-bench {}", env!("CARGO_PKG_VERSION")),
        command: std::env::args().collect(),
        started_at: now(),
        repeats: Some(arguments.repeats),
        machine: xray::machine(),
        suite,
        parties: rivals.iter().map(|r| r.party.clone()).collect(),
        ..Bundle::default()
    };
    if !arguments.no_witness {
        for protocol in parties::protocols(&arguments.against) {
            bundle
                .witnesses
                .extend(witness::measure(&mut dispatcher, &protocol).await);
        }
    }
    let is_whole = conduct(&arguments, &mut dispatcher, &rivals, &mut bundle).await?;
    bundle.ended_at = now();
    bundle.xray = sampler.stop();
    let page = report::render(std::slice::from_ref(&bundle));
    bundle::write(&bundle, &page, &arguments.out)?;
    Ok(conclude(&bundle, is_whole, &arguments.out))
}

/// Runs the suite. Whether it came to its end, or was interrupted.
async fn conduct(
    arguments: &Arguments,
    dispatcher: &mut Dispatcher,
    rivals: &[Rival],
    bundle: &mut Bundle,
) -> Result<bool> {
    let quick = arguments.scale == "quick";
    let warming = Warming::new(arguments.warm, arguments.seed);
    let experiments = bundle.suite.experiments.clone();
    let count = |e: &stele_bench::plan::Experiment| e.stages.iter().filter(|s| matches!(s, Stage::Run(_))).count();
    let runs: usize = experiments.iter().map(count).sum::<usize>() * arguments.repeats as usize * rivals.len();
    let interrupted = Arc::new(AtomicBool::new(false));
    tokio::spawn(interrupt(interrupted.clone()));
    let mut conductor = Conductor {
        dispatcher,
        rivals,
        repeats: arguments.repeats,
        pause_seconds: arguments.pause.unwrap_or(if quick { 0.2 } else { 60.0 }),
        progress: Progress::new(runs + warming.first().iter().map(count).sum::<usize>() * rivals.len()),
        interrupted: interrupted.clone(),
    };
    conductor.warm_up(&warming, bundle).await;
    let out = arguments.out.clone();
    conductor
        .experiments(&experiments, bundle, |bundle| Ok(bundle::write_partial(bundle, &out)?))
        .await?;
    conductor.progress.end();
    Ok(!interrupted.load(Ordering::Relaxed))
}

/// The first interrupt ends the suite in order, with the results so far. The second ends the program.
async fn interrupt(flag: Arc<AtomicBool>) {
    if tokio::signal::ctrl_c().await.is_ok() {
        eprintln!("interrupted: writing the results so far; interrupt again to quit immediately");
        flag.store(true, Ordering::Relaxed);
    }
    if tokio::signal::ctrl_c().await.is_ok() {
        std::process::exit(130);
    }
}

fn suite(arguments: &Arguments) -> Result<Suite> {
    let mut suite = if Path::new(&arguments.suite).extension().is_some_and(|e| e == "json") {
        let text = std::fs::read_to_string(&arguments.suite).with_context(|| format!("reading {}", arguments.suite))?;
        serde_json::from_str(&text).with_context(|| format!("{} is no suite", arguments.suite))?
    } else {
        let quick = arguments.scale == "quick";
        let scale = if quick {
            0.0
        } else {
            arguments
                .scale
                .parse::<f64>()
                .context("--scale is `quick` or a number")?
        };
        ensure!(
            quick || (scale > 0.0 && scale.is_finite()),
            "--scale must be above zero"
        );
        let options = SuiteOptions {
            scale,
            quick,
            corpus: arguments.corpus.clone(),
            seed: arguments.seed,
            kill_command: arguments.kill_command.clone(),
        };
        let known = || suites::names().join(", ");
        suites::build(&arguments.suite, &options)
            .with_context(|| format!("no suite {:?}; there are {}", arguments.suite, known()))?
    };
    for id in &arguments.only {
        if !suite.experiments.iter().any(|e| e.id == *id) {
            bail!("suite {} has no experiment {id}", suite.name);
        }
    }
    if !arguments.only.is_empty() {
        suite.experiments.retain(|e| arguments.only.contains(&e.id));
    }
    Ok(suite)
}

fn hiring(arguments: &Arguments) -> Result<Hiring> {
    ensure!(
        arguments.workers + arguments.remote_workers > 0,
        "at least one worker is needed"
    );
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let token = match &arguments.token {
        Some(token) => token.clone(),
        None if arguments.remote_workers > 0 => {
            bail!("--remote-workers needs --token, which the workers must know too")
        }
        None => format!("{:016x}", u64::from(std::process::id()) ^ now().to_bits()),
    };
    Ok(Hiring {
        listen: arguments.listen,
        local: arguments.workers,
        remote: arguments.remote_workers,
        threads: arguments.threads.unwrap_or((processors / 2).max(1)),
        token,
    })
}

/// All processes on this machine that take part.
fn watched(rivals: &[Rival], dispatcher: &Dispatcher) -> Vec<Watched> {
    let mut watched: Vec<Watched> = rivals.iter().flat_map(|r| r.party.processes.clone()).collect();
    for (index, pid) in (1..).zip(dispatcher.local_pids()) {
        let name = if index == 1 {
            "generator".to_owned()
        } else {
            format!("generator {index}")
        };
        watched.push(Watched {
            name,
            pid,
            gc_log: None,
        });
    }
    watched.push(Watched {
        name: "dispatcher".into(),
        pid: std::process::id(),
        gc_log: None,
    });
    watched
}

fn now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}

/// Prints the outcome. Returns whether the suite succeeded.
fn conclude(bundle: &Bundle, is_whole: bool, out: &Path) -> bool {
    let count = |wanted: fn(&Ending) -> bool| bundle.runs.iter().filter(|r| wanted(&r.ending)).count();
    let failed = count(|ending| matches!(ending, Ending::Failed(_)));
    let skipped = count(|ending| matches!(ending, Ending::Skipped(_)));
    let passed = bundle.runs.len() - failed - skipped;
    println!(
        "{passed} runs passed, {failed} failed, {skipped} not run; report: {}",
        out.join("report.html").display()
    );
    if !has_result(bundle) {
        println!("nothing was measured: no run passed but those that warm servers up");
    }
    if !is_whole {
        println!("the suite was interrupted: the runs after that are missing");
    }
    failed == 0 && is_whole && has_result(bundle)
}

/// Whether any run of the suite passed.
fn has_result(bundle: &Bundle) -> bool {
    let is_result = |run: &RunOutcome| run.role != Role::Warm && run.ending == Ending::Passed;
    bundle.runs.iter().any(is_result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_succeeds_if_something_passed_and_nothing_failed() {
        let run = |role, ending| RunOutcome {
            role,
            ending,
            ..RunOutcome::default()
        };
        let passed = run(Role::Measure, Ending::Passed);
        let skipped = run(Role::Measure, Ending::Skipped("no such call".into()));
        let failed = run(Role::Check, Ending::Failed(vec!["lost rows".into()]));
        let warm = run(Role::Warm, Ending::Passed);
        let concluded = |runs: &[&RunOutcome], is_whole| {
            let bundle = Bundle {
                runs: runs.iter().map(|run| (*run).clone()).collect(),
                ..Bundle::default()
            };
            conclude(&bundle, is_whole, Path::new("out"))
        };
        let succeeds = |runs: &[&RunOutcome]| concluded(runs, true);
        assert!(succeeds(&[&warm, &passed, &skipped]));
        assert!(!succeeds(&[&passed, &failed]));
        assert!(!succeeds(&[&warm, &skipped, &skipped]));
        assert!(!succeeds(&[]));
        assert!(!concluded(&[&warm, &passed], false), "runs are missing");
    }
}
