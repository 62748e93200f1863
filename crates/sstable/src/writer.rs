//! Writes an sstable front to back.
//!
//! `add` is synchronous and touches memory only: it fills a block, and compresses and seals it when it is full. The
//! caller writes sealed blocks out with `flush` whenever [`SstableWriter::wants_flush`] is true, thus once per
//! [`FLUSH_BYTES`] and not once per cell. Index blocks are buffered until the end (about a thousandth of the file).

mod loose;
mod sealed;

use crate::block::{BlockBuilder, Trailer};
use crate::compress::Compressor;
use crate::dictionary::{self, SAMPLE_RATIO};
use crate::error::{Result, SstableError};
use crate::filter::FilterBuilder;
use crate::footer::Footer;
use crate::frame::{self, Handle};
use crate::index::{self, IndexBuilder};
use crate::limits;
use crate::properties::{FamilySet, Properties};
use bytes::Bytes;
use loose::{Compress, Loose};
use prost::Message;
use sealed::Sealed;
use stele_storage::{AppendFile, StorageError};
use stele_types::key::{KeyParts, row_prefix_len};
use stele_types::limits::{CELL_KEY_BYTES_MAX, VALUE_BYTES_MAX};
use stele_types::schema::Compression;
use stele_types::{FileId, KeyBuf};

/// Sealed bytes at which the caller should write: large enough to make the system call cheap.
pub const FLUSH_BYTES: usize = 1 << 20;

/// Uncompressed blocks larger than this are not copied into the shared buffer. Each has one value.
const COPIED_BYTES_MAX: usize = 64 << 10;

/// One block in this many of a sample does not train the dictionary but evaluates it.
const TRIED_EVERY: usize = 4;
/// A dictionary must save more than this part of the file's size without it. That is half of the dictionary's own size
/// in the smallest file that has one, and it pays for preparing the dictionary at every opening.
const DICTIONARY_GAIN: usize = 32;

/// Options of a file.
#[derive(Clone, Debug)]
pub struct WriteOptions {
    /// The file's id; its blocks' checksums depend on it.
    pub file_id: FileId,
    /// Codec of data and index blocks.
    pub compression: Compression,
    /// Level of Zstandard, 1 to 22.
    pub zstd_level: u8,
    /// Size of the dictionary for data blocks, for Zstandard; 0 for none. A file with less content than
    /// [`SAMPLE_RATIO`] times this has none.
    pub dictionary_bytes: usize,
    /// One data block in this many is compressed, the others are stored uncompressed. 1 for all, and when there is a
    /// dictionary.
    pub compressed_one_in: u32,
    /// Content bytes at which a data block is closed.
    pub block_bytes: usize,
    /// Bits per row of the bloom filter; 0 for none.
    pub filter_bits_per_row: u32,
    /// Recorded in the properties: program and version.
    pub created_by: String,
    /// Recorded in the properties: wall clock; 0 when unknown.
    pub created_micros: i64,
}

impl WriteOptions {
    /// The defaults for a file: 6 KiB blocks, 10 filter bits per row, LZ4.
    pub fn new(file_id: FileId) -> Self {
        WriteOptions {
            file_id,
            compression: Compression::Lz4,
            zstd_level: 1,
            dictionary_bytes: 0,
            compressed_one_in: 1,
            block_bytes: limits::BLOCK_TARGET_BYTES_DEFAULT,
            filter_bits_per_row: 10,
            created_by: concat!("stele ", env!("CARGO_PKG_VERSION")).to_owned(),
            created_micros: 0,
        }
    }
}

/// The description of a finished file.
#[derive(Clone, Debug, PartialEq)]
pub struct SstableMeta {
    /// The file's id.
    pub file_id: FileId,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// The properties of the file.
    pub properties: Properties,
}

/// The state of a writer's dictionary.
enum Dictionary {
    /// There is none.
    None,
    /// Data blocks are buffered until there are enough to train one.
    Sampling,
    /// Data blocks are compressed with it. It is written after the index.
    Trained(Vec<u8>),
}

/// An sstable being written. Dropping it before `finish` leaves a file that does not open; the caller deletes it.
pub struct SstableWriter {
    file: Box<dyn AppendFile>,
    options: WriteOptions,
    compressor: Compressor,
    /// The first data blocks, while there are too few for a dictionary: their separators and content.
    sample: Vec<(Vec<u8>, Vec<u8>)>,
    sample_bytes: usize,
    dictionary: Dictionary,
    /// Selects the data blocks that are compressed.
    loose: Loose,
    block: BlockBuilder,
    /// Content of the block closed last; retained to reuse its memory.
    content: Vec<u8>,
    /// The block holds one large value and nothing else.
    block_is_large: bool,
    index: IndexBuilder,
    /// Closed first-level index blocks with their first separators.
    index_blocks: Vec<(Vec<u8>, Vec<u8>)>,
    /// Bytes of their content.
    index_bytes: usize,
    /// Bytes that the top index block needs for them.
    top_bytes: usize,
    index_first_separator: Vec<u8>,
    /// The separator of the block being filled.
    separator: Vec<u8>,
    filter: FilterBuilder,
    families: FamilySet,
    properties: Properties,
    last_key: Vec<u8>,
    /// Length of the row prefix at the front of `last_key`.
    row_len: usize,
    /// Sealed blocks not yet written.
    sealed: Sealed,
    /// Offset of the next block: bytes written plus bytes sealed.
    offset: u64,
    /// After a failed write the content of the file is unknown: every later call fails in the same way.
    failure: Option<StorageError>,
}

impl std::fmt::Debug for SstableWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SstableWriter")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl SstableWriter {
    /// A writer over an empty file.
    pub fn new(file: Box<dyn AppendFile>, mut options: WriteOptions) -> Self {
        assert!(file.is_empty(), "an sstable is written from the start of its file");
        let targets = limits::BLOCK_TARGET_BYTES_MIN..=limits::BLOCK_TARGET_BYTES_MAX;
        options.block_bytes = options.block_bytes.clamp(*targets.start(), *targets.end());
        SstableWriter {
            file,
            compressor: Compressor::new(options.compression, options.zstd_level),
            sample: Vec::new(),
            sample_bytes: 0,
            dictionary: match options.compression {
                Compression::Zstd if options.dictionary_bytes > 0 => Dictionary::Sampling,
                _ => Dictionary::None,
            },
            loose: Loose::of(options.compressed_one_in, options.compression),
            block: BlockBuilder::default(),
            content: Vec::new(),
            block_is_large: false,
            index: IndexBuilder::default(),
            index_blocks: Vec::new(),
            index_bytes: 0,
            top_bytes: 0,
            index_first_separator: Vec::new(),
            separator: Vec::new(),
            filter: FilterBuilder::new(options.filter_bits_per_row),
            families: FamilySet::default(),
            properties: Properties {
                compression: options.compression as u32,
                zstd_level: match options.compression {
                    Compression::Zstd => u32::from(options.zstd_level),
                    _ => 0,
                },
                block_bytes: options.block_bytes as u32,
                filter_bits_per_row: options.filter_bits_per_row,
                created_by: options.created_by.clone(),
                created_micros: options.created_micros,
                ..Properties::default()
            },
            last_key: Vec::new(),
            row_len: 0,
            sealed: Sealed::default(),
            offset: 0,
            failure: None,
            options,
        }
    }

    /// Adds a cell. Keys must be well-formed and strictly increasing.
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let row_len = row_prefix_len(key).ok_or_else(|| invalid(key, "malformed row"))?;
        self.add_in_row(key, row_len, value)
    }

    /// Adds a cell whose row's encoded prefix is the first `row_len` bytes of its key.
    #[inline]
    pub fn add_in_row(&mut self, key: &[u8], row_len: usize, value: &[u8]) -> Result<()> {
        let (body, trailer) = Trailer::split(key).ok_or_else(|| invalid(key, "malformed key"))?;
        if key.len() > CELL_KEY_BYTES_MAX || value.len() > VALUE_BYTES_MAX {
            return Err(invalid(key, "key or value exceeds the limit"));
        }
        debug_assert!(
            KeyParts::parse(key).is_some_and(|parts| parts.row_end == row_len),
            "malformed key: {}",
            hex(key)
        );
        let last_body = self.last_key.len().saturating_sub(stele_types::key::TRAILER_BYTES);
        let common = index::common_prefix(&self.last_key[..last_body], body);
        let is_behind = match (self.last_key[..last_body].get(common), body.get(common)) {
            (Some(last), Some(this)) => last < this,
            _ => self.last_key.get(common..).unwrap_or(&[]) < &key[common..],
        };
        if !is_behind {
            return Err(SstableError::OutOfOrder {
                key: hex(key),
                previous: hex(&self.last_key),
            });
        }
        // The row is that of the last key exactly when both share the whole row prefix.
        if common < self.row_len || self.row_len == 0 {
            self.filter
                .add(body.get(..row_len).ok_or_else(|| invalid(key, "malformed row"))?);
            self.row_len = row_len;
            self.properties.rows += 1;
        }
        self.families.note(key.get(row_len..).unwrap_or_default());
        self.make_space(key, value);
        self.block.add(common, row_len, body, trailer, value);
        self.properties
            .add(key, value, trailer.timestamp, trailer.seq, trailer.kind);
        self.last_key.truncate(common);
        self.last_key.extend_from_slice(&key[common..]);
        debug_assert_eq!(self.last_key, key, "the last key is the one added last");
        debug_assert!(
            self.row_len <= self.last_key.len(),
            "the last row is a prefix of the last key"
        );
        Ok(())
    }

    /// Adds a cell by the key of a buffer.
    pub fn add_key(&mut self, key: &KeyBuf, value: &[u8]) -> Result<()> {
        self.add(key.as_slice(), value)
    }

    /// The file's id.
    pub fn file_id(&self) -> FileId {
        self.options.file_id
    }

    /// Whether enough is sealed that the caller should `flush`.
    pub fn wants_flush(&self) -> bool {
        self.sealed.len() >= FLUSH_BYTES
    }

    /// Hands sealed blocks to the file. They are durable only after `finish`.
    pub async fn flush(&mut self) -> Result<()> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone().into());
        }
        if self.sealed.len() == 0 {
            return Ok(());
        }
        // Set before the write, so that a flush whose future is dropped half-way counts as failed too.
        self.failure = Some(StorageError::Io {
            path: String::new(),
            operation: "append",
            message: "an earlier write was interrupted".to_owned(),
        });
        let written = self.sealed.write(&mut *self.file).await;
        self.failure = written.as_ref().err().cloned();
        written?;
        assert_eq!(self.file.len(), self.offset, "bytes written equal bytes sealed");
        Ok(())
    }

    /// Cells added so far. A writer without cells cannot be finished; delete its file instead.
    pub fn cells(&self) -> u64 {
        self.properties.cells
    }

    /// Size of the file so far without index and filter, for cutting files at a size. It is at least the memory of the
    /// index or the filter's hashes, and `u64::MAX` when that memory exceeds its limit.
    pub fn estimated_bytes(&self) -> u64 {
        let data = self.offset + (self.sample_bytes + self.block.len()) as u64;
        // Both stay in memory until the end. Usually they are a small part of the data. But long keys may compress to
        // nothing, and so may rows of little more than a number, of which a file of 64 MiB would have over ten million.
        let until_the_end = self.index_bytes.max(self.filter.bytes());
        if until_the_end <= limits::KEPT_BYTES_MAX {
            data.max(until_the_end as u64)
        } else {
            u64::MAX
        }
    }

    /// Completes the file and makes it durable.
    pub async fn finish(mut self) -> Result<SstableMeta> {
        if self.properties.cells == 0 {
            return Err(SstableError::Empty);
        }
        self.close_block();
        // There is too little content for a dictionary.
        self.write_sample(Dictionary::None);
        self.close_index_block();
        assert!(
            self.block.is_empty() && self.sample.is_empty() && self.index.is_empty(),
            "all data blocks precede the index"
        );
        assert!(self.properties.rows <= self.properties.cells, "every row has a cell");
        assert!(
            self.properties.smallest_key <= self.last_key,
            "the smallest key is not above the largest"
        );
        self.properties.data_bytes = self.offset;
        self.properties.compressible_bytes = self.loose.compressible_bytes();
        self.properties.families = self.families.ranges();
        self.properties.index_blocks = self.index_blocks.len() as u64;
        self.properties.largest_key = std::mem::take(&mut self.last_key).into();
        let mut top = IndexBuilder::default();
        for (separator, mut content) in std::mem::take(&mut self.index_blocks) {
            let handle = self.push_block(&mut content, Compress::Always);
            top.add(&separator, handle);
        }
        assert_eq!(
            self.properties.index_blocks,
            top.children() as u64,
            "the top index block has every index block"
        );
        let filter = std::mem::replace(&mut self.filter, FilterBuilder::new(0)).finish();
        let filter = filter.map(|mut content| self.push_block(&mut content, Compress::Never));
        let top_index = self.push_block(&mut top.finish(), Compress::Always);
        if let Dictionary::Trained(mut dictionary) = std::mem::replace(&mut self.dictionary, Dictionary::None) {
            let handle = self.push_block(&mut dictionary, Compress::Never);
            (self.properties.dictionary_offset, self.properties.dictionary_bytes) = (handle.offset, handle.len);
        }
        let properties = self.push_block(&mut self.properties.encode_to_vec(), Compress::Never);
        let footer = Footer {
            file: self.options.file_id,
            properties,
            filter,
            top_index,
        };
        let footer = Bytes::from(footer.encode());
        self.offset += footer.len() as u64;
        self.sealed.push(footer);
        self.flush().await?;
        self.file.sync().await?;
        assert_eq!(self.file.len(), self.offset, "only this writer writes to the file");
        let file_id = self.options.file_id;
        Ok(SstableMeta {
            file_id,
            file_bytes: self.offset,
            properties: self.properties,
        })
    }

    /// Closes the block when the next cell belongs into another one.
    fn make_space(&mut self, key: &[u8], value: &[u8]) {
        if self.properties.cells == 0 {
            self.properties.smallest_key = key.to_vec();
            self.block_is_large = value.len() > limits::VALUE_INLINE_BYTES_MAX;
            return;
        }
        let is_full = self.block.len() >= self.options.block_bytes || self.block_is_large;
        self.block_is_large = value.len() > limits::VALUE_INLINE_BYTES_MAX;
        if is_full || self.block_is_large {
            self.close_block();
            self.separator.clear();
            self.separator.extend_from_slice(index::separator(&self.last_key, key));
        }
    }

    fn close_block(&mut self) {
        debug_assert!(!self.block.is_empty());
        let mut content = std::mem::take(&mut self.content);
        self.block.finish_into(&mut content);
        if matches!(self.dictionary, Dictionary::Sampling) {
            self.sample_bytes += content.len();
            self.sample.push((self.separator.clone(), content));
            if self.sample_bytes >= self.options.dictionary_bytes * SAMPLE_RATIO {
                self.train();
            }
            return;
        }
        let separator = std::mem::take(&mut self.separator);
        self.push_data_block(&separator, &mut content);
        self.separator = separator;
        // The memory of a large value is not retained.
        if content.capacity() <= 2 * limits::BLOCK_TARGET_BYTES_MAX {
            self.content = content;
        }
    }

    /// Trains the dictionary with the sample, and writes the sampled blocks.
    fn train(&mut self) {
        let blocks = (0..).zip(&self.sample).filter(|(number, _)| number % TRIED_EVERY != 0);
        let blocks = blocks.map(|(_, (_, content))| content.as_slice());
        let trained = dictionary::train(blocks, self.options.dictionary_bytes.min(limits::DICTIONARY_BYTES_MAX));
        let is_usable = |trained: &Vec<u8>| {
            // Content that begins like a dictionary with tables, but is none, could not be opened.
            let opens = dictionary::Dictionary::new(&Bytes::copy_from_slice(trained)).is_ok();
            opens && self.compressor.use_dictionary(trained) && self.dictionary_pays()
        };
        let usable = trained.filter(is_usable);
        self.write_sample(usable.map_or(Dictionary::None, Dictionary::Trained));
    }

    /// Whether the dictionary makes blocks outside its training set smaller by a [`DICTIONARY_GAIN`]th.
    fn dictionary_pays(&mut self) -> bool {
        let (mut plain, mut with) = (0, 0);
        for (_, content) in self.sample.iter().step_by(TRIED_EVERY) {
            let stored = |payload: Option<Vec<u8>>| payload.map_or(content.len(), |payload| payload.len());
            plain += stored(self.compressor.compress(content));
            with += stored(self.compressor.compress_with_dictionary(content));
        }
        with < plain - plain / DICTIONARY_GAIN
    }

    fn write_sample(&mut self, dictionary: Dictionary) {
        if !matches!(self.dictionary, Dictionary::Sampling) {
            return;
        }
        debug_assert_eq!(
            self.sample_bytes,
            self.sample.iter().map(|(_, content)| content.len()).sum::<usize>(),
            "the bytes of the sample are those of its blocks"
        );
        debug_assert!(!matches!(dictionary, Dictionary::Sampling), "the sample ends once");
        self.dictionary = dictionary;
        self.sample_bytes = 0;
        for (separator, mut content) in std::mem::take(&mut self.sample) {
            self.push_data_block(&separator, &mut content);
        }
    }

    fn push_data_block(&mut self, separator: &[u8], content: &mut Vec<u8>) {
        let compressed = match self.dictionary {
            Dictionary::Trained(_) => {
                let space = self
                    .sealed
                    .space(self.compressor.space(content.len()) + frame::TAIL_BYTES);
                self.compressor.compress_with_dictionary_into(content, space)
            }
            _ => None,
        };
        let handle = match compressed {
            Some(len) => self.seal(len, frame::ZSTD_WITH_DICTIONARY),
            None => {
                let (content_len, compress) = (content.len(), self.loose.next());
                let handle = self.push_block(content, compress);
                self.loose.note(compress, content_len, handle.len as usize);
                handle
            }
        };
        if self.index.is_empty() {
            self.index_first_separator.clear();
            self.index_first_separator.extend_from_slice(separator);
        }
        self.index.add(separator, handle);
        self.properties.data_blocks += 1;
        if self.index.len() >= self.index_block_bytes() {
            self.close_index_block();
        }
    }

    /// Content at which an index block is closed. Separators of keys with common prefixes of kilobytes make a large top
    /// index, which has an entry for each index block. A larger top index must therefore get fewer entries.
    fn index_block_bytes(&self) -> usize {
        let usual = (8 * self.options.block_bytes).min(limits::INDEX_BLOCK_BYTES);
        usual.max(self.top_bytes / limits::TOP_PART)
    }

    fn close_index_block(&mut self) {
        if !self.index.is_empty() {
            let separator = std::mem::take(&mut self.index_first_separator);
            let content = self.index.finish();
            self.index_bytes += content.len();
            self.top_bytes += separator.len() + limits::TOP_ENTRY_BYTES;
            self.index_blocks.push((separator, content));
        }
    }

    /// Adds a block. The content of `content` is undefined afterwards.
    fn push_block(&mut self, content: &mut Vec<u8>, compress: Compress) -> Handle {
        if compress != Compress::Never && self.options.compression != Compression::None {
            let space = self
                .sealed
                .space(self.compressor.space(content.len()) + frame::TAIL_BYTES);
            let compressed = match compress {
                Compress::LikeBefore => self.compressor.compress_like_before(content, space),
                _ => self.compressor.compress_into(content, space),
            };
            if let Some(len) = compressed {
                return self.seal(len, self.options.compression as u8);
            }
        }
        let len = content.len();
        if len <= COPIED_BYTES_MAX {
            let space = self.sealed.space(len + frame::TAIL_BYTES);
            if let Some(place) = space.get_mut(..len) {
                place.copy_from_slice(content);
            }
            return self.seal(len, Compression::None as u8);
        }
        let handle = self.next_handle(len);
        let framed = frame::seal(
            self.options.file_id,
            self.offset,
            std::mem::take(content),
            Compression::None,
        );
        self.offset += framed.len() as u64;
        self.sealed.push(framed);
        handle
    }

    /// Seals a payload that is the first `len` bytes of the reserved buffer space.
    fn seal(&mut self, len: usize, kind: u8) -> Handle {
        let handle = self.next_handle(len);
        let framed_len = handle.framed_len();
        let framed = self.sealed.space(framed_len).get_mut(..framed_len).unwrap_or_default();
        assert_eq!(framed.len(), framed_len, "a sealed block has space for its tail");
        frame::seal_in_place(self.options.file_id, self.offset, framed, kind);
        self.sealed.keep(framed_len);
        self.offset += framed_len as u64;
        debug_assert_eq!(
            handle.end(),
            Some(self.offset),
            "the next block begins at the end of this one"
        );
        handle
    }

    fn next_handle(&self, len: usize) -> Handle {
        assert!(len <= limits::BLOCK_BYTES_MAX, "block above the format's limit");
        Handle {
            offset: self.offset,
            len: len as u32,
        }
    }
}

#[cold]
fn invalid(key: &[u8], detail: &str) -> SstableError {
    SstableError::InvalidCell {
        detail: format!("{detail}: {}", hex(key)),
    }
}

/// The first bytes of a key, for error messages.
fn hex(key: &[u8]) -> String {
    key.iter().take(64).map(|byte| format!("{byte:02x}")).collect()
}
