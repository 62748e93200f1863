//! The two clusters of a migration.

use crate::address::is_address;
use crate::args::MigrateArgs;
use anyhow::{Context, Result, ensure};
use std::sync::Arc;
use std::time::Duration;
use stele_hbaseclient::{Cluster, Settings};
use stele_wire::messages::KEY_VALUE_CODEC_WITH_TAGS;

/// Longest time of repeating a call: a cluster that has lost a server assigns its regions within minutes.
const RETRY_FOR: Duration = Duration::from_secs(300);

/// Source and target. Constant after construction.
#[derive(Debug)]
pub struct Ends {
    /// The HBase cluster.
    pub source: Arc<Cluster>,
    /// Its id.
    pub source_id: String,
    /// The server that takes the tables.
    pub target: Arc<Cluster>,
    /// Its id.
    pub target_id: String,
}

impl Ends {
    /// Connects to both.
    ///
    /// # Errors
    /// A cluster that does not respond, or one that is both ends.
    pub async fn connect(args: &MigrateArgs) -> Result<Ends> {
        ensure!(is_address(&args.to), "--to {} is not HOST:PORT", args.to);
        // Only this codec carries the lifetimes of cells.
        let settings = || Settings {
            retry_for: RETRY_FOR,
            codec: KEY_VALUE_CODEC_WITH_TAGS,
            ..Settings::default()
        };
        let cluster = |servers: Vec<String>| Arc::new(Cluster::new(servers, settings()));
        let (source, target) = (cluster(args.source.servers.clone()), cluster(vec![args.to.clone()]));
        let (source_id, target_id) = futures::join!(source.cluster_id(), target.cluster_id());
        let source_id = source_id.context("the source does not respond")?;
        let target_id = target_id.with_context(|| format!("the target {} does not respond", args.to))?;
        ensure!(
            source_id != target_id,
            "source and target are the same cluster, {source_id}"
        );
        Ok(Ends {
            source,
            source_id,
            target,
            target_id,
        })
    }
}
