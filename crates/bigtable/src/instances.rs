//! Handlers of `google.bigtable.admin.v2.BigtableInstanceAdmin` for instances.
//!
//! Its calls for clusters and app profiles are in [`crate::clusters`] and [`crate::app_profiles`].

use crate::accounting::Call;
use crate::context::Context;
use crate::instance_data::{InstanceData, check_size, cluster_record};
use crate::masks;
use crate::names::{InstanceName, check_resource_id, parse_project};
use crate::operation_log::Typed;
use crate::pb::admin;
use crate::pb::longrunning::Operation;
use crate::status::{already_exists, invalid, status};
use prost::Message as _;
use std::collections::HashMap;
use stele_types::ErrorKind;
use tonic::Status;

pub(crate) async fn create_instance(
    context: &Context,
    call: &Call,
    request: admin::CreateInstanceRequest,
) -> Result<Operation, Status> {
    let project = parse_project(&request.parent)?;
    check_resource_id("instance", &request.instance_id)?;
    let name = InstanceName {
        project,
        instance: request.instance_id.clone(),
    };
    let mut instance = request.instance.clone().unwrap_or_default();
    instance.name.clear();
    instance.create_time = Some(context.timestamp());
    if name.is_reserved() {
        return Err(invalid(format!("instance id {:?} is reserved", request.instance_id)));
    }
    let data = InstanceData {
        instance: Some(instance),
        clusters: cluster_records(request.clusters.clone())?,
        app_profiles: Vec::new(),
        of_hbase: Vec::new(),
    };
    check_size(&data)?;
    let request_time = Some(context.timestamp());
    let (admin, instance, bytes) = (context.admin.clone(), name.instance.clone(), data.encode_to_vec());
    let write = async move { admin.create_namespace(&instance, bytes).await };
    let turn = context.instance_turn().await;
    let created = context.write_instance(turn, write).await;
    created.map_err(|error| match error.kind {
        ErrorKind::AlreadyExists => already_exists(format!("instance \"{name}\" already exists")),
        _ => status(error),
    })?;
    let metadata = admin::CreateInstanceMetadata {
        original_request: Some(request),
        request_time,
        finish_time: Some(context.timestamp()),
    };
    Ok(context.done(
        call,
        &name.to_string(),
        Typed {
            name: "Instance",
            message: &data.instance(&name),
        },
        Typed {
            name: "CreateInstanceMetadata",
            message: &metadata,
        },
    ))
}

pub(crate) async fn get_instance(
    context: &Context,
    call: &Call,
    request: admin::GetInstanceRequest,
) -> Result<admin::Instance, Status> {
    let name = InstanceName::parse(&request.name)?;
    Ok(context.existing_instance(call, &name).await?.instance(&name))
}

pub(crate) async fn list_instances(
    context: &Context,
    call: &Call,
    request: admin::ListInstancesRequest,
) -> Result<admin::ListInstancesResponse, Status> {
    let project = parse_project(&request.parent)?;
    let instances = context
        .instances(call)
        .await?
        .into_iter()
        .map(|(instance, data)| {
            data.instance(&InstanceName {
                project: project.clone(),
                instance,
            })
        })
        .collect();
    Ok(admin::ListInstancesResponse {
        instances,
        ..Default::default()
    })
}

pub(crate) async fn update_instance(
    context: &Context,
    call: &Call,
    request: admin::Instance,
) -> Result<admin::Instance, Status> {
    let update = request;
    let paths = ["display_name", "type", "labels"].map(str::to_owned);
    change_fields(context, call, update, &paths).await
}

pub(crate) async fn partial_update_instance(
    context: &Context,
    call: &Call,
    request: admin::PartialUpdateInstanceRequest,
) -> Result<Operation, Status> {
    let request_time = Some(context.timestamp());
    let update = request
        .instance
        .clone()
        .ok_or_else(|| invalid("instance must be set"))?;
    let paths = masks::some_paths(request.update_mask.clone())?;
    let instance = change_fields(context, call, update, &paths).await?;
    let metadata = admin::UpdateInstanceMetadata {
        original_request: Some(request),
        request_time,
        finish_time: Some(context.timestamp()),
    };
    Ok(context.done(
        call,
        &instance.name,
        Typed {
            name: "Instance",
            message: &instance,
        },
        Typed {
            name: "UpdateInstanceMetadata",
            message: &metadata,
        },
    ))
}

pub(crate) async fn delete_instance(
    context: &Context,
    _: &Call,
    request: admin::DeleteInstanceRequest,
) -> Result<(), Status> {
    let name = InstanceName::parse(&request.name)?;
    name.check_not_reserved()?;
    let (admin, instance) = (context.admin.clone(), name.instance.clone());
    let write = async move { admin.delete_namespace(&instance, false).await };
    let turn = context.instance_turn().await;
    let deleted = context.write_instance(turn, write).await;
    deleted.map_err(|error| match error.kind {
        // A lax name may be of an instance that exists, made by its first table.
        ErrorKind::NotFound => name.check().err().unwrap_or_else(|| name.not_found()),
        _ => status(error),
    })
}

/// Sets the fields of an instance that the mask names.
async fn change_fields(
    context: &Context,
    call: &Call,
    update: admin::Instance,
    paths: &[String],
) -> Result<admin::Instance, Status> {
    let name = InstanceName::parse(&update.name)?;
    context
        .change_instance(call, &name, |data| {
            let instance = data.instance.get_or_insert_default();
            for path in paths {
                match path.as_str() {
                    "display_name" => instance.display_name.clone_from(&update.display_name),
                    "type" => instance.r#type = update.r#type,
                    "labels" => instance.labels.clone_from(&update.labels),
                    other => {
                        return Err(invalid(format!("incorrect path in update_mask; got: {other}")));
                    }
                }
            }
            check_size(data)?;
            Ok(data.instance(&name))
        })
        .await
}

fn cluster_records(clusters: HashMap<String, admin::Cluster>) -> Result<Vec<admin::Cluster>, Status> {
    let mut records = Vec::with_capacity(clusters.len());
    for (id, cluster) in clusters {
        check_resource_id("cluster", &id)?;
        records.push(cluster_record(&id, cluster));
    }
    records.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(records)
}
