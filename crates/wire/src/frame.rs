//! Frames: a stream of bytes consists of requests and responses of known lengths.
//!
//! ```text
//! u32 length of the rest | varint length, header | varint length, message | cell block
//! ```
//!
//! A response whose header has an exception has no message. The header gives the length of the cell block. A client
//! opens a connection with [`encode_preamble`], which has no response.
//!
//! Invariant: a frame longer than the reader's limit is refused as soon as its length has been read, before any
//! allocation for it.

use crate::WireError;
use crate::messages::{CellBlockMeta, ConnectionHeader, RequestHeader, ResponseHeader};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;
use prost::encoding::{decode_varint, encode_varint, encoded_len_varint};

/// First bytes of a connection for calls.
pub const MAGIC: &[u8; 4] = b"HBas";

/// Version that follows them.
pub const VERSION: u8 = 0;

/// Authentication "simple": the client names its user, and the server believes it.
pub const AUTH_SIMPLE: u8 = 80;

/// Opening of a connection that asks for the registry's cluster id and nothing else.
pub const REGISTRY_OPENING: &[u8; 6] = b"Regist";

/// Opening of a connection that asks for the server's Kerberos principal.
pub const SECURITY_OPENING: &[u8; 6] = b"Securi";

/// Bytes before the connection header: magic, version, authentication, length.
pub const PREAMBLE_BYTES: usize = 10;

/// Largest connection header that is read: real ones have some 360 bytes, and attributes are small.
pub const CONNECTION_HEADER_BYTES_MAX: usize = 64 << 10;

/// Largest request that HBase takes by default.
pub const REQUEST_BYTES_MAX: usize = 256 << 20;

/// Longest frame that can be written: lengths are signed in Java.
pub const FRAME_BYTES_MAX: usize = i32::MAX as usize;

const LENGTH_BYTES: usize = 4;

/// A decoded request.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Its header.
    pub header: RequestHeader,
    /// Its message, of a type that depends on the method.
    pub message: Bytes,
    /// Its cell block.
    pub cells: Bytes,
}

/// A decoded response.
#[derive(Debug, Clone, PartialEq)]
pub struct Response {
    /// Its header.
    pub header: ResponseHeader,
    /// Its message, of a type that depends on the method. Empty if the header has an exception.
    pub message: Bytes,
    /// Its cell block.
    pub cells: Bytes,
}

/// Cells that follow a message.
pub trait CellBlock {
    /// Bytes that [`CellBlock::encode`] appends.
    fn encoded_len(&self) -> usize;

    /// Appends the cells.
    ///
    /// # Errors
    /// Cells that cannot be written.
    fn encode(&self, out: &mut BytesMut) -> Result<(), WireError>;
}

/// No cells.
impl CellBlock for () {
    fn encoded_len(&self) -> usize {
        0
    }

    fn encode(&self, _out: &mut BytesMut) -> Result<(), WireError> {
        Ok(())
    }
}

/// Encoded cells.
impl CellBlock for Bytes {
    fn encoded_len(&self) -> usize {
        self.len()
    }

    fn encode(&self, out: &mut BytesMut) -> Result<(), WireError> {
        out.put_slice(self);
        Ok(())
    }
}

/// Appends the first bytes that a client sends.
pub fn encode_preamble(out: &mut BytesMut, header: &ConnectionHeader) {
    out.put_slice(MAGIC);
    out.put_u8(VERSION);
    out.put_u8(AUTH_SIMPLE);
    out.put_u32(header.encoded_len() as u32);
    header.encode_raw(out);
}

/// Takes a preamble off the front of the bytes that a server has received. `None` if it is incomplete.
///
/// # Errors
/// Bytes that are not a preamble of this version with simple authentication.
pub fn take_preamble(received: &mut BytesMut) -> Result<Option<ConnectionHeader>, WireError> {
    let Some((opening, rest)) = received.split_at_checked(PREAMBLE_BYTES) else {
        return Ok(None);
    };
    let expected = [MAGIC[0], MAGIC[1], MAGIC[2], MAGIC[3], VERSION, AUTH_SIMPLE];
    if !opening.starts_with(&expected) {
        let found = opening.escape_ascii().to_string();
        return Err(WireError::unexpected(
            "preamble",
            "HBas, version 0, simple authentication",
            found,
        ));
    }
    let mut length = opening.get(expected.len()..).unwrap_or_default();
    let length = within(
        "connection header",
        u64::from(length.get_u32()),
        CONNECTION_HEADER_BYTES_MAX,
    )?;
    if rest.len() < length {
        return Ok(None);
    }
    received.advance(PREAMBLE_BYTES);
    let header = received.split_to(length).freeze();
    crate::messages::decode("ConnectionHeader", header).map(Some)
}

/// Appends a request with its cells. The header's `request_param` and `cell_block_meta` are set here.
///
/// # Errors
/// Cells that cannot be written, or a frame that would be too long. `out` is as before then.
pub fn encode_request(
    out: &mut BytesMut,
    mut header: RequestHeader,
    message: &impl Message,
    cells: &impl CellBlock,
) -> Result<(), WireError> {
    let cells_len = cells.encoded_len();
    header.request_param = Some(true);
    header.cell_block_meta = meta(cells_len);
    encode(out, &header, Some(message), cells, cells_len)
}

/// Appends a response with its cells; `message` is absent if the header has an exception. The header's
/// `cell_block_meta` is set here.
///
/// # Errors
/// Cells that cannot be written, or a frame that would be too long. `out` is as before then.
pub fn encode_response(
    out: &mut BytesMut,
    mut header: ResponseHeader,
    message: Option<&impl Message>,
    cells: &impl CellBlock,
) -> Result<(), WireError> {
    let cells_len = cells.encoded_len();
    header.cell_block_meta = meta(cells_len);
    encode(out, &header, message, cells, cells_len)
}

fn meta(cells_len: usize) -> Option<CellBlockMeta> {
    (cells_len > 0).then_some(CellBlockMeta {
        length: Some(cells_len as u32),
    })
}

fn encode(
    out: &mut BytesMut,
    header: &impl Message,
    message: Option<&impl Message>,
    cells: &impl CellBlock,
    cells_len: usize,
) -> Result<(), WireError> {
    let header_len = header.encoded_len();
    let message_len = message.map(Message::encoded_len);
    let delimited = |len: usize| encoded_len_varint(len as u64) + len;
    let length = delimited(header_len) + message_len.map_or(0, delimited) + cells_len;
    within("frame", length as u64, FRAME_BYTES_MAX)?;
    let start = out.len();
    out.reserve(LENGTH_BYTES + length);
    out.put_u32(length as u32);
    encode_varint(header_len as u64, out);
    header.encode_raw(out);
    if let Some(message) = message {
        encode_varint(message_len.unwrap_or_default() as u64, out);
        message.encode_raw(out);
    }
    if let Err(e) = cells.encode(out) {
        out.truncate(start);
        return Err(e);
    }
    debug_assert_eq!(
        out.len() - start,
        LENGTH_BYTES + length,
        "a cell block has its announced length"
    );
    Ok(())
}

/// Takes a whole frame, without its length, off the front of the received bytes. `None` if it is incomplete.
///
/// # Errors
/// A frame of more than `limit` bytes. The stream cannot be read any further.
pub fn take_frame(received: &mut BytesMut, limit: usize) -> Result<Option<Bytes>, WireError> {
    let Some(length) = frame_length(received, limit)? else {
        return Ok(None);
    };
    if received.len() - LENGTH_BYTES < length {
        return Ok(None);
    }
    received.advance(LENGTH_BYTES);
    Ok(Some(received.split_to(length).freeze()))
}

/// Total bytes of the frame at the front of the received bytes, its length field included. `None` if not known yet.
///
/// # Errors
/// A frame of more than `limit` bytes.
pub fn frame_bytes(received: &[u8], limit: usize) -> Result<Option<usize>, WireError> {
    Ok(frame_length(received, limit)?.map(|length| LENGTH_BYTES + length))
}

fn frame_length(received: &[u8], limit: usize) -> Result<Option<usize>, WireError> {
    let Some(length) = received.first_chunk::<LENGTH_BYTES>() else {
        return Ok(None);
    };
    within("frame", u64::from(u32::from_be_bytes(*length)), limit).map(Some)
}

/// Decodes a frame from a client.
///
/// # Errors
/// Bytes that are not a request.
pub fn decode_request(mut frame: Bytes) -> Result<Request, WireError> {
    let header = take_delimited("request header", &mut frame)?;
    let header: RequestHeader = crate::messages::decode("RequestHeader", header)?;
    let message = match header.request_param {
        Some(true) => take_delimited("request message", &mut frame)?,
        _ => Bytes::new(),
    };
    let cells = cell_block(&mut frame, header.cell_block_meta)?;
    Ok(Request { header, message, cells })
}

/// Decodes a frame from a server.
///
/// # Errors
/// Bytes that are not a response.
pub fn decode_response(mut frame: Bytes) -> Result<Response, WireError> {
    let header = take_delimited("response header", &mut frame)?;
    let header: ResponseHeader = crate::messages::decode("ResponseHeader", header)?;
    let message = match header.exception {
        Some(_) => Bytes::new(),
        None => take_delimited("response message", &mut frame)?,
    };
    let cells = cell_block(&mut frame, header.cell_block_meta)?;
    Ok(Response { header, message, cells })
}

fn take_delimited(what: &'static str, frame: &mut Bytes) -> Result<Bytes, WireError> {
    let length = decode_varint(frame).map_err(|e| WireError::message(what, &e))?;
    take(what, frame, length)
}

/// The cells that a header announces. They must be the whole rest of the frame.
fn cell_block(frame: &mut Bytes, meta: Option<CellBlockMeta>) -> Result<Bytes, WireError> {
    let length = meta.and_then(|m| m.length).unwrap_or_default();
    let cells = take("cell block", frame, u64::from(length))?;
    within("bytes behind the cell block", frame.len() as u64, 0)?;
    Ok(cells)
}

fn take(what: &'static str, frame: &mut Bytes, length: u64) -> Result<Bytes, WireError> {
    let found = frame.len() as u64;
    if found < length {
        return Err(WireError::Truncated {
            what,
            needed: length,
            found,
        });
    }
    Ok(frame.split_to(length as usize))
}

fn within(what: &'static str, found: u64, limit: usize) -> Result<usize, WireError> {
    let limit = limit as u64;
    if found > limit {
        return Err(WireError::TooLong { what, limit, found });
    }
    Ok(found as usize)
}

#[cfg(test)]
mod tests;
