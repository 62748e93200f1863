//! Positions of switches, and the work that they are for.

use crate::call::{Call, Reply};
use crate::failure::{Failure, Outcome};
use crate::front_end::Shared;
use crate::switches::Switch;
use stele_types::{Switches, SwitchesChange};
use stele_wire::messages::{
    BalanceResponse, IsSplitOrMergeEnabledRequest, MasterSwitchType, OneBool, RunCatalogScanResponse,
    SetSplitOrMergeEnabledRequest, SetSplitOrMergeEnabledResponse, SetSwitchRequest,
};

/// Serves a call about switches; `None` if it is another one.
pub(super) async fn positions(shared: &Shared, call: &Call, method: &[u8]) -> Option<Outcome<Reply>> {
    Some(match method {
        b"SetBalancerRunning" => set_balancer(shared, call).await,
        b"IsBalancerEnabled" => is_on(shared, call, |switches| switches.balance).await,
        b"Balance" => balance(shared, call).await,
        b"SetSplitOrMergeEnabled" => set_split_or_merge(shared, call).await,
        b"IsSplitOrMergeEnabled" => is_split_or_merge(shared, call).await,
        b"SwitchSnapshotCleanup" => set_snapshot_cleanup(shared, call).await,
        b"IsSnapshotCleanupEnabled" => is_on(shared, call, |switches| switches.snapshot_cleanup).await,
        _ => return of_no_work(shared, call, method),
    })
}

/// The same of work that does not exist here.
fn of_no_work(shared: &Shared, call: &Call, method: &[u8]) -> Option<Outcome<Reply>> {
    let switches = &shared.switches;
    Some(match method {
        b"SetNormalizerRunning" => set(call, &switches.normalizer),
        b"IsNormalizerEnabled" => tell(call, switches.normalizer.is_on()),
        // Tablets are split and merged by size and load, all the time.
        b"Normalize" => tell(call, false),
        b"EnableCatalogJanitor" => set(call, &switches.catalog_janitor),
        b"IsCatalogJanitorEnabled" => tell(call, switches.catalog_janitor.is_on()),
        b"RunCatalogScan" => call.reply(&RunCatalogScanResponse { scan_result: Some(0) }),
        b"SetCleanerChoreRunning" => set(call, &switches.cleaner),
        b"IsCleanerChoreEnabled" => tell(call, switches.cleaner.is_on()),
        // Files that nobody needs are removed immediately, and not by a chore.
        b"RunCleanerChore" => tell(call, switches.cleaner.is_on()),
        b"IsRpcThrottleEnabled" => tell(call, false),
        _ => return None,
    })
}

fn set(call: &Call, switch: &Switch) -> Outcome<Reply> {
    let request: SetSwitchRequest = call.message("SetSwitchRequest")?;
    tell(call, switch.set(request.on))
}

fn tell(call: &Call, value: bool) -> Outcome<Reply> {
    call.reply(&OneBool { value })
}

async fn is_on(shared: &Shared, call: &Call, of: impl Fn(Switches) -> bool) -> Outcome<Reply> {
    tell(call, of(shared.admin.switches().await?))
}

async fn set_balancer(shared: &Shared, call: &Call) -> Outcome<Reply> {
    let request: SetSwitchRequest = call.message("SetSwitchRequest")?;
    let change = SwitchesChange {
        balance: Some(request.on),
        ..SwitchesChange::default()
    };
    tell(call, shared.admin.set_switches(change).await?.balance)
}

async fn set_snapshot_cleanup(shared: &Shared, call: &Call) -> Outcome<Reply> {
    let request: SetSwitchRequest = call.message("SetSnapshotCleanupRequest")?;
    let change = SwitchesChange {
        snapshot_cleanup: Some(request.on),
        ..SwitchesChange::default()
    };
    let former = shared.admin.set_switches(change).await?.snapshot_cleanup;
    if shared.admin.switches().await?.snapshot_cleanup != request.on {
        let message = "The leader of the cluster runs an earlier version, which deletes expired snapshots";
        return Err(Failure::do_not_retry(message));
    }
    tell(call, former)
}

/// Tablets are balanced all the time while the balancer is on, so there is nothing to do when a client asks for it.
async fn balance(shared: &Shared, call: &Call) -> Outcome<Reply> {
    call.reply(&BalanceResponse {
        balancer_ran: shared.admin.switches().await?.balance,
        moves_calculated: Some(0),
        moves_executed: Some(0),
    })
}

fn split_or_merge(kind: i32) -> Outcome<MasterSwitchType> {
    MasterSwitchType::try_from(kind).map_err(|_| Failure::do_not_retry(format!("There is no switch of kind {kind}")))
}

fn position(switches: Switches, kind: MasterSwitchType) -> bool {
    match kind {
        MasterSwitchType::Split => switches.split,
        MasterSwitchType::Merge => switches.merge,
    }
}

async fn set_split_or_merge(shared: &Shared, call: &Call) -> Outcome<Reply> {
    let request: SetSplitOrMergeEnabledRequest = call.message("SetSplitOrMergeEnabledRequest")?;
    let kinds = request.switch_types.iter().map(|kind| split_or_merge(*kind));
    let kinds = kinds.collect::<Outcome<Vec<MasterSwitchType>>>()?;
    let mut change = SwitchesChange::default();
    for kind in &kinds {
        match kind {
            MasterSwitchType::Split => change.split = Some(request.enabled),
            MasterSwitchType::Merge => change.merge = Some(request.enabled),
        }
    }
    let former = shared.admin.set_switches(change).await?;
    call.reply(&SetSplitOrMergeEnabledResponse {
        prev_value: kinds.into_iter().map(|kind| position(former, kind)).collect(),
    })
}

async fn is_split_or_merge(shared: &Shared, call: &Call) -> Outcome<Reply> {
    let request: IsSplitOrMergeEnabledRequest = call.message("IsSplitOrMergeEnabledRequest")?;
    let kind = split_or_merge(request.switch_type)?;
    is_on(shared, call, |switches| position(switches, kind)).await
}
