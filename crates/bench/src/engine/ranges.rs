//! The ranges of a run's operations: waiting, under way, and done.
//!
//! Work has two shapes. A run of a number of operations is cut into `10 × clients` ranges once. Each is done exactly
//! once or, after a worker's death, again. A run of a number of seconds gets ranges until its end. They wrap around if
//! operation numbers are key numbers.
//!
//! Pure: its caller reports the workers that take a range, finish one, or die.

use crate::plan::{Activity, KeyOrder, Operation, Run, Stop};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// Ranges for each client: enough that a slow client does not delay the rest, few enough that each is long.
const RANGES_PER_CLIENT: u64 = 10;
/// Operations in a range of a timed run: long enough that the cost of handing it out is negligible.
const TIMED_RANGE_OPERATIONS: u64 = 1_000;

/// The ranges of one run.
#[derive(Debug)]
pub struct RangeBook {
    waiting: VecDeque<Range<u64>>,
    /// Ranges under way, by worker.
    taken: BTreeMap<u32, Vec<Range<u64>>>,
    done: Vec<Range<u64>>,
    /// Ranges that dead workers had. They may have carried out any operation of them before others do.
    lost: Vec<Range<u64>>,
    endless: Option<Endless>,
    total: u64,
    done_operations: u64,
}

/// Ranges of a timed run.
#[derive(Debug)]
struct Endless {
    next: u64,
    size: u64,
    /// Operations wrap around here.
    wrap: Option<u64>,
}

impl RangeBook {
    /// The ranges of a run.
    pub fn new(run: &Run) -> Self {
        let mut book = Self {
            waiting: VecDeque::new(),
            taken: BTreeMap::new(),
            done: Vec::new(),
            lost: Vec::new(),
            endless: None,
            total: 0,
            done_operations: 0,
        };
        let parts = RANGES_PER_CLIENT * u64::from(run.clients.max(1));
        match run.stop {
            Stop::Operations(total) => {
                book.total = total;
                book.waiting = cut(0..total, total.div_ceil(parts).max(1)).collect();
            }
            Stop::Seconds(_) => {
                let wrap = wraps_at(run);
                let size = match wrap {
                    Some(keys) => keys.div_ceil(parts).max(1),
                    None => TIMED_RANGE_OPERATIONS.max(2 * buffered_rows(run)),
                };
                book.endless = Some(Endless { next: 0, size, wrap });
            }
        }
        book
    }

    /// Operations of the run; zero for a timed run.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Operations of finished ranges.
    pub fn done_operations(&self) -> u64 {
        self.done_operations
    }

    /// Gives a worker up to `count` ranges.
    pub fn take(&mut self, worker: u32, count: u32) -> Vec<Range<u64>> {
        let mut given = Vec::new();
        for _ in 0..count {
            let Some(range) = self
                .waiting
                .pop_front()
                .or_else(|| self.endless.as_mut().map(Endless::next))
            else {
                break;
            };
            given.push(range);
        }
        self.taken.entry(worker).or_default().extend(given.iter().cloned());
        given
    }

    /// A worker has done a span: a range that it had, or a part of one.
    pub fn finish(&mut self, worker: u32, span: Range<u64>) {
        if self.take_off(worker, &span) {
            self.done.push(span);
        }
    }

    /// An operation failed in a span. Its effect is unknown, so the span is neither done nor done again.
    pub fn give_up(&mut self, worker: u32, span: &Range<u64>) {
        self.take_off(worker, span);
    }

    /// Takes a span off a worker, which keeps the rest of its range. Returns whether the worker had the span.
    fn take_off(&mut self, worker: u32, span: &Range<u64>) -> bool {
        let Some(taken) = self.taken.get_mut(&worker).filter(|_| !span.is_empty()) else {
            return false;
        };
        let Some(position) = taken.iter().position(|r| r.start <= span.start && span.end <= r.end) else {
            return false;
        };
        let whole = taken.swap_remove(position);
        let rest = [whole.start..span.start, span.end..whole.end];
        taken.extend(rest.into_iter().filter(|part| !part.is_empty()));
        self.done_operations += span.end - span.start;
        true
    }

    /// A worker is dead: its ranges go back to the waiting ones. Returns their number.
    pub fn lose(&mut self, worker: u32) -> usize {
        let lost = self.taken.remove(&worker).unwrap_or_default();
        let count = lost.len();
        self.lost.extend(lost.iter().cloned());
        for range in lost {
            self.waiting.push_front(range);
        }
        count
    }

    /// Every range that was given back.
    pub fn lost(&self) -> &[Range<u64>] {
        &self.lost
    }

    /// Whether no work is left. Never, for a timed run.
    pub fn is_done(&self) -> bool {
        self.endless.is_none() && self.waiting.is_empty() && self.taken.values().all(Vec::is_empty)
    }

    /// The spans that were done, ascending, adjacent spans joined.
    pub fn into_done(mut self) -> Vec<Range<u64>> {
        self.done.sort_by_key(|r| r.start);
        let mut joined: Vec<Range<u64>> = Vec::new();
        for span in self.done {
            match joined.last_mut() {
                Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
                _ => joined.push(span),
            }
        }
        joined
    }
}

impl Endless {
    fn next(&mut self) -> Range<u64> {
        let start = self.next;
        let end = match self.wrap {
            Some(wrap) => wrap.min(start + self.size),
            None => start + self.size,
        };
        self.next = if Some(end) == self.wrap { 0 } else { end };
        start..end
    }
}

/// Cuts a range into parts of `size`, the last one shorter.
fn cut(whole: Range<u64>, size: u64) -> impl Iterator<Item = Range<u64>> {
    let end = whole.end;
    (whole.start..end)
        .step_by(usize::try_from(size).unwrap_or(usize::MAX))
        .map(move |start| start..end.min(start + size))
}

/// The point at which operation numbers start again, where they are key numbers: the end of the key space.
fn wraps_at(run: &Run) -> Option<u64> {
    let Activity::Table(workload) = &run.activity else {
        return None;
    };
    let scans = workload.mix.iter().any(|(o, _)| matches!(o, Operation::Scan { .. }));
    (scans || workload.keys.order == KeyOrder::Sequential).then_some(workload.keys.records.max(1))
}

/// Rows that fill a client's write buffer.
fn buffered_rows(run: &Run) -> u64 {
    let Activity::Table(workload) = &run.activity else {
        return 0;
    };
    let row = u64::from(workload.values.bytes.max(1)) * u64::from(workload.values.columns.max(1));
    let buffers = workload.mix.iter().map(|(operation, _)| match operation {
        Operation::BufferedPut { buffer_bytes } => buffer_bytes / row,
        _ => 0,
    });
    buffers.max().unwrap_or(0)
}

#[cfg(test)]
#[allow(
    clippy::single_range_in_vec_init,
    clippy::panic,
    reason = "lists of one range are meant; tests may panic"
)]
mod tests {
    use super::*;
    use crate::plan::{Keys, Workload};

    fn counted(total: u64, clients: u32) -> RangeBook {
        RangeBook::new(&Run {
            clients,
            stop: Stop::Operations(total),
            ..Run::default()
        })
    }

    fn timed(records: u64, order: KeyOrder) -> RangeBook {
        let keys = Keys {
            records,
            order,
            ..Keys::default()
        };
        RangeBook::new(&Run {
            clients: 1,
            stop: Stop::Seconds(1.0),
            activity: Activity::Table(Workload {
                keys,
                ..Workload::default()
            }),
            ..Run::default()
        })
    }

    #[test]
    fn a_counted_run_is_cut_into_ten_ranges_for_each_client() {
        let mut book = counted(1_000, 4);
        let ranges = book.take(0, u32::MAX);
        assert_eq!(ranges.len(), 40);
        assert_eq!((ranges[0].clone(), ranges[39].clone()), (0..25, 975..1_000));
        assert!(!book.is_done());
        for range in ranges {
            book.finish(0, range);
        }
        assert!(book.is_done());
        assert_eq!(book.into_done(), [0..1_000]);
    }

    #[test]
    fn small_runs_are_not_cut_below_one_operation() {
        assert_eq!(counted(3, 8).take(0, u32::MAX), [0..1, 1..2, 2..3]);
        assert!(counted(0, 8).take(0, 1).is_empty());
    }

    #[test]
    fn what_a_dead_worker_had_is_given_to_another() {
        let mut book = counted(100, 1);
        let lost = book.take(1, 2);
        let kept = book.take(2, u32::MAX);
        book.finish(1, lost[0].clone());
        assert_eq!(book.lose(1), 1);
        // Too late: the worker was declared dead, and its range belongs to another.
        book.finish(1, lost[1].clone());
        for range in kept {
            book.finish(2, range);
        }
        assert!(!book.is_done());
        assert_eq!(book.take(2, 5), [lost[1].clone()]);
        book.finish(2, lost[1].clone());
        assert!(book.is_done());
        assert_eq!(book.lost(), [lost[1].clone()]);
        assert_eq!(book.into_done(), [0..100]);
    }

    #[test]
    fn a_span_in_which_something_failed_is_neither_done_nor_done_again() {
        let mut book = counted(30, 1);
        let ranges = book.take(0, u32::MAX);
        book.give_up(0, &ranges[1]);
        for range in ranges {
            book.finish(0, range);
        }
        assert!(book.is_done() && book.take(0, 1).is_empty());
        assert_eq!(book.into_done(), [0..3, 6..30]);
    }

    #[test]
    fn a_range_is_finished_in_parts_in_any_order() {
        let mut book = counted(30, 1);
        let ranges = book.take(0, u32::MAX);
        book.finish(0, 2..3);
        book.finish(0, 0..1);
        book.give_up(0, &(1..2));
        assert!(!book.is_done());
        for range in ranges {
            book.finish(0, range);
        }
        assert!(book.is_done());
        assert_eq!(book.done_operations(), 30);
        assert_eq!(book.into_done(), [0..1, 2..30]);
    }

    #[test]
    fn the_rest_of_a_dead_workers_range_is_given_to_another() {
        let mut book = counted(10, 1);
        let [range] = book.take(1, 1).try_into().unwrap();
        assert_eq!(range, 0..1);
        let mut book = timed(0, KeyOrder::Uniform);
        book.take(1, 1);
        book.finish(1, 0..400);
        book.give_up(1, &(400..401));
        assert_eq!(book.lose(1), 1);
        assert_eq!(book.take(2, 2), [401..1_000, 1_000..2_000]);
        assert_eq!(book.into_done(), [0..400]);
    }

    #[test]
    fn a_timed_sequential_run_wraps_around_at_the_end_of_the_keys() {
        let mut book = timed(25, KeyOrder::Sequential);
        let ranges = book.take(0, 10);
        assert_eq!(
            (ranges[0].clone(), ranges[8].clone(), ranges[9].clone()),
            (0..3, 24..25, 0..3)
        );
    }

    #[test]
    fn a_timed_random_run_never_repeats_an_operation() {
        let mut book = timed(25, KeyOrder::Uniform);
        assert_eq!(book.take(0, 2), [0..1_000, 1_000..2_000]);
        // Half of the second one was done when time was up.
        book.finish(0, 0..1_000);
        book.finish(0, 1_000..1_500);
        assert_eq!((book.is_done(), book.into_done()), (false, vec![0..1_500]));
    }
}
