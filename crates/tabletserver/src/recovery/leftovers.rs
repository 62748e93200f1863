//! Unreferenced files that a start finds, and their deletion.
//!
//! Invariant: in doubt a file stays. While a manifest cannot be read, or the catalog may lack a transaction, nobody knows
//! all the files that are needed.

use super::snapshots::UnnamedParts;
use super::{Found, Opened};
use std::collections::BTreeSet;
use stele_tablet::{
    StoredFile, TabletContext, TabletError,
    manifest::{self, ManifestLog},
};
use stele_types::TabletId;

/// Manifests deleted in one request, as by object stores.
const SWEPT_CONCURRENTLY: usize = 1_000;

/// Files that a start finds and that are not needed any more. They are deleted while tablets are served already: all
/// of them are of earlier processes, and none can come to be needed.
pub(crate) struct Leftovers {
    /// Files that manifests refer to; other files of earlier processes are not needed. Absent when all must stay.
    referenced: Option<BTreeSet<StoredFile>>,
    /// Manifests, and parts of snapshots.
    manifests: Vec<String>,
}

/// The strays that are kept, and the files that go. While a tablet is damaged nobody knows to which files it refers,
/// so every file and every stray is kept. In doubt about the catalog strays are kept with the files that they refer
/// to. Where there are none, the catalog lacks nothing: a transaction makes tablets known after their manifests were
/// written.
pub(super) async fn find_leftovers(
    context: &TabletContext,
    opened: &Opened,
    found: &Found,
    in_doubt: bool,
) -> (BTreeSet<TabletId>, Leftovers) {
    let is_orphan = |id: &&TabletId| !opened.tablets.contains_key(id) && !found.damaged.contains_key(id);
    let strays: BTreeSet<TabletId> = found.manifests.keys().filter(is_orphan).copied().collect();
    let mut manifests = found.superseded.clone();
    let mut referenced: BTreeSet<StoredFile> = BTreeSet::new();
    for tablet in opened.tablets.values() {
        referenced.extend(tablet.manifest().await.stored());
    }
    if found.damaged.is_empty() && !in_doubt {
        let stray = strays.iter().filter_map(|id| Some((id, found.manifests.get(id)?)));
        manifests.extend(stray.flat_map(|(id, numbers)| numbers.iter().map(|number| manifest::path(*id, *number))));
        debug_assert!(
            opened.tablets.keys().all(|id| !strays.contains(id)),
            "a tablet that the catalog names is no stray: its manifests stay"
        );
        let referenced = Some(referenced);
        return (BTreeSet::new(), Leftovers { referenced, manifests });
    }
    if !strays.is_empty() {
        tracing::error!(
            ?strays,
            "tablets that the catalog does not name are kept, because it may be wrong"
        );
    }
    let of_orphans = match found.damaged.is_empty() {
        true => files_of(context, &strays).await,
        false => None,
    };
    let referenced = of_orphans.map(|of_orphans| {
        context.files.keep(of_orphans.clone());
        referenced.extend(of_orphans);
        referenced
    });
    if referenced.is_none() {
        context.files.keep_former_files();
    }
    (strays, Leftovers { referenced, manifests })
}

/// The files that tablets refer to which are not served; `None` when that cannot be told of each.
async fn files_of(context: &TabletContext, tablets: &BTreeSet<TabletId>) -> Option<BTreeSet<StoredFile>> {
    let mut files = BTreeSet::new();
    for tablet in tablets {
        match ManifestLog::open(context.storage.clone(), *tablet).await {
            Ok((_, manifest)) => files.extend(manifest.stored()),
            Err(error) => {
                tracing::error!(%tablet, %error, "a manifest of a tablet that the catalog does not name cannot be read");
                return None;
            }
        }
    }
    Some(files)
}

impl Leftovers {
    /// Adds the parts of snapshots that the catalog does not name.
    pub(crate) fn add(&mut self, parts: UnnamedParts) {
        self.manifests.extend(parts.paths);
    }

    /// Deletes them, if this process still is the owner. The next start finds those left over.
    pub(crate) async fn sweep(self, context: TabletContext) {
        let start = context.env.now();
        match self.delete(&context).await {
            Ok(0) => {}
            Ok(files) => tracing::info!(files, "swept in {:?}", context.env.now() - start),
            Err(error) => tracing::warn!(%error, "what nobody needs any more is left to the next start"),
        }
    }

    async fn delete(self, context: &TabletContext) -> Result<usize, TabletError> {
        let mut deleted = self.manifests.len();
        context.storage.confirm_owner().await?;
        for some in self.manifests.chunks(SWEPT_CONCURRENTLY) {
            context.storage.discard_all(some).await?;
        }
        if let Some(referenced) = &self.referenced {
            deleted += context.files.sweep(referenced).await?;
        }
        Ok(deleted)
    }
}
