//! What can be wrong with a filter, and what a correct one may still run into.

use stele_types::ErrorKind;

/// Why a filter was refused, or gave up on a row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// A pattern is not RE2, or is too large.
    #[error("Error in field '{field}' : {reason}: {pattern}")]
    Pattern {
        /// The kind of filter.
        field: &'static str,
        /// What is wrong with it.
        reason: String,
        /// The pattern, escaped for display and cut to a readable length.
        pattern: String,
    },
    /// An argument is outside of what the kind takes.
    #[error("Error in field '{field}' : {reason}")]
    Argument {
        /// The kind of filter.
        field: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The tree as a whole is too deep, too large, or combines what may not be combined.
    #[error("{0}")]
    Structure(String),
    /// Evaluating the filter over one row would take more memory or work than a row may take.
    #[error("filter makes too many cells of one row: {what} passes the limit of {limit}")]
    TooManyCells {
        /// Which measure passed its limit.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
}

impl FilterError {
    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            FilterError::Pattern { .. } | FilterError::Argument { .. } | FilterError::Structure(_) => {
                ErrorKind::InvalidArgument
            }
            FilterError::TooManyCells { .. } => ErrorKind::ResourceExhausted,
        }
    }
}
