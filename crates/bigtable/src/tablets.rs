//! Handlers of `stele.admin.v1.Cluster` about tablets, which a single server has as well.

use crate::accounting::Call;
use crate::context::{Context, table_status};
use crate::names::TableResource;
use crate::pb::own as pb;
use crate::status::{invalid, status};
use bytes::Bytes;
use stele_types::{Switches, SwitchesChange, TabletId};
use tonic::Status;

pub(crate) async fn split_tablet(
    context: &Context,
    _: &Call,
    request: pb::SplitTabletRequest,
) -> Result<pb::SplitTabletResponse, Status> {
    let table = TableResource::parse(&request.name)?;
    let row = Some(Bytes::from(request.row)).filter(|row| !row.is_empty());
    let tablet = match (request.tablet, &row) {
        (0, None) => return Err(invalid("give a tablet, or a row to split at")),
        (0, Some(row)) => {
            let place = context.service.place_of(&table.name, row);
            place.map_err(|error| table_status(&table, error))?.id
        }
        (tablet, _) => TabletId(tablet),
    };
    let (left, right) = context.admin.split(&table.name, tablet, row).await.map_err(status)?;
    Ok(pb::SplitTabletResponse {
        left: left.0,
        right: right.0,
    })
}

pub(crate) async fn merge_tablets(
    context: &Context,
    _: &Call,
    request: pb::MergeTabletsRequest,
) -> Result<pb::MergeTabletsResponse, Status> {
    let table = TableResource::parse(&request.name)?;
    let tablets = request.tablets.into_iter().map(TabletId).collect();
    let merged = context.admin.merge(&table.name, tablets).await.map_err(status)?;
    Ok(pb::MergeTabletsResponse { tablet: merged.0 })
}

pub(crate) async fn get_switches(
    context: &Context,
    _: &Call,
    _: pb::GetSwitchesRequest,
) -> Result<pb::Switches, Status> {
    context.admin.switches().await.map(shown).map_err(status)
}

pub(crate) async fn set_switches(
    context: &Context,
    _: &Call,
    request: pb::SetSwitchesRequest,
) -> Result<pb::Switches, Status> {
    let change = SwitchesChange {
        balance: request.balance,
        split: request.split,
        merge: request.merge,
        snapshot_cleanup: request.snapshot_cleanup,
    };
    context.admin.set_switches(change).await.map(shown).map_err(status)
}

fn shown(switches: Switches) -> pb::Switches {
    pb::Switches {
        balance: switches.balance,
        split: switches.split,
        merge: switches.merge,
        snapshot_cleanup: Some(switches.snapshot_cleanup),
    }
}
