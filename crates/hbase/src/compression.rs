//! Compression of cell blocks, which the header of a connection asks for.

use crate::failure::{Failure, Outcome};
use bytes::Bytes;
use flate2::Compression;
use flate2::read::{GzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};
use std::io::{Read, Write};
use stele_wire::exception;

/// A codec of Hadoop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockCompression {
    None,
    /// `org.apache.hadoop.io.compress.GzipCodec`
    Gzip,
    /// `org.apache.hadoop.io.compress.DefaultCodec`
    Zlib,
}

impl BlockCompression {
    /// The codec of a Java class.
    pub fn of_class(class: Option<&str>) -> Outcome<Self> {
        match class {
            None | Some("") => Ok(Self::None),
            Some("org.apache.hadoop.io.compress.GzipCodec") => Ok(Self::Gzip),
            Some("org.apache.hadoop.io.compress.DefaultCodec") => Ok(Self::Zlib),
            Some(other) => Err(Failure::new(
                exception::UNSUPPORTED_COMPRESSION,
                format!("Unsupported codec {other}; GzipCodec and DefaultCodec are supported"),
            )),
        }
    }

    pub fn is_none(self) -> bool {
        self == Self::None
    }

    /// Compresses a block.
    pub fn compress(self, block: &[u8]) -> Outcome<Bytes> {
        let packed = match self {
            Self::None => Ok(block.to_vec()),
            Self::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(block).and_then(|()| encoder.finish())
            }
            Self::Zlib => {
                let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(block).and_then(|()| encoder.finish())
            }
        };
        packed.map(Bytes::from).map_err(|error| {
            let message = format!("compression of a cell block failed: {error}");
            Failure::new(exception::HBASE_IO, message)
        })
    }

    /// Decompresses a block to at most `bytes_max`.
    pub fn decompress(self, block: &Bytes, bytes_max: usize) -> Outcome<Bytes> {
        if block.is_empty() || self == Self::None {
            return Ok(block.clone());
        }
        let mut plain = Vec::new();
        let limit = bytes_max as u64 + 1;
        let read = match self {
            Self::Gzip => GzDecoder::new(&block[..]).take(limit).read_to_end(&mut plain),
            _ => ZlibDecoder::new(&block[..]).take(limit).read_to_end(&mut plain),
        };
        match read {
            Ok(_) if plain.len() > bytes_max => Err(Failure::new(
                exception::REQUEST_TOO_BIG,
                format!("a compressed cell block has more than {bytes_max} bytes"),
            )),
            Ok(_) => Ok(plain.into()),
            Err(error) => Err(Failure::do_not_retry(format!(
                "a compressed cell block is damaged: {error}"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_survive_the_round_trip_within_their_bound() {
        let block = Bytes::from(vec![7; 10_000]);
        for codec in [BlockCompression::None, BlockCompression::Gzip, BlockCompression::Zlib] {
            let packed = codec.compress(&block).unwrap();
            assert_eq!(codec.decompress(&packed, 10_000).unwrap(), block);
            if codec != BlockCompression::None {
                assert!(packed.len() < 100);
                let refused = codec.decompress(&packed, 9_999).unwrap_err();
                assert_eq!(refused.class, exception::REQUEST_TOO_BIG);
                assert!(codec.decompress(&packed.slice(1..), 10_000).is_err());
            }
        }
    }
}
