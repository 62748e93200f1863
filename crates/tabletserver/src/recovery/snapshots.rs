//! Files that snapshots hold, at a start.
//!
//! Invariant: they are held before any file is deleted.

use crate::error::ServerError;
use futures::StreamExt;
use std::collections::{BTreeMap, BTreeSet};
use stele_catalog::Catalog;
use stele_tablet::{TabletContext, TabletError, snapshot};
use stele_types::{ErrorKind, SnapshotId};

/// Parts read concurrently: a few megabytes each at most, and a request to an object store.
const READ_CONCURRENTLY: usize = 16;

/// Parts in storage of snapshots that the catalog does not name.
#[derive(Default)]
pub(crate) struct UnnamedParts {
    /// Their paths.
    pub(crate) paths: Vec<String>,
}

/// At a start: holds the files of all snapshots that the catalog names, before any file is deleted. While a part cannot be
/// read nobody knows its files, and then no file of an earlier process is deleted. In doubt about the catalog the files of
/// all snapshots in storage are held.
pub(crate) async fn hold_snapshots(
    context: &TabletContext,
    catalog: &Catalog,
    in_doubt: bool,
) -> Result<UnnamedParts, ServerError> {
    let view = catalog.view();
    let named: BTreeMap<SnapshotId, u32> = view.snapshots.values().map(|entry| (entry.id, entry.parts)).collect();
    let mut wanted: BTreeSet<(SnapshotId, u32)> = BTreeSet::new();
    wanted.extend(named.iter().flat_map(|(id, parts)| (0..*parts).map(|part| (*id, part))));
    let mut unnamed = UnnamedParts::default();
    for file in context.storage.list(snapshot::DIRECTORY).await? {
        match snapshot::parse_path(&file.path) {
            Some((id, part)) if in_doubt && !named.contains_key(&id) => drop(wanted.insert((id, part))),
            Some((id, _)) if !named.contains_key(&id) => unnamed.paths.push(file.path),
            _ => {}
        }
    }
    assert!(
        in_doubt || wanted.iter().all(|(id, _)| named.contains_key(id)),
        "without doubt only named snapshots hold files"
    );
    let reading = wanted.into_iter().map(|(id, part)| async move {
        let read = snapshot::read(&*context.storage, id, part).await;
        (id, read)
    });
    let mut reading = futures::stream::iter(reading).buffer_unordered(READ_CONCURRENTLY);
    while let Some((id, read)) = reading.next().await {
        match read {
            Ok(part) => context.files.hold(part.stored().map(|(file, _)| file)),
            Err(error) if is_damage(&error) => {
                tracing::error!(snapshot = %id, %error, "the snapshot is damaged; no file of an earlier process is deleted");
                context.files.keep_former_files();
            }
            Err(TabletError::Storage(error)) => return Err(error.into()),
            Err(error) => return Err(ServerError::Snapshot { snapshot: id, error }),
        }
    }
    Ok(unnamed)
}

/// The content of a part is lost, at least for now.
fn is_damage(error: &TabletError) -> bool {
    error.kind() == ErrorKind::Corruption
}
