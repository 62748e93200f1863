//! A description of a tablet's memtables and files, for people.

use crate::held::HeldFile;
use crate::state::GroupState;
use crate::tablet::Tablet;
use bytes::Bytes;
use stele_types::key::{decode_row, row_prefix_len};
use stele_types::{FileId, GroupId};

/// The content of a tablet.
#[derive(Clone, Debug, Default)]
pub struct Description {
    /// The locality groups, in the order of the schema.
    pub groups: Vec<GroupDescription>,
    /// Bytes of memtables that take writes.
    pub active_bytes: u64,
    /// Bytes of each set of memtables that waits for a flush, oldest first.
    pub frozen_bytes: Vec<u64>,
}

/// A locality group.
#[derive(Clone, Debug)]
pub struct GroupDescription {
    /// Which group.
    pub id: GroupId,
    /// Bytes of its memtable that takes writes.
    pub active_bytes: u64,
    /// Its sorted runs, newest first. The last one is the bottom of the tree.
    pub runs: Vec<RunDescription>,
}

/// A sorted run.
#[derive(Clone, Debug, Default)]
pub struct RunDescription {
    /// How many files it has.
    pub files: usize,
    /// Bytes that the tablet refers to, values in files of their own included.
    pub bytes: u64,
    /// Entries of the files.
    pub cells: u64,
    /// Tombstones among them.
    pub deletes: u64,
    /// Bytes of bloom filters that are in memory, and of all.
    pub filter_bytes: (usize, usize),
    /// The first of its files, not more than asked for.
    pub first_files: Vec<FileDescription>,
}

/// An sstable.
#[derive(Clone, Debug)]
pub struct FileDescription {
    /// Which file.
    pub id: FileId,
    /// Its bytes.
    pub bytes: u64,
    /// Bytes that the tablet refers to.
    pub referenced: u64,
    /// Bytes of values in files of their own.
    pub value_bytes: u64,
    /// Entries.
    pub cells: u64,
    /// Rows.
    pub rows: u64,
    /// Tombstones.
    pub deletes: u64,
    /// Bytes of its bloom filter.
    pub filter_bytes: usize,
    /// Whether that is in memory.
    pub holds_filter: bool,
    /// Wall-clock microseconds of its creation; 0 if unknown.
    pub created_micros: i64,
    /// First and last row; unknown for a damaged file.
    pub rows_within: Option<(Bytes, Bytes)>,
    /// Whether reads have met damage.
    pub is_damaged: bool,
}

impl Tablet {
    /// The content now. Of each run at most `files_max` files are described.
    pub fn describe(&self, files_max: usize) -> Description {
        let state = self.state();
        let groups = state.groups.iter();
        Description {
            groups: groups.map(|group| describe_group(group, files_max)).collect(),
            active_bytes: state.active_bytes(),
            frozen_bytes: state
                .frozen
                .iter()
                .map(|frozen| frozen.memtables.iter().map(|(_, memtable)| memtable.bytes()).sum())
                .collect(),
        }
    }

    /// How many sorted runs and files the tablet has.
    pub fn runs_and_files(&self) -> (usize, usize) {
        self.with_state(|state| {
            let groups = state.groups.iter();
            groups.fold((0, 0), |(runs, files), group| {
                (runs + group.runs().count(), files + group.files.len())
            })
        })
    }

    /// Whether memtables wait for a flush.
    pub fn has_frozen(&self) -> bool {
        self.with_state(|state| !state.frozen.is_empty())
    }
}

fn describe_group(group: &GroupState, files_max: usize) -> GroupDescription {
    let mut runs: Vec<RunDescription> = group.runs().map(|run| describe_run(run, files_max)).collect();
    runs.reverse();
    debug_assert!(runs.iter().all(|run| run.files > 0), "a run has a file");
    GroupDescription {
        id: group.id,
        active_bytes: group.active.bytes(),
        runs,
    }
}

fn describe_run(run: &[HeldFile], files_max: usize) -> RunDescription {
    let mut description = RunDescription {
        files: run.len(),
        first_files: run.iter().take(files_max).map(describe_file).collect(),
        ..RunDescription::default()
    };
    for file in run {
        description.bytes += file.size();
        description.cells += file.reference.cells;
        description.deletes += file.reference.deletes;
        let (filter, all) = (file.sstable.filter_bytes(), &mut description.filter_bytes);
        all.0 += if file.sstable.holds_filter() { filter } else { 0 };
        all.1 += filter;
    }
    let (held, all) = description.filter_bytes;
    debug_assert!(held <= all, "filters in memory are a part of the filters");
    debug_assert!(description.first_files.len() <= description.files);
    description
}

fn describe_file(file: &HeldFile) -> FileDescription {
    let (sstable, reference) = (&file.sstable, &file.reference);
    let properties = sstable.properties();
    let row = |key: &[u8]| {
        let prefix = key.get(..row_prefix_len(key)?)?;
        Some(Bytes::copy_from_slice(&decode_row(prefix)?))
    };
    FileDescription {
        id: reference.id(),
        bytes: reference.len,
        referenced: reference.referenced,
        value_bytes: reference.value_bytes(),
        cells: properties.cells,
        rows: properties.rows,
        deletes: properties.deletes(),
        filter_bytes: sstable.filter_bytes(),
        holds_filter: sstable.holds_filter(),
        created_micros: properties.created_micros,
        rows_within: row(file.first_key()).zip(row(&properties.largest_key)),
        is_damaged: file.is_damaged(),
    }
}
