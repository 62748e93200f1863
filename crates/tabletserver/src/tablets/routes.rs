//! Where a tablet is found by its identifier without a lock.

use super::served::Served;
use arc_swap::{ArcSwap, Guard};
use std::collections::BTreeMap;
use std::sync::Arc;
use stele_types::TabletId;

/// Maps from ids to tablets: with ten thousand tablets, a change of one copies 160 entries.
const ROUTE_SHARDS: usize = 64;

/// The tablets by id. A lookup takes no lock, does not block changes of the map, and takes no reference of its own:
/// the two together would double the cost of a read of a row.
pub(crate) struct Routes(Box<[ArcSwap<ById>]>);

/// Tablets by identifier.
pub(super) type ById = BTreeMap<TabletId, Arc<Served>>;

impl Default for Routes {
    fn default() -> Self {
        Routes((0..ROUTE_SHARDS).map(|_| ArcSwap::default()).collect())
    }
}

impl Routes {
    /// The tablets among which one is, if it is served.
    pub(crate) fn around(&self, tablet: TabletId) -> Guard<Arc<ById>> {
        self.shard(tablet).load()
    }

    /// Changes the part of a tablet. One at a time.
    pub(super) fn change(&self, tablet: TabletId, change: impl FnOnce(&mut ById)) {
        let shard = self.shard(tablet);
        let mut tablets = ById::clone(&shard.load());
        change(&mut tablets);
        shard.store(Arc::new(tablets));
    }

    fn shard(&self, tablet: TabletId) -> &ArcSwap<ById> {
        &self.0[place_of(tablet, ROUTE_SHARDS)]
    }
}

/// Bits of an identifier below the number of its block.
const BLOCK_BITS: u32 = 20;

/// The place of a tablet among `places`. A table and each split take a block of identifiers of their own, and most are the first of theirs.
fn place_of(tablet: TabletId, places: usize) -> usize {
    assert!(places > 0, "a tablet is in one of some places");
    let block = tablet.0 >> BLOCK_BITS;
    (block.wrapping_add(tablet.0) % places as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Identifiers as `Catalog::allocate_ids` gives them, the first of a block to the table.
    #[test]
    fn tablets_are_in_all_places_however_they_were_made() {
        let first = |block: u64| block << 20;
        let of_tables: Vec<u64> = (1..=240).map(|block| first(block) + 1).collect();
        let halves: Vec<u64> = (1..=120).flat_map(|block| [first(block), first(block) + 1]).collect();
        let of_one_table: Vec<u64> = (1..=240).map(|number| first(7) + number).collect();
        for ids in [of_tables, halves, of_one_table] {
            for places in [1, 2, 3, 4, ROUTE_SHARDS] {
                let mut taken = vec![0; places];
                ids.iter().for_each(|id| taken[place_of(TabletId(*id), places)] += 1);
                let (least, most) = (taken.iter().min().unwrap(), taken.iter().max().unwrap());
                assert!(*most <= 2 * *least, "{places} places, from {}: {taken:?}", ids[0]);
            }
        }
    }
}
