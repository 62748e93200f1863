//! Splits of tablets: which are due, and how the halves are made. `replacement` serves or drops the halves.
//!
//! Invariant: the halves share out the rows of their tablet: one ends at the row at which the other begins.

use crate::error::from_tablet;
use crate::lifecycle::Lifecycle;
use crate::parts::Parts;
use crate::replacement::{Prepared, Replacements};
use crate::tablets::{Served, Shut, Tablets};
use crate::times::Times;
use crate::work::Compactions;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use stele_assignment::splits_for_load;
use stele_client::{ServiceError, ServiceResult, SplitPolicy};
use stele_env::Env;
use stele_env::metrics::IntCounter;
use stele_tablet::{Tablet, TabletError, TabletMetrics};
use stele_types::{ErrorKind, RowRange, TabletId, limits};

/// How long a tablet is left alone when a split of it failed: an attempt flushes it, waits for its compactions, and may keep its
/// writers waiting.
const AFTER_FAILED_SPLIT: Duration = Duration::from_secs(10);
/// Most probes for tablets to split that are skipped while no file is made: a schema may have changed.
const PROBES_SKIPPED_MAX: u32 = 20;

/// The outcome of a check of all tablets for those to split. There may be ten thousand, and two checks a second.
#[derive(Default)]
struct SplitCheck {
    /// Bytes of files made so far: without another the sizes are the same.
    made_bytes: u64,
    /// Tablets served.
    tablets: usize,
    /// Whether none was too large, tried or not.
    is_idle: bool,
    /// The policy of the check.
    policy: SplitPolicy,
    /// Probes skipped since.
    left_out: u32,
}

impl SplitCheck {
    /// Whether another check would find nothing, as the last one did.
    fn may_leave_out(&mut self, made_bytes: u64, tablets: usize, policy: &SplitPolicy) -> bool {
        let is_same = self.made_bytes == made_bytes && self.tablets == tablets && self.policy == *policy;
        // Several servers divide loads, too, and loads change without a file.
        let may = is_same && policy.servers < 2 && self.is_idle && self.left_out < PROBES_SKIPPED_MAX;
        self.left_out = if may { self.left_out + 1 } else { 0 };
        assert!(
            self.left_out <= PROBES_SKIPPED_MAX,
            "a bounded number of checks is left out"
        );
        (self.made_bytes, self.tablets) = (made_bytes, tablets);
        if !is_same {
            self.policy.clone_from(policy);
        }
        may
    }
}

/// Splits tablets: finds those that are too large, and makes their halves.
pub(crate) struct Splitter {
    env: Env,
    /// Counts the bytes of files made: while it stays the same, so do sizes.
    made: TabletMetrics,
    /// Bytes at which a tablet splits whose table says nothing of it.
    tablet_bytes_max: u64,
    tablets: Arc<Tablets>,
    lifecycle: Arc<Lifecycle>,
    replacements: Arc<Replacements>,
    compactions: Arc<Compactions>,
    splits: IntCounter,
    times: Option<Arc<Times>>,
    /// Tablets that turned out to have no row to split at, with their size then: not tried again until they grow.
    indivisible: Mutex<BTreeMap<TabletId, u64>>,
    /// Tablets of which a split failed, and until when they are left alone.
    failed: Mutex<BTreeMap<TabletId, Duration>>,
    /// The last check for tablets to split.
    looked: Mutex<SplitCheck>,
}

impl Splitter {
    /// Of the tablets of a server.
    pub(crate) fn new(parts: &Parts, lifecycle: Arc<Lifecycle>, replacements: Arc<Replacements>) -> Self {
        Splitter {
            env: parts.context.env.clone(),
            made: parts.context.metrics.clone(),
            tablet_bytes_max: parts.options.tablet_bytes_max,
            tablets: parts.tablets.clone(),
            lifecycle,
            replacements,
            compactions: parts.compactions.clone(),
            splits: parts.metrics.splits.clone(),
            times: parts.times.clone(),
            indivisible: Mutex::default(),
            failed: Mutex::default(),
            looked: Mutex::default(),
        }
    }

    /// Tablets past their table's split size, or the server's, and those that have much of its load. One that could not be
    /// divided is tried again when it has doubled, one of which a split failed otherwise, after a while.
    pub(crate) fn candidates(&self, policy: &SplitPolicy) -> Vec<TabletId> {
        let mut candidates = Vec::new();
        let TabletMetrics {
            flush_bytes,
            compaction_written_bytes,
            load_bytes,
            ..
        } = &self.made;
        let made_bytes = flush_bytes.get() + compaction_written_bytes.get() + load_bytes.get();
        let mut looked = self.looked.lock();
        if looked.may_leave_out(made_bytes, self.tablets.count(), policy) {
            return candidates;
        }
        looked.is_idle = true;
        let now = self.env.now();
        let mut failed = self.failed.lock();
        failed.retain(|tablet, until| now < *until && self.tablets.is_served(*tablet));
        let mut indivisible = self.indivisible.lock();
        let all = self.tablets.all();
        let requests: u64 = all.iter().map(|served| served.traffic.requests_per_second()).sum();
        for served in all {
            let id = served.tablet.id();
            let bytes = served.tablet.state().lasting_bytes();
            let is_hot = splits_for_load(bytes, served.traffic.requests_per_second(), requests, policy.servers);
            let grown = indivisible.get(&id).is_none_or(|tried| bytes > tried * 2);
            if (is_hot || bytes > self.split_bytes(&served, policy)) && grown {
                looked.is_idle = false;
                if !failed.contains_key(&id) {
                    candidates.push(id);
                }
            }
        }
        indivisible.retain(|tablet, _| self.tablets.is_served(*tablet));
        candidates
    }

    /// Bytes above which a tablet is split.
    fn split_bytes(&self, served: &Served, policy: &SplitPolicy) -> u64 {
        let (table, own) = served.tablet.with_schema(|schema| (schema.id, schema.tablet_bytes_max));
        let limit = if own == 0 { self.tablet_bytes_max } else { own };
        let divisor = policy.divisors.get(&table).copied().unwrap_or(1).max(1);
        debug_assert!(divisor == 1 || policy.servers > 1, "one server divides no limit");
        limit / divisor
    }

    /// Ends the time for which a tablet is left alone after a split of it failed.
    #[cfg(test)]
    pub(crate) fn end_pause(&self, tablet: TabletId) {
        self.failed.lock().insert(tablet, self.env.now());
    }

    pub(crate) async fn prepare(
        &self,
        tablet: TabletId,
        halves: (TabletId, TabletId),
        at: Option<Bytes>,
    ) -> ServiceResult<Option<Bytes>> {
        let prepared = self.try_prepare(tablet, halves, at).await;
        if prepared.is_err() {
            let until = self.env.now() + AFTER_FAILED_SPLIT;
            self.failed.lock().insert(tablet, until);
        }
        prepared
    }

    async fn try_prepare(
        &self,
        tablet: TabletId,
        (left, right): (TabletId, TabletId),
        at: Option<Bytes>,
    ) -> ServiceResult<Option<Bytes>> {
        assert!(
            left != right && tablet != left && tablet != right,
            "the halves are new tablets: {left} and {right} of {tablet}"
        );
        let served = self.tablets.served(tablet)?;
        // A compaction would replace the files that the halves are made of. One that runs takes seconds: it is waited for
        // while writes still flow.
        let _held = self.compactions.hold_majors(tablet);
        let _compacting = served.tablet.stop_compactions().await;
        // Most of the memtable goes before writes are stopped for the rest.
        served.tablet.flush().await.map_err(from_tablet)?;
        let row = match at {
            Some(row) => Ok(Some(row)),
            None => served
                .tablet
                .split_row()
                .await
                .map(|row| row.and_then(|row| first_row(row, served.tablet.range()))),
        };
        let Some(row) = row.map_err(|error| self.not_divided(&served, error))? else {
            self.note_indivisible(&served);
            return Ok(None);
        };
        let gate = Shut::shut(&served).await;
        served.tablet.check_open().map_err(from_tablet)?;
        if let Some(times) = &self.times {
            times.leave().await?;
        }
        served.tablet.flush().await.map_err(from_tablet)?;
        let state = served.tablet.state();
        assert!(
            state.frozen.is_empty() && state.groups.iter().all(|group| group.active.is_empty()),
            "the halves are made of files: nothing may be left in memtables"
        );
        drop(state);
        let halves = self
            .make_halves(&served, &row, left, right)
            .await
            .map_err(|error| self.not_divided(&served, error))?;
        self.replacements.keep(Prepared {
            old: vec![tablet],
            new: halves.into(),
            gates: vec![gate],
            counter: Some(self.splits.clone()),
            is_restore: false,
        });
        Ok(Some(row))
    }

    fn note_indivisible(&self, served: &Served) {
        let bytes = served.tablet.state().lasting_bytes();
        self.indivisible.lock().insert(served.tablet.id(), bytes);
    }

    /// The error of a failed split for the master. A tablet with a damaged file is not tried again soon.
    fn not_divided(&self, served: &Served, error: TabletError) -> ServiceError {
        if error.kind() == ErrorKind::Corruption {
            self.note_indivisible(served);
        }
        from_tablet(error)
    }

    /// The caller keeps writes and compactions out.
    async fn make_halves(
        &self,
        served: &Served,
        row: &Bytes,
        left: TabletId,
        right: TabletId,
    ) -> Result<[Arc<Tablet>; 2], TabletError> {
        let tablet = &served.tablet;
        let (below, above) = tablet.divide(row, left, right).await?;
        assert!(
            below.end.as_ref() == Some(row) && above.start == *row,
            "one half ends at the row at which the other begins"
        );
        let schema = tablet.schema();
        let below = self.lifecycle.create(schema.clone(), below).await?;
        match self.lifecycle.create(schema, above).await {
            Ok(above) => {
                let halves = [below, above];
                halves.iter().for_each(|half| half.learn_from(tablet));
                Ok(halves)
            }
            Err(error) => {
                below.close();
                self.lifecycle.forget(&below).await;
                Err(error)
            }
        }
    }
}

/// A row at which the upper half of a range may begin: the given one, or its beginning if it is too long for that.
fn first_row(row: Bytes, range: &RowRange) -> Option<Bytes> {
    let row = row.slice(..row.len().min(limits::FIRST_ROW_BYTES_MAX));
    (row > range.start && range.contains(&row)).then_some(row)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_types::TableId;

    #[test]
    fn a_half_begins_at_a_row_that_is_not_too_long() {
        let long = Bytes::from(vec![b'r'; limits::ROW_KEY_BYTES_MAX]);
        let first = first_row(long.clone(), &RowRange::all()).unwrap();
        assert_eq!(first.len(), limits::FIRST_ROW_BYTES_MAX);
        let behind = RowRange {
            start: first,
            end: None,
        };
        assert_eq!(first_row(long, &behind), None);
        assert_eq!(
            first_row(Bytes::from_static(b"row"), &RowRange::all()).as_deref(),
            Some(&b"row"[..])
        );
    }

    #[test]
    fn looks_are_left_out_only_while_nothing_changes() {
        let mut look = SplitCheck::default();
        let policy = SplitPolicy::default();
        assert!(!look.may_leave_out(0, 2, &policy), "nobody has looked yet");
        look.is_idle = true;
        for _ in 0..PROBES_SKIPPED_MAX {
            assert!(look.may_leave_out(0, 2, &policy));
        }
        assert!(!look.may_leave_out(0, 2, &policy), "now and then all the same");
        assert!(look.may_leave_out(0, 2, &policy));
        assert!(!look.may_leave_out(10, 2, &policy), "a file was made");
        assert!(!look.may_leave_out(10, 3, &policy), "a tablet is there");
        let more = SplitPolicy {
            divisors: [(TableId(1), 2)].into(),
            ..policy.clone()
        };
        assert!(!look.may_leave_out(10, 3, &more), "a limit is lower");
        assert!(look.may_leave_out(10, 3, &more));
        let servers = SplitPolicy { servers: 2, ..policy };
        for _ in 0..2 {
            assert!(!look.may_leave_out(10, 3, &servers), "loads change");
        }
        look.is_idle = false;
        assert!(!look.may_leave_out(10, 3, &more), "one is to be split");
    }
}
