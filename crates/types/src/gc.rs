//! Garbage-collection rules decide which versions of a column may be dropped.
//!
//! Rules apply both at read time and in compactions, so a reader never sees a cell that its rule has expired.

use crate::ids::{TimeUnit, Timestamp};
use serde::{Deserialize, Serialize};

/// Deepest nesting of a rule; Bigtable limits a rule to 500 bytes, which is shallower.
pub const GC_RULE_DEPTH_MAX: usize = 32;

/// A cell is garbage when its rule says so. `None` in the schema keeps everything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// The inputs of a rule for one cell.
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
    /// Whether the cell may be dropped.
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

    /// Whether time alone can make a cell garbage.
    pub fn has_age(&self) -> bool {
        match self {
            GcRule::MaxVersions(_) => false,
            GcRule::MaxAgeMicros(_) => true,
            GcRule::Union(rules) | GcRule::Intersection(rules) => rules.iter().any(GcRule::has_age),
        }
    }

    /// The last microsecond, at or after `now_micros`, after which time alone may change the rule's result for a cell
    /// written at `written_micros`. `None` when it never will. It considers ages only, so the result may stay the same.
    pub fn next_change(&self, written_micros: i64, now_micros: i64) -> Option<i64> {
        match self {
            GcRule::MaxVersions(_) => None,
            GcRule::MaxAgeMicros(age) => {
                let last = written_micros.checked_add(*age)?;
                (last >= now_micros).then_some(last)
            }
            GcRule::Union(rules) | GcRule::Intersection(rules) => {
                let changes = rules.iter().filter_map(|r| r.next_change(written_micros, now_micros));
                changes.min()
            }
        }
    }

    /// Whether the rule depends on the number of newer versions of the column.
    pub fn counts_versions(&self) -> bool {
        match self {
            GcRule::MaxVersions(_) => true,
            GcRule::MaxAgeMicros(_) => false,
            GcRule::Union(rules) | GcRule::Intersection(rules) => rules.iter().any(GcRule::counts_versions),
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
    fn rules_change_when_they_say() {
        let age = GcRule::MaxAgeMicros;
        let rule = GcRule::Union(vec![
            GcRule::Intersection(vec![GcRule::MaxVersions(1), age(100)]),
            age(300),
        ]);
        assert!(rule.has_age() && !GcRule::MaxVersions(3).has_age());
        let says = |now_micros, version_index| {
            rule.is_garbage(&GcView {
                version_index,
                timestamp: Timestamp(50),
                unit: TimeUnit::Micros,
                now_micros,
            })
        };
        let mut now = 60;
        let mut changes = Vec::new();
        while let Some(last) = rule.next_change(50, now) {
            for index in [0, 1] {
                assert!((now..=last).all(|t| says(t, index) == says(now, index)));
            }
            changes.push(last);
            now = last + 1;
        }
        assert_eq!(changes, [150, 350]);
        assert!(says(351, 0) && !says(350, 0) && says(151, 1) && !says(150, 1));
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
