//! Write transactions, one at a time, each under the guard ([`crate::guard`]).
//!
//! A transaction without an answer is settled within its own deadline. So a caller learns of a failed member only by a
//! longer wait: the transaction either turns out to have happened, or was prevented and is sent again. The outcome stays
//! unknown only if no member answers in time, or if the guard vanished meanwhile.
//!
//! The state is changed before a request is sent. A caller that drops its future leaves it [`Guard::Pending`], and the next
//! transaction settles it first.

use crate::failure::Failure;
use crate::guard::{self, Fate, Guard};
use crate::keys::Keys;
use crate::leases::Leases;
use crate::members::{Backoff, Members};
use crate::messages::Headed;
use crate::transaction::{self, Written};
use std::sync::Arc;
use std::time::Duration;
use stele_coord::{CoordError, Result, SessionId, Txn, TxnOutcome};
use stele_env::Env;

/// The lease of the guard, in seconds. When it ends, the next transaction makes the guard again, which takes two requests
/// an hour. The guards of dead processes stay that long.
const GUARD_SECONDS: i64 = 3_600;

/// Sends write transactions.
pub(crate) struct Writer {
    env: Env,
    members: Arc<Members>,
    keys: Keys,
    leases: Arc<Leases>,
    guard: Guard,
    /// Transactions sent; their identifiers within the guard.
    sent: u64,
}

/// The result of one attempt.
enum Attempt {
    Ended(TxnOutcome),
    /// Nothing happened; another attempt may succeed.
    Again,
}

impl Writer {
    pub(crate) fn new(env: Env, members: Arc<Members>, keys: Keys, leases: Arc<Leases>) -> Writer {
        Writer {
            env,
            members,
            keys,
            leases,
            guard: Guard::Absent,
            sent: 0,
        }
    }

    /// Runs a transaction that writes. After any error but `OutcomeUnknown` nothing happened.
    pub(crate) async fn write(&mut self, txn: &Txn, deadline: Duration) -> Result<TxnOutcome> {
        assert!(!txn.writes.is_empty(), "a transaction without writes needs no guard");
        let mut backoff = Backoff::new();
        loop {
            let revision = self.ready(deadline).await?;
            // Without time for an answer it is not sent: its outcome would be unknown.
            if self.env.now() >= deadline {
                return Err(CoordError::Unavailable {
                    message: "no attempt of a transaction succeeded in time".to_owned(),
                });
            }
            match self.attempt(txn, revision, deadline).await? {
                Attempt::Ended(outcome) => return Ok(outcome),
                Attempt::Again => backoff.wait(&self.env, deadline).await,
            }
        }
    }

    /// The revision of the guard when no earlier transaction can take effect any more.
    async fn ready(&mut self, deadline: Duration) -> Result<i64> {
        // Each round either ends or learns the guard's state from etcd; it changes only by its lease's end.
        for _ in 0..GUARD_ROUNDS_MAX {
            match self.guard {
                Guard::Known { revision } => return Ok(revision),
                // Its caller is gone or was told that the outcome is unknown.
                Guard::Pending { .. } => {
                    let _fate = self.settle(deadline).await.map_err(Failure::into_error)?;
                }
                Guard::Absent => self.make(deadline).await.map_err(Failure::into_error)?,
            }
        }
        Err(CoordError::Unavailable {
            message: "the guard vanishes as often as it is made".to_owned(),
        })
    }

    async fn attempt(&mut self, txn: &Txn, revision: i64, deadline: Duration) -> Result<Attempt> {
        self.sent += 1;
        let id = self.sent.to_string();
        let request = transaction::guarded(&self.keys, txn, revision, &id);
        self.guard = Guard::Pending {
            revision,
            id: id.clone(),
        };
        let answer = self
            .members
            .attempt(deadline, |member| async move { member.txn(request).await })
            .await;
        let unchanged = Guard::Known { revision };
        match answer {
            // Nobody knows the meaning of an answer against the protocol. The guard stays pending and will be settled.
            Ok(response) => match transaction::written(txn, revision, &response).map_err(unknown)? {
                Written::Committed { revision: now } => {
                    self.guard = Guard::Known { revision: now };
                    committed(now)
                }
                Written::Conflict { key } => {
                    self.guard = unchanged;
                    Ok(Attempt::Ended(TxnOutcome::Conflict { key }))
                }
                Written::GuardChanged { guard } => {
                    self.guard = guard::found(guard.as_ref());
                    match guard::fate(&id, guard.as_ref()) {
                        // Something on the way delivered it twice, and this is the answer to the second time.
                        Fate::Happened { revision } => committed(revision),
                        // The guard's lease had ended, or its making took effect twice. The transaction failed.
                        Fate::Prevented | Fate::Unknown => Ok(Attempt::Again),
                    }
                }
            },
            Err(Failure::Lost(message)) => self.recover(message, deadline).await,
            Err(Failure::NoSpace(message)) => self.look(message, revision, &id, deadline).await,
            Err(Failure::NoLease) => {
                self.guard = unchanged;
                self.find_ended(txn, deadline).await
            }
            Err(Failure::Busy(_)) => {
                self.guard = unchanged;
                Ok(Attempt::Again)
            }
            Err(other) => {
                self.guard = unchanged;
                Err(other.into_error())
            }
        }
    }

    /// Finds out the fate of the transaction that was just sent.
    async fn recover(&mut self, message: String, deadline: Duration) -> Result<Attempt> {
        match self.settle(deadline).await {
            Ok(Fate::Happened { revision }) => committed(revision),
            Ok(Fate::Prevented) => Ok(Attempt::Again),
            Ok(Fate::Unknown) | Err(_) => Err(CoordError::OutcomeUnknown { message }),
        }
    }

    /// Finds out the fate of a transaction that was answered. It cannot be settled, because that is a write, too.
    async fn look(&mut self, message: String, revision: i64, id: &str, deadline: Duration) -> Result<Attempt> {
        let request = transaction::reading(&self.keys);
        let read = self.members.repeat(deadline, |member| {
            let request = request.clone();
            async move { member.range(request).await }
        });
        // The guard stays pending, and the next transaction settles it.
        let Ok(read) = read.await else {
            return Err(CoordError::OutcomeUnknown { message });
        };
        let guard = read.kvs.first();
        self.guard = guard::found(guard);
        match guard::fate_of_answered(id, revision, guard) {
            Fate::Happened { revision } => committed(revision),
            Fate::Prevented => Err(CoordError::Full { message }),
            Fate::Unknown => Err(CoordError::OutcomeUnknown { message }),
        }
    }

    /// Makes sure that the pending transaction will not take effect later, and tells whether it did.
    async fn settle(&mut self, deadline: Duration) -> std::result::Result<Fate, Failure> {
        let Guard::Pending { revision, id } = self.guard.clone() else {
            return Ok(Fate::Unknown);
        };
        let request = transaction::settling(&self.keys, revision, &id);
        let response = self
            .members
            .repeat(deadline, |member| {
                let request = request.clone();
                async move { member.txn(request).await }
            })
            .await?;
        if response.succeeded {
            self.guard = Guard::Known {
                revision: response.revision(),
            };
            return Ok(Fate::Prevented);
        }
        let read = transaction::guard_read(&response);
        self.guard = guard::found(read);
        Ok(guard::fate(&id, read))
    }

    async fn make(&mut self, deadline: Duration) -> std::result::Result<(), Failure> {
        let grant = self.members.repeat(
            deadline,
            |member| async move { member.lease_grant(GUARD_SECONDS).await },
        );
        let request = transaction::making(&self.keys, "begun", grant.await?.id);
        let response = self
            .members
            .repeat(deadline, |member| {
                let request = request.clone();
                async move { member.txn(request).await }
            })
            .await;
        match response {
            Ok(response) if response.succeeded => {
                self.guard = Guard::Known {
                    revision: response.revision(),
                };
                Ok(())
            }
            Ok(response) => {
                self.guard = guard::found(transaction::guard_read(&response));
                Ok(())
            }
            // The lease ended before the guard was made, an hour later. The next round asks for another one.
            Err(Failure::NoLease) => Ok(()),
            Err(other) => Err(other),
        }
    }

    /// A lease of the transaction has ended: finds out which.
    async fn find_ended(&self, txn: &Txn, deadline: Duration) -> Result<Attempt> {
        let sessions: Vec<SessionId> = transaction::sessions(txn).collect();
        for session in &sessions {
            let lease = transaction::lease_of(*session);
            let look = self
                .members
                .repeat(deadline, |member| async move { member.lease_time_to_live(lease).await });
            if look.await.map_err(Failure::into_error)?.ttl <= 0 {
                self.leases.ended(*session);
                return Err(CoordError::SessionEnded { session: *session });
            }
        }
        Ok(Attempt::Again)
    }
}

/// Rounds to get a guard: settle the former transaction, make the guard, and two for an end of its lease in between.
const GUARD_ROUNDS_MAX: u32 = 4;

fn unknown(error: CoordError) -> CoordError {
    CoordError::OutcomeUnknown {
        message: error.to_string(),
    }
}

fn committed(revision: i64) -> Result<Attempt> {
    let revision = transaction::number(revision)?;
    Ok(Attempt::Ended(TxnOutcome::Committed { revision }))
}

#[cfg(test)]
mod tests;
