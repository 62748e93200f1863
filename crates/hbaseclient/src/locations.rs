//! The known locations of regions.
//!
//! Invariants:
//! * Regions of a table do not overlap: newer knowledge replaces the regions that it overlaps.
//! * At most [`REGIONS_MAX`] regions are cached.
//!
//! Pure: no clock, no sockets.

use crate::servers::Server;
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

/// Most cached regions. All are dropped when there would be more. The largest published cluster had some 10,000.
pub const REGIONS_MAX: usize = 100_000;

/// A region and its server.
#[derive(Debug)]
pub struct Region {
    /// Its whole name.
    pub name: Bytes,
    /// First row.
    pub start: Bytes,
    /// First row behind it; empty for the end of the table.
    pub end: Bytes,
    /// Its server.
    pub server: Arc<Server>,
}

impl Region {
    /// Whether a row is in it.
    pub fn contains(&self, row: &[u8]) -> bool {
        *self.start <= *row && (self.end.is_empty() || *row < *self.end)
    }

    /// Its number, which is the time of its creation in ms: a region that is made later has a larger one. `None` for a name
    /// of another form.
    pub fn id(&self) -> Option<u64> {
        // `table,start,id` or `table,start,id.hash.`
        let last = self.name.rsplit(|byte| *byte == b',').next()?;
        let digits = last.split(|byte| *byte == b'.').next()?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    }

    fn overlaps(&self, other: &Self) -> bool {
        let before = |a: &Self, b: &Self| !a.end.is_empty() && a.end <= b.start;
        !before(self, other) && !before(other, self)
    }
}

/// All known locations.
#[derive(Debug, Default)]
pub struct Locations {
    /// Regions of each table by first row.
    tables: HashMap<String, BTreeMap<Bytes, Arc<Region>>>,
    count: usize,
}

impl Locations {
    /// The region of a row, if it is known.
    pub fn find(&self, table: &str, row: &[u8]) -> Option<&Arc<Region>> {
        let range = (Bound::Unbounded, Bound::Included(row));
        let (_, region) = self.tables.get(table)?.range::<[u8], _>(range).next_back()?;
        region.contains(row).then_some(region)
    }

    /// Remembers a region.
    pub fn insert(&mut self, table: &str, region: Arc<Region>) {
        if self.count >= REGIONS_MAX {
            *self = Self::default();
        }
        let regions = self.tables.entry(table.to_owned()).or_default();
        let before = regions.len();
        // Of the regions that begin before it, only the last can reach into it, since they do not overlap each other.
        let first = regions
            .range::<[u8], _>((Bound::Unbounded, Bound::Excluded(&*region.start)))
            .next_back();
        let first = first.map_or(Bytes::new(), |(start, _)| start.clone());
        let overlapped: Vec<Bytes> = regions
            .range(first..)
            .take_while(|(start, _)| region.end.is_empty() || **start < region.end)
            .filter(|(_, other)| other.overlaps(&region))
            .map(|(start, _)| start.clone())
            .collect();
        for start in overlapped {
            regions.remove(&start);
        }
        regions.insert(region.start.clone(), region);
        self.count = self.count + regions.len() - before;
    }

    /// Drops all regions of a table.
    pub fn remove_table(&mut self, table: &str) {
        let dropped = self.tables.remove(table);
        self.count -= dropped.map_or(0, |regions| regions.len());
    }

    /// Drops a region, unless newer knowledge about its rows has arrived since.
    pub fn remove(&mut self, table: &str, region: &Arc<Region>) {
        let Some(regions) = self.tables.get_mut(table) else {
            return;
        };
        if regions
            .get(&region.start)
            .is_some_and(|known| Arc::ptr_eq(known, region))
        {
            regions.remove(&region.start);
            self.count -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn region(start: &str, end: &str) -> Arc<Region> {
        let server = Arc::new(Server::new("h:1".into(), "ClientService", Arc::default()));
        let bytes = |s: &str| Bytes::copy_from_slice(s.as_bytes());
        Arc::new(Region {
            name: bytes(&format!("t,{start},1")),
            start: bytes(start),
            end: bytes(end),
            server,
        })
    }

    fn found(locations: &Locations, row: &str) -> Option<(Bytes, Bytes)> {
        locations
            .find("t", row.as_bytes())
            .map(|r| (r.start.clone(), r.end.clone()))
    }

    #[test]
    fn regions_have_numbers() {
        let id = |name: &'static str| {
            let server = Arc::new(Server::new("h:1".into(), "ClientService", Arc::default()));
            let region = Region {
                name: name.into(),
                start: Bytes::new(),
                end: Bytes::new(),
                server,
            };
            region.id()
        };
        assert_eq!(
            id("ns:t,a,1.5,1700000000000.0123456789abcdef."),
            Some(1_700_000_000_000)
        );
        assert_eq!((id("hbase:meta,,1"), id("t,,x"), id("")), (Some(1), None, None));
    }

    #[test]
    fn a_row_is_found_in_the_region_that_has_it() {
        let mut locations = Locations::default();
        locations.insert("t", region("", "g"));
        locations.insert("t", region("n", ""));
        for (row, start) in [
            ("", Some("")),
            ("f", Some("")),
            ("g", None),
            ("m", None),
            ("n", Some("n")),
            ("z", Some("n")),
        ] {
            assert_eq!(found(&locations, row).map(|r| r.0), start.map(Bytes::from), "{row}");
        }
        assert!(locations.find("u", b"a").is_none());
    }

    #[test]
    fn only_the_region_that_failed_is_forgotten() {
        let mut locations = Locations::default();
        let (old, new) = (region("", ""), region("", "m"));
        locations.insert("t", old.clone());
        locations.insert("t", new.clone());
        locations.remove("t", &old);
        assert!(
            found(&locations, "a").is_some(),
            "it has been looked up again meanwhile"
        );
        locations.remove("t", &new);
        assert!(found(&locations, "a").is_none());
        assert_eq!(locations.count, 0);
        locations.insert("t", new);
        locations.remove_table("t");
        locations.remove_table("t");
        assert!(found(&locations, "a").is_none() && locations.count == 0);
    }

    proptest! {
        #[test]
        fn regions_never_overlap_and_the_last_word_holds(
            ranges in prop::collection::vec(("[a-f]{0,2}", "[a-f]{0,2}"), 1..12), row in "[a-f]{0,3}",
        ) {
            let mut locations = Locations::default();
            let mut last = None;
            for (start, end) in ranges.iter().filter(|(start, end)| end.is_empty() || start < end) {
                locations.insert("t", region(start, end));
                last = Some((start.as_str(), end.as_str()));
            }
            if let Some((start, end)) = last {
                prop_assert_eq!(found(&locations, start), Some((start.to_owned().into(), end.to_owned().into())));
            }
            let known: Vec<_> = locations.tables.values().flat_map(|t| t.values()).collect();
            prop_assert_eq!(known.len(), locations.count);
            for pair in known.windows(2) {
                prop_assert!(!pair[0].overlaps(pair[1]));
            }
            let holders = known.iter().filter(|r| r.contains(row.as_bytes())).count();
            prop_assert_eq!(holders, usize::from(found(&locations, &row).is_some()));
        }
    }
}
