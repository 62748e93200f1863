//! A reader takes fields off the front of bytes and tracks its offset.

use super::{FORMAT_VERSION, FormatError};
use stele_types::varint;

pub(super) struct Reader<'a> {
    rest: &'a [u8],
    whole: &'a [u8],
    /// Offset in the file of the first byte of `whole`.
    base: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8], base: usize) -> Self {
        Reader {
            rest: bytes,
            whole: bytes,
            base,
        }
    }

    /// The offset in the file.
    pub(super) fn offset(&self) -> usize {
        debug_assert!(self.rest.len() <= self.whole.len(), "a reader moves forward");
        self.base + (self.whole.len() - self.rest.len())
    }

    /// The field that `take` takes, or an error that it is missing.
    fn field<T>(&mut self, what: &str, take: impl FnOnce(&mut &'a [u8]) -> Option<T>) -> Result<T, FormatError> {
        let (offset, mut rest) = (self.offset(), self.rest);
        match take(&mut rest) {
            Some(value) => {
                debug_assert!(rest.len() <= self.rest.len(), "a field is taken off the front");
                self.rest = rest;
                Ok(value)
            }
            None => {
                let found = format!("{} bytes that hold none", self.rest.len());
                Err(FormatError::new(offset, format!("a {what}"), found))
            }
        }
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], FormatError> {
        self.field(what, |rest| {
            let (head, tail) = rest.split_first_chunk::<N>()?;
            *rest = tail;
            Some(*head)
        })
    }

    pub(super) fn u8(&mut self, what: &str) -> Result<u8, FormatError> {
        self.array::<1>(what).map(|[byte]| byte)
    }

    pub(super) fn u32(&mut self, what: &str) -> Result<u32, FormatError> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: &str) -> Result<u64, FormatError> {
        self.array(what).map(u64::from_le_bytes)
    }

    pub(super) fn varint(&mut self, what: &str) -> Result<u64, FormatError> {
        self.field(what, varint::take_u64)
    }

    pub(super) fn bytes(&mut self, what: &str) -> Result<&'a [u8], FormatError> {
        self.field(what, varint::take_bytes)
    }

    pub(super) fn key(&mut self, len_max: usize) -> Result<String, FormatError> {
        let offset = self.offset();
        let key = self.bytes("key")?;
        match std::str::from_utf8(key) {
            Ok(text) if (1..=len_max).contains(&text.len()) => Ok(text.to_owned()),
            _ => {
                let head = key.get(..64).unwrap_or(key).escape_ascii();
                let expected = format!("a key of 1 to {len_max} bytes of UTF-8");
                Err(FormatError::new(
                    offset,
                    expected,
                    format!("{} bytes: {head}", key.len()),
                ))
            }
        }
    }

    pub(super) fn magic(&mut self, magic: &[u8]) -> Result<(), FormatError> {
        let offset = self.offset();
        let found = self.field("magic number", |rest| {
            let (head, tail) = rest.split_at_checked(magic.len())?;
            *rest = tail;
            Some(head)
        })?;
        if found == magic {
            return Ok(());
        }
        let show = |bytes: &[u8]| format!("{:?}", bytes.escape_ascii().to_string());
        Err(FormatError::new(offset, show(magic), show(found)))
    }

    /// Magic, version and checksum, with which both files begin. `crc` gets the bytes before and behind the checksum.
    pub(super) fn file_header(
        &mut self,
        magic: &[u8],
        crc: impl FnOnce(&[u8], &[u8]) -> u32,
    ) -> Result<(), FormatError> {
        self.magic(magic)?;
        let version_at = self.offset();
        let version = self.u32("format version")?;
        let covered = self.whole.get(..self.offset() - self.base).unwrap_or_default();
        let crc_at = self.offset();
        let expected = self.u32("checksum")?;
        let actual = crc(covered, self.rest);
        if actual != expected {
            let expected = format!("a file with CRC-32 {expected:08x}");
            return Err(FormatError::new(crc_at, expected, format!("CRC-32 {actual:08x}")));
        }
        if version != FORMAT_VERSION {
            let expected = format!("format version {FORMAT_VERSION}");
            return Err(FormatError::new(version_at, expected, version.to_string()));
        }
        Ok(())
    }

    pub(super) fn end(&self) -> Result<(), FormatError> {
        match self.rest.len() {
            0 => Ok(()),
            n => Err(FormatError::new(self.offset(), "the end", format!("{n} more bytes"))),
        }
    }
}
