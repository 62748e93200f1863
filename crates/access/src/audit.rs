//! The audit log: callers, their operations, resources and outcomes.
//!
//! One JSON object per line, in files `log/audit-NNNNNNNN.jsonl` of a folder of its own. A file is ended when it has
//! [`FILE_BYTES`], and the oldest are deleted beyond [`FILES_MAX`]. Neither rows nor values are written.
//!
//! A call does not wait for the log. Events wait in a bounded queue; those that do not fit are counted, and the next line
//! that is written tells how many are missing. So a slow disk costs lines, and not calls. Of refused calls some are written in
//! a second ([`refusals`]).

mod refusals;

use bytes::Bytes;
use parking_lot::Mutex;
use refusals::{Fate, Refusals};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use stele_env::Env;
use stele_env::metrics::{IntCounter, Metrics};
use stele_storage::{AppendFile, Storage, StorageError};
use tokio::sync::{mpsc, watch};

/// Events that wait to be written: some seconds of denied calls, in some megabytes.
const QUEUE_MAX: usize = 8_192;

/// Places of the queue that refused calls leave to others: a flood of them must not push an administrator's call out.
const QUEUE_RESERVED: usize = QUEUE_MAX / 2;

/// The reason in the line of a call that was given up before its outcome was known.
pub const GIVEN_UP: &str = "it was given up, and may have been carried out";

/// Events that are written together.
const BATCH_MAX: usize = 512;

/// A file that has this size is ended.
pub const FILE_BYTES: u64 = 64 << 20;

/// Files that are kept, with the one that is written.
pub const FILES_MAX: usize = 16;

/// Files that are kept, however short they are.
const SHORT_FILES_MAX: usize = 1_024;

/// Pause after a failed write.
const FAILURE_PAUSE: Duration = Duration::from_secs(5);

/// Names in an event longer than this are cut: a client chooses some of them.
const NAME_BYTES_MAX: usize = 512;

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It succeeded.
    Done,
    /// The caller may not do this.
    Denied,
    /// It was allowed and failed.
    Failed,
    /// The caller is not known.
    Unauthenticated,
}

impl Outcome {
    fn label(self) -> &'static str {
        match self {
            Outcome::Done => "done",
            Outcome::Denied => "denied",
            Outcome::Failed => "failed",
            Outcome::Unauthenticated => "unauthenticated",
        }
    }
}

/// One line.
#[derive(Clone, Debug)]
pub struct Event {
    /// The caller; empty if it is not known.
    pub who: String,
    /// How it has shown that.
    pub by: &'static str,
    /// The server that a client has called, if it was another one.
    pub from: String,
    /// The operation.
    pub operation: &'static str,
    /// Where.
    pub on: String,
    /// The outcome.
    pub outcome: Outcome,
    /// The reason of an outcome other than [`Outcome::Done`].
    pub why: String,
}

#[derive(Serialize)]
struct Line<'e> {
    /// Microseconds since 1970.
    time_us: i64,
    who: &'e str,
    by: &'e str,
    #[serde(skip_serializing_if = "str::is_empty")]
    from: &'e str,
    operation: &'e str,
    on: &'e str,
    outcome: &'e str,
    #[serde(skip_serializing_if = "str::is_empty")]
    why: &'e str,
}

#[derive(Serialize)]
struct Missing {
    time_us: i64,
    dropped: u64,
}

/// Takes events. Cloning shares it.
#[derive(Clone)]
pub struct Audit {
    queue: mpsc::Sender<Message>,
    /// Refused calls of the present second.
    refusals: Arc<Mutex<Refusals>>,
    dropped: Arc<AtomicU64>,
    /// Calls of [`Audit::flush`] that wait, also those that find no place in the queue.
    flushes: Arc<watch::Sender<usize>>,
    counters: Counters,
    env: Env,
}

/// Counts a call of [`Audit::flush`] until it is dropped.
struct Waiting<'a>(&'a watch::Sender<usize>);

impl<'a> Waiting<'a> {
    fn new(flushes: &'a watch::Sender<usize>) -> Self {
        flushes.send_modify(|waiting| *waiting += 1);
        Waiting(flushes)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|waiting| *waiting -= 1);
    }
}

#[derive(Clone)]
struct Counters {
    written: IntCounter,
    dropped: IntCounter,
}

enum Message {
    Event(i64, Event),
    /// All before it is to be durable.
    Flush(tokio::sync::oneshot::Sender<()>),
}

impl Audit {
    /// Starts the task that writes. The storage is the log's alone.
    pub async fn start(storage: Arc<dyn Storage>, env: Env, metrics: &Metrics) -> Result<Self, StorageError> {
        Self::with_limits(storage, env, metrics, FILE_BYTES, FILES_MAX).await
    }

    async fn with_limits(
        storage: Arc<dyn Storage>,
        env: Env,
        metrics: &Metrics,
        file_bytes: u64,
        files_max: usize,
    ) -> Result<Self, StorageError> {
        let counters = Counters {
            written: metrics.counter("stele_audit_events_total", "Events written to the audit log."),
            dropped: metrics.counter(
                "stele_audit_events_dropped_total",
                "Events that the audit log lacks, because it could not be written fast enough.",
            ),
        };
        let (queue, events) = mpsc::channel(QUEUE_MAX);
        let (flushes, waiting) = watch::channel(0);
        let dropped = Arc::new(AtomicU64::new(0));
        let files = Files {
            storage,
            file: None,
            file_bytes,
            files_max,
        };
        // The file is begun by the first event: a server that fails to start again and again would push out all others.
        files.storage.list(FOLDER).await?;
        let writer = Writer {
            files,
            events,
            dropped: Arc::clone(&dropped),
            flushes: waiting,
            counters: counters.clone(),
            env: env.clone(),
        };
        env.spawn_background("audit log", writer.run());
        Ok(Audit {
            queue,
            refusals: Arc::default(),
            dropped,
            flushes: Arc::new(flushes),
            counters,
            env,
        })
    }

    /// Adds an event. Never waits.
    pub fn add(&self, mut event: Event) {
        for text in [&mut event.who, &mut event.on, &mut event.why] {
            if text.len() > NAME_BYTES_MAX {
                text.truncate(text.floor_char_boundary(NAME_BYTES_MAX));
                text.push('…');
            }
        }
        let time_us = self.env.wall_micros();
        let (fate, due) = self.refusals.lock().count(time_us, &event);
        for (last_us, line) in due {
            self.send(last_us, line);
        }
        match fate {
            Fate::Written => self.put(time_us, event),
            Fate::Counted => {}
            Fate::Dropped => self.count_dropped(),
        }
    }

    /// Puts an event into the queue, if it may take a place of it.
    fn put(&self, time_us: i64, event: Event) {
        let refused = matches!(event.outcome, Outcome::Denied | Outcome::Unauthenticated);
        match refused && self.queue.capacity() < QUEUE_RESERVED {
            true => self.count_dropped(),
            false => self.send(time_us, event),
        }
    }

    /// Puts an event into the queue while it has a place at all: one that stands for many may take those that are kept for changes.
    fn send(&self, time_us: i64, event: Event) {
        if self.queue.try_send(Message::Event(time_us, event)).is_err() {
            self.count_dropped();
        }
    }

    fn count_dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
        self.counters.dropped.inc();
    }

    /// Returns when the events so far are durable, or could not be written. After failed writes the others are tried without a pause.
    pub async fn flush(&self) {
        let due = self.refusals.lock().due();
        due.into_iter().for_each(|(last_us, line)| self.send(last_us, line));
        let _waiting = Waiting::new(&self.flushes);
        let (done, written) = tokio::sync::oneshot::channel();
        if self.queue.send(Message::Flush(done)).await.is_ok() {
            let _ = written.await;
        }
    }
}

/// The files of the log.
struct Files {
    storage: Arc<dyn Storage>,
    /// The file that is written, with its number.
    file: Option<(u64, Box<dyn AppendFile>)>,
    file_bytes: u64,
    files_max: usize,
}

/// Folder whose files may be synced more than once.
const FOLDER: &str = "log/";

fn path_of(number: u64) -> String {
    format!("{FOLDER}audit-{number:08}.jsonl")
}

fn number_of(path: &str) -> Option<u64> {
    let digits = path
        .strip_prefix(FOLDER)?
        .strip_prefix("audit-")?
        .strip_suffix(".jsonl")?;
    digits.parse().ok()
}

impl Files {
    /// Begins the next file, and deletes the oldest of too many: all together have a bound in bytes. Files that are shorter,
    /// because the server has restarted, count by their bytes. Empty ones, which failed writes have left, are deleted first.
    async fn next(&mut self) -> Result<(), StorageError> {
        self.file = None;
        let listed = self.storage.list(FOLDER).await?;
        let sized = listed
            .iter()
            .filter_map(|found| Some((number_of(&found.path)?, found.len)));
        let mut files: BTreeMap<u64, u64> = sized.collect();
        for (empty, _) in files.extract_if(.., |_, len| *len == 0) {
            self.storage.delete(&path_of(empty)).await?;
        }
        let number = files.keys().next_back().map_or(1, |last| last + 1);
        let (mut bytes, mut left) = (files.values().sum::<u64>(), files.len());
        let bytes_max = self.file_bytes.saturating_mul(self.files_max.saturating_sub(1) as u64);
        for (old, len) in files {
            if bytes <= bytes_max && left < SHORT_FILES_MAX {
                break;
            }
            self.storage.delete(&path_of(old)).await?;
            (bytes, left) = (bytes - len, left - 1);
        }
        self.file = Some((number, self.storage.create(&path_of(number)).await?));
        Ok(())
    }

    async fn write(&mut self, bytes: Bytes) -> Result<(), StorageError> {
        if self.file.as_ref().is_none_or(|(_, file)| file.len() >= self.file_bytes) {
            self.next().await?;
        }
        let Some((number, file)) = &mut self.file else {
            return Ok(());
        };
        let (number, is_new) = (*number, file.is_empty());
        let written = match file.append(&[bytes]).await {
            Ok(()) => file.sync().await,
            Err(error) => Err(error),
        };
        if written.is_err() {
            // Nothing is known about the file; the next line begins another.
            self.file = None;
            if is_new {
                // Its lines count as dropped. Otherwise each attempt would leave a file, and these would push out the others.
                // A file that cannot be deleted now is mostly empty, and the next attempt deletes it.
                let _ = self.storage.delete(&path_of(number)).await;
            }
        }
        written
    }
}

/// The task that writes.
struct Writer {
    files: Files,
    events: mpsc::Receiver<Message>,
    dropped: Arc<AtomicU64>,
    flushes: watch::Receiver<usize>,
    counters: Counters,
    env: Env,
}

impl Writer {
    async fn run(mut self) {
        let mut batch = Vec::new();
        let mut is_failing = false;
        while self.events.recv_many(&mut batch, BATCH_MAX).await > 0 {
            let (mut lines, mut count, mut waiting) = (Vec::new(), 0, Vec::new());
            for message in batch.drain(..) {
                match message {
                    Message::Event(time_us, event) => {
                        count += 1;
                        encode(&mut lines, time_us, &event);
                    }
                    Message::Flush(done) => waiting.push(done),
                }
            }
            let dropped = self.dropped.swap(0, Ordering::Relaxed);
            if dropped > 0 {
                let time_us = self.env.wall_micros();
                push_line(&mut lines, &Missing { time_us, dropped });
            }
            let outcome = match lines.is_empty() {
                true => Ok(()),
                false => self.files.write(lines.into()).await,
            };
            match outcome {
                Ok(()) => {
                    self.counters.written.inc_by(count);
                    is_failing = false;
                }
                Err(error) => {
                    self.counters.dropped.inc_by(count);
                    self.dropped.fetch_add(count + dropped, Ordering::Relaxed);
                    if !std::mem::replace(&mut is_failing, true) {
                        tracing::error!(%error, "the audit log cannot be written");
                    }
                    // A full queue would take more than a minute with a pause for each batch, which a stop of the server waits for.
                    let flush = self.flushes.wait_for(|waiting| *waiting > 0);
                    let _ = self.env.timeout(FAILURE_PAUSE, flush).await;
                }
            }
            waiting.into_iter().for_each(|done: tokio::sync::oneshot::Sender<()>| {
                let _ = done.send(());
            });
        }
    }
}

fn encode(lines: &mut Vec<u8>, time_us: i64, event: &Event) {
    let line = Line {
        time_us,
        who: &event.who,
        by: event.by,
        from: &event.from,
        operation: event.operation,
        on: &event.on,
        outcome: event.outcome.label(),
        why: &event.why,
    };
    push_line(lines, &line);
}

fn push_line(lines: &mut Vec<u8>, line: &impl Serialize) {
    // Text and numbers always have a JSON form.
    if serde_json::to_writer(&mut *lines, line).is_ok() {
        lines.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_env::tokio_env::TokioRuntime;
    use stele_storage::faulty::{FaultPlan, FaultyStorage};
    use stele_storage::memory::MemoryStorage;

    fn event(who: &str) -> Event {
        Event {
            who: who.to_owned(),
            by: "token",
            from: String::new(),
            operation: "delete_table",
            on: "table n/t".to_owned(),
            outcome: Outcome::Denied,
            why: "because\n\"so\"".to_owned(),
        }
    }

    async fn lines(storage: &Arc<dyn Storage>) -> Vec<serde_json::Value> {
        let mut listed = storage.list(FOLDER).await.unwrap();
        listed.sort_by(|a, b| a.path.cmp(&b.path));
        let mut lines = Vec::new();
        for file in listed {
            let bytes = storage.read_all(&file.path).await.unwrap();
            let text = std::str::from_utf8(&bytes).unwrap().to_owned();
            lines.extend(text.lines().map(|line| serde_json::from_str(line).unwrap()));
        }
        lines
    }

    #[tokio::test]
    async fn events_are_lines_of_json() {
        let storage: Arc<dyn Storage> = MemoryStorage::new();
        let metrics = Metrics::new();
        let audit = Audit::start(Arc::clone(&storage), TokioRuntime::current(), &metrics)
            .await
            .unwrap();
        audit.add(event("alice"));
        audit.add(event(&"n".repeat(10_000)));
        audit.flush().await;
        let lines = lines(&storage).await;
        assert_eq!(lines[0]["who"], "alice");
        assert_eq!(lines[0]["why"], "because\n\"so\"");
        assert_eq!(
            (&lines[0]["outcome"], &lines[0]["operation"]),
            (&"denied".into(), &"delete_table".into())
        );
        assert!(lines[1]["who"].as_str().unwrap().len() < 600);
        assert!(metrics.render().contains("stele_audit_events_total 2"));
    }

    #[tokio::test]
    async fn a_flood_of_refused_calls_does_not_push_others_out() {
        let storage: Arc<dyn Storage> = MemoryStorage::new();
        let metrics = Metrics::new();
        let audit = Audit::start(Arc::clone(&storage), TokioRuntime::current(), &metrics)
            .await
            .unwrap();
        // Nothing is written in between: the writer is a task of this thread.
        for outcome in [Outcome::Unauthenticated, Outcome::Denied] {
            for _ in 0..2 * QUEUE_MAX {
                audit.add(Event {
                    outcome,
                    ..event("mallory")
                });
            }
        }
        audit.add(Event {
            outcome: Outcome::Done,
            ..event("root")
        });
        audit.flush().await;
        let lines = lines(&storage).await;
        let of = |outcome: &str| lines.iter().filter(|line| line["outcome"] == outcome).count();
        // The flood may last longer than a second.
        assert!(
            (1..=1_000).contains(&of("unauthenticated")),
            "{}",
            of("unauthenticated")
        );
        let more = lines
            .iter()
            .filter_map(|line| line["why"].as_str()?.strip_suffix(" more denied"));
        let more: Vec<usize> = more.map(|count| count.parse().unwrap()).collect();
        assert!((10..=100).contains(&of("denied")), "{}", of("denied"));
        assert_eq!(of("denied") - more.len() + more.iter().sum::<usize>(), 2 * QUEUE_MAX);
        assert_eq!(of("done"), 1);
        assert!(lines.iter().any(|line| line["dropped"].as_u64().is_some()));
    }

    #[tokio::test]
    async fn files_are_ended_and_deleted() {
        let storage: Arc<dyn Storage> = MemoryStorage::new();
        let env = TokioRuntime::current();
        for _ in 0..2 {
            let metrics = Metrics::new();
            let audit = Audit::with_limits(Arc::clone(&storage), env.clone(), &metrics, 400, 3)
                .await
                .unwrap();
            for n in 0..20 {
                audit.add(event(&format!("user{n}")));
                audit.flush().await;
            }
        }
        let files = storage.list(FOLDER).await.unwrap();
        let bytes: u64 = files.iter().map(|file| file.len).sum();
        assert!(files.len() >= 2 && (400..2_000).contains(&bytes), "{files:?}");
        // Starts without an event leave all as it is.
        for _ in 0..20 {
            let metrics = Metrics::new();
            let started = Audit::with_limits(Arc::clone(&storage), env.clone(), &metrics, 400, 3).await;
            started.unwrap().flush().await;
        }
        assert_eq!(storage.list(FOLDER).await.unwrap().len(), files.len());
        let last = lines(&storage).await.pop().unwrap();
        assert_eq!(last["who"], "user19");
    }

    #[tokio::test(start_paused = true)]
    async fn failed_writes_push_nothing_out() {
        let env = TokioRuntime::current();
        let disk = FaultyStorage::new(env.clone());
        let storage: Arc<dyn Storage> = disk.clone();
        let start = async || {
            let started = Audit::start(Arc::clone(&storage), env.clone(), &Metrics::new()).await;
            started.unwrap()
        };
        let audit = start().await;
        audit.add(event("first"));
        audit.flush().await;
        let audit = start().await;
        disk.set_plan(FaultPlan {
            append_error: 1.0,
            ..FaultPlan::default()
        });
        for _ in 0..SHORT_FILES_MAX + 10 {
            audit.add(Event {
                outcome: Outcome::Done,
                ..event("lost")
            });
            audit.flush().await;
        }
        disk.set_plan(FaultPlan::default());
        // As of a server that ended before it could delete it.
        storage.create(&path_of(9_999)).await.unwrap().sync().await.unwrap();
        audit.add(event("last"));
        audit.flush().await;
        let lines = lines(&storage).await;
        assert_eq!((&lines[0]["who"], &lines[1]["who"]), (&"first".into(), &"last".into()));
        assert_eq!(lines[2]["dropped"], SHORT_FILES_MAX + 10);
        assert_eq!(storage.list(FOLDER).await.unwrap().len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_flush_waits_for_no_pauses() {
        let env = TokioRuntime::current();
        let disk = FaultyStorage::new(env.clone());
        let metrics = Metrics::new();
        let audit = Audit::start(disk.clone(), env.clone(), &metrics).await.unwrap();
        disk.set_plan(FaultPlan {
            append_error: 1.0,
            ..FaultPlan::default()
        });
        for _ in 0..2 {
            for _ in 0..QUEUE_MAX {
                audit.add(Event {
                    outcome: Outcome::Done,
                    ..event("alice")
                });
            }
            // Once with a full queue, and once in a pause.
            let began = tokio::time::Instant::now();
            audit.flush().await;
            assert!(began.elapsed() < FAILURE_PAUSE, "{:?}", began.elapsed());
            audit.add(event("bob"));
            env.sleep(FAILURE_PAUSE / 2).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn events_beyond_the_queue_are_counted() {
        let storage: Arc<dyn Storage> = MemoryStorage::new();
        let metrics = Metrics::new();
        let audit = Audit::start(Arc::clone(&storage), TokioRuntime::current(), &metrics)
            .await
            .unwrap();
        // The task does not run meanwhile.
        for _ in 0..QUEUE_MAX + 10 {
            audit.add(Event {
                outcome: Outcome::Done,
                ..event("alice")
            });
        }
        assert!(metrics.render().contains("stele_audit_events_dropped_total 10"));
        audit.flush().await;
        let lines = lines(&storage).await;
        assert_eq!(lines.len(), QUEUE_MAX + 1);
        assert_eq!(lines.iter().find_map(|line| line.get("dropped")).unwrap(), 10);
    }
}
