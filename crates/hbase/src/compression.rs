//! Compression of cell blocks, which the header of a connection asks for.

use crate::failure::{Failure, Outcome};
use flate2::Compression;
use flate2::read::{GzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};
use std::io::{self, Read, Write};
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

    /// Compresses the bytes that are written to it.
    pub fn encoder(self) -> Encoder {
        match self {
            Self::None => Encoder::None(Vec::new()),
            Self::Gzip => Encoder::Gzip(GzEncoder::new(Vec::new(), Compression::fast())),
            Self::Zlib => Encoder::Zlib(ZlibEncoder::new(Vec::new(), Compression::fast())),
        }
    }

    /// Reads the content of a compressed block.
    pub fn decoder(self, block: &[u8]) -> Decoder<'_> {
        match self {
            Self::None => Decoder::None(block),
            Self::Gzip => Decoder::Gzip(Box::new(GzDecoder::new(block))),
            Self::Zlib => Decoder::Zlib(Box::new(ZlibDecoder::new(block))),
        }
    }
}

/// Makes a compressed block in memory.
pub(crate) enum Encoder {
    None(Vec<u8>),
    Gzip(GzEncoder<Vec<u8>>),
    Zlib(ZlibEncoder<Vec<u8>>),
}

impl Encoder {
    /// The block.
    pub fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Self::None(block) => Ok(block),
            Self::Gzip(encoder) => encoder.finish(),
            Self::Zlib(encoder) => encoder.finish(),
        }
    }
}

impl Write for Encoder {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::None(block) => block.write(bytes),
            Self::Gzip(encoder) => encoder.write(bytes),
            Self::Zlib(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads a compressed block.
pub(crate) enum Decoder<'a> {
    None(&'a [u8]),
    Gzip(Box<GzDecoder<&'a [u8]>>),
    Zlib(Box<ZlibDecoder<&'a [u8]>>),
}

impl Read for Decoder<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::None(block) => block.read(into),
            Self::Gzip(decoder) => decoder.read(into),
            Self::Zlib(decoder) => decoder.read(into),
        }
    }
}
