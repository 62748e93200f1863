//! Catalog records and keys: any bytes are refused or survive a round trip.
//!
//! Keys have one spelling.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stele_catalog::record::{
    NamespaceRecord, TabletRecord, decode, decode_table, encode, encode_table, parse_tablet_key, tablet_key,
};

fuzz_target!(|bytes: &[u8]| {
    if let Ok((schema, tablet_set)) = decode_table(bytes) {
        let again = decode_table(&encode_table(&schema, tablet_set)).expect("what was encoded decodes");
        assert_eq!(again, (schema, tablet_set));
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
