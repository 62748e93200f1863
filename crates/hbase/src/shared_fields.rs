//! Messages that front ends share. Each has fields of its own in one message, and keeps those of the others.

use bytes::{Buf, Bytes};
use prost::DecodeError;
use prost::encoding::{self, DecodeContext, WireType};

/// The bytes of the fields of a message whose numbers are not these.
pub(crate) fn others(message: &Bytes, is_own: impl Fn(u32) -> bool) -> Result<Vec<u8>, DecodeError> {
    let mut left = message.clone();
    let mut others = Vec::with_capacity(message.len());
    while left.has_remaining() {
        let field = left.clone();
        let (number, wire_type): (u32, WireType) = encoding::decode_key(&mut left)?;
        encoding::skip_field(wire_type, number, &mut left, DecodeContext::default())?;
        if !is_own(number) {
            let bytes = field.len().saturating_sub(left.len());
            others.extend_from_slice(field.get(..bytes).unwrap_or_default());
        }
    }
    Ok(others)
}
