//! Selects the data blocks to compress in a file that will soon be compacted.
//!
//! Such a file leaves most blocks uncompressed, which saves time here and in the compaction that reads them. A few
//! blocks, the first among them, are compressed nevertheless, as a sample of the savings for the rest.

use stele_types::schema::Compression;

/// Whether a block is compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compress {
    Never,
    /// Always tried; stored uncompressed if it does not pay.
    Always,
    /// Tried unless the previous blocks predict that it does not pay.
    LikeBefore,
}

/// Selects among a file's data blocks.
pub struct Loose {
    one_in: u32,
    blocks: u32,
    /// Content of the blocks for which compression was tried.
    tried: u64,
    /// Their size in the file.
    tried_stored: u64,
    /// Content of the other blocks.
    untried: u64,
}

impl Loose {
    /// Compresses one block in `one_in`.
    pub fn new(one_in: u32) -> Self {
        Loose {
            one_in: one_in.max(1),
            blocks: 0,
            tried: 0,
            tried_stored: 0,
            untried: 0,
        }
    }

    /// For a file of this codec: a file without a codec tries nothing.
    pub fn of(one_in: u32, codec: Compression) -> Self {
        Loose::new(if codec == Compression::None { 1 } else { one_in })
    }

    /// The decision for the next block.
    pub fn next(&mut self) -> Compress {
        if self.one_in == 1 {
            return Compress::LikeBefore;
        }
        let is_tried = self.blocks.is_multiple_of(self.one_in);
        self.blocks = self.blocks.wrapping_add(1);
        if is_tried { Compress::Always } else { Compress::Never }
    }

    /// Counts a block by its content and its size in the file.
    pub fn note(&mut self, compress: Compress, content: usize, stored: usize) {
        assert!(stored <= content, "a stored block is not larger than its content");
        if compress == Compress::Never {
            self.untried += content as u64;
        } else {
            self.tried += content as u64;
            self.tried_stored += stored as u64;
        }
    }

    /// Estimated bytes that compressing the other blocks would have saved.
    pub fn compressible_bytes(&self) -> u64 {
        let saved = self.tried.saturating_sub(self.tried_stored);
        let bytes = u128::from(self.untried) * u128::from(saved) / u128::from(self.tried.max(1));
        u64::try_from(bytes).unwrap_or(self.untried)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compressed_says_what_the_rest_would_save() {
        let mut loose = Loose::of(4, Compression::Lz4);
        let chosen: Vec<Compress> = (0..9).map(|_| loose.next()).collect();
        let is_tried = |at: usize| chosen[at] == Compress::Always;
        assert_eq!((0..9).filter(|at| is_tried(*at)).collect::<Vec<_>>(), [0, 4, 8]);
        for compress in chosen {
            let stored = if compress == Compress::Always { 600 } else { 1000 };
            loose.note(compress, 1000, stored);
        }
        assert_eq!(loose.compressible_bytes(), 6 * 400);
    }

    #[test]
    fn files_that_are_compressed_throughout_have_nothing_to_save() {
        for mut all in [Loose::of(1, Compression::Lz4), Loose::of(4, Compression::None)] {
            for stored in [600, 1000, 700] {
                let compress = all.next();
                assert_eq!(compress, Compress::LikeBefore);
                all.note(compress, 1000, stored);
            }
            assert_eq!(all.compressible_bytes(), 0);
        }
    }
}
