//! The tablets of a server: those served, those damaged, and the routes to them.
//!
//! Terms: a *stray* (orphan) tablet is in storage, and the catalog does not name it although it perhaps should.
//!
//! Invariants:
//! * A tablet is in one stage: served, or damaged, or neither. Only while a damaged one is taken up again it is both.
//! * Requests find a tablet exactly while `all` has it: both change together, under the lock of `all`.

mod routes;
mod served;

pub(crate) use routes::Routes;
pub(crate) use served::{DamagedTablet, Shut};
pub use served::{DropNumber, Served};

use crate::error::{from_tablet, not_here};
use crate::heat::map::Operations;
use crate::heat::{Places, Traffic};
use crate::latch::SharedLock;
use crate::row_cache::RowCache;
use crate::work::Compactions;
use arc_swap::Guard;
use parking_lot::RwLock;
use routes::ById;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use stele_client::{ServiceError, ServiceResult};
use stele_tablet::{Tablet, TabletError};
use stele_types::{SeqNo, TableId, TableSchema, TabletId};

/// The tablets of a server.
pub(crate) struct Tablets {
    all: RwLock<ById>,
    /// The same for requests; changed while `all` is locked.
    routes: Routes,
    /// Tablets whose manifest cannot be read, with the reason: every request for one is refused with it, and the log
    /// retains its records.
    damaged: RwLock<BTreeMap<TabletId, DamagedTablet>>,
    strays: BTreeSet<TabletId>,
    /// Tablets that another server takes up from this server's log, which therefore retains their records.
    abandoned: RwLock<BTreeSet<TabletId>>,
    row_cache: Arc<RowCache>,
    compactions: Arc<Compactions>,
}

impl Places for Tablets {
    fn add_traffic(&self, tablet: TabletId, operations: Operations) -> Option<TableId> {
        let tablets = self.around(tablet);
        let served = tablets.get(&tablet)?;
        served.traffic.add(operations);
        Some(served.tablet.with_schema(|schema| schema.id))
    }

    fn each_traffic(&self, visit: &mut dyn FnMut(&Traffic)) {
        self.all().iter().for_each(|served| visit(&served.traffic));
    }
}

/// A tablet that was damaged and is served now.
pub(crate) struct TakenUp {
    /// Whether the tablet was damaged until now. It was dropped meanwhile if it was not, and must go again.
    pub(crate) was_damaged: bool,
    /// Whether a changed schema has frozen a memtable of it, which is to be flushed.
    pub(crate) is_frozen: bool,
}

impl Tablets {
    /// No tablet is served yet.
    pub(crate) fn new(
        damaged: BTreeMap<TabletId, DamagedTablet>,
        strays: BTreeSet<TabletId>,
        row_cache: Arc<RowCache>,
        compactions: Arc<Compactions>,
    ) -> Self {
        assert!(
            strays.iter().all(|stray| !damaged.contains_key(stray)),
            "a tablet is in one stage: the catalog names damaged tablets, and no strays"
        );
        Tablets {
            all: RwLock::default(),
            routes: Routes::default(),
            damaged: RwLock::new(damaged),
            strays,
            abandoned: RwLock::default(),
            row_cache,
            compactions,
        }
    }

    /// The tablet, if it is served here.
    pub(crate) fn served(&self, tablet: TabletId) -> ServiceResult<Arc<Served>> {
        let served = self.routes.around(tablet).get(&tablet).cloned();
        debug_assert!(
            served.as_ref().is_none_or(|served| served.tablet.id() == tablet),
            "a route leads to the tablet of its identifier"
        );
        served.ok_or_else(|| self.not_served(tablet))
    }

    /// The tablets among which one is, if it is served: for a request that needs no reference of its own.
    pub(crate) fn around(&self, tablet: TabletId) -> Guard<Arc<ById>> {
        self.routes.around(tablet)
    }

    /// Whether a tablet is served here.
    pub(crate) fn is_served(&self, tablet: TabletId) -> bool {
        self.routes.around(tablet).contains_key(&tablet)
    }

    /// The error for a tablet that is not served here.
    pub(crate) fn not_served(&self, tablet: TabletId) -> ServiceError {
        match self.damaged.read().get(&tablet) {
            Some(damaged) => from_tablet(damaged.error.clone()),
            None => not_here(tablet),
        }
    }

    /// All tablets served here.
    pub(crate) fn all(&self) -> Vec<Arc<Served>> {
        self.all.read().values().cloned().collect()
    }

    /// How many tablets are served here.
    pub(crate) fn count(&self) -> usize {
        self.all.read().len()
    }

    /// The next `count` tablets in the order of identifiers.
    pub(crate) fn some_from(&self, from: Bound<TabletId>, count: usize) -> Vec<Arc<Served>> {
        let tablets = self.all.read();
        let range = tablets.range((from, Bound::Unbounded)).take(count);
        range.map(|(_, served)| served.clone()).collect()
    }

    /// Begins to serve a tablet, of which no other is served under the same identifier.
    pub(crate) fn serve(&self, tablet: Arc<Tablet>) {
        let id = tablet.id();
        let served = Arc::new(Served {
            tablet: tablet.clone(),
            since_micros: tablet.wall_micros(),
            traffic: Traffic::default(),
            gate: SharedLock::default(),
            newest_drop: Default::default(),
            barring: Default::default(),
            row_cache: self.row_cache.clone(),
        });
        let mut tablets = self.all.write();
        self.routes.change(id, |shard| {
            let former = shard.insert(id, served.clone());
            assert!(
                former.is_none(),
                "a tablet is served once: requests find another under its identifier"
            );
        });
        let former = tablets.insert(id, served);
        assert!(former.is_none(), "a tablet is served once: another has its identifier");
        drop(tablets);
        // From here on its own state tells how far the log may go.
        self.forget_abandoned(id);
        if tablet.wants_warming() {
            self.compactions.announce(id);
        }
    }

    /// Stops serving a tablet: requests that hold it finish or find it closed.
    pub(crate) fn unserve(&self, tablet: TabletId) -> Option<Arc<Served>> {
        let mut tablets = self.all.write();
        let served = tablets.remove(&tablet)?;
        self.routes.change(tablet, |shard| {
            let routed = shard.remove(&tablet);
            assert!(
                routed.is_some_and(|routed| Arc::ptr_eq(&routed, &served)),
                "requests find the tablets that are served, and no others"
            );
        });
        drop(tablets);
        served.tablet.close();
        Some(served)
    }

    /// Stops serving a tablet whose next owner replays the log of this server: the log retains its records from now on.
    pub(crate) fn abandon(&self, tablet: TabletId) -> Option<Arc<Served>> {
        // First, or the log could drop the records between the two.
        self.abandoned.write().insert(tablet);
        self.unserve(tablet)
    }

    /// The log need not retain the records of an abandoned tablet any more: it is served here again, or nobody will replay them.
    pub(crate) fn forget_abandoned(&self, tablet: TabletId) {
        self.abandoned.write().remove(&tablet);
    }

    /// The tablets whose records the log retains for another server.
    pub(crate) fn abandoned(&self) -> Vec<TabletId> {
        self.abandoned.read().iter().copied().collect()
    }

    /// Whether files hold everything of a tablet up to a sequence number, so that the log need not.
    pub(crate) fn is_flushed(&self, tablet: TabletId, seq: SeqNo) -> bool {
        let tablets = self.all.read();
        match tablets.get(&tablet) {
            Some(served) => served.tablet.flushed_through() >= seq,
            // Dropped, split or handed over: the manifests of its successors or its next owner have its files. Of a
            // damaged or a stray one nobody knows.
            None => {
                !self.strays.contains(&tablet)
                    && !self.damaged.read().contains_key(&tablet)
                    && !self.abandoned.read().contains(&tablet)
            }
        }
    }

    /// The tablets that cannot be served, and why.
    pub(crate) fn damaged(&self) -> Vec<(TabletId, TabletError)> {
        let damaged = self.damaged.read();
        let damaged = damaged.iter().map(|(id, damaged)| (*id, damaged.error.clone()));
        damaged.collect()
    }

    /// How many tablets cannot be served.
    pub(crate) fn damaged_count(&self) -> usize {
        self.damaged.read().len()
    }

    /// Whether the log keeps records of tablets that are not served.
    pub(crate) fn has_unserved(&self) -> bool {
        !self.strays.is_empty() || !self.damaged.read().is_empty() || !self.abandoned.read().is_empty()
    }

    /// The tablets that are not served because the device could not read their manifests, with their schemas.
    pub(crate) fn unread(&self) -> Vec<(TabletId, Arc<TableSchema>)> {
        let damaged = self.damaged.read();
        let unread = damaged.iter().filter(|(_, tablet)| tablet.is_unread());
        unread.map(|(id, tablet)| (*id, tablet.schema.clone())).collect()
    }

    /// Forgets a damaged tablet; whether there was one.
    pub(crate) fn forget_damaged(&self, tablet: TabletId) -> bool {
        self.damaged.write().remove(&tablet).is_some()
    }

    /// Notes the new schema of a table for its damaged tablets.
    pub(crate) fn set_schema_of_damaged(&self, schema: &Arc<TableSchema>) {
        let mut damaged = self.damaged.write();
        for tablet in damaged.values_mut().filter(|tablet| tablet.schema.id == schema.id) {
            tablet.schema = schema.clone();
        }
    }

    /// Serves a tablet that was damaged.
    pub(crate) fn take_up(&self, tablet: Arc<Tablet>) -> TakenUp {
        let id = tablet.id();
        let schema = self.damaged.read().get(&id).map(|damaged| damaged.schema.clone());
        let mut is_frozen = schema.is_some_and(|schema| tablet.set_schema(schema));
        // Before it counts as damaged no more, or the log could drop the records that it retains for the tablet.
        self.serve(tablet.clone());
        let mut damaged = self.damaged.write();
        let former = damaged.remove(&id);
        // A schema that came since. Of those that come from now on, the tablet is told as one that is served.
        let was_damaged = former.is_some();
        is_frozen |= former.is_some_and(|former| tablet.set_schema(former.schema));
        TakenUp { was_damaged, is_frozen }
    }
}
