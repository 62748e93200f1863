//! Checks every block of an sstable, and that its parts agree with each other.
//!
//! A reader stops at the first damage. A check continues after it and reports for each damaged part the keys that the
//! part may have had, as far as separators and neighbours tell. Everything is read once, front to back, in large
//! pieces. A *salvage* is a check that copies the cells of every intact block to another file.
//!
//! A check covers the checksum of every part. Keys must be well-formed, strictly ascending, and within their block's
//! separators. The filter must admit every row, and the properties must match the cells (when no cell is missing).

use crate::block::BlockCursor;
use crate::damage::is_damage;
use crate::error::{Result, SstableError};
use crate::frame::Handle;
use crate::index::IndexBlock;
use crate::properties::{FamilySet, Properties};
use crate::reader::{Sstable, read_around};
use crate::writer::SstableWriter;
use bytes::Bytes;
use std::sync::Arc;
use stele_types::key::KeyParts;

/// Bytes per read: large enough for a disk's full speed.
const WINDOW_BYTES: usize = 4 << 20;

/// Findings reported for one file. A file that is damaged everywhere need not be described block by block.
pub const FINDINGS_MAX: usize = 1_000;

/// An error that a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The error and its place.
    pub error: SstableError,
    /// Bytes of the file that are unusable because of it.
    pub bytes: u64,
    /// Keys that may be missing because of it; `None` when no cell is.
    pub keys: Option<KeyGap>,
}

/// Encoded cell keys from `lower` (inclusive) to `upper` (exclusive).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyGap {
    /// Empty for the start of the table.
    pub lower: Vec<u8>,
    /// `None` for the end of the table.
    pub upper: Option<Vec<u8>>,
}

/// The result of a check.
#[derive(Clone, Debug, Default)]
pub struct Checked {
    /// In the order of the file, at most [`FINDINGS_MAX`].
    pub findings: Vec<Finding>,
    /// Number of findings beyond those.
    pub more: u64,
    /// Intact data blocks.
    pub blocks: u64,
    /// Cells in them.
    pub cells: u64,
}

impl Sstable {
    /// Reads every block and checks that all parts agree. Fails with the first error.
    pub async fn verify(self: &Arc<Self>) -> Result<()> {
        let checked = self.check(|_| {}).await?;
        match checked.findings.into_iter().next() {
            Some(finding) => Err(finding.error),
            None => Ok(()),
        }
    }

    /// Checks everything, also the intact parts of a damaged file. `progress` gets the bytes of every block read. An
    /// error is a failure of the storage.
    pub async fn check(self: &Arc<Self>, progress: impl FnMut(u64)) -> Result<Checked> {
        self.check_to(None, progress).await
    }

    /// Checks everything and copies the cells of all intact blocks to `writer`.
    pub async fn salvage(self: &Arc<Self>, writer: &mut SstableWriter) -> Result<Checked> {
        self.check_to(Some(writer), |_| {}).await
    }

    async fn check_to(
        self: &Arc<Self>,
        salvaged: Option<&mut SstableWriter>,
        progress: impl FnMut(u64),
    ) -> Result<Checked> {
        let mut check = Check {
            table: self,
            progress,
            salvaged,
            window: Window::default(),
            checked: Checked::default(),
            found: Properties::default(),
            families: FamilySet::default(),
            last: Vec::new(),
            row_len: 0,
        };
        if let Some(error) = self.damage().of_everything() {
            let properties = self.properties();
            let upper = [&properties.largest_key[..], &[0]].concat();
            let keys = KeyGap {
                lower: properties.smallest_key.clone(),
                upper: Some(upper).filter(|_| !properties.smallest_key.is_empty()),
            };
            check.note(error.clone(), self.file_bytes(), Some(keys));
            return Ok(check.checked);
        }
        if let Some(error) = self.damage().of_filter() {
            check.note(error.clone(), 0, None);
        }
        check.index_blocks().await?;
        check.properties();
        Ok(check.checked)
    }
}

struct Check<'a, P> {
    table: &'a Arc<Sstable>,
    progress: P,
    salvaged: Option<&'a mut SstableWriter>,
    window: Window,
    checked: Checked,
    /// The properties computed from the cells.
    found: Properties,
    families: FamilySet,
    /// The last key.
    last: Vec<u8>,
    /// Length of its row.
    row_len: usize,
}

impl<P: FnMut(u64)> Check<'_, P> {
    async fn index_blocks(&mut self) -> Result<()> {
        let top = self.table.top();
        for top_at in 0..top.len() {
            let gap = gap(top, top_at, None);
            let index = match self.table.index_block(top_at).await {
                Ok(index) => index,
                Err(error) if is_damage(&error) => {
                    let handle = top.child(top_at).unwrap_or_default();
                    self.note(error, handle.framed_len() as u64, Some(gap));
                    continue;
                }
                Err(error) => return Err(error),
            };
            for at in 0..index.len() {
                self.data_block(top_at, &index, at, gap.upper.as_deref()).await?;
            }
        }
        Ok(())
    }

    /// Checks one data block; its index block ends below `upper`.
    async fn data_block(&mut self, top_at: usize, index: &IndexBlock, at: usize, upper: Option<&[u8]>) -> Result<()> {
        let gap = gap(index, at, upper);
        let handle = match self.table.child(top_at, index, at) {
            Ok(handle) => handle,
            Err(error) => {
                self.note(error, 0, Some(gap));
                return Ok(());
            }
        };
        (self.progress)(handle.framed_len() as u64);
        let content = match self.window.block(self.table, handle).await {
            Ok(content) => content,
            Err(error) if is_damage(&error) => {
                self.note(error, handle.framed_len() as u64, Some(gap));
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        match self.cells(handle, content.clone(), &gap) {
            Ok(()) => {
                self.checked.blocks += 1;
                self.copy(handle, content).await
            }
            Err(error) => {
                self.note(error, handle.framed_len() as u64, Some(gap));
                Ok(())
            }
        }
    }

    /// Copies the cells of a block that has been checked.
    async fn copy(&mut self, handle: Handle, content: Bytes) -> Result<()> {
        let Some(writer) = &mut self.salvaged else {
            return Ok(());
        };
        let mut cells = BlockCursor::default();
        cells.set_block(self.table.parse(handle, content)?);
        let mut more = cells.seek_first();
        while more.map_err(|e| self.table.corruption_at(handle, &e))? {
            writer.add(cells.key(), cells.value())?;
            more = cells.advance();
        }
        if writer.wants_flush() {
            writer.flush().await?;
        }
        Ok(())
    }

    fn cells(&mut self, handle: Handle, content: Bytes, gap: &KeyGap) -> Result<()> {
        let table = self.table;
        let wrong = |detail: &str| SstableError::corruption(table.path(), handle.offset, detail);
        let mut cells = BlockCursor::default();
        cells.set_block(table.parse(handle, content)?);
        let mut is_denied = false;
        let mut more = cells.seek_first();
        while more.map_err(|e| table.corruption_at(handle, &e))? {
            let key = cells.key();
            let parts = KeyParts::parse(key).ok_or_else(|| wrong("malformed key"))?;
            if key <= self.last.as_slice() {
                return Err(wrong("keys out of order"));
            }
            if key < gap.lower.as_slice() || gap.upper.as_deref().is_some_and(|upper| key >= upper) {
                return Err(wrong("a key outside of its block's separators"));
            }
            let row = key.get(..parts.row_end).unwrap_or(key);
            if self.last.get(..self.row_len) != Some(row) {
                self.found.rows += 1;
                is_denied |= !table.may_contain_row(row);
            }
            if self.found.cells == 0 {
                self.found.smallest_key = key.to_vec();
            }
            self.found
                .add(key, cells.value(), parts.timestamp, parts.seq.0, parts.kind);
            self.families.note(key.get(parts.row_end..).unwrap_or_default());
            self.checked.cells += 1;
            self.row_len = parts.row_end;
            self.last.clear();
            self.last.extend_from_slice(key);
            more = cells.advance();
        }
        if is_denied {
            // The cells are sound, and a salvage loses none of them.
            self.note(wrong("the filter denies a row that is there"), 0, None);
        }
        Ok(())
    }

    /// Compares the computed properties with the stored ones, unless cells are missing.
    fn properties(&mut self) {
        if self.checked.findings.iter().any(|finding| finding.keys.is_some()) {
            return;
        }
        let said = self.table.properties();
        let found = Properties {
            largest_key: std::mem::take(&mut self.last).into(),
            data_blocks: self.checked.blocks,
            data_bytes: said.data_bytes,
            index_blocks: self.table.top().len() as u64,
            compression: said.compression,
            created_by: said.created_by.clone(),
            created_micros: said.created_micros,
            families: std::mem::take(&mut self.families).ranges(),
            zstd_level: said.zstd_level,
            block_bytes: said.block_bytes,
            filter_bits_per_row: said.filter_bits_per_row,
            dictionary_offset: said.dictionary_offset,
            dictionary_bytes: said.dictionary_bytes,
            compressible_bytes: said.compressible_bytes,
            ..std::mem::take(&mut self.found)
        };
        if found != *said {
            let error = SstableError::corruption(self.table.path(), 0, "properties differ from the cells");
            self.note(error, 0, None);
        }
    }

    fn note(&mut self, error: SstableError, bytes: u64, keys: Option<KeyGap>) {
        if self.checked.findings.len() < FINDINGS_MAX {
            self.checked.findings.push(Finding { error, bytes, keys });
        } else {
            self.checked.more += 1;
        }
        debug_assert!(self.checked.findings.len() <= FINDINGS_MAX, "findings are bounded");
    }
}

/// The key range of the `at`-th child; `upper` ends the range of the last child.
fn gap(index: &IndexBlock, at: usize, upper: Option<&[u8]>) -> KeyGap {
    KeyGap {
        lower: index.separator(at).unwrap_or(&[]).to_vec(),
        upper: index.separator(at + 1).or(upper).map(<[u8]>::to_vec),
    }
}

/// A range of the file from which data blocks are cut.
#[derive(Default)]
pub(crate) struct Window {
    offset: u64,
    bytes: Bytes,
}

impl Window {
    /// Whether these bytes are a slice of the window.
    pub(crate) fn holds(&self, bytes: &Bytes) -> bool {
        self.bytes.as_ptr_range().contains(&bytes.as_ptr())
    }

    pub(crate) async fn block(&mut self, table: &Sstable, handle: Handle) -> Result<Bytes> {
        let framed = self.framed(table, handle).await?;
        table.open_content(handle, &framed)
    }

    /// A block with its frame, unchecked.
    pub(crate) async fn framed(&mut self, table: &Sstable, handle: Handle) -> Result<Bytes> {
        table.check_handle(handle)?;
        let len = handle.framed_len();
        Ok(match handle.within(self.offset, &self.bytes) {
            Some(framed) => framed,
            None => {
                let left = usize::try_from(table.file_bytes().saturating_sub(handle.offset)).unwrap_or(usize::MAX);
                let run = (handle.offset, len.max(WINDOW_BYTES).min(left));
                let (_, read) = read_around(table.file(), run, (handle.offset, len)).await;
                self.bytes = read?;
                self.offset = handle.offset;
                self.bytes.slice(..len.min(self.bytes.len()))
            }
        })
    }
}
