//! Flush, compaction, migration, division, joining and handing over of tablets, and bulk loads into them.
//!
//! Each builds new files first, without any lock that a reader or writer needs; then commits a manifest; then publishes
//! the state. Two commits never overlap (`tablet::commit`). Each changes the newest manifest, so a flush or another
//! compaction that ends while a compaction runs is not undone by it.

mod compact;
mod context;
mod division;
mod gaps;
mod handing_over;
mod ingest;
mod joining;
mod migrate;
mod overlap;
mod sample;
mod unread;
mod values;

use compact::Shape;
pub use compact::{Compacted, MajorBounds, MajorEnd, SpaceLimit};
pub use ingest::{CellSource, Loading, NewCells, NewRuns};

use crate::compaction::{Carried, JobReport};
use crate::error::Result;
use crate::held::{HeldFile, ReadOptions, Times};
use crate::manifest::Manifest;
use crate::merging::Source;
use crate::progress::Progress;
use crate::state::{GroupState, State};
use crate::statistics::RowSample;
use crate::tablet::Tablet;
use context::CompactionContext;
use overlap::overlap_with;
use std::sync::Arc;
use stele_env::PlantedBug;
use stele_sstable::Sstable;
use stele_types::{FileId, GroupId, SeqNo, TableSchema, Timestamp};
use unread::free_when_unread;

/// Whether a flush has time to compress its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Urgency {
    None,
    Some,
}

/// Flushes are no longer left uncompressed when that makes the files of a group half as large again as they would be.
const LOOSE_PART: u64 = 2;
/// Bytes that it may cost in any case: a large tablet begins small.
const LOOSE_BYTES_MIN: u64 = 64 << 20;

/// Whether a group of this many bytes may have more uncompressed blocks, when compressing would save `compressible`.
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

    /// As [`Tablet::flush`], while writers wait for the memory or will: most blocks are not compressed, if space allows
    /// that. The next compaction of the files compresses them.
    pub async fn flush_urgently(&self) -> Result<bool> {
        self.flush_as(Urgency::Some).await
    }

    async fn flush_as(&self, urgency: Urgency) -> Result<bool> {
        let _flushing = self.flushing.lock().await;
        let _job = self.context.files.begin_job();
        if self.take_replayed() {
            // Records of a log need not come in the order of their numbers, and a manifest says up to which number files
            // hold everything: no replayed batch may be in files without all others.
            self.freeze();
        }
        // Memtables that a failed flush has set aside go first, by themselves. As long as they cannot be written, nothing
        // is added to them, or every attempt would leave one more memtable for reads to search.
        let again = self.flush_frozen(urgency).await?;
        self.freeze();
        Ok(self.flush_frozen(urgency).await? || again)
    }

    async fn flush_frozen(&self, urgency: Urgency) -> Result<bool> {
        let state = self.state();
        // Of replayed memtables the last need not have the newest entry.
        let Some(newest) = state.frozen.iter().map(|f| f.newest).max() else {
            return Ok(false);
        };
        assert!(
            newest <= self.visible(),
            "memtables are set aside with whole batches, which are visible"
        );
        self.settle().await?;
        let (start, schema) = (self.env().now(), self.schema());
        let memtables = state.frozen.iter().flat_map(|f| &f.memtables);
        let progress = Progress::of_flush(&self.context.memory, memtables.map(|(_, table)| table));
        let (mut made, mut added, mut bytes) = (Vec::new(), Vec::new(), 0);
        let mut samples = Vec::new();
        for group in &state.groups {
            match self.flush_group(&state, &schema, group.id, urgency, &progress).await {
                Ok(report) => {
                    debug_assert!(
                        report
                            .files
                            .iter()
                            .all(|file| file.lower.is_none() && file.upper.is_none()),
                        "new files are referenced as a whole"
                    );
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
        // Not the memtables themselves, whose memory is to be freed when the last reader is done with them.
        let flushed: Vec<SeqNo> = state.frozen.iter().map(|frozen| frozen.newest).collect();
        assert!(!flushed.is_empty(), "a flush has memtables to write");
        let tokens = match self.env().planted(PlantedBug::ForgetFlushedTokens) {
            true => None,
            false => self
                .tokens()
                .stored(newest.max(self.flushed_through()), self.wall_micros()),
        };
        let change = move |manifest: &mut Manifest| {
            manifest.flushed_through = manifest.flushed_through.max(newest.0);
            manifest.request_tokens = tokens;
            for (group, file) in added {
                let mut files = manifest.files(group).to_vec();
                files.push(file);
                manifest.set_files(group, files);
            }
        };
        let publish = move |state: &mut State| {
            let oldest = state.frozen.drain(..flushed.len());
            assert!(
                oldest.map(|frozen| frozen.newest).eq(flushed),
                "a flush removes the memtables that it has written, and no others"
            );
        };
        self.commit((&made, Some(&schema)), change, publish).await?;
        self.set_flushed(newest);
        metrics.flushes.inc();
        metrics.flush_seconds.observe((self.env().now() - start).as_secs_f64());
        let unread = state.frozen.clone();
        drop((state, progress));
        free_when_unread(self.env(), unread);
        // Writers may be waiting for that memory, and this may wait for storage.
        self.learn_of_flush(&samples).await;
        self.note_debt();
        Ok(true)
    }

    /// Adds the overlap of the rows of a flush to the statistics of their groups. The first file of each group is given.
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

    /// Inherits the statistics of the tablet that this one is a half of. Without statistics every upper run counts as
    /// overwritten rows, so both halves would be rewritten after every split, even if nothing could be gained.
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

    /// Reads a file of a group that is to be in memory, as far as the cache has capacity. Returns whether there was one.
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
        // Older entries can only be in files. A compaction that runs meanwhile makes no files where there were none, and
        // files that it brings from a group that a family has left were complete there.
        let is_lowest = state.group(group).is_none_or(|g| g.files.is_empty()) && !state.is_above_misplaced(group);
        let bottom = is_lowest || self.env().planted(PlantedBug::ForgetDeletions);
        let of_group = state.group(group);
        let reach = of_group.map_or(Timestamp::MAX, |group| state.newest_before(group, group.files.len()));
        let shape = Shape {
            bottom,
            major: false,
            older_until: reach,
            loose: urgency == Urgency::Some && self.may_be_loose(of_group),
        };
        let with = (Carried::default(), Some(progress.clone()));
        CompactionContext::of(self)
            .run_job(group, schema.clone(), sources, None, shape, with)
            .await
    }

    /// Whether a file of the group may be written without compressing it: where bytes cost no requests, and while those
    /// that this has cost so far are few.
    fn may_be_loose(&self, group: Option<&GroupState>) -> bool {
        let files = group.map_or(&[][..], |group| &group.files);
        let bytes = files.iter().map(HeldFile::bytes).sum();
        let compressible = files.iter().map(HeldFile::compressible_bytes).sum();
        is_little(compressible, bytes) && self.context.files.storage().keeps_appends()
    }
}

#[cfg(test)]
mod tests;
