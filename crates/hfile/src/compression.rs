//! Decompression of blocks.
//!
//! Codecs of Hadoop that compress in blocks (Snappy, LZ4, and HBase's Zstandard) frame their output: bytes before
//! compression (4), then *chunks*, each with its length (4), until these bytes are complete. All of this is repeated as often as
//! needed. gzip, and Hadoop's own Zstandard, are streams without such frames.

use crate::error::{Decoded, Malformed};
use crate::input::Input;
use std::io::Read;

/// Codecs by their number in trailers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

/// Names of all codecs of HBase, by number.
const NAMES: [&str; 9] = ["lzo", "gz", "none", "snappy", "lz4", "bzip2", "zstd", "lzma", "brotli"];

/// The first bytes of a frame of Zstandard, which is no length of a block.
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

impl Codec {
    /// The codec of this number; the error is the name of one that is not read.
    pub fn from_number(number: u32) -> Result<Codec, String> {
        match number {
            1 => Ok(Codec::Gzip),
            2 => Ok(Codec::None),
            3 => Ok(Codec::Snappy),
            4 => Ok(Codec::Lz4),
            6 => Ok(Codec::Zstd),
            other => {
                let name = usize::try_from(other).ok().and_then(|at| NAMES.get(at));
                Err(name.map_or_else(|| format!("number {other}"), |name| (*name).to_owned()))
            }
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Codec::None => "none",
            Codec::Gzip => "gz",
            Codec::Snappy => "snappy",
            Codec::Lz4 => "lz4",
            Codec::Zstd => "zstd",
        }
    }

    /// Decompresses to exactly this many bytes. Not for [`Codec::None`].
    pub fn decompress(self, input: &[u8], bytes: usize) -> Decoded<Vec<u8>> {
        let mut output = vec![0; bytes];
        match self {
            Codec::None if input.len() == bytes => output.copy_from_slice(input),
            Codec::None => return Malformed::new("content of another length than the header says"),
            Codec::Gzip => fill(flate2::read::MultiGzDecoder::new(input), &mut output)?,
            Codec::Zstd if input.starts_with(ZSTD_MAGIC) => {
                let stream = zstd::stream::read::Decoder::new(input).map_err(not_decompressed)?;
                fill(stream, &mut output)?;
            }
            Codec::Snappy => unframe(input, &mut output, snappy)?,
            Codec::Lz4 => unframe(input, &mut output, lz4)?,
            Codec::Zstd => unframe(input, &mut output, zstd_chunk)?,
        }
        Ok(output)
    }
}

fn not_decompressed(error: impl std::fmt::Display) -> Malformed {
    Malformed(format!("not decompressed: {error}").into())
}

/// Reads a stream that has exactly as many bytes.
fn fill(mut stream: impl Read, output: &mut [u8]) -> Decoded<()> {
    stream.read_exact(output).map_err(not_decompressed)?;
    match stream.read(&mut [0]).map_err(not_decompressed)? {
        0 => Ok(()),
        _ => Malformed::new("more content than the header says"),
    }
}

/// Decompresses a chunk to the front of a buffer; how many bytes it was.
type Chunk = fn(&[u8], &mut [u8]) -> Decoded<usize>;

fn unframe(input: &[u8], mut output: &mut [u8], chunk: Chunk) -> Decoded<()> {
    let mut input = Input::new(input);
    while !output.is_empty() {
        let block_bytes = input.length()?;
        let Some((mut block, rest)) = std::mem::take(&mut output).split_at_mut_checked(block_bytes) else {
            return Malformed::new("more content than the header says");
        };
        while !block.is_empty() {
            let compressed = input.length()?;
            let done = chunk(input.take(compressed)?, block)?;
            if done == 0 {
                return Malformed::new("a compressed chunk of nothing");
            }
            block = block.get_mut(done..).unwrap_or_default();
        }
        if block_bytes == 0 && input.is_empty() {
            return Malformed::new("less content than the header says");
        }
        output = rest;
    }
    // An empty block is a length alone. It stands for no content at all, and may end any.
    while !input.is_empty() {
        if input.length()? != 0 {
            return Malformed::new("bytes behind the compressed content");
        }
    }
    Ok(())
}

fn snappy(chunk: &[u8], output: &mut [u8]) -> Decoded<usize> {
    let bytes = snap::raw::decompress_len(chunk).map_err(not_decompressed)?;
    let Some(output) = output.get_mut(..bytes) else {
        return Malformed::new("a chunk of more content than its block");
    };
    snap::raw::Decoder::new()
        .decompress(chunk, output)
        .map_err(not_decompressed)
}

fn lz4(chunk: &[u8], output: &mut [u8]) -> Decoded<usize> {
    lz4_flex::block::decompress_into(chunk, output).map_err(not_decompressed)
}

fn zstd_chunk(chunk: &[u8], output: &mut [u8]) -> Decoded<usize> {
    zstd::bulk::decompress_to_buffer(chunk, output).map_err(not_decompressed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const CONTENT: &[u8] = b"a row, a row, a row, and another row; a row, a row, a row, and another row";

    /// Two blocks, the second one of two chunks.
    fn framed(compress: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
        let (first, second) = CONTENT.split_at(30);
        let mut out = Vec::new();
        for block in [vec![first], vec![&second[..7], &second[7..]]] {
            let bytes: usize = block.iter().map(|chunk| chunk.len()).sum();
            out.extend((bytes as u32).to_be_bytes());
            for chunk in block {
                let compressed = compress(chunk);
                out.extend((compressed.len() as u32).to_be_bytes());
                out.extend(compressed);
            }
        }
        out
    }

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    fn samples() -> Vec<(Codec, Vec<u8>)> {
        let zstd = |content: &[u8]| zstd::bulk::compress(content, 1).unwrap();
        vec![
            (Codec::None, CONTENT.to_vec()),
            (Codec::Gzip, gzip(CONTENT)),
            (
                Codec::Snappy,
                framed(|chunk| snap::raw::Encoder::new().compress_vec(chunk).unwrap()),
            ),
            (Codec::Lz4, framed(lz4_flex::block::compress)),
            (Codec::Zstd, framed(zstd)),
            (Codec::Zstd, zstd(CONTENT)),
        ]
    }

    #[test]
    fn every_codec_and_frame() {
        for (codec, input) in samples() {
            let read = codec.decompress(&input, CONTENT.len());
            assert_eq!(read.as_deref(), Ok(CONTENT), "{}", codec.name());
            for bytes in [CONTENT.len() - 1, CONTENT.len() + 1, 0] {
                assert!(codec.decompress(&input, bytes).is_err(), "{} {bytes}", codec.name());
            }
            for cut in 0..input.len() {
                assert!(codec.decompress(&input[..cut], CONTENT.len()).is_err());
            }
        }
    }

    #[test]
    fn an_empty_block_does_not_go_on_forever() {
        assert_eq!(Codec::Snappy.decompress(&[0; 4], 0), Ok(Vec::new()));
        for codec in [Codec::Snappy, Codec::Lz4, Codec::Zstd] {
            assert!(codec.decompress(&[0; 4], 1).is_err());
            assert!(codec.decompress(&[0, 0, 0, 1, 0, 0, 0, 0], 1).is_err());
        }
    }

    #[test]
    fn others_have_names() {
        assert_eq!(Codec::from_number(0), Err("lzo".to_owned()));
        assert_eq!(Codec::from_number(77), Err("number 77".to_owned()));
        assert_eq!(Codec::from_number(6), Ok(Codec::Zstd));
    }
}
