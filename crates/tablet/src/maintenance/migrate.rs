//! Moves misplaced cells to the groups that their families belong to.
//!
//! A family that is moved to another locality group has its new entries there immediately. Its old ones stay in files of
//! the group it has left: they are *misplaced cells*. A locality-group migration rewrites all files of that group, once
//! without the families that have left it, and once for every group that they are in now, with them alone. It commits
//! all of that in one manifest.
//!
//! Why this is right:
//! * The misplaced cells of a family are all of its oldest entries. A family has misplaced cells in at most one group:
//!   the master moves it again only when no tablet has any. While a tablet has some, no compaction of the family's group
//!   is at the bottom level. So within the files that are rewritten, an entry that deletes or replaces an entry of the
//!   family is either there, too, or in the family's own group, which keeps it.
//! * Memtables were set aside when the family was moved, and a migration waits until they are flushed, and until a bulk load is
//!   added that began before. After it no entry of the family can come to the group it has left.
//! * The files that are made for the family's group are older, as far as they decide over anything, than all files
//!   there: they become its oldest run. Tombstones of rows stay where they are: each group that existed when one was
//!   written has its own copy.
//!
//! *Moves that the catalog does not know.* After a catalog was restored to an older state, entries of a family may be in
//! a group although nothing says whether the family was moved there or away. So it is unknown which entries are older.
//! Then all files of the tablet are rewritten together, each group's from all files: that is right for every order of
//! their ages. Until then, reads search all of them. Where such a family is an aggregate, whose operands are combined in
//! the order of age, its groups are not compacted.
//!
//! A group with a damaged file is left unchanged, misplaced cells included: its entries can still be read as far as they
//! could before. Files cannot be rewritten together while one is damaged or a memtable waits. Known misplaced cells are
//! migrated nevertheless where no unknown move concerns the group or the families.

use super::READ;
use super::compact::{Compacted, Shape, number_run};
use super::context::CompactionContext;
use super::values::carried;
use crate::compaction::{Carried, JobReport};
use crate::error::Result;
use crate::held::HeldFile;
use crate::manifest::{FileRef, Manifest, StoredFile};
use crate::merging::run_source;
use crate::state::{GroupState, Leavers, State};
use crate::tablet::Tablet;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use stele_types::{FamilyId, GroupId, TableSchema, Timestamp};

/// The files that the parts of a rewrite have made.
#[derive(Default)]
struct Made {
    /// Of each group, until the manifest gets them.
    parts: Vec<(GroupId, Vec<FileRef>)>,
    files: Vec<StoredFile>,
    written: u64,
    jobs: u64,
}

impl Tablet {
    /// Migrates the misplaced cells of one group, if that is possible; no compaction runs meanwhile. Waiting memtables
    /// decide whether it is possible. Only files are rewritten, and that takes too long to hold the memtables meanwhile.
    pub(super) async fn migrate_next(&self) -> Result<Option<Compacted>> {
        // A load that found the family in its former group is among the files, and one that comes later finds it moved.
        let flushing = self.flushing.lock().await;
        let (is_to_sort_out, movable, files) = self.with_state(|state| {
            let movable = state.movable().map(|(group, leavers)| (group.id, leavers));
            (state.is_to_sort_out(), movable, state.of_files(&self.context.memory))
        });
        drop(flushing);
        if is_to_sort_out {
            return self.sort_out(&files).await;
        }
        match movable {
            Some((group, leavers)) => self.migrate(&files, group, leavers).await,
            None => Ok(None),
        }
    }

    /// Takes the families that have left a group out of it.
    async fn migrate(&self, state: &State, group: GroupId, leavers: Leavers) -> Result<Option<Compacted>> {
        let Some(group) = state.group(group) else {
            return Ok(None);
        };
        assert!(!leavers.is_empty(), "a migration has families to move");
        self.settle().await?;
        let _job = self.context.files.begin_job();
        let start = self.env().now();
        let bottom = !state.is_above_misplaced(group.id);
        let mut made = Made::default();
        for (target, families) in parts(&state.schema, group.id, &leavers) {
            let schema = with_families(&state.schema, |family| {
                families.contains(family) == (target != group.id)
            });
            let stays = target == group.id;
            let shape = Shape {
                // Of a family that has left, the oldest entry is here.
                bottom: bottom || !stays,
                // Newer cells of it are in its new group. A tombstone that hides by timestamp goes there, too, and hides those.
                major: bottom && stays,
                older_until: Timestamp::MAX,
                loose: false,
            };
            let outcome = self.rewrite(group, target, schema, shape).await;
            self.add_part(&mut made, target, outcome)?;
        }
        let read = group.files.iter().map(HeldFile::bytes).sum();
        let change = replacement(group, std::mem::take(&mut made.parts));
        self.put_into_place((start, &state.schema), read, &made, change).await?;
        Ok(Some(Compacted {
            group: group.id,
            rows: self.range().clone(),
            major: bottom,
        }))
    }

    /// Adds the files of a part. When it failed, the files of all parts are discarded.
    fn add_part(&self, made: &mut Made, group: GroupId, outcome: Result<JobReport>) -> Result<()> {
        match outcome {
            Ok(report) => {
                made.written += report.bytes();
                made.jobs += 1;
                made.files.extend(report.made());
                made.parts.push((group, report.files));
                Ok(())
            }
            Err(error) => {
                made.files.drain(..).for_each(|file| self.context.files.discard(file));
                Err(error)
            }
        }
    }

    /// Commits the outputs of all parts, each from `read` bytes, since `start` and under the schema of that time.
    async fn put_into_place(
        &self,
        (start, schema): (Duration, &Arc<TableSchema>),
        read: u64,
        made: &Made,
        change: impl FnOnce(&mut Manifest),
    ) -> Result<()> {
        let metrics = &self.context.metrics;
        metrics.compaction_read_bytes.inc_by(read * made.jobs);
        metrics.compaction_written_bytes.inc_by(made.written);
        metrics.moved.compacted(read * made.jobs);
        self.commit((&made.files, Some(schema)), change, |_| {}).await?;
        self.note_debt();
        metrics.compactions.inc();
        let took = self.env().now() - start;
        metrics.compaction_seconds.observe(took.as_secs_f64());
        Ok(())
    }

    /// Rewrites all files of the tablet, those of each group from all that there are.
    async fn sort_out(&self, state: &State) -> Result<Option<Compacted>> {
        let Some(largest) = state.groups.iter().max_by_key(|group| group.files.len()) else {
            return Ok(None);
        };
        self.settle().await?;
        let _job = self.context.files.begin_job();
        let start = self.env().now();
        let mut all = Carried::default();
        for group in &state.groups {
            all.files.extend(carried(group, BTreeSet::new()).files);
        }
        let mut made = Made::default();
        for group in &state.groups {
            let schema = with_families(&state.schema, |family| state.schema.group_of(*family) == group.id);
            let runs = state.groups.iter().flat_map(GroupState::runs);
            let sources = runs.filter_map(|run| run_source(run, &[], None, None, READ)).collect();
            let with = (all.clone(), None);
            let shape = Shape {
                bottom: true,
                major: true,
                older_until: Timestamp::MIN,
                loose: false,
            };
            let outcome = CompactionContext::of(self)
                .run_job(group.id, schema, sources, None, shape, with)
                .await;
            self.add_part(&mut made, group.id, outcome)?;
        }
        let all = state.groups.iter().flat_map(|group| &group.files);
        let read = all.map(HeldFile::bytes).sum();
        let change = replacement_of_all(state, std::mem::take(&mut made.parts));
        self.put_into_place((start, &state.schema), read, &made, change).await?;
        Ok(Some(Compacted {
            group: largest.id,
            rows: self.range().clone(),
            major: true,
        }))
    }

    /// Rewrites all files of a group into files of `target`, of the families of the schema.
    async fn rewrite(
        &self,
        group: &GroupState,
        target: GroupId,
        schema: Arc<TableSchema>,
        shape: Shape,
    ) -> Result<JobReport> {
        let runs = group.runs();
        let sources = runs.filter_map(|run| run_source(run, &[], None, None, READ)).collect();
        // Values stay where they are: the new files name the value files of this group.
        let carried = carried(group, BTreeSet::new());
        CompactionContext::of(self)
            .run_job(target, schema, sources, None, shape, (carried, None))
            .await
    }
}

/// The outputs: for the group itself everything but the families that have left it, for other groups the families that have
/// come to them.
fn parts(schema: &TableSchema, group: GroupId, leavers: &Leavers) -> Leavers {
    let left = leavers
        .iter()
        .flat_map(|(_, families)| families.iter().copied())
        .collect();
    let itself = schema.groups.iter().any(|g| g.id == group).then_some((group, left));
    itself.into_iter().chain(leavers.iter().cloned()).collect()
}

/// The schema with those families alone, as which a compaction drops the others.
fn with_families(schema: &TableSchema, wanted: impl Fn(&FamilyId) -> bool) -> Arc<TableSchema> {
    let mut part = schema.clone();
    part.families.retain(|id, _| wanted(id));
    Arc::new(part)
}

/// The change of a manifest that puts the new files of all groups into place. Only flushes have changed the lists since,
/// and they append.
fn replacement_of_all(state: &State, made: Vec<(GroupId, Vec<FileRef>)>) -> impl FnOnce(&mut Manifest) {
    let read: Vec<(GroupId, usize)> = state.groups.iter().map(|group| (group.id, group.files.len())).collect();
    assert_eq!(read.len(), made.len(), "files of all groups are rewritten together");
    move |manifest| {
        for ((group, read), (_, mut files)) in read.into_iter().zip(made) {
            number_run(&mut files, 0);
            files.extend_from_slice(manifest.files(group).get(read..).unwrap_or_default());
            manifest.set_files(group, files);
        }
    }
}

/// The change of a manifest that puts the output into place. Only flushes have changed the lists since, and they append.
fn replacement(group: &GroupState, made: Vec<(GroupId, Vec<FileRef>)>) -> impl FnOnce(&mut Manifest) {
    let read: Vec<FileRef> = group.files.iter().map(|file| file.reference.clone()).collect();
    let from = group.id;
    move |manifest| {
        let now = manifest.files(from).to_vec();
        let Some(since) = now.strip_prefix(&read[..]) else {
            return;
        };
        manifest.set_files(from, since.to_vec());
        for (target, mut files) in made {
            number_run(&mut files, 0);
            files.extend_from_slice(manifest.files(target));
            manifest.set_files(target, files);
        }
    }
}
