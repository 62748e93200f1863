//! Compares the catalog, the newest manifests and the files of a shared data root.
//!
//! A round of the sweep has read all of them, so the comparison costs a request for each file that is newer than the listing.
//! Only the sweep deletes files that were committed. So a file that a manifest or a snapshot names is there, as long as storage
//! loses none.

use super::{Knowledge, Listed, Marks, Result};
use crate::manifest::StoredFile;
use futures::{StreamExt, TryStreamExt};
use std::collections::BTreeSet;
use std::fmt;
use stele_storage::Storage;
use stele_types::TabletId;

/// Findings that are described. Others are counted.
const FINDINGS_MAX: usize = 100;
/// Requests for files that the listing did not have.
const ASKED_CONCURRENTLY: usize = 16;

/// The outcome of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Tablets of the catalog whose manifests were read.
    pub tablets: u64,
    /// Files that these or snapshots name.
    pub files: u64,
    /// Bytes of those that manifests name.
    pub bytes: u64,
    /// Files that nothing needs, and that are not deleted yet.
    pub unneeded: u64,
    /// Contradictions, at most a hundred.
    pub findings: Vec<Finding>,
    /// Further ones.
    pub more: u64,
}

/// A contradiction.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finding {
    /// The rows of a tablet are not those that the catalog has.
    OtherRows(TabletId),
    /// A file is not there. The tablet names it, or a snapshot if there is none.
    Missing(Option<TabletId>, StoredFile),
    /// A file has not as many bytes as the manifest of the tablet says.
    OtherLength {
        /// The tablet.
        tablet: TabletId,
        /// Its file.
        file: StoredFile,
        /// The bytes that it should have.
        stated: u64,
        /// The bytes that it has.
        found: u64,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::OtherRows(tablet) => write!(f, "tablet {tablet}: its manifest has other rows than the catalog"),
            Finding::Missing(Some(tablet), file) => write!(f, "tablet {tablet}: {} is missing", file.path()),
            Finding::Missing(None, file) => write!(f, "a snapshot: {} is missing", file.path()),
            Finding::OtherLength {
                tablet,
                file,
                stated,
                found,
            } => write!(f, "tablet {tablet}: {} has {found} bytes, not {stated}", file.path()),
        }
    }
}

impl Checked {
    fn note(&mut self, finding: Finding) {
        match self.findings.len() < FINDINGS_MAX {
            true => self.findings.push(finding),
            false => self.more += 1,
        }
    }
}

/// Compares the findings of a round: all tablets were claimed by their owners, and none came or went meanwhile.
pub(super) async fn compare(
    storage: &dyn Storage,
    listed: &Listed,
    knowledge: &Knowledge,
    marks: &Marks,
    held: impl Iterator<Item = StoredFile>,
) -> Result<Checked> {
    let mut checked = Checked::default();
    for (tablet, named) in &knowledge.tablets {
        checked.tablets += 1;
        if marks.ranges.get(tablet).is_some_and(|range| *range != named.range) {
            checked.note(Finding::OtherRows(*tablet));
        }
    }
    let mut unlisted: BTreeSet<(StoredFile, Option<TabletId>)> = BTreeSet::new();
    for (file, need) in &marks.needed {
        (checked.files, checked.bytes) = (checked.files + 1, checked.bytes + need.len);
        match listed.get(file) {
            None => drop(unlisted.insert((*file, Some(need.tablet)))),
            Some(found) if *found != need.len => checked.note(Finding::OtherLength {
                tablet: need.tablet,
                file: *file,
                stated: need.len,
                found: *found,
            }),
            Some(_) => {}
        }
    }
    for file in held.filter(|file| !marks.needed.contains_key(file)) {
        checked.files += 1;
        if !listed.contains_key(&file) {
            unlisted.insert((file, None));
        }
    }
    let asking = unlisted.into_iter().map(|(file, tablet)| async move {
        let path = file.path();
        let found = storage.list(&path).await?;
        let is_there = found.iter().any(|info| info.path == path);
        Ok::<_, crate::TabletError>((!is_there).then_some(Finding::Missing(tablet, file)))
    });
    let asking: Vec<_> = asking.collect();
    let mut asking = futures::stream::iter(asking).buffered(ASKED_CONCURRENTLY);
    while let Some(missing) = asking.try_next().await? {
        missing.into_iter().for_each(|finding| checked.note(finding));
    }
    assert!(
        checked.more == 0 || checked.findings.len() == FINDINGS_MAX,
        "findings are counted only when as many are described as may be"
    );
    debug_assert_eq!(
        checked.tablets,
        knowledge.tablets.len() as u64,
        "each tablet of the catalog is compared once"
    );
    Ok(checked)
}
