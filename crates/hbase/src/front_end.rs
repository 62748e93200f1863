//! The front end, and the state that all of its connections share.

use crate::call_rate::{CallRate, Moment, Rate};
use crate::context::{Context, Identity};
use crate::failure::{Failure, Outcome};
use crate::scanners::{SWEEP_INTERVAL, Scanners};
use crate::token::ShownToken;
use std::ops::Deref;
use std::sync::{Arc, OnceLock, Weak};
use stele_access::{Access, Caller, Guard, Rules, Shown};
use stele_client::{TableAdmin, TableService};
use stele_env::Env;
use stele_env::metrics::Metrics;
use stele_memory::{Part, Pool, Reclaim};
use stele_storage::foreign::ForeignFiles;
use stele_wire::exception;

/// The front end for HBase clients. Cloning shares it.
#[derive(Clone)]
pub struct HBaseFrontEnd {
    pub(crate) shared: Arc<Shared>,
    /// Finds the callers; `None` where callers are not known.
    access: Option<Arc<Access>>,
    /// The name in the certificate of the connection's client.
    certificate: Option<Arc<str>>,
}

pub(crate) struct Shared {
    pub context: Context,
    pub scanners: Scanners,
    pub metrics: Arc<crate::metrics::CallMetrics>,
    /// Of the calls of all callers.
    call_rate: Arc<CallRate>,
    pub procedures: Arc<crate::procedures::Procedures>,
    pub switches: Arc<crate::switches::Switches>,
    pub replications: Arc<crate::replications::Replications>,
    /// Held by a call while it changes tables or namespaces: such a call reads first, and writes only then.
    pub changes: Arc<futures::lock::Mutex<()>>,
    /// The access rules as the caller has them; empty where rules are not administered.
    pub rules: OnceLock<Rules>,
    /// The token by which the caller has shown its name.
    pub token: Option<ShownToken>,
    /// The caller's guard, which the services of the context are then, too.
    pub guard: Option<Arc<Guard>>,
}

impl HBaseFrontEnd {
    /// A front end over these services. Bulk loads may read these files.
    pub fn new(
        service: Arc<dyn TableService>,
        admin: Arc<dyn TableAdmin>,
        env: Env,
        (identity, files): (Identity, ForeignFiles),
        metrics: &Metrics,
        pool: &Pool,
    ) -> Self {
        let responses = pool.of(Part::Responses);
        let scanners = Scanners::new(env.clone(), responses.limit() / 2);
        let context = Context {
            service,
            admin,
            identity,
            files,
            requests: pool.of(Part::Requests),
            responses,
            env,
        };
        let shared = Shared {
            call_rate: Arc::new(CallRate::new(context.env.now(), context.wall_millis())),
            context,
            scanners,
            metrics: Arc::new(crate::metrics::CallMetrics::new(metrics)),
            procedures: Arc::default(),
            switches: Arc::default(),
            replications: Arc::default(),
            changes: Arc::default(),
            rules: OnceLock::new(),
            token: None,
            guard: None,
        };
        let shared = Arc::new(shared);
        let reclaimer: Weak<Shared> = Arc::downgrade(&shared);
        pool.add_reclaimer(reclaimer);
        close_expired(&shared);
        HBaseFrontEnd {
            shared,
            access: None,
            certificate: None,
        }
    }

    /// Administers these rules, also where callers are not known.
    #[must_use]
    pub fn with_rules(self, rules: Rules) -> Self {
        let is_first = self.shared.rules.set(rules).is_ok();
        debug_assert!(is_first, "the rules are set once");
        self
    }

    /// Serves known callers only, as far as their rights go.
    #[must_use]
    pub fn with_access(mut self, access: Arc<Access>) -> Self {
        self.access = Some(access);
        self
    }

    /// The front end for a connection whose client has this name by its certificate.
    #[must_use]
    pub fn for_connection(&self, certificate: Option<String>) -> Self {
        HBaseFrontEnd {
            certificate: certificate.map(Arc::from),
            ..self.clone()
        }
    }

    /// The state for the calls of a connection whose header names this user and has this token. The error is for all of its calls.
    pub(crate) fn shared_of(&self, user: Option<&str>, token: Option<String>) -> Outcome<Arc<Shared>> {
        let Some(access) = &self.access else {
            return Ok(Arc::clone(&self.shared));
        };
        let shown = Shown {
            certificate: self.certificate.as_deref(),
            token: token.as_deref(),
            user,
        };
        let caller = access.identify(shown).map_err(|refused| {
            access.audit_refused(shown, "hbase connection", &refused);
            Failure::new(exception::ACCESS_DENIED, refused.to_string())
        })?;
        let mut shared = self.shared.of_caller(access, Arc::clone(&caller), token.as_deref());
        shared.token = token.map(|token| ShownToken::new(Arc::clone(access), caller, token, &self.shared.env));
        Ok(Arc::new(shared))
    }
}

impl Shared {
    /// The same for a caller, and the token that its connection shows: all of its calls go through a guard.
    fn of_caller(&self, access: &Arc<Access>, caller: Arc<Caller>, token: Option<&str>) -> Shared {
        // A name alone is not the caller: anybody may state one, and groups give rights, too.
        let owner = format!("{:?} {:?} {:?}", caller.source(), caller.groups(), caller.name());
        let scanners = self.scanners.of_owner(&owner);
        let (service, admin) = (Arc::clone(&self.service), Arc::clone(&self.admin));
        let guard = Guard::new(Arc::clone(access), caller, service, admin);
        let guard = token.map_or_else(|| Arc::clone(&guard), |token| guard.shown(token));
        let rules = self.rules.get().map(|rules| rules.of(Arc::clone(&guard)));
        Shared {
            context: Context {
                service: Arc::clone(&guard) as Arc<dyn TableService>,
                admin: Arc::clone(&guard) as Arc<dyn TableAdmin>,
                env: self.env.clone(),
                identity: self.identity.clone(),
                files: self.files.clone(),
                requests: self.requests.clone(),
                responses: self.responses.clone(),
            },
            scanners,
            metrics: Arc::clone(&self.metrics),
            call_rate: Arc::clone(&self.call_rate),
            procedures: Arc::clone(&self.procedures),
            switches: Arc::clone(&self.switches),
            replications: Arc::clone(&self.replications),
            changes: Arc::clone(&self.changes),
            rules: rules.map_or_else(OnceLock::new, OnceLock::from),
            token: None,
            guard: Some(guard),
        }
    }

    /// The number of calls until now, and their rate.
    pub fn calls(&self) -> (u64, Rate) {
        let calls = self.metrics.calls();
        let rate = self.call_rate.note(Moment {
            at: self.env.now(),
            wall_millis: self.wall_millis(),
            calls,
        });
        (calls, rate)
    }

    /// The access rules as the caller has them.
    pub fn rules(&self) -> Outcome<&Rules> {
        self.rules
            .get()
            .ok_or_else(|| Failure::not_served("The administration of rights"))
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

/// Closes expired scanners for as long as the front end exists, and ends windows of the rate of calls.
fn close_expired(shared: &Arc<Shared>) {
    let weak = Arc::downgrade(shared);
    let env = shared.env.clone();
    shared.env.spawn_background("hbase scanner leases", async move {
        loop {
            env.sleep(SWEEP_INTERVAL).await;
            match weak.upgrade() {
                Some(shared) => {
                    shared.scanners.close_expired();
                    shared.calls();
                }
                None => return,
            }
        }
    });
}
