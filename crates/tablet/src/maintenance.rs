//! Flush, compaction, division of one tablet.
//!
//! Each builds new files first, without any lock that a reader or writer needs; then commits a manifest; then publishes
//! the state. Two commits never overlap ([`Committer`]), and each changes what the manifest has by then, so a flush or another
//! compaction that ends while a compaction runs is not undone by it.

mod compact;
mod gaps;
mod migrate;
mod opened;
mod overlap;
mod sample;
mod unread;
mod values;

pub(crate) use compact::Claims;
pub use compact::{Compacted, SpaceLimit};
use compact::{Shape, number_run};

use crate::compaction::{Carried, JobReport};
use crate::error::{Result, TabletError};
use crate::files::FileRegistry;
use crate::held::{HeldFile, ReadOptions, Times, hold, release};
use crate::manifest::{self, FileRef, Manifest, ManifestLog, StoredFile};
use crate::merging::Source;
use crate::progress::Progress;
use crate::state::{GroupState, State};
use crate::statistics::RowSample;
use crate::tablet::{Stopped, Tablet};
use bytes::Bytes;
use gaps::placed;
use overlap::overlap_with;
use prost::Message as _;
use std::collections::BTreeSet;
use std::sync::Arc;
use stele_env::PlantedBug;
use stele_sstable::Sstable;
use stele_storage::StorageError;
use stele_types::key;
use stele_types::{FileId, GroupId, RowRange, SeqNo, TableSchema, TabletId, Timestamp};

/// Writes the tablet's manifests.
pub struct Committer {
    log: ManifestLog,
    /// The newest committed version.
    manifest: Manifest,
    /// Files of commits whose outcome is unknown: the medium may hold a manifest that refers to them, until a later one
    /// is durable.
    limbo: Vec<StoredFile>,
    /// The tablet is no more: whatever still runs for it must not take references again.
    released: bool,
}

impl Committer {
    pub(crate) fn new(log: ManifestLog, manifest: Manifest) -> Self {
        Committer {
            log,
            manifest,
            limbo: Vec::new(),
            released: false,
        }
    }
}

/// Whether a flush has time to compress what it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Urgency {
    None,
    Some,
}

/// Flushes are no longer left uncompressed when that makes the files of a group half as large again as they would be.
const LOOSE_PART: u64 = 2;
/// Bytes that it may cost in any case: a large tablet begins small.
const LOOSE_BYTES_MIN: u64 = 64 << 20;

/// Whether a group of so many bytes can do with more that are not compressed, when compressing would save `compressible`.
fn is_little(compressible: u64, bytes: u64) -> bool {
    compressible < (bytes.saturating_sub(compressible) / LOOSE_PART).max(LOOSE_BYTES_MIN)
}

/// How compactions and flushes read: every block once.
const READ: ReadOptions = ReadOptions {
    fill_cache: false,
    readahead_bytes: 1 << 20,
    single_row: false,
    times: Times::ALL,
};

impl Tablet {
    /// Writes everything applied so far to files; whether there was anything.
    pub async fn flush(&self) -> Result<bool> {
        self.flush_as(Urgency::None).await
    }

    /// As [`Tablet::flush`], while writers wait for the memory or will: most of it is not compressed, if there is room for
    /// that. The merge that reads the files next makes up for it.
    pub async fn flush_urgently(&self) -> Result<bool> {
        self.flush_as(Urgency::Some).await
    }

    async fn flush_as(&self, urgency: Urgency) -> Result<bool> {
        let _flushing = self.flushing.lock().await;
        if self.take_replayed() {
            // Records of a log need not come in the order of their numbers, and a manifest says up to which number files hold
            // everything: no part of what was replayed may be in files without the rest.
            self.freeze();
        }
        // What a flush that failed has set aside goes first, by itself: as long as it cannot go, nothing is added to it, or
        // every attempt would leave one more memtable for reads to look into.
        let again = self.flush_frozen(urgency).await?;
        self.freeze();
        Ok(self.flush_frozen(urgency).await? || again)
    }

    async fn flush_frozen(&self, urgency: Urgency) -> Result<bool> {
        let state = self.state();
        // Of what was replayed the last need not have the newest.
        let Some(newest) = state.frozen.iter().map(|f| f.newest).max() else {
            return Ok(false);
        };
        self.settle().await?;
        let (start, schema) = (self.env().now(), self.schema());
        let memtables = state.frozen.iter().flat_map(|f| &f.memtables);
        let progress = Progress::of_flush(&self.context.memory, memtables.map(|(_, table)| table));
        let (mut made, mut added, mut bytes) = (Vec::new(), Vec::new(), 0);
        let mut samples = Vec::new();
        for group in &state.groups {
            match self.flush_group(&state, &schema, group.id, urgency, &progress).await {
                Ok(report) => {
                    made.extend(report.made());
                    bytes += report.bytes();
                    if let Some(first) = report.files.first() {
                        samples.push((group.id, first.id(), report.sample));
                    }
                    added.extend(report.files.into_iter().map(|file| (group.id, file)));
                }
                Err(error) => {
                    made.into_iter().for_each(|file| self.context.files.discard(file));
                    return Err(error);
                }
            }
        }
        let metrics = &self.context.metrics;
        metrics.flush_bytes.inc_by(bytes);
        metrics
            .moved
            .flushed(state.frozen_bytes(), added.iter().map(|(_, file)| file.len).sum());
        let flushed = state.frozen.len();
        let change = move |manifest: &mut Manifest| {
            manifest.flushed_through = manifest.flushed_through.max(newest.0);
            for (group, file) in added {
                let mut files = manifest.files(group).to_vec();
                files.push(file);
                manifest.set_files(group, files);
            }
        };
        let publish = |state: &mut State| drop(state.frozen.drain(..flushed));
        self.commit((&made, Some(&schema)), change, publish).await?;
        self.set_flushed(newest);
        metrics.flushes.inc();
        metrics.flush_seconds.observe((self.env().now() - start).as_secs_f64());
        let unread = state.frozen.clone();
        drop((state, progress));
        self.free_when_unread(unread);
        // Writers may be waiting for that memory, and this may wait for a medium.
        self.learn_of_flush(&samples).await;
        self.note_debt();
        Ok(true)
    }

    /// Takes what the rows of a flush say to the experience with their groups. The first file of each group is given.
    async fn learn_of_flush(&self, flushed: &[(GroupId, FileId, RowSample)]) {
        let now = self.env().now();
        // If it is not there any more, it is merged already.
        let place = |group: &GroupState, first| group.files.iter().position(|file| file.reference.id() == first);
        let overlaps = flushed.iter().map(|(id, first, sample)| async move {
            let group = self.state().group(*id)?.of_files(&self.context.memory);
            group.compaction_stats.flushed(now);
            let at = place(&group, *first)?;
            Some(overlap_with(self.env(), &group, at, sample.rows()).await)
        });
        let overlaps = futures::future::join_all(overlaps).await;
        let state = self.state();
        for ((id, first, _), percent) in flushed.iter().zip(overlaps) {
            let group = state.group(*id).and_then(|group| Some((group, place(group, *first)?)));
            if let (Some((group, at)), Some(percent)) = (group, percent) {
                let made = group.files.iter().skip(at).map(|file| file.reference.id());
                group.compaction_stats.note_overlap(&group.file_ids(), made, percent);
            }
        }
    }

    /// Takes over what was learnt of the tablet that this one is a half of. Who knows nothing takes every tier to be overwritten
    /// rows; so both halves would be rewritten after every split, whatever was to be gained.
    pub fn learn_from(&self, whole: &Tablet) {
        let known = whole.state();
        for group in &self.state().groups {
            if let Some(known) = known.group(group.id) {
                group.compaction_stats.take_over(&known.compaction_stats);
            }
        }
        self.note_debt();
    }

    /// The sstables of the tablet, and whether each is of the oldest run of its group, which has most rows that are read: there a
    /// filter denies few.
    pub fn sstables(&self) -> Vec<(Arc<Sstable>, bool)> {
        let state = self.state();
        let runs = state.groups.iter().flat_map(|group| group.runs().enumerate());
        let files = runs.flat_map(|(at, run)| run.iter().map(move |file| (file, at == 0)));
        files
            .map(|(file, is_bottom)| (Arc::clone(&file.sstable), is_bottom))
            .collect()
    }

    /// Whether files of a group that is to be in memory wait to be read.
    pub fn wants_warming(&self) -> bool {
        let state = self.state();
        let mut files = state.groups.iter().flat_map(|group| &group.files);
        files.any(|file| file.sstable.wants_warming())
    }

    /// Reads a file of a group that is to be in memory, as far as the cache has room; whether there was one.
    pub async fn warm_next(&self) -> Result<bool> {
        let state = self.state();
        let mut files = state.groups.iter().flat_map(|group| &group.files);
        let Some(file) = files.find(|file| file.sstable.wants_warming()) else {
            return Ok(false);
        };
        file.sstable.warm().await?;
        Ok(true)
    }

    async fn flush_group(
        &self,
        state: &State,
        schema: &Arc<TableSchema>,
        group: GroupId,
        urgency: Urgency,
        progress: &Arc<Progress>,
    ) -> Result<JobReport> {
        let mut tables: Vec<_> = state
            .frozen
            .iter()
            .flat_map(|f| {
                f.memtables
                    .iter()
                    .filter(|(id, _)| *id == group)
                    .map(|(_, table)| table.clone())
            })
            .collect();
        if self.env().planted(PlantedBug::DropMemtable) && self.env().random_below(10) == 0 {
            tables.pop();
        }
        if tables.is_empty() {
            return Ok(JobReport::default());
        }
        let sources = tables.into_iter().map(Source::memtable).collect();
        // Older entries can only be in files. A compaction that runs meanwhile makes none of nothing, and what it brings from
        // a group that a family has left was complete there.
        let bottom = state.group(group).is_none_or(|g| g.files.is_empty()) && !state.is_above_misplaced(group);
        let of_group = state.group(group);
        let reach = of_group.map_or(Timestamp::MAX, |group| state.newest_before(group, group.files.len()));
        let shape = Shape {
            bottom,
            major: false,
            older_until: reach,
            loose: urgency == Urgency::Some && self.may_be_loose(of_group),
        };
        let with = (Carried::default(), Some(progress.clone()));
        self.run_job(group, schema.clone(), sources, None, shape, with).await
    }

    /// Whether a file of the group may be written without compressing it: where bytes cost no requests, and while those
    /// that this has cost so far are few.
    fn may_be_loose(&self, group: Option<&GroupState>) -> bool {
        let files = group.map_or(&[][..], |group| &group.files);
        let bytes = files.iter().map(HeldFile::bytes).sum();
        let compressible = files.iter().map(HeldFile::compressible_bytes).sum();
        is_little(compressible, bytes) && self.context.files.storage().keeps_appends()
    }

    /// Commits a changed manifest and publishes the state it describes. `change` edits the manifest, `publish` whatever
    /// of the state the manifest does not describe. `made` are the new files, with the schema that they were made under: those
    /// that no manifest can come to refer to are discarded.
    async fn commit(
        &self,
        (made, made_under): (&[StoredFile], Option<&Arc<TableSchema>>),
        change: impl FnOnce(&mut Manifest),
        publish: impl FnOnce(&mut State),
    ) -> Result<()> {
        let mut committer = self.committer.lock().await;
        let files = &self.context.files;
        if committer.released {
            made.iter().for_each(|file| files.discard(*file));
            return Err(TabletError::Closed { tablet: self.id() });
        }
        let Committer {
            log, manifest, limbo, ..
        } = &mut *committer;
        let mut next = manifest.clone();
        change(&mut next);
        next.written_micros = self.wall_micros();
        let used: BTreeSet<StoredFile> = next.stored().collect();
        let unused = |file: &&StoredFile| !used.contains(file);
        made.iter().filter(unused).for_each(|file| files.discard(*file));
        let held = match hold_all(&next, files, made).await {
            Ok(held) => held,
            Err(error) => {
                made.iter().for_each(|file| files.discard(*file));
                return Err(error);
            }
        };
        if let Err(error) = log.commit(&next).await {
            let references = next.stored();
            match &error {
                TabletError::Storage(StorageError::NoSpace { .. }) | TabletError::ManifestTooLarge { .. } => {
                    references.for_each(|file| files.release(file));
                }
                // The new manifest may be on the medium: what it refers to must stay until a later one replaces it.
                _ => limbo.extend(references),
            }
            return Err(self.not_committed(error));
        }
        self.update_state(made_under, |state| {
            set_held(state, held);
            publish(state);
        });
        let replaced = std::mem::replace(manifest, next);
        let released = replaced.stored().chain(limbo.drain(..));
        released.for_each(|file| files.release(file));
        Ok(())
    }

    /// After a commit of unknown outcome: commits the manifest as it was, which decides. Before that no new file is
    /// made, or a medium that fails for long would fill up with files that must be kept.
    async fn settle(&self) -> Result<()> {
        let mut committer = self.committer.lock().await;
        let Committer {
            log,
            manifest,
            limbo,
            released,
        } = &mut *committer;
        if limbo.is_empty() || *released {
            return Ok(());
        }
        log.commit(manifest).await.map_err(|error| self.not_committed(error))?;
        limbo.drain(..).for_each(|file| self.context.files.release(file));
        Ok(())
    }

    fn not_committed(&self, error: TabletError) -> TabletError {
        if matches!(error, TabletError::Fenced { .. }) {
            self.close();
        }
        error
    }

    /// A row that divides the tablet into two halves of about equal size; `None` when there is none.
    pub async fn split_row(&self) -> Result<Option<Bytes>> {
        let state = self.state();
        let Some(run) = largest_run(&state) else {
            return Ok(None);
        };
        let half = run.iter().map(HeldFile::size).sum::<u64>() / 2;
        let (mut before, mut at) = (0, 0);
        while let Some(file) = run.get(at)
            && before + file.size() < half
        {
            before += file.size();
            at += 1;
        }
        let Some(file) = run.get(at) else { return Ok(None) };
        // Of a file that reaches across the middle the nearest of its ends and of its own middle divides best.
        let off = |place: u64| place.abs_diff(half);
        let middle = off(before + file.size() / 2);
        let mut ends = [(at, before), (at + 1, before + file.size())];
        ends.sort_by_key(|(_, place)| off(*place));
        let row_at = |end: usize| {
            let next = run.get(end).filter(|_| end > 0);
            next.and_then(|next| decoded_row(next.first_key()))
        };
        let [(nearest, place), _] = ends;
        let row = match row_at(nearest).filter(|_| off(place) <= middle) {
            Some(row) => Some(row),
            None => {
                let (lower, upper) = (file.reference.lower.as_deref(), file.reference.upper.as_deref());
                let prefix = file.sstable.split_row(lower, upper).await?;
                prefix.and_then(|prefix| decoded_row(&prefix))
            }
        };
        // A file of a single row has no middle: then beside it, however small the other half will be.
        let concurrent = ends.into_iter().filter_map(|(end, _)| row_at(end));
        let divides = |row: &Bytes| self.range().contains(row) && *row != self.range().start;
        Ok(row.into_iter().chain(concurrent).find(divides))
    }

    /// Manifests for two tablets that together are this one, divided before `row`. The caller has stopped writes and
    /// flushed, and makes the tablets.
    pub async fn divide(&self, row: &Bytes, left: TabletId, right: TabletId) -> Result<(Manifest, Manifest)> {
        let range = self.range();
        let at = Bytes::from(key::row_prefix(row));
        let below = RowRange {
            start: range.start.clone(),
            end: Some(row.clone()),
        };
        let above = RowRange {
            start: row.clone(),
            end: range.end.clone(),
        };
        let left = self.part(left, below, None, Some(&at)).await?;
        let right = self.part(right, above, Some(&at), None).await?;
        Ok((left, right))
    }

    /// A manifest for a tablet over the part of this one's files between two keys.
    async fn part(
        &self,
        tablet: TabletId,
        range: RowRange,
        lower: Option<&Bytes>,
        upper: Option<&Bytes>,
    ) -> Result<Manifest> {
        let mut part = self.manifest().await;
        part.tablet = tablet.0;
        (part.start, part.end) = (range.start, range.end);
        part.flushed_through = self.next_sequence().0;
        for group in &self.state().groups {
            let mut files = Vec::new();
            for file in placed(&group.files, part.files(group.id)) {
                files.extend(file.narrowed(lower, upper).await?);
            }
            part.set_files(group.id, files);
        }
        part.keep_share_of(&self.manifest().await);
        Ok(part)
    }

    /// Drops all rows of a range by cutting the references to files around it. The caller has stopped compactions first
    /// ([`Tablet::stop_compactions`] of this tablet), and writes then: one that runs takes seconds.
    ///
    /// A write that was refused before may be in the log nevertheless, behind all that files hold, and no marker would hide what
    /// a recovery makes of it. So everything that has a sequence number by now counts as flushed, as it does for the halves of a
    /// split.
    pub async fn drop_rows(&self, range: &RowRange, _stopped: &Stopped<'_>) -> Result<()> {
        self.flush().await?;
        let _flushing = self.flushing.lock().await;
        let lower = Bytes::from(key::row_prefix(&range.start));
        let upper = range.end.as_ref().map(|end| Bytes::from(key::row_prefix(end)));
        let (mut left, mut before, mut after) = (Vec::new(), 0, 0);
        let stored = self.manifest().await;
        for group in &self.state().groups {
            let mut files: Vec<FileRef> = Vec::new();
            for file in placed(&group.files, stored.files(group.id)) {
                before += file.stored().encoded_len();
                if !file.may_contain(&lower, upper.as_deref()) {
                    // As it is: with a bound it would look like a tier of which a merge into the bottom has taken the front.
                    files.push(file.stored().clone());
                    continue;
                }
                let mut parts: Vec<FileRef> = Vec::with_capacity(2);
                parts.extend(file.narrowed(None, Some(&lower)).await?);
                if let Some(upper) = &upper {
                    parts.extend(file.narrowed(Some(upper), None).await?);
                }
                if file.stored().run == 0 {
                    // Of one age: as two runs they would be read and merged as if one were above the other.
                    number_run(&mut parts, 0);
                }
                files.extend(parts);
            }
            after += files.iter().map(FileRef::encoded_len).sum::<usize>();
            left.push((group.id, files));
        }
        manifest::check_cut(self.id(), before, after)?;
        let through = SeqNo(self.next_sequence().0.saturating_sub(1));
        let change = |manifest: &mut Manifest| {
            manifest.flushed_through = manifest.flushed_through.max(through.0);
            left.into_iter()
                .for_each(|(group, files)| manifest.set_files(group, files));
        };
        self.commit((&[], None), change, |_| {}).await?;
        self.set_flushed(through);
        Ok(())
    }

    /// Gives up all files; for a tablet that is no more, after the catalog has forgotten it.
    pub async fn release_files(&self) {
        let mut committer = self.committer.lock().await;
        let Committer {
            manifest,
            limbo,
            released,
            ..
        } = &mut *committer;
        *released = true;
        let files: Vec<StoredFile> = manifest.stored().collect();
        manifest.groups.clear();
        files
            .into_iter()
            .chain(limbo.drain(..))
            .for_each(|file| self.context.files.release(file));
    }

    /// The newest committed manifest.
    pub async fn manifest(&self) -> Manifest {
        self.committer.lock().await.manifest.clone()
    }

    /// Fails when a listing of the tablet's manifests shows that another owner has it; what is superseded otherwise, to be
    /// discarded by who still is the owner.
    pub async fn superseded(&self, listed: &[u64]) -> Result<Vec<String>> {
        let mut committer = self.committer.lock().await;
        committer.log.check_newest(listed)?;
        Ok(committer.log.take_stale())
    }
}

/// The run that holds the most bytes.
fn largest_run(state: &State) -> Option<&[HeldFile]> {
    let runs = state.groups.iter().flat_map(|group| group.runs());
    runs.max_by_key(|run| run.iter().map(HeldFile::size).sum::<u64>())
}

/// The row a key or a row's encoded prefix begins with.
fn decoded_row(key: &[u8]) -> Option<Bytes> {
    let prefix = key.get(..key::row_prefix_len(key)?)?;
    key::decode_row(prefix).map(|row| Bytes::copy_from_slice(&row))
}

/// Has the groups consist of these files, and of no others.
fn set_held(state: &mut State, held: Vec<(GroupId, Vec<HeldFile>)>) {
    for group in &mut state.groups {
        group.set_files(Vec::new());
    }
    for (id, files) in held {
        if let Some(group) = state.groups.iter_mut().find(|g| g.id == id) {
            group.set_files(files);
        }
    }
}

/// Opens all files of a manifest, by group. On an error no reference is kept.
async fn hold_all(
    manifest: &Manifest,
    files: &FileRegistry,
    made: &[StoredFile],
) -> Result<Vec<(GroupId, Vec<HeldFile>)>> {
    let mut held: Vec<(GroupId, Vec<HeldFile>)> = Vec::new();
    for group in &manifest.groups {
        match hold(&group.files, files, made).await {
            Ok(files) => held.push((GroupId(group.group), files)),
            Err(error) => {
                held.iter().for_each(|(_, held)| release(held, files));
                return Err(error);
            }
        }
    }
    Ok(held)
}

#[cfg(test)]
mod tests;
