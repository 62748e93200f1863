//! Rows of very many entries that no read returns.

use super::{put, schema, tablet, write, write_row};
use crate::Tablet;
use crate::scan::{ScanSpec, TabletScanner};
use bytes::Bytes;
use futures::poll;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use stele_types::{DeleteRule, FamilyId, Mutation, RowRange, RowSet, Timestamp};

/// Of the rows: how often a scan paused, and how many cells it found.
async fn scan(tablet: &Arc<Tablet>, rows: RowSet, reversed: bool) -> (u32, usize) {
    let spec = ScanSpec {
        rows,
        filter: None,
        reversed,
        raw: false,
        rows_limit: None,
    };
    let mut scanner = TabletScanner::new(tablet.clone(), spec);
    let (mut pauses, mut cells) = (0, 0);
    loop {
        let mut next = pin!(scanner.next_batch());
        let batch = loop {
            match poll!(&mut next) {
                Poll::Ready(batch) => break batch.unwrap(),
                Poll::Pending => pauses += 1,
            }
        };
        let Some(batch) = batch else {
            return (pauses, cells);
        };
        cells += batch.rows().map(|(_, cells)| cells.len()).sum::<usize>();
    }
}

fn delete_family() -> Mutation {
    Mutation::DeleteFamily {
        family: FamilyId(1),
        up_to: Timestamp::MAX,
    }
}

#[tokio::test]
async fn a_read_of_very_many_hidden_cells_pauses() {
    for rule in [DeleteRule::BySequence, DeleteRule::ByTimestamp] {
        let tablet = tablet(schema(rule, None)).await;
        for from in (0..100_000).step_by(1000) {
            write(&tablet, (from..from + 1000).map(|at| put(at, "v")).collect());
        }
        write(&tablet, vec![delete_family(), put(5, "there")]);
        let row = || RowSet::new(vec![RowRange::single(&Bytes::from_static(b"r"))]);
        assert!(tablet.get_row(b"r", None).unwrap().is_none(), "that read may not pause");
        assert_eq!(scan(&tablet, row(), false).await, (6, 1), "{rule:?}");
        assert_eq!(scan(&tablet, RowSet::all(), false).await, (6, 1), "{rule:?}");
        assert_eq!(scan(&tablet, RowSet::all(), true).await, (6, 1), "{rule:?}");
    }
}

/// A version that is overwritten very often is one entry for a read: it seeks past the others.
#[tokio::test]
async fn a_read_of_very_many_overwrites_pauses_not_once() {
    let tablet = tablet(schema(DeleteRule::BySequence, None)).await;
    write(&tablet, vec![put(3, "older")]);
    for _ in 0..100_000 {
        write(&tablet, vec![put(5, "v")]);
    }
    write(&tablet, vec![put(9, "newer")]);
    let read = tablet.get_row(b"r", None).unwrap();
    assert!(read.is_some_and(|batch| batch.seen.cells == 3));
    assert_eq!(scan(&tablet, RowSet::all(), false).await, (0, 3));
    assert_eq!(scan(&tablet, RowSet::all(), true).await, (0, 3));
}

#[tokio::test]
async fn the_hidden_cells_of_many_rows_count_together() {
    let tablet = tablet(schema(DeleteRule::BySequence, None)).await;
    for row in 0..40 {
        let row = Bytes::from(format!("{row:03}"));
        write_row(&tablet, row.clone(), (0..1000).map(|at| put(at, "v")).collect());
        write_row(&tablet, row, vec![delete_family()]);
    }
    assert_eq!(scan(&tablet, RowSet::all(), false).await, (2, 0));
    write_row(&tablet, Bytes::from_static(b"few"), vec![put(1, "v")]);
    for _ in 0..20_000 {
        let got = tablet.get_row(b"few", None).unwrap();
        assert!(
            got.is_some_and(|batch| batch.len() == 1),
            "reads of single rows do not add up"
        );
    }
}
