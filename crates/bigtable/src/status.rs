//! Maps error kinds to gRPC codes, in one place.
//!
//! Clients retry UNAVAILABLE and ABORTED until their deadline, so only retryable kinds and lost races map to those.

use stele_client::ServiceError;
use stele_types::ErrorKind;
use tonic::{Code, Status};

/// The code of a kind.
pub(crate) fn code(kind: ErrorKind) -> Code {
    match kind {
        ErrorKind::InvalidArgument => Code::InvalidArgument,
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::AlreadyExists => Code::AlreadyExists,
        ErrorKind::FailedPrecondition => Code::FailedPrecondition,
        ErrorKind::PermissionDenied => Code::PermissionDenied,
        ErrorKind::ResourceExhausted => Code::ResourceExhausted,
        ErrorKind::Busy | ErrorKind::Unavailable => Code::Unavailable,
        ErrorKind::Aborted => Code::Aborted,
        ErrorKind::Corruption => Code::DataLoss,
        ErrorKind::Unimplemented => Code::Unimplemented,
        ErrorKind::Cancelled => Code::Cancelled,
        ErrorKind::Internal => Code::Internal,
    }
}

/// Bytes of a message. It travels in a header with up to three bytes for each of its own, and clients accept about 8
/// KiB of headers. It may quote a name, which a client chooses freely.
const MESSAGE_BYTES_MAX: usize = 2 << 10;

/// The message, cut to the limit.
fn cut(mut message: String) -> String {
    if message.len() > MESSAGE_BYTES_MAX {
        message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
        message.push('…');
        message.shrink_to_fit();
    }
    message
}

/// The status of an error of the service interface.
pub(crate) fn status(error: ServiceError) -> Status {
    Status::new(code(error.kind), cut(error.message))
}

/// INVALID_ARGUMENT with a sentence.
pub(crate) fn invalid(message: impl Into<String>) -> Status {
    Status::invalid_argument(cut(message.into()))
}

/// INTERNAL for a request that cannot be decoded, in tonic's words.
pub(crate) fn not_decoded(error: &prost::DecodeError) -> Status {
    Status::internal(error.to_string())
}

/// NOT_FOUND with a sentence.
pub(crate) fn not_found(message: impl Into<String>) -> Status {
    Status::not_found(cut(message.into()))
}

/// ALREADY_EXISTS with a sentence.
pub(crate) fn already_exists(message: impl Into<String>) -> Status {
    Status::already_exists(cut(message.into()))
}

/// UNIMPLEMENTED with a sentence.
pub(crate) fn unimplemented(message: impl Into<String>) -> Status {
    Status::unimplemented(cut(message.into()))
}

/// NOT_FOUND for a table, in the words of the emulator that clients match on.
pub(crate) fn table_not_found(name: &str) -> Status {
    not_found(format!("table {name:?} not found"))
}

/// NOT_FOUND for a family, in the words of the managed service: the HBase adapter searches for "Requested column family
/// not found".
pub(crate) fn family_not_found(family: &str) -> Status {
    not_found(format!(
        "Error in family {family:?} : Requested column family not found."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_quoted_in_part() {
        let name = "é".repeat(1 << 20);
        for status in [table_not_found(&name), family_not_found(&name), invalid(name.clone())] {
            assert!(
                status.message().len() <= MESSAGE_BYTES_MAX + 3,
                "{}",
                status.message().len()
            );
            assert!(status.message().ends_with('…'));
        }
        assert_eq!(table_not_found("t").message(), "table \"t\" not found");
    }

    #[test]
    fn only_retryable_kinds_are_unavailable() {
        for kind in ErrorKind::ALL {
            assert_eq!(code(kind) == Code::Unavailable, kind.is_retryable(), "{kind:?}");
        }
    }
}
