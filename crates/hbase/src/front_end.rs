//! The front end, and the state that all of its connections share.

use crate::context::{Context, Identity};
use crate::scanners::{SWEEP_INTERVAL, Scanners};
use std::ops::Deref;
use std::sync::{Arc, Weak};
use stele_client::{TableAdmin, TableService};
use stele_env::Env;
use stele_env::metrics::Metrics;
use stele_memory::{Part, Pool, Reclaim};

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
        let responses = pool.of(Part::Responses);
        let scanners = Scanners::new(env.clone(), responses.limit() / 2);
        let shared = Shared {
            context: Context {
                service,
                admin,
                identity,
                requests: pool.of(Part::Requests),
                responses,
                env,
            },
            scanners,
            metrics: crate::metrics::CallMetrics::new(metrics),
            procedures: crate::procedures::Procedures::default(),
            switches: crate::switches::Switches::default(),
            changes: futures::lock::Mutex::new(()),
        };
        let shared = Arc::new(shared);
        let reclaimer: Weak<Shared> = Arc::downgrade(&shared);
        pool.add_reclaimer(reclaimer);
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

impl Reclaim for Shared {
    fn reclaim(&self, bytes: usize) {
        // Callers wait for other parts of the pool, too.
        if self.responses.used() > self.responses.limit() / 2 {
            self.scanners.reclaim(bytes);
        }
    }

    fn reclaim_overdraft(&self) {
        self.scanners.reclaim_overdraft();
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
