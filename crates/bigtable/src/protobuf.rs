//! The protocol buffer wire format, as far as the most frequent messages need it.
//!
//! It reads fields in place and appends fields to a buffer. The reader is stricter than the format and never guesses.
//! It returns `None` for input that it does not support (groups, damage), and the caller falls back to prost.

use bytes::{BufMut, BytesMut};
use stele_types::Span;

/// The encoding of a field's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WireType {
    Varint,
    Fixed64,
    Bytes,
    Fixed32,
}

/// The longest varint: negative numbers of 64 bits have it, and this one is -1.
const MINUS_ONE: [u8; 10] = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];

/// Reads the fields of one message.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'b> {
    bytes: &'b [u8],
    at: usize,
    end: usize,
}

impl<'b> Fields<'b> {
    /// Of a message that is all of `bytes`.
    pub fn of(bytes: &'b [u8]) -> Self {
        Fields {
            bytes,
            at: 0,
            end: bytes.len(),
        }
    }

    /// Number and wire type of the next field; `Some(None)` at the end.
    #[inline]
    pub fn next(&mut self) -> Option<Option<(u32, WireType)>> {
        if self.at == self.end {
            return Some(None);
        }
        let key = u32::try_from(self.varint()?).ok()?;
        let wire_type = match key & 7 {
            0 => WireType::Varint,
            1 => WireType::Fixed64,
            2 => WireType::Bytes,
            5 => WireType::Fixed32,
            _ => return None,
        };
        let number = key >> 3;
        (number != 0).then_some(Some((number, wire_type)))
    }

    /// The content of a varint field.
    #[inline]
    pub fn varint(&mut self) -> Option<u64> {
        let rest = self.bytes.get(self.at..self.end)?;
        match rest.first() {
            // Nearly all keys and lengths.
            Some(&byte) if byte < 0x80 => {
                self.at += 1;
                Some(u64::from(byte))
            }
            // -1, which asks for the server's time.
            Some(0xff) if rest.starts_with(&MINUS_ONE) => {
                self.at += MINUS_ONE.len();
                Some(u64::MAX)
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.bytes.get(self.at).filter(|_| self.at < self.end)?;
            self.at += 1;
            if shift == 63 && byte > 1 {
                return None;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// Where the content of a length-delimited field lies.
    #[inline]
    pub fn span(&mut self) -> Option<Span> {
        let start = self.skip_length()?;
        Span::new(start, self.at)
    }

    /// The content of a length-delimited field.
    #[inline]
    pub fn slice(&mut self) -> Option<&'b [u8]> {
        let start = self.skip_length()?;
        self.bytes.get(start..self.at)
    }

    /// The content of a message field. Its spans count from the same first byte.
    #[inline]
    pub fn message(&mut self) -> Option<Fields<'b>> {
        let start = self.skip_length()?;
        Some(Fields {
            bytes: self.bytes,
            at: start,
            end: self.at,
        })
    }

    /// Bytes that have not been read.
    #[inline]
    pub fn len(&self) -> usize {
        self.end - self.at
    }

    /// Passes over the content of a field.
    pub fn skip(&mut self, wire_type: WireType) -> Option<()> {
        match wire_type {
            WireType::Varint => self.varint().map(drop),
            WireType::Fixed64 => self.advance(8),
            WireType::Fixed32 => self.advance(4),
            WireType::Bytes => self.skip_length().map(drop),
        }
    }

    fn skip_length(&mut self) -> Option<usize> {
        let len = usize::try_from(self.varint()?).ok()?;
        let start = self.at;
        self.advance(len)?;
        Some(start)
    }

    #[inline]
    fn advance(&mut self, len: usize) -> Option<()> {
        let at = self.at.checked_add(len)?;
        (at <= self.end).then(|| self.at = at)
    }
}

/// Bytes of a varint: one for each seven bits begun.
#[inline]
pub(crate) fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Bytes of a length-delimited field whose number is below 16.
#[inline]
pub(crate) fn bytes_field_len(len: usize) -> usize {
    1 + varint_len(len as u64) + len
}

/// Appends a varint.
#[inline]
pub(crate) fn put_varint(out: &mut BytesMut, mut value: u64) {
    while value >= 0x80 {
        out.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

/// Appends the head of a length-delimited field whose number is below 16.
#[inline]
pub(crate) fn put_bytes_head(out: &mut BytesMut, number: u8, len: usize) {
    out.put_u8(number << 3 | 2);
    put_varint(out, len as u64);
}

/// Appends a length-delimited field whose number is below 16.
#[inline]
pub(crate) fn put_bytes_field(out: &mut BytesMut, number: u8, bytes: &[u8]) {
    put_bytes_head(out, number, bytes.len());
    out.extend_from_slice(bytes);
}

/// Appends a varint field whose number is below 16.
#[inline]
pub(crate) fn put_varint_field(out: &mut BytesMut, number: u8, value: u64) {
    out.put_u8(number << 3);
    put_varint(out, value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use prost::encoding;

    proptest! {
        #[test]
        fn varints_are_those_of_prost(shift in 0u32..64, low: u64) {
            let value = low >> shift;
            let mut ours = BytesMut::new();
            put_varint(&mut ours, value);
            let mut theirs = Vec::new();
            encoding::encode_varint(value, &mut theirs);
            prop_assert_eq!(&ours[..], &theirs[..]);
            prop_assert_eq!(varint_len(value), theirs.len());
            prop_assert_eq!(Fields::of(&theirs).varint(), Some(value));
        }

        #[test]
        fn prost_reads_the_same_varints(bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(0x80), Just(0xff), Just(1)], 0..12)) {
            let theirs = encoding::decode_varint(&mut &bytes[..]).ok();
            prop_assert_eq!(Fields::of(&bytes).varint(), theirs);
        }
    }

    #[test]
    fn fields_end_where_their_message_ends() {
        // Field 1: a message of which field 2 claims more bytes than there are in it.
        let bytes = [0x0a, 3, 0x12, 4, b'a', b'b', b'c', b'd'];
        let mut outer = Fields::of(&bytes);
        assert_eq!(outer.next(), Some(Some((1, WireType::Bytes))));
        let mut inner = outer.message().unwrap();
        assert_eq!(inner.next(), Some(Some((2, WireType::Bytes))));
        assert_eq!(inner.clone().slice(), None);
        assert_eq!((inner.span(), inner.skip(WireType::Fixed64)), (None, None));
        // Groups, field number zero and a key past 32 bits are not read.
        for bad in [&[0x0b][..], &[0x0c], &[0x02, 0], &[0x82, 0x80, 0x80, 0x80, 0x10, 0]] {
            assert_eq!(Fields::of(bad).next(), None, "{bad:?}");
        }
        assert_eq!(Fields::of(&[]).next(), Some(None));
        // The tenth byte of a varint has one bit.
        let varint = |last| Fields::of(&[[0xff; 9].as_slice(), &[last]].concat()).varint();
        assert_eq!((varint(1), varint(2), varint(0x81)), (Some(u64::MAX), None, None));
        // A varint with more bytes after it, and one whose message ends before its last byte.
        let field = [&[0x0a, 10][..], &MINUS_ONE, &[7]].concat();
        let mut within = Fields::of(&field);
        within.next();
        let mut message = within.message().unwrap();
        assert_eq!(
            (message.varint(), message.len(), within.varint()),
            (Some(u64::MAX), 0, Some(7))
        );
        let cut = [&[0x0a, 9][..], &MINUS_ONE].concat();
        let mut within = Fields::of(&cut);
        within.next();
        assert_eq!(within.message().unwrap().varint(), None);
    }
}
