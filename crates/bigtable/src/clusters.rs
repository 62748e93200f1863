//! Clusters of an instance: records that are kept and shown, without effect on where data lives.

use crate::context::Context;
use crate::instance_data::{InstanceData, cluster_proto, cluster_record};
use crate::instances::check_size;
use crate::names::{InstanceName, check_resource_id, parse_child};
use crate::operations::Typed;
use crate::pb::admin;
use crate::pb::longrunning::Operation;
use crate::status::{self, invalid};
use tonic::Status;

const COLLECTION: &str = "clusters";

/// In place of an instance id: all instances.
const ANY_INSTANCE: &str = "-";

impl Context {
    pub async fn create_cluster(&self, request: admin::CreateClusterRequest) -> Result<Operation, Status> {
        let instance = InstanceName::parse(&request.parent)?;
        let id = request.cluster_id.clone();
        check_resource_id("cluster", &id)?;
        let request_time = Some(self.timestamp());
        let record = cluster_record(&id, request.cluster.clone().unwrap_or_default());
        let cluster = self
            .change_instance(&instance, |data| {
                let mut clusters = data.clusters();
                if clusters.iter().any(|cluster| cluster.name == id) {
                    return Err(Status::already_exists(format!("cluster {id:?} already exists")));
                }
                clusters.push(record.clone());
                clusters.sort_by(|a, b| a.name.cmp(&b.name));
                data.clusters = clusters;
                check_size(data)?;
                Ok(cluster_proto(&instance, record))
            })
            .await?;
        let metadata = admin::CreateClusterMetadata {
            original_request: Some(request),
            request_time,
            finish_time: Some(self.timestamp()),
            ..Default::default()
        };
        Ok(self.done_cluster(
            &cluster,
            Typed {
                name: "CreateClusterMetadata",
                message: &metadata,
            },
        ))
    }

    pub async fn get_cluster(&self, name: &str) -> Result<admin::Cluster, Status> {
        let (instance, id) = parse_child(name, COLLECTION)?;
        let clusters = self.existing_instance(&instance).await?.clusters();
        let found = clusters.into_iter().find(|cluster| cluster.name == id);
        found
            .map(|cluster| cluster_proto(&instance, cluster))
            .ok_or_else(|| not_found(name))
    }

    pub async fn list_clusters(&self, parent: &str) -> Result<Vec<admin::Cluster>, Status> {
        let name = InstanceName::parse(parent)?;
        if name.instance != ANY_INSTANCE {
            let data = self.existing_instance(&name).await?;
            return Ok(protos(&name, &data));
        }
        let instances = self.instances().await?;
        Ok(instances
            .into_iter()
            .flat_map(|(instance, data)| {
                protos(
                    &InstanceName {
                        project: name.project.clone(),
                        instance,
                    },
                    &data,
                )
            })
            .collect())
    }

    pub async fn update_cluster(&self, cluster: admin::Cluster) -> Result<Operation, Status> {
        let request_time = Some(self.timestamp());
        let updated = self
            .change_cluster(cluster.clone(), &["serve_nodes".to_owned()])
            .await?;
        let metadata = admin::UpdateClusterMetadata {
            original_request: Some(cluster),
            request_time,
            finish_time: Some(self.timestamp()),
        };
        Ok(self.done_cluster(
            &updated,
            Typed {
                name: "UpdateClusterMetadata",
                message: &metadata,
            },
        ))
    }

    pub async fn partial_update_cluster(
        &self,
        request: admin::PartialUpdateClusterRequest,
    ) -> Result<Operation, Status> {
        let request_time = Some(self.timestamp());
        let cluster = request.cluster.clone().ok_or_else(|| invalid("cluster must be set"))?;
        let paths = request.update_mask.clone().unwrap_or_default().paths;
        let updated = self.change_cluster(cluster, &paths).await?;
        let metadata = admin::PartialUpdateClusterMetadata {
            original_request: Some(request),
            request_time,
            finish_time: Some(self.timestamp()),
        };
        Ok(self.done_cluster(
            &updated,
            Typed {
                name: "PartialUpdateClusterMetadata",
                message: &metadata,
            },
        ))
    }

    pub async fn delete_cluster(&self, name: &str) -> Result<(), Status> {
        let (instance, id) = parse_child(name, COLLECTION)?;
        self.change_instance(&instance, |data| {
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

    async fn change_cluster(&self, update: admin::Cluster, paths: &[String]) -> Result<admin::Cluster, Status> {
        let (instance, id) = parse_child(&update.name, COLLECTION)?;
        if paths.is_empty() {
            return Err(invalid("update_mask must name at least one field"));
        }
        self.change_instance(&instance, |data| {
            let mut clusters = data.clusters();
            let cluster = clusters
                .iter_mut()
                .find(|cluster| cluster.name == id)
                .ok_or_else(|| not_found(&update.name))?;
            for path in paths {
                match path.split('.').next() {
                    Some("serve_nodes") => cluster.serve_nodes = update.serve_nodes,
                    Some("cluster_config") => cluster.config.clone_from(&update.config),
                    _ => {
                        return Err(invalid(format!("incorrect path in update_mask; got: {path}")));
                    }
                }
            }
            let shown = cluster_proto(&instance, cluster.clone());
            data.clusters = clusters;
            check_size(data)?;
            Ok(shown)
        })
        .await
    }

    fn done_cluster<M: prost::Message>(&self, cluster: &admin::Cluster, metadata: Typed<'_, M>) -> Operation {
        self.done(
            &cluster.name,
            Typed {
                name: "Cluster",
                message: cluster,
            },
            metadata,
        )
    }
}

fn protos(instance: &InstanceName, data: &InstanceData) -> Vec<admin::Cluster> {
    data.clusters()
        .into_iter()
        .map(|cluster| cluster_proto(instance, cluster))
        .collect()
}

fn not_found(name: &str) -> Status {
    status::not_found(format!("cluster {name:?} not found"))
}
