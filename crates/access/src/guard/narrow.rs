//! Reads narrowed to some families.

use crate::grants::Families;
use bytes::Bytes;
use std::ops::Bound;
use std::sync::Arc;
use stele_filter::Filter;

/// The filter of a read that may use these families, of which there is at least one. Cells of others do not exist for it.
pub(super) fn narrowed(families: &Families, filter: Option<Arc<Filter>>) -> Option<Arc<Filter>> {
    let Families::Named(named) = families else {
        return filter;
    };
    let pattern = pattern(named.iter().map(String::as_str));
    let of_families = match pattern.len() <= PATTERN_BYTES_MAX {
        true => Filter::FamilyRegex(pattern),
        // Each cell is in one of them.
        false => Filter::Interleave(named.iter().map(|name| whole(name)).collect()),
    };
    // First in the chain, so that no part of the filter sees other cells, nor lets them out through a sink.
    Some(Arc::new(match filter {
        None => of_families,
        Some(filter) => Filter::Chain(vec![of_families, Filter::clone(&filter)]),
    }))
}

/// Bytes of a pattern of names. More of them would be too large for one.
const PATTERN_BYTES_MAX: usize = 8 << 10;

/// All columns of a family.
fn whole(name: &str) -> Filter {
    Filter::ColumnRange {
        family: name.to_owned(),
        start: Bound::Unbounded,
        end: Bound::Unbounded,
    }
}

/// A pattern of exactly these names.
fn pattern<'n>(names: impl Iterator<Item = &'n str>) -> Bytes {
    let mut pattern = Vec::new();
    for name in names {
        if !pattern.is_empty() {
            pattern.push(b'|');
        }
        for byte in name.bytes() {
            if byte.is_ascii() && !byte.is_ascii_alphanumeric() && byte != b'_' {
                pattern.push(b'\\');
            }
            pattern.push(byte);
        }
    }
    pattern.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn named(names: &[&str]) -> Families {
        Families::Named(BTreeSet::from_iter(names.iter().map(ToString::to_string)))
    }

    #[test]
    fn many_families_are_no_pattern() {
        let names: Vec<String> = (0..1_500).map(|n| format!("family-{n:08}")).collect();
        let families = Families::Named(names.iter().cloned().collect());
        let filter = narrowed(&families, None).unwrap();
        assert!(matches!(&*filter, Filter::Interleave(ranges) if ranges.len() == names.len()));
        let schema = stele_types::TableSchema::new(stele_types::TableId(1), stele_types::TableName::new("n", "t"));
        filter.compile(&schema).unwrap();
    }

    #[test]
    fn the_families_come_first() {
        let families = named(&["a.b", "c"]);
        let of_families = Filter::FamilyRegex(Bytes::from_static(br"a\.b|c"));
        assert_eq!(narrowed(&families, None).as_deref(), Some(&of_families));
        let inner = Arc::new(Filter::Sink);
        let expected = Filter::Chain(vec![of_families, Filter::Sink]);
        assert_eq!(
            narrowed(&families, Some(Arc::clone(&inner))).as_deref(),
            Some(&expected)
        );
        assert_eq!(narrowed(&Families::All, Some(Arc::clone(&inner))), Some(inner));
        assert_eq!(narrowed(&Families::All, None), None);
    }
}
