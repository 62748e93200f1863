//! Sessions: leases that keys can be bound to.

use crate::error::Result;
pub use crate::session_id::SessionId;
use async_trait::async_trait;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The operations that a backend provides for a [`Session`].
#[async_trait]
pub trait SessionBackend: Send + Sync + 'static {
    /// Renews the lease; `SessionEnded` when it is too late.
    async fn keep_alive(&self, session: SessionId) -> Result<()>;
    /// The time up to which the session certainly lives, on the environment's clock; `None` once it may have ended.
    fn ends_at(&self, session: SessionId) -> Option<Duration>;
    /// Ends the session and removes its keys; `Ok` when it has ended already.
    async fn revoke(&self, session: SessionId) -> Result<()>;
}

/// A session, live while a task calls [`Session::keep_alive`]. Dropping it does not end it; its time does.
#[derive(Clone)]
pub struct Session {
    id: SessionId,
    ttl: Duration,
    backend: Arc<dyn SessionBackend>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({}, {:?})", self.id, self.ttl)
    }
}

impl Session {
    /// For backends.
    pub fn new(id: SessionId, ttl: Duration, backend: Arc<dyn SessionBackend>) -> Self {
        Session { id, ttl, backend }
    }

    /// Its name, for [`crate::Write::PutBound`].
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// How long it lives after it was last kept alive. A third of that is a good interval for doing so.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Renews the lease; `SessionEnded` when it is too late.
    pub async fn keep_alive(&self) -> Result<()> {
        self.backend.keep_alive(self.id).await
    }

    /// The time up to which the session certainly lives, on the environment's clock; `None` once it may have ended. A
    /// process that cannot reach the coordinator learns so that it has lost its session.
    pub fn ends_at(&self) -> Option<Duration> {
        self.backend.ends_at(self.id)
    }

    /// Ends the session now; its keys are gone on return.
    pub async fn revoke(&self) -> Result<()> {
        self.backend.revoke(self.id).await
    }
}
