//! A cursor moves over the cells of one sstable, in both directions.
//!
//! The core is synchronous. An operation sets a [`Goal`], and `run` pursues it until it is reached or a block is
//! missing. A block is missing when it is neither cached nor readable without blocking. Then the result is
//! [`Step::Pending`], the goal stays, and [`Cursor::load`] fetches the block and continues. Repeating the work done
//! before the interruption is harmless. Index blocks stay in `index` once fetched, so no fetch is repeated.
//!
//! Invariants:
//! * `status` is `Ready` exactly when `cells` is valid; its block is then `index`'s entry `at`.
//! * `ahead` holds at most `readahead_bytes` plus one block, and is emptied before it is filled again.

mod place;
mod readahead;

use crate::block::{Block, BlockCursor, Buffered};
use crate::error::{DecodeError, Result};
use crate::frame::Handle;
use crate::index::IndexBlock;
use crate::reader::{BlockKind, Sstable, read_around};
use bytes::Bytes;
use place::{IndexPlace, neighbour};
use readahead::Readahead;
use std::sync::Arc;
use stele_env::{trace, work};
use stele_types::FileId;
use stele_types::key::row_prefix_len;

/// Where an operation left the cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The cursor is on a cell.
    Ready,
    /// A block must be loaded: await [`Cursor::load`].
    Pending,
    /// The cursor is past the last cell in the direction of the move, or was never positioned. Only a seek changes
    /// this.
    End,
}

/// Options for reading.
#[derive(Clone, Copy, Debug)]
pub struct CursorOptions {
    /// Whether blocks it reads enter the cache. Compactions and one-off scans say no.
    pub fill_cache: bool,
    /// Largest number of bytes per fetch when moving sequentially; the window doubles up to it. 0 fetches single
    /// blocks.
    pub readahead_bytes: usize,
    /// Set when every seek is to a row's prefix, to a place within the row, or after it, and no cell after that row is
    /// needed. Moves forward then end at the end of a block when no further block can hold cells of the row, instead of
    /// reading one in vain.
    pub single_row: bool,
}

impl Default for CursorOptions {
    fn default() -> Self {
        CursorOptions {
            fill_cache: true,
            readahead_bytes: 256 << 10,
            single_row: false,
        }
    }
}

/// A block that a cursor lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The file of the block.
    pub file: FileId,
    /// Its offset.
    pub offset: u64,
    /// Its length in the file.
    pub bytes: usize,
}

/// The target of the current operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    /// The first cell not below `target`.
    Seek,
    /// The last cell below `target`.
    SeekBefore,
    /// The last cell.
    Last,
    /// The first cell of the block after `at`.
    NextBlock,
    /// The last cell of the block before `at`.
    PreviousBlock,
    /// The first cell of block `at`.
    EnterFirst,
    /// The last cell of block `at`.
    EnterLast,
}

/// A position in an sstable.
pub struct Cursor {
    table: Arc<Sstable>,
    options: CursorOptions,
    status: Step,
    goal: Goal,
    /// The target of a seek that is `Pending`.
    target: Vec<u8>,
    index: Option<IndexPlace>,
    /// The offset of the block in `cells`, if one is loaded.
    loaded: Option<u64>,
    cells: BlockCursor,
    /// Bytes of the blocks that have been in `cells`, summed.
    passed_bytes: u64,
    /// The block that `load` fetches.
    missing: Handle,
    ahead: Readahead,
}

impl std::fmt::Debug for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = f.debug_struct("Cursor");
        out.field("table", &self.table)
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

impl Cursor {
    /// A cursor without position.
    pub fn new(table: Arc<Sstable>, options: CursorOptions) -> Self {
        Cursor {
            ahead: Readahead::new(options.readahead_bytes),
            table,
            options,
            status: Step::End,
            goal: Goal::Seek,
            target: Vec::new(),
            index: None,
            loaded: None,
            cells: BlockCursor::default(),
            passed_bytes: 0,
            missing: Handle::default(),
        }
    }

    /// Reduces the read-ahead limit to `bytes`, if it is larger.
    pub fn limit_readahead(&mut self, bytes: usize) {
        self.ahead.limit(bytes);
    }

    /// Frees the memory of the bytes read ahead, and returns their number. They are read again when the cursor needs
    /// them.
    pub fn drop_readahead(&mut self) -> usize {
        self.ahead.clear()
    }

    /// The file under the cursor.
    pub fn table(&self) -> &Arc<Sstable> {
        &self.table
    }

    /// The result of the last operation.
    #[inline]
    pub fn status(&self) -> Step {
        self.status
    }

    /// The full encoded key; meaningful while `Ready`.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.cells.key()
    }

    /// The value; meaningful while `Ready`.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.cells.value()
    }

    /// The value as a slice of the block, which stays in memory as long as the slice. For an uncompressed block that
    /// was read ahead and not cached, everything read ahead stays.
    #[inline]
    pub fn value_bytes(&self) -> Bytes {
        self.cells.value_bytes()
    }

    /// Bytes of the data blocks that the cursor has visited. The values it returned retain no more memory than that.
    /// The exception are blocks in reused buffers (`borrowed`), which may retain a quarter more, plus a kilobyte.
    pub fn passed_bytes(&self) -> u64 {
        self.passed_bytes
    }

    /// Moves to the first cell whose key is not below `target`.
    pub fn seek(&mut self, target: &[u8]) -> Result<Step> {
        self.start(Goal::Seek, target)
    }

    /// Moves to the first cell.
    pub fn seek_first(&mut self) -> Result<Step> {
        self.seek(&[])
    }

    /// Moves to the last cell whose key is below `target`.
    pub fn seek_before(&mut self, target: &[u8]) -> Result<Step> {
        self.start(Goal::SeekBefore, target)
    }

    /// Moves to the last cell.
    pub fn seek_last(&mut self) -> Result<Step> {
        self.start(Goal::Last, &[])
    }

    /// Moves to the following cell. Does nothing unless `Ready`.
    #[inline]
    pub fn advance(&mut self) -> Result<Step> {
        if self.status != Step::Ready {
            return Ok(self.status);
        }
        debug_assert!(self.cells.is_valid(), "a ready cursor is on a cell");
        if self.options.single_row && self.cells.is_last_of_row() {
            self.status = Step::End;
            return Ok(Step::End);
        }
        match self.cells.advance() {
            Ok(true) => Ok(Step::Ready),
            Ok(false) => self.start(Goal::NextBlock, &[]),
            Err(e) => Err(self.broken(&e)),
        }
    }

    /// Moves to the preceding cell. Does nothing unless `Ready`.
    #[inline]
    pub fn retreat(&mut self) -> Result<Step> {
        if self.status != Step::Ready {
            return Ok(self.status);
        }
        debug_assert!(self.cells.is_valid(), "a ready cursor is on a cell");
        match self.cells.retreat() {
            Ok(true) => Ok(Step::Ready),
            Ok(false) => self.start(Goal::PreviousBlock, &[]),
            Err(e) => Err(self.broken(&e)),
        }
    }

    /// The cells up to the current one that `belongs` accepts, in order. `None` unless they and the cell before them,
    /// which `belongs` rejects, are resident: in memory and already decoded. Always `None` on the way forward.
    #[inline]
    pub fn buffered(&self, belongs: impl Fn(&[u8]) -> bool) -> Option<Buffered<'_>> {
        match self.status {
            Step::Ready => self.cells.buffered(belongs),
            _ => None,
        }
    }

    /// The key before the current one, if it is resident.
    #[inline]
    pub fn buffered_before(&self) -> Option<&[u8]> {
        self.cells.buffered_before()
    }

    /// Moves to the cell before the `buffered` cells that [`Cursor::buffered`] returned, which is resident too.
    #[inline]
    pub fn leave(&mut self, buffered: usize) {
        let left = self.cells.leave(buffered);
        debug_assert!(left, "the cell before the resident ones is resident");
    }

    /// Completes an operation that is `Pending`: fetches missing blocks until the cursor is `Ready` or at the `End`.
    /// Does nothing in another state. When its future is dropped, the operation is still pending.
    pub async fn load(&mut self) -> Result<Step> {
        while self.load_one().await? == Step::Pending {}
        Ok(self.status)
    }

    /// Like [`Cursor::load`], but fetches only the [`missing`](Cursor::missing) block: a missing index block may lead
    /// to a large data block.
    pub async fn load_one(&mut self) -> Result<Step> {
        if self.status == Step::Pending {
            let needed = (self.missing.offset, self.missing.framed_len());
            let mut reading = trace::stage("read block");
            let (offset, read) = read_around(self.table.file(), self.plan_fetch(), needed).await;
            reading.note(|facts| facts.bytes = read.as_ref().map_or(0, |framed| framed.len() as u64));
            drop(reading);
            let framed = match read {
                Ok(framed) => framed,
                Err(e) => {
                    self.status = Step::End;
                    return Err(self.table.failed_read(e));
                }
            };
            debug_assert!(framed.len() >= needed.1, "a read returns the block that was missing");
            work::note(|work| work.block_bytes_read += framed.len() as u64);
            self.ahead.fill(offset, framed);
            self.keep_neighbours();
            let target = std::mem::take(&mut self.target);
            let step = self.go(&target);
            self.target = target;
            step?;
        }
        Ok(self.status)
    }

    /// The block that [`Cursor::load`] fetches first, while the operation is `Pending`.
    pub fn missing(&self) -> Option<Missing> {
        (self.status == Step::Pending).then(|| Missing {
            file: self.table.file_id(),
            offset: self.missing.offset,
            bytes: self.missing.framed_len(),
        })
    }

    fn start(&mut self, goal: Goal, target: &[u8]) -> Result<Step> {
        self.goal = goal;
        let step = self.go(target)?;
        if step == Step::Pending {
            self.target.clear();
            self.target.extend_from_slice(target);
        }
        Ok(step)
    }

    fn go(&mut self, target: &[u8]) -> Result<Step> {
        self.status = match self.run(target) {
            Ok(step) => step,
            Err(e) => {
                self.status = Step::End;
                return Err(e);
            }
        };
        debug_assert!(
            self.status != Step::Ready || (self.cells.is_valid() && self.loaded.is_some()),
            "a ready cursor is on a cell of a loaded block"
        );
        Ok(self.status)
    }

    /// Pursues the goal. It terminates: a seek becomes at most one step to a neighbour, which becomes entering a block.
    fn run(&mut self, target: &[u8]) -> Result<Step> {
        loop {
            let reached = match self.goal {
                Goal::Seek => {
                    if !self.locate(target, true)? || !self.load_data()? {
                        return Ok(Step::Pending);
                    }
                    let found = self.cells.seek(target);
                    self.reached(found, Goal::NextBlock)?
                }
                Goal::SeekBefore => {
                    if !self.locate(target, false)? || !self.load_data()? {
                        return Ok(Step::Pending);
                    }
                    let found = self.cells.seek_before(target);
                    self.reached(found, Goal::PreviousBlock)?
                }
                Goal::Last => {
                    let top_at = self.table.top().len() - 1;
                    if !self.load_index(top_at, usize::MAX)? {
                        return Ok(Step::Pending);
                    }
                    self.goal = Goal::EnterLast;
                    false
                }
                Goal::NextBlock | Goal::PreviousBlock => match self.step_block(target)? {
                    Step::Ready => false,
                    other => return Ok(other),
                },
                Goal::EnterFirst | Goal::EnterLast => {
                    if !self.load_data()? {
                        return Ok(Step::Pending);
                    }
                    let first = self.goal == Goal::EnterFirst;
                    let found = if first {
                        self.cells.seek_first()
                    } else {
                        self.cells.seek_last()
                    };
                    self.reached(found, self.goal)?
                }
            };
            if reached {
                return Ok(Step::Ready);
            }
        }
    }

    fn reached(&mut self, found: std::result::Result<bool, DecodeError>, otherwise: Goal) -> Result<bool> {
        let found = found.map_err(|e| self.broken(&e))?;
        if !found {
            self.goal = otherwise;
        }
        Ok(found)
    }

    /// Finds the data block that alone can hold the first cell not below `target` (`inclusive`) or the last cell below
    /// it. The cell may still be at the edge of a neighbour. False when an index block is missing.
    fn locate(&mut self, target: &[u8], inclusive: bool) -> Result<bool> {
        let covers = |place: &IndexPlace| place.covers(target, inclusive);
        if self.index.as_ref().is_some_and(covers) {
            return Ok(true);
        }
        let top = self.table.top();
        let top_at = top
            .find(target, inclusive)
            .map_err(|e| self.table.corruption_at(Handle::default(), &e))?;
        let before = self.index.as_ref().map(|place| (place.top_at, place.at));
        if !self.load_index(top_at, 0)? {
            return Ok(false);
        }
        let Some(place) = &mut self.index else {
            return Ok(false);
        };
        let found = place.block.find(target, inclusive);
        place.at = found.map_err(|e| {
            let handle = self.table.top().child(top_at).unwrap_or_default();
            self.table.corruption_at(handle, &e)
        })?;
        let is_near = |(before_top, before_at)| before_top == top_at && place.at.abs_diff(before_at) <= 1;
        if !before.is_some_and(is_near) {
            self.ahead.not_sequential();
        }
        Ok(true)
    }

    /// Makes the `top_at`-th index block current, at the entry `at` (or its last). False when it is missing.
    fn load_index(&mut self, top_at: usize, at: usize) -> Result<bool> {
        if let Some(place) = &mut self.index
            && place.top_at == top_at
        {
            place.at = at.min(place.block.len() - 1);
            return Ok(true);
        }
        let top = self.table.top();
        let handle = top
            .child(top_at)
            .ok_or_else(|| self.table.corruption_at(Handle::default(), &top.malformed(top_at)))?;
        // Index blocks are cached even for scans that fill no cache: every later reader needs them.
        let Some(block) = self.fetch::<IndexBlock>(handle, true)? else {
            return Ok(false);
        };
        self.index = Some(IndexPlace {
            top_at,
            at: at.min(block.len() - 1),
            block,
        });
        Ok(true)
    }

    /// Moves `index` to the neighbouring data block and sets the goal to enter it. `target` is that of the seek, if a
    /// seek leads here.
    fn step_block(&mut self, target: &[u8]) -> Result<Step> {
        let Some(place) = &mut self.index else {
            return Ok(Step::End);
        };
        let forward = self.goal == Goal::NextBlock;
        // A separator is behind the row when it is greater than the row's cell, or the row's prefix, and does not begin
        // with the prefix.
        let row = match (self.options.single_row && forward, target) {
            (false, _) => None,
            (true, []) => row_prefix_len(self.cells.key()).and_then(|len| self.cells.key().get(..len)),
            (true, target) => Some(
                row_prefix_len(target)
                    .and_then(|len| target.get(..len))
                    .unwrap_or(target),
            ),
        };
        let past = |separator: Option<&[u8]>| {
            let behind = |row: &[u8], separator: &[u8]| separator > row && !separator.starts_with(row);
            row.zip(separator)
                .is_some_and(|(row, separator)| behind(row, separator))
        };
        if let Some(at) = neighbour(place.at, place.block.len(), forward) {
            if past(place.block.separator(at)) {
                return Ok(Step::End);
            }
            place.at = at;
        } else {
            let Some(top_at) = neighbour(place.top_at, self.table.top().len(), forward) else {
                return Ok(Step::End);
            };
            if past(self.table.top().separator(top_at)) {
                return Ok(Step::End);
            }
            if !self.load_index(top_at, if forward { 0 } else { usize::MAX })? {
                return Ok(Step::Pending);
            }
        }
        self.ahead.sequential();
        self.goal = if forward { Goal::EnterFirst } else { Goal::EnterLast };
        Ok(Step::Ready)
    }

    /// Makes the data block at `index` the one in `cells`. False when it is missing.
    fn load_data(&mut self) -> Result<bool> {
        let handle = self.data_handle()?;
        if self.loaded == Some(handle.offset) {
            return Ok(true);
        }
        let Some(block) = self.fetch::<Block>(handle, self.options.fill_cache)? else {
            return Ok(false);
        };
        debug_assert!(block.intervals() > 0, "a parsed block has an entry");
        self.cells.set_block(block);
        self.passed_bytes += self.cells.block().bytes() as u64;
        self.loaded = Some(handle.offset);
        Ok(true)
    }

    fn data_handle(&self) -> Result<Handle> {
        let Some(place) = &self.index else {
            return Ok(Handle::default());
        };
        place.block.child(place.at).ok_or_else(|| {
            let parent = self.table.top().child(place.top_at).unwrap_or_default();
            self.table.corruption_at(parent, &place.block.malformed(place.at))
        })
    }

    /// A block from read-ahead, from the cache, or from a read that does not block. Otherwise sets `missing`.
    fn fetch<B: BlockKind>(&mut self, handle: Handle, fill_cache: bool) -> Result<Option<B>> {
        self.table.check_handle(handle)?;
        if let Some(framed) = self.ahead.take(handle) {
            work::note(|work| self.table.note_block_read(work));
            return self.table.open_block(handle, &framed, fill_cache).map(Some);
        }
        let block = self.table.try_block(handle, fill_cache)?;
        if block.is_none() {
            self.missing = handle;
        }
        Ok(block)
    }

    /// A point read may have brought more than the missing block. A scan reads ahead by itself.
    fn keep_neighbours(&self) {
        let is_point = self.options.fill_cache && self.ahead.window() == 0;
        if let Some(place) = self.index.as_ref().filter(|_| is_point)
            && place.block.child(place.at).is_some_and(|handle| handle == self.missing)
        {
            self.table.keep_neighbours(&place.block, place.at);
        }
    }

    /// The range to read for the missing block: the block alone, or with the neighbours that read-ahead allows.
    fn plan_fetch(&self) -> (u64, usize) {
        let alone = (self.missing.offset, self.missing.framed_len());
        let forward = match self.goal {
            Goal::EnterFirst => true,
            Goal::EnterLast => false,
            _ => return alone,
        };
        match &self.index {
            // With these goals the missing block is always the data block at `index`.
            Some(place) => {
                let in_file = |handle| self.table.check_handle(handle).is_ok();
                place.run(self.missing, forward, self.ahead.window(), in_file)
            }
            None => alone,
        }
    }

    #[cold]
    fn broken(&mut self, error: &DecodeError) -> crate::SstableError {
        self.status = Step::End;
        let handle = Handle {
            offset: self.loaded.unwrap_or(0),
            len: 0,
        };
        self.table.corruption_at(handle, error)
    }
}
