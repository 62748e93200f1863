//! Merges small neighbouring tablets that hardly anybody uses, while this server leads.
//!
//! Tables that were split for a load, or lost most of their rows, would keep their many tablets for ever: each costs
//! memory, a manifest and a place in every report.

use crate::leader::{Leader, TermEnd};
use futures::FutureExt;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use stele_assignment::{MergeCandidate, TableView, merges};
use stele_client::TableAdmin;
use stele_master::Master;
use stele_types::{TableId, TableName};

/// How often tablets are merged, and which.
#[derive(Clone, Copy, Debug)]
pub struct MergePace {
    /// Pause between two rounds.
    pub interval: Duration,
    /// Time for which a tablet and its owner must be unchanged, under one leader. Tablets that were made for a load to come
    /// stay at least this long.
    pub quiet: Duration,
    /// Bytes at which a tablet is split, of tables that do not say it.
    pub tablet_bytes_max: u64,
}

impl MergePace {
    /// The pace of servers that split tablets at this size.
    pub fn of_tablets(tablet_bytes_max: u64) -> MergePace {
        MergePace {
            interval: Duration::from_secs(60),
            quiet: Duration::from_secs(24 * 3600),
            tablet_bytes_max,
        }
    }
}

/// Merges until the term ends.
pub(crate) async fn run(leader: Arc<Leader>, master: Arc<Master>, pace: MergePace, ended: TermEnd) {
    let env = leader.local.env.clone();
    loop {
        tokio::select! {
            biased;
            () = ended.clone() => return,
            () = env.sleep(pace.interval) => {}
        }
        if !leader.local.catalog.view().switches.merge {
            continue;
        }
        // One after the other: writes to a tablet wait while it is merged.
        for (table, MergeCandidate { left, right }) in candidates(&leader, &pace) {
            if ended.clone().now_or_never().is_some() {
                return;
            }
            match master.merge(&table, vec![left, right]).await {
                Ok(merged) => tracing::info!(%table, %left, %right, %merged, "two small tablets are merged"),
                Err(error) => tracing::info!(%table, %left, %right, %error, "two small tablets are not merged yet"),
            }
        }
    }
}

fn candidates(leader: &Leader, pace: &MergePace) -> Vec<(TableName, MergeCandidate)> {
    let view = leader.view(&leader.reports(), leader.local.env.now());
    let is_alive = |server: &&stele_assignment::ServerView| !server.is_sealed() && !server.draining;
    let servers = view.servers.values().filter(is_alive).count();
    let catalog = leader.local.catalog.view();
    let tables: BTreeMap<TableId, &TableView> = view.tables.iter().map(|table| (table.id, table)).collect();
    let mut candidates = Vec::new();
    for (name, table) in &catalog.tables {
        let Some(tablets) = tables.get(&table.schema.id) else {
            continue;
        };
        let limit = match table.schema.tablet_bytes_max {
            0 => pace.tablet_bytes_max,
            own => own,
        };
        let of_table = merges(tablets, limit, servers, pace.quiet).into_iter();
        candidates.extend(of_table.map(|candidate| (name.clone(), candidate)));
    }
    candidates
}
