//! The content of a tablet at one moment.
//!
//! A [`State`] is immutable but for the active memtables, which only grow; a change makes a new one. A reader holds the
//! state it began with, so flushes and compactions never disturb it.

mod migration;

use crate::error::{Result, TabletError};
use crate::files::FileRegistry;
use crate::held::{HeldFile, ReadOptions, hold, release};
use crate::manifest::{CUT_BYTES_EASY, Manifest};
use crate::merging::{Source, source_of_run};
use crate::misplaced::{self, FamilyRanges, Misplaced};
use crate::run::RunCursor;
use crate::run::fences::{Fences, RowLookup};
use crate::statistics::CompactionStats;
use crate::values::file::ValueFile;
use crate::values::load::ValueFiles;
pub(crate) use migration::Leavers;
use prost::Message as _;
use std::collections::BTreeSet;
use std::sync::Arc;
use stele_env::work::Work;
use stele_filter::{CompiledFilter, Pushdown};
use stele_memtable::{MemoryAccount, Memtable};
use stele_sstable::Properties;
use stele_types::{FamilyId, FileId, GroupId, SeqNo, TableSchema, Timestamp};

/// One locality group.
#[derive(Clone)]
pub struct GroupState {
    /// Which group.
    pub id: GroupId,
    /// Takes new writes.
    pub active: Arc<Memtable>,
    /// Run by run, oldest first (see [`GroupState::runs`]); changed by [`GroupState::set_files`].
    pub files: Vec<HeldFile>,
    /// The runs. A read probes all runs, and should not probe all files for that.
    runs: Arc<[Run]>,
    /// Bytes of the references in a manifest to the files that say which keys they have: others are not rewritten.
    reference_bytes: usize,
    /// Statistics that compactions go by.
    pub compaction_stats: Arc<CompactionStats>,
}

/// A run of a group's files.
#[derive(Debug)]
struct Run {
    /// Where it ends in the group's `files`; it begins where the one before ends.
    end: usize,
    fences: Fences,
}

impl GroupState {
    fn empty(id: GroupId, account: &MemoryAccount) -> Self {
        GroupState {
            id,
            active: Arc::new(Memtable::new(account.clone())),
            files: Vec::new(),
            runs: Arc::default(),
            reference_bytes: 0,
            compaction_stats: Arc::default(),
        }
    }

    /// The same without its memtable.
    pub(crate) fn of_files(&self, account: &MemoryAccount) -> GroupState {
        GroupState {
            active: Arc::new(Memtable::new(account.clone())),
            ..self.clone()
        }
    }

    /// The files, by their numbers.
    pub(crate) fn file_ids(&self) -> BTreeSet<FileId> {
        self.files.iter().map(|file| file.reference.id()).collect()
    }

    /// The sorted runs, oldest first: within one, keys ascend from file to file without overlap.
    pub fn runs(&self) -> impl Iterator<Item = &[HeldFile]> {
        self.fenced_runs().map(|(run, _)| run)
    }

    /// The files that may have the row, as their keys go, of the runs that end among the first `files` files.
    pub(crate) fn older_holders(&self, row: &RowLookup<'_>, files: usize) -> impl Iterator<Item = &HeldFile> {
        let older = self.runs.iter().take_while(|run| run.end <= files).count();
        let runs = self.fenced_runs().take(older);
        runs.flat_map(move |(run, fences)| fences.holders(run, row))
    }

    /// The same with their fences.
    fn fenced_runs(&self) -> impl Iterator<Item = (&[HeldFile], &Fences)> {
        let mut start = 0;
        self.runs.iter().map(move |run| {
            let files = self.files.get(std::mem::replace(&mut start, run.end)..run.end);
            (files.unwrap_or_default(), &run.fences)
        })
    }

    /// Replaces the files.
    pub fn set_files(&mut self, files: Vec<HeldFile>) {
        debug_assert!(
            files
                .windows(2)
                .all(|pair| matches!(pair, [last, file] if file.may_follow(last))),
            "files of a run do not overlap"
        );
        let runs = files.chunk_by(|a, b| a.reference.continues_in(&b.reference));
        let runs = runs.scan(0, |end, run| {
            *end += run.len();
            let fences = Fences::of(run);
            Some(Run { end: *end, fences })
        });
        self.runs = runs.collect();
        let end = self.runs.last().map_or(0, |run| run.end);
        assert_eq!(end, files.len(), "the runs cover all files");
        // Bounds of one of which the keys are unknown are mostly not the manifest's, and longer than any key at the end of a run.
        let known = files.iter().filter(|file| file.knows_keys());
        self.reference_bytes = known.map(|file| file.reference.encoded_len()).sum();
        self.files = files;
    }
}

/// Memtables of all groups that were frozen together and wait to be flushed.
pub struct Frozen {
    /// By group; empty memtables left out.
    pub memtables: Vec<(GroupId, Arc<Memtable>)>,
    /// The schema by which they were filled.
    pub schema: Arc<TableSchema>,
    /// Everything up to this is in them or in files.
    pub newest: SeqNo,
}

/// The whole.
#[derive(Clone)]
pub struct State {
    /// The schema, which assigns entries to groups: the active memtables were filled by this one alone.
    pub schema: Arc<TableSchema>,
    /// Never empty; those of the schema.
    pub groups: Vec<GroupState>,
    /// Oldest first.
    pub frozen: Vec<Arc<Frozen>>,
    /// Misplaced cells: families with entries in groups of others; see [`Misplaced`].
    misplaced: Vec<Misplaced>,
    /// Of each group of the schema, ranges that the families of the others are in.
    other_families: Arc<[(GroupId, FamilyRanges)]>,
    /// Grows with every change.
    pub generation: u64,
}

impl State {
    /// The state a manifest describes, with empty memtables. References are acquired, those to damaged files, too.
    pub async fn load(
        manifest: &Manifest,
        schema: Arc<TableSchema>,
        files: &FileRegistry,
        account: &MemoryAccount,
    ) -> Result<State> {
        let is_known = |id: u32| schema.groups.iter().any(|group| group.id.0 == id);
        if let Some(unknown) = manifest
            .groups
            .iter()
            .find(|g| !g.files.is_empty() && !is_known(g.group))
        {
            // Serving the rest would count these files as nobody's, and delete them.
            return Err(TabletError::Corruption {
                path: format!("manifest of tablet {}", manifest.tablet).into(),
                detail: format!("files of locality group {}, which the table lacks", unknown.group),
            });
        }
        let ids: Vec<GroupId> = schema.groups.iter().map(|group| group.id).collect();
        let holding: Vec<_> = ids.iter().map(|id| hold(manifest.files(*id), files, &[])).collect();
        let mut loaded: Vec<GroupState> = Vec::new();
        let mut failure = None;
        for (id, held) in ids.iter().zip(futures::future::join_all(holding).await) {
            let mut group = GroupState::empty(*id, account);
            match held {
                Ok(held) => group.set_files(held),
                Err(error) => failure = failure.or(Some(error)),
            }
            loaded.push(group);
        }
        if let Some(error) = failure {
            loaded.iter().for_each(|group| release(&group.files, files));
            return Err(error);
        }
        let mut state = State {
            schema,
            groups: loaded,
            frozen: Vec::new(),
            misplaced: Vec::new(),
            other_families: Arc::default(),
            generation: 1,
        };
        state.other_families = misplaced::other_families(&state.schema);
        state.refresh();
        Ok(state)
    }

    /// Sets the active memtables aside for a flush; whether there was anything in them.
    pub(crate) fn freeze(&mut self, account: &MemoryAccount) -> bool {
        let mut frozen = Frozen {
            memtables: Vec::new(),
            schema: self.schema.clone(),
            newest: SeqNo::ZERO,
        };
        for group in self.groups.iter_mut().filter(|group| !group.active.is_empty()) {
            let empty = Arc::new(Memtable::new(account.clone()));
            let full = std::mem::replace(&mut group.active, empty);
            debug_assert!(full.newest() > SeqNo::ZERO, "an entry has a sequence number");
            frozen.newest = frozen.newest.max(full.newest());
            frozen.memtables.push((group.id, full));
        }
        let any = !frozen.memtables.is_empty();
        debug_assert!(
            self.groups.iter().all(|group| group.active.is_empty()),
            "all groups are set aside together"
        );
        if any {
            self.frozen.push(Arc::new(frozen));
        }
        any
    }

    /// The same without memtables.
    pub(crate) fn of_files(&self, account: &MemoryAccount) -> State {
        let mut files = self.clone();
        files.frozen.clear();
        for group in &mut files.groups {
            *group = group.of_files(account);
        }
        files
    }

    /// Makes the groups consist of these files, and of no others.
    pub(crate) fn replace_files(&mut self, held: Vec<(GroupId, Vec<HeldFile>)>) {
        for group in &mut self.groups {
            group.set_files(Vec::new());
        }
        for (id, files) in held {
            assert!(
                files.is_empty() || self.group(id).is_some(),
                "files are held for groups of the table"
            );
            if let Some(group) = self.groups.iter_mut().find(|g| g.id == id) {
                group.set_files(files);
            }
        }
    }

    /// Follows a change of the schema: new groups begin empty. When a family has moved, the memtables of its former group
    /// must have been set aside.
    pub(crate) fn adopt(&mut self, schema: Arc<TableSchema>, account: &MemoryAccount) {
        for group in &schema.groups {
            if self.group(group.id).is_none() {
                self.groups.push(GroupState::empty(group.id, account));
            }
        }
        debug_assert!(
            schema.groups.iter().all(|group| self.group(group.id).is_some()),
            "a tablet has all groups of its schema"
        );
        self.schema = schema;
        self.other_families = misplaced::other_families(&self.schema);
    }

    /// How many ranges of foreign families are kept.
    #[cfg(test)]
    pub(crate) fn other_family_ranges(&self) -> usize {
        self.other_families.iter().map(|(_, ranges)| ranges.len()).sum()
    }

    /// Updates everything that is derived from the schema, the files and the memtables; after every change.
    pub(crate) fn refresh(&mut self) {
        let files = |id: GroupId| self.group(id).map_or(&[][..], |group| &group.files);
        let in_memtables = |id: GroupId, family: FamilyId| {
            let has_group = |frozen: &Frozen| frozen.memtables.iter().any(|(of, _)| *of == id);
            let mut frozen = self.frozen.iter();
            frozen.any(|frozen| frozen.schema.group_of(family) == id && has_group(frozen))
        };
        let moved = |id: GroupId| {
            let others = self.frozen.iter().filter(|frozen| {
                !Arc::ptr_eq(&frozen.schema, &self.schema) && frozen.memtables.iter().any(|(of, _)| *of == id)
            });
            let left = |frozen: &Arc<Frozen>| {
                let (former, now) = (frozen.schema.clone(), &self.schema);
                let families = now.families.keys().copied();
                families.filter(move |family| former.group_of(*family) == id && now.group_of(*family) != id)
            };
            others.flat_map(left).collect()
        };
        self.misplaced = misplaced::find(&self.schema, &self.other_families, files, in_memtables, moved);
        for group in &self.groups {
            let kept = self.schema.keeps_in_memory(group.id);
            group.files.iter().for_each(|file| file.sstable.keep(kept));
        }
    }

    /// Misplaced cells: families with entries in groups of others.
    pub fn misplaced(&self) -> &[Misplaced] {
        &self.misplaced
    }

    /// Whether older entries of some family in the group may be in another.
    pub fn is_above_misplaced(&self, group: GroupId) -> bool {
        let is_above = |misplaced_cells: &Misplaced| {
            misplaced_cells.group == group || (misplaced_cells.left == group && !misplaced_cells.is_oldest)
        };
        self.misplaced.iter().any(is_above)
    }

    /// No entry that is older than those behind the first `files` files of a group has a later timestamp.
    pub fn newest_before(&self, group: &GroupState, files: usize) -> Timestamp {
        if self.is_above_misplaced(group.id) {
            return Timestamp::MAX;
        }
        let older = group.files.iter().take(files);
        // One that does not say may hold any.
        let newest = older.map(|file| {
            file.sstable
                .properties()
                .timestamp_max
                .map_or(Timestamp::MAX, Timestamp)
        });
        newest.max().unwrap_or(Timestamp::MIN)
    }

    /// Whether the references take so large a part of the manifest that compactions are to make the bounds in them
    /// fewer.
    pub(crate) fn is_cut_up(&self) -> bool {
        self.groups.iter().map(|group| group.reference_bytes).sum::<usize>() > CUT_BYTES_EASY
    }

    fn wanted<'a>(&'a self, filter: Option<&'a CompiledFilter>) -> Wanted<'a> {
        // Every read that is not of nothing wants the only group.
        let several = self.groups.len() > 1;
        let pushdown = filter.filter(|_| several).map(CompiledFilter::pushdown);
        Wanted { state: self, pushdown }
    }

    /// The group, if the tablet has it.
    pub fn group(&self, id: GroupId) -> Option<&GroupState> {
        self.groups.iter().find(|g| g.id == id)
    }

    /// Adds all sources that may have keys of the row, as far as the filter wants anything of them. Memtables that have
    /// some are positioned at the first of them. Files that may have some are not yet positioned; cursors of `before` are
    /// reused where they are in the same files and were made with the same options. As with [`State::add_sources`], nothing
    /// is missed that was visible before.
    pub(crate) fn add_sources_of_row(
        &self,
        filter: Option<&CompiledFilter>,
        row: &RowLookup<'_>,
        options: ReadOptions,
        before: &mut Vec<Source>,
        sources: &mut Vec<Source>,
    ) {
        let wanted = self.wanted(filter);
        for group in self.groups.iter().filter(|group| wanted.has_group(group.id)) {
            let frozen = self.frozen.iter().flat_map(|f| &f.memtables);
            let frozen = frozen.filter(|(id, _)| *id == group.id).map(|(_, table)| table);
            let memtables = std::iter::once(&group.active).chain(frozen);
            let written = memtables.filter(|table| !table.is_empty());
            sources.extend(written.filter_map(|table| Source::memtable_at_row(table, row.prefix())));
            let sources_before = sources.len();
            for (run, fences) in group.fenced_runs() {
                let source = match fences.holders(run, row) {
                    [] => continue,
                    [file] => {
                        let properties = file.sstable.properties();
                        if !options.times.may_want(properties)
                            || !wanted.has_file(properties)
                            || !file.sstable.may_contain_hash(row.hash())
                        {
                            continue;
                        }
                        if before.is_empty() {
                            Source::file(file, options)
                        } else {
                            Source::sstable_again(before, file, options)
                        }
                    }
                    files => Source::run(RunCursor::new(files.to_vec(), options)),
                };
                sources.push(source);
            }
            group.compaction_stats.read(sources.len() - sources_before);
        }
    }

    /// Adds all sources that may have keys in `[lower, upper)` and, when `row` is given, that row, as far as the filter
    /// wants anything of them; without one all count. A read as of a sequence number that was visible before this call
    /// misses nothing: a batch that is applied later, perhaps to a memtable that was empty and is left out, is newer.
    pub fn add_sources(
        &self,
        filter: Option<&CompiledFilter>,
        lower: &[u8],
        upper: Option<&[u8]>,
        row: Option<&[u8]>,
        options: ReadOptions,
        sources: &mut Vec<Source>,
    ) {
        let wanted = self.wanted(filter);
        for group in self.groups.iter().filter(|group| wanted.has_group(group.id)) {
            if !group.active.is_empty() {
                sources.push(Source::memtable(group.active.clone()));
            }
            let frozen = self
                .frozen
                .iter()
                .flat_map(|f| &f.memtables)
                .filter(|(id, _)| *id == group.id);
            sources.extend(frozen.map(|(_, table)| Source::memtable(table.clone())));
            let may_want = |file: &HeldFile| {
                let properties = file.sstable.properties();
                options.times.may_want(properties) && wanted.has_file(properties)
            };
            let before = sources.len();
            sources.extend(
                group
                    .runs()
                    .filter_map(|run| source_of_run(run, lower, upper, row, options, may_want)),
            );
            group.compaction_stats.read(sources.len() - before);
        }
    }

    /// Tells a call that counts its work how much there is to read in.
    pub(crate) fn note_sources(&self, work: &mut Work) {
        work.memtables = self.memtables().filter(|memtable| !memtable.is_empty()).count() as u64;
        work.runs = self.groups.iter().map(|group| group.runs.len() as u64).sum();
        work.files = self.files();
        debug_assert!(work.runs <= work.files, "a run has a file at least");
    }

    /// Bytes in memtables.
    pub fn memtable_bytes(&self) -> u64 {
        self.active_bytes() + self.frozen_bytes()
    }

    /// The memtables, those that take writes and frozen ones.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        let frozen = self.frozen.iter().flat_map(|frozen| &frozen.memtables);
        let active = self.groups.iter().map(|group| &group.active);
        active.chain(frozen.map(|(_, memtable)| memtable))
    }

    /// Bytes in memtables that take writes.
    pub fn active_bytes(&self) -> u64 {
        self.groups.iter().map(|g| g.active.bytes()).sum()
    }

    /// Bytes in frozen memtables.
    pub fn frozen_bytes(&self) -> u64 {
        self.frozen
            .iter()
            .flat_map(|f| &f.memtables)
            .map(|(_, m)| m.bytes())
            .sum()
    }

    /// Whether some values are in files of their own.
    pub fn has_values_apart(&self) -> bool {
        let mut files = self.groups.iter().flat_map(|g| &g.files);
        files.any(|file| !file.values.is_empty())
    }

    /// About how many bytes of files are referenced, values included.
    pub fn file_bytes(&self) -> u64 {
        self.groups.iter().flat_map(|g| &g.files).map(HeldFile::size).sum()
    }

    /// Sstables that are referenced.
    pub fn files(&self) -> u64 {
        self.groups.iter().map(|group| group.files.len() as u64).sum()
    }

    /// About how many bytes that will be when compactions have compressed the blocks that flushes did not.
    pub fn lasting_bytes(&self) -> u64 {
        let files = self.groups.iter().flat_map(|g| &g.files);
        files.map(|file| file.size() - file.compressible_bytes()).sum()
    }
}

impl ValueFiles for State {
    fn value_file(&self, file: FileId) -> Option<Arc<ValueFile>> {
        let values = self.groups.iter().flat_map(|g| &g.files).flat_map(|f| f.values.iter());
        values.into_iter().find(|values| values.id() == file).cloned()
    }
}

/// The part of a state that a read wants. Takes no memory: most reads want one family, which is in one group or two.
struct Wanted<'a> {
    state: &'a State,
    /// Absent when everything is wanted.
    pushdown: Option<&'a Pushdown>,
}

impl Wanted<'_> {
    /// The families that are wanted; `None` for all.
    fn families(&self) -> Option<impl Iterator<Item = FamilyId>> {
        self.pushdown.and_then(Pushdown::each_family)
    }

    /// Whether a wanted family may be in the group: it is its own, or one that the family has left something in.
    fn has_group(&self, group: GroupId) -> bool {
        let State { schema, misplaced, .. } = self.state;
        let may_have = |family| {
            let is_left =
                |misplaced_cells: &Misplaced| misplaced_cells.left == group && misplaced_cells.family == family;
            schema.group_of(family) == group || misplaced.iter().any(is_left)
        };
        self.families().is_none_or(|mut families| families.any(may_have))
    }

    /// Whether a file may matter to one of the families: it has their entries, or tombstones of rows.
    fn has_file(&self, properties: &Properties) -> bool {
        let may_have = |family| properties.may_have_family(family);
        self.families()
            .is_none_or(|mut families| may_have(FamilyId(0)) || families.any(may_have))
    }
}
