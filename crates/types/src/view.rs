//! Authorized views: named parts of tables, to which rights can be given.
//!
//! A view has rows by prefixes, and columns by family: some qualifiers, and qualifiers with some prefixes. A cell is in the view
//! if its row and its column are. Nothing is in a view that names nothing; the empty prefix stands for everything.

use crate::range::{RowRange, RowSet};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Prefixes and qualifiers of a view: every read through it tests all of its columns.
pub const VIEW_PARTS_MAX: usize = 256;

/// Bytes of all names in a view.
pub const VIEW_BYTES_MAX: usize = 64 << 10;

/// Views of a table: the rules of all go in one transaction with the table.
pub const VIEWS_MAX: usize = 64;

/// Bytes of all views of a table.
pub const VIEWS_BYTES_MAX: usize = 256 << 10;

/// The views of a table by name.
pub type Views = BTreeMap<String, View>;

/// An authorized view.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// Its rows begin with one of these.
    pub row_prefixes: Vec<Bytes>,
    /// Its columns by the name of the family, which need not exist.
    pub families: BTreeMap<String, ColumnSubset>,
    /// Neither the view nor its table may be deleted.
    pub is_protected: bool,
    /// The version of the table's schema in which it was changed last.
    pub version: u64,
}

/// Columns of a family.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnSubset {
    /// These.
    pub qualifiers: Vec<Bytes>,
    /// And those that begin with one of these.
    pub prefixes: Vec<Bytes>,
}

impl ColumnSubset {
    /// The qualifiers as disjoint ranges.
    fn ranges(&self) -> RowSet {
        let single = self.qualifiers.iter().map(RowRange::single);
        let with_prefix = self.prefixes.iter().map(RowRange::prefix);
        RowSet::new(single.chain(with_prefix).collect())
    }
}

impl View {
    /// Its rows.
    pub fn rows(&self) -> RowSet {
        RowSet::new(self.row_prefixes.iter().map(RowRange::prefix).collect())
    }

    /// Those of some rows that it has.
    pub fn rows_of(&self, rows: &RowSet) -> RowSet {
        self.rows().common(rows)
    }

    /// Its columns: families with disjoint ranges of qualifiers, ascending.
    pub fn columns(&self) -> Vec<(&str, RowRange)> {
        let mut all = Vec::new();
        for (family, subset) in &self.families {
            all.extend(
                subset
                    .ranges()
                    .into_ranges()
                    .into_iter()
                    .map(|range| (family.as_str(), range)),
            );
        }
        all
    }

    /// Whether it has a row.
    pub fn has_row(&self, row: &[u8]) -> bool {
        self.row_prefixes.iter().any(|prefix| row.starts_with(prefix))
    }

    /// Whether it has a column.
    pub fn has_column(&self, family: &str, qualifier: &[u8]) -> bool {
        self.families.get(family).is_some_and(|subset| {
            subset.qualifiers.iter().any(|own| own == qualifier)
                || subset.prefixes.iter().any(|prefix| qualifier.starts_with(prefix))
        })
    }

    /// The reason for which it cannot be one, if there is one.
    pub fn fault(&self) -> Option<String> {
        let parts = self.parts();
        if parts > VIEW_PARTS_MAX {
            let message = format!("a view has at most {VIEW_PARTS_MAX} families, qualifiers and prefixes, not {parts}");
            return Some(message);
        }
        (self.bytes() > VIEW_BYTES_MAX).then(|| format!("a view has names of at most {VIEW_BYTES_MAX} bytes"))
    }

    /// Its families, qualifiers and prefixes.
    pub fn parts(&self) -> usize {
        let subsets = self.families.values();
        let of_family = subsets.map(|subset| 1 + subset.qualifiers.len() + subset.prefixes.len());
        self.row_prefixes.len() + of_family.sum::<usize>()
    }

    /// Bytes of its names.
    pub fn bytes(&self) -> usize {
        let of = |names: &[Bytes]| names.iter().map(Bytes::len).sum::<usize>();
        let of_family =
            |(name, subset): (&String, &ColumnSubset)| name.len() + of(&subset.qualifiers) + of(&subset.prefixes);
        of(&self.row_prefixes) + self.families.iter().map(of_family).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(names: &[&'static str]) -> Vec<Bytes> {
        names.iter().map(|name| Bytes::from_static(name.as_bytes())).collect()
    }

    fn view(rows: &[&'static str], qualifiers: &[&'static str], prefixes: &[&'static str]) -> View {
        let subset = ColumnSubset {
            qualifiers: bytes(qualifiers),
            prefixes: bytes(prefixes),
        };
        View {
            row_prefixes: bytes(rows),
            families: [("f".to_owned(), subset)].into(),
            ..View::default()
        }
    }

    #[test]
    fn a_cell_is_in_a_view_by_its_row_and_its_column() {
        let view = view(&["ab", "c"], &["q"], &["p/"]);
        for (row, has) in [
            ("ab", true),
            ("abc", true),
            ("c9", true),
            ("a", false),
            ("b", false),
            ("", false),
        ] {
            assert_eq!(view.has_row(row.as_bytes()), has, "{row}");
            let rows = view.rows_of(&RowSet::new(vec![RowRange::single(&Bytes::from_static(
                row.as_bytes(),
            ))]));
            assert_eq!(!rows.is_empty(), has && !row.is_empty(), "{row}");
        }
        for (family, qualifier, has) in [
            ("f", "q", true),
            ("f", "qq", false),
            ("f", "p/1", true),
            ("g", "q", false),
        ] {
            assert_eq!(
                view.has_column(family, qualifier.as_bytes()),
                has,
                "{family}:{qualifier}"
            );
            let in_ranges = view
                .columns()
                .iter()
                .any(|(own, range)| *own == family && range.contains(qualifier.as_bytes()));
            assert_eq!(in_ranges, has, "{family}:{qualifier}");
        }
    }

    #[test]
    fn a_view_that_names_nothing_has_nothing_and_the_empty_prefix_has_all() {
        let nothing = View::default();
        assert!(nothing.rows().is_empty() && nothing.columns().is_empty() && !nothing.has_row(b"r"));
        assert!(view(&["r"], &[], &[]).columns().is_empty());
        let all = view(&[""], &[], &[""]);
        assert!(all.has_row(b"") && all.has_row(b"r") && all.has_column("f", b""));
        assert_eq!(all.rows(), RowSet::all());
        assert_eq!(all.columns(), [("f", RowRange::all())]);
    }

    #[test]
    fn columns_that_overlap_are_one_range() {
        let view = view(&[""], &["p1", "p2", "z"], &["p"]);
        let columns = view.columns();
        assert_eq!(columns.len(), 2, "{columns:?}");
    }

    #[test]
    fn views_are_limited() {
        let many = vec!["q"; VIEW_PARTS_MAX - 2];
        assert_eq!(view(&[""], &many, &[]).fault(), None);
        assert!(view(&["", ""], &many, &[]).fault().unwrap().contains("at most 256"));
        let long = View {
            row_prefixes: vec![vec![b'r'; VIEW_BYTES_MAX + 1].into()],
            ..View::default()
        };
        assert!(long.fault().is_some());
    }
}
