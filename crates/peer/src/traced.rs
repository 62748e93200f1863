//! The trace that a call belongs to, and the spans of calls at their owner.
//!
//! A caller sends the identity of its span if the request is sampled, and if the connection has version 2. The owner's span
//! is below it, and lasts until the answer is there; that of a read until the stream ends. A request that does not carry a
//! trace is not sampled here: the server that the client has called decides.

use crate::cursor::{Cursor, Decoded};
use crate::messages::CallKind;
use crate::segments::Segments;
use bytes::Bytes;
use std::future::Future;
use std::pin::Pin;
use stele_client::ServiceResult;
use stele_env::Env;
use stele_env::trace::{self, Carried, Parent, Trace};
use stele_types::{ErrorKind, TabletId};

/// The protocol as traces name it.
const SYSTEM: &str = "stele-peer";

/// The body of a request behind the trace that it belongs to, if there is one.
pub(crate) fn with_trace(carried: Option<Carried>, body: Segments) -> Segments {
    let Some(Carried { trace, span }) = carried else {
        return body;
    };
    let mut out = Segments::default();
    out.slice(&trace.to_le_bytes());
    out.u64(span);
    out.append(body);
    out
}

/// The trace of a request, and the rest of its body.
pub(crate) fn decode_trace(body: Bytes) -> Decoded<(Carried, Bytes)> {
    let mut fields = Cursor::new("trace", body);
    let (low, high, span) = (fields.u64()?, fields.u64()?, fields.u64()?);
    let trace = u128::from(high) << 64 | u128::from(low);
    if trace == 0 || span == 0 {
        return Err(fields.malformed("a number of a trace or a span is 0"));
    }
    Ok((Carried { trace, span }, fields.slice(fields.left())?))
}

/// The trace of a call that another server has sent, if it carries one.
pub(crate) fn begin(env: &Env, kind: CallKind, tablet: TabletId, at: Option<Carried>) -> Option<Trace> {
    let at = at?;
    let trace = env.trace(SYSTEM, name(kind), || Some(Parent::sampled(at)))?;
    trace.note(|facts| facts.visit(tablet.0));
    Some(trace)
}

/// Works for a call, and notes how it ended.
pub(crate) async fn until_answered<T>(
    trace: Option<&Trace>,
    answer: Pin<&mut impl Future<Output = ServiceResult<T>>>,
) -> ServiceResult<T> {
    let answered = trace::within(trace, answer).await;
    if let Some(trace) = trace {
        conclude(trace, answered.as_ref().err().map(|error| error.kind));
    }
    answered
}

/// Notes how a call ended.
pub(crate) fn conclude(trace: &Trace, error: Option<ErrorKind>) {
    trace.note(|facts| {
        facts.outcome = error.map_or("ok", ErrorKind::name);
        facts.is_error = matches!(
            error,
            Some(ErrorKind::Busy | ErrorKind::Corruption | ErrorKind::Internal | ErrorKind::Aborted)
        );
    });
}

fn name(kind: CallKind) -> &'static str {
    match kind {
        CallKind::Read => "read",
        CallKind::Mutate | CallKind::TimedMutate => "mutate",
        CallKind::RowOperation | CallKind::TestedRowOperation => "row operation",
        CallKind::RowsOperation => "rows operation",
        CallKind::Sample => "sample",
        CallKind::Figures => "figures",
        CallKind::Control => "control",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(carried: Carried) -> Bytes {
        let mut body = Segments::default();
        body.slice(b"body");
        with_trace(Some(carried), body).into_bytes()
    }

    #[test]
    fn a_trace_comes_before_the_body() {
        let carried = Carried {
            trace: 0x0f0e << 64 | 0x0201,
            span: 0x0807,
        };
        // Byte for byte: a change is a new version of the protocol.
        let expected = b"\x01\x02\0\0\0\0\0\0\x0e\x0f\0\0\0\0\0\0\x07\x08\0\0\0\0\0\0body";
        assert_eq!(encoded(carried)[..], expected[..]);
        let (decoded, body) = decode_trace(encoded(carried)).unwrap();
        assert_eq!((decoded, &body[..]), (carried, &b"body"[..]));
    }

    #[test]
    fn faulty_traces_are_refused() {
        let whole = encoded(Carried { trace: 1, span: 1 });
        assert!(decode_trace(whole.slice(..24)).is_ok());
        assert!(decode_trace(whole.slice(..23)).is_err());
        assert!(decode_trace(encoded(Carried { trace: 0, span: 1 })).is_err());
        assert!(decode_trace(encoded(Carried { trace: 1, span: 0 })).is_err());
    }
}
