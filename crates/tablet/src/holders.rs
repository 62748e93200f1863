//! The holders of files, besides the tablets of this server.
//!
//! The registry (`files`) counts the references of the tablets that are open here. This module knows all others: snapshots,
//! and manifests that belong to no open tablet. Every deletion of a file asks both, so a sweep over several servers has one
//! question to ask of each.
//!
//! Invariant: the count of a file is the number of references by the manifests of all snapshots that are taken, or are being
//! taken.
//!
//! Pure: the registry holds it under its lock.

use crate::manifest::StoredFile;
use std::collections::{BTreeMap, BTreeSet};
use stele_types::FileId;

/// Why a file must stay although no open tablet refers to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A snapshot names it.
    Snapshot,
    /// A manifest names it that belongs to no tablet of this server.
    Manifest,
    /// An earlier process wrote it, and some manifest cannot be read.
    Unknown,
}

/// The holders of files.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    /// References by manifests of snapshots: 40 bytes for each distinct file.
    snapshots: BTreeMap<StoredFile, u32>,
    manifests: BTreeSet<StoredFile>,
    /// Files below this number stay.
    before: Option<FileId>,
    /// A planted bug: snapshots count for nothing.
    forgets_snapshots: bool,
}

impl Holders {
    /// A holder of a file; one of them, if there are several.
    pub fn holder(&self, file: StoredFile) -> Option<Holder> {
        if self.snapshots.contains_key(&file) && !self.forgets_snapshots {
            return Some(Holder::Snapshot);
        }
        if self.manifests.contains(&file) {
            return Some(Holder::Manifest);
        }
        let is_before = self.before.is_some_and(|before| file.id() < before);
        is_before.then_some(Holder::Unknown)
    }

    /// A snapshot has one more reference to a file.
    pub fn hold(&mut self, file: StoredFile) {
        *self.snapshots.entry(file).or_default() += 1;
    }

    /// A snapshot has one reference less; whether that was the last one of all snapshots.
    pub fn let_go(&mut self, file: StoredFile) -> bool {
        let Some(count) = self.snapshots.get_mut(&file) else {
            debug_assert!(false, "only held files are let go");
            return false;
        };
        assert!(*count > 0, "a file that snapshots name is counted");
        *count -= 1;
        let is_last = *count == 0;
        if is_last {
            self.snapshots.remove(&file);
        }
        is_last
    }

    /// Files that stay for as long as the process runs.
    pub fn keep(&mut self, files: BTreeSet<StoredFile>) {
        self.manifests.extend(files);
    }

    /// All files below a number stay for as long as the process runs.
    pub fn keep_before(&mut self, file: FileId) {
        assert!(
            self.before.is_none_or(|before| before == file),
            "an epoch begins at one number"
        );
        self.before = Some(file);
    }

    /// From now on no file stays because of a snapshot.
    pub fn forget_snapshots(&mut self) {
        self.forgets_snapshots = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_stays_as_long_as_anybody_needs_it() {
        let file = |n| StoredFile::Sstable(FileId(n));
        let mut holders = Holders::default();
        assert_eq!(holders.holder(file(1)), None);
        holders.hold(file(1));
        holders.hold(file(1));
        assert_eq!(holders.holder(file(1)), Some(Holder::Snapshot));
        assert_eq!(holders.holder(StoredFile::Values(FileId(1))), None);
        assert!(!holders.let_go(file(1)));
        assert_eq!(holders.holder(file(1)), Some(Holder::Snapshot));
        assert!(holders.let_go(file(1)));
        assert_eq!(holders.holder(file(1)), None);
        holders.keep(BTreeSet::from([file(7)]));
        holders.keep_before(FileId(5));
        assert_eq!(holders.holder(file(7)), Some(Holder::Manifest));
        assert_eq!(holders.holder(file(4)), Some(Holder::Unknown));
        assert_eq!(holders.holder(file(5)), None);
    }
}
