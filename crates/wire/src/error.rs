//! Why bytes were refused.

/// Why bytes were refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Fewer bytes than a length said, or than the smallest possible value has.
    #[error("{what}: {needed} bytes expected, {found} found")]
    Truncated {
        /// What was being read.
        what: &'static str,
        /// Bytes that it must have.
        needed: u64,
        /// Bytes that there are.
        found: u64,
    },
    /// More bytes than allowed, or than the format can say.
    #[error("{what}: at most {limit} bytes allowed, {found} found")]
    TooLong {
        /// What was being read or written.
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
        /// What the protobuf decoder said.
        cause: String,
    },
    /// A value that the protocol does not have at this place.
    #[error("{what}: {expected} expected, {found} found")]
    Unexpected {
        /// What was being read.
        what: &'static str,
        /// What is allowed there.
        expected: &'static str,
        /// What was there.
        found: String,
    },
}

impl WireError {
    /// A message that is not of type `what`.
    pub(crate) fn message(what: &'static str, cause: &prost::DecodeError) -> Self {
        let cause = cause.to_string();
        Self::Message { what, cause }
    }

    /// Something else than `expected`.
    pub(crate) fn unexpected(what: &'static str, expected: &'static str, found: impl Into<String>) -> Self {
        let found = found.into();
        Self::Unexpected { what, expected, found }
    }
}
