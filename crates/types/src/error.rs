//! Error kinds tell a caller how to react. Every error enum in the project maps onto one of these, and every front end
//! maps these onto its protocol's codes.

/// The actionable classes of failure. `Busy` and `Unavailable` are the only retryable ones. A permanent failure must
/// never be reported as one of them, because clients would retry it until their deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The request is malformed and will never succeed.
    InvalidArgument,
    /// The table, family, tablet or file does not exist.
    NotFound,
    /// The table, family or file exists already.
    AlreadyExists,
    /// The request is well-formed but the state forbids it (protected table, non-integer increment).
    FailedPrecondition,
    /// The caller may not do this.
    PermissionDenied,
    /// A limit that an immediate retry cannot lift: disk full, row too large.
    ResourceExhausted,
    /// Overload: back off and retry.
    Busy,
    /// The target is moving, opening or closing: retry.
    Unavailable,
    /// A concurrent change won: re-read, then decide.
    Aborted,
    /// Stored bytes differ from the written ones.
    Corruption,
    /// The operation does not exist in this version.
    Unimplemented,
    /// The caller cancelled the request.
    Cancelled,
    /// A bug or an unclassified failure of the machine.
    Internal,
}

impl ErrorKind {
    /// Whether the same request may succeed later without an intervention.
    pub fn is_retryable(self) -> bool {
        matches!(self, ErrorKind::Busy | ErrorKind::Unavailable)
    }
}
