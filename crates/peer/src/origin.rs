//! The origin of a call: the other server, and the caller for which it works.

use crate::cursor::{Cursor, Decoded};
use crate::handshake::Identity;
use crate::segments::Segments;
use bytes::Bytes;
use std::sync::Arc;
use stele_access::audit::GIVEN_UP;
use stele_access::{Forwarded, NAME_BYTES_MAX, NamedCaller, Source};
use stele_types::TabletId;

/// The origin of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The server that has sent it, as it says.
    pub from: Identity,
    /// That was verified: the server has shown a certificate of the cluster.
    pub is_proven: bool,
    /// The caller whose call the server forwards, if it knows one.
    pub caller: Option<NamedCaller>,
}

impl Origin {
    /// The server as the audit log has it.
    pub fn server(&self) -> String {
        let proof = if self.is_proven { "" } else { ", not proven" };
        format!("server {}{proof}", self.from.server)
    }
}

/// The body of a request behind the caller that it is for.
pub(crate) fn encode_caller(caller: &NamedCaller, body: Segments) -> Segments {
    let mut out = Segments::default();
    out.u8(caller.source.number());
    out.bytes(caller.name.as_bytes());
    out.append(body);
    out
}

/// The caller of a request, and its body.
pub(crate) fn decode_caller(body: Bytes) -> Decoded<(NamedCaller, Bytes)> {
    let mut fields = Cursor::new("caller", body);
    let source = Source::of_number(fields.u8()?).ok_or_else(|| fields.malformed("an unknown credential"))?;
    let len = fields.u32()? as usize;
    if len > NAME_BYTES_MAX {
        return Err(fields.malformed("the name of the caller is too long"));
    }
    let name = fields.text(len)?;
    Ok((NamedCaller { name, source }, fields.slice(fields.left())?))
}

/// A call on rows that is written to the audit log with its outcome. One that is given up before its end is written, too.
pub(crate) struct Note {
    log: Arc<Forwarded>,
    origin: Origin,
    caller: NamedCaller,
    operation: &'static str,
    tablet: TabletId,
    is_written: bool,
}

impl Note {
    /// Of a call with a known caller, if such calls are written.
    pub fn new(
        log: Option<&Arc<Forwarded>>,
        origin: &Origin,
        operation: &'static str,
        tablet: TabletId,
    ) -> Option<Note> {
        let log = log.filter(|log| log.audits_rows())?;
        Some(Note {
            log: Arc::clone(log),
            caller: origin.caller.clone()?,
            origin: origin.clone(),
            operation,
            tablet,
            is_written: false,
        })
    }

    /// Writes it; `error` is the message of a call that failed.
    pub fn write(mut self, error: Option<&str>) {
        self.put(error);
    }

    fn put(&mut self, error: Option<&str>) {
        self.is_written = true;
        let on = format!("tablet {}", self.tablet);
        self.log
            .note(&self.origin.server(), &self.caller, self.operation, on, error);
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        if !self.is_written {
            self.put(Some(GIVEN_UP));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(name: &str) -> Bytes {
        let caller = NamedCaller {
            name: name.to_owned(),
            source: Source::Token,
        };
        let mut body = Segments::default();
        body.slice(b"body");
        encode_caller(&caller, body).into_bytes()
    }

    #[test]
    fn a_caller_comes_before_the_body() {
        // Byte for byte: a change is a new version of the protocol.
        assert_eq!(encoded("al")[..], b"\x02\x02\0\0\0albody"[..]);
        let (caller, body) = decode_caller(encoded("alice")).unwrap();
        assert_eq!((&caller.name[..], caller.source), ("alice", Source::Token));
        assert_eq!(body, "body");
    }

    #[test]
    fn faulty_callers_are_refused() {
        assert!(decode_caller(encoded(&"n".repeat(NAME_BYTES_MAX))).is_ok());
        let long = encoded(&"n".repeat(NAME_BYTES_MAX + 1));
        for bytes in [
            &long[..],
            b"",
            b"\x02",
            b"\x09\0\0\0\0",
            b"\x02\x05\0\0\0al",
            b"\x02\x01\0\0\0\xff",
        ] {
            assert!(decode_caller(Bytes::copy_from_slice(bytes)).is_err(), "{bytes:?}");
        }
    }
}
