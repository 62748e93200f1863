//! The `bigtable-features` header: what a client says it understands.
//!
//! It is base64url of a serialized `FeatureFlags`, with or without padding. A header that cannot be read counts as
//! absent, because a client must not fail over an optimisation.

use crate::wire::FeatureFlags;
use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use prost::Message as _;
use tonic::metadata::MetadataMap;

const HEADER: &str = "bigtable-features";

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The features of the client that sent this metadata; none when it does not say.
pub(crate) fn of(metadata: &MetadataMap) -> FeatureFlags {
    metadata
        .get(HEADER)
        .and_then(|value| BASE64.decode(value.as_encoded_bytes()).ok())
        .and_then(|bytes| FeatureFlags::decode(bytes.as_slice()).ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(header: &str) -> FeatureFlags {
        let mut metadata = MetadataMap::new();
        metadata.insert(HEADER, header.parse().unwrap());
        of(&metadata)
    }

    #[test]
    fn padding_is_optional_and_garbage_is_nothing() {
        let flags = FeatureFlags {
            reverse_scans: true,
            last_scanned_row_responses: true,
        };
        let padded = base64::engine::general_purpose::URL_SAFE.encode(flags.encode_to_vec());
        assert_eq!(parsed(&padded), flags);
        assert_eq!(parsed(padded.trim_end_matches('=')), flags);
        assert_eq!(
            parsed("CAE="),
            FeatureFlags {
                reverse_scans: true,
                last_scanned_row_responses: false
            }
        );
        assert_eq!(parsed("!!"), FeatureFlags::default());
        assert_eq!(of(&MetadataMap::new()), FeatureFlags::default());
    }
}
