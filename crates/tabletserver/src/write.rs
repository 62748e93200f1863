//! The write path: admission, gate, latches, batch, sequence number and log, memtable, acknowledgement.
//!
//! The log (`stele_commitlog`) takes a batch in one of two ways. A writer of a large batch that finds the stream idle and
//! wants no sync logs and applies its batch itself, without waiting in between. In every other case everything that it
//! holds travels with its log record into the completion (`commit::PendingWrite`), which the log calls when the record is
//! durable. A writer of a small batch to an idle stream lets its neighbours queue theirs, and then commits them all.
//!
//! Budget of a small write to an idle stream, in addition to encoding its batch and inserting it into the memtable:
//! * its share of a system call (the append), one allocation (the response), and a place in the stream's queue;
//! * six uncontended locks (tablets, gate, latch, sequencer, twice the stream);
//! * no clock (a large batch reads it four times, see [`crate::waits`]).
//!
//! To a busy stream: also its share of a sync, and two wake-ups.

use crate::admission::{Admission, Coming};
use crate::commit::{Entered, Held, Led, Prepared, Reserved};
use crate::error::{from_log, from_tablet, not_here};
use crate::latch::{Latched, RowLatches};
use crate::log::CommitLog;
use crate::memory::WriteMemory;
use crate::options::MemtableLimits;
use crate::parts::Parts;
use crate::row_cache::RowCache;
use crate::stopping::Stopping;
use crate::tablets::{Served, Tablets};
use crate::waits::{Cause, WriteWaits};
use crate::work::FlushDemand;
use std::sync::Arc;
use std::time::Duration;
use stele_client::request::server_timestamp;
use stele_client::{ServiceError, ServiceResult};
use stele_commitlog::{LogError, Submitted, is_no_space};
use stele_env::metrics::IntCounter;
use stele_env::{Env, trace};
use stele_memory::Reservation;
use stele_storage::Storage;
use stele_tablet::{Batch, BatchBuilder, WriteSize};
use stele_types::{Durability, ErrorKind, RowWrites, TableSchema, TabletId};

/// How far the clock may have been set back since a read-modify-write gave a time, for later writes to get that time.
const GIVEN_AHEAD_MICROS_MAX: i64 = 60_000_000;
/// The same since the tablet is served here.
const SERVED_AHEAD_MICROS_MAX: i64 = 1_000_000;

/// How much memory a write takes, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extent {
    /// Of its own, until it is applied.
    pub(crate) copied: usize,
    /// Of memtables.
    pub(crate) applied: usize,
}

/// The memory and the place of a write that is not small, from before it passes a gate until it is applied.
#[derive(Default)]
pub(crate) struct Turn {
    /// Memory for the copied bytes of its batch.
    pub(crate) reservation: Option<Reservation>,
    /// Its turn as a large write.
    pub(crate) coming: Option<Coming>,
}

impl Turn {
    /// To be kept until the batch is applied, for this many bytes of memtables.
    pub(crate) fn reserve(self, applied: usize) -> Reserved {
        Reserved {
            reservation: self.reservation,
            coming: self.coming,
            applied,
            excess: None,
            rows: Vec::new(),
        }
    }
}

/// How often a write that is not small takes memory before it is refused, because the gate was shut meanwhile. Gates are
/// hardly ever shut twice within the time that one write waits.
const ENTRIES_MAX: usize = 4;

/// Bytes of memtables that one batch takes at most. A memtable that is not full has addresses for that much more; the number of
/// mutations in a request bounds nothing, because each has the key of its row once more.
const BATCH_BYTES_MAX: usize = 1 << 30;

/// The write path of a server.
pub(crate) struct WritePath {
    pub(crate) env: Env,
    pub(crate) admission: Arc<Admission>,
    pub(crate) latches: Arc<RowLatches>,
    pub(crate) row_cache: Arc<RowCache>,
    pub(crate) flushes: Arc<FlushDemand>,
    /// Counts requests that their tokens showed to be repetitions.
    pub(crate) repeated: IntCounter,
    log_root: Arc<dyn Storage>,
    /// The log is archived: the archive has only writes that survive power loss.
    is_archived: bool,
    tablets: Arc<Tablets>,
    log: Arc<CommitLog>,
    memtables: MemtableLimits,
    durability: Durability,
    /// How long a write waits for the gate of its tablet.
    wait_max: Duration,
    waits: WriteWaits,
    stopping: Stopping,
}

impl WritePath {
    /// With latches of its own.
    pub(crate) fn new(parts: &Parts) -> Self {
        WritePath {
            env: parts.context.env.clone(),
            admission: parts.admission.clone(),
            latches: Arc::default(),
            row_cache: parts.row_cache.clone(),
            flushes: parts.flushes.clone(),
            repeated: parts.metrics.repeated.clone(),
            log_root: parts.log_root.clone(),
            is_archived: parts.options.log_clock.is_some(),
            tablets: parts.tablets.clone(),
            log: parts.log.clone(),
            memtables: parts.options.memtables.clone(),
            durability: parts.options.durability,
            wait_max: parts.options.admission_wait_max,
            waits: parts.metrics.waits.clone(),
            stopping: parts.stopping.clone(),
        }
    }

    /// Writes rows of one tablet; returns when they are as durable as asked.
    pub(crate) async fn write(
        &self,
        tablet: TabletId,
        rows: &RowWrites,
        durability: Option<Durability>,
    ) -> ServiceResult<()> {
        let size = WriteSize::of(rows);
        let extent = self.extent_of(tablet, &size)?;
        let served = self.admit(tablet, extent.applied).await?;
        let (entered, turn) = match self.is_small(extent) {
            true => (self.enter(served).await?, Turn::default()),
            false => self.enter_in_turn(served, extent).await?,
        };
        check_rows(&entered, rows)?;
        check_families(&entered, &size)?;
        let batch = batch_of(rows, &size);
        let at_once = match (rows.get(0), rows.len()) {
            (Some(row), 1) => self.latches.try_share(row.row),
            _ => None,
        };
        let latched = match at_once {
            Some(latched) => latched,
            None => {
                let latched = self.latches.share(rows.iter().map(|row| row.row));
                self.waited(Cause::Latch, latched).await
            }
        };
        let batch = match dated(&entered, &latched, rows) {
            None => batch,
            Some(rows) => batch_of(&rows, &size),
        };
        let mut held = Held::new(
            entered,
            latched,
            self.row_cache.keys(tablet, rows.iter().map(|row| row.row)),
        );
        held.keep(turn.reserve(extent.applied));
        self.commit(batch, durability, held).await
    }

    /// The memory that a write of this size takes. The request has a row key once, and memtables have it with each
    /// mutation. A write is refused if its row keys would take more than all memtables may: a megabyte of mutations of
    /// one row can come to gigabytes. A part that is longer than cells may have is refused, too.
    pub(crate) fn extent_of(&self, tablet: TabletId, size: &WriteSize) -> ServiceResult<Extent> {
        size.check().map_err(ServiceError::invalid)?;
        let groups = match size.marks_rows() {
            true => self
                .tablets
                .served(tablet)?
                .tablet
                .with_schema(|schema| schema.groups.len()),
            false => 1,
        };
        let (repeated, most) = (size.repeated(groups), self.memtables.bytes_max());
        // A zero byte of a key takes two.
        let encoded = size.in_memtables(groups).saturating_add(repeated);
        if encoded > BATCH_BYTES_MAX {
            let message =
                format!("A write of {encoded} bytes of memory, the limit is {BATCH_BYTES_MAX}: write less at once");
            return Err(ServiceError::new(ErrorKind::ResourceExhausted, message));
        }
        if repeated as u64 > most {
            let message = format!(
                "Keys of rows, which are kept with each of their mutations, would take {repeated} bytes of memory, of which \
                 there are {most} for writes: write fewer mutations of a row at once"
            );
            return Err(ServiceError::new(ErrorKind::ResourceExhausted, message));
        }
        Ok(Extent {
            copied: size.without_apart(groups),
            applied: size.in_memtables(groups),
        })
    }

    /// The tablet, when the server accepts a write of about this many bytes now.
    pub(crate) async fn admit(&self, tablet: TabletId, bytes: usize) -> ServiceResult<Arc<Served>> {
        if self.stopping.is_stopping() {
            return Err(not_here(tablet));
        }
        self.admission.check_accepting()?;
        let served = self.tablets.served(tablet)?;
        self.admission.check_unflushable(tablet, || served.memtable_bytes())?;
        let load = served.tablet.write_load();
        if self.flushes.presses(tablet, load.active_bytes) {
            self.flushes.wake();
        }
        self.admission.pace(bytes, load.compaction_pressure).await?;
        Ok(served)
    }

    /// Whether a write needs neither a reservation for its batch nor a turn as a large one. No future is made for those: small
    /// writes would notice the cost of making and dropping it.
    pub(crate) fn is_small(&self, extent: Extent) -> bool {
        !WriteMemory::is_needed(extent.copied) && !self.admission.is_large(extent.applied)
    }

    /// Passes the tablet's gate: no split happens until the guard is dropped.
    pub(crate) async fn enter(&self, served: Arc<Served>) -> ServiceResult<Entered> {
        if !served.gate.try_share() {
            let waiting = self.env.timeout(self.wait_max, served.gate.share());
            self.waited(Cause::Gate, waiting).await.map_err(|_| gate_is_shut())?;
        }
        entered(served)
    }

    /// The same for a write that is not small, with the memory and the turn that it needs. It waits for a shut gate without
    /// them: the writers of one tablet could have all of them, and those of other tablets would wait.
    pub(crate) async fn enter_in_turn(&self, served: Arc<Served>, extent: Extent) -> ServiceResult<(Entered, Turn)> {
        assert!(
            !self.is_small(extent),
            "a small write passes the gate without a turn, for which it would make a future"
        );
        for _ in 0..ENTRIES_MAX {
            if !served.gate.is_open() {
                let opened = self.env.timeout(self.wait_max, served.gate.opened());
                self.waited(Cause::Gate, opened).await.map_err(|_| gate_is_shut())?;
            }
            let turn = self.turn(extent).await?;
            if served.gate.try_share() {
                return Ok((entered(served)?, turn));
            }
        }
        Err(gate_is_shut())
    }

    /// Waits for memory for a batch that is not small, and for the turn of a large write.
    async fn turn(&self, extent: Extent) -> ServiceResult<Turn> {
        let Extent { copied, applied } = extent;
        let reservation = match WriteMemory::is_needed(copied) {
            true => {
                let taken = self.admission.batches.take(copied);
                Some(self.waited(Cause::Reservation, taken).await?)
            }
            false => None,
        };
        let coming = match self.admission.is_large(applied) {
            true => Some(self.admission.let_in(applied, || self.flushes.wake()).await?),
            false => None,
        };
        Ok(Turn { reservation, coming })
    }

    /// Waits, and records the cause.
    pub(crate) async fn waited<F: Future>(&self, cause: Cause, future: F) -> F::Output {
        self.waits.until(&self.env, cause, future).await
    }

    /// The durability that the log is asked for: where an append does not outlive the process, `flush` takes a sync. Where the
    /// log is archived every write does.
    fn kept(&self, asked: Durability) -> Durability {
        let kept = match asked {
            _ if self.is_archived => Durability::Sync,
            Durability::Flush if !self.log_root.keeps_appends() => Durability::Sync,
            asked => asked,
        };
        assert!(kept >= asked, "a write is at least as durable as asked");
        kept
    }

    /// Logs and applies a batch; returns when it is as durable as asked.
    pub(crate) async fn commit(&self, batch: Batch, durability: Option<Durability>, held: Held) -> ServiceResult<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let tablet = &held.entered.tablet;
        let (stream, payload_bytes) = (self.log.stream_of(tablet.id()), batch.byte_len());
        let durability = durability.or_else(|| tablet.durability()).unwrap_or(self.durability);
        let slot = self.waited(Cause::LogQueue, stream.slot(payload_bytes));
        let slot = slot.await.map_err(from_log)?;
        let mut commit = trace::stage("commit");
        commit.note(|facts| (facts.tablet, facts.bytes) = (Some(tablet.id().0), payload_bytes as u64));
        let prepared = Prepared::new(batch, self.kept(durability), held);
        let led = match prepared.submit(slot).map_err(from_tablet)? {
            Submitted::Lead(lead, placed) => placed.lead(lead, self.waits.watch(&self.env, payload_bytes)),
            Submitted::Gathered(gathered, answer) => {
                // Requests of the same connection may write as well.
                self.env.yield_to_neighbours().await;
                drop(gathered);
                Led::HandedOver(answer)
            }
            Submitted::Queued(answer) => Led::HandedOver(answer),
            Submitted::Closed => Led::Done(Err(LogError::Closed)),
        };
        let outcome = match led {
            Led::Done(outcome) => outcome,
            Led::HandedOver(answer) => self.waited(Cause::Log, answer).await.map_err(|_| stopped())?,
        };
        outcome.map_err(|error| {
            if is_no_space(&error) {
                self.admission.met_full_disk();
            }
            from_log(error)
        })
    }
}

/// Refuses families that the tablet does not know yet, as the router may have a newer schema: its next flush would drop their cells.
pub(crate) fn check_families(served: &Served, size: &WriteSize) -> ServiceResult<()> {
    let family = size.newest_family();
    let is_known = |schema: &Arc<TableSchema>| family < schema.next_family || schema.families.contains_key(&family);
    if served.tablet.with_schema(is_known) {
        return Ok(());
    }
    let message = format!("the tablet does not know family {family} yet");
    Err(ServiceError::new(ErrorKind::Unavailable, message))
}

fn batch_of(rows: &RowWrites, size: &WriteSize) -> Batch {
    let mut builder = BatchBuilder::default();
    builder.push_rows_within(rows, size.batch());
    builder.finish()
}

/// The rows with the time of now, if the time of a server that they have is too old. A read-modify-write may have given a later one
/// since, without having seen them. Or the tablet was on another server then, which may have given later ones.
fn dated(served: &Served, latched: &Latched, rows: &RowWrites) -> Option<RowWrites> {
    let time = rows.server_time()?;
    let now = served.tablet.wall_micros();
    // After the clock was set back far, all writes would get the same time.
    let within = |micros: i64, set_back: i64| Some(micros).filter(|micros| now >= micros.saturating_sub(set_back));
    let given = within(latched.newest_given(), GIVEN_AHEAD_MICROS_MAX);
    let newest = given.max(within(served.since_micros, SERVED_AHEAD_MICROS_MAX))?;
    let unit = served
        .tablet
        .with_schema(|schema| (schema.time_unit, schema.granularity));
    let stamp = |micros| server_timestamp(unit.0, unit.1, micros);
    if time.at >= stamp(newest) {
        return None;
    }
    Some(rows.at_server_time(stamp(now.max(newest))))
}

/// The guard of a tablet whose gate is shared.
fn entered(served: Arc<Served>) -> ServiceResult<Entered> {
    let entered = Entered::new(served);
    entered.tablet.check_open().map_err(from_tablet)?;
    Ok(entered)
}

fn gate_is_shut() -> ServiceError {
    ServiceError::new(ErrorKind::Busy, "the tablet is being split or moved: retry later")
}

fn stopped() -> ServiceError {
    let message = "the server stopped before the write was acknowledged";
    ServiceError::new(ErrorKind::Aborted, message)
}

/// Every row must be the tablet's: the caller's view of the catalog may be old.
pub(crate) fn check_rows(served: &Served, rows: &RowWrites) -> ServiceResult<()> {
    let range = served.tablet.range();
    if rows.iter().all(|row| range.contains(row.row)) {
        Ok(())
    } else {
        Err(not_here(served.tablet.id()))
    }
}
