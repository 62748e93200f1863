//! A per-thread cache of compiled filters.
//!
//! Applications repeat a few filters, and each request compiles its filter in two places: in the router, to refuse a
//! bad one before the first row, and in the tablet. Compiling costs as much as the rest of a read of one row, and
//! comparing two small trees costs almost nothing.
//!
//! Invariants:
//! * A cached filter is used only under the schema that it was compiled for. The entry keeps that schema in memory, so
//!   no other schema can have its address.
//! * An entry is small: [`REMEMBERED_BYTES_MAX`] of the tree, [`REMEMBERED_WEIGHT_MAX`] of its patterns.
//! * A larger filter is kept by its users alone. While one of them has it, others get the same: a scan of many tablets compiles it
//!   once if the scan holds it.

use crate::ast::Filter;
use crate::compiled::CompiledFilter;
use crate::error::FilterError;
use std::cell::RefCell;
use std::sync::{Arc, Weak};
use stele_types::TableSchema;

/// Entries of a thread: some filters of some tables, each twice in case router and tablet hold two copies of a schema.
const KNOWN_MAX: usize = 8;
/// Serialized bytes of a filter up to which it is remembered: comparing more would cost more than it is worth.
const REMEMBERED_BYTES_MAX: usize = 512;
/// Weight of a filter's patterns up to which it is remembered: a dozen small automata, some hundred kilobytes.
const REMEMBERED_WEIGHT_MAX: usize = 4_096;

/// Larger filters that may be in use: of the scans of a thread that run at a time, few have one.
const LARGE_MAX: usize = 16;

struct Known {
    schema: Arc<TableSchema>,
    filter: Arc<Filter>,
    compiled: Arc<CompiledFilter>,
}

/// A filter that others keep. Nothing else can get one of the addresses while it is here.
struct Large {
    schema: Weak<TableSchema>,
    filter: Weak<Filter>,
    compiled: Weak<CompiledFilter>,
}

thread_local! {
    /// The latest entry comes first.
    static LARGE: RefCell<Vec<Large>> = const { RefCell::new(Vec::new()) };
    /// The most recently used entry comes first.
    static KNOWN: RefCell<Vec<Known>> = const { RefCell::new(Vec::new()) };
}

impl Filter {
    /// The result of [`Filter::compile`], from the cache if possible.
    pub fn compile_shared(self: &Arc<Self>, schema: &Arc<TableSchema>) -> Result<Arc<CompiledFilter>, FilterError> {
        if let Some(compiled) = KNOWN.with_borrow_mut(|known| find(known, self, schema)) {
            return Ok(compiled);
        }
        if let Some(compiled) = LARGE.with_borrow(|large| find_large(large, self, schema)) {
            return Ok(compiled);
        }
        let (compiled, size) = self.compile_sized(schema)?;
        let compiled = Arc::new(compiled);
        if size.bytes <= REMEMBERED_BYTES_MAX && size.weight <= REMEMBERED_WEIGHT_MAX {
            let entry = Known {
                schema: schema.clone(),
                filter: self.clone(),
                compiled: compiled.clone(),
            };
            KNOWN.with_borrow_mut(|known| {
                known.truncate(KNOWN_MAX - 1);
                known.insert(0, entry);
            });
        } else {
            let entry = Large {
                schema: Arc::downgrade(schema),
                filter: Arc::downgrade(self),
                compiled: Arc::downgrade(&compiled),
            };
            LARGE.with_borrow_mut(|large| {
                large.retain(|other| other.compiled.strong_count() > 0);
                large.truncate(LARGE_MAX - 1);
                large.insert(0, entry);
            });
        }
        Ok(compiled)
    }
}

fn find(known: &mut [Known], filter: &Arc<Filter>, schema: &Arc<TableSchema>) -> Option<Arc<CompiledFilter>> {
    let same_filter = |other: &Arc<Filter>| Arc::ptr_eq(other, filter) || other == filter;
    let is_it = |known: &Known| Arc::ptr_eq(&known.schema, schema) && same_filter(&known.filter);
    let at = known.iter().position(is_it)?;
    known.get_mut(..=at)?.rotate_right(1);
    Some(known.first()?.compiled.clone())
}

/// Only the same tree counts: to compare two large ones would take long.
fn find_large(large: &[Large], filter: &Arc<Filter>, schema: &Arc<TableSchema>) -> Option<Arc<CompiledFilter>> {
    let is_same = |large: &&Large| {
        std::ptr::eq(large.filter.as_ptr(), Arc::as_ptr(filter))
            && std::ptr::eq(large.schema.as_ptr(), Arc::as_ptr(schema))
    };
    large.iter().find(is_same)?.compiled.upgrade()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use bytes::Bytes;

    fn column(n: u32) -> Arc<Filter> {
        Arc::new(Filter::QualifierRegex(Bytes::from(format!("column {n}"))))
    }

    #[test]
    fn equal_filters_under_one_schema_are_compiled_once() {
        let (schema, other) = (Arc::new(testing::schema()), Arc::new(testing::schema()));
        let first = column(0).compile_shared(&schema).unwrap();
        let again = column(0).compile_shared(&schema).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        let elsewhere = column(0).compile_shared(&other).unwrap();
        assert!(
            !Arc::ptr_eq(&first, &elsewhere),
            "another schema, though it says the same"
        );
        let different = column(1).compile_shared(&schema).unwrap();
        assert!(!Arc::ptr_eq(&first, &different));
    }

    #[test]
    fn few_small_ones_are_remembered() {
        let schema = Arc::new(testing::schema());
        let first = column(0).compile_shared(&schema).unwrap();
        for n in 1..100 {
            column(n).compile_shared(&schema).unwrap();
        }
        assert_eq!(KNOWN.with_borrow(Vec::len), KNOWN_MAX);
        let again = column(0).compile_shared(&schema).unwrap();
        assert!(!Arc::ptr_eq(&first, &again), "forgotten");
        let large = Arc::new(Filter::ValueRegex(Bytes::from(vec![b'a'; 2 * REMEMBERED_BYTES_MAX])));
        large.compile_shared(&schema).unwrap();
        assert!(KNOWN.with_borrow(|known| known.iter().all(|entry| !Arc::ptr_eq(&entry.filter, &large))));
        Arc::new(Filter::CellsPerRow(-1)).compile_shared(&schema).unwrap_err();
    }

    #[test]
    fn large_ones_are_shared_while_they_are_in_use() {
        let schema = Arc::new(testing::schema());
        let large = || Arc::new(Filter::ValueRegex(Bytes::from(vec![b'a'; 2 * REMEMBERED_BYTES_MAX])));
        let filter = large();
        let first = filter.compile_shared(&schema).unwrap();
        let again = filter.compile_shared(&schema).unwrap();
        assert!(Arc::ptr_eq(&first, &again), "it is in use");
        let other = large().compile_shared(&schema).unwrap();
        assert!(!Arc::ptr_eq(&first, &other), "another tree, though it says the same");
        drop((first, again, other));
        assert!(LARGE.with_borrow(|large| large.iter().all(|entry| entry.compiled.strong_count() == 0)));
        let list = Arc::new(Filter::Families((1..1_000).map(stele_types::FamilyId).collect()));
        list.compile_shared(&schema).unwrap();
        assert!(
            KNOWN.with_borrow(|known| known.iter().all(|entry| !Arc::ptr_eq(&entry.filter, &list))),
            "a list takes memory, too"
        );
        // All are in use: those that are not leave by themselves.
        let used: Vec<_> = (0..100).map(|_| large()).collect();
        let _compiled: Vec<_> = used
            .iter()
            .map(|filter| filter.compile_shared(&schema).unwrap())
            .collect();
        assert_eq!(LARGE.with_borrow(Vec::len), LARGE_MAX);
    }
}
