//! The coordinator object.

use crate::address::EtcdAddress;
use crate::failure::Failure;
use crate::keys::Keys;
use crate::leases::Leases;
use crate::listing;
use crate::members::Members;
use crate::messages::RangeRequest;
use crate::security::{EtcdSecurity, Secured};
use crate::transaction;
use crate::watching::{Watching, current_revision};
use crate::writer::Writer;
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;
use stele_coord::session::SessionBackend;
use stele_coord::{Coord, CoordError, KEY_BYTES_MAX, Result, Session, Txn, TxnOutcome, Versioned, Watch};
use stele_env::Env;

/// The time of a request with all its attempts. An election of etcd takes one or two seconds.
pub const REQUEST_LIMIT: Duration = Duration::from_secs(10);

/// A coordinator on etcd. Several processes that connect to one address share its keys.
pub struct EtcdCoord {
    members: Arc<Members>,
    keys: Keys,
    leases: Arc<Leases>,
    watching: Arc<Watching>,
    /// Held during a write transaction.
    writer: tokio::sync::Mutex<Writer>,
    is_tls: bool,
}

impl EtcdCoord {
    /// Connects, and checks that a majority of members serves. Needs a tokio runtime, as do all calls: a connection lives in
    /// the runtime of the call that made it.
    ///
    /// # Errors
    /// `Unavailable` if no member answers in [`REQUEST_LIMIT`]; `Denied` if etcd wants a user.
    pub async fn connect(address: &EtcdAddress, security: EtcdSecurity, env: Env) -> Result<Arc<EtcdCoord>> {
        Self::connect_with(address, security, env, REQUEST_LIMIT).await
    }

    /// The same with another time for each request.
    ///
    /// # Errors
    /// As [`EtcdCoord::connect`].
    pub async fn connect_with(
        address: &EtcdAddress,
        security: EtcdSecurity,
        env: Env,
        limit: Duration,
    ) -> Result<Arc<EtcdCoord>> {
        let incarnation = format!("{:016x}{:016x}", env.random_u64(), env.random_u64());
        let keys = Keys::new(address.name(), &incarnation);
        let secured = Secured::new(address.is_tls(), security);
        let members = Members::new(env.clone(), address.members().to_vec(), secured, limit);
        let members = Arc::new(members);
        let leases = Arc::new(Leases::new(env.clone(), Arc::clone(&members)));
        let watching = Watching::new(env.clone(), Arc::clone(&members), keys.clone());
        let writer = Writer::new(env, Arc::clone(&members), keys.clone(), Arc::clone(&leases));
        // A linearisable read needs a majority.
        current_revision(&members, &keys, members.deadline()).await?;
        Ok(Arc::new(EtcdCoord {
            members,
            keys,
            leases,
            watching,
            writer: tokio::sync::Mutex::new(writer),
            is_tls: address.is_tls(),
        }))
    }

    /// Protects later connections in another way, with certificates that were renewed for one.
    ///
    /// # Errors
    /// `InvalidArgument` if the certificates or keys cannot be used; the former ones stay then.
    pub fn set_security(&self, security: EtcdSecurity) -> Result<()> {
        let secured = Secured::new(self.is_tls, security);
        secured.check().map_err(Failure::into_error)?;
        self.members.set_secured(secured);
        Ok(())
    }

    async fn question(&self, txn: &Txn) -> Result<TxnOutcome> {
        let request = transaction::question(&self.keys, txn);
        let answer = self.members.repeat(self.members.deadline(), |member| {
            let request = request.clone();
            async move { member.txn(request).await }
        });
        transaction::answered(txn, &answer.await.map_err(Failure::into_error)?)
    }
}

#[async_trait]
impl Coord for EtcdCoord {
    async fn get(&self, key: &str) -> Result<Option<Versioned>> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            // No transaction can have written it.
            return Ok(None);
        }
        let request = RangeRequest {
            key: self.keys.stored(key),
            ..RangeRequest::default()
        };
        let read = self.members.repeat(self.members.deadline(), |member| {
            let request = request.clone();
            async move { member.range(request).await }
        });
        let read = read.await.map_err(Failure::into_error)?;
        let found = read.kvs.first().map(|kv| listing::entry(&self.keys, kv)).transpose()?;
        Ok(found.map(|(_, current)| current))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(String, Versioned)>> {
        if prefix.len() > KEY_BYTES_MAX {
            return Ok(Vec::new());
        }
        listing::list(&self.members, &self.keys, prefix).await
    }

    async fn txn(&self, txn: Txn) -> Result<TxnOutcome> {
        txn.check()?;
        if txn.writes.is_empty() {
            return self.question(&txn).await;
        }
        let deadline = self.members.deadline();
        let mut writer = self.members.turn(deadline, self.writer.lock()).await?;
        transaction::sessions(&txn).try_for_each(|session| self.leases.check(session))?;
        writer.write(&txn, deadline).await
    }

    async fn watch(&self, prefix: &str) -> Result<Watch> {
        self.watching.watch(prefix).await
    }

    async fn session(&self, ttl: Duration) -> Result<Session> {
        if ttl.is_zero() {
            return Err(CoordError::InvalidArgument {
                message: "a session of no time".to_owned(),
            });
        }
        let id = self.leases.begin(ttl).await?;
        let backend = Arc::clone(&self.leases) as Arc<dyn SessionBackend>;
        Ok(Session::new(id, ttl, backend))
    }
}
