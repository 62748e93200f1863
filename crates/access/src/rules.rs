//! The administration of rules, as a caller has it.

use crate::guard::Guard;
use std::sync::Arc;
use stele_client::access::ResourceRules;
use stele_client::{AccessAdmin, ServiceResult};
use stele_types::{AccessRule, Resource, Rights};

/// The rules for one caller, or for everybody where callers are not known.
#[derive(Clone)]
pub struct Rules {
    admin: Arc<dyn AccessAdmin>,
    guard: Option<Arc<Guard>>,
}

impl Rules {
    /// Without checks: rules can be written before the server obeys them.
    pub fn open(admin: Arc<dyn AccessAdmin>) -> Self {
        Rules { admin, guard: None }
    }

    /// The same rules for a caller.
    #[must_use]
    pub fn of(&self, guard: Arc<Guard>) -> Self {
        Rules {
            admin: Arc::clone(&self.admin),
            guard: Some(guard),
        }
    }

    /// The rules of a resource and their version; `None` if it has none.
    pub fn get(&self, resource: &Resource) -> ServiceResult<Option<ResourceRules>> {
        if let Some(guard) = &self.guard {
            guard.check_rules("get_rules", resource)?;
        }
        Ok(self.admin.rules().get(resource).cloned())
    }

    /// The rules of all resources that the caller administers.
    pub fn list(&self) -> ServiceResult<Vec<(Resource, ResourceRules)>> {
        if let Some(guard) = &self.guard {
            guard.check_known()?;
        }
        let all = self.admin.rules();
        let is_shown = |resource: &Resource| {
            let rights = self.guard.as_ref().map_or(Rights::ALL, |guard| guard.rights(resource));
            rights.has(Rights::ADMIN)
        };
        let shown = all.iter().filter(|(resource, _)| is_shown(resource));
        Ok(shown
            .map(|(resource, rules)| (resource.clone(), rules.clone()))
            .collect())
    }

    /// Replaces the rules of a resource: [`AccessAdmin::set_rules`].
    pub async fn set(&self, resource: &Resource, rules: Vec<AccessRule>, former: Option<u64>) -> ServiceResult<u64> {
        let set = self.admin.set_rules(resource, rules, former);
        match &self.guard {
            Some(guard) => guard.audited_rules("set_rules", resource, set).await,
            None => set.await,
        }
    }

    /// The rights on a whole resource.
    pub fn rights(&self, resource: &Resource) -> ServiceResult<Rights> {
        match &self.guard {
            None => Ok(Rights::ALL),
            Some(guard) => guard.check_known().map(|()| guard.rights(resource)),
        }
    }
}
