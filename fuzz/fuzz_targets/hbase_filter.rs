//! Filters of HBase clients: any bytes are refused, or evaluated on a few rows.
//!
//! Only given cells are returned, in order, and cells that a filter does not need do not change the answer.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;
use stele_hbase::filters::{FamilyVersions, FilterCell, Random, RowVerdict, ScanFilter, ScanShape};
use stele_wire::cell::CellType;
use stele_wire::messages::{Filter, decode};

// A byte of flags, then the message.
fuzz_target!(|input: &[u8]| {
    let Some((flags, bytes)) = input.split_first() else {
        return;
    };
    let Ok(filter) = decode::<Filter>("Filter", Bytes::copy_from_slice(bytes)) else {
        return;
    };
    let families = ["f", "g"].map(|family| FamilyVersions {
        family: family.into(),
        versions_max: 2,
    });
    let shape = ScanShape {
        families: families.to_vec(),
        reversed: flags & 1 != 0,
        load_on_demand: flags & 2 != 0,
        ..ScanShape::default()
    };
    let all = scan(&filter, &shape, false);
    let needed = scan(&filter, &shape, true);
    // A value that no comparator reads ends the scan, and need not be read.
    if let (Some(all), Some(needed)) = (all, needed) {
        assert_eq!(needed, all, "the answer depends on cells that the scan was spared");
    }
});

/// The keys that a scan returns; `None` if it fails.
fn scan(filter: &Filter, shape: &ScanShape, narrowed: bool) -> Option<Vec<(Bytes, FilterCell)>> {
    let random: Random = Arc::new(|| 1 << 63);
    let mut filter = ScanFilter::decode(filter, shape, &random).ok()?;
    let (ranges, needs) = (filter.row_ranges().filter(|_| narrowed), filter.needs());
    let mut rows = ["", "a", "ab", "b", "ba", "\u{7f}"];
    if shape.reversed {
        rows.reverse();
    }
    let mut answer = Vec::new();
    for row in rows.map(Bytes::from) {
        let outside = ranges
            .as_ref()
            .is_some_and(|ranges| !ranges.iter().any(|range| range.contains(&row)));
        if outside {
            continue;
        }
        if filter.all_remaining_filtered() {
            break;
        }
        let given = cells(row.len());
        let mut cells = if narrowed {
            needs.reduce(given.clone())
        } else {
            given.clone()
        };
        let verdict = filter.row(&row, &mut cells).ok()?;
        assert_eq!(verdict == RowVerdict::Kept, !cells.is_empty());
        let mut rest = given.iter();
        for cell in cells {
            let same = |given: &FilterCell| (key(given)) == key(&cell);
            assert!(rest.any(same), "a cell out of order");
            answer.push((row.clone(), cell));
        }
    }
    Some(answer)
}

fn key(cell: &FilterCell) -> (&Bytes, &Bytes, i64) {
    (&cell.family, &cell.qualifier, cell.timestamp)
}

fn cells(count: usize) -> Vec<FilterCell> {
    let cell = |family: &'static str, qualifier: &'static str, timestamp, value: &'static [u8]| FilterCell {
        family: family.into(),
        qualifier: qualifier.into(),
        timestamp,
        kind: CellType::Put,
        value: Bytes::from_static(value),
    };
    let mut cells = vec![
        cell("f", "", 5, b"v"),
        cell("f", "a", 3, b"\xff"),
        cell("f", "a", 2, b""),
        cell("f", "ab", 2, b"12345678"),
        cell("g", "a", 1, b"\0\0\0\x01\x05"),
        cell("g", "b", 1, b"v\n"),
    ];
    cells.truncate(6 - count);
    cells
}
