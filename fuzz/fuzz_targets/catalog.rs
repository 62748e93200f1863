//! Catalog records and keys: any bytes are refused or survive a round trip.
//!
//! Keys have one spelling.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stele_catalog::record::access::{access_key, decode_rules, encode_rules, parse_access_key};
use stele_catalog::record::{
    NamespaceRecord, decode, decode_table, decode_tablet, encode, encode_table, encode_tablet, parse_tablet_key,
    tablet_key,
};
use stele_types::{Resource, TableName};

fuzz_target!(|bytes: &[u8]| {
    if let Ok((schema, tablet_set)) = decode_table(bytes) {
        let again = decode_table(&encode_table(&schema, tablet_set)).expect("what was encoded decodes");
        assert_eq!(again, (schema, tablet_set));
    }
    if let Ok(namespace) = decode::<NamespaceRecord>(bytes) {
        assert_eq!(decode(&encode(&namespace)), Ok(namespace));
    }
    if let Ok((range, assignment)) = decode_tablet(bytes) {
        assert_eq!(
            decode_tablet(&encode_tablet(&range, &assignment)),
            Ok((range, assignment))
        );
    }
    let table = Resource::Table(TableName::new("n", "t"));
    if let Ok(rules) = decode_rules(&table, bytes) {
        assert_eq!(decode_rules(&table, &encode_rules(&rules)), Ok(rules));
    }
    if let Ok(key) = std::str::from_utf8(bytes)
        && let Some(resource) = parse_access_key(key)
    {
        assert_eq!(access_key(&resource), key);
    }
    if let Ok(key) = std::str::from_utf8(bytes)
        && let Some((table, tablet)) = parse_tablet_key(key)
    {
        assert_eq!(tablet_key(table, tablet), key);
    }
});
