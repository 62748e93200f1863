//! One ordered view over memtables and sstables.
//!
//! A [`Merge`] holds one cursor per source in a heap ordered by key: ascending after [`Merge::seek`], descending after
//! [`Merge::seek_before`]. Keys are unique over all sources. They end in a sequence number; where a compaction has dropped it,
//! no other source has the same version without one. Of equal keys all would be shown, and the resolver takes the first.
//!
//! Moving is synchronous. When a source needs a block that is not in memory the merge reports [`Step::Pending`];
//! [`Merge::load`] fetches the missing blocks of all waiting sources concurrently, and completes the move.

use crate::error::Result;
use crate::held::{HeldFile, ReadOptions};
use crate::resolve::StoredValue;
use crate::run::RunCursor;
use bytes::Bytes;
use std::sync::Arc;
use stele_memtable::MemtableCursor;
use stele_sstable::Buffered;
pub use stele_sstable::Step;

/// The value a merge is on.
pub(crate) struct MergedValue<'a>(&'a MergingIterator);

impl StoredValue for MergedValue<'_> {
    #[inline]
    fn into_bytes(self) -> Bytes {
        self.0.value()
    }

    #[inline]
    fn look<R>(self, look: impl FnOnce(&[u8]) -> R) -> R {
        look(self.0.value_slice())
    }
}

/// One source, restricted to the keys it may contribute.
pub struct Source {
    cursor: Cursor,
    /// Keys below this are not this reference's (an encoded row prefix).
    lower: Option<Bytes>,
    /// Keys from this on are not this reference's.
    upper: Option<Bytes>,
    step: Step,
    /// Which way the moves go since the last seek.
    backward: bool,
}

#[expect(
    clippy::large_enum_variant,
    reason = "most sources are sstables, and a read of one row should not take memory for each"
)]
enum Cursor {
    Memtable(MemtableCursor),
    Sstable(stele_sstable::Cursor),
    Run(Box<RunCursor>),
}

impl Source {
    /// A memtable: all its keys.
    pub fn memtable(table: std::sync::Arc<stele_memtable::Memtable>) -> Self {
        Self::new(Cursor::Memtable(MemtableCursor::new(table)), None, None)
    }

    /// A memtable that has keys of the row with this encoded prefix, on the first of them; `None` when it has none.
    pub(crate) fn memtable_at_row(table: &std::sync::Arc<stele_memtable::Memtable>, prefix: &[u8]) -> Option<Self> {
        let cursor = MemtableCursor::at_row(table, prefix)?;
        let mut source = Self::new(Cursor::Memtable(cursor), None, None);
        source.step = Step::Ready;
        Some(source)
    }

    /// Whether its keys are a memtable's.
    pub(crate) fn is_memtable(&self) -> bool {
        matches!(self.cursor, Cursor::Memtable(_))
    }

    /// The referenced part of a file.
    pub fn file(file: &HeldFile, options: ReadOptions) -> Self {
        Self::sstable(file.cursor(options), file.lower().cloned(), file.upper().cloned())
    }

    /// An sstable: its keys within the bounds.
    pub fn sstable(cursor: stele_sstable::Cursor, lower: Option<Bytes>, upper: Option<Bytes>) -> Self {
        Self::new(Cursor::Sstable(cursor), lower, upper)
    }

    /// An sstable within its bounds, by the cursor that one of `before` has in it, if one has.
    pub(crate) fn sstable_again(before: &mut Vec<Source>, file: &HeldFile, options: ReadOptions) -> Self {
        let is_there = |source: &Source| match &source.cursor {
            Cursor::Sstable(cursor) => Arc::ptr_eq(cursor.table(), &file.sstable),
            _ => false,
        };
        let Some(at) = before.iter().position(is_there) else {
            return Source::file(file, options);
        };
        let mut source = before.swap_remove(at);
        // The same, unless the tablet has changed meanwhile.
        (source.lower, source.upper) = (file.lower().cloned(), file.upper().cloned());
        source.step = Step::End;
        source
    }

    /// A run of several sstables.
    pub(crate) fn run(cursor: RunCursor) -> Self {
        Self::new(Cursor::Run(Box::new(cursor)), None, None)
    }

    fn new(cursor: Cursor, lower: Option<Bytes>, upper: Option<Bytes>) -> Self {
        Source {
            cursor,
            lower,
            upper,
            step: Step::End,
            backward: false,
        }
    }

    /// Whether it may read ahead: it is in files.
    pub(crate) fn reads_ahead(&self) -> bool {
        !matches!(self.cursor, Cursor::Memtable(_))
    }

    /// Reads no more than this ahead, where it would read more. Before the first move.
    pub(crate) fn limit_readahead(&mut self, bytes: usize) {
        match &mut self.cursor {
            Cursor::Memtable(_) => {}
            Cursor::Sstable(cursor) => cursor.limit_readahead(bytes),
            Cursor::Run(cursor) => cursor.limit_readahead(bytes),
        }
    }

    fn seek(&mut self, target: &[u8]) -> Result<Step> {
        let target = self.lower.as_deref().map_or(target, |lower| lower.max(target));
        self.backward = false;
        let step = match &mut self.cursor {
            Cursor::Memtable(c) => found(c.seek(target)),
            Cursor::Sstable(c) => c.seek(target)?,
            Cursor::Run(c) => c.seek(target)?,
        };
        Ok(self.arrive(step))
    }

    fn seek_before(&mut self, target: &[u8]) -> Result<Step> {
        let target = self.upper.as_deref().map_or(target, |upper| upper.min(target));
        self.backward = true;
        let step = match &mut self.cursor {
            Cursor::Memtable(c) => found(c.seek_before(target)),
            Cursor::Sstable(c) => c.seek_before(target)?,
            Cursor::Run(c) => c.seek_before(target)?,
        };
        Ok(self.arrive(step))
    }

    #[inline]
    fn advance(&mut self) -> Result<Step> {
        let step = match &mut self.cursor {
            Cursor::Memtable(c) => found(c.advance()),
            Cursor::Sstable(c) => c.advance()?,
            Cursor::Run(c) => c.advance()?,
        };
        Ok(self.arrive(step))
    }

    #[inline]
    fn retreat(&mut self) -> Result<Step> {
        let step = match &mut self.cursor {
            Cursor::Memtable(c) => found(c.retreat()),
            Cursor::Sstable(c) => c.retreat()?,
            Cursor::Run(c) => c.retreat()?,
        };
        Ok(self.arrive(step))
    }

    /// The cursor of the file it is in, if no bound is to be looked at in the direction of the moves.
    #[inline]
    fn unbounded(&mut self) -> Option<&mut stele_sstable::Cursor> {
        let bound = if self.backward { &self.lower } else { &self.upper };
        match &mut self.cursor {
            Cursor::Sstable(c) if bound.is_none() => Some(c),
            Cursor::Run(c) => c.unbounded(self.backward),
            Cursor::Memtable(_) | Cursor::Sstable(_) => None,
        }
    }

    /// The cursor of its file has been moved forward, to `step`.
    fn moved(&mut self, step: Step) -> Result<Step> {
        let step = match &mut self.cursor {
            Cursor::Run(c) => c.moved(step)?,
            Cursor::Memtable(_) | Cursor::Sstable(_) => step,
        };
        Ok(self.arrive(step))
    }

    #[inline]
    fn buffered(&self, belongs: impl Fn(&[u8]) -> bool) -> Option<Buffered<'_>> {
        match &self.cursor {
            Cursor::Memtable(_) => None,
            Cursor::Sstable(c) => c.buffered(belongs),
            Cursor::Run(c) => c.buffered(belongs),
        }
    }

    #[inline]
    fn leave(&mut self, buffered: usize) -> Result<Step> {
        let step = match &mut self.cursor {
            // A memtable buffers no entries.
            Cursor::Memtable(c) => found(c.is_valid()),
            Cursor::Sstable(c) => {
                c.leave(buffered);
                Step::Ready
            }
            Cursor::Run(c) => c.leave(buffered)?,
        };
        Ok(self.arrive(step))
    }

    async fn load_one(&mut self) -> Result<Step> {
        let step = match &mut self.cursor {
            Cursor::Memtable(c) => found(c.is_valid()),
            Cursor::Sstable(c) => c.load_one().await?,
            Cursor::Run(c) => c.load_one().await?,
        };
        Ok(self.arrive(step))
    }

    async fn load(&mut self) -> Result<Step> {
        let step = match &mut self.cursor {
            Cursor::Memtable(c) => found(c.is_valid()),
            Cursor::Sstable(c) => c.load().await?,
            Cursor::Run(c) => c.load().await?,
        };
        Ok(self.arrive(step))
    }

    /// A move has come to `step`: the bounds may make it an end.
    #[inline]
    fn arrive(&mut self, step: Step) -> Step {
        let outside = step == Step::Ready
            && if self.backward {
                self.lower.as_deref().is_some_and(|lower| self.key() < lower)
            } else {
                self.upper.as_deref().is_some_and(|upper| self.key() >= upper)
            };
        self.step = if outside { Step::End } else { step };
        self.step
    }

    fn drop_readahead(&mut self) -> usize {
        match &mut self.cursor {
            Cursor::Memtable(_) => 0,
            Cursor::Sstable(c) => c.drop_readahead(),
            Cursor::Run(c) => c.drop_readahead(),
        }
    }

    fn passed_bytes(&self) -> u64 {
        match &self.cursor {
            Cursor::Memtable(_) => 0,
            Cursor::Sstable(c) => c.passed_bytes(),
            Cursor::Run(c) => c.passed_bytes(),
        }
    }

    #[inline]
    fn key(&self) -> &[u8] {
        match &self.cursor {
            Cursor::Memtable(c) => c.key(),
            Cursor::Sstable(c) => c.key(),
            Cursor::Run(c) => c.key(),
        }
    }

    fn value_slice(&self) -> &[u8] {
        match &self.cursor {
            Cursor::Memtable(c) => c.value(),
            Cursor::Sstable(c) => c.value(),
            Cursor::Run(c) => c.value(),
        }
    }

    #[inline]
    fn value(&self) -> Bytes {
        match &self.cursor {
            Cursor::Memtable(c) => c.value_bytes(),
            Cursor::Sstable(c) => c.value_bytes(),
            Cursor::Run(c) => c.value_bytes(),
        }
    }
}

/// The source of the files of a run that may have keys in `[lower, upper)` and, when `row` is given, that row; `None`
/// when none may.
pub fn run_source(
    run: &[HeldFile],
    lower: &[u8],
    upper: Option<&[u8]>,
    row: Option<&[u8]>,
    options: ReadOptions,
) -> Option<Source> {
    source_of_run(run, lower, upper, row, options, |_| true)
}

/// The same without files that the reader does not want.
pub fn source_of_run(
    run: &[HeldFile],
    lower: &[u8],
    upper: Option<&[u8]>,
    row: Option<&[u8]>,
    options: ReadOptions,
    wants: impl Fn(&HeldFile) -> bool,
) -> Option<Source> {
    debug_assert!(
        upper.is_none_or(|upper| lower <= upper),
        "the range of a source is not upside down"
    );
    let start = run.partition_point(|file| file.ends_before(lower));
    let run = run.get(start..)?;
    // Of one row's keys more than one file rarely has some.
    let within = |file: &HeldFile| upper.is_none_or(|upper| file.first_key() < upper);
    let end = match run {
        [] => 0,
        [_, next, ..] if within(next) => run.partition_point(within),
        [first, ..] => usize::from(within(first)),
    };
    match run.get(..end)? {
        [] => None,
        [file] => {
            let wanted = wants(file) && row.is_none_or(|row| file.sstable.may_contain_row(row));
            wanted.then(|| Source::file(file, options))
        }
        files => {
            // The remaining files ascend as well.
            let files: Vec<HeldFile> = files.iter().filter(|file| wants(file)).cloned().collect();
            (!files.is_empty()).then(|| Source::run(RunCursor::new(files, options)))
        }
    }
}

#[inline]
fn found(valid: bool) -> Step {
    if valid { Step::Ready } else { Step::End }
}

/// The merged view.
pub struct MergingIterator {
    sources: Vec<Source>,
    /// Indexes of the sources that are ready, a binary heap with the first key in the direction of the moves on top.
    heap: Vec<usize>,
    /// A move is complete when no source is pending.
    waiting: bool,
    /// Which way the moves go since the last seek.
    backward: bool,
    /// Bytes of blocks that sources of rows before have been in.
    passed_before: u64,
}

impl MergingIterator {
    /// A view over these sources, not yet positioned.
    pub fn new(sources: Vec<Source>) -> Self {
        MergingIterator {
            sources,
            heap: Vec::new(),
            waiting: false,
            backward: false,
            passed_before: 0,
        }
    }

    /// Bytes of the blocks of files it has been in, as [`stele_sstable::Cursor::passed_bytes`].
    pub(crate) fn passed_bytes(&self) -> u64 {
        self.passed_before + self.sources.iter().map(Source::passed_bytes).sum::<u64>()
    }

    /// Frees the readahead of its sources; how many bytes.
    pub(crate) fn drop_readahead(&mut self) -> usize {
        self.sources.iter_mut().map(Source::drop_readahead).sum()
    }

    /// Forgets all sources; `add` adds others. The merge is not positioned then. Memory is used again.
    pub fn replace(&mut self, add: impl FnOnce(&mut Vec<Source>)) {
        self.heap.clear();
        self.sources.clear();
        self.waiting = false;
        add(&mut self.sources);
    }

    /// Replaces its sources by those of another row, which `add` adds. From the old sources `add` may take those that
    /// continue in the same file, from their position. The merging iterator is not positioned then, except in memtables.
    /// `spare` is empty before and after, and its memory is reused.
    pub(crate) fn next_row(&mut self, spare: &mut Vec<Source>, add: impl FnOnce(&mut Vec<Source>, &mut Vec<Source>)) {
        self.heap.clear();
        self.waiting = false;
        std::mem::swap(&mut self.sources, spare);
        add(spare, &mut self.sources);
        self.passed_before += spare.iter().map(Source::passed_bytes).sum::<u64>();
        spare.clear();
    }

    /// The blocks that waiting sources lack, where they lack one of one file.
    pub(crate) fn missing(&self) -> impl Iterator<Item = stele_sstable::Missing> {
        self.sources.iter().filter_map(|source| match &source.cursor {
            Cursor::Sstable(cursor) => cursor.missing(),
            _ => None,
        })
    }

    /// Moves to the first key at or after `target`; the moves go forward from there.
    pub fn seek(&mut self, target: &[u8]) -> Result<Step> {
        self.backward = false;
        for source in &mut self.sources {
            source.seek(target)?;
        }
        Ok(self.settle())
    }

    /// Like [`Merge::seek`], when the sources that are on a key are there already.
    pub(crate) fn seek_rest(&mut self, target: &[u8]) -> Result<Step> {
        self.backward = false;
        for source in self.sources.iter_mut().filter(|source| source.step != Step::Ready) {
            source.seek(target)?;
        }
        Ok(self.settle())
    }

    /// Moves to the greatest key below `target`; the moves go backward from there.
    pub fn seek_before(&mut self, target: &[u8]) -> Result<Step> {
        self.backward = true;
        for source in &mut self.sources {
            source.seek_before(target)?;
        }
        Ok(self.settle())
    }

    /// Moves to the next key. The merge must be on one, and its moves go forward.
    #[inline]
    pub fn advance(&mut self) -> Result<Step> {
        debug_assert!(!self.backward, "advanced on the way back");
        debug_assert!(!self.waiting, "a merge that waits is loaded before it moves");
        let Some(&top) = self.heap.first() else {
            return Ok(Step::End);
        };
        let step = self.sources[top].advance()?;
        Ok(self.moved(step))
    }

    /// Moves to the key before. The merge must be on one, and its moves go backward.
    pub fn retreat(&mut self) -> Result<Step> {
        debug_assert!(self.backward, "retreated on the way forward");
        debug_assert!(!self.waiting, "a merge that waits is loaded before it moves");
        let Some(&top) = self.heap.first() else {
            return Ok(Step::End);
        };
        let step = self.sources[top].retreat()?;
        Ok(self.moved(step))
    }

    /// The cursor the merge is on, when no other source has anything left and no bound is in its way: as long as it is ready,
    /// its moves in the merge's direction are the merge's. When a move forward comes to something else, the merge must be told
    /// ([`Merge::lone_moved`]).
    #[inline]
    pub(crate) fn lone_cursor(&mut self) -> Option<&mut stele_sstable::Cursor> {
        match self.heap[..] {
            [top] if !self.waiting => self.sources.get_mut(top)?.unbounded(),
            _ => None,
        }
    }

    /// The lone cursor has come to `step` on the way forward; the step that the merge has come to.
    pub(crate) fn lone_moved(&mut self, step: Step) -> Result<Step> {
        debug_assert_eq!(self.heap.len(), 1, "a lone cursor is the only one left");
        let Some(&top) = self.heap.first() else {
            return Ok(Step::End);
        };
        let step = self.sources[top].moved(step)?;
        Ok(self.moved(step))
    }

    /// The entries of the current row, in order, on the way backward, if they are buffered: one source has all of them
    /// and knows where they begin. `belongs` says whether a key is of the row.
    #[inline]
    pub(crate) fn buffered_row(&self, belongs: impl Fn(&[u8]) -> bool) -> Option<Buffered<'_>> {
        let (&top, others) = self.heap.split_first()?;
        // The greatest key of all others is next to the top, and a row's keys stand together.
        if others.iter().take(2).any(|&other| belongs(self.sources[other].key())) {
            return None;
        }
        self.sources[top].buffered(belongs)
    }

    /// Moves to the key before as many as [`Merge::buffered_row`] has given.
    #[inline]
    pub(crate) fn leave(&mut self, buffered: usize) -> Result<Step> {
        debug_assert!(self.backward, "retreated on the way forward");
        let Some(&top) = self.heap.first() else {
            return Ok(Step::End);
        };
        let step = self.sources[top].leave(buffered)?;
        Ok(self.moved(step))
    }

    /// The source on top has come to `step`: puts the heap in order.
    #[inline]
    fn moved(&mut self, step: Step) -> Step {
        match step {
            Step::Ready => {
                if self.heap.len() > 1 {
                    self.sift_down(0);
                }
                Step::Ready
            }
            Step::End => {
                self.heap.swap_remove(0);
                self.sift_down(0);
                self.status()
            }
            Step::Pending => {
                self.waiting = true;
                Step::Pending
            }
        }
    }

    /// Like [`Merge::seek`], for a target ahead of the current key on the way forward: sources already there stay.
    pub fn skip_to(&mut self, target: &[u8]) -> Result<Step> {
        debug_assert!(!self.backward, "skipped on the way back");
        for source in &mut self.sources {
            if source.step == Step::Ready && source.key() < target {
                source.seek(target)?;
            }
        }
        Ok(self.settle())
    }

    /// Fetches for each waiting source the one block that it said is missing.
    pub async fn load_one(&mut self) -> Result<Step> {
        let waiting = self
            .sources
            .iter_mut()
            .filter(|s| s.step == Step::Pending)
            .map(Source::load_one);
        futures::future::try_join_all(waiting).await?;
        Ok(self.settle())
    }

    /// Fetches the blocks that the waiting sources need and completes the interrupted move.
    pub async fn load(&mut self) -> Result<Step> {
        let waiting = self
            .sources
            .iter_mut()
            .filter(|s| s.step == Step::Pending)
            .map(Source::load);
        futures::future::try_join_all(waiting).await?;
        Ok(self.settle())
    }

    /// Where the merge is.
    #[inline]
    pub fn status(&self) -> Step {
        if self.waiting {
            Step::Pending
        } else {
            found(!self.heap.is_empty())
        }
    }

    /// The current key; empty when the merge is on none.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.heap.first().map_or(&[], |&top| self.sources[top].key())
    }

    /// The current value; a slice of a cached block where it comes from one.
    #[inline]
    pub fn value(&self) -> Bytes {
        self.heap
            .first()
            .map_or_else(Bytes::new, |&top| self.sources[top].value())
    }

    /// The current value, looked at or kept.
    #[inline]
    pub(crate) fn stored_value(&self) -> MergedValue<'_> {
        MergedValue(self)
    }

    /// The current value, for as long as the merge stays.
    #[inline]
    pub fn value_slice(&self) -> &[u8] {
        self.heap.first().map_or(&[], |&top| self.sources[top].value_slice())
    }

    /// Rebuilds the heap after several sources moved.
    fn settle(&mut self) -> Step {
        self.waiting = self.sources.iter().any(|s| s.step == Step::Pending);
        self.heap.clear();
        if self.waiting {
            return Step::Pending;
        }
        self.heap
            .extend((0..self.sources.len()).filter(|&i| self.sources[i].step == Step::Ready));
        for at in (0..self.heap.len() / 2).rev() {
            self.sift_down(at);
        }
        self.status()
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let mut least = at;
            for child in [left, right] {
                if child < self.heap.len() && self.less(child, least) {
                    least = child;
                }
            }
            if least == at {
                return;
            }
            self.heap.swap(at, least);
            at = least;
        }
    }

    #[inline]
    fn less(&self, a: usize, b: usize) -> bool {
        let (a, b) = (self.sources[self.heap[a]].key(), self.sources[self.heap[b]].key());
        if self.backward { a > b } else { a < b }
    }
}
