//! Turns sources into one sorted run, for flushes and compactions.
//!
//! Bigtable §5.4. Whether an entry may be dropped depends on the older entries that the inputs are known to include:
//!
//! * Within the inputs a newer entry decides over older ones: overwritten versions and versions hidden by a tombstone
//!   are dropped.
//! * A tombstone is dropped only when no older entry can exist elsewhere (`bottom`): for the job's range of rows, the
//!   inputs include the oldest run of the group. The bottom thus depends on the range: a job over some rows is at the
//!   bottom of these, even if other rows have older runs. Ranges begin and end between rows. Under the by-timestamp rule
//!   a tombstone also hides later writes, until a major compaction by definition; a flush therefore writes it.
//! * Versions past the family's rule are dropped. A rule that counts versions counts at the bottom only. Elsewhere an
//!   older entry of the same version may lie below, which would come back when the newer versions are deleted. A rule
//!   about age counts elsewhere, too, where no older entry reaches that timestamp. Otherwise an overwritten value of the
//!   same version might lie below, which would come back when the rule is loosened, or the clock is corrected. An
//!   expired delete-version tombstone stays, unless at the bottom: the values it hides might otherwise come back when
//!   newer versions are deleted.
//! * A put that expires by itself is dropped like a version that its family's rule about age calls garbage.
//! * Families that keep deleted cells have rules of their own (`stream::retained`).
//! * Families that the schema no longer has are dropped.
//! * Sequence numbers say which of two entries of a version is newer, and which entries a tombstone is newer than. Where
//!   tombstones are dropped, one entry of each version is left, and all entries merged with it later are newer. Its
//!   number is set to 0, which takes no bytes in the file. Reads that began earlier do not see these files, and later
//!   ones see all entries in them. A tablet of several groups keeps the numbers: each group has a copy of the tombstones
//!   of rows, and where one has dropped its copy another may not have. (A group that is made later has no earlier
//!   entries.) Flushes keep them, too: their output is compacted soon, and until then the numbers are right in any order
//!   of the flushes of memtables.
//!
//! Readers are not harmed: each holds the files it began with.
//!
//! Cells stream from the merge to the block builder: `stream` decides, `output` writes. No cell causes an allocation or an
//! await; a megabyte of finished blocks does, and a value that goes to a value file (`values`). A value that is in one already
//! is passed on as a reference.

pub(crate) mod output;
mod stream;

use crate::error::Result;
use crate::files::FileRegistry;
use crate::manifest::{FileRef, StoredFile};
use crate::merging::{MergingIterator, Source, Step};
use crate::progress::Progress;
use crate::statistics::RowSample;
use bytes::Bytes;
pub use output::Carried;
use output::Output;
use std::sync::Arc;
use std::time::Duration;
use stele_env::Env;
use stele_sstable::WriteOptions;
use stele_types::key::row_prefix_len;
use stele_types::{FileId, TableSchema, Timestamp};
use stream::Stream;

/// One compaction to carry out.
pub struct Job {
    /// The schema to resolve by.
    pub schema: Arc<TableSchema>,
    /// Adjacent in age.
    pub sources: Vec<Source>,
    /// Keys below this are not the job's: an encoded row prefix.
    pub lower: Option<Bytes>,
    /// Keys from this on are not the job's: an encoded row prefix.
    pub upper: Option<Bytes>,
    /// No older entry of these rows exists outside the sources.
    pub bottom: bool,
    /// Elsewhere, no older entry outside the sources has a later timestamp than this.
    pub older_until: Timestamp,
    /// Tombstones may be dropped at the bottom under either delete rule: this is a major compaction, not a flush.
    pub major: bool,
    /// How to write; each file gets its own id.
    pub write: WriteOptions,
    /// Bytes after which a file is ended, at the end of a row.
    pub file_bytes: u64,
    /// Told of entries read.
    pub progress: Option<Arc<Progress>>,
    /// The value files that the sources refer to.
    pub carried: Carried,
}

/// The result of a job.
#[derive(Clone, Debug, Default)]
pub struct JobReport {
    /// The new files, in the order of their keys; none when nothing was left.
    pub files: Vec<FileRef>,
    /// The new value files, all of which these refer to.
    pub values: Vec<FileId>,
    /// Their bytes.
    pub value_bytes: u64,
    /// Entries read.
    pub entries_in: u64,
    /// Entries written.
    pub entries_out: u64,
    /// Some of the rows read.
    pub sample: RowSample,
}

impl JobReport {
    /// Bytes of the new files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.len).sum::<u64>() + self.value_bytes
    }

    /// The new files.
    pub fn made(&self) -> Vec<StoredFile> {
        let sstables = self.files.iter().map(|file| StoredFile::Sstable(file.id()));
        sstables
            .chain(self.values.iter().copied().map(StoredFile::Values))
            .collect()
    }
}

/// The longest time that a job occupies its thread: a request behind it can bear about as much, and a typical wait is half
/// of that.
const SLICE: Duration = Duration::from_millis(1);
/// Ten blocks of the usual size.
const READAHEAD_BYTES_MIN: usize = 64 << 10;
/// Entries between two checks of the clock: some 20 µs of small cells.
pub(crate) const ENTRIES_PER_PROBE: u64 = 128;
/// Probes after which the thread is given up even if no time has passed, as in a simulation.
const PROBES_PER_SLICE: u64 = 32;

/// The readahead of each of these sources when all share `bytes`. Not less than a few blocks: a merge of very many runs
/// takes more memory rather than read each block by itself.
fn readahead_of(sources: usize, bytes: usize) -> usize {
    (bytes / sources.max(1)).max(READAHEAD_BYTES_MIN)
}

/// Runs a job. On an error its files are discarded.
pub async fn run(job: Job, env: &Env, files: &FileRegistry) -> Result<JobReport> {
    // The rows of a table whose families all drop tombstones, and keep one entry of each version.
    let is_one_left = stream::drops_row_tombstones(&job.schema, job.bottom, job.major);
    let carried = job.carried.clone();
    // Another group may still have its copy of a row's tombstone.
    let is_alone = job.schema.groups.len() == 1;
    let forgets_sequences = is_one_left && is_alone && !job.sources.iter().any(Source::is_memtable);
    let output = Output::new(
        env,
        (files, job.schema.id),
        job.write.clone(),
        job.file_bytes,
        forgets_sequences,
        carried,
    );
    let mut stream = Stream::new(
        job.schema.clone(),
        env.wall_micros(),
        (job.bottom, job.older_until),
        job.major,
        output,
    );
    let mut report = JobReport::default();
    let done = match pump(job, files.job_readahead_bytes(), &mut stream, env, &mut report).await {
        Ok(()) => stream.output().finish().await,
        Err(error) => Err(error),
    };
    let written = stream.output().take();
    report.files = written.files;
    report.values = written.values;
    report.value_bytes = written.value_bytes;
    report.entries_out = written.entries;
    assert!(
        report.entries_out <= report.entries_in,
        "a job writes no more entries than it reads"
    );
    if let Err(error) = done {
        report.made().into_iter().for_each(|file| files.discard(file));
        return Err(error);
    }
    Ok(report)
}

/// Moves everything from the sources to the output.
async fn pump(
    mut job: Job,
    readahead_bytes: usize,
    stream: &mut Stream<'_>,
    env: &Env,
    report: &mut JobReport,
) -> Result<()> {
    debug_assert!(
        job.lower.is_none() || job.upper.is_none() || job.lower < job.upper,
        "the range of a job has rows"
    );
    let each = readahead_of(job.sources.len(), readahead_bytes);
    job.sources.iter_mut().for_each(|source| source.limit_readahead(each));
    let mut merge = MergingIterator::new(job.sources);
    let mut slice = Slice::new(env);
    let mut step = merge.seek(job.lower.as_deref().unwrap_or(&[]))?;
    loop {
        if step == Step::Pending {
            step = merge.load().await?;
            continue;
        }
        let key = merge.key();
        if step == Step::End || job.upper.as_deref().is_some_and(|upper| key >= upper) {
            stream.end_row()?;
            return Ok(());
        }
        let common = stream.common(key);
        if stream.is_new_row(common) {
            stream.end_row()?;
            if report.sample.wants_row() {
                report
                    .sample
                    .keep(key.get(..row_prefix_len(key).unwrap_or(0)).unwrap_or_default());
            }
            stream.output().ready_for_row().await?;
        }
        debug_assert!(
            job.lower.as_deref().is_none_or(|lower| key >= lower),
            "a job begins at its lower bound"
        );
        stream.push(&merge, common)?;
        report.entries_in += 1;
        if stream.output().wants_flush() {
            stream.output().flush().await?;
        }
        if report.entries_in.is_multiple_of(ENTRIES_PER_PROBE) {
            if let Some(progress) = &job.progress {
                progress.advance(ENTRIES_PER_PROBE);
            }
            slice.look(env).await;
        }
        step = merge.advance()?;
    }
}

/// Lets others run when its time is over.
pub(crate) struct Slice {
    began: Duration,
    probes: u64,
}

impl Slice {
    pub(crate) fn new(env: &Env) -> Self {
        Slice {
            began: env.now(),
            probes: 0,
        }
    }

    pub(crate) async fn look(&mut self, env: &Env) {
        self.probes += 1;
        if self.probes >= PROBES_PER_SLICE || env.now().saturating_sub(self.began) >= SLICE {
            env.yield_now().await;
            *self = Slice::new(env);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_share_what_may_be_read_ahead() {
        assert_eq!(readahead_of(0, 2 << 20), 2 << 20);
        assert_eq!(readahead_of(4, 2 << 20), 512 << 10);
        assert_eq!(readahead_of(1_000, 2 << 20), READAHEAD_BYTES_MIN);
    }
}
