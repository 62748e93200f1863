//! Reads narrowed to some families.

use crate::grants::Families;
use bytes::Bytes;
use std::sync::Arc;
use stele_filter::Filter;

/// The filter of a read that may use these families, of which there is at least one. Cells of others do not exist for it.
pub(super) fn narrowed(families: &Families, filter: Option<Arc<Filter>>) -> Option<Arc<Filter>> {
    let Families::Named(named) = families else {
        return filter;
    };
    let of_families = Filter::FamilyRegex(pattern(named.iter().map(String::as_str)));
    // First in the chain, so that no part of the filter sees other cells, nor lets them out through a sink.
    Some(Arc::new(match filter {
        None => of_families,
        Some(filter) => Filter::Chain(vec![of_families, Filter::clone(&filter)]),
    }))
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
