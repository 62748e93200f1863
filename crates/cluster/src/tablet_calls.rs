//! The calls of [`TabletControl`] to a server of a cluster.

use crate::codec::{self, Outcome, outcome};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use stele_client::{ServiceResult, SplitPolicy, TabletControl};
use stele_types::{RowRange, TableSchema, TabletId};

/// One call; the answer is the result of the method.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum TabletCall {
    Create {
        schema: Arc<TableSchema>,
        tablets: Vec<(TabletId, RowRange)>,
    },
    Drop(Vec<TabletId>),
    Unsettled(TabletId),
    DropRows {
        tablet: TabletId,
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
    FinishReplacement {
        first: TabletId,
        committed: bool,
    },
}

/// Carries a call out here, and encodes its answer.
pub(crate) async fn answer(tablets: &dyn TabletControl, call: TabletCall) -> ServiceResult<Bytes> {
    match call {
        TabletCall::Create { schema, tablets: new } => done(tablets.create_tablets(schema, new).await),
        TabletCall::Drop(dropped) => {
            tablets.drop_tablets(dropped).await;
            done(Ok(()))
        }
        TabletCall::Unsettled(tablet) => codec::encode(&tablets.unsettled(tablet).await?),
        TabletCall::DropRows { tablet, range } => done(tablets.drop_rows(tablet, range).await),
        TabletCall::Flush(tablet) => done(tablets.flush(tablet).await),
        TabletCall::Compact { tablet, major } => done(tablets.compact(tablet, major).await),
        TabletCall::Compaction(tablet) => codec::encode(&tablets.compaction(tablet).await?),
        TabletCall::SplitCandidates(policy) => codec::encode(&tablets.split_candidates(&policy).await),
        TabletCall::PrepareSplit { tablet, halves, at } => {
            codec::encode(&tablets.prepare_split(tablet, halves, at).await?)
        }
        TabletCall::PrepareMerge { tablets: old, merged } => done(tablets.prepare_merge(old, merged).await),
        TabletCall::PrepareTruncation {
            schema,
            tablets: old,
            empty,
        } => done(tablets.prepare_truncation(schema, old, empty).await),
        TabletCall::FinishReplacement { first, committed } => {
            tablets.finish_replacement(first, committed).await;
            done(Ok(()))
        }
    }
}

fn done(result: ServiceResult<()>) -> ServiceResult<Bytes> {
    // An error is that of the call itself.
    result?;
    let nothing: Outcome = outcome(Ok(()));
    codec::encode(&nothing)
}
