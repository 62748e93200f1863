//! The front end, and the state that all of its connections share.

use crate::context::{Context, Identity};
use crate::scanners::{SWEEP_INTERVAL, Scanners};
use std::ops::Deref;
use std::sync::Arc;
use stele_client::{TableAdmin, TableService};
use stele_env::Env;
use stele_env::metrics::Metrics;
use stele_memory::{Part, Pool};

/// The front end for HBase clients. Cloning shares it.
#[derive(Clone)]
pub struct HBaseFrontEnd {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub context: Context,
    pub scanners: Scanners,
    pub metrics: crate::metrics::CallMetrics,
    pub procedures: crate::procedures::Procedures,
    pub switches: crate::switches::Switches,
    /// Held by a call while it changes tables or namespaces: such a call reads first, and writes only then.
    pub changes: futures::lock::Mutex<()>,
}

impl HBaseFrontEnd {
    /// A front end over these services.
    pub fn new(
        service: Arc<dyn TableService>,
        admin: Arc<dyn TableAdmin>,
        env: Env,
        identity: Identity,
        metrics: &Metrics,
        pool: &Pool,
    ) -> Self {
        let scanners = Scanners::new(env.clone());
        let shared = Shared {
            context: Context {
                service,
                admin,
                identity,
                requests: pool.of(Part::Requests),
                responses: pool.of(Part::Responses),
                env,
            },
            scanners,
            metrics: crate::metrics::CallMetrics::new(metrics),
            procedures: crate::procedures::Procedures::default(),
            switches: crate::switches::Switches::default(),
            changes: futures::lock::Mutex::new(()),
        };
        let shared = Arc::new(shared);
        close_expired(&shared);
        HBaseFrontEnd { shared }
    }
}

impl Deref for Shared {
    type Target = Context;

    fn deref(&self) -> &Context {
        &self.context
    }
}

/// Closes expired scanners for as long as the front end exists.
fn close_expired(shared: &Arc<Shared>) {
    let weak = Arc::downgrade(shared);
    let env = shared.env.clone();
    shared.env.spawn_background("hbase scanner leases", async move {
        loop {
            env.sleep(SWEEP_INTERVAL).await;
            match weak.upgrade() {
                Some(shared) => shared.scanners.close_expired(),
                None => return,
            }
        }
    });
}
