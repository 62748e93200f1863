//! Adds runs from outside: a bulk load.
//!
//! Sorted cells of some sources become files of the tablet. [`Tablet::begin_load`] waits for its turn.
//! [`Tablet::write_runs`] writes the files while the tablet is read and written as usual. [`Tablet::add_runs`] adds them to the
//! manifest, all in one commit.
//!
//! The runs are newer than everything before and older than everything after, so they are appended to the list of files like
//! a flush. That is right only when the memtables are empty: the caller keeps writers out and has flushed. Their sequence
//! numbers were reserved when they were written (`tablet::reserved`).
//!
//! Of equal cells of several sources, those of the later source count. A delete hides cells of all sources.
//!
//! A source may have a token. The commit then has the record of it, and a source with the token of an earlier one is left out.
//! So a caller that has not heard of the outcome may repeat the load.
//!
//! A group gets a run of cells, and runs of tombstones of columns and of families if there are any: see [`merge`].

mod merge;
mod writer;

pub use merge::CellSource;

use super::compact::number_run;
use crate::error::{Result, TabletError};
use crate::files::Job;
use crate::manifest::{FileRef, Manifest, StoredFile};
use crate::statistics::RowSample;
use crate::tablet::Tablet;
use crate::tokens::{Seen, TokenRecord};
use merge::Merge;
use std::sync::Arc;
use stele_types::{FamilyId, FileId, GroupId, RequestToken, SeqNo, TableSchema};
use tokio::sync::MutexGuard;
use writer::RunWriter;

/// In place of the row of a request that has a token: a row key is not empty, so no other request has the same identity.
const LOADED: &[u8] = b"";

/// Runs of a group beyond which none is added: each costs every read of a row a probe.
const RUNS_MAX: usize = 256;

/// Sorted cells of one family.
pub struct NewCells<E> {
    /// Which family.
    pub family: FamilyId,
    /// The same for every attempt to load these cells.
    pub token: Option<RequestToken>,
    /// The cells.
    pub cells: Box<dyn CellSource<E>>,
}

/// The turn of a bulk load: a tablet has one at a time, or numbers would be reserved twice.
pub struct Loading<'t> {
    tablet: &'t Tablet,
    _ingesting: MutexGuard<'t, ()>,
}

/// Runs that are written and not added yet. Their files are discarded when this is dropped.
pub struct NewRuns<'t> {
    tablet: &'t Tablet,
    schema: Arc<TableSchema>,
    /// The first of their sequence numbers, and how many there are.
    numbers: (SeqNo, u64),
    /// By group, oldest first.
    runs: Vec<(GroupId, Vec<FileRef>)>,
    made: Vec<StoredFile>,
    bytes: u64,
    /// The first file of each group, and some of the rows.
    samples: Vec<(GroupId, FileId, RowSample)>,
    tokens: Vec<RequestToken>,
    /// The files may be committed until this ends.
    _job: Job<'t>,
    _loading: Loading<'t>,
}

impl Drop for NewRuns<'_> {
    fn drop(&mut self) {
        let files = &self.tablet.context.files;
        self.made.drain(..).for_each(|file| files.discard(file));
    }
}

impl NewRuns<'_> {
    /// Whether there are none: the sources had no cells, or were all loaded before.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Their files.
    #[cfg(test)]
    pub(crate) fn made(&self) -> &[StoredFile] {
        &self.made
    }
}

impl Tablet {
    /// Waits until no other load of the tablet runs.
    pub async fn begin_load(&self) -> Loading<'_> {
        Loading {
            tablet: self,
            _ingesting: self.ingesting.lock().await,
        }
    }

    /// Writes the cells of some sources to files. A row that is not the tablet's is `OtherRow`, and cells that are not sorted are
    /// `NotAddable`.
    pub async fn write_runs<'t, E: From<TabletError>>(
        &'t self,
        loading: Loading<'t>,
        sources: Vec<NewCells<E>>,
    ) -> std::result::Result<NewRuns<'t>, E> {
        assert!(std::ptr::eq(loading.tablet, self), "a load has its turn at the tablet");
        self.check_runs()?;
        let job = self.context.files.begin_job();
        self.settle().await?;
        let sources = self.not_loaded(sources)?;
        let tokens = sources.iter().filter_map(|source| source.token.clone()).collect();
        let schema = self.schema();
        // One for the tombstones, above those of all sources.
        let count = sources.len() as u64 + 1;
        let first = self.reserve_numbers(count)?;
        let mut writer = RunWriter::new(self.env(), &self.context.files, schema.clone(), first.plus(count - 1));
        let merge = Merge::new(sources, self.id(), self.range(), first);
        let written = merge.write_to(&mut writer, self.env()).await;
        let mut runs = NewRuns {
            tablet: self,
            schema,
            numbers: (first, count),
            runs: Vec::new(),
            made: Vec::new(),
            bytes: 0,
            samples: Vec::new(),
            tokens,
            _job: job,
            _loading: loading,
        };
        let finished = match written {
            Ok(()) => writer.finish().await.map_err(E::from),
            Err(error) => Err(error),
        };
        for (group, written) in writer.take() {
            let (mut files, sample) = (written.files, written.sample);
            runs.made
                .extend(files.iter().map(|file| StoredFile::Sstable(file.id())));
            runs.made.extend(written.values.into_iter().map(StoredFile::Values));
            runs.bytes += files.iter().map(|file| file.len).sum::<u64>() + written.value_bytes;
            number_run(&mut files, 0);
            let Some(first) = files.first() else { continue };
            if runs.samples.last().is_none_or(|(last, ..)| *last != group) {
                runs.samples.push((group, first.id(), sample));
            }
            runs.runs.push((group, files));
        }
        finished?;
        Ok(runs)
    }

    /// Adds runs, with the records of their tokens, in one commit. The caller keeps writers out, and has flushed. After an error
    /// of storage it is unknown whether they were added, until the next commit; after any other they were not.
    pub async fn add_runs(&self, mut runs: NewRuns<'_>) -> Result<()> {
        assert!(
            std::ptr::eq(runs.tablet, self),
            "runs are added to the tablet that they were written for"
        );
        let _flushing = self.flushing.lock().await;
        self.check_open()?;
        self.settle().await?;
        let state = self.state();
        assert!(
            state.frozen.is_empty() && state.groups.iter().all(|group| group.active.is_empty()),
            "runs are added above the files: nothing older may be left in memtables"
        );
        drop(state);
        self.check_groups(&runs.schema)?;
        let (first, count) = runs.numbers;
        self.take_numbers(first, count)?;
        let last = first.plus(count - 1);
        let now = self.wall_micros();
        let tokens = runs
            .tokens
            .iter()
            .map(|token| TokenRecord::new(token, LOADED, now, true, &[]));
        let tokens: Vec<TokenRecord> = tokens.collect();
        let stored = self.tokens().stored_with(&tokens, last, now);
        let added = std::mem::take(&mut runs.runs);
        let change = move |manifest: &mut Manifest| {
            manifest.flushed_through = manifest.flushed_through.max(last.0);
            manifest.request_tokens = stored;
            for (group, mut run) in added {
                let mut files = manifest.files(group).to_vec();
                files.append(&mut run);
                manifest.set_files(group, files);
            }
        };
        // The commit discards them if it fails.
        let made = std::mem::take(&mut runs.made);
        let made = (&made[..], Some(&runs.schema));
        self.commit(made, change, |_| self.show_through(last)).await?;
        self.set_flushed(last);
        for record in tokens {
            self.tokens().add(record, last);
        }
        let metrics = &self.context.metrics;
        metrics.loads.inc();
        metrics.load_bytes.inc_by(runs.bytes);
        self.learn_of_flush(&std::mem::take(&mut runs.samples)).await;
        self.note_debt();
        Ok(())
    }

    /// The sources whose tokens are not known yet.
    fn not_loaded<E>(&self, mut sources: Vec<NewCells<E>>) -> Result<Vec<NewCells<E>>> {
        let now = self.wall_micros();
        let seen = |token: &RequestToken| self.tokens().seen(token, LOADED, now);
        let mut tokens = sources.iter().filter_map(|source| source.token.as_ref());
        if tokens.any(|token| matches!(seen(token), Seen::TooOld | Seen::TooEarly)) {
            let detail = "the time of a load's token is too long ago, or in the future".to_owned();
            return Err(TabletError::NotAddable { detail });
        }
        sources.retain(|source| source.token.as_ref().is_none_or(|token| seen(token) == Seen::New));
        Ok(sources)
    }

    fn check_runs(&self) -> Result<()> {
        self.check_open()?;
        let most = self.with_state(|state| state.groups.iter().map(|group| group.runs().count()).max());
        match most {
            Some(runs) if runs >= RUNS_MAX => Err(TabletError::Busy {
                detail: "compactions are behind the loads of a tablet",
            }),
            _ => Ok(()),
        }
    }

    /// Fails when a family has moved to another group since the files were written. They would have its newest cells where
    /// only its oldest may be.
    fn check_groups(&self, written: &TableSchema) -> Result<()> {
        let schema = self.schema();
        let mut families = written.families.keys();
        let has_moved = families.any(|family| written.group_of(*family) != schema.group_of(*family));
        match has_moved {
            false => Ok(()),
            true => Err(TabletError::Busy {
                detail: "a family moved to another locality group during a bulk load",
            }),
        }
    }
}
