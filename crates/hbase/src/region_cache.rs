//! The regions that a connection has called.
//!
//! A client sends the whole name of a region with each call. Taking it apart and looking its tablet and schema up costs
//! more than reading a row in memory. So a connection keeps the answers, for as long as no table or tablet changes
//! ([`stele_client::TableService::version`]).

use crate::context::Context;
use crate::descriptors;
use crate::failure::Outcome;
use crate::regions::{self, Region};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use stele_types::TableSchema;
use stele_wire::messages::{RegionSpecifier, RegionSpecifierType};

/// Regions at most: 64 KiB of memory with names of the greatest length. When there are more, all are looked up again.
const REGIONS_MAX: usize = 64;

/// Longer names are not kept.
const NAME_BYTES_MAX: usize = 512;

/// A region, and the schema of its table.
pub(crate) type Opened = (Arc<Region>, Arc<TableSchema>);

/// The regions of one connection.
#[derive(Default)]
pub(crate) struct RegionCache(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// Version of all entries.
    version: u64,
    regions: HashMap<Bytes, Opened>,
}

impl RegionCache {
    /// The region of a request, if it is here and its table serves data.
    pub fn open(&self, shared: &Context, specifier: &RegionSpecifier) -> Outcome<Opened> {
        let by_name = specifier.r#type == RegionSpecifierType::RegionName as i32;
        // Before the lookup: a change in between then makes the entry out of date, and not wrong.
        let version = shared.service.version().filter(|_| by_name);
        if let Some(version) = version
            && let Some(opened) = self.known(version, &specifier.value)
        {
            return Ok(opened);
        }
        let mut region = regions::find(&*shared.service, specifier)?;
        let schema = shared.schema(&region.table)?;
        region.cell_bytes_max = descriptors::cell_bytes_max(&schema);
        let opened = (Arc::new(region), schema);
        if let Some(version) = version {
            self.keep(version, &specifier.value, &opened);
        }
        Ok(opened)
    }

    fn known(&self, version: u64, name: &[u8]) -> Option<Opened> {
        let known = self.0.lock();
        if known.version != version {
            return None;
        }
        known.regions.get(name).cloned()
    }

    fn keep(&self, version: u64, name: &[u8], opened: &Opened) {
        let mut known = self.0.lock();
        if known.version != version || known.regions.len() >= REGIONS_MAX {
            known.regions.clear();
            known.version = version;
        }
        if name.len() <= NAME_BYTES_MAX {
            // A copy, or the entry would keep the whole request.
            known.regions.insert(Bytes::copy_from_slice(name), opened.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_service::Model;
    use std::sync::atomic::Ordering;
    use stele_memory::Pool;

    #[tokio::test]
    async fn a_region_is_looked_up_again_after_a_change() {
        let model = Model::new(&["", "m"]);
        let front_end = model.front_end(&Pool::default());
        let (cache, shared) = (RegionCache::default(), &front_end.shared.context);
        for (row, version, expected) in [
            ("a", 1, 1),
            ("a", 1, 1),
            ("n", 1, 2),
            ("a", 1, 2),
            ("a", 2, 3),
            ("a", 2, 3),
            ("n", 2, 4),
            // A service that cannot tell has no cache.
            ("n", 0, 5),
            ("n", 0, 6),
        ] {
            model.version.store(version, Ordering::Relaxed);
            let specifier = model.region(row);
            let (region, schema) = cache.open(shared, &specifier).unwrap();
            assert!(region.range.contains(row.as_bytes()));
            assert_eq!(schema.id, model.schema.id);
            assert_eq!(model.schemas.load(Ordering::Relaxed), expected, "{row} {version}");
        }
        let mut gone = model.region("a");
        gone.value = "t,z,1000000000001.00000000000000000000000000000000.".into();
        assert!(cache.open(shared, &gone).is_err());
    }

    #[tokio::test]
    async fn the_cache_is_bounded() {
        let starts: Vec<String> = (0..200).map(|n| format!("{n:03}")).collect();
        let starts: Vec<&str> = [""].into_iter().chain(starts.iter().map(String::as_str)).collect();
        let model = Model::new(&starts);
        model.version.store(1, Ordering::Relaxed);
        let front_end = model.front_end(&Pool::default());
        let cache = RegionCache::default();
        for start in starts {
            cache.open(&front_end.shared.context, &model.region(start)).unwrap();
            assert!(cache.0.lock().regions.len() <= REGIONS_MAX);
        }
    }
}
