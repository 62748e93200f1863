//! Manifests: any bytes are refused with a typed error; what decodes survives another round.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stele_tablet::Manifest;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(manifest) = Manifest::decode_file("manifest", bytes) {
        let again = Manifest::decode_file("manifest", &manifest.encode_file())
            .expect("what was encoded decodes");
        assert_eq!(again, manifest);
    }
    let _ = stele_tablet::manifest::inspect("manifest", bytes);
});
