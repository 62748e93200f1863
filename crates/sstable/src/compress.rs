//! Compression of block content.
//!
//! A compressed payload is the content's length as a varint, then the codec's own bytes. The length is checked against
//! [`limits::BLOCK_BYTES_MAX`] before anything is allocated. The codec's output must have that length.
//!
//! Blocks that do not compress (encrypted or already compressed values) are mostly next to each other. To find that out
//! for each block again costs more than everything else that is done to it. After [`MISSES_MIN`] consecutive blocks
//! that were not worth compressing, a [`Compressor`] tries only one in [`TRIED_EVERY`], until one is worth it.

use crate::dictionary::Dictionary;
use crate::error::DecodeError;
use crate::limits;
use std::cell::RefCell;
use stele_types::schema::Compression;
use stele_types::varint;

/// Consecutive blocks not worth compressing before some are skipped. Where every second block is worth it, this happens
/// one time in 256.
const MISSES_MIN: u32 = 8;
/// One block in this many is tried from then on, which costs an eighth of the time. Where values begin to compress, at
/// most this many blocks (some 48 KiB) are still stored uncompressed.
const TRIED_EVERY: u32 = 8;
/// Blocks up to this size are compressed with one LZ4 table that is retained for the next block. Larger blocks need
/// another kind of table.
const SMALL_TABLE_BYTES_MAX: usize = 32 << 10;

/// Compresses blocks and retains codec state from one to the next.
pub struct Compressor {
    kind: Compression,
    zstd_level: u8,
    /// Consecutive blocks that were not worth compressing, or were skipped because of those before.
    misses: u32,
    scratch: Vec<u8>,
    lz4: lz4_flex::block::CompressTable,
    snappy: snap::raw::Encoder,
    /// Created on first use: its window costs some hundred kilobytes.
    zstd: Option<zstd::bulk::Compressor<'static>>,
    /// The same with a dictionary.
    zstd_with: Option<zstd::bulk::Compressor<'static>>,
}

impl std::fmt::Debug for Compressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compressor")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl Compressor {
    /// A compressor of one kind; only Zstandard uses `zstd_level`.
    pub fn new(kind: Compression, zstd_level: u8) -> Self {
        Compressor {
            kind,
            zstd_level,
            misses: 0,
            scratch: Vec::new(),
            lz4: lz4_flex::block::CompressTable::small(),
            snappy: snap::raw::Encoder::new(),
            zstd: None,
            zstd_with: None,
        }
    }

    /// Sets the dictionary of [`Compressor::compress_with_dictionary`]; false when the codec rejects it.
    pub fn use_dictionary(&mut self, dictionary: &[u8]) -> bool {
        let made = zstd::bulk::Compressor::with_dictionary(i32::from(self.zstd_level), dictionary);
        self.zstd_with = made.ok();
        self.zstd_with.is_some()
    }

    /// The payload for `content`, compressed with the dictionary, when that saves at least an eighth. `None` also when
    /// there is no dictionary.
    pub fn compress_with_dictionary(&mut self, content: &[u8]) -> Option<Vec<u8>> {
        self.in_scratch(content, Compressor::compress_with_dictionary_into)
    }

    /// The payload for `content` when that saves at least an eighth, else `None`: the caller stores the content
    /// uncompressed. A codec that fails is treated the same way, since storing uncompressed content is always right.
    pub fn compress(&mut self, content: &[u8]) -> Option<Vec<u8>> {
        self.in_scratch(content, Compressor::compress_into)
    }

    fn in_scratch(
        &mut self,
        content: &[u8],
        compress: impl FnOnce(&mut Self, &[u8], &mut [u8]) -> Option<usize>,
    ) -> Option<Vec<u8>> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let space = self.space(content.len());
        // The buffer never shrinks, so that its bytes are cleared once and not each time.
        if scratch.len() < space {
            scratch.resize(space, 0);
        }
        let len = compress(self, content, &mut scratch);
        let payload = len.and_then(|len| scratch.get(..len)).map(<[u8]>::to_vec);
        self.scratch = scratch;
        payload
    }

    /// Size of the output buffer that compressing `content_len` bytes needs in every case.
    pub fn space(&self, content_len: usize) -> usize {
        let bound = match self.kind {
            Compression::None => 0,
            Compression::Lz4 => lz4_flex::block::get_maximum_output_size(content_len),
            Compression::Snappy => snap::raw::max_compress_len(content_len),
            Compression::Zstd => zstd::zstd_safe::compress_bound(content_len),
        };
        varint::LEN_MAX + bound
    }

    /// Like [`Compressor::compress_with_dictionary`], into the front of `out`, which has the [required
    /// size](Compressor::room). Returns the length of the payload. When there is none, `out` may be changed all the
    /// same.
    pub fn compress_with_dictionary_into(&mut self, content: &[u8], out: &mut [u8]) -> Option<usize> {
        debug_assert!(out.len() >= self.space(content.len()), "the buffer takes any outcome");
        let with = self.zstd_with.as_mut()?;
        let start = begin(out, content)?;
        let len = with.compress_to_buffer(content, out.get_mut(start..)?).ok()?;
        worth_it(start + len, content)
    }

    /// Like [`Compressor::compress_into`], for consecutive blocks of similar content: `None` also where the previous
    /// blocks predict that it does not pay.
    pub fn compress_like_before(&mut self, content: &[u8], out: &mut [u8]) -> Option<usize> {
        let is_tried = self.misses < MISSES_MIN || self.misses.is_multiple_of(TRIED_EVERY);
        let len = is_tried.then(|| self.compress_into(content, out)).flatten();
        self.misses = match len {
            Some(_) => 0,
            None => self.misses.wrapping_add(1).max(1),
        };
        len
    }

    /// Like [`Compressor::compress`], into the front of `out`.
    pub fn compress_into(&mut self, content: &[u8], out: &mut [u8]) -> Option<usize> {
        if self.kind == Compression::None {
            return None;
        }
        debug_assert!(out.len() >= self.space(content.len()), "the buffer takes any outcome");
        let start = begin(out, content)?;
        let out = out.get_mut(start..)?;
        let len = match self.kind {
            Compression::None => return None,
            Compression::Lz4 if content.len() <= SMALL_TABLE_BYTES_MAX => {
                lz4_flex::block::compress_into_with_table(content, out, &mut self.lz4).ok()?
            }
            Compression::Lz4 => lz4_flex::block::compress_into(content, out).ok()?,
            Compression::Snappy => self.snappy.compress(content, out).ok()?,
            Compression::Zstd => {
                if self.zstd.is_none() {
                    self.zstd = zstd::bulk::Compressor::new(i32::from(self.zstd_level)).ok();
                }
                self.zstd.as_mut()?.compress_to_buffer(content, out).ok()?
            }
        };
        worth_it(start + len, content)
    }
}

/// Begins a payload with the content's length. Returns the start of the codec's bytes.
fn begin(out: &mut [u8], content: &[u8]) -> Option<usize> {
    let (mut rest, mut start) = (content.len() as u64, 0);
    for place in out.iter_mut() {
        start += 1;
        if rest < 0x80 {
            *place = rest as u8;
            return Some(start);
        }
        *place = rest as u8 | 0x80;
        rest >>= 7;
    }
    None
}

/// The payload's length, if that saves enough.
fn worth_it(len: usize, content: &[u8]) -> Option<usize> {
    (len <= content.len() - content.len() / 8).then_some(len)
}

/// Decompresses a payload that was compressed with a dictionary.
pub fn decompress_with(dictionary: &Dictionary, payload: &[u8]) -> Result<Vec<u8>, DecodeError> {
    Packed::with_dictionary(dictionary, payload)?.expand()
}

/// Decompresses a payload. `kind` must not be [`Compression::None`], whose payload is the content.
pub fn decompress(kind: Compression, payload: &[u8]) -> Result<Vec<u8>, DecodeError> {
    Packed::new(kind, payload)?.expand()
}

/// A compressed payload of which only the claimed content length is known. The caller picks the memory for the content.
#[derive(Clone, Copy, Debug)]
pub struct Packed<'a> {
    kind: Compression,
    dictionary: Option<&'a Dictionary>,
    len: usize,
    /// The bytes after the length.
    input: &'a [u8],
    /// Bytes of the length.
    at: usize,
}

impl<'a> Packed<'a> {
    /// A payload of any kind but [`Compression::None`].
    pub fn new(kind: Compression, payload: &'a [u8]) -> Result<Self, DecodeError> {
        let mut input = payload;
        let len = varint::take_u64(&mut input)
            .and_then(|len| usize::try_from(len).ok())
            .ok_or_else(|| DecodeError::new(0, "malformed content length"))?;
        if len > limits::BLOCK_BYTES_MAX {
            return Err(DecodeError::new(0, format!("content length {len} exceeds the limit")));
        }
        Ok(Packed {
            kind,
            dictionary: None,
            len,
            input,
            at: payload.len() - input.len(),
        })
    }

    /// A payload that was compressed with a dictionary.
    pub fn with_dictionary(dictionary: &'a Dictionary, payload: &'a [u8]) -> Result<Self, DecodeError> {
        let dictionary = Some(dictionary);
        Ok(Packed {
            dictionary,
            ..Packed::new(Compression::Zstd, payload)?
        })
    }

    /// Bytes of the content.
    pub fn content_len(&self) -> usize {
        self.len
    }

    /// The content, in memory of its own.
    pub fn expand(self) -> Result<Vec<u8>, DecodeError> {
        let mut content = vec![0; self.len];
        self.expand_into(&mut content)?;
        Ok(content)
    }

    /// Decompresses into `content`, whose length must be the content's.
    pub fn expand_into(self, content: &mut [u8]) -> Result<(), DecodeError> {
        assert_eq!(content.len(), self.len, "the buffer is as long as the content");
        let (kind, input) = (self.kind, self.input);
        let made = match (self.dictionary, kind) {
            (Some(dictionary), _) => {
                let failed = |why: &str| format!("Zstandard with a dictionary: {why}");
                dictionary.decompress(input, content).map_err(failed)
            }
            (None, Compression::None) => Err(format!("{kind:?}: not a codec")),
            (None, Compression::Lz4) => {
                lz4_flex::block::decompress_into(input, content).map_err(|e| format!("{kind:?}: {e}"))
            }
            (None, Compression::Snappy) => {
                let made = snap::raw::Decoder::new().decompress(input, content);
                made.map_err(|e| format!("{kind:?}: {e}"))
            }
            (None, Compression::Zstd) => zstd_into(input, content).map_err(|e| format!("{kind:?}: {e}")),
        };
        let made = made.map_err(|detail| DecodeError::new(self.at, detail))?;
        if made != self.len {
            let detail = format!("content of {made} bytes, expected {}", self.len);
            return Err(DecodeError::new(self.at, detail));
        }
        Ok(())
    }
}

thread_local! {
    /// A decompression context takes 150 KB; creating one per block would cost more than decompressing it.
    static ZSTD: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

fn zstd_into(input: &[u8], out: &mut [u8]) -> std::io::Result<usize> {
    ZSTD.with_borrow_mut(|slot| {
        let context = match slot {
            Some(context) => context,
            None => slot.insert(zstd::bulk::Decompressor::new()?),
        };
        context.decompress_to_buffer(input, out)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KINDS: [Compression; 3] = [Compression::Lz4, Compression::Snappy, Compression::Zstd];

    #[test]
    fn compressible_content_round_trips_and_random_content_stays_raw() {
        let text = b"a row, a family, a column; ".repeat(1000);
        let mut x = 1u64;
        let mut noise = || {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (x >> 33) as u8
        };
        let random: Vec<u8> = (0..10_000).map(|_| noise()).collect();
        for kind in KINDS {
            let mut compressor = Compressor::new(kind, 1);
            for _ in 0..2 {
                let payload = compressor.compress(&text).expect("text compresses");
                assert!(payload.len() < text.len() / 4);
                assert_eq!(decompress(kind, &payload).expect("decompresses"), text);
                assert_eq!(compressor.compress(&random), None);
            }
        }
    }

    #[test]
    fn what_does_not_compress_is_tried_now_and_then() {
        let text = b"a row, a family, a column; ".repeat(100);
        let mut x = 1u64;
        let noise = std::iter::repeat_with(|| {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (x >> 33) as u8
        });
        let random: Vec<u8> = noise.take(text.len()).collect();
        for kind in KINDS {
            let mut compressor = Compressor::new(kind, 1);
            let mut out = vec![0; compressor.space(text.len())];
            let mut tries = |content: &[u8], count: usize| -> Vec<bool> {
                let tries = (0..count).map(|_| compressor.compress_like_before(content, &mut out).is_some());
                tries.collect()
            };
            // A few blocks that do not compress change nothing for others.
            assert_eq!(tries(&random, 7), [false; 7]);
            assert_eq!(tries(&text, 2), [true; 2]);
            // Many do, but not for long.
            assert_eq!(tries(&random, 9), [false; 9]);
            let found = tries(&text, 10);
            assert_eq!(found.iter().position(|tried| *tried), Some(7), "{kind:?}");
            assert!(found[7..].iter().all(|tried| *tried));
        }
    }

    #[test]
    fn a_length_other_than_the_content_s_is_refused() {
        let text = b"a row, a family, a column; ".repeat(10);
        for kind in KINDS {
            let payload = Compressor::new(kind, 1).compress(&text).expect("text compresses");
            let mut compressed = payload.as_slice();
            let len = varint::take_u64(&mut compressed).expect("a length");
            for wrong in [len - 1, len + 1, 0] {
                let mut payload = Vec::new();
                varint::put_u64(&mut payload, wrong);
                payload.extend_from_slice(compressed);
                assert!(decompress(kind, &payload).is_err());
            }
        }
    }

    #[test]
    fn a_length_above_the_limit_is_refused_before_allocating() {
        let mut payload = Vec::new();
        varint::put_u64(&mut payload, u64::MAX);
        for kind in KINDS {
            assert!(decompress(kind, &payload).is_err());
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), len in 0u64..5000) {
            let mut payload = Vec::new();
            varint::put_u64(&mut payload, len);
            payload.extend_from_slice(&bytes);
            for kind in KINDS {
                let _ = decompress(kind, &bytes);
                if let Ok(content) = decompress(kind, &payload) {
                    prop_assert_eq!(content.len() as u64, len);
                }
            }
        }
    }
}
