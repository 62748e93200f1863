//! What reads of single rows ask a schema, in one word.
//!
//! A tablet has it beside its schema, for whoever must know under which version he reads, and should not take a lock for it.

use stele_types::{GcRule, TableSchema};

const ROW_CACHE: u64 = 1;
const AGES: u64 = 2;
const FLAG_BITS: u32 = 2;

/// A version of a table's schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemaMark(u64);

impl SchemaMark {
    /// That of a schema. Versions count changes, so there are fewer than 2^62.
    pub fn of(schema: &TableSchema) -> Self {
        let mut rules = schema.families.values().filter_map(|f| f.gc_rule.as_ref());
        let ages = if rules.any(GcRule::has_age) { AGES } else { 0 };
        let row_cache = if schema.row_cache { ROW_CACHE } else { 0 };
        SchemaMark(schema.version << FLAG_BITS | ages | row_cache)
    }

    /// All of it: two are equal if their words are.
    #[inline]
    pub fn word(self) -> u64 {
        self.0
    }

    pub(crate) fn from_word(word: u64) -> Self {
        SchemaMark(word)
    }

    /// Whether results of reads may be kept.
    pub fn row_cache(self) -> bool {
        self.0 & ROW_CACHE != 0
    }

    /// Whether cells are dropped as they grow old.
    pub fn has_ages(self) -> bool {
        self.0 & AGES != 0
    }
}
