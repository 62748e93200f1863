//! Changes of access rules.

use crate::error::from_catalog;
use crate::master::Master;
use async_trait::async_trait;
use std::sync::Arc;
use stele_client::access::{AccessAdmin, AccessView};
use stele_client::{ServiceError, ServiceResult};
use stele_types::access::check_rules;
use stele_types::{AccessRule, Resource};

#[async_trait]
impl AccessAdmin for Master {
    fn version(&self) -> u64 {
        self.catalog.version()
    }

    fn rules(&self) -> Arc<AccessView> {
        Arc::clone(&self.catalog.view().access)
    }

    async fn set_rules(&self, resource: &Resource, rules: Vec<AccessRule>, former: Option<u64>) -> ServiceResult<u64> {
        check_rules(resource, &rules).map_err(ServiceError::invalid)?;
        let resource = resource.clone();
        self.carry_out(move |master| async move {
            let changed = master.catalog.set_rules(&resource, rules, former);
            changed.await.map_err(from_catalog)
        })
        .await
    }
}
