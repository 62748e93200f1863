//! A tablet is served with its gate, or set aside because it is damaged.

use crate::heat::Traffic;
use crate::latch::SharedLock;
use crate::row_cache::RowCache;
use std::sync::Arc;
use stele_storage::StorageError;
use stele_tablet::{Tablet, TabletError};
use stele_types::TableSchema;

/// Says which of two drops of rows was ordered later: the term of the leader, and its count of drops.
pub type DropNumber = (u64, u64);

/// A tablet being served.
pub struct Served {
    /// The tablet.
    pub tablet: Arc<Tablet>,
    /// Wall-clock microseconds from which on it is served here.
    pub(crate) since_micros: i64,
    /// Operations on its rows.
    pub traffic: Traffic,
    /// Writers hold it shared from the range check until their batch is applied; a split or a drop of rows alone.
    pub(crate) gate: SharedLock,
    /// The newest drop of rows that has a number. Locked while one is carried out.
    pub(crate) newest_drop: tokio::sync::Mutex<DropNumber>,
    /// Locked from the barrier of a bulk load or a drop of rows in the log until its files are those of the tablet, and while a snapshot lists
    /// these. A snapshot in between would lack the change, and a restore would take it for one that has it: the barrier is older.
    pub(crate) barring: tokio::sync::Mutex<()>,
    /// The server's.
    pub(crate) row_cache: Arc<RowCache>,
}

impl Served {
    /// Bytes of the tablet's memtables.
    pub(crate) fn memtable_bytes(&self) -> u64 {
        self.tablet.state().memtable_bytes()
    }
}

/// Keeps writers out of a tablet while it lives.
pub(crate) struct Shut(Arc<Served>);

impl Shut {
    /// Waits for the writers of a tablet.
    pub(crate) async fn shut(served: &Arc<Served>) -> Shut {
        served.gate.own().await;
        Shut(served.clone())
    }
}

impl Drop for Shut {
    fn drop(&mut self) {
        self.0.gate.disown();
    }
}

/// A tablet that cannot be served.
pub(crate) struct DamagedTablet {
    /// Why.
    pub(crate) error: TabletError,
    /// Its table's, as of now.
    pub(crate) schema: Arc<TableSchema>,
}

impl DamagedTablet {
    /// Whether the device could not read its manifest. It may by now.
    pub(crate) fn is_unread(&self) -> bool {
        matches!(self.error, TabletError::Storage(StorageError::Unreadable { .. }))
    }
}
