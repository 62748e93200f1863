//! Instances: `google.bigtable.admin.v2.BigtableInstanceAdmin`. Clusters and app profiles are in modules of their own;
//! the trait's methods for them only delegate.
//!
//! Clusters describe what the client asked for; they place no data and start no servers.

use crate::context::Context;
use crate::instance_data::{InstanceData, cluster_record};
use crate::names::{InstanceName, check_resource_id, parse_project};
use crate::operations::Typed;
use crate::pb::admin;
use crate::pb::longrunning::Operation;
use crate::pb::stubs::bigtable_instance_admin_server::BigtableInstanceAdmin;
use crate::status::{already_exists, invalid, status};
use prost::Message as _;
use std::collections::HashMap;
use std::sync::Arc;
use stele_types::ErrorKind;
use tonic::{Request, Response, Status};

/// Bytes of an instance's record: far more than labels, clusters and profiles of a real one take.
const INSTANCE_DATA_BYTES_MAX: usize = 256 << 10;

/// Serves instance administration.
pub(crate) struct InstanceAdminService(pub Arc<Context>);

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl BigtableInstanceAdmin for InstanceAdminService {
    async fn create_instance(&self, request: Request<admin::CreateInstanceRequest>) -> Answer<Operation> {
        let request = request.into_inner();
        let project = parse_project(&request.parent)?;
        check_resource_id("instance", &request.instance_id)?;
        let name = InstanceName {
            project,
            instance: request.instance_id.clone(),
        };
        let mut instance = request.instance.clone().unwrap_or_default();
        instance.name.clear();
        instance.create_time = Some(self.0.timestamp());
        let data = InstanceData {
            instance: Some(instance),
            clusters: cluster_records(request.clusters.clone())?,
            app_profiles: Vec::new(),
        };
        check_size(&data)?;
        let request_time = Some(self.0.timestamp());
        let (admin, instance, bytes) = (self.0.admin.clone(), name.instance.clone(), data.encode_to_vec());
        let write = async move { admin.create_namespace(&instance, bytes).await };
        let turn = self.0.instance_turn().await;
        let created = self.0.write_instance(turn, write).await;
        created.map_err(|error| match error.kind {
            ErrorKind::AlreadyExists => already_exists(format!("instance \"{name}\" already exists")),
            _ => status(error),
        })?;
        let metadata = admin::CreateInstanceMetadata {
            original_request: Some(request),
            request_time,
            finish_time: Some(self.0.timestamp()),
        };
        Ok(Response::new(self.0.done(
            &name.to_string(),
            Typed {
                name: "Instance",
                message: &data.instance(&name),
            },
            Typed {
                name: "CreateInstanceMetadata",
                message: &metadata,
            },
        )))
    }

    async fn get_instance(&self, request: Request<admin::GetInstanceRequest>) -> Answer<admin::Instance> {
        let name = InstanceName::parse(&request.get_ref().name)?;
        Ok(Response::new(self.0.existing_instance(&name).await?.instance(&name)))
    }

    async fn list_instances(
        &self,
        request: Request<admin::ListInstancesRequest>,
    ) -> Answer<admin::ListInstancesResponse> {
        let project = parse_project(&request.get_ref().parent)?;
        let instances = self
            .0
            .instances()
            .await?
            .into_iter()
            .map(|(instance, data)| {
                data.instance(&InstanceName {
                    project: project.clone(),
                    instance,
                })
            })
            .collect();
        Ok(Response::new(admin::ListInstancesResponse {
            instances,
            ..Default::default()
        }))
    }

    async fn update_instance(&self, request: Request<admin::Instance>) -> Answer<admin::Instance> {
        let update = request.into_inner();
        let paths = ["display_name", "type", "labels"].map(str::to_owned);
        self.0.update_instance(update, &paths).await.map(Response::new)
    }

    async fn partial_update_instance(
        &self,
        request: Request<admin::PartialUpdateInstanceRequest>,
    ) -> Answer<Operation> {
        let request = request.into_inner();
        let request_time = Some(self.0.timestamp());
        let update = request
            .instance
            .clone()
            .ok_or_else(|| invalid("instance must be set"))?;
        let paths = request.update_mask.clone().unwrap_or_default().paths;
        let instance = self.0.update_instance(update, &paths).await?;
        let metadata = admin::UpdateInstanceMetadata {
            original_request: Some(request),
            request_time,
            finish_time: Some(self.0.timestamp()),
        };
        Ok(Response::new(self.0.done(
            &instance.name,
            Typed {
                name: "Instance",
                message: &instance,
            },
            Typed {
                name: "UpdateInstanceMetadata",
                message: &metadata,
            },
        )))
    }

    async fn delete_instance(&self, request: Request<admin::DeleteInstanceRequest>) -> Answer<()> {
        let name = InstanceName::parse(&request.get_ref().name)?;
        let (admin, instance) = (self.0.admin.clone(), name.instance.clone());
        let write = async move { admin.delete_namespace(&instance).await };
        let turn = self.0.instance_turn().await;
        let deleted = self.0.write_instance(turn, write).await;
        deleted.map(Response::new).map_err(|error| match error.kind {
            ErrorKind::NotFound => name.not_found(),
            _ => status(error),
        })
    }

    async fn create_cluster(&self, request: Request<admin::CreateClusterRequest>) -> Answer<Operation> {
        self.0.create_cluster(request.into_inner()).await.map(Response::new)
    }

    async fn get_cluster(&self, request: Request<admin::GetClusterRequest>) -> Answer<admin::Cluster> {
        self.0.get_cluster(&request.get_ref().name).await.map(Response::new)
    }

    async fn list_clusters(&self, request: Request<admin::ListClustersRequest>) -> Answer<admin::ListClustersResponse> {
        let clusters = self.0.list_clusters(&request.get_ref().parent).await?;
        Ok(Response::new(admin::ListClustersResponse {
            clusters,
            ..Default::default()
        }))
    }

    async fn update_cluster(&self, request: Request<admin::Cluster>) -> Answer<Operation> {
        self.0.update_cluster(request.into_inner()).await.map(Response::new)
    }

    async fn partial_update_cluster(&self, request: Request<admin::PartialUpdateClusterRequest>) -> Answer<Operation> {
        self.0
            .partial_update_cluster(request.into_inner())
            .await
            .map(Response::new)
    }

    async fn delete_cluster(&self, request: Request<admin::DeleteClusterRequest>) -> Answer<()> {
        self.0.delete_cluster(&request.get_ref().name).await.map(Response::new)
    }

    async fn create_app_profile(&self, request: Request<admin::CreateAppProfileRequest>) -> Answer<admin::AppProfile> {
        self.0.create_app_profile(request.into_inner()).await.map(Response::new)
    }

    async fn get_app_profile(&self, request: Request<admin::GetAppProfileRequest>) -> Answer<admin::AppProfile> {
        self.0.get_app_profile(&request.get_ref().name).await.map(Response::new)
    }

    async fn list_app_profiles(
        &self,
        request: Request<admin::ListAppProfilesRequest>,
    ) -> Answer<admin::ListAppProfilesResponse> {
        let app_profiles = self.0.list_app_profiles(&request.get_ref().parent).await?;
        Ok(Response::new(admin::ListAppProfilesResponse {
            app_profiles,
            ..Default::default()
        }))
    }

    async fn update_app_profile(&self, request: Request<admin::UpdateAppProfileRequest>) -> Answer<Operation> {
        self.0.update_app_profile(request.into_inner()).await.map(Response::new)
    }

    async fn delete_app_profile(&self, request: Request<admin::DeleteAppProfileRequest>) -> Answer<()> {
        self.0
            .delete_app_profile(&request.get_ref().name)
            .await
            .map(Response::new)
    }
}

impl Context {
    async fn update_instance(&self, update: admin::Instance, paths: &[String]) -> Result<admin::Instance, Status> {
        let name = InstanceName::parse(&update.name)?;
        if paths.is_empty() {
            return Err(invalid("update_mask must name at least one field"));
        }
        self.change_instance(&name, |data| {
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
}

/// Refuses a record that has grown out of proportion.
pub(crate) fn check_size(data: &InstanceData) -> Result<(), Status> {
    let bytes = data.encoded_len();
    if bytes <= INSTANCE_DATA_BYTES_MAX {
        return Ok(());
    }
    Err(invalid(format!(
        "The instance's record would have {bytes} bytes, the limit is {INSTANCE_DATA_BYTES_MAX}"
    )))
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
