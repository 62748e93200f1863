//! The calls of `TabletControl` to a server of a cluster.
//!
//! A replacement is prepared under a number of the server, which is part of the answer. Its outcome is told under that number
//! (`Request::EndPreparation`).

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use stele_client::{SnapshotTablet, SplitPolicy};
use stele_tabletserver::DropNumber;
use stele_types::{Epoch, RowRange, SnapshotId, TableSchema, TabletId};

/// One call; the answer is the result of the method.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum TabletCall {
    Create {
        schema: Arc<TableSchema>,
        tablets: Vec<(TabletId, RowRange)>,
    },
    Drop(Vec<TabletId>),
    /// The tablet, and the version of the schema that it must know.
    Unsettled(TabletId, u64),
    /// Refused unless the number is above that of every drop before.
    DropRows {
        tablet: TabletId,
        epoch: Epoch,
        number: DropNumber,
        range: RowRange,
    },
    Flush(TabletId),
    Compact {
        tablet: TabletId,
        major: bool,
    },
    Compaction(TabletId),
    SplitCandidates(SplitPolicy),
    PrepareSplit {
        tablet: TabletId,
        halves: (TabletId, TabletId),
        at: Option<Bytes>,
    },
    PrepareMerge {
        tablets: Vec<TabletId>,
        merged: TabletId,
    },
    PrepareTruncation {
        schema: Arc<TableSchema>,
        tablets: Vec<TabletId>,
        empty: Vec<(TabletId, RowRange)>,
    },
    FlushUnder {
        tablet: TabletId,
        epoch: Epoch,
    },
    Clone {
        schema: Arc<TableSchema>,
        snapshot: SnapshotId,
        tablets: Vec<SnapshotTablet>,
    },
    PrepareRestore {
        schema: Arc<TableSchema>,
        snapshot: SnapshotId,
        old: Vec<TabletId>,
        new: Vec<SnapshotTablet>,
    },
}
