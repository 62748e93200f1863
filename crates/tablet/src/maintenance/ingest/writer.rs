//! The files of added runs: one sorted run for each locality group and lane.

use super::merge::Entry;
use crate::compaction::Carried;
use crate::compaction::output::Output;
use crate::error::{Result, TabletError};
use crate::files::FileRegistry;
use crate::maintenance::compact::write_options;
use crate::manifest::FileRef;
use crate::statistics::RowSample;
use std::collections::BTreeMap;
use std::sync::Arc;
use stele_env::Env;
use stele_types::key::{CellKind, KeyBuf, row_prefix_len};
use stele_types::{FileId, GroupId, SeqNo, TableSchema};

/// Entries that are in the order of keys among themselves. In the order of age of their runs: a tombstone is newer than the
/// cells of all sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    /// Values, and tombstones of versions.
    Cells,
    /// Tombstones of columns.
    Columns,
    /// Tombstones of families.
    Families,
}

/// The files of a lane.
pub(super) struct LaneFiles {
    pub(super) files: Vec<FileRef>,
    pub(super) values: Vec<FileId>,
    pub(super) value_bytes: u64,
    pub(super) sample: RowSample,
}

struct LaneWriter<'a> {
    output: Output<'a>,
    sample: RowSample,
    /// The key of the last entry; empty at the start.
    last: Vec<u8>,
    /// Bytes of its row's prefix.
    row_len: usize,
}

/// Writes entries in HBase's order to the runs of their groups and lanes.
pub(super) struct RunWriter<'a> {
    env: &'a Env,
    files: &'a FileRegistry,
    schema: Arc<TableSchema>,
    /// The sequence number of tombstones.
    of_tombstones: SeqNo,
    lanes: BTreeMap<(GroupId, Lane), LaneWriter<'a>>,
    key: KeyBuf,
}

impl<'a> RunWriter<'a> {
    pub(super) fn new(
        env: &'a Env,
        files: &'a FileRegistry,
        schema: Arc<TableSchema>,
        of_tombstones: SeqNo,
    ) -> RunWriter<'a> {
        RunWriter {
            env,
            files,
            schema,
            of_tombstones,
            lanes: BTreeMap::new(),
            key: KeyBuf::new(),
        }
    }

    /// Adds an entry; `seq` is that of its source. An entry that is the same as one before is left out.
    pub(super) async fn add(&mut self, entry: Entry, seq: SeqNo) -> Result<()> {
        let seq = if entry.kind.is_delete() {
            self.of_tombstones
        } else {
            seq
        };
        let kind = entry.kind;
        self.key
            .set(&entry.row, entry.family, &entry.qualifier, entry.timestamp, seq, kind);
        let place = (self.schema.group_of(entry.family), entry.lane());
        let (env, files, schema) = (self.env, self.files, &self.schema);
        let lane = self
            .lanes
            .entry(place)
            .or_insert_with(|| LaneWriter::new(env, files, schema, place.0));
        lane.add(self.key.as_slice(), entry).await
    }

    /// Completes all files.
    pub(super) async fn finish(&mut self) -> Result<()> {
        for lane in self.lanes.values_mut() {
            lane.output.finish().await?;
        }
        Ok(())
    }

    /// The complete files by group, the oldest lane first. Others are discarded.
    pub(super) fn take(&mut self) -> Vec<(GroupId, LaneFiles)> {
        let lanes = std::mem::take(&mut self.lanes).into_iter();
        let files_of = |((group, _), mut lane): ((GroupId, Lane), LaneWriter<'_>)| {
            let written = lane.output.take();
            let files = LaneFiles {
                files: written.files,
                values: written.values,
                value_bytes: written.value_bytes,
                sample: lane.sample,
            };
            (group, files)
        };
        lanes.map(files_of).collect()
    }
}

impl<'a> LaneWriter<'a> {
    fn new(env: &'a Env, files: &'a FileRegistry, schema: &TableSchema, group: GroupId) -> Self {
        let options = schema.group_options(group);
        let file_bytes = options.file_bytes.unwrap_or_else(|| files.file_bytes());
        let write = write_options(&options, env);
        LaneWriter {
            output: Output::new(env, (files, schema.id), write, file_bytes, false, Carried::default()),
            sample: RowSample::default(),
            last: Vec::new(),
            row_len: 0,
        }
    }

    async fn add(&mut self, key: &[u8], entry: Entry) -> Result<()> {
        if key <= &self.last[..] {
            // The last byte is the kind. A put that expires by itself and one that does not are of the same cell.
            let is_same = |a: &[u8], b: &[u8]| a.split_last().map(|(_, a)| a) == b.split_last().map(|(_, b)| b);
            return match is_same(key, &self.last) {
                true => Ok(()),
                false => Err(TabletError::NotAddable {
                    detail: format!("cells of row \"{}\" are not sorted", entry.row.escape_ascii()),
                }),
            };
        }
        let row = key.get(..self.row_len).unwrap_or_default();
        if self.row_len == 0 || Some(row) != self.last.get(..self.row_len) {
            self.row_len = row_prefix_len(key).unwrap_or(key.len());
            if self.sample.wants_row() {
                self.sample.keep(key.get(..self.row_len).unwrap_or_default());
            }
            self.output.ready_for_row().await?;
        }
        match entry.kind == CellKind::Put && self.output.keeps_apart(true, &entry.value) {
            true => self.output.add_apart(key, self.row_len, entry.value),
            false => self.output.add(key, self.row_len, &entry.value)?,
        }
        self.last.clear();
        self.last.extend_from_slice(key);
        if self.output.wants_flush() {
            self.output.flush().await?;
        }
        Ok(())
    }
}
