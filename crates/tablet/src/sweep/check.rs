//! Compares the catalog, the newest manifests and the files of a shared data root.
//!
//! A round of the sweep has read all of them, so the comparison costs nothing, or one more listing if files are newer than the first. On HDFS the first may also show a
//! part of a file that was being written.
//! Only the sweep deletes files that were committed. So a file that a manifest or a snapshot names is there, as long as storage
//! loses none.

use super::{Knowledge, Listed, Marks, Need, Result};
use crate::manifest::StoredFile;
use std::collections::BTreeMap;
use std::fmt;
use stele_storage::Storage;
use stele_types::TabletId;

/// Findings that are described. Others are counted.
const FINDINGS_MAX: usize = 100;

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

/// Compares the findings of a round: all tablets were claimed by their owners, and all that came meanwhile were read, too.
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
    // A server that was replaced may put a manifest of a tablet that is no more, whose files were swept.
    let is_named = |need: &Need| knowledge.tablets.contains_key(&need.tablet);
    // A file of which the listing is no proof may be newer, or was still being written then.
    let mut doubtful: BTreeMap<StoredFile, Option<&Need>> = BTreeMap::new();
    for (file, need) in marks.needed.iter().filter(|(_, need)| is_named(need)) {
        (checked.files, checked.bytes) = (checked.files + 1, checked.bytes + need.len);
        if listed.get(file) != Some(&need.len) {
            doubtful.insert(*file, Some(need));
        }
    }
    for file in held.filter(|file| !marks.needed.get(file).is_some_and(is_named)) {
        checked.files += 1;
        if !listed.contains_key(&file) {
            doubtful.insert(file, None);
        }
    }
    if !doubtful.is_empty() {
        // All of them by one listing: most storages list the whole directory for a single file, too.
        let now = storage.list("sst/").await?.into_iter();
        let now: Listed = now
            .filter_map(|info| Some((StoredFile::parse_path(&info.path)?, info.len)))
            .collect();
        for (file, need) in doubtful {
            match (now.get(&file), need) {
                (None, need) => checked.note(Finding::Missing(need.map(|need| need.tablet), file)),
                (Some(found), Some(need)) if *found != need.len => checked.note(Finding::OtherLength {
                    tablet: need.tablet,
                    file,
                    stated: need.len,
                    found: *found,
                }),
                (Some(_), _) => {}
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::NamedTablet;
    use bytes::Bytes;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use stele_storage::FileInfo;
    use stele_storage::memory::MemoryStorage;
    use stele_types::{Epoch, FileId, RowRange};

    /// Counts its listings.
    struct Counting(Arc<MemoryStorage>, AtomicU64);

    #[async_trait::async_trait]
    impl stele_storage::Layer for Counting {
        fn below(&self) -> &dyn Storage {
            &*self.0
        }

        async fn list(&self, prefix: &str) -> stele_storage::Result<Vec<FileInfo>> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.list(prefix).await
        }
    }

    /// As in HDFS, where a file that is being written has a part of its bytes.
    #[tokio::test]
    async fn a_file_that_was_being_written_when_it_was_listed_is_looked_up_again() {
        let storage = MemoryStorage::new();
        let file = StoredFile::Sstable(FileId::new(1, 1));
        storage
            .put_if_absent(&file.path(), Bytes::from_static(b"abc"))
            .await
            .unwrap();
        let tablet = TabletId(7);
        let named = NamedTablet {
            epoch: Epoch(1),
            range: RowRange::all(),
        };
        let knowledge = Knowledge {
            tablets: BTreeMap::from([(tablet, named)]),
            ..Knowledge::default()
        };
        for (stated, findings) in [(3, 0), (4, 1)] {
            let need = Need { tablet, len: stated };
            let marks = Marks {
                needed: BTreeMap::from([(file, need)]),
                ..Marks::default()
            };
            let listed = Listed::from([(file, 0)]);
            let checked = compare(&*storage, &listed, &knowledge, &marks, std::iter::empty()).await;
            assert_eq!(checked.unwrap().findings.len(), findings);
        }
    }

    #[tokio::test]
    async fn new_files_are_looked_up_by_one_listing() {
        let storage = Counting(MemoryStorage::new(), AtomicU64::new(0));
        let files: Vec<StoredFile> = (0..50).map(|n| StoredFile::Sstable(FileId::new(1, n))).collect();
        for file in &files[1..] {
            storage.0.put_if_absent(&file.path(), Bytes::new()).await.unwrap();
        }
        let (knowledge, marks) = (Knowledge::default(), Marks::default());
        for (held, findings, listings) in [(50, 1, 1), (0, 0, 1)] {
            let held = files.iter().take(held).copied();
            let checked = compare(&storage, &Listed::new(), &knowledge, &marks, held).await;
            let found = checked.unwrap().findings;
            assert_eq!(found.len(), findings, "{found:?}");
            assert_eq!(storage.1.load(Ordering::Relaxed), listings);
        }
    }
}
