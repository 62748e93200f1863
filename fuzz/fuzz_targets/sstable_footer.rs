//! Footers of sstables: what decodes encodes to the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stele_sstable::footer::Footer;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(footer) = Footer::decode(bytes) {
        assert_eq!(footer.encode(), bytes);
    }
});
