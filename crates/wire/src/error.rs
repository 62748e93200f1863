//! Errors of the decoders and encoders.

/// Reasons to refuse bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Fewer bytes than a length announced, or than the smallest possible value has.
    #[error("{what}: {needed} bytes expected, {found} found")]
    Truncated {
        /// The value that was being read.
        what: &'static str,
        /// Bytes that it must have.
        needed: u64,
        /// Bytes that were found.
        found: u64,
    },
    /// More bytes than allowed, or than the format can express.
    #[error("{what}: at most {limit} bytes allowed, {found} found")]
    TooLong {
        /// The value that was being read or written.
        what: &'static str,
        /// Most bytes that it may have.
        limit: u64,
        /// Bytes that it has.
        found: u64,
    },
    /// A message that is not of its type.
    #[error("{what}: {cause}")]
    Message {
        /// The message's type.
        what: &'static str,
        /// Error of the protobuf decoder.
        cause: String,
    },
    /// A value that the protocol does not allow at this place.
    #[error("{what}: {expected} expected, {found} found")]
    Unexpected {
        /// The value that was being read.
        what: &'static str,
        /// The allowed values.
        expected: &'static str,
        /// The value that was found.
        found: String,
    },
}

impl WireError {
    /// A message that is not of type `what`.
    pub(crate) fn message(what: &'static str, cause: &prost::DecodeError) -> Self {
        let cause = cause.to_string();
        Self::Message { what, cause }
    }

    /// A value other than `expected`.
    pub(crate) fn unexpected(what: &'static str, expected: &'static str, found: impl Into<String>) -> Self {
        let found = found.into();
        Self::Unexpected { what, expected, found }
    }
}
