//! The age of the access rules that this server follows.
//!
//! Rules are records of the catalog. A change is answered when every server follows it, or was given up. A server that was given
//! up, or that is cut off from the coordinator, may not know of a change. So it says after a time that it does not know the
//! rules ([`RULES_AGE_MAX`]), and gives no rights then.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use stele_catalog::Catalog;
use stele_env::Env;

/// Rules count for this long after the coordinator has confirmed that they are the newest. Longer than an election of etcd and
/// the restart of its members take; a server without the coordinator keeps its callers for as long.
pub const RULES_AGE_MAX: Duration = Duration::from_secs(60);
/// Pause between two confirmations: some may fail before rules are too old.
const INTERVAL: Duration = Duration::from_secs(5);

/// When the rules were certainly the newest.
pub(crate) struct RulesAge {
    env: Env,
    /// Nanoseconds of the environment's clock.
    confirmed: AtomicU64,
}

impl RulesAge {
    /// Of rules that were read at this time or later.
    pub(crate) fn new(env: Env, read: Duration) -> Arc<RulesAge> {
        let age = RulesAge {
            env,
            confirmed: AtomicU64::new(0),
        };
        age.confirm(read);
        Arc::new(age)
    }

    fn confirm(&self, at: Duration) {
        let at = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
        self.confirmed.fetch_max(at, Ordering::AcqRel);
    }

    /// Whether the rules are not older than they may be.
    pub(crate) fn is_current(&self) -> bool {
        let confirmed = Duration::from_nanos(self.confirmed.load(Ordering::Acquire));
        self.env.now().saturating_sub(confirmed) < RULES_AGE_MAX
    }
}

/// Has the coordinator confirm from time to time that the rules are the newest, for as long as the process runs.
pub(crate) async fn confirm(age: Arc<RulesAge>, catalog: Arc<Catalog>) {
    loop {
        age.env.sleep(INTERVAL).await;
        // A change that is made after this moment may be missing.
        let begun = age.env.now();
        match age.env.timeout(RULES_AGE_MAX, catalog.catch_up()).await {
            Ok(Ok(())) => age.confirm(begun),
            Ok(Err(error)) if age.is_current() => tracing::debug!(%error, "the access rules are not confirmed"),
            Ok(Err(error)) => tracing::warn!(%error, "the access rules are not known: callers get no rights here"),
            Err(_) => tracing::warn!("the access rules are not known, since the catalog is not followed"),
        }
    }
}
