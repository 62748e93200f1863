//! Administration of access rules from any server: the leader changes them.

use crate::admin::ClusterAdmin;
use crate::admin_calls::AdminCall;
use async_trait::async_trait;
use std::sync::Arc;
use stele_client::access::{AccessAdmin, AccessView};
use stele_client::{ServiceError, ServiceResult};
use stele_types::access::check_rules;
use stele_types::{AccessRule, Resource};

#[async_trait]
impl AccessAdmin for ClusterAdmin {
    fn version(&self) -> u64 {
        self.catalog().version()
    }

    fn is_current(&self) -> bool {
        self.rules_age().is_current()
    }

    fn rules(&self) -> Arc<AccessView> {
        Arc::clone(&self.catalog().view().access)
    }

    async fn set_rules(&self, resource: &Resource, rules: Vec<AccessRule>, former: Option<u64>) -> ServiceResult<u64> {
        check_rules(resource, &rules).map_err(ServiceError::invalid)?;
        let resource = resource.clone();
        self.call(AdminCall::SetRules {
            resource,
            rules,
            former,
        })
        .await
    }
}
