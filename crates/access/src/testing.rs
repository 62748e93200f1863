//! Rules and an audit log in memory, and an issuer of tokens, for tests.

pub mod issuer;

use crate::audit::Audit;
use async_trait::async_trait;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use stele_client::access::{AccessAdmin, AccessView, ResourceRules};
use stele_client::{ServiceError, ServiceResult};
use stele_env::Env;
use stele_env::metrics::Metrics;
use stele_storage::Storage;
use stele_storage::memory::MemoryStorage;
use stele_types::access::check_rules;
use stele_types::{AccessRule, ErrorKind, Resource};

/// Rules of resources, all of which exist.
#[derive(Default)]
pub struct MemoryRules {
    state: Mutex<(u64, Arc<AccessView>)>,
    is_unknown: AtomicBool,
}

impl MemoryRules {
    /// From now on the rules are known, or not.
    pub fn set_known(&self, is_known: bool) {
        self.is_unknown.store(!is_known, Ordering::Relaxed);
    }
}

#[async_trait]
impl AccessAdmin for MemoryRules {
    fn version(&self) -> u64 {
        self.state.lock().0
    }

    fn is_current(&self) -> bool {
        !self.is_unknown.load(Ordering::Relaxed)
    }

    fn rules(&self) -> Arc<AccessView> {
        Arc::clone(&self.state.lock().1)
    }

    async fn set_rules(&self, resource: &Resource, rules: Vec<AccessRule>, former: Option<u64>) -> ServiceResult<u64> {
        check_rules(resource, &rules).map_err(ServiceError::invalid)?;
        let mut state = self.state.lock();
        let now = state.1.get(resource).map_or(0, |found| found.version);
        if former.is_some_and(|former| former != now) {
            return Err(ServiceError::new(ErrorKind::Aborted, "the rules have changed"));
        }
        let version = state.0 + 1;
        let mut all = AccessView::clone(&state.1);
        match rules.is_empty() {
            true => all.remove(resource),
            false => all.insert(
                resource.clone(),
                ResourceRules {
                    rules: rules.into(),
                    version,
                },
            ),
        };
        *state = (version, Arc::new(all));
        Ok(version)
    }
}

/// An audit log.
pub struct AuditLog {
    audit: Audit,
    storage: Arc<dyn Storage>,
}

impl AuditLog {
    /// One without lines.
    pub async fn start(env: Env) -> Self {
        let storage: Arc<dyn Storage> = MemoryStorage::new();
        let audit = Audit::start(Arc::clone(&storage), env, &Metrics::new()).await;
        AuditLog {
            audit: audit.expect("memory does not fail"),
            storage,
        }
    }

    /// It takes lines.
    pub fn audit(&self) -> Audit {
        self.audit.clone()
    }

    /// Of each line the caller, the operation and the outcome.
    pub async fn lines(&self) -> Vec<String> {
        self.audit.flush().await;
        let mut lines = Vec::new();
        for file in self.storage.list("log/").await.expect("memory does not fail") {
            let bytes = self.storage.read_all(&file.path).await.expect("it is listed");
            for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                let line: serde_json::Value = serde_json::from_slice(line).expect("a line is JSON");
                let field = |name: &str| {
                    line.get(name)
                        .and_then(|field| field.as_str())
                        .unwrap_or_default()
                        .to_owned()
                };
                lines.push([field("who"), field("operation"), field("outcome")].join(" "));
            }
        }
        lines
    }
}
