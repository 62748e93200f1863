//! Garbage-collection rules of families, and the attributes that express them.

use super::attributes::{self, get, number, set};
use crate::failure::{Failure, Outcome};
use stele_types::GcRule;
use stele_wire::messages::{BytesBytesPair, ColumnFamilySchema};

/// The largest number of versions and of seconds, which stands for all of them.
const ALL: i32 = i32::MAX;

/// Microseconds of a second.
const MICROS: i64 = 1_000_000;

/// The three attributes that say which cells are garbage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kept {
    /// Newest versions that are kept.
    versions: i32,
    /// Of these, versions that are kept at any age.
    min_versions: i32,
    /// Seconds that others are kept.
    seconds: i32,
}

/// The rule of a family.
pub(super) fn rule(family: &ColumnFamilySchema) -> Outcome<Option<GcRule>> {
    Kept::read(family).map(Kept::rule)
}

/// Microseconds that cells of a family are kept; `None` for ever.
pub(super) fn lifetime_micros(family: &ColumnFamilySchema) -> Outcome<Option<i64>> {
    let seconds = Kept::read(family)?.seconds;
    Ok((seconds < ALL).then(|| i64::from(seconds) * MICROS))
}

/// Makes the attributes say as much of a rule as they can. A rule that HBase does not have is shown as the ages and
/// versions in it that alone make a cell garbage.
pub(super) fn show(attributes: &mut Vec<BytesBytesPair>, rule: Option<&GcRule>) {
    let mut kept = Kept {
        versions: ALL,
        min_versions: 0,
        seconds: ALL,
    };
    if let Some(rule) = rule {
        kept.narrow(rule);
    }
    kept.min_versions = kept.min_versions.min(kept.versions);
    for (name, value) in [
        (attributes::VERSIONS, kept.versions),
        (attributes::MIN_VERSIONS, kept.min_versions),
        (attributes::TTL, kept.seconds),
    ] {
        set(attributes, name, value.to_string());
    }
}

impl Kept {
    /// Reads and checks the attributes of a family.
    fn read(family: &ColumnFamilySchema) -> Outcome<Self> {
        let attributes = &family.attributes;
        let name = family.name.escape_ascii();
        let seconds = match get(attributes, attributes::TTL) {
            Some(text) if text.eq_ignore_ascii_case("FOREVER") => ALL,
            _ => number(attributes, attributes::TTL)?.unwrap_or(ALL),
        };
        let kept = Kept {
            versions: number(attributes, attributes::VERSIONS)?.unwrap_or(1),
            min_versions: number(attributes, attributes::MIN_VERSIONS)?.unwrap_or(0),
            seconds,
        };
        let problem = if kept.seconds <= 0 {
            format!("TTL for column family {name} must be positive.")
        } else if kept.versions < 1 {
            format!("Maximum versions for column family {name} must be positive")
        } else if kept.min_versions < 0 {
            format!("Min versions for column family {name}  must be positive.")
        } else if kept.min_versions > kept.versions {
            format!("Min versions for column family {name} must be less than the Max versions.")
        } else {
            return Ok(kept);
        };
        Err(Failure::do_not_retry(problem))
    }

    fn rule(self) -> Option<GcRule> {
        let mut rules = Vec::new();
        if self.versions < ALL {
            rules.push(GcRule::MaxVersions(self.versions.unsigned_abs()));
        }
        if self.seconds < ALL {
            let old = GcRule::MaxAgeMicros(i64::from(self.seconds) * MICROS);
            rules.push(match self.min_versions {
                ..=0 => old,
                spared => GcRule::Intersection(vec![old, GcRule::MaxVersions(spared.unsigned_abs())]),
            });
        }
        match rules.len() {
            0 | 1 => rules.pop(),
            _ => Some(GcRule::Union(rules)),
        }
    }

    /// Takes in a rule that alone makes a cell garbage.
    fn narrow(&mut self, rule: &GcRule) {
        match rule {
            GcRule::MaxVersions(versions) => {
                self.versions = self.versions.min(i32::try_from(*versions).unwrap_or(ALL));
            }
            GcRule::MaxAgeMicros(age) => self.seconds = self.seconds.min(seconds(*age)),
            GcRule::Union(rules) => rules.iter().for_each(|rule| self.narrow(rule)),
            GcRule::Intersection(rules) => match rules.as_slice() {
                [GcRule::MaxAgeMicros(age), GcRule::MaxVersions(spared)]
                | [GcRule::MaxVersions(spared), GcRule::MaxAgeMicros(age)] => {
                    self.seconds = self.seconds.min(seconds(*age));
                    self.min_versions = i32::try_from(*spared).unwrap_or(ALL);
                }
                [only] => self.narrow(only),
                _ => {}
            },
        }
    }
}

/// Whole seconds that last as long as an age at least.
fn seconds(age_micros: i64) -> i32 {
    let seconds = age_micros.saturating_add(MICROS - 1).div_euclid(MICROS);
    i32::try_from(seconds).unwrap_or(ALL).max(1)
}
