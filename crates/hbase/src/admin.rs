//! Serves `AdminService`: calls about single regions and about the server that has them.

mod regions;
mod replication;
mod server;

use crate::call::{Call, Reply};
use crate::failure::{Failure, Outcome};
use crate::front_end::Shared;
use crate::log_entries;

/// Serves a call.
pub(crate) async fn admin(shared: &Shared, call: &Call, method: &[u8]) -> Outcome<Reply> {
    match method {
        b"FlushRegion" => regions::flush(shared, call).await,
        b"CompactRegion" => regions::compact(shared, call).await,
        b"GetRegionInfo" => regions::info(shared, call).await,
        b"GetRegionLoad" => server::region_load(shared, call).await,
        b"GetOnlineRegion" => server::online_regions(shared, call).await,
        b"ReplicateWALEntry" => replication::replicate(shared, call).await,
        b"GetServerInfo" => server::info(shared, call),
        b"RollWALWriter" => server::roll_log(call),
        b"ClearRegionBlockCache" => server::clear_block_cache(call),
        b"CompactionSwitch" => server::compaction_switch(call),
        // These have nothing to do here: settings are read at start, queues are short, there is no slow log, and no
        // quotas or caches of files.
        b"UpdateConfiguration"
        | b"ClearCompactionQueues"
        | b"GetSlowLogResponses"
        | b"GetLargeLogResponses"
        | b"GetSpaceQuotaSnapshots"
        | b"GetCachedFilesList" => call.reply(&stele_wire::messages::Empty {}),
        b"GetLogEntries" => log_entries::log_entries(call),
        b"ClearSlowLogsResponses" => call.reply(&stele_wire::messages::OneBool { value: false }),
        _ => Err(Failure::not_served(format!("AdminService.{}", method.escape_ascii()))),
    }
}
