//! Writes the catalog of a single server as the first records of a cluster.
//!
//! Terms: a *promotion* makes the data of a single server those of a cluster. An *attempt* is one run of it. It is *finished* when
//! its record says so; from then on servers join.
//!
//! A catalog has more bytes than one transaction takes. So an attempt begins by changing the record of the promotion, writes the
//! others in many transactions, and ends by changing that record again.
//!
//! Invariants:
//! * Servers and promotions exclude each other. Each first transaction has the absence of the other's first record among its
//!   conditions.
//! * Of several attempts only the newest writes: the version of the record, by its beginning, is a condition of all others.

use crate::records::{self, ID, LOG_PLACE, NUMBERS, PROMOTION, PromotionRecord};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use stele_coord::election::ELECTION_PREFIX;
use stele_coord::epoch::{self, EPOCH_PREFIX};
use stele_coord::{Condition, Coord, CoordError, TXN_BYTES_MAX, TXN_OPS_MAX, Txn, TxnOutcome, Versioned, Write};

/// Prefixes of the records that a single server has and a cluster has under the same keys.
const CARRIED: [&str; 3] = ["catalog/", EPOCH_PREFIX, "root/"];
/// Prefixes of the records of a cluster alone.
const OF_CLUSTERS: [&str; 2] = [records::ALL, ELECTION_PREFIX];
/// Written by a single server after a change of unknown outcome; it says nothing.
const SETTLED: &str = "catalog/settled";
/// Bytes of keys and values in a transaction besides its condition.
const BATCH_BYTES: usize = TXN_BYTES_MAX - 4096;
/// Writes in a transaction.
const BATCH_WRITES: usize = TXN_OPS_MAX - 1;

/// A data root that is promoted, and the places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromotedRoot {
    /// The number of the data root.
    pub root: [u8; 16],
    /// The place that the data come from.
    pub source: String,
    /// The place where servers of the cluster find them.
    pub target: String,
}

/// The reason for which records are not written.
#[derive(Debug, thiserror::Error)]
pub enum PromotionError {
    /// The coordinator failed.
    #[error("coordination: {0}")]
    Coord(#[from] CoordError),
    /// The name is that of a cluster, or of something else.
    #[error("the name is taken: there is the record {key:?} of a cluster already. Give another name in --cluster")]
    Taken {
        /// A record that there is.
        key: String,
    },
    /// Another data root comes under this name.
    #[error(
        "the name is taken: the data of {source_place} are being promoted to it, or were. Give another name in --cluster"
    )]
    OtherRoot {
        /// The place that those data come from.
        source_place: String,
    },
    /// A server found that a promotion is under way.
    #[error("the promotion of {source_place} to this cluster has not finished: run `stele cluster promote` again")]
    UnderWay {
        /// The place that the data come from.
        source_place: String,
    },
    /// Somebody else has changed the records.
    #[error("another process has changed the records of the cluster meanwhile: try again")]
    Superseded,
    /// The single server has a record that a cluster has no use for, as far as this program knows.
    #[error("the catalog has the record {key:?}, which this version does not know")]
    Unknown {
        /// Its key.
        key: String,
    },
    /// The record of the promotion cannot be read.
    #[error("cluster/promotion: {0}")]
    Unreadable(String),
}

/// Result of a step.
type Result<T> = std::result::Result<T, PromotionError>;

/// The record of a promotion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownPromotion {
    /// The data root. Its number has 16 bytes, or another program has written the record.
    pub of: PromotedRoot,
    /// Whether servers may join.
    pub is_finished: bool,
}

/// The beginning of an attempt.
pub enum Begun {
    /// Records may be written.
    Attempt(Promotion),
    /// There is nothing to do: an earlier attempt has finished.
    Finished(PromotedRoot),
}

/// An attempt that may write records until another one begins.
pub struct Promotion {
    coord: Arc<dyn Coord>,
    of: PromotedRoot,
    /// Of the record of the promotion.
    version: u64,
}

/// The promotion of which the coordinator knows.
pub async fn promotion_of(coord: &dyn Coord) -> Result<Option<KnownPromotion>> {
    let read = coord.get(PROMOTION).await?;
    read.map(|read| known(&read)).transpose()
}

fn known(read: &Versioned) -> Result<KnownPromotion> {
    let record: PromotionRecord = records::decode(&read.value).map_err(PromotionError::Unreadable)?;
    let root = <[u8; 16]>::try_from(&record.root[..]);
    let root = root.map_err(|_| PromotionError::Unreadable(format!("a number of {} bytes", record.root.len())))?;
    Ok(KnownPromotion {
        of: PromotedRoot {
            root,
            source: record.source,
            target: record.target,
        },
        is_finished: record.finished,
    })
}

/// For a server that joins: the record of a finished promotion, if there is one.
pub(crate) async fn before_joining(coord: &dyn Coord) -> Result<Option<Versioned>> {
    let read = coord.get(PROMOTION).await?;
    match read.as_ref().map(known).transpose()? {
        Some(KnownPromotion { of, is_finished: false }) => Err(PromotionError::UnderWay {
            source_place: of.source,
        }),
        _ => Ok(read),
    }
}

/// The records of a single server that go to the cluster. The counter of epochs is at least `epochs`: numbers of servers, and
/// with them the names of files and the order of mutations, go on above it.
pub async fn carried_records(single: &dyn Coord, epochs: u64) -> Result<Vec<(String, Bytes)>> {
    let mut carried = Vec::new();
    let mut counter = epochs;
    let own_counter = epoch::key(NUMBERS);
    for (key, current) in single.list("").await? {
        if key == own_counter {
            counter = counter.max(epoch::parse(&key, &current.value)?);
        } else if CARRIED.iter().any(|prefix| key.starts_with(prefix)) {
            if key != SETTLED {
                carried.push((key, current.value));
            }
        } else {
            return Err(PromotionError::Unknown { key });
        }
    }
    carried.push((own_counter, Bytes::from(counter.to_string())));
    carried.sort();
    Ok(carried)
}

impl Promotion {
    /// Begins an attempt at the promotion of a root. Refuses a name under which there is a cluster, or another root.
    pub async fn begin(coord: Arc<dyn Coord>, of: PromotedRoot) -> Result<Begun> {
        let read = coord.get(PROMOTION).await?;
        match read.as_ref().map(known).transpose()? {
            None => {}
            Some(known) if known.of.root != of.root => {
                return Err(PromotionError::OtherRoot {
                    source_place: known.of.source,
                });
            }
            Some(known) if known.is_finished => return Ok(Begun::Finished(known.of)),
            Some(_) => {}
        }
        Promotion::check_vacant(&*coord, read.is_some()).await?;
        let conditions = vec![
            Condition::unchanged(PROMOTION, read.as_ref()),
            Condition::absent(LOG_PLACE),
            Condition::absent(ID),
        ];
        let version = commit(&*coord, conditions, vec![of.record(false)]).await?;
        Ok(Begun::Attempt(Promotion { coord, of, version }))
    }

    /// Refuses a name under which there is a record. Those of an earlier attempt at this promotion do not count.
    pub async fn check_vacant(coord: &dyn Coord, is_begun: bool) -> Result<()> {
        let carried = CARRIED.iter().filter(|_| !is_begun);
        for prefix in OF_CLUSTERS.iter().chain(carried) {
            let mut found = coord.list(prefix).await?.into_iter().map(|(key, _)| key);
            if let Some(key) = found.find(|key| key != PROMOTION) {
                return Err(PromotionError::Taken { key });
            }
        }
        Ok(())
    }

    /// Makes these the records that the cluster begins with: removes others of an earlier attempt. Returns how many were written.
    pub async fn write(&self, wanted: &[(String, Bytes)]) -> Result<usize> {
        let wanted: BTreeMap<&str, &Bytes> = wanted.iter().map(|(key, value)| (key.as_str(), value)).collect();
        let found = self.written().await?;
        let gone = found.keys().filter(|key| !wanted.contains_key(key.as_str()));
        let gone = gone.map(|key| Write::Delete { key: key.clone() });
        let is_missing = |(key, value): &(&&str, &&Bytes)| found.get(**key) != Some(**value);
        let put = wanted.iter().filter(is_missing).map(|(key, value)| Write::Put {
            key: (*key).to_owned(),
            value: (*value).clone(),
        });
        let writes: Vec<Write> = gone.chain(put).collect();
        let count = writes.len();
        for batch in batches(writes) {
            self.commit(batch).await?;
        }
        let found = self.written().await?;
        let is_same = found.len() == wanted.len()
            && found
                .iter()
                .all(|(key, value)| wanted.get(key.as_str()) == Some(&value));
        match is_same {
            true => Ok(count),
            false => Err(PromotionError::Superseded),
        }
    }

    /// Says that the cluster has the data: servers may join. The single server must not start any more. The number of the data root
    /// becomes that of the cluster, as the format of the shared root has it already.
    pub async fn finish(self) -> Result<()> {
        let conditions = vec![
            Condition::version(PROMOTION, self.version),
            Condition::absent(LOG_PLACE),
            Condition::absent(ID),
        ];
        let number = Write::Put {
            key: ID.to_owned(),
            value: Bytes::copy_from_slice(&self.of.root),
        };
        let writes = vec![self.of.record(true), number];
        commit(&*self.coord, conditions, writes).await.map(drop)
    }

    async fn written(&self) -> Result<BTreeMap<String, Bytes>> {
        let mut found = BTreeMap::new();
        for prefix in CARRIED {
            let listed = self.coord.list(prefix).await?;
            found.extend(listed.into_iter().map(|(key, current)| (key, current.value)));
        }
        Ok(found)
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<()> {
        let conditions = vec![Condition::version(PROMOTION, self.version)];
        match self.coord.txn(Txn { conditions, writes }).await? {
            TxnOutcome::Committed { .. } => Ok(()),
            TxnOutcome::Conflict { .. } => Err(PromotionError::Superseded),
        }
    }
}

impl PromotedRoot {
    /// Writes the record of the promotion.
    fn record(&self, finished: bool) -> Write {
        let record = PromotionRecord {
            root: Bytes::copy_from_slice(&self.root),
            source: self.source.clone(),
            target: self.target.clone(),
            finished,
        };
        Write::Put {
            key: PROMOTION.to_owned(),
            value: records::encode(&record),
        }
    }
}

/// Changes the record of the promotion, perhaps with others; its version.
async fn commit(coord: &dyn Coord, conditions: Vec<Condition>, writes: Vec<Write>) -> Result<u64> {
    match coord.txn(Txn { conditions, writes }).await? {
        TxnOutcome::Committed { revision } => Ok(revision),
        TxnOutcome::Conflict { key } if key == PROMOTION => Err(PromotionError::Superseded),
        TxnOutcome::Conflict { key } => Err(PromotionError::Taken { key }),
    }
}

/// Writes in groups that fit into a transaction each.
fn batches(writes: Vec<Write>) -> Vec<Vec<Write>> {
    let mut batches: Vec<Vec<Write>> = Vec::new();
    let mut bytes = 0;
    for write in writes {
        let own = match &write {
            Write::Put { key, value } | Write::PutBound { key, value, .. } => key.len() + value.len(),
            Write::Delete { key } => key.len(),
        };
        match batches.last_mut() {
            Some(batch) if batch.len() < BATCH_WRITES && bytes + own <= BATCH_BYTES => {
                bytes += own;
                batch.push(write);
            }
            _ => {
                bytes = own;
                batches.push(vec![write]);
            }
        }
    }
    batches
}

#[cfg(test)]
mod tests;
