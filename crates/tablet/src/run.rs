//! One sorted run as one source of a merge.
//!
//! A *run* is a sequence of file references whose keys ascend without overlap (`manifest`). A merge needs one cursor for
//! it, not one per file: [`RunCursor`] stands in one file at a time and moves on to its neighbour at either end. Files
//! are opened when they are reached, so a short scan over a long run reads one of them.
//!
//! Invariants:
//! * No row is in two files of a run: files are ended, and references cut, between rows.
//! * A reference is not cut above its file's last key, so files end in the order in which they begin.
//! * `at` is the file of `cursor`; the cursor's keys count only within the file's bounds.
//! * After `Pending`, `backward` tells the direction of the interrupted move.

pub mod fences;

use crate::error::Result;
use crate::held::{HeldFile, ReadOptions};
use bytes::Bytes;
use stele_sstable::{Buffered, Cursor, Step};

/// A position in a run.
pub struct RunCursor {
    files: Vec<HeldFile>,
    options: ReadOptions,
    at: usize,
    cursor: Option<Cursor>,
    backward: bool,
    /// Bytes of the blocks that cursors of other files have been in.
    passed_before: u64,
}

impl RunCursor {
    /// A cursor without position. The files' keys ascend without overlap.
    pub fn new(files: Vec<HeldFile>, options: ReadOptions) -> Self {
        debug_assert!(
            files
                .windows(2)
                .all(|pair| matches!(pair, [a, b] if a.first_key() <= b.first_key())),
            "files of a run ascend"
        );
        RunCursor {
            files,
            options,
            at: 0,
            cursor: None,
            backward: false,
            passed_before: 0,
        }
    }

    /// As [`Cursor::passed_bytes`].
    pub fn passed_bytes(&self) -> u64 {
        self.passed_before + self.cursor.as_ref().map_or(0, Cursor::passed_bytes)
    }

    /// Reads no more than this ahead from now on, where it would read more. Before the first move.
    pub fn limit_readahead(&mut self, bytes: usize) {
        debug_assert!(self.cursor.is_none(), "readahead is limited before the first move");
        self.options.readahead_bytes = self.options.readahead_bytes.min(bytes);
    }

    /// As [`Cursor::drop_readahead`].
    pub fn drop_readahead(&mut self) -> usize {
        self.cursor.as_mut().map_or(0, Cursor::drop_readahead)
    }

    /// To the first key not below `target`.
    pub fn seek(&mut self, target: &[u8]) -> Result<Step> {
        self.backward = false;
        self.enter(self.files.partition_point(|file| file.ends_before(target)));
        let step = match (&mut self.cursor, self.files.get(self.at)) {
            (Some(cursor), Some(file)) => cursor.seek(target.max(file.first_key()))?,
            _ => Step::End,
        };
        self.arrive(step)
    }

    /// To the last key below `target`.
    pub fn seek_before(&mut self, target: &[u8]) -> Result<Step> {
        self.backward = true;
        let below = self.files.partition_point(|file| file.first_key() < target);
        let Some(at) = below.checked_sub(1) else {
            self.cursor = None;
            return Ok(Step::End);
        };
        self.enter(at);
        let step = match (&mut self.cursor, self.files.get(at)) {
            (Some(cursor), Some(file)) => match file.reference.upper.as_deref() {
                Some(upper) => cursor.seek_before(upper.min(target))?,
                None => cursor.seek_before(target)?,
            },
            _ => Step::End,
        };
        self.arrive(step)
    }

    /// To the following key.
    pub fn advance(&mut self) -> Result<Step> {
        self.backward = false;
        let step = match &mut self.cursor {
            Some(cursor) => cursor.advance()?,
            None => Step::End,
        };
        match (step, self.upper()) {
            (Step::Ready, None) => Ok(Step::Ready),
            _ => self.arrive(step),
        }
    }

    /// The cursor of the current file, if no bound cuts anything off it in the direction of the moves. Until it comes to an
    /// end, its moves are the run's moves. Then [`RunCursor::moved`] must be called.
    #[inline]
    pub fn unbounded(&mut self, backward: bool) -> Option<&mut Cursor> {
        let file = self.files.get(self.at)?;
        let bound = if backward { file.lower() } else { file.upper() };
        match bound {
            None => self.cursor.as_mut(),
            Some(_) => None,
        }
    }

    /// Its cursor has been moved forward, to `step`.
    pub fn moved(&mut self, step: Step) -> Result<Step> {
        debug_assert!(self.cursor.is_some(), "a cursor that has moved is there");
        self.backward = false;
        self.arrive(step)
    }

    /// To the preceding key.
    pub fn retreat(&mut self) -> Result<Step> {
        self.backward = true;
        let step = match &mut self.cursor {
            Some(cursor) => cursor.retreat()?,
            None => Step::End,
        };
        self.arrive(step)
    }

    /// As [`Cursor::buffered`]: the neighbouring files have nothing of a row whose first key this one has, and one before it.
    #[inline]
    pub fn buffered(&self, belongs: impl Fn(&[u8]) -> bool) -> Option<Buffered<'_>> {
        self.cursor.as_ref()?.buffered(belongs)
    }

    /// Moves before this many buffered entries.
    pub fn leave(&mut self, buffered: usize) -> Result<Step> {
        self.backward = true;
        let cursor = self.cursor.as_mut().expect("buffered entries are those of a cursor");
        cursor.leave(buffered);
        self.arrive(Step::Ready)
    }

    /// Completes a move that said `Pending`.
    pub async fn load(&mut self) -> Result<Step> {
        let mut step = Step::Pending;
        while step == Step::Pending {
            let cursor = self.cursor.as_mut().expect("a move that is pending is one of a cursor");
            step = cursor.load().await?;
            step = self.arrive(step)?;
        }
        Ok(step)
    }

    /// Fetches one of the blocks that a move lacks which said `Pending`.
    pub async fn load_one(&mut self) -> Result<Step> {
        let cursor = self.cursor.as_mut().expect("a move that is pending is one of a cursor");
        let step = cursor.load_one().await?;
        self.arrive(step)
    }

    /// The current key; meaningful after `Ready`.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.cursor.as_ref().map_or(&[], Cursor::key)
    }

    /// The current value; meaningful after `Ready`.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.cursor.as_ref().map_or(&[], Cursor::value)
    }

    /// The current value as a slice of its block.
    pub fn value_bytes(&self) -> Bytes {
        self.cursor.as_ref().map_or_else(Bytes::new, Cursor::value_bytes)
    }

    fn upper(&self) -> Option<&Bytes> {
        self.files.get(self.at).and_then(HeldFile::upper)
    }

    /// Makes `at` the current file; its cursor is kept when it is that already.
    fn enter(&mut self, at: usize) {
        if at != self.at || self.cursor.is_none() {
            self.passed_before = self.passed_bytes();
            self.at = at;
            self.cursor = self.files.get(at).map(|file| file.cursor(self.options));
        }
    }

    /// The cursor has come to `step`: past the file's bounds the neighbour goes on, until a key or the run's end.
    fn arrive(&mut self, mut step: Step) -> Result<Step> {
        loop {
            let Some(file) = self.files.get(self.at) else {
                return Ok(Step::End);
            };
            let reference = &file.reference;
            let outside = match step {
                Step::Pending => return Ok(step),
                Step::End => true,
                Step::Ready if self.backward => reference.lower.as_deref().is_some_and(|lower| self.key() < lower),
                Step::Ready => reference.upper.as_deref().is_some_and(|upper| self.key() >= upper),
            };
            if !outside {
                return Ok(Step::Ready);
            }
            step = if self.backward {
                match self.at.checked_sub(1) {
                    Some(before) => self.enter_last(before)?,
                    None => return Ok(Step::End),
                }
            } else {
                self.enter_first(self.at + 1)?
            };
        }
    }

    fn enter_first(&mut self, at: usize) -> Result<Step> {
        self.enter(at);
        match (&mut self.cursor, self.files.get(at)) {
            (Some(cursor), Some(file)) => Ok(cursor.seek(file.first_key())?),
            _ => Ok(Step::End),
        }
    }

    fn enter_last(&mut self, at: usize) -> Result<Step> {
        self.enter(at);
        let upper = self.files.get(at).and_then(|file| file.reference.upper.clone());
        match (&mut self.cursor, upper) {
            (Some(cursor), Some(upper)) => Ok(cursor.seek_before(&upper)?),
            (Some(cursor), None) => Ok(cursor.seek_last()?),
            _ => Ok(Step::End),
        }
    }
}

#[cfg(test)]
mod tests;
