//! Options that select rows and cells, and the row filter that they make.
//!
//! Keys, qualifiers and values on the command line are in the escaped spelling of [`crate::escape`].

use crate::client::read::ReadQuery;
use crate::escape::unescape;
use crate::timestamp::parse_moment;
use bytes::Bytes;
use clap::Args;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2;
use std::str::FromStr;
use v2::column_range::{EndQualifier, StartQualifier};
use v2::row_filter::{Chain, Filter, Interleave};

/// Rows by key.
#[derive(Args, Clone, Debug, Default)]
pub struct RangeArgs {
    /// First row key, inclusive (\xNN for any byte)
    #[arg(long, value_name = "KEY", value_parser = parse_bytes)]
    pub start: Option<Bytes>,
    /// Row key to stop before
    #[arg(long, value_name = "KEY", value_parser = parse_bytes)]
    pub end: Option<Bytes>,
    /// Only rows whose key begins with this
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub prefix: Option<Bytes>,
}

/// Cells within a row.
#[derive(Args, Clone, Debug, Default)]
pub struct CellArgs {
    /// Only this family; may be repeated
    #[arg(long = "family", value_name = "NAME")]
    pub families: Vec<String>,
    /// Only these columns, as family:qualifier
    #[arg(long, value_name = "FAMILY:QUALIFIER,...", value_delimiter = ',')]
    pub columns: Vec<ColumnRef>,
    /// Only cells at or after this time, in microseconds since 1970
    #[arg(long, value_name = "MICROS", default_value_t = 0)]
    pub since: i64,
    /// Only cells before this time, in microseconds since 1970
    #[arg(long, value_name = "MICROS", default_value_t = 0, hide_default_value = true)]
    pub until: i64,
    /// Only cells up to this moment, such as 2026-11-27T12:00:00Z or microseconds since 1970: the row as it was then, as far as its
    /// versions are kept
    #[arg(long, value_name = "TIME", value_parser = parse_moment, conflicts_with = "until")]
    pub as_of: Option<i64>,
    /// Versions per column, newest first; 0 for all
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub versions: u32,
}

/// A column as the user names it: `family:qualifier`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ColumnRef {
    /// Its family.
    pub family: String,
    /// Its qualifier.
    pub qualifier: Bytes,
}

impl FromStr for ColumnRef {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some((family, qualifier)) if !family.is_empty() => Ok(ColumnRef {
                family: family.to_owned(),
                qualifier: unescape(qualifier)?.into(),
            }),
            _ => Err(format!("`{text}` is not of the form family:qualifier")),
        }
    }
}

/// Reads bytes given on the command line.
pub fn parse_bytes(text: &str) -> Result<Bytes, String> {
    unescape(text).map(Bytes::from)
}

impl RangeArgs {
    /// The range as start (inclusive) and end (exclusive, empty for none): the prefix cut by the bounds.
    pub fn bounds(&self) -> (Bytes, Bytes) {
        let mut start = self.start.clone().unwrap_or_default();
        let mut end = self.end.clone().unwrap_or_default();
        if let Some(prefix) = &self.prefix {
            start = start.max(prefix.clone());
            let prefix_end = prefix_end(prefix);
            if !prefix_end.is_empty() && (end.is_empty() || prefix_end < end) {
                end = prefix_end;
            }
        }
        (start, end)
    }

    /// A query of these rows; `None` if no key can be in the range, which servers treat as an error or as everything.
    pub fn query(&self, filter: Option<v2::RowFilter>, limit: u64) -> Option<ReadQuery> {
        let (start, end) = self.bounds();
        let is_empty = !end.is_empty() && start >= end;
        (!is_empty).then_some(ReadQuery {
            start,
            end,
            filter,
            limit,
        })
    }
}

/// The first key after all keys with this prefix; empty if there is none.
fn prefix_end(prefix: &[u8]) -> Bytes {
    let kept = prefix.iter().rposition(|byte| *byte != 0xff).map_or(0, |at| at + 1);
    let mut end = prefix.get(..kept).unwrap_or_default().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end.into()
}

impl CellArgs {
    /// The filters these options stand for, narrowest first.
    pub fn filters(&self) -> Vec<Filter> {
        let mut filters = Vec::new();
        if !self.families.is_empty() {
            let names: Vec<_> = self.families.iter().map(|name| quote_regex(name)).collect();
            filters.push(Filter::FamilyNameRegexFilter(names.join("|")));
        }
        let mut columns: Vec<&ColumnRef> = Vec::new();
        for column in &self.columns {
            // A column twice in an interleave would yield its cells twice.
            if !columns.contains(&column) {
                columns.push(column);
            }
        }
        let mut columns: Vec<_> = columns.into_iter().map(column_filter).collect();
        match columns.len() {
            0 => {}
            1 => filters.extend(columns.pop()),
            _ => filters.push(Filter::Interleave(Interleave {
                filters: columns.into_iter().map(row_filter).collect(),
            })),
        }
        let until = self.as_of.map_or(self.until, |micros| micros.saturating_add(1));
        if self.since > 0 || until > 0 {
            filters.push(Filter::TimestampRangeFilter(v2::TimestampRange {
                start_timestamp_micros: self.since,
                end_timestamp_micros: until,
            }));
        }
        if self.versions > 0 {
            let versions = i32::try_from(self.versions).unwrap_or(i32::MAX);
            filters.push(Filter::CellsPerColumnLimitFilter(versions));
        }
        filters
    }
}

fn column_filter(column: &ColumnRef) -> Filter {
    // A range of one, rather than a regular expression: qualifiers are bytes and need no quoting this way.
    Filter::ColumnRangeFilter(v2::ColumnRange {
        family_name: column.family.clone(),
        start_qualifier: Some(StartQualifier::StartQualifierClosed(column.qualifier.clone())),
        end_qualifier: Some(EndQualifier::EndQualifierClosed(column.qualifier.clone())),
    })
}

/// Quotes for RE2, which takes no backslash before other characters than those of ASCII. Names that HBase's clients give have them.
fn quote_regex(text: &str) -> String {
    let quote = |c: char| {
        if c.is_ascii_alphanumeric() || c == '_' || !c.is_ascii() {
            ""
        } else {
            "\\"
        }
    };
    text.chars().map(|c| format!("{}{c}", quote(c))).collect()
}

fn row_filter(filter: Filter) -> v2::RowFilter {
    v2::RowFilter { filter: Some(filter) }
}

/// All of these filters in order; servers refuse a chain of fewer than two.
pub fn chain(mut filters: Vec<Filter>) -> Option<v2::RowFilter> {
    match filters.len() {
        0 | 1 => filters.pop().map(row_filter),
        _ => {
            let filters = filters.into_iter().map(row_filter).collect();
            Some(row_filter(Filter::Chain(Chain { filters })))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(start: &'static str, end: &'static str, prefix: &'static str) -> RangeArgs {
        let given = |text: &'static str| (!text.is_empty()).then(|| Bytes::from(text));
        RangeArgs {
            start: given(start),
            end: given(end),
            prefix: given(prefix),
        }
    }

    #[test]
    fn prefixes_and_bounds_intersect() {
        assert_eq!(range("", "", "ab").bounds(), ("ab".into(), "ac".into()));
        assert_eq!(range("abc", "abd", "ab").bounds(), ("abc".into(), "abd".into()));
        assert_eq!(range("a", "z", "ab").bounds(), ("ab".into(), "ac".into()));
        assert!(range("b", "a", "").query(None, 0).is_none());
        assert!(range("x", "", "ab").query(None, 0).is_none());
        assert!(range("", "", "").query(None, 0).is_some());
    }

    #[test]
    fn filters_are_combined_only_when_needed() {
        let column = |text: &str| text.parse::<ColumnRef>().unwrap();
        assert_eq!(chain(CellArgs::default().filters()), None);
        let one = CellArgs {
            columns: vec![column("f:a"), column("f:a")],
            ..CellArgs::default()
        };
        assert!(matches!(one.filters()[..], [Filter::ColumnRangeFilter(_)]));
        let two = CellArgs {
            families: vec!["a.b".to_owned(), "größe$1".to_owned()],
            columns: vec![column("f:a"), column("f:\\xff")],
            versions: 1,
            until: 5,
            ..CellArgs::default()
        };
        let filters = two.filters();
        assert_eq!(filters[0], Filter::FamilyNameRegexFilter("a\\.b|größe\\$1".to_owned()));
        assert!(matches!(&filters[1], Filter::Interleave(both) if both.filters.len() == 2));
        assert!(matches!(
            filters[2..],
            [Filter::TimestampRangeFilter(_), Filter::CellsPerColumnLimitFilter(1)]
        ));
        assert!(matches!(chain(filters).unwrap().filter, Some(Filter::Chain(_))));
        let past = CellArgs {
            as_of: Some(5),
            versions: 1,
            ..CellArgs::default()
        };
        let range = v2::TimestampRange {
            start_timestamp_micros: 0,
            end_timestamp_micros: 6,
        };
        let newest_of_then = [
            Filter::TimestampRangeFilter(range),
            Filter::CellsPerColumnLimitFilter(1),
        ];
        assert_eq!(past.filters(), newest_of_then);
    }

    proptest! {
        #[test]
        fn a_prefix_range_holds_exactly_its_keys(
            prefix in proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(254), Just(255)], 0..4),
            key in proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(254), Just(255)], 0..5),
        ) {
            let args = RangeArgs { prefix: Some(prefix.clone().into()), ..RangeArgs::default() };
            let (start, end) = args.bounds();
            let inside = key >= start && (end.is_empty() || key < end);
            prop_assert_eq!(inside, key.starts_with(&prefix));
        }
    }
}
