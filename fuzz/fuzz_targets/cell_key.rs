//! Cell keys: what decodes must encode to the same bytes, and the parts must agree with the whole.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stele_types::key::{KeyParts, row_prefix_len};

fuzz_target!(|bytes: &[u8]| {
    let Some(key) = stele_types::CellKey::decode(bytes) else {
        return;
    };
    assert_eq!(key.encode(), bytes);
    let parts = KeyParts::parse(bytes).expect("what decodes can be split");
    assert_eq!(row_prefix_len(bytes), Some(parts.row_end));
    assert_eq!(
        (parts.timestamp, parts.seq, parts.kind),
        (key.timestamp, key.seq, key.kind)
    );
});
