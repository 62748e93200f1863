//! Features that a client declares in its headers.
//!
//! `bigtable-features` is base64url of a serialized `FeatureFlags`, with or without padding. A header that cannot be
//! read counts as absent, because a client must not fail over an optimisation. `x-goog-api-client` and `user-agent`
//! name the client library. The Go library needs messages that end with a row, for which there is no flag.

use crate::wire::FeatureFlags;
use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use prost::Message as _;
use tonic::codegen::http::HeaderMap;

/// Bytes of serialized flags. There are a dozen so far, of two or three bytes each.
const FEATURES_BYTES_MAX: usize = 256;

const FEATURES_HEADER: &str = "bigtable-features";

/// The Go library's names for itself: in the first header with credentials, in the second always. Its reader checks
/// after every message that it is not within a row.
const GO_LIBRARY: [(&str, &str); 2] = [("x-goog-api-client", "gl-go/"), ("user-agent", "grpc-go/")];

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The properties of a client that affect its responses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Client {
    /// Empty when the client declares none.
    pub features: FeatureFlags,
    /// Whether every message of rows must end with a row.
    pub whole_rows: bool,
}

impl Client {
    /// The client that sent these headers.
    pub fn of(headers: &HeaderMap) -> Self {
        let mut flags = [0; FEATURES_BYTES_MAX];
        let features = headers
            .get(FEATURES_HEADER)
            .and_then(|value| BASE64.decode_slice(value.as_bytes(), &mut flags).ok())
            .and_then(|len| FeatureFlags::decode(flags.get(..len)?).ok())
            .unwrap_or_default();
        let whole_rows = GO_LIBRARY.iter().any(|(header, library)| {
            let value = headers.get(*header).and_then(|value| value.to_str().ok());
            value.is_some_and(|value| value.contains(library))
        });
        Client { features, whole_rows }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(header: &str) -> FeatureFlags {
        let mut headers = HeaderMap::new();
        headers.insert(FEATURES_HEADER, header.parse().unwrap());
        Client::of(&headers).features
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
        assert_eq!(Client::of(&HeaderMap::new()), Client::default());
    }

    #[test]
    fn the_go_library_is_recognised() {
        let whole_rows = |header: &'static str, library: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header, library.parse().unwrap());
            Client::of(&headers).whole_rows
        };
        assert!(whole_rows("x-goog-api-client", "gl-go/1.26.0 gccl/1.58.0 grpc/1.80.0"));
        assert!(whole_rows("user-agent", "grpc-go/1.80.0"));
        assert!(!whole_rows("x-goog-api-client", "gl-java/17 gapic/2.60.0 grpc/1.70.0"));
        assert!(!whole_rows("user-agent", "grpc-python/1.70.0 grpc-c/45.0.0"));
    }
}
