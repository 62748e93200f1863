//! The exceptions that calls end with.
//!
//! A client acts on the Java class of an exception: it repeats the call, locates the region again, or gives up. So every
//! failure has a class from the start ([`stele_wire::exception`]), and errors of the service interface get one by kind.

use bytes::Bytes;
use std::borrow::Cow;
use stele_client::ServiceError;
use stele_types::ErrorKind;
use stele_wire::messages::{ExceptionResponse, NameBytesPair};
use stele_wire::{WireError, exception};

/// Result of a call or of a part of it.
pub(crate) type Outcome<T> = Result<T, Failure>;

/// A Java exception.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Its class.
    pub class: &'static str,
    /// Its message.
    pub message: Cow<'static, str>,
    /// The change that it ended may have been made, also in part.
    pub is_unknown: bool,
}

impl Failure {
    pub fn new(class: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Failure {
            class,
            message: message.into(),
            is_unknown: false,
        }
    }

    /// The failure of a change of which a part is made.
    pub fn once_begun(self) -> Self {
        Failure {
            is_unknown: true,
            ..self
        }
    }

    /// The failure of a change that must not be made twice. Clients repeat a call after most exceptions, and the second change would
    /// find the first one's result.
    pub fn of_change(self) -> Self {
        match self.is_unknown && !exception::is_final(self.class) {
            true => Failure {
                class: exception::DO_NOT_RETRY,
                ..self
            },
            false => self,
        }
    }

    /// The request can never succeed.
    pub fn do_not_retry(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(exception::DO_NOT_RETRY, message)
    }

    /// The server has no memory or no capacity for the call at the moment.
    pub fn overloaded(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(exception::CALL_QUEUE_TOO_BIG, message)
    }

    /// The call is not served.
    pub fn not_served(what: impl std::fmt::Display) -> Self {
        let message = format!(
            "{}: {what} is not supported by this server",
            exception::UNSUPPORTED_OPERATION
        );
        Self::new(exception::DO_NOT_RETRY, message)
    }

    /// Whether the client is to slow down.
    pub fn is_overload(&self) -> bool {
        [exception::CALL_QUEUE_TOO_BIG, exception::CALL_DROPPED].contains(&self.class)
    }

    /// The text of a Java stack trace begins with the class and the message.
    fn stack_trace(&self) -> String {
        format!("{}: {}\n", self.class, self.message)
    }

    /// In the header of a response.
    pub fn in_header(&self) -> ExceptionResponse {
        ExceptionResponse {
            exception_class_name: Some(self.class.to_owned()),
            stack_trace: Some(self.stack_trace()),
            do_not_retry: Some(exception::is_final(self.class)),
            server_overloaded: Some(self.is_overload()),
            ..ExceptionResponse::default()
        }
    }

    /// Within a batch.
    pub fn in_batch(&self) -> NameBytesPair {
        NameBytesPair {
            name: self.class.to_owned(),
            value: Some(Bytes::from(self.stack_trace())),
        }
    }
}

impl From<ServiceError> for Failure {
    fn from(error: ServiceError) -> Self {
        let class = match error.kind {
            ErrorKind::Busy => exception::REGION_TOO_BUSY,
            ErrorKind::Unavailable => exception::NOT_SERVING_REGION,
            ErrorKind::PermissionDenied => exception::ACCESS_DENIED,
            ErrorKind::Internal | ErrorKind::Aborted | ErrorKind::Cancelled => exception::HBASE_IO,
            ErrorKind::InvalidArgument
            | ErrorKind::NotFound
            | ErrorKind::AlreadyExists
            | ErrorKind::FailedPrecondition
            | ErrorKind::ResourceExhausted
            | ErrorKind::Corruption
            | ErrorKind::Unimplemented => exception::DO_NOT_RETRY,
        };
        Failure {
            is_unknown: error.kind == ErrorKind::Aborted,
            ..Failure::new(class, error.message)
        }
    }
}

impl From<WireError> for Failure {
    fn from(error: WireError) -> Self {
        Failure::do_not_retry(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_begins_with_its_class_and_message() {
        let failure = Failure::do_not_retry("no such thing");
        let header = failure.in_header();
        let trace = header.stack_trace.unwrap();
        assert_eq!(trace, "org.apache.hadoop.hbase.DoNotRetryIOException: no such thing\n");
        assert_eq!(
            (header.do_not_retry, header.server_overloaded),
            (Some(true), Some(false))
        );
        assert_eq!(failure.in_batch().value, Some(trace.into()));
    }

    #[test]
    fn a_change_of_unknown_outcome_is_not_repeated() {
        let of = |kind| Failure::from(ServiceError::new(kind, "lost"));
        assert_eq!(of(ErrorKind::Aborted).class, exception::HBASE_IO);
        assert_eq!(of(ErrorKind::Aborted).of_change().class, exception::DO_NOT_RETRY);
        assert_eq!(
            of(ErrorKind::Unavailable).of_change().class,
            exception::NOT_SERVING_REGION
        );
        let begun = of(ErrorKind::Unavailable).once_begun().of_change();
        assert_eq!(begun.class, exception::DO_NOT_RETRY);
        let denied = of(ErrorKind::PermissionDenied).once_begun().of_change();
        assert_eq!(denied.class, exception::ACCESS_DENIED);
    }

    #[test]
    fn only_overload_asks_clients_to_slow_down() {
        let header = Failure::overloaded("full").in_header();
        assert_eq!(
            (header.do_not_retry, header.server_overloaded),
            (Some(false), Some(true))
        );
        let busy = Failure::from(ServiceError::new(ErrorKind::Busy, "later"));
        assert_eq!(busy.class, exception::REGION_TOO_BUSY);
    }
}
