//! The header of an encrypted file, and the meaning of a file without one.

use crate::cipher::{ContentKey, MAC_BYTES, NONCE_BYTES};
use crate::record::KeyName;
use stele_storage::grows;

/// The first bytes of an encrypted file.
pub const MAGIC: [u8; 8] = *b"STELENC1";
const VERSION: u32 = 1;
/// Bytes before the content.
pub const HEADER_BYTES: usize = 64;
const FIELDS_BYTES: usize = 44;

/// A decoded header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileHeader {
    /// The data key.
    pub key: KeyName,
    /// The first counter block.
    pub nonce: [u8; NONCE_BYTES],
    /// Proves the data key.
    mac: [u8; MAC_BYTES],
}

/// How the beginning of a file is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beginning {
    /// The content follows the header.
    Encrypted(FileHeader),
    /// All bytes are content.
    Plain,
    /// A crash cut the header off: there is no content.
    Empty,
    /// The header is damaged.
    Damaged(&'static str),
}

impl FileHeader {
    /// A header for a new file.
    pub(crate) fn new(name: KeyName, key: &ContentKey, nonce: [u8; NONCE_BYTES]) -> FileHeader {
        let mut header = FileHeader {
            key: name,
            nonce,
            mac: [0; MAC_BYTES],
        };
        header.mac = key.mac(&header.fields());
        header
    }

    /// Whether this data key made the header.
    pub(crate) fn is_by(&self, key: &ContentKey) -> bool {
        key.mac(&self.fields()) == self.mac
    }

    fn fields(&self) -> [u8; FIELDS_BYTES] {
        let (kind, table, generation) = self.key.fields();
        let bytes = MAGIC.into_iter().chain(VERSION.to_le_bytes());
        let bytes = bytes.chain(kind.to_le_bytes()).chain([0; 2]).chain(table.to_le_bytes());
        let bytes = bytes.chain(generation.to_le_bytes()).chain(self.nonce);
        let mut fields = [0; FIELDS_BYTES];
        for (to, from) in fields.iter_mut().zip(bytes) {
            *to = from;
        }
        fields
    }

    /// The bytes of the header.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        let fields = self.fields().into_iter().chain(self.mac);
        for (to, from) in out.iter_mut().zip(fields) {
            *to = from;
        }
        let (body, crc) = out.split_at_mut(HEADER_BYTES - 4);
        crc.copy_from_slice(&crc32fast::hash(body).to_le_bytes());
        out
    }

    /// Reads a header. An error is a description of the damage.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<FileHeader, &'static str> {
        let (body, crc) = bytes
            .split_last_chunk::<4>()
            .ok_or("the encryption header is too short")?;
        if !body.starts_with(&MAGIC) {
            return Err("the file does not begin with an encryption header");
        }
        if crc32fast::hash(body) != u32::from_le_bytes(*crc) {
            return Err("the encryption header is damaged");
        }
        let unknown = "the encryption header has a version or a key that this program does not know";
        let at = |from: usize, len: usize| body.get(from..from + len).unwrap_or_default();
        let number = |from, len| {
            at(from, len)
                .iter()
                .rev()
                .fold(0u64, |sum, byte| sum << 8 | u64::from(*byte))
        };
        if number(8, 4) != u64::from(VERSION) || number(14, 2) != 0 {
            return Err(unknown);
        }
        let key = KeyName::of_fields(number(12, 2) as u16, number(16, 8), number(24, 4) as u32);
        Ok(FileHeader {
            key: key.ok_or(unknown)?,
            nonce: at(28, NONCE_BYTES).try_into().map_err(|_| unknown)?,
            mac: at(FIELDS_BYTES, MAC_BYTES).try_into().map_err(|_| unknown)?,
        })
    }
}

/// Takes the beginning of the file at `path`: its first bytes, [`HEADER_BYTES`] of them unless it is shorter.
pub(crate) fn beginning(path: &str, first: &[u8]) -> Beginning {
    let common = first.len().min(MAGIC.len());
    if first.is_empty() || first.get(..common) != MAGIC.get(..common) {
        return match first.first_chunk::<HEADER_BYTES>() {
            Some(bytes) if grows(path) && is_header_but_for_its_magic(bytes) => {
                Beginning::Damaged("the encryption header is damaged")
            }
            _ => Beginning::Plain,
        };
    }
    match first.first_chunk::<HEADER_BYTES>() {
        None if grows(path) => Beginning::Empty,
        None => Beginning::Damaged("the encryption header is cut off"),
        Some(bytes) => match FileHeader::decode(bytes) {
            Ok(header) => Beginning::Encrypted(header),
            // Written and never synced: the reader of a log finds no valid beginning in it, as without encryption. A header is within
            // a sector, which reaches a device whole or not at all.
            Err(_) if grows(path) && is_cut_off(bytes) => Beginning::Plain,
            Err(damage) => Beginning::Damaged(damage),
        },
    }
}

/// Whether the header ends in zeros instead of its checksum, as where a file was extended and its bytes never came.
fn is_cut_off(bytes: &[u8; HEADER_BYTES]) -> bool {
    bytes.last_chunk::<4>() == Some(&[0; 4])
}

/// A log without its header looks like one that was never written, and its synced records would be given up.
fn is_header_but_for_its_magic(bytes: &[u8; HEADER_BYTES]) -> bool {
    let mut whole = *bytes;
    for (to, from) in whole.iter_mut().zip(MAGIC) {
        *to = from;
    }
    FileHeader::decode(&whole).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::DataKey;
    use stele_types::TableId;

    fn header() -> (FileHeader, ContentKey) {
        let key = ContentKey::new(&DataKey::new([5; 32]));
        (FileHeader::new(KeyName::Table(TableId(0x1234)), &key, [7; 16]), key)
    }

    #[test]
    fn the_fields_are_where_the_format_says() {
        let (header, key) = header();
        let bytes = header.encode();
        assert_eq!(
            &bytes[..28],
            b"STELENC1\x01\0\0\0\x02\0\0\0\x34\x12\0\0\0\0\0\0\x01\0\0\0"
        );
        assert_eq!(bytes[28..44], [7; 16]);
        assert_eq!(FileHeader::decode(&bytes), Ok(header));
        assert!(header.is_by(&key));
        assert!(!header.is_by(&ContentKey::new(&DataKey::new([6; 32]))));
    }

    #[test]
    fn damage_is_found() {
        let bytes = header().0.encode();
        for at in 0..HEADER_BYTES {
            let mut changed = bytes;
            changed[at] ^= 4;
            let expected = match at {
                0..8 => Beginning::Plain,
                _ => Beginning::Damaged("the encryption header is damaged"),
            };
            assert_eq!(beginning("sst/1.sst", &changed), expected, "byte {at}");
            let damaged = Beginning::Damaged("the encryption header is damaged");
            assert_eq!(beginning("log/0/1", &changed), damaged, "byte {at}");
            assert_eq!(beginning("coord/log-1", &changed), damaged, "byte {at}");
        }
        let mut zeros = bytes;
        zeros[20..].fill(0);
        assert_eq!(beginning("log/0/1", &zeros), Beginning::Plain, "never written");
        assert_eq!(beginning("log/0/1", &[7; HEADER_BYTES]), Beginning::Plain);
    }

    #[test]
    fn a_cut_header_is_told_from_plain_text() {
        let bytes = header().0.encode();
        for len in 1..HEADER_BYTES {
            let cut = Beginning::Damaged("the encryption header is cut off");
            assert_eq!(beginning("sst/1.sst", &bytes[..len]), cut);
            assert_eq!(beginning("coord/log-1", &bytes[..len]), Beginning::Empty);
            assert_eq!(
                beginning(
                    "log/0/1",
                    &b"another text that is as long as a header is or longer than it"[..len.min(60)]
                ),
                Beginning::Plain
            );
        }
        assert_eq!(beginning("sst/1.sst", &[]), Beginning::Plain);
    }

    /// With a right checksum, so that the fields themselves are checked.
    #[test]
    fn wrong_fields_are_refused() {
        for (at, byte) in [(8, 2), (12, 3), (12, 1), (14, 1), (24, 2), (27, 1)] {
            let mut bytes = header().0.encode();
            bytes[at] = byte;
            let crc = crc32fast::hash(&bytes[..60]).to_le_bytes();
            bytes[60..].copy_from_slice(&crc);
            assert!(FileHeader::decode(&bytes).is_err(), "byte {at} is {byte}");
        }
    }
}
