//! A bounded log of slow calls.
//!
//! A call is *slow* if this server worked on it for the threshold or longer. The time in which a client does not take the
//! rows of a read is not counted. The log has the last slow calls, and the slowest since the start.
//!
//! A call that is answered without waiting, such as a read of a row in memory, is not timed. The others read the clock
//! twice, and a scan reads it twice for each batch of about a megabyte.

use crate::error::ServiceResult;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use stele_env::Env;
use stele_types::{ErrorKind, RowRange, RowSet, RowWrites, TableName};

/// Calls that are kept because they are the last ones. With the longest keys they take less than 150 KB.
const LAST_MAX: usize = 256;
/// Calls that are kept because they are the slowest.
const SLOWEST_MAX: usize = 64;
/// Bytes of a row key that are kept: enough to recognize a row.
const KEY_BYTES_MAX: usize = 96;

/// The kind of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// A read of one row.
    Get,
    /// A read of other rows.
    Scan,
    /// Writes of rows.
    Write,
    /// A conditional write, an increment or an append.
    RowOperation,
    /// A sample of row keys.
    Sample,
}

impl CallKind {
    /// As users read it.
    pub fn name(self) -> &'static str {
        match self {
            CallKind::Get => "get",
            CallKind::Scan => "scan",
            CallKind::Write => "write",
            CallKind::RowOperation => "row operation",
            CallKind::Sample => "sample",
        }
    }
}

/// The rows of a call: the first and the last bound, with keys that may be cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallRows {
    /// The first row.
    pub start: Bytes,
    /// The end of the last range; the last row of a write in the order of keys. `None` for the end of the table.
    pub end: Option<Bytes>,
    /// Ranges of a read, rows of a write.
    pub count: u64,
}

impl CallRows {
    /// Of a read.
    pub fn of_set(rows: &RowSet) -> Self {
        let (first, last) = (rows.ranges().first(), rows.ranges().last());
        CallRows {
            start: first.map(|range| range.start.clone()).unwrap_or_default(),
            end: last.and_then(|range| range.end.clone()),
            count: rows.ranges().len() as u64,
        }
    }

    /// Of a range.
    pub fn of_range(range: &RowRange) -> Self {
        CallRows {
            start: range.start.clone(),
            end: range.end.clone(),
            count: 1,
        }
    }

    /// Of writes.
    fn of_writes(rows: &RowWrites) -> Self {
        let keys = rows.iter().map(|row| row.row);
        CallRows {
            start: keys.clone().min().map(cut).unwrap_or_default(),
            end: keys.max().map(cut),
            count: rows.len() as u64,
        }
    }
}

/// The part of a key that is kept, as a copy of its own: a slice would keep a request in memory.
fn cut(key: &[u8]) -> Bytes {
    Bytes::copy_from_slice(key.get(..KEY_BYTES_MAX).unwrap_or(key))
}

/// A slow call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowCall {
    /// Wall-clock microseconds at its end.
    pub ended_micros: i64,
    /// The time that this server worked on it.
    pub took: Duration,
    /// The kind.
    pub kind: CallKind,
    /// The table.
    pub table: TableName,
    /// The rows.
    pub rows: CallRows,
    /// The work.
    pub work: Work,
    /// The error; `None` for a success, and for a read that the client ended.
    pub error: Option<ErrorKind>,
}

/// Counts of the work of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Rows returned or written.
    pub rows: u64,
    /// Cells that a read has seen before its filter.
    pub cells_seen: u64,
    /// Cells that passed the filter; the mutations of a write.
    pub cells_passed: u64,
    /// Blocks of files that a read has waited for.
    pub blocks_read: u64,
}

/// The log.
#[derive(Debug)]
pub struct SlowCalls {
    /// Nanoseconds; `u64::MAX` keeps no calls and reads no clock.
    threshold: AtomicU64,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// Oldest first.
    last: VecDeque<SlowCall>,
    /// Slowest first.
    slowest: Vec<SlowCall>,
    /// Slow calls since the start.
    count: u64,
}

/// The time at which a call began; `None` if nobody wants to know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch(Option<Duration>);

impl SlowCalls {
    /// Keeps calls that take this long or longer.
    pub fn new(threshold: Duration) -> Self {
        SlowCalls {
            threshold: AtomicU64::new(u64::try_from(threshold.as_nanos()).unwrap_or(u64::MAX)),
            kept: Mutex::default(),
        }
    }

    /// Keeps none.
    pub fn off() -> Self {
        Self::new(Duration::MAX)
    }

    /// The threshold; `None` when no calls are kept.
    pub fn threshold(&self) -> Option<Duration> {
        let nanos = self.threshold.load(Ordering::Relaxed);
        (nanos < u64::MAX).then(|| Duration::from_nanos(nanos))
    }

    /// How many calls were slow since the start.
    pub fn count(&self) -> u64 {
        self.kept.lock().count
    }

    /// The last slow calls, the newest first.
    pub fn last(&self) -> Vec<SlowCall> {
        self.kept.lock().last.iter().rev().cloned().collect()
    }

    /// The slowest calls since the start, the slowest first.
    pub fn slowest(&self) -> Vec<SlowCall> {
        self.kept.lock().slowest.clone()
    }

    /// A call, or a part of one, begins.
    pub(crate) fn begin(&self, env: &Env) -> Watch {
        Watch((self.threshold.load(Ordering::Relaxed) < u64::MAX).then(|| env.now()))
    }

    /// Whether this is slow.
    pub(crate) fn is_slow(&self, took: Duration) -> bool {
        u64::try_from(took.as_nanos()).unwrap_or(u64::MAX) >= self.threshold.load(Ordering::Relaxed)
    }

    /// Keeps a slow call.
    pub fn note(&self, mut call: SlowCall) {
        call.rows.start = cut(&call.rows.start);
        call.rows.end = call.rows.end.as_deref().map(cut);
        let kept = &mut *self.kept.lock();
        kept.count += 1;
        if kept.last.len() >= LAST_MAX {
            kept.last.pop_front();
        }
        kept.last.push_back(call.clone());
        let place = kept.slowest.partition_point(|other| other.took >= call.took);
        if place < SLOWEST_MAX {
            kept.slowest.truncate(SLOWEST_MAX - 1);
            kept.slowest.insert(place, call);
        }
        debug_assert!(kept.last.len() <= LAST_MAX && kept.slowest.len() <= SLOWEST_MAX);
    }

    /// A call that waits for its whole result has ended.
    pub(crate) fn ended<T>(
        &self,
        (watch, env): (Watch, &Env),
        (kind, table): (CallKind, &TableName),
        outcome: &ServiceResult<T>,
        rows: impl FnOnce() -> (CallRows, Work),
    ) {
        let took = watch.elapsed(env);
        if !self.is_slow(took) {
            return;
        }
        let (rows, work) = rows();
        self.note(SlowCall {
            ended_micros: env.wall_micros(),
            took,
            kind,
            table: table.clone(),
            rows,
            work,
            error: outcome.as_ref().err().map(|error| error.kind),
        });
    }
}

impl Watch {
    /// The time since the begin; nothing if it was not noted.
    pub(crate) fn elapsed(self, env: &Env) -> Duration {
        self.0.map_or(Duration::ZERO, |since| env.now().saturating_sub(since))
    }
}

/// The rows and the work of writes.
pub(crate) fn of_writes(rows: &RowWrites) -> (CallRows, Work) {
    let work = Work {
        rows: rows.len() as u64,
        cells_passed: rows.mutations() as u64,
        ..Work::default()
    };
    (CallRows::of_writes(rows), work)
}

/// The same of a row operation.
pub(crate) fn of_row(row: &Bytes) -> (CallRows, Work) {
    let rows = CallRows {
        start: row.clone(),
        end: Some(row.clone()),
        count: 1,
    };
    let work = Work {
        rows: 1,
        ..Work::default()
    };
    (rows, work)
}

/// The same of a sample of row keys.
pub(crate) fn of_samples(range: &RowRange, samples: usize) -> (CallRows, Work) {
    let work = Work {
        rows: samples as u64,
        ..Work::default()
    };
    (CallRows::of_range(range), work)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(millis: u64) -> SlowCall {
        SlowCall {
            ended_micros: 0,
            took: Duration::from_millis(millis),
            kind: CallKind::Scan,
            table: TableName::new("a", "t"),
            rows: CallRows {
                start: Bytes::from(vec![b'k'; 1000]),
                ..CallRows::default()
            },
            work: Work::default(),
            error: None,
        }
    }

    fn millis(calls: &[SlowCall]) -> Vec<u64> {
        calls.iter().map(|call| call.took.as_millis() as u64).collect()
    }

    #[test]
    fn the_last_and_the_slowest_are_kept() {
        let slow = SlowCalls::new(Duration::from_millis(5));
        let most = (LAST_MAX + SLOWEST_MAX) as u64;
        (1..=most).for_each(|n| slow.note(call(n)));
        slow.note(call(3));
        let (last, slowest) = (slow.last(), slow.slowest());
        assert_eq!((last.len(), slowest.len()), (LAST_MAX, SLOWEST_MAX));
        assert_eq!(millis(&last[..3]), [3, most, most - 1]);
        assert_eq!(millis(&slowest[..2]), [most, most - 1]);
        assert!(slowest.is_sorted_by_key(|call| std::cmp::Reverse(call.took)));
        assert_eq!(slow.count(), most + 1);
        assert_eq!(last[0].rows.start.len(), KEY_BYTES_MAX);
    }

    #[test]
    fn without_a_threshold_nothing_is_slow() {
        let off = SlowCalls::off();
        assert_eq!(off.threshold(), None);
        let slow = SlowCalls::new(Duration::from_millis(5));
        assert!(slow.is_slow(Duration::from_millis(5)) && !slow.is_slow(Duration::from_micros(4_999)));
    }
}
