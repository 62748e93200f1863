//! The session of this server: kept alive, and begun again when it was lost.

use crate::lease::Lease;
use crate::members::Member;
use crate::records::{self, LOGS, LogRecord, SERVERS, ServerRecord};
use parking_lot::RwLock;
use std::sync::Arc;
use std::time::Duration;
use stele_coord::{Condition, Coord, CoordError, Session, Txn, TxnOutcome, Versioned, Write};
use stele_env::Env;
use tokio::sync::oneshot;

/// Pause after a failure.
const PAUSE: Duration = Duration::from_millis(500);

/// The session that this server has now.
pub(crate) struct CurrentSession(RwLock<Session>);

impl CurrentSession {
    pub(crate) fn new(session: Session) -> Arc<CurrentSession> {
        Arc::new(CurrentSession(RwLock::new(session)))
    }

    pub(crate) fn get(&self) -> Session {
        self.0.read().clone()
    }
}

/// Keeps a session alive until the result is dropped. A server may take longer to join than its session lives: it claims a log, and
/// reads the catalog.
pub(crate) fn keep_while_joining(env: &Env, session: &Session) -> oneshot::Sender<()> {
    let (joining, joined) = oneshot::channel();
    let (clock, session) = (env.clone(), session.clone());
    env.spawn("session of a start", async move {
        let renew = async {
            loop {
                clock.sleep(session.ttl() / 4).await;
                if let Err(error) = session.keep_alive().await {
                    tracing::warn!(%error, "the session is not renewed; it is tried again");
                }
            }
        };
        tokio::select! {
            biased;
            _ = joined => {}
            () = renew => {}
        }
    });
    joining
}

/// Keeps a server a member. Completes when it was given up: its log is sealed, or its record is gone for another reason.
pub(crate) async fn keep(
    env: Env,
    coord: Arc<dyn Coord>,
    member: Member,
    record: ServerRecord,
    (session, lease): (Arc<CurrentSession>, Arc<Lease>),
) {
    loop {
        match keep_alive(&env, &*coord, &member, (&session.get(), &lease)).await {
            Ended::Session => {}
            Ended::GivenUp => return lease.extend(None),
        }
        tracing::warn!(server = %member.server, "the session of this server has ended; reads are confirmed by storage");
        loop {
            match begin_again(&*coord, &member, &record, session.get().ttl()).await {
                Ok(Some(begun)) => {
                    *session.0.write() = begun;
                    break;
                }
                Ok(None) => return,
                Err(error @ CoordError::BadValue { .. }) => tracing::error!(%error, "no new session"),
                Err(error) => tracing::debug!(%error, "no new session yet"),
            }
            env.sleep(PAUSE).await;
        }
        tracing::info!(server = %member.server, "this server has a new session");
    }
}

/// The end of a session.
enum Ended {
    /// By time.
    Session,
    /// A leader has removed the record of the server.
    GivenUp,
}

/// Renews a session and the lease with it, until one of them has ended.
async fn keep_alive(env: &Env, coord: &dyn Coord, member: &Member, (session, lease): (&Session, &Lease)) -> Ended {
    let interval = session.ttl() / 4;
    let own = records::key(SERVERS, member.server);
    loop {
        // The record is removed on evidence, while the session may live.
        let renewed = match session.keep_alive().await {
            Ok(()) => coord.get(&own).await,
            Err(error) => Err(error),
        };
        match renewed {
            Ok(Some(_)) => lease.extend(session.ends_at()),
            Ok(None) => {
                lease.extend(None);
                return if session.ends_at().is_some() {
                    Ended::GivenUp
                } else {
                    Ended::Session
                };
            }
            Err(CoordError::SessionEnded { .. }) => {
                lease.extend(None);
                return Ended::Session;
            }
            // The time that is left still holds.
            Err(error) => {
                tracing::warn!(%error, "the session is not renewed; it is tried again");
                if session.ends_at().is_none() {
                    lease.extend(None);
                    return Ended::Session;
                }
            }
        }
        env.sleep(interval).await;
    }
}

/// A new session for a server that nobody has given up; `None` if it was.
async fn begin_again(
    coord: &dyn Coord,
    member: &Member,
    record: &ServerRecord,
    ttl: Duration,
) -> Result<Option<Session>, CoordError> {
    let log = records::key(LOGS, member.server);
    let Some(found) = coord.get(&log).await? else {
        return Ok(None);
    };
    if is_given_up(&log, &found)? {
        return Ok(None);
    }
    let session = coord.session(ttl).await?;
    let put = Write::PutBound {
        key: records::key(SERVERS, member.server),
        value: records::encode(record),
        session: session.id(),
    };
    // A leader that seals the log changes its record.
    let conditions = vec![Condition::version(&log, found.version)];
    let writes = vec![put];
    match coord.txn(Txn { conditions, writes }).await? {
        TxnOutcome::Committed { .. } => Ok(Some(session)),
        TxnOutcome::Conflict { .. } => Ok(None),
    }
}

/// A record that cannot be read is no evidence that the server was given up.
fn is_given_up(key: &str, found: &Versioned) -> Result<bool, CoordError> {
    let log: Result<LogRecord, String> = records::decode(&found.value);
    log.map(|log| log.sealed || log.given_up)
        .map_err(|error| CoordError::BadValue {
            key: key.to_owned(),
            expected: "the record of a log",
            found: error,
        })
}
