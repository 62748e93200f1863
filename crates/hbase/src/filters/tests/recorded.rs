//! Scans with random filters, and the cells that a region of HBase 2.6.4 returned.
//!
//! Lines of `testdata/filters.txt`, all bytes in hexadecimal, `-` for none:
//! * `table FAMILY:VERSIONS ...` begins a table.
//! * `cell ROW FAMILY QUALIFIER TIMESTAMP TYPE VALUE` is a cell of it, in HBase's order.
//! * `case REVERSED VERSIONS ON_DEMAND LIMIT OFFSET FILTER DONE CELLS` is a scan: its properties, the message of the
//!   filter with `@` for the Java package, whether the filter was exhausted at the end, and the numbers of the cells
//!   returned. `NUMBER=VALUE` is a cell with another value.

use crate::filters::{FamilyVersions, FilterCell, RowVerdict, ScanFilter, ScanShape};
use bytes::Bytes;
use std::sync::Arc;
use stele_wire::cell::CellType;
use stele_wire::messages::{self, decode};

const RECORDED: &str = include_str!("../../../testdata/filters.txt");

/// The Java package.
const PACKAGE: &str = "6f72672e6170616368652e6861646f6f702e68626173652e66696c7465722e";

#[derive(Default)]
struct Table {
    families: Vec<FamilyVersions>,
    cells: Vec<(Bytes, FilterCell)>,
}

fn bytes(hex: &str) -> Bytes {
    let digits: Vec<_> = hex.bytes().filter_map(|digit| char::from(digit).to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}

fn kind(code: &str) -> CellType {
    match code {
        "4" => CellType::Put,
        "8" => CellType::Delete,
        "10" => CellType::DeleteFamilyVersion,
        "12" => CellType::DeleteColumn,
        "14" => CellType::DeleteFamily,
        other => unreachable!("type {other}"),
    }
}

impl Table {
    fn add(&mut self, fields: &[&str]) {
        let cell = FilterCell {
            family: bytes(fields[1]),
            qualifier: bytes(fields[2]),
            timestamp: fields[3].parse().unwrap(),
            kind: kind(fields[4]),
            value: bytes(fields[5]),
        };
        self.cells.push((bytes(fields[0]), cell));
    }

    /// The scan of a case; if `narrowed`, only on rows and cells that the filter needs.
    fn scan(&self, fields: &[&str], narrowed: bool) -> (bool, String) {
        let raw = self.cells.iter().any(|(_, cell)| cell.kind != CellType::Put);
        let versions: u32 = fields[1].parse().unwrap();
        let mut families = self.families.clone();
        for family in &mut families {
            family.versions_max = if raw {
                versions
            } else {
                versions.min(family.versions_max)
            };
        }
        let shape = ScanShape {
            families,
            reversed: fields[0] == "1",
            load_on_demand: fields[2] == "1",
            store_limit: fields[3].parse().ok(),
            store_offset: fields[4].parse().unwrap(),
        };
        let message = decode("Filter", bytes(&fields[5].replace('@', PACKAGE))).unwrap();
        let mut filter = filter(&message, &shape);
        let ranges = filter.row_ranges().filter(|_| narrowed);
        let mut rows: Vec<_> = self.cells.chunk_by(|a, b| a.0 == b.0).collect();
        if shape.reversed {
            rows.reverse();
        }
        let mut shown = Vec::new();
        for cells in rows {
            let row = &cells[0].0;
            if ranges
                .as_ref()
                .is_some_and(|ranges| !ranges.iter().any(|range| range.contains(row)))
            {
                continue;
            }
            if filter.all_remaining_filtered() {
                break;
            }
            let mut kept: Vec<_> = cells.iter().map(|(_, cell)| cell.clone()).collect();
            if narrowed {
                kept = filter.needs().reduce(kept);
            }
            if filter.row(row, &mut kept).unwrap() == RowVerdict::Kept {
                shown.extend(kept.iter().map(|cell| self.show(row, cell)));
            }
        }
        (
            filter.is_done(),
            if shown.is_empty() {
                "-".to_owned()
            } else {
                shown.join(",")
            },
        )
    }

    fn show(&self, row: &Bytes, kept: &FilterCell) -> String {
        let same = |(stored_row, stored): &(Bytes, FilterCell)| {
            stored_row == row
                && stored.same_column(kept)
                && (stored.timestamp, stored.kind) == (kept.timestamp, kept.kind)
        };
        let at = self.cells.iter().position(same).unwrap();
        if self.cells[at].1.value == kept.value {
            return at.to_string();
        }
        let value: String = kept.value.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{at}={}", if value.is_empty() { "-" } else { &value })
    }
}

fn filter(message: &messages::Filter, shape: &ScanShape) -> ScanFilter {
    let random: crate::filters::Random = Arc::new(|| 0);
    ScanFilter::decode(message, shape, &random).unwrap()
}

/// Calls `check` with each case, its table, and its line number.
fn each_case(mut check: impl FnMut(usize, &Table, &[&str])) {
    let mut table = Table::default();
    for (number, line) in RECORDED.lines().enumerate() {
        let fields: Vec<_> = line.split(' ').collect();
        match fields[0] {
            "table" => {
                let family = |text: &&str| {
                    let (family, versions) = text.split_once(':').unwrap();
                    FamilyVersions {
                        family: Bytes::copy_from_slice(family.as_bytes()),
                        versions_max: versions.parse().unwrap(),
                    }
                };
                table = Table {
                    families: fields[1..].iter().map(family).collect(),
                    cells: Vec::new(),
                };
            }
            "cell" => table.add(&fields[1..]),
            "case" => check(number + 1, &table, &fields[1..]),
            other => unreachable!("line {}: {other}", number + 1),
        }
    }
}

#[test]
fn scans_return_what_hbase_returned() {
    let (mut cases, mut wrong) = (0, Vec::new());
    each_case(|line, table, fields| {
        let (done, cells) = table.scan(fields, false);
        let expected = (fields[6] == "1", fields[7].to_owned());
        cases += 1;
        if (done, cells.clone()) != expected {
            wrong.push(format!(
                "line {line}: {done} {cells}, HBase: {} {}",
                expected.0, expected.1
            ));
        }
    });
    assert!(wrong.is_empty(), "{} of {cases}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(cases > 300, "{cases}");
}

#[test]
fn what_a_filter_does_not_need_changes_nothing() {
    let mut wrong = Vec::new();
    each_case(|line, table, fields| {
        let (_, some) = table.scan(fields, true);
        if some != fields[7] {
            wrong.push(format!("line {line}: {some}, HBase: {}", fields[7]));
        }
    });
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}
