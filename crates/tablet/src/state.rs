//! What a tablet consists of at one moment.
//!
//! A [`State`] is immutable but for the active memtables, which only grow; a change makes a new one. A reader holds the
//! state it began with, so flushes and compactions never disturb it.

use crate::error::{Result, TabletError};
use crate::files::{FileRegistry, Opening};
use crate::maintenance::CompactionStats;
use crate::manifest::{CUT_BYTES_EASY, FileRef, Manifest, StoredFile};
use crate::merging::Source;
use crate::run::fences::{Fences, RowLookup};
use crate::run::{self, RunCursor};
use crate::values::file::ValueFile;
use crate::values::load::ValueFiles;
use bytes::Bytes;
use futures::StreamExt;
use prost::Message as _;
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use stele_filter::{CompiledFilter, Pushdown, TimestampBounds};
use stele_memtable::{MemoryAccount, Memtable};
use stele_sstable::{Cursor, CursorOptions, Properties, Sstable};
use stele_types::key;
use stele_types::{Family, FamilyId, FileId, GcRule, GroupId, SeqNo, TableSchema, Timestamp};

/// A reference to an sstable, with the open file.
#[derive(Clone)]
pub struct HeldFile {
    /// What the manifest says; the bounds of a damaged file in a run are narrower where its neighbours' are known.
    pub reference: FileRef,
    /// The open file.
    pub sstable: Arc<Sstable>,
    /// The value files it refers to.
    pub values: Arc<[Arc<ValueFile>]>,
}

/// One locality group.
#[derive(Clone)]
pub struct GroupState {
    /// Which group.
    pub id: GroupId,
    /// Takes new writes.
    pub active: Arc<Memtable>,
    /// Run by run, oldest first (see [`GroupState::runs`]); changed by [`GroupState::set_files`].
    pub files: Vec<HeldFile>,
    /// A read looks at all runs, and should not look at all files for that.
    runs: Arc<[Run]>,
    /// Bytes of the references in a manifest to the files that say which keys they have: others are not rewritten.
    reference_bytes: usize,
    /// What compactions go by.
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
        let runs = files.chunk_by(|a, b| a.reference.continues_in(&b.reference));
        let runs = runs.scan(0, |end, run| {
            *end += run.len();
            let fences = Fences::of(run);
            Some(Run { end: *end, fences })
        });
        self.runs = runs.collect();
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
    /// What they were filled by.
    pub schema: Arc<TableSchema>,
    /// Everything up to this is in them or in files.
    pub newest: SeqNo,
}

/// The whole.
#[derive(Clone)]
pub struct State {
    /// What says which group an entry goes to: the active memtables were filled by this one alone.
    pub schema: Arc<TableSchema>,
    /// Never empty; those of the schema.
    pub groups: Vec<GroupState>,
    /// Oldest first.
    pub frozen: Vec<Arc<Frozen>>,
    /// What families may have in groups that are not theirs; see [`Misplaced`].
    misplaced: Vec<Misplaced>,
    /// Of each group of the schema, ranges that the families of the others are in.
    other_families: Arc<[(GroupId, FamilyRanges)]>,
    /// Grows with every change.
    pub generation: u64,
}

/// Families from the first to the last of each pair, ascending.
type FamilyRanges = Vec<(FamilyId, FamilyId)>;

/// A family may have entries in files of a group that is not its own. As long as there is a residue, reads of the family look
/// into both groups, and nothing of its own group is at the bottom.
///
/// What is in the files decides, not what the catalog says of moves: a catalog that was restored may have forgotten some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misplaced {
    /// Which family.
    pub family: FamilyId,
    /// Where it was.
    pub left: GroupId,
    /// Where it is.
    pub group: GroupId,
    /// The catalog knows of the move, and the family has a residue in no other group. Then all of this is older than whatever
    /// else the family has.
    pub is_oldest: bool,
}

/// How a reader moves over the sources.
#[derive(Clone, Copy, Debug)]
pub struct ReadOptions {
    /// Whether blocks read are worth caching.
    pub fill_cache: bool,
    /// Bytes to fetch ahead in sequential reads.
    pub readahead_bytes: usize,
    /// See [`CursorOptions::single_row`].
    pub single_row: bool,
    /// What the reader wants of a row's cells.
    pub times: Times,
}

/// The timestamps that a reader wants, as far as files can be left out because of them.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    bounds: TimestampBounds,
    /// What is newer than the bounds decides about what is within, because some rule counts versions.
    newer_count: bool,
}

impl Times {
    /// All of them.
    pub const ALL: Times = Times {
        bounds: TimestampBounds::ALL,
        newer_count: true,
    };

    /// Those that the filter wants, for a read that resolves what is stored.
    pub fn of(filter: Option<&CompiledFilter>, schema: &TableSchema) -> Times {
        let Some(bounds) = filter.map(|f| f.pushdown().timestamps) else {
            return Times::ALL;
        };
        let counts = |family: &Family| family.gc_rule.as_ref().is_some_and(GcRule::counts_versions);
        Times {
            bounds,
            newer_count: bounds.end.is_none() || schema.families.values().any(counts),
        }
    }

    /// Whether a file with these properties may change what the reader gets. Markers always may. Cells below the bounds
    /// never do: neither they nor what is at their timestamps is wanted, and rules look only at age and at how many
    /// versions are newer.
    fn may_want(&self, properties: &Properties) -> bool {
        if self.bounds == TimestampBounds::ALL {
            // Most reads, which need not look at any file for that.
            return true;
        }
        let (Some(oldest), Some(newest)) = (properties.timestamp_min, properties.timestamp_max) else {
            return true;
        };
        let below = newest < self.bounds.start.0;
        let above = !self.newer_count && self.bounds.end.is_some_and(|end| oldest >= end.0);
        properties.deletes() > 0 || !(below || above)
    }
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
        state.other_families = other_families(&state.schema);
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
            frozen.newest = frozen.newest.max(full.newest());
            frozen.memtables.push((group.id, full));
        }
        let any = !frozen.memtables.is_empty();
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

    /// Follows a change of the schema: new groups begin empty. When a family has moved, what was written to its former
    /// group must have been set aside.
    pub(crate) fn adopt(&mut self, schema: Arc<TableSchema>, account: &MemoryAccount) {
        for group in &schema.groups {
            if self.group(group.id).is_none() {
                self.groups.push(GroupState::empty(group.id, account));
            }
        }
        self.schema = schema;
        self.other_families = other_families(&self.schema);
    }

    /// How many ranges of foreign families are kept.
    #[cfg(test)]
    pub(crate) fn other_family_ranges(&self) -> usize {
        self.other_families.iter().map(|(_, ranges)| ranges.len()).sum()
    }

    fn find_misplaced(&mut self) {
        let schema = &self.schema;
        let mut misplaced = Vec::new();
        for (id, other_families) in self.other_families.iter() {
            let Some(group) = schema.groups.iter().find(|group| group.id == *id) else {
                continue;
            };
            let files = self.group(*id).map_or(&[][..], |state| &state.files);
            let mut found: BTreeSet<FamilyId> = files
                .iter()
                .flat_map(|file| misplaced_families(file, schema, *id, other_families))
                .collect();
            for &family in &group.left {
                // Of a file that cannot be opened nobody knows more than the catalog does.
                let in_file = |file: &HeldFile| file.sstable.properties().may_have_family(family);
                let in_frozen = |frozen: &Arc<Frozen>| {
                    frozen.schema.group_of(family) == *id && frozen.memtables.iter().any(|(of, _)| of == id)
                };
                if files.iter().any(in_file) || self.frozen.iter().any(in_frozen) {
                    found.insert(family);
                }
            }
            misplaced.extend(found.into_iter().map(|family| Misplaced {
                family,
                left: *id,
                group: schema.group_of(family),
                is_oldest: group.left.contains(&family),
            }));
        }
        // Of several residues of one family the catalog knows one at most, and which of them is the oldest nobody does.
        let families: Vec<FamilyId> = misplaced.iter().map(|misplaced_cells| misplaced_cells.family).collect();
        for misplaced_cells in &mut misplaced {
            let places = families
                .iter()
                .filter(|family| **family == misplaced_cells.family)
                .count();
            misplaced_cells.is_oldest &= places == 1;
        }
        self.misplaced = misplaced;
    }

    /// Brings what follows from the schema, the files and the memtables up to date; after every change.
    pub(crate) fn refresh(&mut self) {
        self.find_misplaced();
        for group in &self.groups {
            let kept = self.schema.keeps_in_memory(group.id);
            group.files.iter().for_each(|file| file.sstable.keep(kept));
        }
    }

    /// What families may have in groups that are not theirs.
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

    /// Whether the references take so much of the manifest that compactions are to make the bounds in them fewer.
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

    /// Adds all sources that may have keys of the row, as far as the filter wants anything of them: memtables that have
    /// some, at the first of them, and files that may have some, not yet positioned: by cursors of `before` where those are in
    /// the same files, and read with the same options. As with [`State::add_sources`], nothing is missed of what was visible
    /// before.
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
                            file.source(options)
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
    /// wants anything of them; without one all count. Who reads as of a sequence number that was visible before this call
    /// misses nothing of it: what is applied later, perhaps to a memtable that was empty and is left out, is newer.
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
                    .filter_map(|run| run::source_of(run, lower, upper, row, options, may_want)),
            );
            group.compaction_stats.read(sources.len() - before);
        }
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

    /// About how many that will be when merges have compressed what flushes did not.
    pub fn lasting_bytes(&self) -> u64 {
        let files = self.groups.iter().flat_map(|g| &g.files);
        files.map(|file| file.size() - file.compressible_bytes()).sum()
    }
}

/// Ranges of a group's foreign families beyond which neighbours become one, with families of the group in between: every tablet of
/// the table has them, and there may be thousands of families that are of one group and the other by turns.
const OTHER_FAMILY_RANGES_MAX: usize = 64;

/// Of each group, the families of the others, and where these are scattered some of its own.
fn other_families(schema: &TableSchema) -> Arc<[(GroupId, FamilyRanges)]> {
    if schema.groups.len() < 2 {
        return Arc::default();
    }
    let of_others = |group: GroupId| {
        let mut ranges = FamilyRanges::new();
        let mut goes_on = false;
        for (id, family) in &schema.families {
            let is_other = family.group != group;
            match ranges.last_mut().filter(|_| goes_on && is_other) {
                Some((_, last)) => *last = *id,
                None if is_other => ranges.push((*id, *id)),
                None => {}
            }
            goes_on = is_other;
        }
        let together = ranges.len().div_ceil(OTHER_FAMILY_RANGES_MAX).max(1);
        let ends = |some: &[(FamilyId, FamilyId)]| Some((some.first()?.0, some.last()?.1));
        ranges.chunks(together).filter_map(ends).collect::<FamilyRanges>()
    };
    schema
        .groups
        .iter()
        .map(|group| (group.id, of_others(group.id)))
        .collect()
}

/// The families of other groups that a file says it has entries of. One that cannot be opened says nothing, nor does one
/// that does not say which it has: it is of the time before there were several groups, and what left its group since is in
/// the catalog.
fn misplaced_families(
    file: &HeldFile,
    schema: &TableSchema,
    group: GroupId,
    other_families: &FamilyRanges,
) -> Vec<FamilyId> {
    if file.sstable.damage().of_everything().is_some() {
        return Vec::new();
    }
    let properties = file.sstable.properties();
    let common = other_families
        .iter()
        .filter_map(|(first, last)| properties.families_within(*first, *last));
    let known = common.flat_map(|(first, last)| schema.families.range(first..=last));
    let misplaced_families = known.filter(|(id, family)| family.group != group && properties.may_have_family(**id));
    misplaced_families.map(|(id, _)| *id).collect()
}

impl ValueFiles for State {
    fn value_file(&self, file: FileId) -> Option<Arc<ValueFile>> {
        let values = self.groups.iter().flat_map(|g| &g.files).flat_map(|f| f.values.iter());
        values.into_iter().find(|values| values.id() == file).cloned()
    }
}

/// What a read wants of a state. Takes no memory: most reads want one family, of which one group or two are asked.
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

    /// Whether a file may have something to say about one of the families: their entries, or markers of rows.
    fn has_file(&self, properties: &Properties) -> bool {
        let may_have = |family| properties.may_have_family(family);
        self.families()
            .is_none_or(|mut families| may_have(FamilyId(0)) || families.any(may_have))
    }
}

/// The least key above the largest that a file could have whose keys are unknown.
static BEHIND_UNKNOWN: OnceLock<Bytes> = OnceLock::new();

impl HeldFile {
    /// A cursor over the whole file.
    pub(crate) fn cursor(&self, options: ReadOptions) -> Cursor {
        let options = CursorOptions {
            fill_cache: options.fill_cache,
            readahead_bytes: options.readahead_bytes,
            single_row: options.single_row,
        };
        Cursor::new(self.sstable.clone(), options)
    }

    /// A source over the referenced part.
    pub fn source(&self, options: ReadOptions) -> Source {
        let cursor = self.cursor(options);
        Source::sstable(cursor, self.lower().cloned(), self.upper().cloned())
    }

    /// The lower bound of the referenced part, where the file has keys below it, or may have. Most files of a tablet that was split
    /// have bounds that cut nothing off, and who moves over such a file need not compare each key with them.
    pub(crate) fn lower(&self) -> Option<&Bytes> {
        // No key is empty, so those of a file that does not say which it has are kept.
        let cuts = |lower: &&Bytes| lower[..] > self.sstable.properties().smallest_key[..];
        self.reference.lower.as_ref().filter(cuts)
    }

    /// The same of the upper bound: the file has that key, or one behind it.
    pub(crate) fn upper(&self) -> Option<&Bytes> {
        let cuts = |upper: &&Bytes| !self.knows_keys() || upper[..] <= self.sstable.properties().largest_key[..];
        self.reference.upper.as_ref().filter(cuts)
    }

    /// About how many bytes are referenced.
    pub fn bytes(&self) -> u64 {
        self.reference.referenced
    }

    /// About how many of these compressing all blocks would save.
    pub fn compressible_bytes(&self) -> u64 {
        let reference = &self.reference;
        let part = u128::from(self.sstable.properties().compressible_bytes) * u128::from(reference.referenced);
        let bytes = u64::try_from(part / u128::from(reference.len.max(1))).unwrap_or(u64::MAX);
        bytes.min(reference.referenced)
    }

    /// The same with the values in value files.
    pub fn size(&self) -> u64 {
        self.reference.referenced + self.reference.value_bytes()
    }

    /// Whether merging it would meet damage that is known of.
    pub fn is_damaged(&self) -> bool {
        self.sstable.damage().of_cells().is_some()
    }

    /// Whether the sstable says where its keys begin and end, if perhaps nothing else. If not, its neighbours tell at best.
    pub(crate) fn knows_keys(&self) -> bool {
        // No key is empty, but what stands for an unknown one.
        !self.sstable.properties().smallest_key.is_empty()
    }

    /// Of the sstable and its value files those that the device could not read when they were opened.
    pub(crate) fn unopened(&self) -> impl Iterator<Item = StoredFile> {
        let sstable = self.sstable.is_unopened();
        let sstable = sstable.then(|| StoredFile::Sstable(self.reference.id()));
        let values = self.values.iter().filter(|file| file.is_unopened());
        sstable
            .into_iter()
            .chain(values.map(|file| StoredFile::Values(file.id())))
    }

    /// The reference cut down to keys in `[lower, upper)`; `None` when the file has no key there.
    pub async fn narrowed(&self, lower: Option<&Bytes>, upper: Option<&Bytes>) -> Result<Option<FileRef>> {
        let may = self.may_contain(lower.map_or(&[], |l| &l[..]), upper.map(|u| &u[..]));
        let cut = self.reference.narrowed(lower.cloned(), upper.cloned()).filter(|_| may);
        let Some(mut cut) = cut else { return Ok(None) };
        let begins_within = lower.is_none_or(|lower| lower[..] <= *self.first_key());
        let ends_within = upper.is_none_or(|upper| self.ends_before(upper));
        if begins_within && ends_within && self.knows_keys() {
            // All of it: most files of a large tier, of which a job takes a small part. Of one that has lost its index it
            // could not be said how large a part is.
            return Ok(Some(cut));
        }
        cut.referenced = self
            .sstable
            .approximate_bytes(cut.lower.as_deref(), cut.upper.as_deref())
            .await?;
        for link in &mut cut.values {
            // Which entries refer to which file is not known any nearer.
            link.bytes = share(link.bytes, cut.referenced, self.reference.referenced);
        }
        Ok(Some(cut))
    }

    /// Whether the referenced part may have keys in `[lower, upper)`.
    pub fn may_contain(&self, lower: &[u8], upper: Option<&[u8]>) -> bool {
        upper.is_none_or(|upper| self.first_key() < upper) && !self.ends_before(lower)
    }

    /// No key of the referenced part is below this.
    pub fn first_key(&self) -> &[u8] {
        let smallest = &self.sstable.properties().smallest_key[..];
        self.reference.lower.as_deref().map_or(smallest, |l| l.max(smallest))
    }

    /// The least key above all rows of the referenced part: the next file of the run has nothing of them.
    fn key_after(&self) -> Bytes {
        let largest = &self.sstable.properties().largest_key[..];
        let behind_unknown = || Bytes::from([largest, &[0]].concat());
        let after = match self.knows_keys() {
            true => Bytes::from(key::next_row_prefix(row_of(largest))),
            // That of all such files is the same, and longer than any key.
            false => BEHIND_UNKNOWN.get_or_init(behind_unknown).clone(),
        };
        let upper = self.reference.upper.clone();
        upper.map_or(after.clone(), |upper| upper.min(after))
    }

    /// Whether this may stand behind `last` in a list: in the same run only without overlap.
    fn may_follow(&self, last: &HeldFile) -> bool {
        !last.reference.continues_in(&self.reference) || last.ends_before(self.first_key())
    }

    /// Whether all keys of the referenced part are below `key`.
    pub fn ends_before(&self, key: &[u8]) -> bool {
        let cut = self.reference.upper.as_deref().is_some_and(|upper| upper <= key);
        cut || self.sstable.properties().largest_key[..] < *key
    }
}

/// The row that a key is of, encoded. A bound is one by itself.
fn row_of(key: &[u8]) -> &[u8] {
    let row = key::row_prefix_len(key).and_then(|len| key.get(..len));
    row.unwrap_or(key)
}

/// The part of `number` that falls to `part` of `whole`.
pub(crate) fn share(number: u64, part: u64, whole: u64) -> u64 {
    let share = u128::from(number) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(number).min(number)
}

/// Gives all references back.
pub(crate) fn release(held: &[HeldFile], files: &FileRegistry) {
    let stored = held.iter().flat_map(|file| file.reference.stored());
    stored.for_each(|file| files.release(file));
}

/// Files of one group opened at once; those of all tablets are bounded together, by the registry.
const HELD_CONCURRENTLY: usize = 32;

/// Opens references, those of `made` only when they are intact. On an error none is kept.
pub async fn hold(references: &[FileRef], files: &FileRegistry, made: &[StoredFile]) -> Result<Vec<HeldFile>> {
    // To the end also after a failure: what the others hold must be released.
    let holding: Vec<_> = references.iter().map(|it| hold_one(it, files, made)).collect();
    let outcomes: Vec<Result<HeldFile>> = futures::stream::iter(holding)
        .buffered(HELD_CONCURRENTLY)
        .collect()
        .await;
    let mut held: Vec<HeldFile> = Vec::with_capacity(references.len());
    let mut failure = None;
    for outcome in outcomes {
        match outcome {
            Ok(file) => held.push(file),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    bound_damaged(&mut held);
    let failure = failure.or_else(|| overlap(&held));
    match failure {
        None => Ok(held),
        Some(error) => {
            release(&held, files);
            Err(error)
        }
    }
}

async fn hold_one(reference: &FileRef, files: &FileRegistry, made: &[StoredFile]) -> Result<HeldFile> {
    let opening = |file: StoredFile| match made.contains(&file) {
        true => Opening::Intact,
        false => Opening::EvenDamaged,
    };
    let mut values = Vec::with_capacity(reference.values.len());
    let mut failure = None;
    for link in &reference.values {
        match files.acquire_values(link, opening(StoredFile::Values(link.id()))).await {
            Ok(file) => values.push(file),
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    let sstable = match failure {
        None => {
            files
                .acquire(reference, opening(StoredFile::Sstable(reference.id())))
                .await
        }
        Some(error) => Err(error),
    };
    match sstable {
        Ok(sstable) => Ok(HeldFile {
            reference: reference.clone(),
            sstable,
            values: values.into(),
        }),
        Err(error) => {
            values
                .iter()
                .for_each(|file| files.release(StoredFile::Values(file.id())));
            Err(error)
        }
    }
}

/// Of a file that cannot be opened the keys may be unknown, but in a run its neighbours' are not: it is cut down to the gap
/// between their rows, and what it says fails no further than that. Of several in a row each has what those before it leave of the
/// gap, down to nothing; whoever writes references goes by `maintenance::gaps` because of that. Like those of other files,
/// where they begin and where they end ascends: rows are found by that.
fn bound_damaged(held: &mut [HeldFile]) {
    // From the last on, so that the end of one is that of all behind it at most.
    for at in (1..held.len()).rev() {
        let Some(([.., file], [next, ..])) = held.split_at_mut_checked(at) else {
            return;
        };
        if file.knows_keys() || !file.reference.continues_in(&next.reference) {
            continue;
        }
        let end = match next.knows_keys() {
            true => Some(Bytes::copy_from_slice(row_of(next.first_key()))),
            false => next.reference.upper.clone(),
        };
        let upper = file.reference.upper.take();
        file.reference.upper = match (upper, end) {
            (Some(upper), Some(end)) => Some(upper.min(end)),
            (upper, end) => upper.or(end),
        };
    }
    for at in 1..held.len() {
        let Some(([.., last], [file, ..])) = held.split_at_mut_checked(at) else {
            return;
        };
        if !file.knows_keys() && last.reference.continues_in(&file.reference) {
            file.reference.lower = file.reference.lower.take().max(Some(last.key_after()));
        }
    }
}

/// The error for the first file that overlaps the one before it in the same run.
fn overlap(held: &[HeldFile]) -> Option<TabletError> {
    let overlaps = |pair: &&[HeldFile]| matches!(pair, [last, file] if !file.may_follow(last));
    let [last, file] = held.windows(2).find(overlaps)? else {
        return None;
    };
    Some(TabletError::Corruption {
        path: Arc::from(FileRef::path(file.reference.id())),
        detail: format!("overlaps {} in the same sorted run", last.reference.file),
    })
}
