//! Handlers of `stele.admin.v1.LocalityGroups`, a service that the Bigtable API does not have.

use crate::accounting::Call;
use crate::context::{Context, table_status};
use crate::names::TableResource;
use crate::pb::own as pb;
use crate::status::{invalid, status};
use crate::table_protos::shown_bytes;
use stele_client::{GroupChange, GroupUpdate, TableGroups};
use stele_types::{Compression, GroupOptions};
use tonic::Status;

/// Names of codecs in requests and responses.
const COMPRESSIONS: [(&str, Compression); 4] = [
    ("none", Compression::None),
    ("lz4", Compression::Lz4),
    ("snappy", Compression::Snappy),
    ("zstd", Compression::Zstd),
];

pub(crate) async fn get_locality_groups(
    context: &Context,
    call: &Call,
    request: pb::GetLocalityGroupsRequest,
) -> Result<pb::LocalityGroupsResponse, Status> {
    let table = TableResource::parse(&request.name)?;
    let groups = context.admin.groups(&table.name).await;
    let groups = groups.map_err(|error| table_status(&table, error))?;
    call.charge(shown_bytes(&groups.schema))?;
    Ok(response(&groups))
}

pub(crate) async fn modify_locality_groups(
    context: &Context,
    call: &Call,
    request: pb::ModifyLocalityGroupsRequest,
) -> Result<pb::LocalityGroupsResponse, Status> {
    let table = TableResource::parse(&request.name)?;
    context.schema(&table)?;
    let changes = request
        .modifications
        .into_iter()
        .map(change)
        .collect::<Result<Vec<_>, _>>()?;
    // NOT_FOUND is about a group or a family here, so the service's own message is returned.
    let groups = context
        .admin
        .modify_groups(&table.name, changes)
        .await
        .map_err(status)?;
    call.charge_response(shown_bytes(&groups.schema));
    Ok(response(&groups))
}

pub(crate) fn change(modification: pb::Modification) -> Result<GroupChange, Status> {
    let pb::Modification { group: name, change } = modification;
    match change {
        Some(pb::Change::Create(options)) => Ok(GroupChange::Create {
            name,
            options: update(options)?,
        }),
        Some(pb::Change::Alter(options)) => Ok(GroupChange::Alter {
            name,
            options: update(options)?,
        }),
        Some(pb::Change::MoveFamily(family)) => Ok(GroupChange::MoveFamily { family, group: name }),
        None => Err(invalid(format!(
            "The modification of locality group {name:?} must have one of create, alter and move_family"
        ))),
    }
}

fn update(options: pb::Options) -> Result<GroupUpdate, Status> {
    let compression = |name: String| {
        let known = COMPRESSIONS.iter().find(|(known, _)| *known == name);
        known
            .map(|(_, compression)| *compression)
            .ok_or_else(|| invalid(format!("{name:?} is not a compression: none, lz4, snappy or zstd")))
    };
    let level = |level: u32| u8::try_from(level).map_err(|_| invalid(format!("zstd has no level {level}")));
    Ok(GroupUpdate {
        compression: options.compression.map(compression).transpose()?,
        zstd_level: options.zstd_level.map(level).transpose()?,
        dictionary_bytes: options.dictionary_bytes,
        block_bytes: options.block_bytes,
        filter_bits_per_row: options.filter_bits_per_row,
        in_memory: options.in_memory,
        file_bytes: options.file_bytes,
    })
}

fn response(groups: &TableGroups) -> pb::LocalityGroupsResponse {
    let TableGroups { schema, unsettled } = groups;
    let group = |group: &stele_types::LocalityGroup| {
        let own = || schema.families.iter().filter(|(_, family)| family.group == group.id);
        let arriving = own().filter(|(id, _)| unsettled.contains(id));
        pb::LocalityGroup {
            name: group.name.clone(),
            options: Some(options(&group.options)),
            families: own().map(|(_, family)| family.name.clone()).collect(),
            arriving: arriving.map(|(_, family)| family.name.clone()).collect(),
        }
    };
    pb::LocalityGroupsResponse {
        groups: schema.groups.iter().map(group).collect(),
    }
}

fn options(options: &GroupOptions) -> pb::Options {
    let name = COMPRESSIONS.iter().find(|(_, known)| *known == options.compression);
    let is_zstd = options.compression == Compression::Zstd;
    pb::Options {
        compression: name.map(|(name, _)| (*name).to_owned()),
        zstd_level: is_zstd.then_some(u32::from(options.zstd_level)),
        dictionary_bytes: is_zstd.then_some(options.dictionary_bytes),
        block_bytes: options.block_bytes,
        filter_bits_per_row: options.filter_bits_per_row,
        in_memory: Some(options.in_memory),
        file_bytes: options.file_bytes,
    }
}
