//! Rows that are given in pieces.

use super::*;
use crate::TabletError;
use std::time::Duration;
use stele_filter::Filter;
use stele_types::{Cell, RowBatch, RowRange};

type Rows = Vec<(Bytes, Vec<Cell>)>;

/// Puts rows together, as strictly as a reader may.
#[derive(Default)]
struct Joiner {
    rows: Rows,
    /// Of the last row more is to come.
    is_open: bool,
    /// Pieces that were void.
    void: usize,
    partial_rows: usize,
    /// Cells of the largest batch.
    cells_max: usize,
}

impl Joiner {
    fn take(&mut self, batch: &RowBatch) {
        if self.is_open && !batch.continues {
            self.rows.pop();
            self.void += 1;
            self.is_open = false;
        }
        if batch.continues {
            assert!(self.is_open, "what goes on has begun");
        }
        self.cells_max = self.cells_max.max(batch.rows().map(|(_, cells)| cells.len()).sum());
        let mut goes_on = self.is_open;
        for (row, cells) in batch.shared_rows() {
            assert!(!cells.is_empty());
            match self.rows.last_mut().filter(|_| goes_on) {
                Some((open, before)) => {
                    assert_eq!(*open, row, "the row that goes on comes first");
                    before.extend_from_slice(cells);
                }
                None => self.rows.push((row, cells.to_vec())),
            }
            (goes_on, self.is_open) = (false, false);
        }
        if batch.unfinished {
            assert!(!batch.is_empty());
            self.is_open = true;
            self.partial_rows += 1;
        }
        if let Some(through) = &batch.scanned_through {
            let unfinished = self.rows.last().filter(|_| self.is_open);
            assert_ne!(Some(through), unfinished.map(|(row, _)| row), "more is to come of it");
        }
    }
}

/// The result of a scan in partial rows of `bytes` bytes each.
pub(super) async fn in_partial_rows(tablet: &Arc<Tablet>, spec: ScanSpec, bytes: usize) -> crate::Result<Rows> {
    let mut scanner = TabletScanner::new(tablet.clone(), spec);
    let mut joiner = Joiner::default();
    loop {
        scanner.set_partial_rows(Some(bytes));
        let Some(batch) = scanner.next_batch().await? else {
            break;
        };
        joiner.take(&batch);
    }
    assert!(!joiner.is_open, "a scan ends behind a row");
    assert_eq!(joiner.void, 0);
    Ok(joiner.rows)
}

/// Long enough for a busy machine to flush a megabyte.
const PINNED: Duration = Duration::from_secs(1);

fn all() -> ScanSpec {
    ScanSpec {
        rows: RowSet::all(),
        filter: None,
        reversed: false,
        raw: false,
        rows_limit: None,
    }
}

fn cell(n: u32, timestamp: i64, value: &'static str) -> Mutation {
    Mutation::Put {
        family: FamilyId(1),
        qualifier: Bytes::from(format!("{n:05}")),
        timestamp: Timestamp(timestamp),
        value: Bytes::from_static(value.as_bytes()),
    }
}

/// Rows `a`, `b` and `c`, of which `b` is wide.
async fn wide(cells: u32) -> Arc<Tablet> {
    let tablet = tablet(schema(DeleteRule::BySequence, None)).await;
    for row in ["a", "b", "c"] {
        let count = if row == "b" { cells } else { 3 };
        let cells = (0..count).map(|n| cell(n, 1, "old"));
        write_row(&tablet, Bytes::from_static(row.as_bytes()), cells.collect());
    }
    tablet
}

/// The wide row stays as it was when its first partial row was read, despite all later writes, flushes and compactions.
/// The rows behind it are read as they are then.
#[tokio::test]
async fn partial_rows_are_of_one_moment() {
    for (flushed, reversed) in [(false, false), (true, false), (false, true), (true, true)] {
        let tablet = wide(10_000).await;
        if flushed {
            tablet.flush().await.unwrap();
        }
        let spec = ScanSpec { reversed, ..all() };
        let mut scanner = TabletScanner::new(tablet.clone(), spec);
        scanner.set_partial_rows(Some(64 << 10));
        let mut joiner = Joiner::default();
        let mut round = 0;
        while let Some(batch) = scanner.next_batch().await.unwrap() {
            joiner.take(&batch);
            round += 1;
            let row = |row: &'static str| Bytes::from_static(row.as_bytes());
            let newer = (0..10_000).step_by(7).map(|n| cell(n, 1, "new")).collect();
            write_row(&tablet, row("b"), newer);
            write_row(&tablet, row("b"), vec![Mutation::DeleteRow { up_to: Timestamp::MAX }]);
            for after in ["a", "c"] {
                write_row(&tablet, row(after), vec![cell(0, 1, "new")]);
            }
            match round % 3 {
                0 => tablet.compact_all().await.unwrap(),
                1 => drop(tablet.flush().await.unwrap()),
                _ => {}
            }
        }
        assert!(
            joiner.partial_rows > 10 && joiner.void == 0,
            "{} {}",
            joiner.partial_rows,
            joiner.void
        );
        assert!(joiner.cells_max < 1_000, "{}", joiner.cells_max);
        if reversed {
            joiner.rows.reverse();
        }
        let counts: Vec<_> = joiner.rows.iter().map(|(_, cells)| cells.len()).collect();
        assert_eq!(counts, [3, 10_000, 3]);
        assert!(joiner.rows[1].1.iter().all(|cell| cell.value == "old"));
        let after = if reversed { 0 } else { 2 };
        assert_eq!(joiner.rows[after].1[0].value, "new");
    }
}

/// The state that an absent reader has pinned is released after a while, and the row begun again, but not for ever.
#[tokio::test]
async fn a_pinned_state_is_given_up_after_a_while() {
    let tablet = wide(10_000).await;
    let mut scanner = TabletScanner::new(tablet.clone(), all());
    scanner.set_partial_rows(Some(64 << 10));
    scanner.set_pinned(PINNED);
    let mut joiner = Joiner::default();
    let mut next = async |joiner: &mut Joiner| {
        let batch = scanner.next_batch().await?;
        batch.iter().for_each(|batch| joiner.take(batch));
        Ok::<_, TabletError>(batch.is_some())
    };
    assert!(next(&mut joiner).await.unwrap());
    let held = tablet.context.memory.bytes();
    tablet.flush().await.unwrap();
    assert!(tablet.context.memory.bytes() > held / 2, "pinned");
    assert!(next(&mut joiner).await.unwrap());
    assert_eq!((joiner.void, joiner.partial_rows), (0, 2));
    tokio::time::sleep(2 * PINNED).await;
    assert!(tablet.context.memory.bytes() < held / 2, "given up, though nobody came");
    for round in 1..3 {
        assert!(next(&mut joiner).await.unwrap());
        assert_eq!((joiner.void, joiner.is_open), (round, true), "begun again");
        write_row(&tablet, Bytes::from_static(b"d"), vec![cell(0, 1, "new")]);
        tablet.flush().await.unwrap();
        tokio::time::sleep(2 * PINNED).await;
    }
    let error = next(&mut joiner).await.unwrap_err();
    assert!(matches!(error, TabletError::Busy { .. }), "{error}");
}

/// As long as the tablet's state stays, nothing is given up.
#[tokio::test]
async fn a_slow_reader_of_a_quiet_tablet_gets_its_row() {
    let tablet = wide(10_000).await;
    let mut scanner = TabletScanner::new(tablet.clone(), all());
    scanner.set_partial_rows(Some(64 << 10));
    let mut joiner = Joiner::default();
    scanner.set_pinned(Duration::ZERO);
    while let Some(batch) = scanner.next_batch().await.unwrap() {
        joiner.take(&batch);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!((joiner.void, joiner.rows.len()), (0, 3));
}

/// A tablet that is closed keeps nothing for anybody.
#[tokio::test]
async fn a_closed_tablet_pins_nothing() {
    let tablet = wide(10_000).await;
    let mut scanner = TabletScanner::new(tablet.clone(), all());
    scanner.set_partial_rows(Some(64 << 10));
    scanner.next_batch().await.unwrap();
    let held = tablet.context.memory.bytes();
    tablet.flush().await.unwrap();
    tablet.close();
    // Freed by the flush, which polls now and then.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(tablet.context.memory.bytes() < held / 2);
}

/// A value that is larger than the memory available comes once there is more, within its row as elsewhere.
#[tokio::test]
async fn a_large_value_within_a_row_waits_for_room() {
    for flushed in [false, true] {
        let tablet = wide(10_000).await;
        let large = Bytes::from(vec![7; 5 << 20]);
        let put = Mutation::Put {
            family: FamilyId(1),
            qualifier: Bytes::from_static(b"05000!"),
            timestamp: Timestamp(1),
            value: large.clone(),
        };
        let last = Mutation::Put {
            family: FamilyId(1),
            qualifier: Bytes::from_static(b"~"),
            timestamp: Timestamp(1),
            value: large.clone(),
        };
        write_row(&tablet, Bytes::from_static(b"b"), vec![put, last]);
        if flushed {
            tablet.flush().await.unwrap();
        }
        for filter in [None, Some(Filter::ValueRegex(Bytes::from_static(b"(?s).*")))] {
            let filter = filter.map(|filter| Arc::new(filter.compile(&tablet.schema()).unwrap()));
            let mut scanner = TabletScanner::new(tablet.clone(), ScanSpec { filter, ..all() });
            scanner.set_partial_rows(Some(1 << 20));
            let (mut joiner, mut waits) = (Joiner::default(), 0);
            scanner.set_reservation(2 << 20);
            loop {
                match scanner.next_batch().await {
                    Ok(Some(batch)) => {
                        joiner.take(&batch);
                        scanner.set_reservation(2 << 20);
                    }
                    Ok(None) => break,
                    Err(TabletError::NeedsMemory { bytes }) => {
                        assert!(bytes < 6 << 20, "only the one value");
                        scanner.drop_batch();
                        scanner.set_reservation(bytes + (1 << 20));
                        waits += 1;
                    }
                    Err(error) => unreachable!("{error}"),
                }
            }
            let sizes: Vec<_> = joiner.rows.iter().map(|(_, cells)| cells.len()).collect();
            assert_eq!((sizes, joiner.void), (vec![3, 10_002, 3], 0));
            assert_eq!(joiner.rows[1].1.iter().filter(|cell| cell.value == large).count(), 2);
            assert!((2..=4).contains(&waits), "{waits}");
        }
    }
}

/// A filter that must see the whole row is given it whole, and so is a reader of the stored cells.
#[tokio::test]
async fn what_must_see_the_row_as_a_whole_does() {
    let tablet = wide(10_000).await;
    let condition = Filter::Condition {
        predicate: Box::new(Filter::QualifierRegex(Bytes::from_static(b"09999"))),
        on_true: Some(Box::new(Filter::PassAll)),
        on_false: None,
    };
    let filter = Some(Arc::new(condition.compile(&tablet.schema()).unwrap()));
    for spec in [ScanSpec { filter, ..all() }, ScanSpec { raw: true, ..all() }] {
        let mut scanner = TabletScanner::new(tablet.clone(), spec);
        scanner.set_partial_rows(Some(1 << 10));
        while let Some(batch) = scanner.next_batch().await.unwrap() {
            assert!(!batch.unfinished && !batch.continues);
        }
    }
}

/// Rows that a limit counts are whole ones, and a list of rows has wide ones in it.
#[tokio::test]
async fn limits_and_lists_count_whole_rows() {
    let tablet = wide(10_000).await;
    for reversed in [false, true] {
        for limit in 1..4 {
            let spec = ScanSpec {
                rows_limit: Some(limit),
                reversed,
                ..all()
            };
            assert_eq!(in_partial_rows(&tablet, spec, 5_000).await.unwrap().len() as u64, limit);
        }
        let rows = ["a", "aa", "b", "bb", "c"].map(|row| RowRange::single(&Bytes::from_static(row.as_bytes())));
        let spec = ScanSpec {
            rows: RowSet::new(rows.into()),
            reversed,
            ..all()
        };
        let found = in_partial_rows(&tablet, spec, 5_000).await.unwrap();
        assert_eq!(found.iter().map(|(_, cells)| cells.len()).sum::<usize>(), 10_006);
    }
}

/// A row sample decides once for a row, however often that is begun again with more memory.
#[tokio::test]
async fn a_row_that_needs_memory_is_sampled_once() {
    let tablet = tablet(schema(DeleteRule::BySequence, None)).await;
    let name = |n: u32| Bytes::from(format!("{n:02}"));
    for n in 0..64 {
        write_row(&tablet, name(n), (0..30).map(|n| cell(n, 1, "v")).collect());
    }
    // Makes enough copies that thirty cells need more than the smallest reservation.
    let copies = Filter::Interleave(vec![Filter::PassAll; 20]);
    let sample = Filter::Chain(vec![Filter::RowSample(0.5), copies.clone(), copies]);
    let filter = Arc::new(sample.compile(&tablet.schema()).unwrap());
    for reversed in [false, true] {
        let mut sampled = 0;
        for n in 0..64 {
            // On the calling thread it would be drawn before it is known whether it has to be read otherwise.
            assert_eq!(tablet.get_row(&name(n), Some(&filter)).unwrap(), None);
            let spec = ScanSpec {
                rows: RowSet::new(vec![RowRange::single(&name(n))]),
                filter: Some(filter.clone()),
                reversed,
                ..all()
            };
            let mut scanner = TabletScanner::new(tablet.clone(), spec.clone());
            scanner.set_reservation(2 << 20);
            match scanner.next_batch().await {
                Ok(batch) => assert!(batch.is_none_or(|batch| batch.is_empty())),
                Err(TabletError::NeedsMemory { .. }) => {
                    sampled += 1;
                    if n % 2 == 0 {
                        // Also by a scan that begins again, as those for writes do.
                        let before = scanner.into_sampled();
                        scanner = TabletScanner::new(tablet.clone(), spec);
                        scanner.set_sampled(before);
                    }
                    scanner.drop_batch();
                    scanner.set_reservation(64 << 20);
                    let batch = scanner.next_batch().await.unwrap().unwrap();
                    assert_eq!(batch.len(), 1, "row {n} is drawn already");
                }
                Err(error) => unreachable!("{error}"),
            }
        }
        assert!((8..=56).contains(&sampled), "{sampled} of 64");
    }
}
