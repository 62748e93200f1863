//! Row latches: what makes a read-modify-write atomic.
//!
//! Rows share a fixed number of stripes by hash. A plain write holds its rows' stripes shared, until it is applied, so that
//! plain writes never wait for each other; a read-modify-write holds its row's stripe alone, across its read and its
//! write. Stripes are taken in ascending order, so no two writers wait for each other in a circle.

use std::sync::Arc;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};
use xxhash_rust::xxh3::xxh3_64;

/// Enough that two of a hundred concurrent rows rarely meet; 64 KB in all.
const STRIPES: usize = 1024;

/// The stripes of a server.
pub struct RowLatches {
    stripes: Vec<Arc<RwLock<()>>>,
}

impl Default for RowLatches {
    fn default() -> Self {
        RowLatches {
            stripes: (0..STRIPES).map(|_| Arc::default()).collect(),
        }
    }
}

/// Held by a plain write.
pub type Shared = Vec<OwnedRwLockReadGuard<()>>;
/// Held by a read-modify-write.
pub type Exclusive = OwnedRwLockWriteGuard<()>;

impl RowLatches {
    /// Latches rows for a plain write.
    pub async fn share<'a>(&self, rows: impl Iterator<Item = &'a [u8]>) -> Shared {
        let mut stripes: Vec<usize> = rows.map(stripe_of).collect();
        stripes.sort_unstable();
        stripes.dedup();
        let mut guards = Vec::with_capacity(stripes.len());
        for stripe in stripes {
            guards.push(self.stripes[stripe].clone().read_owned().await);
        }
        guards
    }

    /// Latches one row alone.
    pub async fn own(&self, row: &[u8]) -> Exclusive {
        self.stripes[stripe_of(row)].clone().write_owned().await
    }
}

fn stripe_of(row: &[u8]) -> usize {
    (xxh3_64(row) % STRIPES as u64) as usize
}
