//! gRPC's framing: compression flag (one byte), length (four bytes), message.
//!
//! A message that arrived in one buffer is returned as a slice of it, so that only the kernel copies the value of a
//! read.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;

/// Largest message accepted: the limit of Google's clients, and above the 256 MB that a row may have.
pub(in crate::target) const MESSAGE_BYTES_MAX: usize = (256 << 20) + (1 << 20);

/// Bytes before a message.
const PREFIX_BYTES: usize = 5;

/// A message with its prefix.
pub(in crate::target) fn frame(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut framed = BytesMut::with_capacity(PREFIX_BYTES + length);
    framed.put_u8(0);
    framed.put_u32(length as u32);
    message.encode(&mut framed).expect("a BytesMut grows as needed");
    framed.freeze()
}

/// Splits a stream of buffers into messages.
#[derive(Default)]
pub(in crate::target) struct Deframer {
    /// Bytes not split yet, if they are the rest of one buffer. Empty if `joined` is not.
    rest: Bytes,
    /// Bytes not split yet, if a message spans buffers.
    joined: BytesMut,
}

impl Deframer {
    /// Takes the next buffer.
    pub(in crate::target) fn push(&mut self, piece: Bytes) {
        if self.rest.is_empty() && self.joined.is_empty() {
            self.rest = piece;
            return;
        }
        if self.joined.is_empty() {
            self.joined.extend_from_slice(&std::mem::take(&mut self.rest));
        }
        self.joined.extend_from_slice(&piece);
    }

    /// The next message, if it is complete.
    ///
    /// # Errors
    /// A compressed message, since no compression was offered, or one that is too large.
    pub(in crate::target) fn pop(&mut self) -> Result<Option<Bytes>, String> {
        let there: &[u8] = if self.joined.is_empty() {
            &self.rest
        } else {
            &self.joined
        };
        let Some([compressed, length @ ..]) = there.first_chunk::<PREFIX_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length) as usize;
        if *compressed != 0 {
            return Err(format!(
                "a message with compression flag {compressed}, and none was agreed on"
            ));
        }
        if length > MESSAGE_BYTES_MAX {
            return Err(format!(
                "a message of {length} bytes, and {MESSAGE_BYTES_MAX} are allowed"
            ));
        }
        if there.len() < PREFIX_BYTES + length {
            return Ok(None);
        }
        if !self.joined.is_empty() {
            self.rest = std::mem::take(&mut self.joined).freeze();
        }
        let mut message = self.rest.split_to(PREFIX_BYTES + length);
        message.advance(PREFIX_BYTES);
        Ok(Some(message))
    }

    /// Whether everything was cut.
    pub(in crate::target) fn is_empty(&self) -> bool {
        self.rest.is_empty() && self.joined.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_as_they_went_in_however_they_are_cut() {
        let messages: Vec<Vec<u8>> = vec![vec![], vec![1; 3], vec![2; 100], vec![3; 7]];
        let stream: Vec<u8> = messages.iter().flat_map(frame).collect();
        let expected: Vec<Bytes> = messages.iter().map(|m| frame(m).slice(PREFIX_BYTES..)).collect();
        for size in 1..=stream.len() {
            let mut deframer = Deframer::default();
            let mut got = Vec::new();
            for piece in stream.chunks(size) {
                deframer.push(Bytes::copy_from_slice(piece));
                while let Some(message) = deframer.pop().unwrap() {
                    got.push(message);
                }
            }
            assert_eq!(got, expected, "pieces of {size}");
            assert!(deframer.is_empty());
        }
    }

    #[test]
    fn a_message_in_one_piece_is_not_copied() {
        let piece = frame(&vec![7_u8; 64]);
        let mut deframer = Deframer::default();
        deframer.push(piece.clone());
        let message = deframer.pop().unwrap().unwrap();
        assert_eq!(message.as_ptr(), piece[PREFIX_BYTES..].as_ptr());
    }

    #[test]
    fn bad_prefixes_are_errors() {
        for (prefix, good) in [
            ([0, 0, 0, 0, 9], true),
            ([1, 0, 0, 0, 9], false),
            ([0, 255, 0, 0, 0], false),
        ] {
            let mut deframer = Deframer::default();
            deframer.push(Bytes::copy_from_slice(&prefix));
            assert_eq!(deframer.pop().is_ok(), good, "{prefix:?}");
            assert!(!deframer.is_empty());
        }
    }
}
