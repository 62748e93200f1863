//! A deterministic runtime: one thread, a virtual clock, and one seed for every choice.
//!
//! Terms: a *task* is a spawned future; a *process* is a set of tasks that end together, as a killed process's do; a
//! *step* is one poll of one task. FoundationDB's simulator is the model (SIGMOD 2021, §4).
//!
//! * The next task is picked at random among the runnable ones, so that seeds explore schedules.
//! * The clock moves a little with each step, and jumps to the next timer when nothing is runnable. So hours of virtual
//!   time cost nothing, and a task that spins cannot keep timers from firing.
//! * Blocking work runs immediately on the caller's stack.
//! * A run has a limit of steps. At the limit, or when nothing is left to run, it fails with the names of the remaining
//!   tasks.
//! * A process can be given a processor ([`Process::give_processor`]): its steps then take as long as they really do, one after the
//!   other, while other processes run ([`processors`]). So the throughput of several servers can be measured on one core. Such runs
//!   cannot be repeated.
//! * A machine runs once, and all its processes end with the run. Otherwise a server that was not killed would stay in
//!   memory with its storage, because tasks hold the machine and the machine holds its tasks.
//! * Every decision goes into a rolling hash. A difference between two runs from one seed is a bug, in the simulator or
//!   in code that used a clock, a hash map's order or an address.
//!
//! The runtime never holds the scheduler's lock while it runs foreign code: a poll, a drop or a blocking closure.

mod processors;

use crate::network::Network;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use processors::{Processors, Turn, real_time};
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use stele_env::network::{Connection, Listener};
use stele_env::{BlockingWork, Env, Priority, Runtime};

/// Wall-clock time at the start: 2020-09-13, a round number that is a plausible date.
pub const WALL_ORIGIN_MICROS: i64 = 1_600_000_000_000_000;

/// Virtual time of one step. It is small against any timer, but not zero: a spinning task must see time pass.
const STEP: Duration = Duration::from_nanos(200);

/// The same where processes have processors, which take their own time.
const STEP_WITH_PROCESSORS: Duration = Duration::from_nanos(1);

thread_local! {
    /// The machine that runs on this thread.
    static RUNNING: RefCell<Weak<Scheduler>> = const { RefCell::new(Weak::new()) };
}

/// The virtual time of the machine that runs on this thread, for the log of its servers.
pub fn time_of_thread() -> Option<Duration> {
    let machine = RUNNING.with_borrow(Weak::upgrade)?;
    let now = machine.inner.lock().now;
    Some(now)
}

/// The reason why a run ended without a result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stalled {
    /// Nothing can run and no timer is set.
    #[error("deadlock at {at:?}: {tasks} wait for each other")]
    Deadlock {
        /// Virtual time.
        at: Duration,
        /// Names of the tasks left.
        tasks: String,
    },
    /// The limit of steps was reached.
    #[error("no end after {steps} steps, at {at:?}: {tasks}")]
    Endless {
        /// Steps made.
        steps: u64,
        /// Virtual time.
        at: Duration,
        /// Names of the tasks left.
        tasks: String,
    },
}

/// The simulated machine: processes and a clock.
#[derive(Clone)]
pub struct Sim {
    scheduler: Arc<Scheduler>,
}

/// A set of tasks that end together.
#[derive(Clone)]
pub struct Process {
    scheduler: Arc<Scheduler>,
    id: u64,
}

impl Sim {
    /// A machine that derives all randomness from `seed` and makes at most `steps_max` steps.
    pub fn new(seed: u64, steps_max: u64) -> Sim {
        let inner = Inner {
            now: Duration::ZERO,
            wall_offset_micros: 0,
            skews: BTreeMap::new(),
            rng: Pcg64::seed_from_u64(seed),
            tasks: BTreeMap::new(),
            next_task: 0,
            next_process: 0,
            dead: Vec::new(),
            asleep: BTreeMap::new(),
            processors: Processors::default(),
            ended: false,
            ready: Vec::new(),
            timers: BTreeMap::new(),
            next_timer: 0,
            steps: 0,
            steps_max,
            trace: Trace::default(),
        };
        Sim {
            scheduler: Arc::new(Scheduler {
                inner: Mutex::new(inner),
                network: Network::default(),
            }),
        }
    }

    /// A new process.
    pub fn process(&self) -> Process {
        let mut inner = self.scheduler.inner.lock();
        let id = inner.next_process;
        inner.next_process += 1;
        Process {
            scheduler: self.scheduler.clone(),
            id,
        }
    }

    /// Runs everything until `future`, a task of a process of its own, has a result; then ends all processes.
    pub fn run<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> Result<T, Stalled> {
        let result = Arc::new(Mutex::new(None));
        let slot = result.clone();
        let main = async move {
            let output = future.await;
            *slot.lock() = Some(output);
        };
        RUNNING.set(Arc::downgrade(&self.scheduler));
        self.process().spawn("main", Box::pin(main));
        let outcome = loop {
            if let Some(output) = result.lock().take() {
                break Ok(output);
            }
            if let Err(stalled) = self.scheduler.step() {
                break Err(stalled);
            }
        };
        self.scheduler.end();
        outcome
    }

    /// The network between the processes.
    pub fn network(&self) -> &Network {
        &self.scheduler.network
    }

    /// Moves the wall clock without moving time, as an operator or a time server does.
    pub fn jump_wall_clock(&self, micros: i64) {
        self.scheduler.inner.lock().wall_offset_micros += micros;
    }

    /// Adds an event to the trace: an output, an operation on storage.
    pub fn note(&self, text: &str) {
        self.scheduler.note(text);
    }

    /// Prints the noted events from now on.
    pub fn print_trace(&self) {
        self.scheduler.inner.lock().trace.prints = true;
    }

    /// A hash of all decisions and noted events so far.
    pub fn trace_hash(&self) -> u64 {
        self.scheduler.inner.lock().trace.hash
    }

    /// Steps made so far.
    pub fn steps(&self) -> u64 {
        self.scheduler.inner.lock().steps
    }
}

impl Process {
    /// Sets the wall clock of this process ahead of that of the others, or behind it.
    pub fn skew_wall_clock(&self, micros: i64) {
        self.scheduler.inner.lock().skews.insert(self.id, micros);
    }

    /// The environment of this process's tasks.
    pub fn env(&self) -> Env {
        Env::new(Arc::new(self.clone()))
    }

    /// Its number on the machine.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Ends the process: its tasks are dropped where they are, and it can start no more.
    pub fn kill(&self) {
        let dropped: Vec<BoxFuture<'static, ()>> = {
            let mut inner = self.scheduler.inner.lock();
            inner.dead.push(self.id);
            inner.trace.add(&[b'k', self.id as u8]);
            let ids: Vec<u64> = inner
                .tasks
                .iter()
                .filter(|(_, t)| t.process == self.id)
                .map(|(id, _)| *id)
                .collect();
            ids.iter()
                .filter_map(|id| inner.tasks.remove(id))
                .filter_map(|task| task.future)
                .collect()
        };
        drop(dropped);
    }

    /// Whether the process has ended.
    pub fn has_ended(&self) -> bool {
        self.scheduler.inner.lock().dead.contains(&self.id)
    }

    /// Pauses the process for this time: no task of it runs, while the others go on and time passes. A machine behaves
    /// like this when it is suspended or its processors are busy.
    pub fn stand_still(&self, time: Duration) {
        let mut inner = self.scheduler.inner.lock();
        inner.trace.add(&[b's', self.id as u8]);
        let until = inner.now.saturating_add(time);
        inner.pause(self.id, until);
    }

    /// Gives the process a processor of its own: from now on each of its steps takes the real time of its work.
    pub fn give_processor(&self) {
        self.scheduler.inner.lock().processors.add(self.id);
    }

    /// The time for which its processor has worked; zero without one.
    pub fn worked(&self) -> Duration {
        self.scheduler.inner.lock().processors.worked(self.id)
    }

    fn spawn(&self, name: &'static str, future: BoxFuture<'static, ()>) {
        let mut inner = self.scheduler.inner.lock();
        if inner.ended || inner.dead.contains(&self.id) {
            drop(inner);
            drop(future);
            return;
        }
        let id = inner.next_task;
        inner.next_task += 1;
        let waker = Waker::from(Arc::new(TaskWaker {
            scheduler: Arc::downgrade(&self.scheduler),
            id,
        }));
        inner.tasks.insert(
            id,
            Task {
                process: self.id,
                name,
                future: Some(future),
                waker,
                queued: true,
            },
        );
        inner.make_ready(self.id, id);
    }
}

impl Runtime for Process {
    fn now(&self) -> Duration {
        self.scheduler.inner.lock().now
    }

    fn wall_micros(&self) -> i64 {
        let inner = self.scheduler.inner.lock();
        let skew = inner.skews.get(&self.id).copied().unwrap_or(0);
        WALL_ORIGIN_MICROS + inner.wall_offset_micros + skew + inner.now.as_micros() as i64
    }

    fn random_u64(&self) -> u64 {
        let mut inner = self.scheduler.inner.lock();
        let drawn = inner.rng.next_u64();
        inner.trace.add(&drawn.to_le_bytes());
        drawn
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let deadline = self.now().saturating_add(duration);
        Box::pin(Sleep {
            scheduler: self.scheduler.clone(),
            deadline,
            timer: None,
        })
    }

    fn spawn(&self, _: Priority, name: &'static str, task: BoxFuture<'static, ()>) {
        Process::spawn(self, name, task);
    }

    fn run_blocking(&self, work: BlockingWork) {
        work();
    }

    fn connect(&self, address: &str) -> BoxFuture<'static, io::Result<Connection>> {
        let network = self.scheduler.network.clone();
        let (env, id, address) = (self.env(), self.id, address.to_owned());
        Box::pin(async move { network.connect(env, id, address).await })
    }

    fn listen(&self, address: &str) -> BoxFuture<'static, io::Result<Box<dyn Listener>>> {
        let listener = self.scheduler.network.listen(self.env(), self.id, address.to_owned());
        Box::pin(async { Ok(listener) })
    }
}

struct Scheduler {
    inner: Mutex<Inner>,
    network: Network,
}

struct Inner {
    now: Duration,
    wall_offset_micros: i64,
    /// By how much the wall clocks of processes are ahead.
    skews: BTreeMap<u64, i64>,
    rng: Pcg64,
    tasks: BTreeMap<u64, Task>,
    next_task: u64,
    next_process: u64,
    /// Processes that have ended.
    dead: Vec<u64>,
    /// Processes that are paused.
    asleep: BTreeMap<u64, Asleep>,
    processors: Processors,
    /// All tasks.
    ended: bool,
    /// Runnable tasks, without order.
    ready: Vec<u64>,
    /// Timers by deadline, then by creation.
    timers: BTreeMap<(Duration, u64), Waker>,
    next_timer: u64,
    steps: u64,
    steps_max: u64,
    trace: Trace,
}

/// A task that is polled next.
struct Picked {
    id: u64,
    future: BoxFuture<'static, ()>,
    waker: Waker,
    /// Whether its process has a processor.
    is_measured: bool,
}

/// A paused process.
struct Asleep {
    until: Duration,
    /// Its runnable tasks.
    ready: Vec<u64>,
}

struct Task {
    process: u64,
    name: &'static str,
    /// Absent during a poll.
    future: Option<BoxFuture<'static, ()>>,
    waker: Waker,
    /// Whether the task is in `ready`.
    queued: bool,
}

impl Scheduler {
    /// Ends all processes: their tasks are dropped, and none is started any more.
    fn end(&self) {
        let tasks = {
            let mut inner = self.inner.lock();
            inner.ended = true;
            std::mem::take(&mut inner.tasks)
        };
        drop(tasks);
        self.network.clear();
    }

    /// Polls one task.
    fn step(&self) -> Result<(), Stalled> {
        let Some(Picked {
            id,
            mut future,
            waker,
            is_measured,
        }) = self.pick()?
        else {
            return Ok(());
        };
        let began = is_measured.then(real_time);
        let done = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        let mut inner = self.inner.lock();
        if let Some(began) = began {
            inner.processors.work(began.elapsed());
        }
        // The process may have ended while its task ran.
        if done {
            inner.tasks.remove(&id);
        } else if let Some(task) = inner.tasks.get_mut(&id) {
            task.future = Some(future);
            return Ok(());
        }
        drop(inner);
        drop(future);
        Ok(())
    }

    /// The task to poll next; `None` when the picked one has ended.
    fn pick(&self) -> Result<Option<Picked>, Stalled> {
        let turn = self.inner.lock().next_of_turn();
        if turn.is_none() {
            self.fire_timers()?;
        }
        let mut inner = self.inner.lock();
        inner.steps += 1;
        let step = match inner.processors.are_none() {
            true => STEP,
            false => STEP_WITH_PROCESSORS,
        };
        inner.now += step;
        if inner.steps > inner.steps_max {
            return Err(Stalled::Endless {
                steps: inner.steps,
                at: inner.now,
                tasks: inner.names(),
            });
        }
        let id = match turn {
            Some(id) => id,
            None => {
                let Some(count) = Some(inner.ready.len() as u64).filter(|count| *count > 0) else {
                    return Ok(None);
                };
                let at = ((u128::from(inner.rng.next_u64()) * u128::from(count)) >> 64) as usize;
                inner.ready.swap_remove(at)
            }
        };
        inner.trace.add(&id.to_le_bytes());
        let Some(task) = inner.tasks.get_mut(&id) else {
            return Ok(None);
        };
        task.queued = false;
        let (process, waker) = (task.process, task.waker.clone());
        let Some(future) = task.future.take() else {
            return Ok(None);
        };
        if turn.is_none() {
            inner.begin_turn(process);
        }
        Ok(Some(Picked {
            id,
            future,
            waker,
            is_measured: inner.processors.have_turn(),
        }))
    }

    /// Wakes the timers that are due; moves to the next timer when no task can run.
    fn fire_timers(&self) -> Result<(), Stalled> {
        let due: Vec<Waker> = {
            let mut inner = self.inner.lock();
            if inner.ready.is_empty() {
                match inner.next_event() {
                    Some(at) => inner.now = inner.now.max(at),
                    None => {
                        return Err(Stalled::Deadlock {
                            at: inner.now,
                            tasks: inner.names(),
                        });
                    }
                }
            }
            inner.wake_processes();
            let from = (inner.now + Duration::from_nanos(1), 0);
            let later = inner.timers.split_off(&from);
            std::mem::replace(&mut inner.timers, later).into_values().collect()
        };
        due.into_iter().for_each(Waker::wake);
        Ok(())
    }

    fn wake(&self, id: u64) {
        let mut inner = self.inner.lock();
        if let Some(task) = inner.tasks.get_mut(&id)
            && !std::mem::replace(&mut task.queued, true)
        {
            let process = task.process;
            inner.make_ready(process, id);
        }
    }

    fn note(&self, text: &str) {
        let mut inner = self.inner.lock();
        let now = inner.now;
        inner.trace.note(now, text);
    }
}

impl Inner {
    /// Makes a task runnable, once its process is not paused.
    fn make_ready(&mut self, process: u64, task: u64) {
        match self.asleep.get_mut(&process) {
            Some(asleep) => asleep.ready.push(task),
            None => self.ready.push(task),
        }
    }

    /// Lets no task of a process run until then.
    fn pause(&mut self, process: u64, until: Duration) {
        let stopped = self.take_ready(process);
        let asleep = self.asleep.entry(process).or_insert(Asleep {
            until,
            ready: Vec::new(),
        });
        asleep.until = until;
        asleep.ready.extend(stopped);
    }

    /// Takes the runnable tasks of a process away.
    fn take_ready(&mut self, process: u64) -> Vec<u64> {
        let of_it = |id: &u64| self.tasks.get(id).is_some_and(|task| task.process == process);
        let (own, others) = std::mem::take(&mut self.ready).into_iter().partition(of_it);
        self.ready = others;
        own
    }

    /// The next task of the turn of a process with a processor. At the end of the turn its process is paused for the time of its work.
    fn next_of_turn(&mut self) -> Option<u64> {
        match self.processors.next()? {
            Turn::Goes(task) => Some(task),
            Turn::Ends(process, worked) => {
                let until = self.now.saturating_add(worked);
                self.pause(process, until);
                None
            }
        }
    }

    /// Begins the turn of a process, if it has a processor: all its tasks that are runnable now run one after the other.
    fn begin_turn(&mut self, process: u64) {
        if !self.processors.has(process) {
            return;
        }
        let own = self.take_ready(process);
        self.processors.begin_turn(process, own);
    }

    /// The time of the next timer or the end of the next pause, whichever is first.
    fn next_event(&self) -> Option<Duration> {
        let timer = self.timers.keys().next().map(|(deadline, _)| *deadline);
        let process = self.asleep.values().map(|asleep| asleep.until).min();
        timer.into_iter().chain(process).min()
    }

    /// Ends the pauses that are due.
    fn wake_processes(&mut self) {
        let now = self.now;
        let woken = self.asleep.extract_if(.., |_, asleep| asleep.until <= now);
        self.ready.extend(woken.flat_map(|(_, asleep)| asleep.ready));
    }

    /// The remaining tasks, each name once.
    fn names(&self) -> String {
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        self.tasks
            .values()
            .for_each(|task| *counts.entry(task.name).or_default() += 1);
        let names: Vec<String> = counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
        names.join(", ")
    }
}

struct TaskWaker {
    scheduler: Weak<Scheduler>,
    id: u64,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(scheduler) = self.scheduler.upgrade() {
            scheduler.wake(self.id);
        }
    }
}

struct Sleep {
    scheduler: Arc<Scheduler>,
    deadline: Duration,
    /// The timer set by the latest poll.
    timer: Option<u64>,
}

impl Sleep {
    fn unset(&mut self, inner: &mut Inner) {
        if let Some(timer) = self.timer.take() {
            inner.timers.remove(&(self.deadline, timer));
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let scheduler = this.scheduler.clone();
        let mut inner = scheduler.inner.lock();
        this.unset(&mut inner);
        if inner.now >= this.deadline {
            return Poll::Ready(());
        }
        let timer = inner.next_timer;
        inner.next_timer += 1;
        inner.timers.insert((this.deadline, timer), cx.waker().clone());
        this.timer = Some(timer);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let scheduler = self.scheduler.clone();
        let mut inner = scheduler.inner.lock();
        self.unset(&mut inner);
    }
}

/// A rolling FNV-1a hash of all events.
struct Trace {
    hash: u64,
    prints: bool,
}

impl Default for Trace {
    fn default() -> Self {
        Trace {
            hash: 0xcbf2_9ce4_8422_2325,
            prints: false,
        }
    }
}

impl Trace {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn note(&mut self, now: Duration, text: &str) {
        self.add(text.as_bytes());
        if self.prints {
            println!("{:>12.6} {text}", now.as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests;
