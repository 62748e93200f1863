//! Filter trees: any tree is refused or keeps the promises of filters for any row.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use stele_fuzz::trees::Tree;
use stele_fuzz::{check_filter, schema, sort};
use stele_types::{Cell, FamilyId, TimeUnit, Timestamp};

/// Cells of the row; a chain of interleaves doubles them at every step.
const CELLS_MAX: usize = 24;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    row: &'a [u8],
    chance: u8,
    cells: Vec<InputCell<'a>>,
    tree: Tree<'a>,
}

#[derive(Arbitrary, Debug)]
struct InputCell<'a> {
    family: u8,
    qualifier: &'a [u8],
    timestamp: i8,
    value: &'a [u8],
}

fuzz_target!(|input: Input<'_>| {
    let Some(filter) = input.tree.filter() else {
        return;
    };
    let Ok(compiled) = filter.compile(&schema(TimeUnit::Micros, 1)) else {
        return;
    };
    let cell = |cell: &InputCell<'_>| {
        let family = FamilyId(u32::from(cell.family % 4) + 1);
        let timestamp = Timestamp(i64::from(cell.timestamp));
        Cell::put(family, bytes(cell.qualifier), timestamp, bytes(cell.value))
    };
    let mut cells: Vec<Cell> = input.cells.iter().take(CELLS_MAX).map(cell).collect();
    sort(&mut cells);
    cells.dedup_by(|a, b| (a.family, &a.qualifier, a.timestamp) == (b.family, &b.qualifier, b.timestamp));
    check_filter(&compiled, input.row, &cells, f64::from(input.chance) / 256.0);
});

fn bytes(slice: &[u8]) -> Bytes {
    Bytes::copy_from_slice(slice)
}
