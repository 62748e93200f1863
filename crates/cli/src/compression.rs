//! Compressed inputs and outputs.
//!
//! An input's compression is told by its first bytes, not by its name, so pipes work too. Gzip members and zstd and lz4
//! frames may be concatenated, as their formats allow.
//!
//! An output is a sequence of such members, each holding whole rows. So an export that is cut back to the end of a member
//! can go on by appending, and no encoder state needs saving.

use anyhow::{Result, bail};
use clap::ValueEnum;
use std::io::{self, BufRead, BufReader, Cursor, Read, Write};
use std::path::Path;

/// How bytes are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Compression {
    /// Inputs: by the first bytes. Outputs: by the extension.
    Auto,
    /// Not at all.
    None,
    /// Gzip (RFC 1952).
    Gzip,
    /// Zstandard (RFC 8878).
    Zstd,
    /// LZ4 frames; inputs only.
    Lz4,
}

/// Number of first bytes that tell a compression.
const MAGIC_BYTES: usize = 6;
const BUFFER_BYTES: usize = 256 << 10;

/// The compression by the first bytes of an input. Known compressions that are not supported are refused by name.
pub fn detect(magic: &[u8]) -> Result<Compression> {
    let known: [(&[u8], Compression); 3] = [
        (b"\x1f\x8b", Compression::Gzip),
        (b"\x28\xb5\x2f\xfd", Compression::Zstd),
        (b"\x04\x22\x4d\x18", Compression::Lz4),
    ];
    if let Some((_, compression)) = known.iter().find(|(prefix, _)| magic.starts_with(prefix)) {
        return Ok(*compression);
    }
    for (prefix, tool) in [(&b"\xfd7zXZ\0"[..], "xz"), (&b"BZh"[..], "bzip2")] {
        if magic.starts_with(prefix) {
            bail!("the input is compressed with {tool}; pipe it through `{tool} -dc` and read from `-`");
        }
    }
    Ok(Compression::None)
}

/// Wraps an input so that it reads decompressed.
pub fn decompress(mut input: Box<dyn Read + Send>, compression: Compression) -> Result<Box<dyn BufRead + Send>> {
    let mut magic = Vec::new();
    input.by_ref().take(MAGIC_BYTES as u64).read_to_end(&mut magic)?;
    let compression = match compression {
        Compression::Auto => detect(&magic)?,
        given => given,
    };
    let input = BufReader::with_capacity(BUFFER_BYTES, Cursor::new(magic).chain(input));
    let decoded: Box<dyn Read + Send> = match compression {
        Compression::Auto | Compression::None => Box::new(input),
        Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(input)),
        Compression::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(input)?),
        Compression::Lz4 => Box::new(Lz4Frames(lz4_flex::frame::FrameDecoder::new(input))),
    };
    Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, decoded)))
}

/// Reads concatenated frames; the decoder itself stops after each.
struct Lz4Frames<R: Read>(lz4_flex::frame::FrameDecoder<R>);

impl<R: BufRead> Read for Lz4Frames<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.0.read(into)?;
            if count > 0 || into.is_empty() || self.0.get_mut().fill_buf()?.is_empty() {
                return Ok(count);
            }
        }
    }
}

/// The compression of an output, by the extension of its name.
pub fn for_output(path: Option<&Path>, given: Compression) -> Result<Compression> {
    let extension = path.and_then(Path::extension).and_then(|extension| extension.to_str());
    match (given, extension) {
        (Compression::Lz4, _) | (Compression::Auto, Some("lz4")) => {
            bail!("lz4 is only read, not written; use gzip or zstd")
        }
        (Compression::Auto, Some("gz")) => Ok(Compression::Gzip),
        (Compression::Auto, Some("zst")) => Ok(Compression::Zstd),
        (Compression::Auto, _) => Ok(Compression::None),
        (given, _) => Ok(given),
    }
}

/// Bytes as one complete member.
pub fn compress_member(bytes: &[u8], compression: Compression) -> io::Result<Vec<u8>> {
    match compression {
        Compression::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Default::default());
            encoder.write_all(bytes)?;
            encoder.finish()
        }
        Compression::Zstd => zstd::stream::encode_all(bytes, zstd::DEFAULT_COMPRESSION_LEVEL),
        Compression::Auto | Compression::None | Compression::Lz4 => Ok(bytes.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        let mut input = decompress(Box::new(Cursor::new(bytes)), Compression::Auto).unwrap();
        input.read_to_end(&mut out)?;
        Ok(out)
    }

    fn lz4_member(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn members_can_be_concatenated() {
        let parts: [&[u8]; 3] = [b"one ", b"", b"three"];
        for compression in [Compression::None, Compression::Gzip, Compression::Zstd] {
            let members = parts.map(|part| compress_member(part, compression).unwrap());
            assert_eq!(read(members.concat()).unwrap(), b"one three", "{compression:?}");
        }
        assert_eq!(read(parts.map(lz4_member).concat()).unwrap(), b"one three");
    }

    #[test]
    fn truncation_is_an_error() {
        let text: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
        let members = [
            compress_member(&text, Compression::Gzip).unwrap(),
            compress_member(&text, Compression::Zstd).unwrap(),
            lz4_member(&text),
        ];
        for mut member in members {
            member.truncate(member.len() / 2);
            assert!(read(member).is_err());
        }
    }

    #[test]
    fn short_inputs_and_unreadable_ones() {
        assert_eq!(read(b"".to_vec()).unwrap(), b"");
        assert_eq!(read(b"a".to_vec()).unwrap(), b"a");
        assert!(detect(b"\xfd7zXZ\0").unwrap_err().to_string().contains("xz -dc"));
        assert!(for_output(Some(Path::new("a.csv.lz4")), Compression::Auto).is_err());
        let zstd = for_output(Some(Path::new("a.csv.zst")), Compression::Auto).unwrap();
        assert_eq!(zstd, Compression::Zstd);
    }
}
