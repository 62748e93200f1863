//! The properties of a schema that reads of single rows check, in one word.
//!
//! A tablet has it in addition to its schema, for readers that must know their version without a lock.
//!
//! The mark also changes when files are published that were made under a former version: they may lack cells that reads
//! under the present one have found.

use stele_types::{GcRule, TableSchema};

const ROW_CACHE: u64 = 1;
const AGES: u64 = 2;
const FLAG_BITS: u32 = 2;
/// Behind the flags jobs are counted that began under a former version: at most as many as ran when this one came.
const LATE_BITS: u32 = 14;
const LATE: u64 = ((1 << LATE_BITS) - 1) << FLAG_BITS;
const VERSION_AT: u32 = FLAG_BITS + LATE_BITS;

/// A version of a table's schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemaMark(u64);

impl SchemaMark {
    /// That of a schema, at first. Versions count changes, so there are fewer than 2^48.
    pub fn of(schema: &TableSchema) -> Self {
        let mut rules = schema.families.values().filter_map(|f| f.gc_rule.as_ref());
        let ages = if rules.any(GcRule::has_age) { AGES } else { 0 };
        let row_cache = if schema.row_cache { ROW_CACHE } else { 0 };
        SchemaMark(schema.version << VERSION_AT | ages | row_cache)
    }

    /// Whether it is one of this schema.
    pub fn is_of(self, schema: &TableSchema) -> bool {
        SchemaMark(self.0 & !LATE) == SchemaMark::of(schema)
    }

    /// The next one of the same schema.
    pub(crate) fn renewed(self) -> Self {
        let late = self.0.wrapping_add(1 << FLAG_BITS) & LATE;
        SchemaMark((self.0 & !LATE) | late)
    }

    /// One under which no result of a read is kept, nor found.
    pub(crate) fn without_row_cache(self) -> Self {
        SchemaMark(self.0 & !ROW_CACHE)
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
