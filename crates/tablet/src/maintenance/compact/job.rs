//! One job: its options, and how its files replace the files it has read.

use super::plan::Plan;
use crate::compaction::{self, Carried, Job, JobReport};
use crate::error::Result;
use crate::held::HeldFile;
use crate::maintenance::context::CompactionContext;
use crate::manifest::{FileRef, Manifest};
use crate::merging::Source;
use crate::progress::Progress;
use crate::state::GroupState;
use crate::summary::cells_of;
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;
use stele_env::Env;
use stele_sstable::WriteOptions;
use stele_types::{FileId, GroupId, GroupOptions, TableSchema, Timestamp};

/// Bytes after which a file above the bottom level is ended, where those of the bottom level are larger. A compaction
/// into the bottom level frees an upper file once it has read all of it. So the space of a flush of 100 MB is freed a
/// few parts at a time instead of at the end.
const UPPER_RUN_FILE_BYTES: u64 = 16 << 20;

/// One block in this many of an urgent flush is compressed nevertheless, to estimate the saving: a thirtieth of the time,
/// and exact within a few percent for a file of some megabytes.
const LOOSE_ONE_IN: u32 = 32;

/// The properties of a job's output.
pub(in crate::maintenance) struct Shape {
    /// As in [`Job`].
    pub(in crate::maintenance) bottom: bool,
    /// As in [`Job`].
    pub(in crate::maintenance) major: bool,
    /// As in [`Job`].
    pub(in crate::maintenance) older_until: Timestamp,
    /// Most blocks are stored uncompressed, even if the group asks for compression.
    pub(in crate::maintenance) loose: bool,
}

impl CompactionContext<'_> {
    /// Bytes at which a file of the group is ended.
    pub(super) fn file_bytes(&self, group: GroupId) -> u64 {
        let own = self.schema().group_options(group).file_bytes;
        own.unwrap_or_else(|| self.files.file_bytes())
    }

    /// Runs a job over `sources` up to `upper`, into files of `group`, of the families of `schema`.
    pub(in crate::maintenance) async fn run_job(
        &self,
        group: GroupId,
        schema: Arc<TableSchema>,
        sources: Vec<Source>,
        upper: Option<Bytes>,
        shape: Shape,
        (carried, progress): (Carried, Option<Arc<Progress>>),
    ) -> Result<JobReport> {
        let Shape {
            bottom,
            major,
            older_until,
            loose,
        } = shape;
        let options = schema.group_options(group);
        let mut write = write_options(&options, self.env);
        if loose {
            // A dictionary would be made of blocks that are stored without it.
            (write.compressed_one_in, write.dictionary_bytes) = (LOOSE_ONE_IN, 0);
        }
        let file_bytes = options.file_bytes.unwrap_or_else(|| self.files.file_bytes());
        // A restore still writes the log into an unfinished table. Its deletes may bring older versions to light, and its
        // puts may be hidden by tombstones that have nothing to hide yet. So nothing is dropped before it is complete.
        let (drops, older_until) = match schema.is_unfinished() {
            true => (false, Timestamp::MAX),
            false => (bottom, older_until),
        };
        let job = Job {
            schema,
            sources,
            lower: None,
            upper,
            bottom: drops,
            older_until,
            major,
            write,
            file_bytes: match bottom {
                true => file_bytes,
                false => file_bytes.min(UPPER_RUN_FILE_BYTES),
            },
            progress,
            carried,
        };
        let mut report = compaction::run(job, self.env, self.files).await?;
        debug_assert!(
            report.files.iter().all(|file| file.referenced == file.len),
            "new files are referenced as a whole"
        );
        number_run(&mut report.files, 0);
        Ok(report)
    }
}

/// How the files of a group with these options are written.
pub(in crate::maintenance) fn write_options(options: &GroupOptions, env: &Env) -> WriteOptions {
    // The writer gives every file its own id.
    let mut write = WriteOptions::new(FileId(0));
    write.created_micros = env.wall_micros();
    write.compression = options.compression;
    write.zstd_level = options.zstd_level;
    write.dictionary_bytes = options.dictionary_bytes as usize;
    write.block_bytes = options.block_bytes.map_or(write.block_bytes, |bytes| bytes as usize);
    write.filter_bits_per_row = options.filter_bits_per_row.unwrap_or(write.filter_bits_per_row);
    write
}

/// Adds the result of a job to the statistics of the group.
pub(super) fn learn(group: &GroupState, plan: &Plan, left: &[FileRef], report: &JobReport) {
    let compaction_stats = &group.compaction_stats;
    compaction_stats.forget_reads();
    if plan.bottom && !plan.cut.is_empty() {
        let upper_runs = group.files.get(plan.cut.clone()).unwrap_or_default();
        let overlapping =
            |file: &FileRef| cells_of(file) * compaction_stats.known_overlap(file.id()).unwrap_or(100) / 100;
        let moved = |cells: &dyn Fn(&FileRef) -> u64| {
            let before: u64 = upper_runs.iter().map(|file| cells(&file.reference)).sum();
            before.saturating_sub(left.iter().map(cells).sum())
        };
        let dropped = report.entries_in.saturating_sub(report.entries_out);
        compaction_stats.compacted(moved(&overlapping), moved(&cells_of), dropped);
    }
    // The last part of a merge, or one of everything.
    if plan.bottom && left.is_empty() && (plan.major || !plan.cut.is_empty()) {
        compaction_stats.gathered();
    }
}

/// The change of a manifest that puts a job's output into place. Since the job began flushes have appended to the list, and
/// other jobs have replaced files before or behind the claimed ones.
pub(super) fn replacement(
    group: GroupId,
    files: &[HeldFile],
    (inputs, cut): (Range<usize>, Range<usize>),
    output: Vec<FileRef>,
    left: Vec<FileRef>,
    bottom: bool,
) -> impl FnOnce(&mut Manifest) {
    let read = if bottom { 0..cut.end } else { inputs.clone() };
    let expected = files.get(read.clone()).unwrap_or_default().iter();
    let expected: Vec<FileRef> = expected.map(|file| file.reference.clone()).collect();
    move |manifest| {
        let mut now = manifest.files(group).to_vec();
        let at = match bottom {
            true => now.starts_with(&expected).then_some(0),
            false => position_of(&expected, &now),
        };
        let Some(at) = at else { return };
        let moved = |place: Range<usize>| place.start - read.start + at..place.end - read.start + at;
        let (inputs, cut) = (moved(inputs), moved(cut));
        debug_assert!(
            inputs.end <= cut.start && cut.end <= now.len(),
            "tiers lie behind the files of the bottom"
        );
        let last_of_bottom = cut.start - inputs.len() + output.len();
        now.splice(cut, left);
        now.splice(inputs, output);
        if bottom && let Some(run) = now.get_mut(..last_of_bottom) {
            let number = run.iter().map(|file| file.run).find(|number| *number != 0);
            number_run(run, number.unwrap_or(0));
        }
        manifest.set_files(group, now);
    }
}

/// Where the references are, one behind the other; no reference is twice in a list.
fn position_of(wanted: &[FileRef], list: &[FileRef]) -> Option<usize> {
    let at = list.iter().position(|file| Some(file) == wanted.first())?;
    list.get(at..)?.starts_with(wanted).then_some(at)
}

/// Makes the references one run under `number`, or a number of their own for 0; a single one needs none.
pub(in crate::maintenance) fn number_run(run: &mut [FileRef], number: u64) {
    let number = match run {
        [] | [_] => 0,
        [first, ..] if number == 0 => first.file,
        _ => number,
    };
    debug_assert!(number == 0 || run.len() > 1, "a run of one file has no number");
    run.iter_mut().for_each(|file| file.run = number);
}

/// About how many entries a job reads.
pub(super) fn cells_in<'a>(files: &[HeldFile], plan: &Plan, left: impl Iterator<Item = &'a FileRef>) -> u64 {
    let read = [plan.inputs.clone(), plan.cut.clone()].into_iter();
    let read = read.filter_map(|range| files.get(range)).flatten();
    let before: u64 = read.map(|file| cells_of(&file.reference)).sum();
    before.saturating_sub(left.map(cells_of).sum())
}
