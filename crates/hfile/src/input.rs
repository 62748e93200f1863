//! Numbers as HBase and Hadoop write them.

use crate::error::{Decoded, Malformed};

/// Bytes that are decoded front to back.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    left: &'a [u8],
    len: usize,
}

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Input {
            left: bytes,
            len: bytes.len(),
        }
    }

    /// Bytes that were taken.
    pub fn position(&self) -> usize {
        self.len - self.left.len()
    }

    pub fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// The bytes that are left.
    pub fn rest(&self) -> &'a [u8] {
        self.left
    }

    pub fn take(&mut self, bytes: usize) -> Decoded<&'a [u8]> {
        match self.left.split_at_checked(bytes) {
            Some((taken, left)) => {
                self.left = left;
                Ok(taken)
            }
            None => Malformed::new(format!("{bytes} bytes expected, {} are left", self.left.len())),
        }
    }

    fn array<const N: usize>(&mut self) -> Decoded<[u8; N]> {
        let taken = self.take(N)?;
        Ok(*taken.first_chunk().unwrap_or(&[0; N]))
    }

    pub fn u8(&mut self) -> Decoded<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u16(&mut self) -> Decoded<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub fn u32(&mut self) -> Decoded<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub fn u64(&mut self) -> Decoded<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A length of four bytes; Java's are signed.
    pub fn length(&mut self) -> Decoded<usize> {
        let length = self.u32()?;
        match i32::try_from(length) {
            Ok(_) => Ok(length as usize),
            Err(_) => Malformed::new("a negative length"),
        }
    }

    /// `ByteBufferUtils.readCompressedInt`: seven bits a byte, the lowest first, in at most five bytes. So are the raw
    /// varints of 32 bits.
    pub fn compressed_int(&mut self) -> Decoded<usize> {
        let mut value: u64 = 0;
        for at in 0..5 {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                return match i32::try_from(value) {
                    Ok(_) => Ok(value as usize),
                    Err(_) => Malformed::new("a negative length"),
                };
            }
        }
        Malformed::new("a number of more than five bytes")
    }

    /// `WritableUtils.readVLong`: one byte from -112 on is the number. A lower one has the sign and the number of bytes
    /// that follow, the highest first.
    pub fn vlong(&mut self) -> Decoded<i64> {
        let first = self.u8()? as i8;
        if first >= -112 {
            return Ok(i64::from(first));
        }
        let is_negative = first < -120;
        let bytes = if is_negative { -120 - first } else { -112 - first };
        let mut value: i64 = 0;
        for byte in self.take(usize::from(bytes.unsigned_abs()))? {
            value = value << 8 | i64::from(*byte);
        }
        Ok(if is_negative { !value } else { value })
    }

    /// `Bytes.readByteArray`: a length as [`Input::vlong`], then as many bytes.
    pub fn byte_array(&mut self) -> Decoded<&'a [u8]> {
        match usize::try_from(self.vlong()?) {
            Ok(bytes) => self.take(bytes),
            Err(_) => Malformed::new("a negative length"),
        }
    }

    /// `count` bytes of a number, the lowest first.
    pub fn little_endian(&mut self, count: usize) -> Decoded<i64> {
        let taken = self.take(count)?;
        let fold = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        Ok(taken.iter().rev().fold(0, fold) as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_hadoop() {
        for (bytes, value) in [
            (&[0x00][..], 0),
            (&[0x7f], 127),
            (&[0x90], -112),
            (&[0x8f, 0x80], 128),
            (&[0x87, 0x70], -113),
            (&[0x8e, 0x01, 0x00], 256),
            (&[0x88, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], i64::MAX),
            (&[0x80, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], i64::MIN),
        ] {
            let mut input = Input::new(bytes);
            assert_eq!(input.vlong(), Ok(value), "{bytes:x?}");
            assert!(input.is_empty());
        }
        assert!(Input::new(&[0x8f]).vlong().is_err());
    }

    #[test]
    fn numbers_of_seven_bits() {
        let read = |bytes: &[u8]| Input::new(bytes).compressed_int();
        assert_eq!(read(&[0x05]), Ok(5));
        assert_eq!(read(&[0x80, 0x01]), Ok(128));
        assert_eq!(read(&[0xff, 0xff, 0xff, 0xff, 0x07]), Ok(i32::MAX as usize));
        for bad in [&[0xff, 0xff, 0xff, 0xff, 0x0f][..], &[0x80; 5], &[0x80], &[]] {
            assert!(read(bad).is_err(), "{bad:x?}");
        }
        assert_eq!(Input::new(&[1, 2]).little_endian(2), Ok(0x201));
        assert_eq!(Input::new(&[0xff; 8]).little_endian(8), Ok(-1));
    }

    #[test]
    fn lengths_have_bounds() {
        assert!(Input::new(&[0x80, 0, 0, 0]).length().is_err());
        assert!(Input::new(&[0xff]).byte_array().is_err());
        let mut input = Input::new(&[2, 7, 8, 9]);
        assert_eq!(input.byte_array(), Ok(&[7, 8][..]));
        assert_eq!((input.position(), input.rest()), (3, &[9][..]));
    }
}
