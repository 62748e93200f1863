//! Filters of tables with as many families as a table may have.

use super::*;
use crate::node::{CellTest, Node};
use std::sync::Arc;
use stele_types::{Timestamp, limits};

/// Families `family000001` and so on, numbered from 1.
fn many() -> TableSchema {
    let template = schema().families[&FamilyId(1)].clone();
    let family = |n: u32| stele_types::Family {
        name: format!("family{n:06}"),
        ..template.clone()
    };
    let count = limits::FAMILIES_MAX as u32;
    TableSchema {
        families: (1..=count).map(|n| (FamilyId(n), family(n))).collect(),
        next_family: FamilyId(count + 1),
        ..schema()
    }
}

/// Families in all lists of a filter, each list once.
fn listed(filter: &CompiledFilter) -> usize {
    let mut lists: Vec<&Arc<[FamilyId]>> = Vec::new();
    let mut nodes = vec![&filter.root];
    while let Some(node) = nodes.pop() {
        match node {
            Node::Cells(tests) => lists.extend(tests.iter().filter_map(|test| match test {
                CellTest::Families(list) => Some(list),
                _ => None,
            })),
            Node::Chain(members) | Node::Interleave(members) => nodes.extend(members),
            _ => {}
        }
    }
    lists.sort_by_key(|list| list.as_ptr());
    lists.dedup_by(|a, b| Arc::ptr_eq(a, b));
    lists.iter().map(|list| list.len()).sum()
}

/// As many members as a client's filter may have.
#[test]
fn a_pattern_is_matched_once() {
    let members = vec![FamilyRegex(bytes(".*")); 3_400];
    for filter in [Interleave(members.clone()), Chain(members)] {
        let compiled = filter.compile(&many()).unwrap();
        assert_eq!(listed(&compiled), limits::FAMILIES_MAX);
    }
}

#[test]
fn columns_are_not_cut_where_that_is_much_work() {
    let pushed = |count: usize| {
        let members = vec![Chain(vec![FamilyRegex(bytes("family.*")), CellsPerRow(1)]); count];
        Interleave(members).compile(&many()).unwrap().pushdown().clone()
    };
    let few = pushed(2);
    assert_eq!(few.families().map(|f| f.len()), Some(limits::FAMILIES_MAX));
    assert_eq!(few.cells, Some(1));
    let many = pushed(1_000);
    assert_eq!((many.families(), many.cells), (None, None));
}

#[test]
fn patterns_that_match_very_many_families_are_refused() {
    let alike = |start: &str| ["\\C*", ".*"].map(|end| FamilyRegex(Bytes::from(format!("{start}{end}"))));
    let starts = ["", "f", "fa", "fam", "fami", "famil", "family", "family0"];
    let all: Vec<Filter> = starts.iter().flat_map(|start| alike(start)).collect();
    let error = Interleave(all.clone()).compile(&many()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    Interleave(all.clone()).compile(&schema()).unwrap();
    Interleave(all[..8].to_vec()).compile(&many()).unwrap();
    // These match few, but every name is tried.
    let few = |n: u32| FamilyRegex(Bytes::from(format!("family[0-1]*{n:03}")));
    let error = Interleave((0..300).map(few).collect()).compile(&many()).unwrap_err();
    assert!(error.to_string().contains("too many families"), "{error}");
    Interleave((0..50).map(few).collect()).compile(&many()).unwrap();
}

#[test]
fn names_are_found_however_many_there_are() {
    let (schema, name) = (many(), |n: usize| format!("family{:06}", 6 * n + 1));
    let ranges = (0..3_000).map(|n| range(&name(n), Bound::Unbounded, Bound::Unbounded));
    let patterns = (0..3_000).map(|n| FamilyRegex(Bytes::from(name(n))));
    let list = FamilyRegex(Bytes::from((0..1_500).map(name).collect::<Vec<_>>().join("|")));
    let expected = |count: u32| (0..count).map(|n| FamilyId(6 * n + 1)).collect::<Vec<_>>();
    for (filter, count) in [
        (Interleave(ranges.collect()), 3_000),
        (Interleave(patterns.collect()), 3_000),
        (list, 1_500),
    ] {
        let compiled = filter.compile(&schema).unwrap();
        let families = compiled.pushdown().families().unwrap();
        assert!(families.into_iter().eq(expected(count)));
    }
}

#[test]
fn a_list_of_families_is_of_any_size() {
    let schema = many();
    let most = (2..=limits::FAMILIES_MAX as u32 + 5).map(FamilyId);
    let ends = most.clone().map(|family| (family, Timestamp(9)));
    let filter = Chain(vec![
        Families(most.rev().collect()),
        FamiliesBefore(ends.rev().collect()),
    ]);
    let compiled = filter.compile(&schema).unwrap();
    assert_eq!(listed(&compiled), limits::FAMILIES_MAX - 1);
    let pushdown = compiled.pushdown();
    assert!(pushdown.each_family().unwrap().eq((2..=20_000).map(FamilyId)));
    assert!(pushdown.families_before.is_sorted());
    let found = compiled.apply(b"row", vec![cell(1, "x", 1), cell(2, "x", 1)], &mut middle);
    assert_eq!(show(&found.unwrap()), "b:x@1=v1");
}
