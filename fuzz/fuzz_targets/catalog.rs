//! Catalog records and keys: any bytes are refused or survive a round trip.
//!
//! Keys have one spelling.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stele_catalog::record::{
    NamespaceRecord, TabletRecord, decode, decode_schema, encode, encode_schema, parse_tablet_key, tablet_key,
};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(schema) = decode_schema(bytes) {
        let again = decode_schema(&encode_schema(&schema)).expect("what was encoded decodes");
        assert_eq!(again, schema);
    }
    if let Ok(namespace) = decode::<NamespaceRecord>(bytes) {
        assert_eq!(decode(&encode(&namespace)), Ok(namespace));
    }
    if let Ok(tablet) = decode::<TabletRecord>(bytes) {
        assert_eq!(TabletRecord::new(&tablet.range()), tablet);
        assert_eq!(decode(&encode(&tablet)), Ok(tablet));
    }
    if let Ok(key) = std::str::from_utf8(bytes)
        && let Some((table, tablet)) = parse_tablet_key(key)
    {
        assert_eq!(tablet_key(table, tablet), key);
    }
});
