//! Administration of access rules.

use crate::error::ServiceResult;
use async_trait::async_trait;
use std::sync::Arc;
use stele_types::{AccessRule, Resource};

pub use stele_catalog::{AccessView, ResourceRules};

/// The access rules of a cluster. It knows no callers: their identities and rights are decided above.
#[async_trait]
pub trait AccessAdmin: Send + Sync + 'static {
    /// A number that changes when any rule changes, and perhaps at other times. Costs little.
    fn version(&self) -> u64;

    /// Whether the rules are known to be those of a moment ago. A server that is cut off from its cluster does not know it after a
    /// while, and must give nobody a right then. Costs little.
    fn is_current(&self) -> bool {
        true
    }

    /// All rules: the same pointer as long as none changes.
    fn rules(&self) -> Arc<AccessView>;

    /// Replaces the rules of a resource; none removes them. `former` is the version that the caller has read, 0 for none;
    /// `None` replaces any. `NotFound` when there is no such resource, `Aborted` when the version is another one. Returns
    /// the new version.
    async fn set_rules(&self, resource: &Resource, rules: Vec<AccessRule>, former: Option<u64>) -> ServiceResult<u64>;
}
