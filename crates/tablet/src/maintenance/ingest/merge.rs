//! The cells of all sources in one order.
//!
//! The order is HBase's: row, family, qualifier, timestamp (newest first), and at one timestamp deletes before puts. It
//! differs from the order of keys: there, tombstones of a family come before all of its columns, and those of a column before
//! all of its cells. To sort them in, all cells of a column would have to be held. But tombstones of families alone, those of
//! columns alone, and everything else alone are in both orders the same. So these three *lanes* are written to runs of their
//! own, and nothing is held.

use super::NewCells;
use super::writer::{Lane, RunWriter};
use crate::compaction::{ENTRIES_PER_PROBE, Slice};
use crate::error::TabletError;
use async_trait::async_trait;
use bytes::Bytes;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use stele_env::Env;
use stele_types::{CellKind, FamilyId, Mutation, RowRange, SeqNo, TabletId, Timestamp, limits};

/// Cells of one family, in HBase's order.
#[async_trait]
pub trait CellSource<E>: Send {
    /// The next cells with their rows, some at a time; `None` at the end. Puts and deletes of the family, each with its own
    /// time.
    async fn next(&mut self) -> Result<Option<Vec<(Bytes, Mutation)>>, E>;
}

/// A cell under way.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) row: Bytes,
    pub(super) family: FamilyId,
    pub(super) qualifier: Bytes,
    pub(super) timestamp: Timestamp,
    pub(super) kind: CellKind,
    pub(super) value: Bytes,
    /// The place of its source.
    source: usize,
}

impl Entry {
    fn of(row: Bytes, mutation: Mutation, source: usize) -> Result<Entry, TabletError> {
        let (family, qualifier, timestamp, kind, value) = match mutation {
            Mutation::Put {
                family,
                qualifier,
                timestamp,
                value,
            } => (family, qualifier, timestamp, CellKind::Put, value),
            Mutation::ExpiringPut {
                family,
                qualifier,
                timestamp,
                stored,
            } => (family, qualifier, timestamp, CellKind::ExpiringPut, stored),
            Mutation::DeleteVersion {
                family,
                qualifier,
                timestamp,
            } => (family, qualifier, timestamp, CellKind::DeleteVersion, Bytes::new()),
            Mutation::DeleteColumn {
                family,
                qualifier,
                from: Timestamp::MIN,
                to,
            } => (family, qualifier, to, CellKind::DeleteColumn, Bytes::new()),
            Mutation::DeleteFamily { family, up_to } => {
                (family, Bytes::new(), up_to, CellKind::DeleteFamily, Bytes::new())
            }
            Mutation::DeleteFamilyVersion { family, timestamp } => {
                let kind = CellKind::DeleteFamilyVersion;
                (family, Bytes::new(), timestamp, kind, Bytes::new())
            }
            Mutation::Merge { .. } | Mutation::DeleteRow { .. } | Mutation::DeleteColumn { .. } => {
                return Err(not_addable(
                    "a source has other changes than puts and deletes of its family",
                ));
            }
        };
        if row.is_empty() || row.len() > limits::ROW_KEY_BYTES_MAX {
            return Err(not_addable(format!("a row key of {} bytes", row.len())));
        }
        if qualifier.len() > limits::QUALIFIER_BYTES_MAX || value.len() > limits::VALUE_BYTES_MAX {
            let (qualifier, value) = (qualifier.len(), value.len());
            return Err(not_addable(format!(
                "a qualifier of {qualifier} bytes with a value of {value}"
            )));
        }
        Ok(Entry {
            row,
            family,
            qualifier,
            timestamp,
            kind,
            value,
            source,
        })
    }

    /// The place of its kind among cells of one timestamp.
    fn rank(&self) -> u8 {
        match self.kind {
            CellKind::DeleteFamily => 0,
            CellKind::DeleteColumn => 1,
            CellKind::DeleteFamilyVersion => 2,
            CellKind::DeleteVersion => 3,
            _ => 4,
        }
    }

    pub(super) fn lane(&self) -> Lane {
        match self.kind {
            CellKind::DeleteFamily | CellKind::DeleteFamilyVersion => Lane::Families,
            CellKind::DeleteColumn => Lane::Columns,
            _ => Lane::Cells,
        }
    }

    fn place(&self) -> (&[u8], FamilyId, &[u8], Reverse<Timestamp>, u8) {
        let time = Reverse(self.timestamp);
        (&self.row, self.family, &self.qualifier, time, self.rank())
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    /// Of equal cells those of the last source come first, as their sequence numbers are the highest.
    fn cmp(&self, other: &Self) -> Ordering {
        let later_first = || other.source.cmp(&self.source);
        self.place().cmp(&other.place()).then_with(later_first)
    }
}

fn not_addable(detail: impl Into<String>) -> TabletError {
    TabletError::NotAddable { detail: detail.into() }
}

/// A source, and the cells that it has given.
struct Feed<E> {
    family: FamilyId,
    source: Box<dyn CellSource<E>>,
    cells: std::vec::IntoIter<(Bytes, Mutation)>,
}

/// Merges sources.
pub(super) struct Merge<'t, E> {
    feeds: Vec<Feed<E>>,
    heads: BinaryHeap<Reverse<Entry>>,
    tablet: TabletId,
    range: &'t RowRange,
    /// The sequence number of the first source's cells.
    first: SeqNo,
}

impl<'t, E: From<TabletError>> Merge<'t, E> {
    pub(super) fn new(sources: Vec<NewCells<E>>, tablet: TabletId, range: &'t RowRange, first: SeqNo) -> Self {
        let feed = |source: NewCells<E>| Feed {
            family: source.family,
            source: source.cells,
            cells: Vec::new().into_iter(),
        };
        Merge {
            feeds: sources.into_iter().map(feed).collect(),
            heads: BinaryHeap::new(),
            tablet,
            range,
            first,
        }
    }

    /// Writes all cells.
    pub(super) async fn write_to(mut self, writer: &mut RunWriter<'_>, env: &Env) -> Result<(), E> {
        for at in 0..self.feeds.len() {
            if let Some(entry) = self.next_of(at).await? {
                self.heads.push(Reverse(entry));
            }
        }
        let (mut slice, mut entries) = (Slice::new(env), 0u64);
        while let Some(Reverse(entry)) = self.heads.pop() {
            let at = entry.source;
            if let Some(next) = self.next_of(at).await? {
                if next.place() < entry.place() {
                    let row = next.row.escape_ascii();
                    return Err(not_addable(format!("cells of row \"{row}\" are not sorted")).into());
                }
                self.heads.push(Reverse(next));
            }
            writer.add(entry, self.first.plus(at as u64)).await?;
            entries += 1;
            if entries.is_multiple_of(ENTRIES_PER_PROBE) {
                slice.look(env).await;
            }
        }
        Ok(())
    }

    /// The next cell of a source.
    async fn next_of(&mut self, at: usize) -> Result<Option<Entry>, E> {
        let Some(feed) = self.feeds.get_mut(at) else {
            return Ok(None);
        };
        let (row, mutation) = loop {
            if let Some(cell) = feed.cells.next() {
                break cell;
            }
            match feed.source.next().await? {
                Some(cells) => feed.cells = cells.into_iter(),
                None => return Ok(None),
            }
        };
        let entry = Entry::of(row, mutation, at)?;
        if entry.family != feed.family {
            return Err(not_addable("a source has cells of another family than its own").into());
        }
        if !self.range.contains(&entry.row) {
            return Err(TabletError::OtherRow {
                tablet: self.tablet,
                row: entry.row.escape_ascii().to_string(),
            }
            .into());
        }
        Ok(Some(entry))
    }
}
