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

use crate::ast::Filter;
use crate::compiled::CompiledFilter;
use crate::error::FilterError;
use std::cell::RefCell;
use std::sync::Arc;
use stele_types::TableSchema;

/// Entries of a thread: some filters of some tables, each twice in case router and tablet hold two copies of a schema.
const KNOWN_MAX: usize = 8;
/// Serialized bytes of a filter up to which it is remembered: comparing more would cost more than it is worth.
const REMEMBERED_BYTES_MAX: usize = 512;
/// Weight of a filter's patterns up to which it is remembered: a dozen small automata, some hundred kilobytes.
const REMEMBERED_WEIGHT_MAX: usize = 4_096;

struct Known {
    schema: Arc<TableSchema>,
    filter: Arc<Filter>,
    compiled: Arc<CompiledFilter>,
}

thread_local! {
    /// The most recently used entry comes first.
    static KNOWN: RefCell<Vec<Known>> = const { RefCell::new(Vec::new()) };
}

impl Filter {
    /// The result of [`Filter::compile`], from the cache if possible.
    pub fn compile_shared(self: &Arc<Self>, schema: &Arc<TableSchema>) -> Result<Arc<CompiledFilter>, FilterError> {
        if let Some(compiled) = KNOWN.with_borrow_mut(|known| find(known, self, schema)) {
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
        let compiled = large.compile_shared(&schema).unwrap();
        assert!(!Arc::ptr_eq(&compiled, &large.compile_shared(&schema).unwrap()));
        Arc::new(Filter::CellsPerRow(-1)).compile_shared(&schema).unwrap_err();
    }
}
