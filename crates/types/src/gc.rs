//! Garbage-collection rules: which versions of a column may be forgotten.
//!
//! Rules apply at read time and in compaction alike, so a reader never sees a cell its rule has expired.

use crate::ids::Timestamp;
use crate::schema::TimeUnit;

/// Deepest nesting of a rule; Bigtable limits a rule to 500 bytes, which is shallower.
pub const GC_RULE_DEPTH_MAX: usize = 32;

/// A cell is garbage when its rule says so. `None` in the schema keeps everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GcRule {
    /// Garbage past the `n` newest versions of its column (n ≥ 1).
    MaxVersions(u32),
    /// Garbage when its timestamp is older than this many microseconds before now.
    MaxAgeMicros(i64),
    /// Garbage when any member says so.
    Union(Vec<GcRule>),
    /// Garbage when every member says so; an empty intersection keeps everything.
    Intersection(Vec<GcRule>),
}

/// What a rule looks at for one cell.
#[derive(Clone, Copy, Debug)]
pub struct GcView {
    /// 0 for the newest visible version of the column.
    pub version_index: u64,
    /// The cell's timestamp, in `unit`.
    pub timestamp: Timestamp,
    /// The table's unit.
    pub unit: TimeUnit,
    /// Wall-clock microseconds.
    pub now_micros: i64,
}

impl GcRule {
    /// Whether the cell may be forgotten.
    pub fn is_garbage(&self, cell: &GcView) -> bool {
        match self {
            GcRule::MaxVersions(n) => cell.version_index >= u64::from(*n),
            GcRule::MaxAgeMicros(age) => {
                let oldest = cell.now_micros.saturating_sub(*age);
                cell.unit.to_micros_saturating(cell.timestamp) < oldest
            }
            GcRule::Union(rules) => rules.iter().any(|r| r.is_garbage(cell)),
            GcRule::Intersection(rules) => !rules.is_empty() && rules.iter().all(|r| r.is_garbage(cell)),
        }
    }

    /// Nesting depth; a leaf has 1.
    pub fn depth(&self) -> usize {
        match self {
            GcRule::Union(rules) | GcRule::Intersection(rules) => {
                1 + rules.iter().map(GcRule::depth).max().unwrap_or(0)
            }
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn garbage(rule: &GcRule, version_index: u64, micros: i64) -> bool {
        let view = GcView {
            version_index,
            timestamp: Timestamp(micros),
            unit: TimeUnit::Micros,
            now_micros: 1_000,
        };
        rule.is_garbage(&view)
    }

    #[test]
    fn rules_compose() {
        let versions = GcRule::MaxVersions(2);
        let age = GcRule::MaxAgeMicros(100);
        assert!(!garbage(&versions, 1, 0) && garbage(&versions, 2, 0));
        assert!(!garbage(&age, 9, 900) && garbage(&age, 0, 899));
        let union = GcRule::Union(vec![versions.clone(), age.clone()]);
        assert!(garbage(&union, 2, 950) && garbage(&union, 0, 1) && !garbage(&union, 0, 950));
        let both = GcRule::Intersection(vec![versions, age]);
        assert!(garbage(&both, 2, 1) && !garbage(&both, 2, 950) && !garbage(&both, 0, 1));
        assert!(!garbage(&GcRule::Intersection(vec![]), 99, i64::MIN));
    }
}
