//! Compares sizes, samples and split points with the cells.

use super::files::*;
use crate::{Sstable, WriteOptions};
use futures::executor::block_on;
use proptest::prelude::*;
use std::sync::Arc;
use stele_types::CellKind;
use stele_types::key::{row_prefix, row_prefix_len};

fn table(cells: &Cells, block_bytes: usize) -> Arc<Sstable> {
    let (bytes, _) = write(
        cells,
        WriteOptions {
            block_bytes,
            ..options()
        },
    );
    open(Memory::new(bytes, false), 1 << 20).expect("just written")
}

#[test]
fn the_split_row_halves_the_bytes() {
    let table = table(&grid(3_000, 2, 100), 1_000);
    let split = block_on(table.split_row(None, None))
        .expect("reads")
        .expect("has many rows");
    let left = block_on(table.approximate_bytes(None, Some(&split))).expect("reads");
    let right = block_on(table.approximate_bytes(Some(&split), None)).expect("reads");
    assert_eq!(left + right, table.properties().data_bytes);
    assert!(left.abs_diff(right) < 3_000, "{left} and {right}");
    let quarter = block_on(table.split_row(Some(&split), None))
        .expect("reads")
        .expect("has many rows");
    let third = block_on(table.approximate_bytes(Some(&split), Some(&quarter))).expect("reads");
    assert!(third.abs_diff(right / 2) < 3_000);
}

#[test]
fn a_small_file_splits_too_and_a_single_row_does_not() {
    let cells = grid(3, 1, 10);
    let one_block = table(&cells, 32 << 10);
    let split = block_on(one_block.split_row(None, None))
        .expect("reads")
        .expect("has three rows");
    assert!(rows_of(&cells).contains(&split));
    let one_row = table(&grid(1, 2_000, 100), 1_000);
    assert_eq!(block_on(one_row.split_row(None, None)), Ok(None));
    assert_eq!(block_on(one_row.row_samples(1, None, None)), Ok(vec![]));
}

#[test]
fn samples_are_as_far_apart_as_asked() {
    let table = table(&grid(3_000, 2, 100), 1_000);
    let every = table.properties().data_bytes / 30;
    let samples = block_on(table.row_samples(every, None, None)).expect("reads");
    let expected = table.properties().data_bytes / every;
    assert!(samples.len() as u64 <= expected && samples.len() as u64 > expected * 9 / 10);
    for pair in samples.windows(2) {
        assert!(pair[0].0 < pair[1].0 && pair[1].1 - pair[0].1 >= every);
    }
    let (low, high) = (&samples[3].0, &samples[9].0);
    let within = block_on(table.row_samples(every, Some(low), Some(high))).expect("reads");
    assert!(within.len() >= 4 && within.iter().all(|(row, _)| low < row && row < high));
}

proptest! {
    #[test]
    fn boundaries_are_well_formed_and_leave_rows_on_both_sides(
        rows in prop::collection::btree_set(prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(0xff)], 0..6), 1..80),
        columns in 1usize..4, block_bytes in 64usize..1_000,
        bounds in prop::collection::vec(prop::collection::vec(0u8..3, 0..4), 0..3),
    ) {
        let mut cells = Cells::new();
        for row in &rows {
            for column in 0..columns {
                cells.insert(key(row, &[column as u8], 1, 1, CellKind::Put), vec![7; 30]);
            }
        }
        let table = table(&cells, block_bytes);
        let mut bounds: Vec<_> = bounds.iter().map(|row| row_prefix(row)).collect();
        bounds.sort();
        let lower = bounds.first().map(Vec::as_slice);
        let upper = bounds.get(1).map(Vec::as_slice);
        let within = |row: &Vec<u8>| {
            lower.is_none_or(|l| l <= row.as_slice()) && upper.is_none_or(|u| row.as_slice() < u)
        };
        let inside: Vec<_> = rows_of(&cells).into_iter().filter(within).collect();
        let split = block_on(table.split_row(lower, upper)).expect("reads");
        prop_assert_eq!(split.is_some(), inside.len() > 1, "{:?}", split);
        let samples = block_on(table.row_samples(1, lower, upper)).expect("reads");
        for row in split.into_iter().chain(samples.into_iter().map(|(row, _)| row)) {
            prop_assert_eq!(row_prefix_len(&row), Some(row.len()));
            prop_assert!(within(&row));
            prop_assert!(rows_of(&cells).iter().any(|r| *r < row));
            prop_assert!(rows_of(&cells).iter().any(|r| *r >= row));
        }
    }
}
