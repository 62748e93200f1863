//! Filters as clients send them: any bytes are refused or keep filters' promises.
//!
//! The promises are checked on a few rows.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use stele_bigtable::fuzzing;
use stele_fuzz::{check_filter, schema};
use stele_types::{Cell, FamilyId, TimeUnit, Timestamp};

fuzz_target!(|bytes: &[u8]| {
    for unit in [TimeUnit::Micros, TimeUnit::Millis] {
        let Some(filter) = fuzzing::row_filter(bytes, &schema(unit, 1)) else {
            continue;
        };
        let cell = |family, qualifier: &'static [u8], timestamp, value: &'static [u8]| {
            let (qualifier, value) = (Bytes::from_static(qualifier), Bytes::from_static(value));
            Cell::put(FamilyId(family), qualifier, Timestamp(timestamp), value)
        };
        let cells = [
            cell(1, b"", 5, b"v"),
            cell(1, b"q", 3, b"\xff"),
            cell(1, b"q", 2, b""),
            cell(2, b"q", 1_000, b"v"),
            cell(2, b"\xff", -1, b"v\n"),
        ];
        for cells in [&cells[..], &cells[..1], &[]] {
            check_filter(&filter, b"row", cells, 0.5);
        }
    }
});
