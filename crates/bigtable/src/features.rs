//! What a client says of itself in its headers.
//!
//! `bigtable-features` is base64url of a serialized `FeatureFlags`, with or without padding. A header that cannot be read
//! counts as absent, because a client must not fail over an optimisation. `x-goog-api-client` and `user-agent` name the
//! library; one of them needs a courtesy that no flag asks for.

use crate::wire::FeatureFlags;
use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use prost::Message as _;
use tonic::metadata::MetadataMap;

const FEATURES_HEADER: &str = "bigtable-features";

/// How the Go library tells itself: in the first header with credentials, in the second always. Its reader checks after
/// every message that it is not within a row.
const GO_LIBRARY: [(&str, &str); 2] = [("x-goog-api-client", "gl-go/"), ("user-agent", "grpc-go/")];

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// One client, as far as it matters to how it is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Client {
    /// None when it does not say.
    pub features: FeatureFlags,
    /// Whether every message of rows must end with a row.
    pub whole_rows: bool,
}

impl Client {
    /// The client that sent this metadata.
    pub fn of(metadata: &MetadataMap) -> Self {
        let features = metadata
            .get(FEATURES_HEADER)
            .and_then(|value| BASE64.decode(value.as_encoded_bytes()).ok())
            .and_then(|bytes| FeatureFlags::decode(bytes.as_slice()).ok())
            .unwrap_or_default();
        let whole_rows = GO_LIBRARY.iter().any(|(header, library)| {
            let value = metadata.get(*header).and_then(|value| value.to_str().ok());
            value.is_some_and(|value| value.contains(library))
        });
        Client { features, whole_rows }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(header: &str) -> FeatureFlags {
        let mut metadata = MetadataMap::new();
        metadata.insert(FEATURES_HEADER, header.parse().unwrap());
        Client::of(&metadata).features
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
        assert_eq!(Client::of(&MetadataMap::new()), Client::default());
    }

    #[test]
    fn the_go_library_is_recognised() {
        let whole_rows = |header: &'static str, library: &str| {
            let mut metadata = MetadataMap::new();
            metadata.insert(header, library.parse().unwrap());
            Client::of(&metadata).whole_rows
        };
        assert!(whole_rows("x-goog-api-client", "gl-go/1.26.0 gccl/1.58.0 grpc/1.80.0"));
        assert!(whole_rows("user-agent", "grpc-go/1.80.0"));
        assert!(!whole_rows("x-goog-api-client", "gl-java/17 gapic/2.60.0 grpc/1.70.0"));
        assert!(!whole_rows("user-agent", "grpc-python/1.70.0 grpc-c/45.0.0"));
    }
}
