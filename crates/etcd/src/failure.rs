//! The ways in which a call of etcd fails, by the reaction to them.
//!
//! Only responses that etcd gives before it proposes a request to its members, or as the result of one, tell that the
//! request did not happen. Everything else, a lost connection as well as an error of another kind, leaves it open. A response
//! that there is no space is both: members give it before they propose a write, and after they carried one out.

use std::error::Error as _;
use stele_coord::CoordError;
use tonic::{Code, Status};

/// Longest text of an error of etcd or of the network in an error of this crate.
const MESSAGE_CHARS_MAX: usize = 300;

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It did not happen, and another member would refuse it, too.
    Refused(CoordError),
    /// It did not happen: a lease in it has ended.
    NoLease,
    /// It did not happen: the revision it reads was compacted.
    Compacted,
    /// A read whose response is larger than this side accepts.
    TooLarge,
    /// It did not happen: etcd does not know the token, or not any more.
    Token(String),
    /// It did not happen: too many requests are waiting. Later it may.
    Busy(String),
    /// etcd has no space for a write. It happened or it did not, and it will not happen later.
    NoSpace(String),
    /// It may have happened, or may happen later.
    Lost(String),
}

impl From<Status> for Failure {
    fn from(status: Status) -> Failure {
        let text = describe(&status);
        let is = |part: &str| status.message().contains(part);
        match status.code() {
            Code::ResourceExhausted if is("database space exceeded") => Failure::NoSpace(text),
            Code::ResourceExhausted if is("too many requests") => Failure::Busy(text),
            // By the member's transport, before it knows the request.
            Code::ResourceExhausted if is("received message larger than max") => {
                Failure::Refused(CoordError::InvalidArgument { message: text })
            }
            // etcd has users, and this client names none, or not with the right password.
            Code::InvalidArgument if is("user name is empty") || is("authentication failed") => {
                Failure::Refused(CoordError::Denied { message: text })
            }
            Code::Unauthenticated if is("invalid auth token") => Failure::Token(text),
            Code::InvalidArgument if is("revision of auth store is old") => Failure::Token(text),
            Code::NotFound if is("requested lease not found") => Failure::NoLease,
            Code::OutOfRange if is("required revision has been compacted") => Failure::Compacted,
            Code::OutOfRange if is("message length too large") => Failure::TooLarge,
            Code::InvalidArgument if is("etcdserver: ") => {
                Failure::Refused(CoordError::InvalidArgument { message: text })
            }
            // Both come from the check of the user, before a request is proposed.
            Code::PermissionDenied | Code::Unauthenticated => Failure::Refused(CoordError::Denied { message: text }),
            _ => Failure::Lost(text),
        }
    }
}

impl Failure {
    /// The error of a call that changes nothing, or of which this does not matter.
    pub(crate) fn into_error(self) -> CoordError {
        match self {
            Failure::Refused(error) => error,
            Failure::Token(message) => CoordError::Denied { message },
            Failure::NoSpace(message) => CoordError::Full { message },
            Failure::NoLease => unavailable("a lease has ended"),
            Failure::Compacted => unavailable("the revision that was read is compacted"),
            Failure::TooLarge => unavailable("a response is larger than is accepted"),
            Failure::Busy(message) | Failure::Lost(message) => CoordError::Unavailable { message },
        }
    }
}

fn unavailable(message: &str) -> CoordError {
    CoordError::Unavailable {
        message: message.to_owned(),
    }
}

/// The message of a status, and the innermost of its causes.
fn describe(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut cause = status.source();
    while let Some(inner) = cause {
        if inner.source().is_none() {
            let inner = inner.to_string();
            if !text.contains(&inner) {
                text = format!("{text}: {inner}");
            }
        }
        cause = cause.and_then(|cause| cause.source());
    }
    text.chars().take(MESSAGE_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_types::ErrorKind;

    #[test]
    fn only_known_refusals_mean_that_nothing_happened() {
        let of = |code, message: &str| Failure::from(Status::new(code, message));
        let full = of(Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded");
        assert!(matches!(full, Failure::NoSpace(_)), "a member may have carried it out");
        assert_eq!(full.into_error().kind(), ErrorKind::ResourceExhausted);
        let large = of(Code::InvalidArgument, "etcdserver: request is too large");
        assert_eq!(large.into_error().kind(), ErrorKind::InvalidArgument);
        let large = of(
            Code::ResourceExhausted,
            "grpc: received message larger than max (2097200 vs. 2097152)",
        );
        assert_eq!(large.into_error().kind(), ErrorKind::InvalidArgument);
        for (code, message) in [
            (Code::PermissionDenied, "etcdserver: permission denied"),
            (Code::Unauthenticated, "etcdserver: invalid auth token"),
            (Code::InvalidArgument, "etcdserver: user name is empty"),
            (
                Code::InvalidArgument,
                "etcdserver: authentication failed, invalid user ID or password",
            ),
            (Code::InvalidArgument, "etcdserver: revision of auth store is old"),
        ] {
            assert_eq!(of(code, message).into_error().kind(), ErrorKind::PermissionDenied);
        }
        assert!(matches!(
            of(Code::Unauthenticated, "etcdserver: invalid auth token"),
            Failure::Token(_)
        ));
        assert_eq!(
            of(Code::NotFound, "etcdserver: requested lease not found"),
            Failure::NoLease
        );
        assert_eq!(
            of(
                Code::OutOfRange,
                "etcdserver: mvcc: required revision has been compacted"
            ),
            Failure::Compacted
        );
        assert!(matches!(
            of(Code::ResourceExhausted, "etcdserver: too many requests"),
            Failure::Busy(_)
        ));
        for (code, message) in [
            (Code::Unavailable, "etcdserver: request timed out"),
            (Code::Unavailable, "etcdserver: leader changed"),
            (Code::Unavailable, "etcdserver: no leader"),
            (Code::Unknown, "raft proposal dropped"),
            (Code::Cancelled, "operation was canceled"),
            (Code::InvalidArgument, "from a proxy"),
            (Code::ResourceExhausted, "from a proxy"),
        ] {
            let failure = of(code, message);
            assert!(matches!(failure, Failure::Lost(_)), "{failure:?}");
            assert!(failure.into_error().kind().is_retryable());
        }
    }

    #[test]
    fn long_messages_are_cut() {
        let failure = Failure::from(Status::unavailable("x".repeat(10_000)));
        assert_eq!(failure, Failure::Lost("x".repeat(MESSAGE_CHARS_MAX)));
    }
}
