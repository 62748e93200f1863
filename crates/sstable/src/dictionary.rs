//! Dictionaries let small blocks refer to content that many blocks share.
//!
//! A dictionary is made from a *sample*, the first blocks of the file. It is a concatenation of the sample's most
//! valuable pieces. The value of a piece grows with the number of sample blocks that contain its words; words of one
//! piece do not count for the next one. The best piece comes last, where references to it are shortest. (Collet,
//! "Dictionary builder"; Liao, Petri, Moffat, Wirth, "Effective Construction of Relative Lempel-Ziv Dictionaries",
//! 2016.) There are no entropy tables: for Zstandard it is a dictionary of raw content.
//!
//! The same sample gives the same dictionary on every machine.

use crate::error::DecodeError;
use crate::limits;
use bytes::Bytes;
use std::cell::RefCell;
use zstd::zstd_safe::{DCtx, DDict, get_error_name};

/// Bytes of a sample for each byte of its dictionary. Zstandard advises 100, but little is gained above some ten. A
/// file with less content has no dictionary, since it would be too large a part of the file.
pub const SAMPLE_RATIO: usize = 16;

/// Bytes of one block that are sampled: a large value is no sample of others.
const BLOCK_SAMPLED_BYTES: usize = 128 << 10;

/// Length of the counted words: the shortest match that is worth a reference.
const WORD_BYTES: usize = 8;

/// Length of a piece: a few small cells.
const PIECE_BYTES: usize = 64;

/// Counters, by hash: 1.5 MiB while a dictionary is made. Words that share a counter make pieces seem better than they
/// are, so the writer tries a dictionary before it uses it.
const COUNTERS_LOG: u32 = 18;

/// Makes a dictionary of at most `bytes` from the blocks of a sample; `None` when they have nothing in common.
pub fn train<'a>(blocks: impl Iterator<Item = &'a [u8]>, bytes: usize) -> Option<Vec<u8>> {
    let blocks: Vec<&[u8]> = blocks
        .map(|block| block.get(..BLOCK_SAMPLED_BYTES).unwrap_or(block))
        .collect();
    let mut counters = Counters::of(&blocks);
    let sample: Vec<u8> = blocks.concat();
    let pieces = bytes / PIECE_BYTES;
    let stride = (sample.len() / pieces.max(1)).max(PIECE_BYTES);
    let mut chosen: Vec<(u64, &[u8])> = Vec::with_capacity(pieces);
    for part in sample.chunks(stride).take(pieces) {
        let Some((worth, piece)) = counters.best_piece(part) else {
            continue;
        };
        counters.forget(piece);
        chosen.push((worth, piece));
    }
    if chosen.is_empty() {
        return None;
    }
    chosen.sort_by_key(|(worth, _)| *worth);
    let dictionary: Vec<u8> = chosen.into_iter().flat_map(|(_, piece)| piece).copied().collect();
    assert!(dictionary.len() <= bytes, "a dictionary has at most the requested size");
    Some(dictionary)
}

/// The number of blocks that contain each word.
struct Counters {
    counts: Vec<u16>,
}

impl Counters {
    fn of(blocks: &[&[u8]]) -> Self {
        let mut counters = Counters {
            counts: vec![0; 1 << COUNTERS_LOG],
        };
        // The last block that contained a word: within a block it counts once.
        let mut met_by = vec![0u32; 1 << COUNTERS_LOG];
        for (number, block) in (1u32..).zip(blocks) {
            for word in words(block) {
                let slot = slot(word);
                if let (Some(last), Some(count)) = (met_by.get_mut(slot), counters.counts.get_mut(slot))
                    && *last != number
                {
                    *last = number;
                    *count = count.saturating_add(1);
                }
            }
        }
        counters
    }

    /// The value of a word. A word of one block only has none.
    fn worth(&self, word: u64) -> u64 {
        let count = self.counts.get(slot(word)).copied().unwrap_or_default();
        u64::from(count.saturating_sub(1))
    }

    /// The most valuable piece of `part`, unless all have no value.
    fn best_piece<'a>(&self, part: &'a [u8]) -> Option<(u64, &'a [u8])> {
        let words_of_piece = PIECE_BYTES - WORD_BYTES + 1;
        let worths: Vec<u64> = words(part).map(|word| self.worth(word)).collect();
        let mut sum: u64 = worths.iter().take(words_of_piece).sum();
        let mut best = (sum, 0);
        for (at, (left, entered)) in worths.iter().zip(worths.iter().skip(words_of_piece)).enumerate() {
            sum = sum - left + entered;
            if sum > best.0 {
                best = (sum, at + 1);
            }
        }
        let (worth, at) = best;
        let end = (at + PIECE_BYTES).min(part.len());
        part.get(at..end).filter(|_| worth > 0).map(|piece| (worth, piece))
    }

    fn forget(&mut self, piece: &[u8]) {
        for word in words(piece) {
            if let Some(count) = self.counts.get_mut(slot(word)) {
                *count = 0;
            }
        }
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let words = bytes.windows(WORD_BYTES);
    words.map(|word| word.first_chunk().map_or(0, |word| u64::from_le_bytes(*word)))
}

fn slot(word: u64) -> usize {
    (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - COUNTERS_LOG)) as usize
}

/// The dictionary of an open file, prepared for decompression.
pub struct Dictionary {
    prepared: DDict<'static>,
    bytes: usize,
}

impl std::fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dictionary").field("bytes", &self.bytes).finish()
    }
}

thread_local! {
    /// A context is 150 KB; see `compress`.
    static CONTEXT: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

impl Dictionary {
    /// Prepares the content of a dictionary block.
    pub fn new(content: &Bytes) -> Result<Self, DecodeError> {
        if content.len() > limits::DICTIONARY_BYTES_MAX {
            let detail = format!("a dictionary of {} bytes exceeds the limit", content.len());
            return Err(DecodeError::new(0, detail));
        }
        let prepared = DDict::try_create(content);
        let prepared = prepared.ok_or_else(|| DecodeError::new(0, "zstd does not take the dictionary"))?;
        Ok(Dictionary {
            bytes: prepared.sizeof(),
            prepared,
        })
    }

    /// Memory of the dictionary.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Decompresses into `out`. Returns the length of the content.
    pub(crate) fn decompress(&self, input: &[u8], out: &mut [u8]) -> Result<usize, &'static str> {
        CONTEXT.with_borrow_mut(|slot| {
            let context = match slot {
                Some(context) => context,
                None => slot.insert(DCtx::try_create().ok_or("no memory for a context")?),
            };
            context
                .decompress_using_ddict(out, input, &self.prepared)
                .map_err(get_error_name)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::{Compressor, decompress_with};
    use stele_types::Compression;

    /// Blocks of records that have their words in common and no repetition within themselves.
    fn blocks(count: usize) -> Vec<Vec<u8>> {
        let words: Vec<String> = (0u64..400)
            .map(|n| format!("{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
            .collect();
        let mut x = 7u64;
        let mut below = |n: u64| {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (x >> 33) % n
        };
        (0..count)
            .map(|_| (0..40).flat_map(|_| words[below(400) as usize].bytes()).collect())
            .collect()
    }

    #[test]
    fn a_dictionary_knows_what_blocks_have_in_common() {
        let blocks = blocks(400);
        let dictionary = train(blocks.iter().map(Vec::as_slice), 8 << 10).expect("they have words in common");
        assert!((4 << 10..=8 << 10).contains(&dictionary.len()), "{}", dictionary.len());
        assert_eq!(
            train(blocks.iter().map(Vec::as_slice), 8 << 10),
            Some(dictionary.clone())
        );
        let mut plain = Compressor::new(Compression::Zstd, 3);
        let mut with = Compressor::new(Compression::Zstd, 3);
        assert!(with.use_dictionary(&dictionary));
        let prepared = Dictionary::new(&dictionary.into()).expect("a dictionary");
        let (mut plain_bytes, mut with_bytes) = (0, 0);
        for block in &blocks {
            plain_bytes += plain.compress(block).map_or(block.len(), |payload| payload.len());
            let payload = with.compress_with_dictionary(block).expect("the words are known");
            with_bytes += payload.len();
            assert_eq!(decompress_with(&prepared, &payload).as_ref(), Ok(block));
        }
        assert!(
            with_bytes * 2 < plain_bytes,
            "{with_bytes} bytes with, {plain_bytes} without"
        );
    }

    #[test]
    fn one_block_has_nothing_in_common() {
        for few in [vec![], vec![&b""[..]], vec![&b"one block"[..]]] {
            assert_eq!(train(few.into_iter(), 1 << 10), None);
        }
    }

    #[test]
    fn another_dictionary_gives_an_error_or_other_bytes_and_never_more() {
        let blocks = blocks(100);
        let dictionary = |part: &[Vec<u8>]| train(part.iter().map(Vec::as_slice), 2 << 10).expect("a dictionary");
        let (first, second) = (dictionary(&blocks[..50]), dictionary(&blocks[50..]));
        let mut compressor = Compressor::new(Compression::Zstd, 1);
        assert!(compressor.use_dictionary(&first));
        let payload = compressor.compress_with_dictionary(&blocks[0]).expect("known words");
        let other = Dictionary::new(&second.into()).expect("a dictionary");
        if let Ok(content) = decompress_with(&other, &payload) {
            assert_eq!(content.len(), blocks[0].len());
        }
    }
}
