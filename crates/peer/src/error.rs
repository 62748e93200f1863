//! Violations of the protocol. Each ends the connection on which it happens.

use crate::limits::FRAME_BYTES_MAX;

/// Bytes that violate the format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The stream does not begin like one of this protocol.
    #[error("the connection does not begin with the magic of the protocol between servers")]
    Magic,
    /// A checksum is wrong.
    #[error("the checksum of the {0} is wrong")]
    Checksum(&'static str),
    /// A length beyond the limits.
    #[error("a frame of {0} bytes, not 24 to {FRAME_BYTES_MAX}")]
    FrameLength(u32),
    /// A kind that the version does not have, or that this side does not take.
    #[error("an unexpected frame of kind {0}")]
    FrameKind(u8),
    /// Flags that the kind does not have.
    #[error("flags {flags} of a frame of kind {kind}")]
    Flags {
        /// The kind.
        kind: u8,
        /// The flags.
        flags: u8,
    },
    /// A field is wrong.
    #[error("the {what} is malformed at byte {at}: {reason}")]
    Malformed {
        /// Name of the part in the format.
        what: &'static str,
        /// Offset within the part.
        at: usize,
        /// The fault.
        reason: &'static str,
    },
    /// A request with the number of a call that runs, or of an earlier one.
    #[error("call {0} is not above the calls before it")]
    CallNumber(u64),
    /// More rows than were asked for.
    #[error("{bytes} bytes of rows for call {call}, which had granted {granted}")]
    Credit {
        /// The call.
        call: u64,
        /// Bytes that arrived.
        bytes: u64,
        /// Bytes that were granted.
        granted: u64,
    },
}
