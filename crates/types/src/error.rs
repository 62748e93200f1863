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
    /// Overload, or storage that refuses requests for now: back off and retry.
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
    /// All of them. The place of a kind, from 1 on, is its number in the protocol between servers: new ones come at the end.
    pub const ALL: [ErrorKind; 13] = [
        ErrorKind::InvalidArgument,
        ErrorKind::NotFound,
        ErrorKind::AlreadyExists,
        ErrorKind::FailedPrecondition,
        ErrorKind::PermissionDenied,
        ErrorKind::ResourceExhausted,
        ErrorKind::Busy,
        ErrorKind::Unavailable,
        ErrorKind::Aborted,
        ErrorKind::Corruption,
        ErrorKind::Unimplemented,
        ErrorKind::Cancelled,
        ErrorKind::Internal,
    ];

    /// As traces name it.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::InvalidArgument => "invalid argument",
            ErrorKind::NotFound => "not found",
            ErrorKind::AlreadyExists => "already exists",
            ErrorKind::FailedPrecondition => "failed precondition",
            ErrorKind::PermissionDenied => "permission denied",
            ErrorKind::ResourceExhausted => "resource exhausted",
            ErrorKind::Busy => "busy",
            ErrorKind::Unavailable => "unavailable",
            ErrorKind::Aborted => "aborted",
            ErrorKind::Corruption => "corruption",
            ErrorKind::Unimplemented => "unimplemented",
            ErrorKind::Cancelled => "cancelled",
            ErrorKind::Internal => "internal",
        }
    }

    /// Its number in the protocol between servers.
    pub fn number(self) -> u16 {
        let place = ErrorKind::ALL.iter().position(|kind| *kind == self);
        place.map_or(0, |place| place as u16 + 1)
    }

    /// The kind of a number; [`ErrorKind::Internal`] for one that this version does not know.
    pub fn of_number(number: u16) -> ErrorKind {
        let place = usize::from(number).checked_sub(1);
        let kind = place.and_then(|place| ErrorKind::ALL.get(place));
        kind.copied().unwrap_or(ErrorKind::Internal)
    }

    /// Whether the same request may succeed later without an intervention.
    pub fn is_retryable(self) -> bool {
        matches!(self, ErrorKind::Busy | ErrorKind::Unavailable)
    }
}
