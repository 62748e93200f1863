//! The servers of the cluster by the coordinator, and the membership of this one.

use crate::records::{
    self, ALL, ARCHIVED_CHAIN, DRAINING, ID, LIVES, LOG_PLACE, LOGS, LifeRecord, LogRecord, NUMBERS, PROMOTION,
    SERVERS, ServerRecord,
};
use bytes::Bytes;
use parking_lot::RwLock;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use stele_client::ServerPlace;
use stele_coord::{Condition, Coord, CoordError, Session, Txn, TxnOutcome, Versioned, WatchEvent, Write, next_epoch};
use stele_env::Env;
use stele_peer::{Identity, Peer};
use stele_types::ServerId;
use tokio::sync::watch;

/// Pause before the records are listed again after a failure.
const PAUSE: Duration = Duration::from_millis(200);

/// The addresses that a server tells others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Of the protocol between servers.
    pub peer: String,
    /// Of the Bigtable API.
    pub bigtable: String,
    /// Of the HBase API; empty for none.
    pub hbase: String,
    /// Of health, metrics and status.
    pub http: String,
}

/// A server that has joined.
#[derive(Clone)]
pub struct Member {
    /// The cluster.
    pub cluster: [u8; 16],
    /// Its number.
    pub server: ServerId,
    /// Its session.
    pub session: Session,
}

impl Member {
    /// Its identity in the protocol between servers.
    pub fn identity(&self) -> Identity {
        identity(self.cluster, self.server)
    }
}

/// A number is one life of a server, so it is its epoch, too.
pub(crate) fn identity(cluster: [u8; 16], server: ServerId) -> Identity {
    Identity {
        cluster,
        server: u64::from(server.0),
        epoch: u64::from(server.0),
    }
}

/// Begins a life of a server in a cluster: a session and a number.
pub async fn begin(coord: &dyn Coord, ttl: Duration, cluster: [u8; 16]) -> Result<Member, CoordError> {
    let session = coord.session(ttl).await?;
    let number = next_epoch(coord, NUMBERS).await?;
    let server = u32::try_from(number).ok().filter(|number| *number < 1 << 24);
    let server = server.ok_or(CoordError::BadValue {
        key: NUMBERS.to_owned(),
        expected: "a number below 2^24",
        found: number.to_string(),
    })?;
    Ok(Member {
        cluster,
        server: ServerId(server),
        session,
    })
}

/// The number of the cluster. The first server chooses it, or a promotion.
pub(crate) async fn cluster_number(coord: &dyn Coord, env: &Env) -> Result<[u8; 16], CoordError> {
    let mut number = [0; 16];
    number[..8].copy_from_slice(&env.random_u64().to_le_bytes());
    number[8..].copy_from_slice(&env.random_u64().to_le_bytes());
    let value = first_choice(coord, ID, number.to_vec().into(), Vec::new()).await?;
    let value = value.unwrap_or_default();
    <[u8; 16]>::try_from(&value[..]).map_err(|_| CoordError::BadValue {
        key: ID.to_owned(),
        expected: "16 bytes",
        found: value.escape_ascii().to_string(),
    })
}

/// The value of a record that the first server writes for all: this one where there is none yet. `None` if a condition does not
/// hold.
async fn first_choice(
    coord: &dyn Coord,
    key: &str,
    value: Bytes,
    mut conditions: Vec<Condition>,
) -> Result<Option<Bytes>, CoordError> {
    let put = Write::Put {
        key: key.to_owned(),
        value,
    };
    conditions.push(Condition::absent(key));
    let writes = vec![put];
    // The record tells, also if the outcome is unknown.
    let _ = coord.txn(Txn { conditions, writes }).await;
    let found = coord.get(key).await?;
    Ok(found.map(|found| found.value))
}

/// The place of the logs of all servers: the first server chooses it. A server that had its log elsewhere would have a log that
/// no other one finds. `None` if a promotion has begun since `promotion` was read.
pub(crate) async fn agree_on_logs(
    coord: &dyn Coord,
    place: &str,
    promotion: Option<&Versioned>,
) -> Result<Option<String>, CoordError> {
    let conditions = vec![Condition::unchanged(PROMOTION, promotion)];
    let value = first_choice(coord, LOG_PLACE, place.to_owned().into(), conditions).await?;
    Ok(value.map(|value| String::from_utf8_lossy(&value).into_owned()))
}

/// Makes a member visible to the others: from now on it may get tablets. Its log has this many streams. Where it archives its log, `life` says
/// so; where it does not, the archive of the cluster cannot be followed from now on.
pub async fn announce(
    coord: &dyn Coord,
    member: &Member,
    record: &ServerRecord,
    (log_streams, life): (u32, Option<&LifeRecord>),
) -> Result<(), CoordError> {
    let log = records::key(LOGS, member.server);
    let session_millis = u32::try_from(member.session.ttl().as_millis()).unwrap_or(u32::MAX);
    let log_record = LogRecord {
        streams: log_streams,
        session_millis,
        ..LogRecord::default()
    };
    let writes = vec![
        Write::PutBound {
            key: records::key(SERVERS, member.server),
            value: records::encode(record),
            session: member.session.id(),
        },
        Write::Put {
            key: log.clone(),
            value: records::encode(&log_record),
        },
        match life {
            Some(life) => Write::Put {
                key: records::key(LIVES, member.server),
                value: records::encode(life),
            },
            None => Write::Delete {
                key: ARCHIVED_CHAIN.to_owned(),
            },
        },
    ];
    let conditions = vec![Condition::absent(&log)];
    match coord.txn(Txn { conditions, writes }).await? {
        TxnOutcome::Committed { .. } => Ok(()),
        TxnOutcome::Conflict { key } => Err(CoordError::BadValue {
            key,
            expected: "no log of a server that has just got its number",
            found: "one".to_owned(),
        }),
    }
}

/// All servers at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Those with a session.
    pub servers: BTreeMap<ServerId, ServerRecord>,
    /// Logs that exist.
    pub logs: BTreeMap<ServerId, LogRecord>,
    /// Those among them whose records this program cannot read. They count as open, since nothing says that they are sealed.
    pub unreadable: BTreeSet<ServerId>,
    /// Servers that are to give their tablets up.
    pub draining: BTreeSet<ServerId>,
}

impl View {
    fn apply(&mut self, event: &WatchEvent) {
        match event {
            WatchEvent::Put { key, current } => self.put(key, &current.value),
            WatchEvent::Deleted { key, .. } => {
                if let Some(server) = records::server_of(SERVERS, key) {
                    self.servers.remove(&server);
                } else if let Some(server) = records::server_of(LOGS, key) {
                    self.logs.remove(&server);
                    self.unreadable.remove(&server);
                } else if let Some(server) = records::server_of(DRAINING, key) {
                    self.draining.remove(&server);
                }
            }
            WatchEvent::Resync => {}
        }
    }

    fn put(&mut self, key: &str, value: &[u8]) {
        if let Some(server) = records::server_of(SERVERS, key) {
            match records::decode(value) {
                Ok(record) => drop(self.servers.insert(server, record)),
                Err(error) => tracing::error!(key, error, "the record of a server cannot be read"),
            }
        } else if let Some(server) = records::server_of(LOGS, key) {
            self.put_log(server, records::decode(value));
        } else if let Some(server) = records::server_of(DRAINING, key) {
            self.draining.insert(server);
        }
    }

    /// A log whose record cannot be read must not be forgotten: tablets would get new owners that do not replay it.
    fn put_log(&mut self, server: ServerId, record: Result<LogRecord, String>) {
        let record = record.inspect_err(|error| {
            tracing::error!(%server, error, "the record of a log cannot be read; its tablets stay where they are");
        });
        match record.is_err() {
            true => self.unreadable.insert(server),
            false => self.unreadable.remove(&server),
        };
        self.logs.insert(server, record.unwrap_or_default());
    }
}

/// Follows the records of servers.
pub struct Members {
    cluster: [u8; 16],
    view: RwLock<Arc<View>>,
    /// The servers of the view that serve HBase clients.
    places: RwLock<BTreeMap<ServerId, Arc<ServerPlace>>>,
    changed: watch::Sender<u64>,
}

impl Members {
    /// Lists the servers, and follows their records until the coordinator is shut down.
    pub async fn follow(coord: Arc<dyn Coord>, env: &Env, cluster: [u8; 16]) -> Result<Arc<Members>, CoordError> {
        let watch = coord.watch(ALL).await?;
        let view = list(&*coord).await?;
        let members = Arc::new(Members {
            cluster,
            places: RwLock::new(places_of(&view)),
            view: RwLock::new(Arc::new(view)),
            changed: watch::Sender::new(1),
        });
        env.spawn("members", run(members.clone(), coord, env.clone(), watch));
        Ok(members)
    }

    /// The servers now, as far as it is known here.
    pub fn view(&self) -> Arc<View> {
        self.view.read().clone()
    }

    /// Tells of changes.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// A server that has a session, to be called.
    pub fn peer(&self, server: ServerId) -> Option<Peer> {
        self.view.read().servers.get(&server).map(|record| Peer {
            identity: identity(self.cluster, server),
            address: record.peer.clone(),
        })
    }

    /// The place of a server that serves HBase clients.
    pub fn hbase_place(&self, server: ServerId) -> Option<Arc<ServerPlace>> {
        self.places.read().get(&server).cloned()
    }

    fn replace(&self, view: View) {
        *self.places.write() = places_of(&view);
        *self.view.write() = Arc::new(view);
        self.changed.send_modify(|number| *number += 1);
    }
}

fn places_of(view: &View) -> BTreeMap<ServerId, Arc<ServerPlace>> {
    let place = |(server, record): (&ServerId, &ServerRecord)| {
        let (host, port) = record.hbase.rsplit_once(':')?;
        let place = ServerPlace {
            host: host.to_owned(),
            port: port.parse().ok()?,
            start_code: u64::try_from(record.started_micros / 1_000).ok()?,
        };
        Some((*server, Arc::new(place)))
    };
    view.servers.iter().filter_map(place).collect()
}

/// The servers by the coordinator, which is asked.
pub(crate) async fn list(coord: &dyn Coord) -> Result<View, CoordError> {
    let mut view = View::default();
    for (key, current) in coord.list(ALL).await? {
        view.put(&key, &current.value);
    }
    Ok(view)
}

async fn run(members: Arc<Members>, coord: Arc<dyn Coord>, env: Env, mut watch: stele_coord::Watch) {
    while let Some(event) = watch.next().await {
        let mut view = View::clone(&members.view());
        let mut is_lost = event == WatchEvent::Resync;
        view.apply(&event);
        while let Some(event) = watch.try_next() {
            is_lost |= event == WatchEvent::Resync;
            view.apply(&event);
        }
        while is_lost {
            match list(&*coord).await {
                Ok(listed) => {
                    view = listed;
                    is_lost = false;
                }
                Err(error) => {
                    tracing::warn!(%error, "the servers cannot be listed; it is tried again");
                    env.sleep(PAUSE).await;
                }
            }
        }
        members.replace(view);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It was written by another version of the program, or is damaged.
    #[test]
    fn a_log_stays_known_when_its_record_cannot_be_read() {
        let mut view = View::default();
        let sealed = LogRecord {
            sealed: true,
            bytes: 9,
            streams: 2,
            given_up: true,
            ..LogRecord::default()
        };
        let server = ServerId(7);
        let key = records::key(LOGS, server);
        view.put(&key, &records::encode(&sealed));
        assert_eq!((view.logs.get(&server), view.unreadable.len()), (Some(&sealed), 0));
        for unreadable in [&b""[..], b"\x02\x08\x01", b"\x01\x08"] {
            view.put(&key, unreadable);
            assert_eq!(
                view.logs.get(&server),
                Some(&LogRecord::default()),
                "nothing says that it is sealed"
            );
            assert_eq!(view.unreadable, BTreeSet::from([server]));
        }
        view.put(&key, &records::encode(&sealed));
        assert_eq!((view.logs.get(&server), view.unreadable.len()), (Some(&sealed), 0));
        view.put(&key, b"");
        let deleted = WatchEvent::Deleted { key, revision: 5 };
        view.apply(&deleted);
        assert_eq!(view, View::default());
    }
}
