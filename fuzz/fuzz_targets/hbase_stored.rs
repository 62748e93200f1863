//! Data that the HBase front end keeps of namespaces, tables and snapshots.
//!
//! Any bytes are refused or shown: as the table is, and the same once stored again.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use stele_fuzz::schema;
use stele_hbase::fuzzing;
use stele_types::TimeUnit;

fuzz_target!(|bytes: &[u8]| {
    let kept = Bytes::copy_from_slice(bytes);
    fuzzing::namespace(&kept);
    fuzzing::descriptor(bytes, schema(TimeUnit::Millis, 1));
    fuzzing::snapshot(&kept, schema(TimeUnit::Millis, 1));
});
