//! Sessions as leases of etcd, and their ends by this process's clock.
//!
//! A session ends here its time to live after the request that renewed it was *sent*. etcd counts from the receipt, in
//! whole seconds and at least two of them, and a new leader counts again. So a session is over here before etcd removes its
//! keys, also when etcd cannot be reached. Once over it is never renewed.

use crate::failure::Failure;
use crate::members::Members;
use crate::transaction::lease_of;
use async_trait::async_trait;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use stele_coord::session::SessionBackend;
use stele_coord::{CoordError, Result, SESSIONS_MAX, SessionId};
use stele_env::Env;

/// The sessions of one coordinator object.
pub(crate) struct Leases {
    env: Env,
    members: Arc<Members>,
    /// Those that live, and at most `SESSIONS_MAX`. Ended ones go when their end is noticed, or space is needed.
    live: Mutex<BTreeMap<SessionId, Lease>>,
}

#[derive(Clone, Copy)]
struct Lease {
    ttl: Duration,
    /// On the environment's clock.
    ends_at: Duration,
}

impl Leases {
    pub(crate) fn new(env: Env, members: Arc<Members>) -> Leases {
        Leases {
            env,
            members,
            live: Mutex::new(BTreeMap::new()),
        }
    }

    /// Begins a session.
    pub(crate) async fn begin(&self, ttl: Duration) -> Result<SessionId> {
        self.check_space()?;
        // etcd has whole seconds: the next larger number.
        let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        let seconds = i64::try_from(seconds.max(1)).map_err(|_| CoordError::InvalidArgument {
            message: format!("a session of {ttl:?} is too long"),
        })?;
        let sent = Mutex::new(Duration::ZERO);
        let granted = self.members.repeat(self.members.deadline(), |member| {
            *sent.lock() = self.env.now();
            async move { member.lease_grant(seconds).await }
        });
        let granted = granted.await.map_err(Failure::into_error)?;
        if granted.id <= 0 || granted.ttl < seconds {
            return Err(CoordError::Unavailable {
                message: format!("etcd granted no lease of {seconds} s: {}", granted.error),
            });
        }
        let session = SessionId(granted.id as u64);
        let ends_at = sent.lock().saturating_add(ttl);
        let mut live = self.live.lock();
        live.insert(session, Lease { ttl, ends_at });
        if live.len() > SESSIONS_MAX {
            // Sessions that began concurrently passed the check together. The lease ends by itself.
            live.remove(&session);
            return Err(too_many());
        }
        Ok(session)
    }

    fn check_space(&self) -> Result<()> {
        let now = self.env.now();
        let mut live = self.live.lock();
        if live.len() >= SESSIONS_MAX {
            live.retain(|_, lease| now < lease.ends_at);
        }
        match live.len() < SESSIONS_MAX {
            true => Ok(()),
            false => Err(too_many()),
        }
    }

    /// The end of a session that lives.
    fn live(&self, session: SessionId) -> Result<Lease> {
        let now = self.env.now();
        let mut live = self.live.lock();
        match live.get(&session) {
            Some(lease) if now < lease.ends_at => Ok(*lease),
            _ => {
                live.remove(&session);
                Err(CoordError::SessionEnded { session })
            }
        }
    }

    /// Fails when the session is over, as far as this process knows.
    pub(crate) fn check(&self, session: SessionId) -> Result<()> {
        self.live(session).map(drop)
    }

    /// etcd has ended the session.
    pub(crate) fn ended(&self, session: SessionId) {
        self.live.lock().remove(&session);
    }

    fn renewed(&self, session: SessionId, sent: Duration) -> Result<()> {
        let mut live = self.live.lock();
        // It may have been revoked meanwhile.
        let lease = live.get_mut(&session).ok_or(CoordError::SessionEnded { session })?;
        let ends_at = sent.saturating_add(lease.ttl);
        // Concurrent renewals may be answered in any order.
        lease.ends_at = lease.ends_at.max(ends_at);
        Ok(())
    }
}

fn too_many() -> CoordError {
    CoordError::Full {
        message: format!("{SESSIONS_MAX} sessions"),
    }
}

#[async_trait]
impl SessionBackend for Leases {
    async fn keep_alive(&self, session: SessionId) -> Result<()> {
        let lease = self.live(session)?;
        let deadline = self.members.deadline().min(lease.ends_at);
        let sent = Mutex::new(Duration::ZERO);
        let renewed = self.members.repeat(deadline, |member| {
            *sent.lock() = self.env.now();
            async move { member.lease_keep_alive(lease_of(session)).await }
        });
        let renewed = renewed.await;
        // An answer that comes after the end does not revive it.
        self.check(session)?;
        if renewed.map_err(Failure::into_error)?.ttl <= 0 {
            self.ended(session);
            return Err(CoordError::SessionEnded { session });
        }
        let sent = *sent.lock();
        self.renewed(session, sent)
    }

    fn ends_at(&self, session: SessionId) -> Option<Duration> {
        self.live(session).ok().map(|lease| lease.ends_at)
    }

    async fn revoke(&self, session: SessionId) -> Result<()> {
        // Nobody may rely on it from now on, also if etcd cannot be reached.
        self.ended(session);
        let revoked = self.members.repeat(self.members.deadline(), |member| async move {
            member.lease_revoke(lease_of(session)).await
        });
        match revoked.await {
            Ok(_) | Err(Failure::NoLease) => Ok(()),
            Err(other) => Err(other.into_error()),
        }
    }
}
