//! Answers the calls of `TabletControl` with the tablets of this server.

use crate::codec::{self, Outcome, outcome};
use crate::tablet_calls::TabletCall;
use bytes::Bytes;
use stele_client::{ServiceError, ServiceResult, TabletControl};
use stele_tabletserver::TabletServer;
use stele_types::{ErrorKind, TabletId};

/// Carries a call out here, and encodes its answer. `keep_closed` keeps tablets that are not open from being opened, and other
/// replacements of them from being prepared, as long as its result lives. A call that its caller has given up goes on here: a second one
/// would wait for the gate that the first leaves shut.
pub(crate) async fn answer<K: Send>(
    tablets: &TabletServer,
    keep_closed: impl Fn(&[TabletId]) -> ServiceResult<K> + Send + Sync,
    call: TabletCall,
) -> ServiceResult<Bytes> {
    check_free(tablets, &call)?;
    match call {
        TabletCall::Create { schema, tablets: new } => done(tablets.create_tablets(schema, new).await),
        TabletCall::Drop(dropped) => {
            tablets.drop_tablets(dropped).await;
            done(Ok(()))
        }
        TabletCall::Unsettled(tablet, version) => codec::encode(&tablets.unsettled(tablet, version).await?),
        TabletCall::DropRows {
            tablet,
            epoch,
            number,
            range,
        } => done(tablets.drop_rows_in_order(tablet, (epoch, number), range).await),
        TabletCall::Flush(tablet) => done(tablets.flush(tablet).await),
        TabletCall::Compact { tablet, major } => done(tablets.compact(tablet, major).await),
        TabletCall::Compaction(tablet) => codec::encode(&tablets.compaction(tablet).await?),
        TabletCall::SplitCandidates(policy) => codec::encode(&tablets.split_candidates(&policy).await),
        TabletCall::PrepareSplit { tablet, halves, at } => {
            let _alone = keep_closed(std::slice::from_ref(&tablet))?;
            let row = tablets.prepare_split(tablet, halves, at).await?;
            codec::encode(&(row, tablets.preparation_of(tablet)))
        }
        TabletCall::PrepareMerge { tablets: old, merged } => {
            let first = first(&old)?;
            let _alone = keep_closed(&old)?;
            tablets.prepare_merge(old, merged).await?;
            number(tablets, first)
        }
        TabletCall::PrepareTruncation {
            schema,
            tablets: old,
            empty,
        } => {
            let first = first(&old)?;
            let _closed = keep_closed(&old)?;
            tablets.prepare_truncation(schema, old, empty).await?;
            number(tablets, first)
        }
        TabletCall::FlushUnder { tablet, epoch } => done(tablets.flush_for_snapshot(tablet, epoch).await),
        TabletCall::Clone {
            schema,
            snapshot,
            tablets: new,
        } => done(tablets.clone_some(schema, snapshot, &new).await),
        TabletCall::PrepareRestore {
            schema,
            snapshot,
            old,
            new,
        } => {
            let first = first(&old)?;
            let _closed = keep_closed(&old)?;
            tablets.prepare_restore_of(schema, snapshot, old, &new).await?;
            number(tablets, first)
        }
    }
}

/// Refuses to prepare a replacement of a tablet of which another one is prepared. The answer to that was lost; the leader ends it
/// first. A second one would wait for a gate that the first holds, with all changes of tables behind it.
fn check_free(tablets: &TabletServer, call: &TabletCall) -> ServiceResult<()> {
    let replaced: &[TabletId] = match call {
        TabletCall::PrepareSplit { tablet, .. } => std::slice::from_ref(tablet),
        TabletCall::PrepareMerge { tablets, .. } | TabletCall::PrepareTruncation { tablets, .. } => tablets,
        TabletCall::PrepareRestore { old, .. } => old,
        _ => &[],
    };
    match replaced.iter().find(|tablet| tablets.is_being_replaced(**tablet)) {
        Some(tablet) => {
            let message = format!("another replacement of tablet {tablet} has no outcome yet");
            Err(ServiceError::new(ErrorKind::Busy, message))
        }
        None => Ok(()),
    }
}

fn first(tablets: &[TabletId]) -> ServiceResult<TabletId> {
    let first = tablets.first().copied();
    first.ok_or_else(|| ServiceError::invalid("a replacement without tablets that are replaced"))
}

/// The number of a replacement that was prepared just now.
fn number(tablets: &TabletServer, first: TabletId) -> ServiceResult<Bytes> {
    let number = tablets.preparation_of(first);
    let ended = || ServiceError::new(ErrorKind::Aborted, "the preparation was ended by another leader");
    codec::encode(&number.ok_or_else(ended)?)
}

fn done(result: ServiceResult<()>) -> ServiceResult<Bytes> {
    // An error is that of the call itself.
    result?;
    let nothing: Outcome = outcome(Ok(()));
    codec::encode(&nothing)
}
