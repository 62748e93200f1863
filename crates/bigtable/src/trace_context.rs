//! The trace context that clients send, and the failures that traces show as errors.
//!
//! The span of a call lasts as long as the call: from its first header until its response body is dropped. Calls that are
//! refused before they are admitted have none.

use stele_env::trace::Parent;
use tonic::Code;
use tonic::codegen::http;

/// The protocol as traces name it.
pub(crate) const SYSTEM: &str = "grpc";

/// The span of the client, if it sends one.
pub(crate) fn parent(headers: &http::HeaderMap) -> Option<Parent> {
    let state = headers.get("tracestate").map(http::HeaderValue::as_bytes);
    Parent::of_headers(headers.get("traceparent")?.as_bytes(), state)
}

/// Whether the server is to blame: of the other codes most are answers to a client's mistake.
pub(crate) fn is_error(code: Code) -> bool {
    matches!(
        code,
        Code::Unknown
            | Code::DeadlineExceeded
            | Code::Unimplemented
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss
    )
}
