//! Positions of switches, and the work that they are for.

use crate::call::{Call, Reply};
use crate::failure::{Failure, Outcome};
use crate::front_end::Shared;
use crate::switches::Switch;
use stele_wire::messages::{
    BalanceResponse, IsSplitOrMergeEnabledRequest, MasterSwitchType, OneBool, RunCatalogScanResponse,
    SetSplitOrMergeEnabledRequest, SetSplitOrMergeEnabledResponse, SetSwitchRequest,
};

/// Serves a call about switches; `None` if it is another one.
pub(super) fn positions(shared: &Shared, call: &Call, method: &[u8]) -> Option<Outcome<Reply>> {
    let switches = &shared.switches;
    Some(match method {
        b"SetBalancerRunning" => set(call, &switches.balancer),
        b"IsBalancerEnabled" => tell(call, switches.balancer.is_on()),
        // There is one server, so regions are balanced when the balancer has run.
        b"Balance" => call.reply(&BalanceResponse {
            balancer_ran: switches.balancer.is_on(),
            moves_calculated: Some(0),
            moves_executed: Some(0),
        }),
        b"SetSplitOrMergeEnabled" => set_split_or_merge(shared, call),
        b"IsSplitOrMergeEnabled" => is_split_or_merge(shared, call),
        b"SetNormalizerRunning" => set(call, &switches.normalizer),
        b"IsNormalizerEnabled" => tell(call, switches.normalizer.is_on()),
        // Tablets are split by size, and by nothing else.
        b"Normalize" => tell(call, false),
        b"EnableCatalogJanitor" => set(call, &switches.catalog_janitor),
        b"IsCatalogJanitorEnabled" => tell(call, switches.catalog_janitor.is_on()),
        b"RunCatalogScan" => call.reply(&RunCatalogScanResponse { scan_result: Some(0) }),
        b"SetCleanerChoreRunning" => set(call, &switches.cleaner),
        b"IsCleanerChoreEnabled" => tell(call, switches.cleaner.is_on()),
        // Files that nobody needs are removed immediately, and not by a chore.
        b"RunCleanerChore" => tell(call, switches.cleaner.is_on()),
        b"SwitchSnapshotCleanup" => set(call, &switches.snapshot_cleanup),
        b"IsSnapshotCleanupEnabled" => tell(call, switches.snapshot_cleanup.is_on()),
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

fn split_or_merge(shared: &Shared, kind: i32) -> Outcome<&Switch> {
    match MasterSwitchType::try_from(kind) {
        Ok(MasterSwitchType::Split) => Ok(&shared.switches.splits),
        Ok(MasterSwitchType::Merge) => Ok(&shared.switches.merges),
        Err(_) => Err(Failure::do_not_retry(format!("There is no switch of kind {kind}"))),
    }
}

fn set_split_or_merge(shared: &Shared, call: &Call) -> Outcome<Reply> {
    let request: SetSplitOrMergeEnabledRequest = call.message("SetSplitOrMergeEnabledRequest")?;
    let switches = request.switch_types.iter().map(|kind| split_or_merge(shared, *kind));
    let switches = switches.collect::<Outcome<Vec<&Switch>>>()?;
    call.reply(&SetSplitOrMergeEnabledResponse {
        prev_value: switches.into_iter().map(|switch| switch.set(request.enabled)).collect(),
    })
}

fn is_split_or_merge(shared: &Shared, call: &Call) -> Outcome<Reply> {
    let request: IsSplitOrMergeEnabledRequest = call.message("IsSplitOrMergeEnabledRequest")?;
    tell(call, split_or_merge(shared, request.switch_type)?.is_on())
}
