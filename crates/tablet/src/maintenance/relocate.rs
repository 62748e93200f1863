//! Takes what families have left behind to the groups that they were moved to.
//!
//! A family that is moved to another locality group has its new entries there at once; its old ones stay in files of the
//! group it has left: its *residue*. A relocation rewrites all files of that group, once without the families that have
//! left it, and once for every group that they are in now, with them alone. It commits all of that in one manifest.
//!
//! Why this is right:
//! * The residue of a family is all of its oldest entries. A family leaves a residue in at most one group (the master
//!   moves it again only when no tablet has one), and while a tablet has it, no compaction of the family's group is at
//!   the bottom. So within the files that are rewritten, what decides over an entry of the family by deleting or
//!   replacing it is either there, too, or in the family's own group, which keeps it.
//! * Memtables were set aside when the family was moved, and a relocation waits until they are flushed. After it no
//!   entry of the family can come to the group it has left.
//! * The files that are made for the family's group are older, as far as they decide over anything, than all files there:
//!   they become its oldest run. Markers of rows stay where they are: each group that existed when one was written has
//!   its own copy.
//!
//! A group of which a file is damaged is left as it is, residue included: what is in it can still be read as far as it
//! could before.

use super::READ;
use super::compact::{Compacted, number_run};
use super::values::carried;
use crate::compaction::JobReport;
use crate::error::Result;
use crate::manifest::{FileRef, Manifest, StoredFile};
use crate::run;
use crate::state::{GroupState, HeldFile, State};
use crate::tablet::Tablet;
use std::collections::BTreeSet;
use std::sync::Arc;
use stele_types::{FamilyId, GroupId, TableSchema};

/// The families that have left a group, by the group they are in now.
type Leavers = Vec<(GroupId, BTreeSet<FamilyId>)>;

impl State {
    /// A group with residues that can be taken away now, and whose they are.
    pub(crate) fn movable(&self) -> Option<(&GroupState, Leavers)> {
        self.groups.iter().find_map(|group| {
            let mut leavers = Leavers::new();
            for residue in self.residues().iter().filter(|residue| residue.left == group.id) {
                match leavers.iter_mut().find(|(to, _)| *to == residue.group) {
                    Some((_, families)) => drop(families.insert(residue.family)),
                    None => leavers.push((residue.group, [residue.family].into())),
                }
            }
            let mut waiting = self.frozen.iter().flat_map(|frozen| &frozen.memtables);
            let is_ready = !waiting.any(|(id, _)| *id == group.id) && !group.files.iter().any(HeldFile::is_damaged);
            (is_ready && !leavers.is_empty()).then_some((group, leavers))
        })
    }

    /// Whether all of a family is in its own group.
    pub fn is_settled(&self, family: FamilyId) -> bool {
        !self.residues().iter().any(|residue| residue.family == family)
    }
}

impl Tablet {
    /// Relocates the residues of one group, if some can be; no compaction runs meanwhile.
    pub(super) async fn relocate_next(&self, state: &State) -> Result<Option<Compacted>> {
        let Some((group, leavers)) = state.movable() else {
            return Ok(None);
        };
        self.settle().await?;
        let start = self.env().now();
        let bottom = !state.is_above_residue(group.id);
        let mut made: Vec<(GroupId, Vec<FileRef>)> = Vec::new();
        let mut files: Vec<StoredFile> = Vec::new();
        let mut written = 0;
        for (target, families) in parts(&state.schema, group.id, &leavers) {
            let schema = with_families(&state.schema, |family| {
                families.contains(family) == (target != group.id)
            });
            // Of a family that has left, the oldest entry is here.
            let is_bottom = bottom || target != group.id;
            match self.rewrite(group, target, schema, is_bottom).await {
                Ok(report) => {
                    written += report.bytes();
                    files.extend(report.made());
                    made.push((target, report.files));
                }
                Err(error) => {
                    files.into_iter().for_each(|file| self.context.files.discard(file));
                    return Err(error);
                }
            }
        }
        let metrics = &self.context.metrics;
        let read: u64 = group.files.iter().map(HeldFile::bytes).sum();
        metrics.compaction_read_bytes.inc_by(read * made.len() as u64);
        metrics.compaction_written_bytes.inc_by(written);
        self.commit(&files, replacement(group, made), |_| {}).await?;
        self.note_debt();
        metrics.compactions.inc();
        metrics
            .compaction_seconds
            .observe((self.env().now() - start).as_secs_f64());
        Ok(Some(Compacted {
            group: group.id,
            rows: self.range().clone(),
            major: bottom,
        }))
    }

    /// Rewrites all files of a group into files of `target`, of the families of the schema.
    async fn rewrite(
        &self,
        group: &GroupState,
        target: GroupId,
        schema: Arc<TableSchema>,
        bottom: bool,
    ) -> Result<JobReport> {
        let runs = group.runs();
        let sources = runs.filter_map(|run| run::source(run, &[], None, None, READ)).collect();
        // Values stay where they are: the new files name the value files of this group.
        let carried = carried(group, BTreeSet::new());
        self.run_job(target, schema, sources, None, (bottom, bottom), (carried, None))
            .await
    }
}

/// What is written: for the group itself everything but the families that have left it, for others what has come to them.
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
