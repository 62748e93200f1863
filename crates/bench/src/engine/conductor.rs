//! Takes every target through every experiment of a suite, in turns, and collects the results.
//!
//! Each experiment, repeat and target has these steps: the stages in order, from an empty state, and then all tables
//! are dropped. Targets take turns experiment by experiment, with a pause between them, so that other work of the
//! machine (heat, neighbours) affects all of them. Another one begins in each repeat and each experiment.
//!
//! Rules about failure:
//! * A stage that fails does not end the suite: the runs that depended on it are skipped, with the cause.
//! * Runs whose table could not be made have failed: skipping all of them would let a suite that measured nothing pass.
//! * A check that finds a fault fails every run that wrote to the table: a fast run whose rows are gone was not fast.

use crate::bundle::{Bundle, Party};
use crate::engine::dispatcher::{Dispatcher, Observer, Order};
use crate::engine::parties;
use crate::engine::progress::Progress;
use crate::engine::warm::Warming;
use crate::load::{self, Written};
use crate::outcome::{Ending, RunOutcome, Second};
use crate::plan::{Activity, Experiment, KeyOrder, Operation, Role, Run, Stage};
use crate::target::{Target, TargetError};
use crate::xray::{self, ProcessTime};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Limit for creating or dropping a table. A busy cluster takes long, but never this long.
const TABLE_PATIENCE: Duration = Duration::from_secs(300);

/// One target, opened.
pub struct Rival {
    /// Its description.
    pub party: Party,
    /// The connection to it.
    pub target: Arc<dyn Target>,
}

/// Everything a suite needs while it runs.
pub struct Conductor<'a> {
    /// The process that distributes the work.
    pub dispatcher: &'a mut Dispatcher,
    /// The targets that are measured.
    pub rivals: &'a [Rival],
    /// Times that each experiment is run on each target.
    pub repeats: u32,
    /// Seconds between one target's turn and the next.
    pub pause_seconds: f64,
    /// The terminal.
    pub progress: Progress,
    /// Set when the user interrupts. Finished runs are kept.
    pub interrupted: Arc<AtomicBool>,
}

/// The contents of a table, and the runs that wrote it.
#[derive(Default)]
struct Table {
    written: Vec<Written>,
    writers: Vec<usize>,
    /// The ending of later runs, none of which is started.
    broken: Option<Ending>,
    /// Why the target has not flushed it.
    unflushed: Option<String>,
}

impl Conductor<'_> {
    /// Warms all targets up, each as long as it needs.
    pub async fn warm_up(&mut self, warming: &Warming, bundle: &mut Bundle) {
        let rivals = self.rivals;
        for (party, rival) in rivals.iter().enumerate() {
            let Some(first) = warming.first() else { return };
            if !self.interrupted.load(Ordering::Relaxed) {
                self.turn(&first, party, 1, bundle).await;
            }
            if !rival.party.processes.iter().any(xray::is_jvm) {
                continue;
            }
            if let Some(second) = warming.second(bundle.warm_ups(party))
                && !self.interrupted.load(Ordering::Relaxed)
            {
                self.turn(&second, party, 1, bundle).await;
            }
        }
    }

    /// Runs a list of experiments. It calls `save` after each, so that little is lost if this program is killed.
    ///
    /// # Errors
    /// Of `save` only.
    pub async fn experiments(
        &mut self,
        experiments: &[Experiment],
        bundle: &mut Bundle,
        mut save: impl FnMut(&Bundle) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        for (number, experiment) in experiments.iter().enumerate() {
            if let Some(why) = &experiment.unavailable {
                self.progress
                    .say(&format!("{} {}: not run: {why}", experiment.id, experiment.title));
                continue;
            }
            for repeat in 1..=self.repeats {
                for turn in 0..self.rivals.len() {
                    if self.interrupted.load(Ordering::Relaxed) {
                        return Ok(());
                    }
                    let party = (turn + number + repeat as usize - 1) % self.rivals.len();
                    self.turn(experiment, party, repeat, bundle).await;
                    tokio::time::sleep(Duration::from_secs_f64(self.pause_seconds)).await;
                }
            }
            save(bundle)?;
        }
        Ok(())
    }

    /// One target's turn at one experiment.
    async fn turn(&mut self, experiment: &Experiment, party: usize, repeat: u32, bundle: &mut Bundle) {
        let Some(target) = self.rivals.get(party).map(|r| r.target.clone()) else {
            return;
        };
        let mut tables: HashMap<String, Table> = HashMap::new();
        for stage in &experiment.stages {
            match stage {
                Stage::Create(spec) => {
                    let made = create(&*target, spec).await;
                    if let Err(error) = &made {
                        let title = self.title(experiment, party, "");
                        self.progress
                            .say(&format!("{title}: making table {}: {error}", spec.name));
                    }
                    let table = Table {
                        broken: made.err().map(|error| not_made(&spec.name, &error)),
                        ..Table::default()
                    };
                    tables.insert(spec.name.clone(), table);
                }
                Stage::Drop(name) => {
                    tables.remove(name);
                    self.drop_table(&*target, name).await;
                }
                Stage::Settle { table, pause_seconds } => {
                    let flushed = target.flush_table(table).await;
                    if let Err(error) = &flushed
                        && !matches!(error, TargetError::Unsupported(_))
                    {
                        self.progress.say(&format!("flushing {table}: {error}"));
                    }
                    // Reads of a table that was not flushed come from memory, which those of other targets may not.
                    let unflushed = flushed.err().map(|error| error.to_string());
                    tables.entry(table.clone()).or_default().unflushed = unflushed;
                    tokio::time::sleep(Duration::from_secs_f64(*pause_seconds)).await;
                }
                Stage::Run(run) => {
                    let mut outcome = self.run(experiment, run, party, &mut tables).await;
                    outcome.experiment.clone_from(&experiment.id);
                    outcome.party = party;
                    outcome.repeat = repeat;
                    let used = table_names(run);
                    outcome.unflushed = used.iter().find_map(|name| tables.get(name)?.unflushed.clone());
                    bundle.runs.push(outcome);
                    settle_accounts(run, bundle, &mut tables);
                }
            }
        }
        for name in tables.into_keys() {
            self.drop_table(&*target, &name).await;
        }
    }

    async fn drop_table(&self, target: &dyn Target, name: &str) {
        match tokio::time::timeout(TABLE_PATIENCE, target.drop_table(name)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.progress.say(&format!("dropping {name}: {error}")),
            Err(_) => self.progress.say(&format!("dropping {name} took too long")),
        }
    }

    fn title(&self, experiment: &Experiment, party: usize, label: &str) -> String {
        let name = self.rivals.get(party).map_or("", |r| r.party.name.as_str());
        format!("{} {name} {label}", experiment.id)
    }

    async fn run(
        &mut self,
        experiment: &Experiment,
        run: &Run,
        party: usize,
        tables: &mut HashMap<String, Table>,
    ) -> RunOutcome {
        let title = self.title(experiment, party, &run.label);
        let names = table_names(run);
        let broken = names
            .iter()
            .find_map(|name| tables.get(name).and_then(|t| t.broken.clone()));
        if let Some(ending) = broken {
            let outcome = not_started(run, ending);
            self.progress.over(&title, &outcome, 0.0);
            return outcome;
        }
        let written = names
            .first()
            .and_then(|n| tables.get(n))
            .map_or(&[][..], |t| &t.written);
        let Some(rival) = self.rivals.get(party) else {
            return not_started(run, Ending::Skipped("no such target".into()));
        };
        if run.role == Role::Check && !rival.target.stores() {
            let why = "its responses are prepared; there is nothing to check";
            return not_started(run, Ending::Skipped(why.into()));
        }
        let trusting = if rival.target.stores() {
            None
        } else {
            Some(unverified(run))
        };
        let order = Order {
            run: trusting.as_ref().unwrap_or(run),
            target: &rival.party.url,
            written,
        };
        let began = Instant::now();
        let mut observer = Watching {
            title: &title,
            party: &rival.party,
            progress: &self.progress,
            interrupted: &self.interrupted,
        };
        let mut outcome = self.dispatcher.run(&order, &mut observer).await;
        add_findings(&mut outcome, run, written);
        self.progress.over(&title, &outcome, began.elapsed().as_secs_f64());
        outcome
    }
}

/// The dispatcher's observer during a run.
struct Watching<'a> {
    title: &'a str,
    party: &'a Party,
    progress: &'a Progress,
    interrupted: &'a AtomicBool,
}

impl Observer for Watching<'_> {
    fn server_cpu(&mut self) -> BTreeMap<String, ProcessTime> {
        let time = |p: &xray::Watched| Some((p.name.clone(), xray::process_time(p.pid)?));
        let times: Option<_> = parties::processes_now(self.party).iter().map(time).collect();
        // Some of a server's processes would make it seem cheaper than it is.
        times.unwrap_or_default()
    }

    fn progress(&mut self, run: &Run, elapsed: f64, done: u64, total: u64, last: Option<&Second>) {
        self.progress.second(self.title, run, elapsed, done, total, last);
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

async fn create(target: &dyn Target, spec: &crate::target::TableSpec) -> Result<(), TargetError> {
    let make = async {
        target.drop_table(&spec.name).await?;
        target.create_table(spec).await
    };
    let millis = TABLE_PATIENCE.as_millis() as u64;
    tokio::time::timeout(TABLE_PATIENCE, make)
        .await
        .unwrap_or(Err(TargetError::Timeout(millis)))
}

/// Names of the tables that a run uses.
fn table_names(run: &Run) -> Vec<String> {
    match &run.activity {
        Activity::Table(workload) => vec![workload.table.clone()],
        Activity::Social(social) => crate::social::tables(social).into_iter().map(|t| t.name).collect(),
    }
}

/// The ending of runs whose table could not be made. A target that lacks something that the table needs has no fault.
fn not_made(table: &str, error: &TargetError) -> Ending {
    let why = format!("making table {table}: {error}");
    match error {
        TargetError::Unsupported(_) => Ending::Skipped(why),
        _ => Ending::Failed(vec![why]),
    }
}

fn not_started(run: &Run, ending: Ending) -> RunOutcome {
    RunOutcome {
        label: run.label.clone(),
        role: run.role,
        point: run.point.clone(),
        clients: run.clients,
        ending,
        ..RunOutcome::default()
    }
}

/// A run whose responses are not checked.
fn unverified(run: &Run) -> Run {
    let mut run = run.clone();
    if let Activity::Table(workload) = &mut run.activity {
        workload.verify = false;
    }
    run
}

/// Figures that are known only after a run: the skew of its keys, and whether a check found as many rows as it should.
fn add_findings(outcome: &mut RunOutcome, run: &Run, written: &[Written]) {
    let Activity::Table(workload) = &run.activity else {
        return;
    };
    if workload.keys.order != KeyOrder::Sequential {
        let spans = outcome.done.clone();
        let keys = Written {
            workload: workload.clone(),
            seed: run.seed,
            spans,
            ..Written::default()
        };
        outcome.skew = Some(load::skew(&keys));
    }
    if run.role == Role::Check {
        let expected = load::expected_rows(written);
        let returned = outcome.kinds.iter().map(|k| k.rows).sum();
        outcome.expected_rows = Some(expected);
        outcome.returned_rows = Some(returned);
        // Each of these operations may have written a row of its own.
        let uncertain = written.iter().flat_map(|w| &w.uncertain);
        outcome.unsure_rows = uncertain.map(|span| span.end.saturating_sub(span.start)).sum();
        if !outcome.has_expected_rows() && !matches!(outcome.ending, Ending::Skipped(_)) {
            let unsure = match outcome.unsure_rows {
                0 => String::new(),
                rows => format!(", and up to {rows} more of operations that failed"),
            };
            fail(
                outcome,
                format!("{returned} rows returned where {expected} were expected{unsure}"),
            );
        }
    }
}

fn fail(outcome: &mut RunOutcome, cause: String) {
    match &mut outcome.ending {
        Ending::Failed(causes) => causes.push(cause),
        ending => *ending = Ending::Failed(vec![cause]),
    }
}

/// Notes the writes of the bundle's last run, or the consequences of its failure for the runs before and after it.
fn settle_accounts(run: &Run, bundle: &mut Bundle, tables: &mut HashMap<String, Table>) {
    let is_broken = |name: &String| tables.get(name).is_some_and(|table| table.broken.is_some());
    if table_names(run).iter().any(is_broken) {
        // It was not started: it wrote nothing, and found nothing about others.
        return;
    }
    let Some(index) = bundle.runs.len().checked_sub(1) else {
        return;
    };
    let Some(outcome) = bundle.runs.get_mut(index) else {
        return;
    };
    let done = std::mem::take(&mut outcome.done);
    let uncertain = std::mem::take(&mut outcome.uncertain);
    let repeated = std::mem::take(&mut outcome.repeated);
    let causes = match &outcome.ending {
        Ending::Failed(causes) => Some(causes.join("; ")),
        Ending::Passed | Ending::Skipped(_) => None,
    };
    let mut suspects = Vec::new();
    for name in table_names(run) {
        let table = tables.entry(name).or_default();
        if writes(run) {
            table.writers.push(index);
            if let Activity::Table(workload) = &run.activity {
                table.written.push(Written {
                    workload: workload.clone(),
                    seed: run.seed,
                    spans: done.clone(),
                    uncertain: uncertain.clone(),
                    repeated: repeated.clone(),
                });
            }
        }
        match (&causes, run.role) {
            (Some(_), Role::Check) => suspects.extend(table.writers.iter().copied()),
            (Some(why), Role::Load) => table.broken = Some(Ending::Skipped(format!("{} failed: {why}", run.label))),
            _ => {}
        }
    }
    let Some(why) = causes.filter(|_| run.role == Role::Check) else {
        return;
    };
    for suspect in suspects {
        if let Some(outcome) = bundle.runs.get_mut(suspect) {
            fail(outcome, format!("the check {} afterwards found: {why}", run.label));
        }
    }
}

fn writes(run: &Run) -> bool {
    match &run.activity {
        Activity::Social(_) => true,
        Activity::Table(workload) => workload.mix.iter().any(|(operation, _)| match operation {
            Operation::Put
            | Operation::BufferedPut { .. }
            | Operation::Insert
            | Operation::Increment
            | Operation::CheckAndPut
            | Operation::ReadModifyWrite => true,
            Operation::Get | Operation::ShortScan { .. } | Operation::Scan { .. } => false,
        }),
    }
}
