//! Reads one row after the other from its stored entries.
//!
//! The entries of a row are given in key order, wherever they come from; what the read returns of the row goes to a
//! batch. Shared by scans in both directions and by reads of single rows.

use super::sink::ReadSink;
use crate::error::{Result, TabletError};
use crate::resolve::{Resolver, Skip};
use bytes::Bytes;
use std::sync::Arc;
use stele_env::Env;
use stele_filter::CompiledFilter;
use stele_types::key::{self, CellKind, KeyParts, KeySplitter};
use stele_types::{Cell, RowBatch, SeqNo, TableSchema, limits};

/// The state of a read between and within rows.
pub(super) struct RowReader {
    filter: Option<Arc<CompiledFilter>>,
    /// Everything stored, unresolved.
    raw: bool,
    /// The filter does not look at values, and drops them.
    keys_only: bool,
    resolver: Resolver,
    sink: ReadSink,
    splitter: KeySplitter,
    /// The encoded row that is being read or was read last, with its terminator.
    row: Vec<u8>,
    /// Rows begun since the batch was taken.
    pub(super) rows_begun: usize,
    /// Bytes of rows in the batch.
    pub(super) batch_bytes: usize,
}

impl RowReader {
    pub(super) fn new(schema: Arc<TableSchema>, filter: Option<Arc<CompiledFilter>>, raw: bool) -> Self {
        let filter = filter.filter(|f| !f.passes_all());
        RowReader {
            raw,
            keys_only: filter.as_ref().is_some_and(|f| f.pushdown().keys_only),
            resolver: Resolver::new(schema.clone(), SeqNo::ZERO),
            sink: ReadSink::new(schema, filter.as_deref()),
            filter,
            splitter: KeySplitter::default(),
            row: Vec::new(),
            rows_begun: 0,
            batch_bytes: 0,
        }
    }

    /// What rows are read as of from now on.
    pub(super) fn set_time(&mut self, snapshot: SeqNo, now_micros: i64) {
        self.resolver.set_snapshot(snapshot);
        self.sink.set_now(now_micros);
    }

    /// The encoded row that is being read or was read last.
    #[inline]
    pub(super) fn row(&self) -> &[u8] {
        &self.row
    }

    /// Rows in the batch so far.
    #[inline]
    pub(super) fn batch_rows(&self) -> usize {
        self.sink.batch.len()
    }

    /// Ends the batch and begins another.
    pub(super) fn take_batch(&mut self) -> RowBatch {
        let mut batch = std::mem::take(&mut self.sink.batch);
        batch.seal();
        self.rows_begun = 0;
        self.batch_bytes = 0;
        batch
    }

    /// Forgets the row being read.
    pub(super) fn abandon(&mut self) {
        self.resolver.abandon_row();
    }

    /// Makes room in an empty batch.
    pub(super) fn reserve(&mut self, rows: usize) {
        self.sink.batch = RowBatch::with_capacity(rows, rows * self.row.len());
    }

    /// Begins the row of `key`; whether the filter may let anything of it through. `None` when that is no cell key.
    #[inline]
    pub(super) fn begin(&mut self, key: &[u8], env: &Env) -> Option<bool> {
        let row = key.get(..key::row_prefix_len(key)?)?;
        self.row.clear();
        self.row.extend_from_slice(row);
        self.rows_begun += 1;
        self.resolver.begin_row();
        self.sink.begin_row();
        let Some(filter) = &self.filter else {
            return Some(true);
        };
        let row = key::decode_row(&self.row)?;
        Some(filter.admits_row(&row, &mut chance(env)))
    }

    /// Whether a key is of the row being read.
    #[inline]
    pub(super) fn holds(&self, key: &[u8]) -> bool {
        key.starts_with(&self.row)
    }

    /// Takes the next entry of the row; what may be skipped behind it. `None` when the key is no cell key.
    #[inline]
    pub(super) fn take(&mut self, key: &[u8], value: impl FnOnce() -> Bytes) -> Option<(Skip, KeyParts)> {
        let parts = self.splitter.split(key, self.row.len())?;
        if self.raw {
            self.sink.push_raw(key, &parts, value());
            return Some((Skip::Nothing, parts));
        }
        let spared = self.keys_only && parts.kind == CellKind::Put;
        let value = || if spared { Bytes::new() } else { value() };
        let skip = self.resolver.push(key, &parts, value, &mut self.sink);
        Some((skip, parts))
    }

    /// A row that cannot be assembled within its limit is refused rather than cut.
    #[inline]
    pub(super) fn check_size(&self) -> Result<()> {
        if self.sink.bytes() <= limits::ROW_BYTES_MAX {
            return Ok(());
        }
        Err(self.too_large())
    }

    #[cold]
    fn too_large(&self) -> TabletError {
        let start = self.row.get(..64).unwrap_or(&self.row);
        TabletError::RowTooLarge {
            row_start: start.escape_ascii().to_string(),
            limit: limits::ROW_BYTES_MAX,
        }
    }

    /// Ends the row: what the filter makes of its cells goes to the batch.
    #[inline]
    pub(super) fn finish(&mut self, env: &Env) -> Result<()> {
        self.resolver.end_row(&mut self.sink);
        self.check_size()?;
        let cells = self.sink.cells();
        if cells == 0 {
            return Ok(());
        }
        let batch = &mut self.sink.batch;
        batch.seen.rows += 1;
        batch.seen.cells += cells as u64;
        let row = key::decode_row(&self.row).unwrap_or_default();
        let bytes = match &self.filter {
            None => self.sink.bytes(),
            Some(filter) => {
                let cells = self.sink.batch.take_open_cells();
                let cells = filter.evaluate(&row, cells, &mut chance(env))?;
                let bytes = cells.iter().map(Cell::weight).sum();
                cells.into_iter().for_each(|cell| self.sink.batch.push_cell(cell));
                bytes
            }
        };
        self.sink.batch.end_row(&row);
        self.batch_bytes += row.len() + bytes;
        Ok(())
    }
}

/// Uniform in [0, 1).
fn chance(env: &Env) -> impl FnMut() -> f64 + '_ {
    || (env.random_u64() >> 11) as f64 / (1u64 << 53) as f64
}
