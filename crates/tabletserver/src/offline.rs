//! Brings all records of the commit log into files, without serving anything.
//!
//! It is the recovery of a start, and then the flushes of a stop. Nothing runs in the background and no file is deleted but
//! superseded manifests, so the files stay as they are afterwards.
//!
//! Invariant: when this succeeds, the newest manifests of all tablets name files with every acknowledged mutation.

use crate::error::ServerError;
use crate::options::ServerOptions;
use crate::recovery::{Opened, RecoveryReport, hold_snapshots};
use crate::server::context_of;
use futures::{StreamExt, TryStreamExt};
use std::sync::Arc;
use stele_catalog::Catalog;
use stele_env::Env;
use stele_env::metrics::Metrics;
use stele_sstable::Cache;
use stele_storage::Storage;
use stele_tablet::{FileRegistry, Tablet};
use stele_types::{Epoch, SeqNo};

/// Tablets flushed concurrently: each takes a few megabytes, and waits for the device most of the time.
const FLUSHED_CONCURRENTLY: usize = 8;

/// Recovers every tablet of the catalog and flushes it. `epoch` is one that no server had. The caller owns the whole data root.
/// A damaged tablet is an error, and so is one that cannot be flushed.
pub async fn flush_all(
    (env, storage): (Env, Arc<dyn Storage>),
    catalog: &Catalog,
    epoch: Epoch,
    cache: Arc<Cache>,
    options: ServerOptions,
) -> Result<RecoveryReport, ServerError> {
    let start = env.now();
    let files = FileRegistry::new(storage.clone(), cache, epoch.0);
    let context = context_of(env.clone(), storage.clone(), files, &options, &Metrics::new());
    let (opened, found) = Opened::of_catalog(&context, catalog, epoch, options.inherit_from).await?;
    hold_snapshots(&context, catalog, options.catalog_in_doubt).await?;
    let damaged = found.sort(&context, &opened, options.catalog_in_doubt).await.damaged;
    if let Some((tablet, damaged)) = damaged.into_iter().next() {
        let error = damaged.error;
        return Err(ServerError::Tablet { tablet, error });
    }
    let count = opened.len();
    let (replayed, log) = opened.replay(&context, &options).await?;
    let flushed = futures::stream::iter(replayed.into_tablets().map(flush)).buffer_unordered(FLUSHED_CONCURRENTLY);
    let flushed: Vec<SeqNo> = flushed.try_collect().await?;
    assert_eq!(flushed.len(), count, "every tablet that was opened is flushed");
    // Another owner may have claimed tablets meanwhile, and has gone on from there.
    storage.confirm_owner().await?;
    let mut report = RecoveryReport::new(count, 0, &log);
    report.duration = env.now() - start;
    Ok(report)
}

/// Flushes a tablet and closes it; the number up to which its files hold everything.
async fn flush(tablet: Arc<Tablet>) -> Result<SeqNo, ServerError> {
    let flushed = tablet.flush().await;
    tablet.close();
    flushed.map_err(|error| ServerError::Tablet {
        tablet: tablet.id(),
        error,
    })?;
    assert_eq!(
        tablet.state().memtable_bytes(),
        0,
        "nothing of a tablet that was flushed is in memory alone"
    );
    Ok(tablet.flushed_through())
}
