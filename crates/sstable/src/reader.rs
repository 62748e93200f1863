//! An open sstable reads its blocks through the cache.
//!
//! Footer, properties and top index are read and checked at open and stay in memory ([`Sstable::pinned_bytes`]). So
//! does the bloom filter if it fits into the memory for filters ([`BloomMemory`]). Data blocks and first-level index
//! blocks are fetched through the cache, where they are checked, decompressed, and partly decoded ([`CachedBlock`]).
//!
//! Damage that a read finds is remembered ([`Sstable::damage`]), so that compactions leave the file alone and operators
//! learn of it. A file that cannot be opened at all is represented by [`Sstable::open_or_damaged`]. It claims all keys
//! that it might have, and fails every read of one.

use crate::block::Block;
use crate::damage::{self, Damage};
use crate::dictionary::Dictionary;
use crate::error::{DecodeError, Result, SstableError};
use crate::filter::{self, BloomMemory, Filter, HeldFilter};
use crate::footer::{self, FOOTER_BYTES, Footer, FooterError};
use crate::frame::{self, Handle};
use crate::index::IndexBlock;
use crate::limits;
use crate::properties::Properties;
use crate::residence::Residence;
use crate::scratch;
use bytes::Bytes;
use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;
use stele_cache::{BlockCache, BlockKey};
use stele_env::{trace, work};
use stele_storage::{ReadFile, StorageError};
use stele_types::FileId;
use stele_types::key::row_prefix_len;

/// The block cache that all sstables and value files of a process share.
pub type Cache = BlockCache<CachedBlock>;

/// A block as it is cached: checked, decompressed, and with the end of the block decoded. The end is in cache lines of
/// its own, which a read would otherwise wait for before it can search.
#[derive(Clone, Debug)]
pub enum CachedBlock {
    /// A block of cells.
    Data(Block),
    /// A first-level index block.
    Index(IndexBlock),
    /// A value of a value file.
    Value(Bytes),
}

/// The two kinds of blocks.
pub(crate) trait BlockKind: Sized {
    /// Whether one such block leads to many others.
    const LEADS_TO_OTHERS: bool;
    fn parse(content: Bytes) -> std::result::Result<Self, DecodeError>;
    /// The block in its cached form.
    fn cached(self) -> CachedBlock;
    /// `None` for a block of the other kind.
    fn of(cached: CachedBlock) -> Option<Self>;
}

impl BlockKind for Block {
    const LEADS_TO_OTHERS: bool = false;

    fn parse(content: Bytes) -> std::result::Result<Self, DecodeError> {
        Block::parse(content)
    }

    fn cached(self) -> CachedBlock {
        CachedBlock::Data(self.with_directory())
    }

    fn of(cached: CachedBlock) -> Option<Self> {
        match cached {
            CachedBlock::Data(block) => Some(block),
            CachedBlock::Index(_) | CachedBlock::Value(_) => None,
        }
    }
}

impl BlockKind for IndexBlock {
    const LEADS_TO_OTHERS: bool = true;

    fn parse(content: Bytes) -> std::result::Result<Self, DecodeError> {
        IndexBlock::parse(content)
    }

    fn cached(self) -> CachedBlock {
        CachedBlock::Index(self)
    }

    fn of(cached: CachedBlock) -> Option<Self> {
        match cached {
            CachedBlock::Index(block) => Some(block),
            CachedBlock::Data(_) | CachedBlock::Value(_) => None,
        }
    }
}

impl CachedBlock {
    /// Memory of the block in addition to the cache's overhead per entry.
    pub fn bytes(&self) -> usize {
        let content = match self {
            CachedBlock::Data(block) => block.memory_bytes(),
            CachedBlock::Index(block) => block.bytes(),
            CachedBlock::Value(value) => value.len(),
        };
        content + size_of::<CachedBlock>()
    }
}

/// Blocks up to this size are read through a per-thread buffer: with the default sizes all but those of a large value.
const READ_BUFFER_BYTES_MAX: usize = 64 << 10;

thread_local! {
    /// At most [`READ_BUFFER_BYTES_MAX`].
    static READ_BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Bytes read at open in one request: footer, properties, and for most files top index and filter too.
const TAIL_BYTES: usize = 64 << 10;

/// An immutable file of cells, open for reading.
pub struct Sstable {
    file: Arc<dyn ReadFile>,
    file_id: FileId,
    cache: Arc<Cache>,
    properties: Properties,
    filter: HeldFilter,
    dictionary: Option<Dictionary>,
    top: IndexBlock,
    /// Damage found by opening the file or since then.
    damage: Damage,
    /// Cache priority of its blocks.
    residence: Residence,
}

impl std::fmt::Debug for Sstable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sstable")
            .field("path", &self.file.path())
            .finish_non_exhaustive()
    }
}

impl Sstable {
    /// The range that opening a file of `len` bytes reads first.
    pub fn read_first(len: u64) -> Range<u64> {
        len.saturating_sub(TAIL_BYTES as u64)..len
    }

    /// Opens a file that was written under `file_id`, and loads its filter.
    pub async fn open(file: Arc<dyn ReadFile>, file_id: FileId, cache: Arc<Cache>) -> Result<Arc<Sstable>> {
        Self::open_within(file, file_id, cache, &BloomMemory::unlimited()).await
    }

    /// The same, but loads the filter only if it fits into the memory for filters.
    pub async fn open_within(
        file: Arc<dyn ReadFile>,
        file_id: FileId,
        cache: Arc<Cache>,
        filters: &Arc<BloomMemory>,
    ) -> Result<Arc<Sstable>> {
        let tail = Tail::open(&*file, file_id).await?;
        let properties = tail.properties(&*file).await?;
        let top = tail.top_index(&*file).await?;
        let filter = tail.filter(&*file, filters).await?;
        let dictionary = tail.dictionary(&*file, &properties).await?;
        Ok(Arc::new(Sstable {
            file,
            file_id,
            cache,
            properties,
            filter,
            dictionary,
            top,
            damage: Damage::default(),
            residence: Residence::default(),
        }))
    }

    /// Like [`Sstable::open_within`], but damage is no error. A file without its filter is fully usable. A file without
    /// its index or footer fails every read. Parts that the device cannot read are damage too, until the file is opened
    /// again. Other errors are returned, for they may be temporary. `opened` is the storage's result of opening `path`.
    pub async fn open_or_damaged(
        opened: stele_storage::Result<Arc<dyn ReadFile>>,
        path: &str,
        file_id: FileId,
        cache: Arc<Cache>,
        filters: &Arc<BloomMemory>,
    ) -> Result<Arc<Sstable>> {
        let file = match opened {
            Ok(file) => file,
            Err(StorageError::NotFound { .. }) => {
                let missing = SstableError::corruption(path, 0, "a manifest refers to this file, which is missing");
                return Self::unreadable(path, file_id, cache, None, missing);
            }
            // Lost is the beginning of an encrypted file.
            Err(error @ (StorageError::Unreadable { .. } | StorageError::Lost { .. })) => {
                return Self::unreadable(path, file_id, cache, None, error.into());
            }
            Err(error) => return Err(error.into()),
        };
        let tail = match Tail::open(&*file, file_id).await {
            Ok(tail) => tail,
            Err(error) if damage::is_damage(&error) => {
                return Self::unreadable(path, file_id, cache, None, error);
            }
            Err(error) => return Err(error),
        };
        let properties = match tail.properties(&*file).await {
            Ok(properties) => properties,
            Err(error) if damage::is_damage(&error) => {
                return Self::unreadable(path, file_id, cache, None, error);
            }
            Err(error) => return Err(error),
        };
        let top = match tail.top_index(&*file).await {
            Ok(top) => top,
            Err(error) if damage::is_damage(&error) => {
                return Self::unreadable(path, file_id, cache, Some(properties), error);
            }
            Err(error) => return Err(error),
        };
        let dictionary = match tail.dictionary(&*file, &properties).await {
            Ok(dictionary) => dictionary,
            Err(error) if damage::is_damage(&error) => {
                return Self::unreadable(path, file_id, cache, Some(properties), error);
            }
            Err(error) => return Err(error),
        };
        let (filter, damage) = match tail.filter(&*file, filters).await {
            Ok(filter) => (filter, Damage::default()),
            Err(error @ SstableError::Corruption { .. }) => (HeldFilter::none(filters), Damage::without_filter(error)),
            // The device may be able to read it later.
            Err(error) if damage::is_damage(&error) => {
                let filter = HeldFilter::new(filters, tail.footer.filter);
                filter.failed();
                (filter, Damage::without_filter(error))
            }
            Err(error) => return Err(error),
        };
        Ok(Arc::new(Sstable {
            file,
            file_id,
            cache,
            properties,
            filter,
            dictionary,
            top,
            damage,
            residence: Residence::default(),
        }))
    }

    /// Stands for a file that cannot be read: it has no bytes, and an index whose only block is missing.
    fn unreadable(
        path: &str,
        file_id: FileId,
        cache: Arc<Cache>,
        properties: Option<Properties>,
        error: SstableError,
    ) -> Result<Arc<Sstable>> {
        Ok(Arc::new(Sstable {
            file: Arc::new(damage::Unreadable::new(path)),
            file_id,
            cache,
            properties: properties.unwrap_or_else(damage::any_properties),
            filter: HeldFilter::none(&BloomMemory::unlimited()),
            dictionary: None,
            top: damage::no_index()?,
            damage: Damage::unreadable(error),
            residence: Residence::default(),
        }))
    }

    /// Reads the place once more that the device could not read last time, if there is one. A successful read ends the
    /// damage.
    pub async fn try_unreadable(&self) {
        if let Some(offset) = self.damage.unreadable_at()
            && self.file.read_at(offset, 1).await.is_ok()
        {
            self.damage.forget_unread();
        }
    }

    /// Whether this stands for a file that the device could not open. Another attempt may succeed.
    pub fn is_unopened(&self) -> bool {
        self.damage.is_unopened()
    }

    /// Damage found so far. It is remembered until the file is opened again, except for reads that a device fails
    /// temporarily.
    pub fn damage(&self) -> &Damage {
        &self.damage
    }

    /// The file's properties.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// The file's id.
    pub fn file_id(&self) -> FileId {
        self.file_id
    }

    /// Bytes of the file.
    pub fn file_bytes(&self) -> u64 {
        self.file.len()
    }

    /// The path it was opened by.
    pub fn path(&self) -> &str {
        self.file.path()
    }

    /// Memory of the open file, besides the cache.
    pub fn pinned_bytes(&self) -> usize {
        let keys = match self.properties.smallest_key.len() {
            // The largest key of an unreadable file is static memory.
            0 => 0,
            smallest => smallest + self.properties.largest_key.len(),
        };
        let families = size_of_val(&self.properties.families[..]);
        let dictionary = self.dictionary.as_ref().map_or(0, Dictionary::bytes);
        size_of::<Sstable>() + keys + families + self.filter.held_bytes() + dictionary + self.top.bytes()
    }

    /// False when the file certainly has no cell of the row. `row_prefix` is the encoded row with its terminator.
    pub fn may_contain_row(&self, row_prefix: &[u8]) -> bool {
        let smallest = &self.properties.smallest_key;
        let first_row = row_prefix_len(smallest).and_then(|len| smallest.get(..len));
        if row_prefix > &self.properties.largest_key[..] || Some(row_prefix) < first_row {
            return false;
        }
        self.may_contain_hash(filter::row_hash(row_prefix))
    }

    /// False when the file certainly has no cell of the row with this hash ([`filter::row_hash`]). The caller knows
    /// that the row is within the file's key range.
    pub fn may_contain_hash(&self, row_hash: u64) -> bool {
        let may = self.filter.may_contain(row_hash);
        work::note(|work| {
            work.filters_asked += u64::from(self.filter.is_held());
            work.filters_excluded += u64::from(!may);
        });
        may
    }

    /// Memory that the filter takes when it is loaded; 0 for a file without a filter or with a damaged one.
    pub fn filter_bytes(&self) -> usize {
        self.filter.bytes()
    }

    /// Whether the filter is in memory.
    pub fn holds_filter(&self) -> bool {
        self.filter.is_held()
    }

    /// Whether the caller should load the filter now. After a failed read some attempts are skipped.
    pub fn takes_occasion(&self) -> bool {
        self.filter.takes_occasion()
    }

    /// Recent probes of the filter, loaded or not, to compare files with each other. Each call halves the count.
    pub fn filter_asks(&self) -> u32 {
        self.filter.asks()
    }

    /// Loads the filter if there is one and memory for it. A malformed filter is damage of the filter, and the file
    /// stays fully usable. A failure of the storage is returned as an error, which may be temporary. Only one caller at
    /// a time may load or unload the filter.
    pub async fn hold_filter(&self) -> Result<()> {
        let Some((handle, space)) = self.filter.attempt() else {
            return Ok(());
        };
        match self.read_filter(handle).await {
            Ok(filter) => self.filter.hold(filter, space),
            Err(error @ SstableError::Corruption { .. }) => {
                self.filter.lose();
                self.damage.note_filter(error);
            }
            Err(error) => {
                self.filter.failed();
                return Err(error);
            }
        }
        Ok(())
    }

    async fn read_filter(&self, handle: Handle) -> Result<Filter> {
        check_handle(&*self.file, handle, "filter")?;
        let framed = self.file.read_at(handle.offset, handle.framed_len()).await?;
        parse_filter(&*self.file, self.file_id, handle, &framed)
    }

    /// Unloads the filter. Reads work without it.
    pub fn leave_filter_out(&self) {
        self.filter.leave_out();
    }

    /// The error for a caller that finds a key of this file malformed.
    #[cold]
    pub fn corruption(&self, detail: &str) -> SstableError {
        self.damage.note(SstableError::corruption(self.path(), 0, detail))
    }

    pub(crate) fn top(&self) -> &IndexBlock {
        &self.top
    }

    pub(crate) fn file(&self) -> &dyn ReadFile {
        &*self.file
    }

    /// Checks and decompresses a framed block.
    pub(crate) fn open_content(&self, handle: Handle, framed: &Bytes) -> Result<Bytes> {
        frame::open_with(self.file_id, handle.offset, framed, self.dictionary.as_ref())
            .map_err(|e| self.corruption_at(handle, &e))
    }

    /// Checks a framed block without decompressing it.
    pub(crate) fn check_framed(&self, handle: Handle, framed: &[u8]) -> Result<()> {
        let opened = frame::open_slice(self.file_id, handle.offset, framed, self.dictionary.as_ref());
        opened.map(drop).map_err(|e| self.corruption_at(handle, &e))
    }

    /// Decodes a framed block, and inserts it into the cache if `fill_cache` is set.
    pub(crate) fn open_block<B: BlockKind>(&self, handle: Handle, framed: &Bytes, fill_cache: bool) -> Result<B> {
        let content = self.open_content(handle, framed)?;
        if !fill_cache {
            return self.parse(handle, content);
        }
        self.keep_block(handle, Self::apart(content, framed))
    }

    /// The content for the cache. A slice of the bytes read, perhaps of a whole read-ahead, would retain all of them.
    pub(crate) fn apart(content: Bytes, framed: &Bytes) -> Bytes {
        match content.as_ptr() == framed.as_ptr() {
            true => Bytes::copy_from_slice(&content),
            false => content,
        }
    }

    /// Inserts a block into the cache.
    fn keep_block<B: BlockKind>(&self, handle: Handle, content: Bytes) -> Result<B> {
        let cached = self.parse::<B>(handle, content)?.cached();
        self.cache_block(handle, cached.clone());
        self.of_kind(handle, cached)
    }

    /// Reads a block without blocking through a buffer of this thread: the bytes read are not needed after
    /// decompression.
    fn read_block<B: BlockKind>(&self, handle: Handle, fill_cache: bool) -> Result<Option<B>> {
        let len = handle.framed_len();
        if len > READ_BUFFER_BYTES_MAX {
            return match self.file.try_read_at(handle.offset, len) {
                None => Ok(None),
                Some(Ok(framed)) => self.open_block(handle, &framed, fill_cache).map(Some),
                Some(Err(error)) => Err(self.failed_read(error)),
            };
        }
        let mut buffer = READ_BUFFER.take();
        if buffer.len() < len {
            // The buffer never shrinks, so that its bytes are cleared once and not for each block.
            buffer.resize(len, 0);
        }
        let block = self.read_block_into(buffer.get_mut(..len).unwrap_or_default(), handle, fill_cache);
        READ_BUFFER.set(buffer);
        block
    }

    fn read_block_into<B: BlockKind>(&self, framed: &mut [u8], handle: Handle, fill_cache: bool) -> Result<Option<B>> {
        match self.file.try_read_into(handle.offset, framed) {
            None => return Ok(None),
            Some(read) => read.map_err(|error| self.failed_read(error))?,
        }
        let opened = frame::open_slice(self.file_id, handle.offset, framed, self.dictionary.as_ref())
            .map_err(|e| self.corruption_at(handle, &e))?;
        let (key, weight) = (self.cache_key(handle), opened.content_len() + size_of::<CachedBlock>());
        let is_kept = || {
            let is_wanted = B::LEADS_TO_OTHERS || self.residence.is_kept() || !self.file.reads_from_memory();
            is_wanted || self.cache.is_worth_keeping(key, weight)
        };
        if fill_cache && is_kept() {
            let content = opened.into_bytes().map_err(|e| self.corruption_at(handle, &e))?;
            return self.keep_block(handle, content).map(Some);
        }
        let content = scratch::bytes(opened.content_len(), |out| opened.write_to(out));
        let content = content.map_err(|e| self.corruption_at(handle, &e))?;
        let block = self.parse(handle, content)?;
        if fill_cache {
            self.cache.had(key, weight);
        }
        Ok(Some(block))
    }

    pub(crate) fn cache_block(&self, handle: Handle, block: CachedBlock) {
        let (key, bytes) = (self.cache_key(handle), block.bytes());
        if self.residence.is_kept() {
            self.cache.insert_kept(key, block, bytes);
        } else {
            self.cache.insert(key, block, bytes);
        }
    }

    pub(crate) fn residence(&self) -> &Residence {
        &self.residence
    }

    pub(crate) fn cache(&self) -> &Cache {
        &self.cache
    }

    /// A block from the cache or a read without blocking; `None` when that is impossible.
    pub(crate) fn try_block<B: BlockKind>(&self, handle: Handle, fill_cache: bool) -> Result<Option<B>> {
        let key = self.cache_key(handle);
        // A reader that does not fill the cache does not change its order either.
        let cached = if fill_cache {
            self.cache.get(&key)
        } else {
            self.cache.peek(&key)
        };
        if let Some(cached) = cached {
            work::note(|work| {
                work.blocks_cached += 1;
                work.use_file(self.file_id.0);
            });
            return self.of_kind(handle, cached).map(Some);
        }
        self.check_handle(handle)?;
        debug_assert!(handle.framed_len() > 0, "a block has a checksum at least");
        let block = self.read_block(handle, fill_cache)?;
        if block.is_some() {
            work::note(|work| {
                work.block_bytes_read += handle.framed_len() as u64;
                self.note_block_read(work);
            });
        }
        Ok(block)
    }

    /// Counts a block that was read from storage.
    pub(crate) fn note_block_read(&self, work: &mut work::Work) {
        work.blocks_read += 1;
        work.use_file(self.file_id.0);
    }

    /// A block, from the cache or the storage.
    pub(crate) async fn block<B: BlockKind>(&self, handle: Handle, fill_cache: bool) -> Result<B> {
        if let Some(block) = self.try_block(handle, fill_cache)? {
            return Ok(block);
        }
        let mut reading = trace::stage("read block");
        reading.note(|facts| facts.bytes = handle.framed_len() as u64);
        let framed = self.file.read_at(handle.offset, handle.framed_len()).await;
        drop(reading);
        let framed = framed.map_err(|error| self.failed_read(error))?;
        self.open_block(handle, &framed, fill_cache)
    }

    pub(crate) fn parse<B: BlockKind>(&self, handle: Handle, content: Bytes) -> Result<B> {
        B::parse(content).map_err(|e| self.corruption_at(handle, &e))
    }

    fn of_kind<B: BlockKind>(&self, handle: Handle, cached: CachedBlock) -> Result<B> {
        // Only a damaged file has two blocks of different kinds at one offset.
        let other_kind = || self.corruption_at(handle, &DecodeError::new(0, "a block of the other kind"));
        B::of(cached).ok_or_else(other_kind)
    }

    /// Rejects a handle that leaves the file or exceeds the limit, before anything is read or allocated for it.
    pub(crate) fn check_handle(&self, handle: Handle) -> Result<()> {
        check_handle(&*self.file, handle, "block").map_err(|error| self.damage.note(error))
    }

    #[cold]
    pub(crate) fn corruption_at(&self, handle: Handle, error: &DecodeError) -> SstableError {
        self.damage.note(corruption(&*self.file, handle.offset, error))
    }

    /// The error for a failed read of a block. Bytes that the device cannot read are damage: a compaction of the file
    /// would fail on them again.
    #[cold]
    pub(crate) fn failed_read(&self, error: StorageError) -> SstableError {
        match error {
            StorageError::Unreadable { .. } => self.damage.note(error.into()),
            other => other.into(),
        }
    }

    pub(crate) fn cache_key(&self, handle: Handle) -> BlockKey {
        BlockKey {
            file: self.file_id.0,
            offset: handle.offset,
        }
    }
}

/// Reads a run of bytes (offset and length) that contains the needed part. Where the device cannot read the rest, the
/// run is shortened. Returns also the start of the bytes read. Bytes between the needed part and the bad sector are
/// read nevertheless. Otherwise the read of the bytes after the needed part would try the bad sector again, which may
/// take a device seconds.
pub(crate) async fn read_around(
    file: &dyn ReadFile,
    run: (u64, usize),
    needed: (u64, usize),
) -> (u64, stele_storage::Result<Bytes>) {
    debug_assert!(
        run.0 <= needed.0 && needed.0 + needed.1 as u64 <= run.0 + run.1 as u64,
        "a read covers the needed bytes"
    );
    let (mut offset, mut len) = run;
    loop {
        match file.read_at(offset, len).await {
            Err(StorageError::Unreadable { offset: bad, .. }) if len > needed.1 => {
                let sound = usize::try_from(bad.saturating_sub(needed.0)).unwrap_or(usize::MAX);
                (offset, len) = (needed.0, sound.clamp(needed.1, len - 1));
            }
            read => return (offset, read),
        }
    }
}

#[cold]
fn corruption(file: &dyn ReadFile, offset: u64, error: &DecodeError) -> SstableError {
    SstableError::corruption(file.path(), offset, error)
}

fn check_handle(file: &dyn ReadFile, handle: Handle, what: &str) -> Result<()> {
    let limit = file.len().saturating_sub(FOOTER_BYTES as u64);
    let fits = handle.end().is_some_and(|end| end <= limit);
    if fits && handle.len as usize <= limits::BLOCK_BYTES_MAX {
        return Ok(());
    }
    let detail = format!("{what} of {} bytes leaves the file or exceeds the limit", handle.len);
    Err(SstableError::corruption(file.path(), handle.offset, detail))
}

/// The end of a file, with its decoded footer.
pub(crate) struct Tail {
    pub(crate) footer: Footer,
    footer_at: u64,
    start: u64,
    bytes: Bytes,
}

impl Tail {
    /// Reads the end of a file that was written under `file_id`.
    async fn open(file: &dyn ReadFile, file_id: FileId) -> Result<Tail> {
        let tail = Tail::read(file).await?;
        if tail.footer.file != file_id {
            let detail = format!("written as file {}, opened as {file_id}", tail.footer.file);
            return Err(SstableError::corruption(file.path(), tail.footer_at, detail));
        }
        Ok(tail)
    }

    async fn properties(&self, file: &dyn ReadFile) -> Result<Properties> {
        let handle = self.footer.properties;
        let content = self.section(file, handle, "properties").await?;
        Properties::decode_checked(&content).map_err(|e| corruption(file, handle.offset, &e))
    }

    async fn top_index(&self, file: &dyn ReadFile) -> Result<IndexBlock> {
        let handle = self.footer.top_index;
        let content = self.section(file, handle, "top index").await?;
        IndexBlock::parse(content).map_err(|e| corruption(file, handle.offset, &e))
    }

    async fn filter(&self, file: &dyn ReadFile, filters: &Arc<BloomMemory>) -> Result<HeldFilter> {
        let held = HeldFilter::new(filters, self.footer.filter);
        if let Some((handle, space)) = held.attempt() {
            let framed = self.framed(file, handle, "filter").await?;
            held.hold(parse_filter(file, self.footer.file, handle, &framed)?, space);
        }
        Ok(held)
    }

    async fn dictionary(&self, file: &dyn ReadFile, properties: &Properties) -> Result<Option<Dictionary>> {
        let Some(handle) = properties.dictionary() else {
            return Ok(None);
        };
        let content = self.section(file, handle, "dictionary").await?;
        let dictionary = Dictionary::new(&content).map_err(|e| corruption(file, handle.offset, &e))?;
        Ok(Some(dictionary))
    }

    pub(crate) async fn read(file: &dyn ReadFile) -> Result<Tail> {
        let Some(footer_at) = file.len().checked_sub(FOOTER_BYTES as u64) else {
            let detail = format!("{} bytes are too few for an sstable", file.len());
            return Err(SstableError::corruption(file.path(), 0, detail));
        };
        let Range { start, end } = Sstable::read_first(file.len());
        // The bytes before the footer may be cells.
        let (start, bytes) = read_around(file, (start, (end - start) as usize), (footer_at, FOOTER_BYTES)).await;
        let bytes = bytes?;
        let footer = bytes.get((footer_at - start) as usize..).unwrap_or(&[]);
        let footer = Footer::decode(footer).map_err(|e| match e {
            FooterError::Corrupt(e) => corruption(file, footer_at, &e),
            FooterError::UnknownVersion(found) => SstableError::UnknownVersion {
                file: file.path().to_owned(),
                found,
                supported: footer::VERSION,
            },
        })?;
        Ok(Tail {
            footer,
            footer_at,
            start,
            bytes,
        })
    }

    /// The content of a block that the footer names, in memory of its own.
    async fn section(&self, file: &dyn ReadFile, handle: Handle, what: &str) -> Result<Bytes> {
        let framed = self.framed(file, handle, what).await?;
        content_of(file, self.footer.file, handle, &framed)
    }

    /// The framed form of a block that the footer names.
    async fn framed(&self, file: &dyn ReadFile, handle: Handle, what: &str) -> Result<Bytes> {
        check_handle(file, handle, what)?;
        Ok(match handle.offset.checked_sub(self.start) {
            Some(at) => self.bytes.slice(at as usize..at as usize + handle.framed_len()),
            None => file.read_at(handle.offset, handle.framed_len()).await?,
        })
    }
}

/// The content of a framed block, in memory of its own.
fn content_of(file: &dyn ReadFile, file_id: FileId, handle: Handle, framed: &Bytes) -> Result<Bytes> {
    let content = frame::open(file_id, handle.offset, framed).map_err(|e| corruption(file, handle.offset, &e))?;
    Ok(if content.as_ptr() == framed.as_ptr() {
        Bytes::copy_from_slice(&content)
    } else {
        content
    })
}

fn parse_filter(file: &dyn ReadFile, file_id: FileId, handle: Handle, framed: &Bytes) -> Result<Filter> {
    let content = content_of(file, file_id, handle, framed)?;
    Filter::parse(content).map_err(|e| corruption(file, handle.offset, &e))
}
