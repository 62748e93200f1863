//! Turns records into rows by the options of an import.
//!
//! Rules, in order:
//! * The row key is the values of the `--key` columns, joined by the separator. A missing or empty one makes the record
//!   bad, as does a key over 4 KiB.
//! * A column named by `--map column=family:qualifier` is stored there. Without `:qualifier` the qualifier is the name
//!   of the column.
//! * Every other column, key and timestamp columns included, is stored under `--family` with its name as qualifier.
//!   Without `--family` it is not stored.
//! * Empty values are skipped unless `--keep-empty`.
//! * The timestamp is that of the `--timestamp-column`, else the fixed one of the import.
//!
//! Records that carry cells ([`Record::Row`]) are stored as they are; only the limits apply.

use crate::escape::escape;
use crate::records::{Column, Record, RowCells};
use crate::timestamp::{self, Unit};
use bytes::Bytes;
use std::collections::HashMap;
use std::str::FromStr;

/// The longest row key the API accepts.
pub const KEY_BYTES_MAX: usize = 4 << 10;
/// The largest cell value the API accepts.
pub const VALUE_BYTES_MAX: usize = 100 << 20;
/// The longest qualifier the API accepts.
pub const QUALIFIER_BYTES_MAX: usize = 16 << 10;
/// The longest name of a family that a server has.
const FAMILY_BYTES_MAX: usize = 127;

/// The argument of `--map`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapRule {
    /// Column of the input.
    pub column: String,
    /// Family it is stored in.
    pub family: String,
    /// Qualifier it is stored under; the column's name if absent.
    pub qualifier: Option<String>,
}

impl FromStr for MapRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Column names and qualifiers may contain `=`, family names may not: the first `=` followed by a family splits.
        for (at, _) in text.match_indices('=') {
            let (column, target) = (text.get(..at), text.get(at + 1..).unwrap_or_default());
            let (family, qualifier) = match target.split_once(':') {
                Some((family, qualifier)) => (family, Some(qualifier.to_owned())),
                None => (target, None),
            };
            if let Some(column) = column.filter(|_| is_family_name(family)) {
                let column = column.to_owned();
                return Ok(MapRule {
                    column,
                    family: family.to_owned(),
                    qualifier,
                });
            }
        }
        Err(format!("`{text}` is not of the form column=family:qualifier"))
    }
}

/// Whether a family can be made by that name over the API, so that it may end the name of a column before it.
fn is_family_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    !name.is_empty() && name.len() <= 64 && name.bytes().all(allowed)
}

/// How the records of one import become rows.
#[derive(Clone, Debug)]
pub struct Mapping {
    key: Vec<Bytes>,
    separator: Vec<u8>,
    rules: HashMap<Bytes, (String, Bytes)>,
    default_family: Option<String>,
    timestamp_column: Option<(Bytes, Unit)>,
    fixed_timestamp: i64,
    keep_empty: bool,
}

/// The options a [`Mapping`] is made from.
#[derive(Clone, Debug, Default)]
pub struct MappingOptions {
    /// Columns of the key, in order.
    pub key: Vec<String>,
    /// Between the parts of the key.
    pub separator: String,
    /// Explicit targets.
    pub rules: Vec<MapRule>,
    /// Family of all other columns.
    pub default_family: Option<String>,
    /// Column that holds the timestamp, and how it is read.
    pub timestamp_column: Option<(String, Unit)>,
    /// Timestamp of everything else, in microseconds.
    pub fixed_timestamp: i64,
    /// Whether empty values are stored.
    pub keep_empty: bool,
}

impl Mapping {
    /// Checks the options against each other.
    pub fn new(options: MappingOptions) -> Result<Self, String> {
        options.default_family.as_deref().map_or(Ok(()), check_family)?;
        let mut rules = HashMap::new();
        for rule in options.rules {
            let column = Bytes::from(rule.column);
            let qualifier = rule.qualifier.map_or_else(|| column.clone(), Bytes::from);
            if rules.insert(column.clone(), (rule.family, qualifier)).is_some() {
                return Err(format!("column `{}` is mapped twice", escape(&column)));
            }
        }
        Ok(Mapping {
            key: options.key.into_iter().map(Bytes::from).collect(),
            separator: options.separator.into_bytes(),
            rules,
            default_family: options.default_family,
            timestamp_column: options.timestamp_column.map(|(column, unit)| (column.into(), unit)),
            fixed_timestamp: options.fixed_timestamp,
            keep_empty: options.keep_empty,
        })
    }

    /// Refuses options that cannot work for records with named columns: no key, or nothing that would be stored.
    pub fn check_for_columns(&self) -> Result<(), String> {
        if self.key.is_empty() {
            return Err("--key is needed: the column or columns that make the row key".to_owned());
        }
        if self.rules.is_empty() && self.default_family.is_none() {
            return Err("nothing would be stored: give --family or --map".to_owned());
        }
        Ok(())
    }

    /// Refuses options that name a column which a stated header lacks.
    pub fn check_header(&self, header: &[Bytes]) -> Result<(), String> {
        let time = self.timestamp_column.as_ref().map(|(column, _)| column);
        let named = self.key.iter().chain(self.rules.keys()).chain(time);
        match named.into_iter().find(|column| !header.contains(column)) {
            None => Ok(()),
            Some(missing) => Err(format!(
                "the header has no column `{}`; it has: {}",
                escape(missing),
                header.iter().map(|name| escape(name)).collect::<Vec<_>>().join(", ")
            )),
        }
    }

    /// The families that rows with named columns can be stored in.
    pub fn families(&self) -> Vec<String> {
        let mapped = self.rules.values().map(|(family, _)| family);
        let mut families: Vec<String> = mapped.chain(&self.default_family).cloned().collect();
        families.sort();
        families.dedup();
        families
    }

    /// Maps one record; the error is the reason it is bad. A row without cells means that nothing is to be stored.
    pub fn map(&self, record: Record) -> Result<RowCells, String> {
        let row = match record {
            Record::Row(row) => row,
            Record::Columns(columns) => self.map_columns(columns)?,
        };
        check_limits(&row)?;
        Ok(row)
    }

    fn map_columns(&self, columns: Vec<Column>) -> Result<RowCells, String> {
        let key = self.build_key(&columns)?;
        let timestamp = self.find_timestamp(&columns)?;
        let mut row = RowCells {
            key,
            cells: Vec::with_capacity(columns.len()),
        };
        for Column { name, value } in columns {
            if value.is_empty() && !self.keep_empty {
                continue;
            }
            let (family, qualifier) = match (self.rules.get(&name), &self.default_family) {
                (Some((family, qualifier)), _) => (family, qualifier.clone()),
                (None, Some(family)) => (family, name),
                (None, None) => continue,
            };
            let family = family.clone();
            row.cells.push(crate::records::CellValue {
                family,
                qualifier,
                timestamp,
                value,
            });
        }
        Ok(row)
    }

    fn build_key(&self, columns: &[Column]) -> Result<Bytes, String> {
        let mut key = Vec::new();
        for (at, name) in self.key.iter().enumerate() {
            let part = find(columns, name)
                .filter(|part| !part.is_empty())
                .ok_or_else(|| format!("key column `{}` is missing or empty", escape(name)))?;
            if at > 0 {
                key.extend_from_slice(&self.separator);
            } else if self.key.len() == 1 {
                return Ok(part.clone());
            }
            key.extend_from_slice(part);
        }
        Ok(key.into())
    }

    fn find_timestamp(&self, columns: &[Column]) -> Result<i64, String> {
        let Some((name, unit)) = &self.timestamp_column else {
            return Ok(self.fixed_timestamp);
        };
        match find(columns, name) {
            Some(text) => timestamp::parse(text, *unit),
            None => Err(format!("timestamp column `{}` is missing", escape(name))),
        }
    }
}

fn find<'a>(columns: &'a [Column], name: &Bytes) -> Option<&'a Bytes> {
    columns
        .iter()
        .find(|column| column.name == *name)
        .map(|column| &column.value)
}

fn check_limits(row: &RowCells) -> Result<(), String> {
    if row.key.is_empty() {
        return Err("the row key is empty".to_owned());
    }
    if row.key.len() > KEY_BYTES_MAX {
        return Err(format!(
            "the row key has {} bytes, limit {KEY_BYTES_MAX}",
            row.key.len()
        ));
    }
    for cell in &row.cells {
        let (qualifier, value) = (cell.qualifier.len(), cell.value.len());
        if value > VALUE_BYTES_MAX {
            let column = escape(&cell.qualifier);
            return Err(format!("`{column}` has {value} bytes, limit {VALUE_BYTES_MAX}"));
        }
        if qualifier > QUALIFIER_BYTES_MAX {
            return Err(format!(
                "a qualifier has {qualifier} bytes, limit {QUALIFIER_BYTES_MAX}"
            ));
        }
        check_family(&cell.family)?;
    }
    Ok(())
}

/// Refuses names that no API can give a family. The server knows all others, and which of them a table has.
fn check_family(name: &str) -> Result<(), String> {
    let allowed = |c: char| !c.is_control() && !matches!(c, ':' | '/' | '\\');
    if name.is_empty() {
        return Err("the name of a family is empty".to_owned());
    }
    if name.len() > FAMILY_BYTES_MAX {
        let bytes = name.len();
        return Err(format!(
            "the name of a family has {bytes} bytes, limit {FAMILY_BYTES_MAX}"
        ));
    }
    if !name.chars().all(allowed) {
        let name = escape(name.as_bytes());
        return Err(format!(
            "`{name}` is not a family: no control characters and none of : / \\"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> MappingOptions {
        MappingOptions {
            key: vec!["id".to_owned()],
            separator: "#".to_owned(),
            default_family: Some("d".to_owned()),
            fixed_timestamp: 5000,
            ..MappingOptions::default()
        }
    }

    fn record(pairs: &[(&str, &str)]) -> Record {
        let column = |(name, value): &(&str, &str)| Column {
            name: (*name).to_owned().into(),
            value: (*value).to_owned().into(),
        };
        Record::Columns(pairs.iter().map(column).collect())
    }

    fn show(options: MappingOptions, pairs: &[(&str, &str)]) -> Result<String, String> {
        let row = Mapping::new(options)?.map(record(pairs))?;
        let cells = row.cells.iter().map(|cell| {
            let (qualifier, value) = (escape(&cell.qualifier), escape(&cell.value));
            format!(" {}:{qualifier}@{}={value}", cell.family, cell.timestamp)
        });
        Ok(escape(&row.key) + &cells.collect::<String>())
    }

    #[test]
    fn default_family_takes_everything() {
        let pairs = [("id", "k"), ("a", "1"), ("b", "")];
        assert_eq!(show(options(), &pairs).unwrap(), "k d:id@5000=k d:a@5000=1");
        let keep = MappingOptions {
            keep_empty: true,
            ..options()
        };
        assert_eq!(show(keep, &pairs).unwrap(), "k d:id@5000=k d:a@5000=1 d:b@5000=");
    }

    #[test]
    fn unmapped_columns_are_skipped_without_a_family() {
        let rules = ["a=f:x", "b=g"].map(|rule| rule.parse().unwrap()).to_vec();
        let options = MappingOptions {
            rules,
            default_family: None,
            ..options()
        };
        let pairs = [("id", "k"), ("a", "1"), ("b", "2"), ("c", "3")];
        assert_eq!(show(options.clone(), &pairs).unwrap(), "k f:x@5000=1 g:b@5000=2");
        assert_eq!(Mapping::new(options).unwrap().families(), ["f", "g"]);
    }

    #[test]
    fn keys_are_joined_and_must_be_complete() {
        let key = vec!["id".to_owned(), "v".to_owned()];
        let options = MappingOptions { key, ..options() };
        assert!(
            show(options.clone(), &[("v", "2"), ("id", "1")])
                .unwrap()
                .starts_with("1#2 ")
        );
        let why = show(options.clone(), &[("id", "1"), ("v", "")]).unwrap_err();
        assert_eq!(why, "key column `v` is missing or empty");
        assert!(show(options, &[("id", "1")]).is_err());
    }

    #[test]
    fn timestamps_come_from_their_column() {
        let timestamp_column = Some(("t".to_owned(), Unit::Seconds));
        let options = MappingOptions {
            timestamp_column,
            default_family: Some("d".into()),
            ..options()
        };
        let row = show(options.clone(), &[("id", "k"), ("t", "7")]).unwrap();
        assert_eq!(row, "k d:id@7000000=k d:t@7000000=7");
        assert!(show(options.clone(), &[("id", "k"), ("t", "x")]).is_err());
        assert!(show(options, &[("id", "k")]).unwrap_err().contains("`t` is missing"));
    }

    #[test]
    fn limits() {
        let long = "k".repeat(KEY_BYTES_MAX + 1);
        assert!(show(options(), &[("id", &long)]).unwrap_err().contains("4097 bytes"));
        assert!(show(options(), &[("id", &long[1..])]).is_ok());
        let no_key = Record::Row(RowCells::default());
        assert!(Mapping::new(options()).unwrap().map(no_key).is_err());
    }

    fn row_in(family: &str) -> Record {
        let cell = crate::records::CellValue {
            family: family.to_owned(),
            qualifier: Bytes::new(),
            timestamp: 0,
            value: Bytes::new(),
        };
        Record::Row(RowCells {
            key: "k".into(),
            cells: vec![cell],
        })
    }

    #[test]
    fn families_of_other_apis_are_taken() {
        let mapping = Mapping::new(MappingOptions::default()).unwrap();
        for family in ["größe", "a b", "info$1", &"f".repeat(127)] {
            assert!(mapping.map(row_in(family)).is_ok(), "{family}");
            let default_family = Some(family.to_owned());
            let options = MappingOptions {
                default_family,
                ..options()
            };
            assert!(Mapping::new(options).is_ok(), "{family}");
        }
    }

    /// One such record would end the import, and again whenever it is continued.
    #[test]
    fn a_family_that_no_server_has_makes_a_bad_record() {
        let mapping = Mapping::new(MappingOptions::default()).unwrap();
        for (family, why) in [
            ("", "is empty"),
            ("a:b", "`a:b` is not a family"),
            ("a/b", "`a/b` is not a family"),
            ("a\\b", "is not a family"),
            ("a\nb", "`a\\nb` is not a family"),
            ("a\u{85}b", "is not a family"),
            (&"f".repeat(128), "has 128 bytes, limit 127"),
        ] {
            let refused = mapping.map(row_in(family)).unwrap_err();
            assert!(refused.contains(why), "{family:?}: {refused}");
            let default_family = Some(family.to_owned());
            let options = MappingOptions {
                default_family,
                ..options()
            };
            assert!(Mapping::new(options).is_err(), "{family:?}");
        }
    }

    #[test]
    fn rules_parse() {
        let rule = |text: &str| text.parse::<MapRule>();
        let parsed = rule("a=b=fam:q=r:s").unwrap();
        assert_eq!((&*parsed.column, &*parsed.family), ("a=b", "fam"));
        assert_eq!(parsed.qualifier.as_deref(), Some("q=r:s"));
        let parsed = rule("a b=fam:q:r").unwrap();
        assert_eq!((&*parsed.column, parsed.qualifier.as_deref()), ("a b", Some("q:r")));
        assert_eq!(rule("a=fam:").unwrap().qualifier.as_deref(), Some(""));
        assert!(rule("a").is_err() && rule("a=").is_err() && rule("a=b c:d").is_err());
    }

    #[test]
    fn contradictions_are_refused() {
        let twice = ["a=f:x", "a=f:y"].map(|rule| rule.parse().unwrap()).to_vec();
        assert!(
            Mapping::new(MappingOptions {
                rules: twice,
                ..options()
            })
            .is_err()
        );
        let none = MappingOptions {
            default_family: None,
            ..options()
        };
        assert!(Mapping::new(none).unwrap().check_for_columns().is_err());
        let mapping = Mapping::new(options()).unwrap();
        assert!(mapping.check_for_columns().is_ok());
        let why = mapping.check_header(&[Bytes::from_static(b"ID")]).unwrap_err();
        assert_eq!(why, "the header has no column `id`; it has: ID");
    }
}
