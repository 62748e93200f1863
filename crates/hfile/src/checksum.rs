//! Checksums of a block.
//!
//! Behind the content of a block there is one checksum of four bytes for each chunk of header and content.

use crate::error::{Decoded, Malformed};

/// Kinds of checksums by their code in headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumKind {
    None,
    Crc32,
    Crc32c,
}

impl ChecksumKind {
    pub fn from_code(code: u8) -> Decoded<Self> {
        match code {
            0 => Ok(ChecksumKind::None),
            1 => Ok(ChecksumKind::Crc32),
            2 => Ok(ChecksumKind::Crc32c),
            _ => Malformed::new(format!("checksums of kind {code}")),
        }
    }

    fn of(self, chunk: &[u8]) -> u32 {
        match self {
            ChecksumKind::None => 0,
            ChecksumKind::Crc32 => crc32fast::hash(chunk),
            ChecksumKind::Crc32c => crc32c(chunk),
        }
    }

    /// Compares the checksums of `data`, in chunks of this many bytes, with those that follow it.
    pub fn verify(self, data: &[u8], chunk_bytes: usize, checksums: &[u8]) -> Decoded<()> {
        if self == ChecksumKind::None {
            return Ok(());
        }
        if chunk_bytes == 0 {
            return Malformed::new("checksums of chunks of 0 bytes");
        }
        let (stored, rest) = checksums.as_chunks::<4>();
        if !rest.is_empty() || stored.len() != data.len().div_ceil(chunk_bytes) {
            return Malformed::new(format!("{} bytes of checksums", checksums.len()));
        }
        for (at, (chunk, stored)) in data.chunks(chunk_bytes).zip(stored).enumerate() {
            let (found, stored) = (self.of(chunk), u32::from_be_bytes(*stored));
            if found != stored {
                return Malformed::new(format!("checksum {at} is {found:08x}, stored is {stored:08x}"));
            }
        }
        Ok(())
    }
}

/// The polynomial of Castagnoli, reversed.
const CASTAGNOLI: u32 = 0x82f6_3b78;

/// Table `n` has the checksums of each byte that `n` zero bytes follow, so that eight bytes are done in one step.
const TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ CASTAGNOLI } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before: u32 = tables[table - 1][byte];
            tables[table][byte] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

fn table(number: usize, byte: u8) -> u32 {
    TABLES[number][usize::from(byte)]
}

/// CRC-32C, which HBase takes unless told otherwise.
fn crc32c(bytes: &[u8]) -> u32 {
    let (eights, rest) = bytes.as_chunks::<8>();
    let mut crc = !0u32;
    for eight in eights {
        let [a, b, c, d] = (crc ^ u32::from_le_bytes([eight[0], eight[1], eight[2], eight[3]])).to_le_bytes();
        crc = table(7, a)
            ^ table(6, b)
            ^ table(5, c)
            ^ table(4, d)
            ^ table(3, eight[4])
            ^ table(2, eight[5])
            ^ table(1, eight[6])
            ^ table(0, eight[7]);
    }
    for byte in rest {
        crc = crc >> 8 ^ table(0, crc as u8 ^ byte);
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_checksums() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b""), 0);
    }

    #[test]
    fn a_changed_byte_is_found() {
        let data = [7u8; 100];
        let mut sums: Vec<u8> = data.chunks(64).flat_map(|chunk| crc32c(chunk).to_be_bytes()).collect();
        let verify = |sums: &[u8]| ChecksumKind::Crc32c.verify(&data, 64, sums);
        assert!(verify(&sums).is_ok());
        assert!(verify(&sums[..4]).is_err() && verify(&sums[..7]).is_err());
        sums[5] ^= 1;
        assert!(verify(&sums).unwrap_err().0.contains("checksum 1"));
        assert!(ChecksumKind::Crc32.verify(&data, 0, &sums).is_err());
        assert!(ChecksumKind::None.verify(&data, 0, &[]).is_ok());
    }
}
