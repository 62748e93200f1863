//! Finds the families that the parts of a filter are about.
//!
//! A table may have 20,000 families, and a filter thousands of parts that name one or match all of them. So names are searched in a
//! sorted list after some scans, and a pattern is matched once, however often it occurs. The work and the
//! lists of all patterns together are bounded: a filter is compiled on an event loop, and no account charges the lists.

use crate::re2::Pattern;
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::Arc;
use stele_types::{FamilyId, TableSchema};

/// Scans of all families that take as long as sorting them does.
const SCANS_MAX: usize = 16;

/// Names that patterns are tried on, [`TESTED_BYTES`] of a name counted as one more: about a tenth of a second. Of 20,000 families that
/// is enough for about a hundred patterns, lists of names not counted.
const TRIED_MAX: usize = 1 << 22;

/// Bytes for which an automaton takes as long as the rest of a test.
const TESTED_BYTES: usize = 8;

/// Families in the lists of all patterns: 1 MiB, which is less than the states that patterns may gather while they are matched.
const LISTED_MAX: usize = 1 << 18;

/// The families of a table, while one filter is compiled.
pub(super) struct FamilyFinder<'a> {
    schema: &'a TableSchema,
    scans: usize,
    /// Sorted; absent until there were many scans.
    by_name: Option<Vec<(&'a str, FamilyId)>>,
    /// Of the patterns so far.
    lists: HashMap<Bytes, Arc<[FamilyId]>>,
    tried: usize,
    listed: usize,
}

impl<'a> FamilyFinder<'a> {
    pub(super) fn new(schema: &'a TableSchema) -> Self {
        FamilyFinder {
            schema,
            scans: 0,
            by_name: None,
            lists: HashMap::new(),
            tried: 0,
            listed: 0,
        }
    }

    /// The family of this name.
    pub(super) fn named(&mut self, name: &str) -> Option<FamilyId> {
        if self.scans < SCANS_MAX {
            self.scans += 1;
            return self.schema.family_named(name).map(|(id, _)| id);
        }
        let schema = self.schema;
        let by_name = self.by_name.get_or_insert_with(|| {
            let families = schema.families.iter();
            let mut by_name: Vec<_> = families.map(|(id, family)| (family.name.as_str(), *id)).collect();
            by_name.sort_unstable();
            by_name
        });
        let at = by_name.binary_search_by_key(&name, |(known, _)| known).ok()?;
        by_name.get(at).map(|(_, id)| *id)
    }

    /// Those of the families that there are, sorted.
    pub(super) fn existing(&self, families: &[FamilyId]) -> Arc<[FamilyId]> {
        let existing = families.iter().filter(|id| self.schema.families.contains_key(id));
        let mut existing: Vec<FamilyId> = existing.copied().collect();
        existing.sort_unstable();
        existing.dedup();
        existing.into()
    }

    /// The families of a pattern that has been matched before.
    pub(super) fn known(&self, pattern: &Bytes) -> Option<Arc<[FamilyId]>> {
        self.lists.get(pattern).cloned()
    }

    /// The families whose name matches, sorted. `None` when it is too much for one filter.
    pub(super) fn matching(&mut self, pattern: &Bytes, compiled: &Pattern) -> Option<Arc<[FamilyId]>> {
        let matching = match compiled.alternatives() {
            Some(names) => self.all_named(names),
            None => self.all_matching(compiled)?,
        };
        self.listed += matching.len();
        if self.listed > LISTED_MAX {
            return None;
        }
        let matching: Arc<[FamilyId]> = matching.into();
        self.lists.insert(pattern.clone(), Arc::clone(&matching));
        Some(matching)
    }

    fn all_named(&mut self, names: &[Vec<u8>]) -> Vec<FamilyId> {
        let names = names.iter().filter_map(|name| str::from_utf8(name).ok());
        let mut families: Vec<FamilyId> = names.filter_map(|name| self.named(name)).collect();
        families.sort_unstable();
        families
    }

    fn all_matching(&mut self, compiled: &Pattern) -> Option<Vec<FamilyId>> {
        let mut matching = Vec::new();
        for (id, family) in &self.schema.families {
            let name = family.name.as_bytes();
            let bytes = compiled.bytes_matched(name);
            self.tried = self.tried.saturating_add(1 + bytes / TESTED_BYTES);
            if self.tried > TRIED_MAX {
                return None;
            }
            if compiled.is_match(name) {
                matching.push(*id);
            }
        }
        Some(matching)
    }
}
