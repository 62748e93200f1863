//! Tablets of a change of the catalog whose records may not exist yet.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use stele_assignment::Owner;
use stele_catalog::{Catalog, Homes};
use stele_types::{Epoch, ServerId, TabletId};

/// The owners of such tablets.
#[derive(Default)]
pub(crate) struct NewTablets(Mutex<BTreeMap<TabletId, Owner>>);

impl Homes for NewTablets {
    fn home_of(&self, tablet: TabletId) -> Option<Owner> {
        self.0.lock().get(&tablet).copied()
    }
}

impl NewTablets {
    /// Notes tablets before a server makes them.
    pub(super) fn note(&self, server: ServerId, epoch: Epoch, tablets: impl Iterator<Item = TabletId>) {
        let mut homes = self.0.lock();
        homes.extend(tablets.map(|tablet| (tablet, Owner { server, epoch })));
    }

    /// No change will name these.
    pub(super) fn forget(&self, tablets: &[TabletId]) {
        let mut homes = self.0.lock();
        for tablet in tablets {
            homes.remove(tablet);
        }
    }

    /// Tablets that a change under way may come to name.
    pub(super) fn coming(&self, catalog: &Catalog) -> BTreeSet<TabletId> {
        let mut homes = self.0.lock();
        if !homes.is_empty() {
            // Their records may exist before that of their table.
            let view = catalog.view();
            let named = view.tables.values().flat_map(|table| table.tablets());
            for tablet in named {
                homes.remove(&tablet.id);
            }
        }
        homes.keys().copied().collect()
    }
}
