//! Handlers of the calls for clusters.
//!
//! Clusters of an instance are records that are stored and returned. They describe the client's wishes, place no data
//! and start no servers.

use crate::accounting::Call;
use crate::autoscaling;
use crate::context::Context;
use crate::instance_data::{InstanceData, check_size, cluster_proto, cluster_record};
use crate::masks;
use crate::names::{InstanceName, check_resource_id, parse_child};
use crate::operation_log::Typed;
use crate::pb::admin;
use crate::pb::longrunning::Operation;
use crate::status::{self, invalid};
use tonic::Status;

const COLLECTION: &str = "clusters";

pub(crate) async fn create_cluster(
    context: &Context,
    call: &Call,
    request: admin::CreateClusterRequest,
) -> Result<Operation, Status> {
    let instance = InstanceName::parse(&request.parent)?;
    let id = request.cluster_id.clone();
    check_resource_id("cluster", &id)?;
    let request_time = Some(context.timestamp());
    let asked = request.cluster.as_ref().map_or(0, |cluster| cluster.serve_nodes);
    let record = cluster_record(&id, request.cluster.clone().unwrap_or_default());
    let cluster = context
        .change_instance(call, &instance, |data| {
            let mut clusters = data.clusters();
            if clusters.iter().any(|cluster| cluster.name == id) {
                return Err(Status::already_exists(format!("cluster {id:?} already exists")));
            }
            clusters.push(record.clone());
            clusters.sort_by(|a, b| a.name.cmp(&b.name));
            data.clusters = clusters;
            check_size(data)?;
            Ok(created(cluster_proto(&instance, record.clone()), asked))
        })
        .await?;
    let metadata = admin::CreateClusterMetadata {
        original_request: Some(request),
        request_time,
        finish_time: Some(context.timestamp()),
        ..Default::default()
    };
    Ok(done_cluster(
        context,
        call,
        &cluster,
        Typed {
            name: "CreateClusterMetadata",
            message: &metadata,
        },
    ))
}

/// A cluster as the answer to the call that makes it. Autoscaling gives it nodes after that.
fn created(cluster: admin::Cluster, asked: i32) -> admin::Cluster {
    let serve_nodes = match autoscaling::of(&cluster) {
        Some(_) => asked,
        None => cluster.serve_nodes,
    };
    admin::Cluster { serve_nodes, ..cluster }
}

pub(crate) async fn get_cluster(
    context: &Context,
    call: &Call,
    request: admin::GetClusterRequest,
) -> Result<admin::Cluster, Status> {
    let name = &request.name;
    let (instance, id) = parse_child(name, COLLECTION)?;
    let clusters = context.existing_instance(call, &instance).await?.clusters();
    let found = clusters.into_iter().find(|cluster| cluster.name == id);
    found
        .map(|cluster| cluster_proto(&instance, cluster))
        .ok_or_else(|| not_found(name))
}

pub(crate) async fn list_clusters(
    context: &Context,
    call: &Call,
    request: admin::ListClustersRequest,
) -> Result<admin::ListClustersResponse, Status> {
    let name = InstanceName::parse(&request.parent)?;
    let instances = context.named_instances(call, &name).await?;
    let clusters = instances.iter().flat_map(|(name, data)| protos(name, data));
    Ok(admin::ListClustersResponse {
        clusters: clusters.collect(),
        ..Default::default()
    })
}

pub(crate) async fn update_cluster(
    context: &Context,
    call: &Call,
    cluster: admin::Cluster,
) -> Result<Operation, Status> {
    let request_time = Some(context.timestamp());
    let updated = change_cluster(context, call, cluster.clone(), &["serve_nodes".to_owned()]).await?;
    let metadata = admin::UpdateClusterMetadata {
        original_request: Some(cluster),
        request_time,
        finish_time: Some(context.timestamp()),
    };
    Ok(done_cluster(
        context,
        call,
        &updated,
        Typed {
            name: "UpdateClusterMetadata",
            message: &metadata,
        },
    ))
}

pub(crate) async fn partial_update_cluster(
    context: &Context,
    call: &Call,
    request: admin::PartialUpdateClusterRequest,
) -> Result<Operation, Status> {
    let request_time = Some(context.timestamp());
    let cluster = request.cluster.clone().ok_or_else(|| invalid("cluster must be set"))?;
    let paths = masks::some_paths(request.update_mask.clone())?;
    let updated = change_cluster(context, call, cluster, &paths).await?;
    let metadata = admin::PartialUpdateClusterMetadata {
        original_request: Some(request),
        request_time,
        finish_time: Some(context.timestamp()),
    };
    Ok(done_cluster(
        context,
        call,
        &updated,
        Typed {
            name: "PartialUpdateClusterMetadata",
            message: &metadata,
        },
    ))
}

pub(crate) async fn delete_cluster(
    context: &Context,
    call: &Call,
    request: admin::DeleteClusterRequest,
) -> Result<(), Status> {
    let name = &request.name;
    let (instance, id) = parse_child(name, COLLECTION)?;
    context
        .change_instance(call, &instance, |data| {
            let mut clusters = data.clusters();
            let before = clusters.len();
            clusters.retain(|cluster| cluster.name != id);
            if clusters.len() == before {
                return Err(not_found(name));
            }
            if clusters.is_empty() {
                return Err(Status::failed_precondition(
                    "The last cluster of an instance cannot be deleted",
                ));
            }
            data.clusters = clusters;
            Ok(())
        })
        .await
}

async fn change_cluster(
    context: &Context,
    call: &Call,
    update: admin::Cluster,
    paths: &[String],
) -> Result<admin::Cluster, Status> {
    let (instance, id) = parse_child(&update.name, COLLECTION)?;
    context
        .change_instance(call, &instance, |data| {
            let mut clusters = data.clusters();
            let cluster = clusters
                .iter_mut()
                .find(|cluster| cluster.name == id)
                .ok_or_else(|| not_found(&update.name))?;
            for path in paths {
                match path.as_str() {
                    "serve_nodes" => cluster.serve_nodes = update.serve_nodes,
                    path => autoscaling::update(cluster, &update, path)?,
                }
            }
            autoscaling::apply(cluster);
            let shown = cluster_proto(&instance, cluster.clone());
            data.clusters = clusters;
            check_size(data)?;
            Ok(shown)
        })
        .await
}

fn done_cluster<M: prost::Message>(
    context: &Context,
    call: &Call,
    cluster: &admin::Cluster,
    metadata: Typed<'_, M>,
) -> Operation {
    context.done(
        call,
        &cluster.name,
        Typed {
            name: "Cluster",
            message: cluster,
        },
        metadata,
    )
}

fn protos(instance: &InstanceName, data: &InstanceData) -> impl Iterator<Item = admin::Cluster> {
    let clusters = data.clusters().into_iter();
    clusters.map(|cluster| cluster_proto(instance, cluster))
}

fn not_found(name: &str) -> Status {
    status::not_found(format!("cluster {name:?} not found"))
}
