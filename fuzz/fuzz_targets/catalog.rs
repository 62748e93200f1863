//! Catalog records and keys: any bytes are refused or survive a round trip.
//!
//! So do the records of the data root. Keys have one spelling.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stele_catalog::record::access::{access_key, decode_rules, encode_rules, parse_access_key};
use stele_catalog::record::switches::{decode_switches, encode_switches};
use stele_catalog::record::{
    NamespaceRecord, decode, decode_snapshot, decode_table, decode_tablet, encode, encode_snapshot, encode_table,
    encode_tablet, parse_tablet_key, tablet_key,
};
use stele_catalog::{ArchivedChain, decode_moment};
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
    if let Ok(snapshot) = decode_snapshot(bytes, 7) {
        assert_eq!(decode_snapshot(&encode_snapshot(&snapshot), 7), Ok(snapshot));
    }
    if let Ok(switches) = decode_switches(bytes) {
        assert_eq!(decode_switches(&encode_switches(switches)), Ok(switches));
    }
    root(bytes);
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

/// Records of the data root.
fn root(bytes: &[u8]) {
    if let Some(chain) = ArchivedChain::decode(bytes) {
        assert_eq!(&chain.encode()[..], bytes);
    }
    if let Ok(micros) = decode_moment(bytes) {
        assert_eq!(micros.to_le_bytes(), bytes);
    }
}
