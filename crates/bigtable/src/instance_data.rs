//! The stored record of an instance: its properties, its clusters and its app profiles.
//!
//! An instance exists as soon as it has a table, so everything has a default. Names are stored as bare ids, because the
//! project is not part of an instance's identity here. The bytes are the namespace's front-end data: one `InstanceData`
//! message, evolved by protocol-buffer rules; numbers are never reused.

use crate::accounting::Call;
use crate::autoscaling;
use crate::context::Context;
use crate::limits::INSTANCE_COST_PER_BYTE;
use crate::names::{HBASE_NAMESPACE, InstanceName};
use crate::pb::admin;
use crate::status::{invalid, status};
use bytes::Bytes;
use prost::Message as _;
use std::sync::Arc;
use stele_client::ChangeAttempts;
use tonic::Status;

/// The cluster of an instance that names none.
pub(crate) const DEFAULT_CLUSTER: &str = "stele";

/// The app profile that every instance has.
pub(crate) const DEFAULT_APP_PROFILE: &str = "default";

/// Stands for all instances in place of an instance id.
const ANY_INSTANCE: &str = "-";

/// Bytes of an instance's record: far more than labels, clusters and profiles of a real one take.
const INSTANCE_DATA_BYTES_MAX: usize = 256 << 10;

/// Memory of an instance with an empty record: its default cluster and profile.
const DEFAULTS_BYTES: usize = 1 << 10;

/// Front-end data of a namespace.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct InstanceData {
    /// `name` is empty.
    #[prost(message, optional, tag = "1")]
    pub instance: Option<admin::Instance>,
    /// By name, which is a bare id. Empty stands for the default cluster.
    #[prost(message, repeated, tag = "2")]
    pub clusters: Vec<admin::Cluster>,
    /// By name, which is a bare id. The default profile is here only if it was changed.
    #[prost(message, repeated, tag = "3")]
    pub app_profiles: Vec<admin::AppProfile>,
    /// The part of the HBase front end, which is kept as it is.
    #[prost(bytes = "vec", tag = "100")]
    pub of_hbase: Vec<u8>,
}

impl InstanceData {
    /// The instance as the API shows it.
    pub fn instance(&self, name: &InstanceName) -> admin::Instance {
        let mut instance = self.instance.clone().unwrap_or_default();
        if instance.display_name.is_empty() {
            instance.display_name.clone_from(&name.instance);
        }
        if instance.r#type == admin::instance::Type::Unspecified as i32 {
            instance.r#type = admin::instance::Type::Production as i32;
        }
        instance.state = admin::instance::State::Ready as i32;
        instance.name = name.to_string();
        instance
    }

    /// Its clusters with bare names; never none.
    pub fn clusters(&self) -> Vec<admin::Cluster> {
        if self.clusters.is_empty() {
            return vec![cluster_record(DEFAULT_CLUSTER, admin::Cluster::default())];
        }
        self.clusters.clone()
    }

    /// Its app profiles with bare names; always with the default one.
    pub fn app_profiles(&self) -> Vec<admin::AppProfile> {
        let mut profiles = self.app_profiles.clone();
        if !profiles.iter().any(|profile| profile.name == DEFAULT_APP_PROFILE) {
            let cluster = self.clusters().into_iter().next().map(|cluster| cluster.name);
            profiles.insert(0, default_app_profile(cluster.unwrap_or_default()));
        }
        profiles
    }
}

/// A cluster as it is stored.
pub(crate) fn cluster_record(id: &str, cluster: admin::Cluster) -> admin::Cluster {
    let default_storage_type = match cluster.default_storage_type {
        0 => admin::StorageType::Ssd as i32,
        given => given,
    };
    let mut record = admin::Cluster {
        name: id.to_owned(),
        state: admin::cluster::State::Ready as i32,
        default_storage_type,
        ..cluster
    };
    autoscaling::apply(&mut record);
    record
}

/// A cluster as the API shows it.
pub(crate) fn cluster_proto(instance: &InstanceName, mut cluster: admin::Cluster) -> admin::Cluster {
    cluster.name = instance.cluster(&cluster.name);
    if cluster.location.is_empty() {
        cluster.location = format!("projects/{}/locations/local", instance.project);
    }
    cluster
}

/// How an app profile is isolated that says nothing of it.
pub(crate) fn default_isolation() -> admin::app_profile::Isolation {
    use admin::app_profile::{Isolation, Priority, StandardIsolation};
    Isolation::StandardIsolation(StandardIsolation {
        priority: Priority::High as i32,
    })
}

fn default_app_profile(cluster_id: String) -> admin::AppProfile {
    use admin::app_profile::{RoutingPolicy, SingleClusterRouting};
    let routing = SingleClusterRouting {
        cluster_id,
        allow_transactional_writes: true,
    };
    admin::AppProfile {
        name: DEFAULT_APP_PROFILE.to_owned(),
        description: "The default profile".to_owned(),
        routing_policy: Some(RoutingPolicy::SingleClusterRouting(routing)),
        isolation: Some(default_isolation()),
        ..admin::AppProfile::default()
    }
}

/// Refuses a record that has grown too large.
pub(crate) fn check_size(data: &InstanceData) -> Result<(), Status> {
    let bytes = data.encoded_len();
    if bytes <= INSTANCE_DATA_BYTES_MAX {
        return Ok(());
    }
    Err(invalid(format!(
        "The instance's record would have {bytes} bytes, the limit is {INSTANCE_DATA_BYTES_MAX}"
    )))
}

impl Context {
    /// The record of an instance; `None` when there is no such instance.
    pub async fn instance_data(&self, instance: &str) -> Result<Option<InstanceData>, Status> {
        match self.admin.namespace(instance).await.map_err(status)? {
            Some(bytes) if instance != HBASE_NAMESPACE => decode(instance, &bytes).map(Some),
            _ => Ok(None),
        }
    }

    /// The record of an instance that must exist. It is charged to the call, because most of it goes into the response.
    pub async fn existing_instance(&self, call: &Call, name: &InstanceName) -> Result<InstanceData, Status> {
        let bytes = self.existing_record(call, name).await?;
        decode(&name.instance, &bytes)
    }

    async fn existing_record(&self, call: &Call, name: &InstanceName) -> Result<Bytes, Status> {
        let bytes = self.admin.namespace(&name.instance).await.map_err(status)?;
        let bytes = bytes.filter(|_| !name.is_reserved());
        let bytes = bytes.ok_or_else(|| name.not_found())?;
        call.charge(bytes.len() * INSTANCE_COST_PER_BYTE)?;
        Ok(bytes)
    }

    /// All instances by name, charged to the call.
    pub async fn instances(&self, call: &Call) -> Result<Vec<(String, InstanceData)>, Status> {
        let mut namespaces = self.admin.list_namespaces().await.map_err(status)?;
        namespaces.retain(|(name, _)| name != HBASE_NAMESPACE);
        let bytes: usize = namespaces.iter().map(|(_, bytes)| bytes.len()).sum();
        call.charge(bytes * INSTANCE_COST_PER_BYTE + namespaces.len() * DEFAULTS_BYTES)?;
        namespaces
            .into_iter()
            .map(|(name, bytes)| decode(&name, &bytes).map(|data| (name, data)))
            .collect()
    }

    /// The instance of a name, or all instances for the id `-`. They are charged to the call.
    pub async fn named_instances(
        &self,
        call: &Call,
        name: &InstanceName,
    ) -> Result<Vec<(InstanceName, InstanceData)>, Status> {
        if name.instance != ANY_INSTANCE {
            let data = self.existing_instance(call, name).await?;
            return Ok(vec![(name.clone(), data)]);
        }
        let in_project = |instance| InstanceName {
            project: name.project.clone(),
            instance,
        };
        let all = self.instances(call).await?.into_iter();
        Ok(all.map(|(instance, data)| (in_project(instance), data)).collect())
    }

    /// Changes the record of an instance. Returns the closure's result when the change is durable. If another server has
    /// changed the record meanwhile, the closure is applied to the new one.
    pub async fn change_instance<T>(
        &self,
        call: &Call,
        name: &InstanceName,
        mut change: impl FnMut(&mut InstanceData) -> Result<T, Status> + Send,
    ) -> Result<T, Status> {
        let mut attempts = ChangeAttempts::default();
        loop {
            let turn = self.instance_turn().await;
            let former = self.existing_record(call, name).await?;
            let mut data = decode(&name.instance, &former)?;
            let result = change(&mut data)?;
            let (admin, instance) = (Arc::clone(&self.admin), name.instance.clone());
            let write = async move { admin.update_namespace(&instance, former, data.encode_to_vec()).await };
            match self.write_instance(turn, write).await {
                Ok(()) => return Ok(result),
                Err(error) => attempts.again(&self.env, error).await.map_err(status)?,
            }
        }
    }

    /// The ids of an instance's clusters.
    pub async fn cluster_ids(&self, instance: &str) -> Result<Vec<String>, Status> {
        let data = self.instance_data(instance).await?.unwrap_or_default();
        Ok(data.clusters().into_iter().map(|cluster| cluster.name).collect())
    }
}

pub(crate) fn decode(instance: &str, bytes: &[u8]) -> Result<InstanceData, Status> {
    InstanceData::decode(bytes)
        .map_err(|error| Status::data_loss(format!("The record of instance {instance:?} cannot be read: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_implicit_instance_has_defaults() {
        let name = InstanceName::parse("projects/p/instances/i").unwrap();
        let data = decode("i", b"").unwrap();
        let instance = data.instance(&name);
        assert_eq!(
            (instance.name.as_str(), instance.display_name.as_str()),
            ("projects/p/instances/i", "i")
        );
        assert_eq!(instance.state, admin::instance::State::Ready as i32);
        let cluster = cluster_proto(&name, data.clusters().remove(0));
        assert_eq!(cluster.name, "projects/p/instances/i/clusters/stele");
        assert_eq!(
            (cluster.serve_nodes, cluster.location.as_str()),
            (1, "projects/p/locations/local")
        );
        assert_eq!(data.app_profiles()[0].name, "default");
        assert!(decode("i", b"\xff").is_err());
    }

    #[test]
    fn the_part_of_hbase_survives() {
        let record = b"\xa2\x06\x03abc";
        assert_eq!(decode("i", record).unwrap().encode_to_vec(), record);
    }
}
