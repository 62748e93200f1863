//! Requests as clients send them: any bytes are refused or decoded.
//!
//! No part is decoded that was not counted.
//!
//! The commit log can hold and replay every write that the front end accepts.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stele_bigtable::fuzzing;
use stele_fuzz::schema;
use stele_tablet::Batch;
use stele_tablet::batch::BatchBuilder;
use stele_types::{CellKey, SeqNo, TimeUnit};

fuzz_target!(|bytes: &[u8]| {
    fuzzing::census(bytes);
    fuzzing::modify_groups(bytes);
    for (unit, granularity) in [(TimeUnit::Micros, 1_000), (TimeUnit::Millis, 1)] {
        let schema = schema(unit, granularity);
        if let Some(rows) = fuzzing::read_rows(bytes, &schema) {
            for range in rows.ranges() {
                assert!(range.end.as_ref().is_none_or(|end| *end > range.start), "{range:?}");
            }
        }
        fuzzing::read_modify_write(bytes, &schema);
        let mut builder = BatchBuilder::default();
        let one = fuzzing::mutate_row(bytes, &schema);
        for row in fuzzing::mutate_rows(bytes, &schema).into_iter().chain(one) {
            builder.push_row(&row);
        }
        let batch = builder.finish();
        if batch.is_empty() {
            continue;
        }
        let (first, last) = (SeqNo(1), SeqNo(batch.len()));
        assert_eq!(
            Batch::decode_record(batch.to_bytes(), first, last).as_ref(),
            Some(&batch)
        );
        batch.entries(first, |key, _| assert!(CellKey::decode(key).is_some()));
    }
});
