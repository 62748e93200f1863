//! Errors of decoding and evaluating filters.

use stele_wire::WireError;

/// Reasons to refuse a filter. All but [`FilterError::NoMemory`] are the client's mistake, so a retry cannot help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilterError {
    /// A class that is neither a filter nor a comparator of HBase.
    UnknownClass(String),
    /// A message that cannot be decoded.
    Message(WireError),
    /// Arguments that the class does not take.
    Argument(String),
    /// More nodes, levels or patterns than allowed.
    TooLarge(&'static str),
    /// The server has no memory for it now. The only reason that may pass.
    NoMemory,
    /// A stored value that the comparator cannot read.
    Value(&'static str),
}

impl std::fmt::Display for FilterError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::UnknownClass(name) => write!(f, "no such filter or comparator: {name}"),
            Self::Message(cause) => cause.fmt(f),
            Self::Argument(cause) => f.write_str(cause),
            Self::TooLarge(limit) => write!(f, "filter too large: {limit}"),
            Self::NoMemory => f.write_str("no memory for the filter"),
            Self::Value(cause) => f.write_str(cause),
        }
    }
}

impl std::error::Error for FilterError {}

impl From<WireError> for FilterError {
    fn from(cause: WireError) -> Self {
        Self::Message(cause)
    }
}

impl FilterError {
    pub(super) fn argument(cause: impl Into<String>) -> Self {
        Self::Argument(cause.into())
    }
}
