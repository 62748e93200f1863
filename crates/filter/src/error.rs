//! Errors of a filter: mistakes found by compilation, and limits reached by evaluation.

use stele_types::ErrorKind;

/// Why a filter was refused, or failed on a row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// A pattern is not RE2, or is too large.
    #[error("Error in field '{field}' : {reason}: {pattern}")]
    Pattern {
        /// The kind of filter.
        field: &'static str,
        /// The mistake.
        reason: String,
        /// The pattern, escaped for display and cut to a readable length.
        pattern: String,
    },
    /// An argument is not allowed for this kind of filter.
    #[error("Error in field '{field}' : {reason}")]
    Argument {
        /// The kind of filter.
        field: &'static str,
        /// The mistake.
        reason: String,
    },
    /// The tree as a whole is too deep or too large, or combines filters that must not be combined.
    #[error("{0}")]
    Structure(String),
    /// The filter's copies of a row's cells take more memory than its caller has reserved. The same evaluation succeeds
    /// with more memory.
    #[error(
        "The filter's copies of the cells of one row take {bytes} bytes of memory and more, which is more than is reserved"
    )]
    NeedsMemory {
        /// Bytes found so far, in addition to the input.
        bytes: usize,
    },
    /// Evaluating the filter over one row would take more memory or work than a row may take.
    #[error("The filter produces too much for one row: the number of {what} exceeds the limit of {limit}")]
    TooManyCells {
        /// Which measure passed its limit.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
}

impl FilterError {
    /// The kind of error for callers.
    pub fn kind(&self) -> ErrorKind {
        match self {
            FilterError::Pattern { .. } | FilterError::Argument { .. } | FilterError::Structure(_) => {
                ErrorKind::InvalidArgument
            }
            FilterError::NeedsMemory { .. } | FilterError::TooManyCells { .. } => ErrorKind::ResourceExhausted,
        }
    }
}
