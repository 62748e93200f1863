//! Request tokens make it safe to repeat a request.
//!
//! A client repeats a request of unknown outcome with the same token, and it takes effect once.

use bytes::Bytes;

/// The token of a request. Two requests for one row with the same token are one request and its repetition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestToken {
    /// Two numbers (HBase, and Bigtable for a token without a date). A server remembers it for a fixed time after the request.
    Nonce {
        /// The client.
        group: u64,
        /// The request of this client.
        nonce: u64,
    },
    /// Bytes and the time of the first attempt (Bigtable). A request whose token may have been forgotten is refused.
    Dated {
        /// At most [`TOKEN_BYTES_MAX`](crate::limits::TOKEN_BYTES_MAX) bytes.
        token: Bytes,
        /// The client's clock when it made its first attempt, in wall-clock microseconds.
        start_micros: i64,
    },
}

impl RequestToken {
    /// When the client made its first attempt, in wall-clock microseconds, if the token says so.
    pub fn start_micros(&self) -> Option<i64> {
        match self {
            RequestToken::Nonce { .. } => None,
            RequestToken::Dated { start_micros, .. } => Some(*start_micros),
        }
    }
}
