//! The trace context that clients send, and the failures that traces show as errors.
//!
//! The span of a call begins when its last byte has arrived, and ends when its response is ready to be sent.

use crate::failure::Failure;
use bytes::Bytes;
use prost::Message;
use stele_env::trace::Parent;
use stele_wire::exception;
use stele_wire::messages::{RequestHeader, TraceInfo};

/// The protocol as traces name it.
pub(crate) const SYSTEM: &str = "hbase";

/// Bytes of the longest trace information that is decoded: two headers of the longest kind.
const TRACE_INFO_BYTES_MAX: usize = 2 << 10;

/// The span of the client, if it sends one. Clients before version 2.5 send none that can be used.
pub(crate) fn parent(header: &RequestHeader) -> Option<Parent> {
    let encoded: &Bytes = header.trace_info.as_ref()?;
    if encoded.is_empty() || encoded.len() > TRACE_INFO_BYTES_MAX {
        return None;
    }
    let info = TraceInfo::decode(encoded.clone()).ok()?;
    let value = |name: &str| {
        let mut headers = info.headers.iter();
        let found = headers.find(|header| header.name.eq_ignore_ascii_case(name));
        found.map(|header| header.value.as_bytes())
    };
    Parent::of_headers(value("traceparent")?, value("tracestate"))
}

/// Whether the server is to blame: most other exceptions are answers to a client's mistake, or to an old location of a region.
pub(crate) fn is_error(failure: &Failure) -> bool {
    failure.is_overload() || [exception::HBASE_IO, exception::REGION_TOO_BUSY].contains(&failure.class)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_wire::messages::TraceHeader;

    fn header(headers: &[(&str, &str)]) -> RequestHeader {
        let header = |(name, value): &(&str, &str)| TraceHeader {
            name: (*name).to_owned(),
            value: (*value).to_owned(),
        };
        let info = TraceInfo {
            headers: headers.iter().map(header).collect(),
        };
        RequestHeader {
            trace_info: Some(info.encode_to_vec().into()),
            ..RequestHeader::default()
        }
    }

    const TRACEPARENT: (&str, &str) = ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");

    #[test]
    fn the_headers_of_a_propagator_are_read() {
        let parent = parent(&header(&[("baggage", "x=y"), TRACEPARENT, ("tracestate", "a=b")])).unwrap();
        assert_eq!(parent.at.span, 0x00f0_67aa_0ba9_02b7);
        assert_eq!(parent.state.as_deref(), Some("a=b"));
    }

    #[test]
    fn other_trace_information_counts_as_absent() {
        // As clients before version 2.5 send it: two numbers.
        let numbers = RequestHeader {
            trace_info: Some(Bytes::from_static(b"\x08\x07\x10\x09")),
            ..RequestHeader::default()
        };
        let malformed = RequestHeader {
            trace_info: Some(Bytes::from_static(b"\x1a\xff")),
            ..RequestHeader::default()
        };
        let long = "x".repeat(TRACE_INFO_BYTES_MAX);
        for header in [
            RequestHeader::default(),
            header(&[]),
            header(&[("b3", "1")]),
            header(&[TRACEPARENT, ("baggage", &long)]),
            numbers,
            malformed,
        ] {
            assert_eq!(parent(&header), None, "{header:?}");
        }
    }
}
