//! One run: instructs the workers, observes them, and adds up their reports.

mod sums;
#[cfg(test)]
mod tests;

use super::{Dispatcher, Happening, SILENCE_MAX, STANDSTILL_MAX};
use crate::engine::frames::{FromDispatcher, FromWorker, Report, Start};
use crate::engine::ranges::RangeBook;
use crate::load::Written;
use crate::outcome::{Ending, RunOutcome, Second};
use crate::plan::{Disruption, Run, Stop};
use crate::xray::ProcessTime;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use sums::Sums;
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

/// A check of the workers that comes later than this says nothing about them. Load of the machine delays it by less.
const LATE_MAX: Duration = Duration::from_secs(5);
/// Longest time for workers to connect their clients, and to end a run.
const PATIENCE: Duration = Duration::from_secs(120);
/// Longest time for the command that kills servers. It also restarts those that are to return.
const KILL_PATIENCE: Duration = Duration::from_secs(60);
/// Pauses between two checks for an interrupt while the run waits for that command.
const INTERRUPT_CHECK: Duration = Duration::from_millis(200);

/// A run to be carried out.
pub struct Order<'a> {
    /// The run.
    pub run: &'a Run,
    /// On which target.
    pub target: &'a str,
    /// The contents of its table.
    pub written: &'a [Written],
}

/// Receives the progress of a run.
pub trait Observer {
    /// CPU time of the server's processes so far, by name; empty unless that of all of them is known.
    fn server_cpu(&mut self) -> BTreeMap<String, ProcessTime>;
    /// Called once a second: operations done, operations in all (zero if time decides), and the last second.
    fn progress(&mut self, run: &Run, elapsed: f64, done: u64, total: u64, last: Option<&Second>);
    /// Whether the user has interrupted.
    fn is_interrupted(&self) -> bool;
}

impl Dispatcher {
    /// Carries out a run. Failures are part of the outcome.
    pub async fn run(&mut self, order: &Order<'_>, observer: &mut dyn Observer) -> RunOutcome {
        let number = self.next_run;
        self.next_run += 1;
        let mut under_way = UnderWay::new(number, order);
        let outcome = match under_way.assign(self) {
            0 => Err("no worker is there".to_owned()),
            _ => under_way.carry_out(self, observer).await,
        };
        let (elapsed, went_through) = (under_way.elapsed(), outcome.is_ok());
        if let Err(cause) = outcome {
            under_way.causes.push(cause);
        }
        if !under_way.causes.is_empty() || under_way.unsupported.is_some() {
            for id in under_way.slots.values().filter_map(|s| s.worker) {
                self.send(id, FromDispatcher::Abort { run: number }).await;
            }
        }
        under_way.end_disruption(went_through, observer).await;
        under_way.finish(elapsed)
    }
}

/// A worker's place in a run. A worker that takes it over uses the same numbers of clients.
#[derive(Debug, Default)]
struct Slot {
    worker: Option<u32>,
    first_client: u32,
    clients: u32,
    ready: bool,
    done: bool,
}

struct UnderWay<'a> {
    number: u64,
    order: &'a Order<'a>,
    book: RangeBook,
    slots: BTreeMap<u32, Slot>,
    began: Option<Instant>,
    finishing: bool,
    /// Time of the last progress.
    moved: Instant,
    sums: Sums,
    causes: Vec<String>,
    unsupported: Option<String>,
    cpu_before: Option<BTreeMap<String, ProcessTime>>,
    cpu_after: Option<BTreeMap<String, ProcessTime>>,
    /// Taken when its command is started.
    disruption: Option<&'a Disruption>,
    /// The command's end, or why that was not good.
    disrupted: mpsc::Receiver<Result<String, String>>,
    /// Taken by the command.
    disrupt: Option<mpsc::Sender<Result<String, String>>>,
}

impl<'a> UnderWay<'a> {
    fn new(number: u64, order: &'a Order<'a>) -> Self {
        let run = order.run;
        let (disrupt, disrupted) = mpsc::channel(1);
        Self {
            number,
            order,
            book: RangeBook::new(run),
            slots: BTreeMap::new(),
            began: None,
            finishing: false,
            moved: Instant::now(),
            sums: Sums::new(),
            causes: Vec::new(),
            unsupported: None,
            cpu_before: None,
            cpu_after: None,
            disruption: run.disruption.as_ref(),
            disrupted,
            disrupt: Some(disrupt),
        }
    }

    /// Spreads the clients over the workers. Returns how many workers have any.
    fn assign(&mut self, dispatcher: &Dispatcher) -> usize {
        let clients = self.order.run.clients.max(1);
        let workers = (dispatcher.workers.len() as u32).min(clients);
        let mut first_client = 0;
        for (slot, id) in (0..workers).zip(dispatcher.workers.keys()) {
            let share = clients / workers + u32::from(slot < clients % workers);
            let slot_of = Slot {
                worker: Some(*id),
                first_client,
                clients: share,
                ..Slot::default()
            };
            self.slots.insert(slot, slot_of);
            first_client += share;
        }
        self.slots.len()
    }

    async fn carry_out(&mut self, dispatcher: &mut Dispatcher, observer: &mut dyn Observer) -> Result<(), String> {
        let slots: Vec<u32> = self.slots.keys().copied().collect();
        for slot in slots {
            self.start(dispatcher, slot).await;
        }
        let mut every = tokio::time::interval(Duration::from_secs(1));
        // Late ticks made up for would all come before the messages that arrived meanwhile.
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        every.tick().await;
        while !self.is_over() {
            let (until_mark, wake) = self.next_moment();
            tokio::select! {
                // A planned action that is due comes before a message that may end the run. Messages may come without
                // end, so they are last.
                biased;
                () = tokio::time::sleep_until(until_mark.into()), if wake => self.moment(observer),
                Some(ended) = self.disrupted.recv() => self.disruption_ended(ended),
                due = every.tick() => {
                    if observer.is_interrupted() {
                        return Err("interrupted".into());
                    }
                    self.check_progress(dispatcher, due.elapsed()).await?;
                    let last = self.sums.last_second();
                    let done = self.done_operations();
                    observer.progress(self.order.run, self.elapsed(), done, self.book.total(), last.as_ref());
                }
                happened = dispatcher.events.recv() => {
                    let Some((id, happening)) = happened else {
                        return Err("the listener has ended".into());
                    };
                    dispatcher.note(id, &happening);
                    self.happened(dispatcher, id, happening, observer).await?;
                }
            }
        }
        self.cpu_after.get_or_insert_with(|| observer.server_cpu());
        Ok(())
    }

    /// Waits for the command that kills servers, also if the run was broken off: it would kill those of the next run. A run
    /// that went through without a kill measured something else than the plan asks for.
    async fn end_disruption(&mut self, went_through: bool, observer: &dyn Observer) {
        if let Some(planned) = self.disruption.filter(|_| went_through && self.unsupported.is_none()) {
            let (at, over) = (planned.at_seconds, self.elapsed());
            self.causes.push(format!(
                "it was over after {over:.1} s, and a server was to be killed at {at:.1} s"
            ));
        }
        if self.disrupt.is_some() {
            return;
        }
        let mut every = tokio::time::interval(INTERRUPT_CHECK);
        loop {
            tokio::select! {
                // A command that has ended is no longer waited for, also after an interrupt.
                biased;
                ended = self.disrupted.recv() => match ended {
                    Some(ended) => self.disruption_ended(ended),
                    // Its sender is gone, and with it the command.
                    None => return,
                },
                // No run follows an interrupt.
                _ = every.tick() => if observer.is_interrupted() {
                    break;
                },
            }
        }
        if went_through {
            self.causes
                .push("interrupted before the command that kills a server ended".into());
        }
    }

    fn disruption_ended(&mut self, ended: Result<String, String>) {
        if let Err(cause) = &ended {
            self.causes.push(format!("killing a server: {cause}"));
        }
        let (Ok(text) | Err(text)) = ended;
        self.event(text);
    }

    fn done_operations(&self) -> u64 {
        match self.order.run.stop {
            Stop::Operations(_) => self.sums.operations(),
            Stop::Seconds(_) => self.book.done_operations(),
        }
    }

    fn elapsed(&self) -> f64 {
        self.began.map_or(0.0, |began| began.elapsed().as_secs_f64())
    }

    fn is_over(&self) -> bool {
        self.unsupported.is_some() || (self.began.is_some() && self.slots.values().all(|s| s.done))
    }

    fn event(&mut self, text: String) {
        self.sums.event(self.elapsed(), text);
    }

    async fn start(&self, dispatcher: &Dispatcher, slot: u32) {
        let Some(Slot {
            worker: Some(id),
            first_client,
            clients,
            ..
        }) = self.slots.get(&slot)
        else {
            return;
        };
        let start = Start {
            run: self.number,
            what: self.order.run.clone(),
            target: self.order.target.to_owned(),
            written: self.order.written.to_vec(),
            worker: slot,
            workers: self.slots.len() as u32,
            first_client: *first_client,
            clients: *clients,
        };
        dispatcher.send(*id, FromDispatcher::Start(Box::new(start))).await;
    }

    async fn happened(
        &mut self,
        dispatcher: &mut Dispatcher,
        id: u32,
        happening: Happening,
        observer: &mut dyn Observer,
    ) -> Result<(), String> {
        let slot = self
            .slots
            .iter()
            .find(|(_, s)| s.worker == Some(id))
            .map(|(slot, _)| *slot);
        match (happening, slot) {
            (Happening::Joined { place, .. }, _) => {
                let vacant = self.slots.iter_mut().find(|(_, s)| s.worker.is_none() && !s.done);
                if let Some((slot, place_of)) = vacant {
                    place_of.worker = Some(id);
                    let slot = *slot;
                    self.event(format!("worker {slot} is now {place}"));
                    self.start(dispatcher, slot).await;
                }
            }
            (Happening::Said(message), Some(slot)) => self.said(dispatcher, slot, message, observer).await?,
            (Happening::Gone(why), Some(slot)) => self.lost(dispatcher, slot, &why).await?,
            (Happening::Said(_) | Happening::Gone(_), None) => {}
        }
        Ok(())
    }

    async fn said(
        &mut self,
        dispatcher: &mut Dispatcher,
        slot: u32,
        message: FromWorker,
        observer: &mut dyn Observer,
    ) -> Result<(), String> {
        match message {
            FromWorker::Ready { run } if run == self.number => self.ready(dispatcher, slot, observer).await,
            FromWorker::Take { run, count } if run == self.number => self.give(dispatcher, slot, count).await,
            FromWorker::Report(report) if report.run == self.number => {
                self.report(slot, *report);
                if self.book.is_done() && !self.finishing {
                    self.finishing = true;
                    self.cpu_after = Some(observer.server_cpu());
                    self.tell_all(dispatcher, || FromDispatcher::Finish { run: self.number })
                        .await;
                }
            }
            FromWorker::Done { run } if run == self.number => {
                if let Some(slot) = self.slots.get_mut(&slot) {
                    slot.done = true;
                }
            }
            FromWorker::Failed {
                run,
                cause,
                unsupported,
            } if run == self.number => {
                if unsupported {
                    self.unsupported = Some(cause);
                } else {
                    return Err(cause);
                }
            }
            // A late message about an earlier run.
            _ => {}
        }
        Ok(())
    }

    async fn tell_all(&self, dispatcher: &Dispatcher, message: impl Fn() -> FromDispatcher) {
        for id in self.slots.values().filter_map(|s| s.worker) {
            dispatcher.send(id, message()).await;
        }
    }

    async fn ready(&mut self, dispatcher: &Dispatcher, slot: u32, observer: &mut dyn Observer) {
        if let Some(place) = self.slots.get_mut(&slot) {
            place.ready = true;
        }
        let run = self.number;
        if self.began.is_some() {
            let elapsed_seconds = self.elapsed();
            self.give_first(dispatcher, slot).await;
            if let Some(id) = self.slots.get(&slot).and_then(|s| s.worker) {
                dispatcher.send(id, FromDispatcher::Go { run, elapsed_seconds }).await;
            }
        } else if self.slots.values().all(|s| s.ready) {
            let slots: Vec<u32> = self.slots.keys().copied().collect();
            for slot in slots {
                self.give_first(dispatcher, slot).await;
            }
            self.began = Some(Instant::now());
            self.moved = Instant::now();
            if self.order.run.warmup_seconds <= 0.0 {
                self.cpu_before = Some(observer.server_cpu());
            }
            self.tell_all(dispatcher, || FromDispatcher::Go {
                run,
                elapsed_seconds: 0.0,
            })
            .await;
            if self.book.is_done() {
                // No operation at all.
                self.finishing = true;
                self.tell_all(dispatcher, || FromDispatcher::Finish { run }).await;
            }
        }
    }

    /// One range for each client, and one eighth more, so that a client need not wait for its next.
    async fn give_first(&mut self, dispatcher: &Dispatcher, slot: u32) {
        let clients = self.slots.get(&slot).map_or(1, |s| s.clients);
        self.give(dispatcher, slot, clients + clients / 8 + 1).await;
    }

    async fn give(&mut self, dispatcher: &Dispatcher, slot: u32, count: u32) {
        let Some(id) = self.slots.get(&slot).and_then(|s| s.worker) else {
            return;
        };
        let ranges = self.book.take(slot, count);
        if !ranges.is_empty() {
            dispatcher
                .send(
                    id,
                    FromDispatcher::Ranges {
                        run: self.number,
                        ranges,
                    },
                )
                .await;
        }
    }

    fn report(&mut self, slot: u32, report: Report) {
        if sums::has_moved(&report) {
            self.moved = Instant::now();
        }
        for span in &report.done {
            self.book.finish(slot, span.clone());
        }
        for span in &report.uncertain {
            self.book.give_up(slot, span);
        }
        self.sums.add(slot, report);
    }

    async fn lost(&mut self, dispatcher: &mut Dispatcher, slot: u32, why: &str) -> Result<(), String> {
        let Some(place) = self.slots.get_mut(&slot) else {
            return Ok(());
        };
        place.worker = None;
        if place.done {
            return Ok(());
        }
        place.ready = false;
        let back = self.book.lose(slot);
        self.event(format!(
            "worker {slot} died ({why}); {back} ranges that it had are done again by others"
        ));
        let replaced = dispatcher.replace().map_err(|e| format!("{e:#}"))?;
        let survivors: Vec<u32> = self
            .slots
            .iter()
            .filter(|(_, s)| s.worker.is_some())
            .map(|(s, _)| *s)
            .collect();
        if survivors.is_empty() && !replaced {
            return Err("the last worker died".into());
        }
        if !replaced {
            // No worker will take this place, so nothing waits for it.
            if let Some(place) = self.slots.get_mut(&slot) {
                place.done = true;
            }
            let each = (back as u32).div_ceil(survivors.len().max(1) as u32);
            for survivor in survivors {
                self.give(dispatcher, survivor, each).await;
            }
        }
        Ok(())
    }

    /// When the server's CPU time is read at the end, if the plan gives the moment. Operations of an open loop count
    /// even if they end later, so there it is read after the last one.
    fn cpu_end(&self) -> Option<f64> {
        let run = self.order.run;
        match run.stop {
            Stop::Seconds(seconds) if run.rate.is_none() && self.cpu_after.is_none() => {
                Some(run.warmup_seconds + seconds)
            }
            Stop::Seconds(_) | Stop::Operations(_) => None,
        }
    }

    /// Time of a planned action, and whether one is planned.
    fn next_moment(&self) -> (Instant, bool) {
        let Some(began) = self.began else {
            return (Instant::now(), false);
        };
        let run = self.order.run;
        let mut moments = Vec::new();
        if self.cpu_before.is_none() {
            moments.push(run.warmup_seconds);
        }
        moments.extend(self.cpu_end());
        moments.extend(self.disruption.map(|d| d.at_seconds));
        let first = moments.into_iter().min_by(f64::total_cmp);
        (
            began + Duration::from_secs_f64(first.unwrap_or(0.0).max(0.0)),
            first.is_some(),
        )
    }

    fn moment(&mut self, observer: &mut dyn Observer) {
        let elapsed = self.elapsed();
        let run = self.order.run;
        if self.cpu_before.is_none() && elapsed >= run.warmup_seconds {
            self.cpu_before = Some(observer.server_cpu());
        }
        if self.cpu_end().is_some_and(|end| elapsed >= end) {
            self.cpu_after = Some(observer.server_cpu());
        }
        if let Some(disruption) = self.disruption.filter(|d| elapsed >= d.at_seconds) {
            self.disruption = None;
            self.event(format!("command that kills a server: {}", disruption.command));
            if let Some(tell) = self.disrupt.take() {
                tokio::spawn(disturb(disruption.command.clone(), tell));
            }
        }
    }

    /// Finds workers that are silent, and a run that stands still. `late` is how long after its time it is called.
    async fn check_progress(&mut self, dispatcher: &mut Dispatcher, late: Duration) -> Result<(), String> {
        if late > LATE_MAX {
            // This process was suspended, and has read no message meanwhile. Silence counts from here.
            let now = Instant::now();
            dispatcher.workers.values_mut().for_each(|worker| worker.heard = now);
            self.moved = now;
            return Ok(());
        }
        let began = self.began.is_some();
        let silent: Vec<u32> = self
            .slots
            .iter()
            .filter(|(_, s)| !s.done && s.worker.is_some_and(|id| dispatcher.is_silent(id)))
            .map(|(slot, _)| *slot)
            .collect();
        for slot in silent.into_iter().filter(|_| began) {
            if let Some(id) = self.slots.get(&slot).and_then(|s| s.worker) {
                dispatcher.note(id, &Happening::Gone(String::new()));
                self.lost(dispatcher, slot, "silent").await?;
            }
        }
        let patience = if self.began.is_some() { STANDSTILL_MAX } else { PATIENCE };
        if self.moved.elapsed() > patience {
            let what = if self.began.is_some() {
                "operation ended"
            } else {
                "start"
            };
            return Err(format!("no {what} for {} s", patience.as_secs()));
        }
        Ok(())
    }

    /// The outcome of a run that was over, or broken off, after these seconds.
    fn finish(mut self, elapsed: f64) -> RunOutcome {
        let run = self.order.run;
        if !self.causes.is_empty() {
            // Workers do not report the operations of a run that was broken off.
            for slot in self.slots.keys() {
                self.book.lose(*slot);
            }
        }
        let mut outcome = self.sums.finish();
        outcome.label.clone_from(&run.label);
        outcome.role = run.role;
        outcome.point.clone_from(&run.point);
        outcome.clients = run.clients;
        outcome.seconds = match (run.stop, self.began) {
            (_, None) => 0.0,
            // An open loop ends with its last operation, which may be late.
            (Stop::Seconds(seconds), _) if run.rate.is_some() => {
                (outcome.seconds - run.warmup_seconds).max(seconds.min(elapsed))
            }
            (Stop::Seconds(seconds), _) => seconds.min(elapsed),
            (Stop::Operations(_), Some(_)) => outcome.seconds.max(f64::MIN_POSITIVE),
        };
        if let (Some(before), Some(after)) = (self.cpu_before, self.cpu_after) {
            outcome.server_cpu = spent(&before, &after);
        }
        outcome.repeated = self.book.lost().to_vec();
        outcome.done = self.book.into_done();
        outcome.ending = match self.unsupported {
            Some(why) => Ending::Skipped(why),
            None => sums::ending(self.causes, &outcome, run.disruption.is_some()),
        };
        outcome
    }
}

/// CPU seconds of each process between two moments. Nothing, if a process has ended, began or was replaced in between:
/// its part is not known, and the work of all of them is counted.
fn spent(before: &BTreeMap<String, ProcessTime>, after: &BTreeMap<String, ProcessTime>) -> BTreeMap<String, f64> {
    let of = |(name, end): (&String, &ProcessTime)| {
        let begin = before.get(name)?;
        let is_same = (begin.pid, begin.started_ticks) == (end.pid, end.started_ticks);
        is_same.then(|| (name.clone(), end.seconds - begin.seconds))
    };
    let seconds: Option<BTreeMap<_, _>> = after.iter().map(of).collect();
    seconds.filter(|_| before.len() == after.len()).unwrap_or_default()
}

/// Runs the user's command that kills a server, and reports its exit.
async fn disturb(command: String, tell: mpsc::Sender<Result<String, String>>) {
    let output = Command::new("sh").args(["-c", &command]).kill_on_drop(true).output();
    let ended = match tokio::time::timeout(KILL_PATIENCE, output).await {
        Ok(Ok(output)) => {
            let first = |bytes: &[u8]| -> String { String::from_utf8_lossy(bytes).chars().take(500).collect() };
            let text = format!("the command ended with {}: {}", output.status, first(&output.stdout));
            if output.status.success() {
                Ok(text)
            } else {
                Err(format!("{text} {}", first(&output.stderr)))
            }
        }
        Ok(Err(error)) => Err(format!("the command could not be run: {error}")),
        Err(_) => Err(format!("the command did not end within {} s", KILL_PATIENCE.as_secs())),
    };
    let _ = tell.send(ended).await;
}

impl Dispatcher {
    fn is_silent(&self, id: u32) -> bool {
        self.workers.get(&id).is_some_and(|w| w.heard.elapsed() > SILENCE_MAX)
    }
}
