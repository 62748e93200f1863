//! Finds the families of many cells by name.
//!
//! Most requests name one family, so the family found last is tried first. A scan of the schema finds another one of a few soon
//! enough. A table may have 20,000 families, though, and a request a million cells: when scans have passed many names, the families
//! are sorted by name once.

use super::no_family;
use crate::failure::Outcome;
use std::cmp::Ordering;
use stele_memory::Reservation;
use stele_types::{FamilyId, TableSchema};

/// Families up to which a scan is as fast as a search.
const SCANNED_FAMILIES_MAX: usize = 16;

/// Scans of all families that take as long as sorting them does.
const SCANS_MAX: usize = 16;

/// A search for families of one schema.
#[derive(Debug, Default)]
pub(crate) struct FamilySearch {
    last: Option<FamilyId>,
    /// Names that scans have passed, since memory was last refused.
    passed: usize,
    /// By name; absent until there were many scans.
    sorted: Option<Box<[FamilyId]>>,
}

impl FamilySearch {
    /// The family of a request. The list of families is charged to `memory`; without memory for it, scans go on.
    pub fn find(&mut self, schema: &TableSchema, name: &[u8], memory: Option<&Reservation>) -> Outcome<FamilyId> {
        if let Some(last) = self.last
            && schema
                .families
                .get(&last)
                .is_some_and(|family| family.name.as_bytes() == name)
        {
            return Ok(last);
        }
        let found = match self.sorted(schema, memory) {
            Some(sorted) => {
                let at = sorted.binary_search_by(|id| name_of(schema, *id).cmp(name));
                at.ok().and_then(|at| sorted.get(at).copied())
            }
            None => self.scan(schema, name),
        };
        self.last = found.or(self.last);
        found.ok_or_else(|| no_family(schema, name))
    }

    /// Names that scans have passed, since memory was last refused.
    #[cfg(test)]
    pub fn passed(&self) -> usize {
        self.passed
    }

    fn scan(&mut self, schema: &TableSchema, name: &[u8]) -> Option<FamilyId> {
        let mut names = schema.families.iter().enumerate();
        let found = names.find(|(_, (_, family))| family.name.as_bytes() == name);
        let passed = found.map_or(schema.families.len(), |(before, _)| before + 1);
        self.passed = self.passed.saturating_add(passed);
        found.map(|(_, (id, _))| *id)
    }

    fn sorted(&mut self, schema: &TableSchema, memory: Option<&Reservation>) -> Option<&[FamilyId]> {
        let count = schema.families.len();
        if self.sorted.is_none() && count > SCANNED_FAMILIES_MAX && self.passed > SCANS_MAX * count {
            let bytes = count * size_of::<FamilyId>();
            if memory.is_none_or(|memory| memory.try_grow(bytes).is_ok()) {
                let mut sorted: Box<[FamilyId]> = schema.families.keys().copied().collect();
                sorted.sort_unstable_by(|a, b| by_name(schema, *a, *b));
                self.sorted = Some(sorted);
            } else {
                // Memory is asked for again after as many scans.
                self.passed = 0;
            }
        }
        self.sorted.as_deref()
    }
}

fn name_of(schema: &TableSchema, id: FamilyId) -> &[u8] {
    schema.families.get(&id).map_or(&[], |family| family.name.as_bytes())
}

fn by_name(schema: &TableSchema, a: FamilyId, b: FamilyId) -> Ordering {
    name_of(schema, a).cmp(name_of(schema, b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_service::Model;
    use stele_memory::{Part, Pool};
    use stele_types::schema::Family;

    /// A table with this many families: `f0`, `f1`, …
    fn schema(families: u32) -> TableSchema {
        let mut schema = Model::new(&[""]).schema.as_ref().clone();
        let template = schema.families.values().next().unwrap().clone();
        let family = |n: u32| Family {
            name: format!("f{n}"),
            ..template.clone()
        };
        schema.families = (0..families).map(|n| (FamilyId(n), family(n))).collect();
        schema
    }

    #[test]
    fn families_are_found_however_many_there_are() {
        for count in [1, 3, 17, 300] {
            let schema = schema(count);
            let mut search = FamilySearch::default();
            for round in 0..60 {
                for n in 0..count {
                    let found = search.find(&schema, format!("f{n}").as_bytes(), None);
                    assert_eq!(found.unwrap(), FamilyId(n), "round {round}");
                }
                assert!(search.find(&schema, b"f", None).is_err());
                assert!(search.find(&schema, b"f300", None).is_err());
            }
            assert_eq!(search.sorted.is_some(), count > 16, "{count}");
        }
    }

    #[test]
    fn names_that_are_passed_are_bounded() {
        let schema = schema(20_000);
        let mut search = FamilySearch::default();
        for cell in 0..100_000u32 {
            let n = cell.wrapping_mul(7_919) % 20_000;
            let found = search.find(&schema, format!("f{n}").as_bytes(), None);
            assert_eq!(found.unwrap(), FamilyId(n));
            assert!(search.passed <= (SCANS_MAX + 1) * 20_000, "{}", search.passed);
        }
        assert!(search.sorted.is_some());
    }

    #[test]
    fn a_repeated_family_is_not_searched() {
        let schema = schema(20_000);
        let mut search = FamilySearch::default();
        for _ in 0..1_000 {
            search.find(&schema, b"f19999", None).unwrap();
        }
        assert_eq!(search.passed, 20_000);
    }

    #[test]
    fn the_list_of_families_is_charged() {
        let schema = schema(20_000);
        let of = |limit: usize| {
            let pool = Pool::default().limited(Part::Requests, limit);
            let memory = pool.of(Part::Requests).empty();
            let mut search = FamilySearch::default();
            for n in 0..50 {
                search
                    .find(&schema, format!("f{}", 19_999 - n).as_bytes(), Some(&memory))
                    .unwrap();
            }
            (search.sorted.is_some(), memory.counted())
        };
        assert_eq!(of(1 << 20), (true, 20_000 * size_of::<FamilyId>()));
        assert_eq!(of(20_000), (false, 0));
    }
}
