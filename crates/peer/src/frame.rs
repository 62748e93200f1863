//! Frames: a head with two checksums, a header and a body. `docs/formats/peer-protocol.md` has the bytes.
//!
//! The head has a checksum of its own, so a damaged length is found before anything is allocated or awaited for it.

use crate::cursor::{Cursor, Decoded};
use crate::error::ProtocolError;
use crate::limits::FRAME_BYTES_MAX;
use crate::segments::Segments;
use bytes::{Buf, Bytes, BytesMut};
use crc32fast::Hasher;

/// Bytes before the header.
pub const HEAD_BYTES: usize = 24;

/// The longest header: that of a request.
pub const HEADER_BYTES_MAX: usize = 24;

/// Rows: the last frame of the stream.
pub const LAST: u8 = 1;

/// Rows: the body is the work of the read, and not rows.
pub const WORK: u8 = 2;

/// Error: the outcome of the call is unknown.
pub const OUTCOME_UNKNOWN: u8 = 2;

/// The purpose of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// A call begins.
    Request = 1,
    /// The caller wants no more of a call.
    Cancel = 2,
    /// The caller takes more bytes of a stream.
    Credit = 3,
    /// The result of a call.
    Response = 4,
    /// A batch of a stream.
    Rows = 5,
    /// A call failed.
    Error = 6,
    /// A stream cannot go on without this credit.
    Need = 7,
    /// The owner takes no more calls.
    Drain = 8,
    /// The caller asks for a sign of life.
    Ping = 9,
    /// The sign.
    Pong = 10,
}

impl FrameKind {
    fn from_byte(byte: u8) -> Option<Self> {
        use FrameKind::{Cancel, Credit, Drain, Error, Need, Ping, Pong, Request, Response, Rows};
        const ALL: [FrameKind; 10] = [Request, Cancel, Credit, Response, Rows, Error, Need, Drain, Ping, Pong];
        ALL.into_iter().find(|kind| *kind as u8 == byte)
    }

    /// Flags that frames of the kind may have.
    fn flags(self) -> u8 {
        match self {
            FrameKind::Rows => LAST | WORK,
            FrameKind::Error => OUTCOME_UNKNOWN,
            _ => 0,
        }
    }

    /// Bytes of the header.
    fn header_bytes(self) -> usize {
        match self {
            FrameKind::Request => 24,
            FrameKind::Credit | FrameKind::Need => 8,
            FrameKind::Error => 2,
            _ => 0,
        }
    }

    fn has_body(self) -> bool {
        use FrameKind::{Error, Request, Response, Rows};
        matches!(self, Request | Response | Rows | Error)
    }
}

/// The first bytes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Bytes of the whole frame.
    pub length: usize,
    /// Its purpose.
    pub kind: FrameKind,
    /// [`LAST`], [`WORK`] or [`OUTCOME_UNKNOWN`].
    pub flags: u8,
    /// The call that it is of.
    pub call: u64,
    /// CRC-32 of the rest.
    crc: u32,
}

impl Head {
    /// The head of the frame that begins with these bytes; `None` if it has not arrived.
    pub fn peek(received: &[u8]) -> Decoded<Option<Head>> {
        let Some(head) = received.first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        let mut fields = Cursor::new("head", Bytes::copy_from_slice(head));
        let length = fields.u32()?;
        let (kind, flags, header_bytes) = (fields.u8()?, fields.u8()?, fields.u16()?);
        let (call, crc, head_crc) = (fields.u64()?, fields.u32()?, fields.u32()?);
        if head_crc != crc32fast::hash(&head[..HEAD_BYTES - 4]) {
            return Err(ProtocolError::Checksum("head"));
        }
        let known = FrameKind::from_byte(kind).ok_or(ProtocolError::FrameKind(kind))?;
        let is_work_before_the_end = known == FrameKind::Rows && flags == WORK;
        if flags & !known.flags() != 0 || is_work_before_the_end {
            return Err(ProtocolError::Flags { kind, flags });
        }
        if usize::from(header_bytes) != known.header_bytes() {
            return Err(fields.malformed("the header has another length"));
        }
        let least = HEAD_BYTES + known.header_bytes();
        let most = if known.has_body() { FRAME_BYTES_MAX } else { least };
        match usize::try_from(length) {
            Ok(length) if (least..=most).contains(&length) => Ok(Some(Head {
                length,
                kind: known,
                flags,
                call,
                crc,
            })),
            _ => Err(ProtocolError::FrameLength(length)),
        }
    }

    /// Bytes of the body.
    pub fn body_bytes(&self) -> usize {
        self.length - HEAD_BYTES - self.kind.header_bytes()
    }
}

/// A frame that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its purpose.
    pub kind: FrameKind,
    /// [`LAST`] or [`OUTCOME_UNKNOWN`].
    pub flags: u8,
    /// The call that it is of.
    pub call: u64,
    /// As long as the kind has it.
    pub header: Bytes,
    /// The rest.
    pub body: Bytes,
}

impl Frame {
    /// Takes a frame out of received bytes, which begin with this head; `None` if it has not arrived.
    pub fn take(received: &mut BytesMut, head: &Head) -> Decoded<Option<Frame>> {
        if received.len() < head.length {
            return Ok(None);
        }
        let mut header = received.split_to(head.length).freeze();
        header.advance(HEAD_BYTES);
        if crc32fast::hash(&header) != head.crc {
            return Err(ProtocolError::Checksum("frame"));
        }
        let body = header.split_off(head.kind.header_bytes());
        Ok(Some(Frame {
            kind: head.kind,
            flags: head.flags,
            call: head.call,
            header,
            body,
        }))
    }

    /// The number in the header of a credit or need.
    pub(crate) fn amount(&self) -> Decoded<u64> {
        Cursor::new("header", self.header.clone()).u64()
    }
}

/// A frame to be sent.
#[derive(Debug)]
pub(crate) struct Encoded {
    head: [u8; HEAD_BYTES + HEADER_BYTES_MAX],
    head_bytes: usize,
    /// Parts of the body.
    pub body: Vec<Bytes>,
}

impl Encoded {
    /// A frame of this call. `None` when it would be too long.
    pub fn new(kind: FrameKind, flags: u8, call: u64, header: &[u8], body: Segments) -> Option<Encoded> {
        assert_eq!(header.len(), kind.header_bytes(), "the header of the kind");
        assert_eq!(flags & !kind.flags(), 0, "flags of the kind");
        let len = HEAD_BYTES + header.len() + body.len();
        let length = u32::try_from(len).ok().filter(|_| len <= FRAME_BYTES_MAX)?;
        let body = body.into_parts();
        let mut hasher = Hasher::new();
        hasher.update(header);
        body.iter().for_each(|part| hasher.update(part));
        let mut head = [0; HEAD_BYTES + HEADER_BYTES_MAX];
        head[0..4].copy_from_slice(&length.to_le_bytes());
        head[4] = kind as u8;
        head[5] = flags;
        head[6..8].copy_from_slice(&(header.len() as u16).to_le_bytes());
        head[16..20].copy_from_slice(&hasher.finalize().to_le_bytes());
        head[HEAD_BYTES..HEAD_BYTES + header.len()].copy_from_slice(header);
        let mut frame = Encoded {
            head,
            head_bytes: HEAD_BYTES + header.len(),
            body,
        };
        frame.set_call(call);
        Some(frame)
    }

    /// Gives the frame to a call.
    pub fn set_call(&mut self, call: u64) {
        self.head[8..16].copy_from_slice(&call.to_le_bytes());
        let crc = crc32fast::hash(&self.head[..HEAD_BYTES - 4]);
        self.head[HEAD_BYTES - 4..HEAD_BYTES].copy_from_slice(&crc.to_le_bytes());
    }

    /// A frame without a body.
    pub fn bare(kind: FrameKind, call: u64, header: &[u8]) -> Encoded {
        Encoded::new(kind, 0, call, header, Segments::default()).expect("a frame without a body is short")
    }

    /// The bytes before the body.
    pub fn head(&self) -> &[u8] {
        &self.head[..self.head_bytes]
    }
}

#[cfg(test)]
mod tests;
