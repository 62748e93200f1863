//! Elections: of all sessions that campaign for a name, one leads.
//!
//! The leader is the session whose bound key exists. A deposed leader notices it late (a paused process does not see its
//! session end). So a leader's transactions carry [`Leadership::fence`]: they fail once another session leads.

use crate::coord::Coord;
use crate::error::{CoordError, Result};
use crate::session::Session;
use crate::txn::{Condition, Txn, TxnOutcome, Versioned, Write};
use crate::watch::WatchEvent;
use bytes::Bytes;

/// Where the leaders' keys are.
pub const ELECTION_PREFIX: &str = "election/";

/// The key of an election.
pub fn election_key(name: &str) -> String {
    format!("{ELECTION_PREFIX}{name}")
}

/// A won election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leadership {
    key: String,
    version: u64,
}

impl Leadership {
    /// Holds while no other session was elected and this one lives.
    pub fn fence(&self) -> Condition {
        Condition::version(&self.key, self.version)
    }

    /// A number that grows from leader to leader.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Steps down, so that the next candidate need not wait for the session to end.
    pub async fn resign(self, coord: &dyn Coord) -> Result<()> {
        let delete = Write::Delete { key: self.key.clone() };
        // On a conflict another session leads already.
        coord
            .txn(Txn {
                conditions: vec![self.fence()],
                writes: vec![delete],
            })
            .await
            .map(drop)
    }
}

/// The current leader's value.
pub async fn leader(coord: &dyn Coord, name: &str) -> Result<Option<Versioned>> {
    coord.get(&election_key(name)).await
}

/// Waits until this session leads. The caller must keep the session alive meanwhile; its end is noticed when the place
/// becomes free. A session that leads already waits for itself.
pub async fn campaign(coord: &dyn Coord, name: &str, session: &Session, value: Bytes) -> Result<Leadership> {
    let key = election_key(name);
    // Watch first, so that the place becoming free between the attempt and the wait is not missed.
    let mut watch = coord.watch(&key).await?;
    loop {
        let put = Write::PutBound {
            key: key.clone(),
            value: value.clone(),
            session: session.id(),
        };
        let txn = Txn {
            conditions: vec![Condition::absent(&key)],
            writes: vec![put],
        };
        if let TxnOutcome::Committed { revision } = coord.txn(txn).await? {
            return Ok(Leadership { key, version: revision });
        }
        loop {
            match watch.next().await {
                Some(WatchEvent::Deleted { key: deleted, .. }) if deleted == key => break,
                Some(WatchEvent::Resync) => break,
                Some(_) => {}
                None => return Err(CoordError::Closed),
            }
        }
    }
}
