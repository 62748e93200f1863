use super::*;
use crate::messages::samples;

fn round_trip(filter: &Filter) -> ServiceResult<Decoded<Filter>> {
    let mut out = Segments::default();
    encode(filter, &mut out)?;
    let mut fields = Cursor::new("test", out.into_bytes());
    Ok(decode(&mut fields).and_then(|filter| fields.finish().map(|()| filter)))
}

fn nested(depth: usize) -> Filter {
    (1..depth).fold(Filter::PassAll, |inner, _| Filter::Chain(vec![inner, Filter::Sink]))
}

#[test]
fn every_node_round_trips() {
    let filter = samples::filter();
    assert_eq!(round_trip(&filter), Ok(Ok(filter)));
}

/// The filter that grows most here, as large as clients may send it: four bytes each there.
#[test]
fn a_filter_of_a_client_fits_behind_the_columns_of_a_view() {
    let everywhen = Filter::TimestampRange { start: 0, end: None };
    let of_client = Filter::Interleave(vec![everywhen; 20_480 / 4]);
    let column = |n: usize| Filter::ColumnRange {
        family: "f".repeat(127),
        start: Bound::Included(format!("{n:0256}").into()),
        end: Bound::Excluded(format!("{n:0257}").into()),
    };
    let view = Filter::Interleave((0..255).map(column).collect());
    let families = Filter::FamilyRegex(vec![b'f'; 20_480].into());
    let filter = Filter::Chain(vec![families, Filter::Chain(vec![view, of_client])]);
    assert_eq!(round_trip(&filter), Ok(Ok(filter)));
}

/// A read of HBase of all families but one, with an end of time. The table has as many as it may have, and all keep deleted cells.
#[test]
fn lists_of_all_families_fit() {
    let families = || (1..20_000).map(FamilyId);
    let before = families().map(|family| (family, Timestamp(i64::MAX - 1)));
    let filter = Filter::Chain(vec![
        Filter::Families(families().collect()),
        Filter::FamiliesBefore(before.collect()),
        Filter::TimestampRange { start: 0, end: Some(5) },
        Filter::CellsPerColumn(1),
        Filter::StripValue,
    ]);
    assert_eq!(round_trip(&filter), Ok(Ok(filter)));
}

#[test]
fn depth_and_size_are_bounded_both_ways() {
    assert_eq!(round_trip(&nested(FILTER_DEPTH_MAX)), Ok(Ok(nested(FILTER_DEPTH_MAX))));
    assert!(round_trip(&nested(FILTER_DEPTH_MAX + 1)).is_err());
    let long = Filter::ValueRegex(vec![b'a'; FILTER_BYTES_MAX].into());
    assert!(round_trip(&long).is_err());
    let wide = Filter::Interleave(vec![Filter::PassAll; FILTER_BYTES_MAX + 1]);
    assert!(round_trip(&wide).is_err());
    // Bytes that nest deeper than any encoder writes: a list of one list of one list.
    let deep: Vec<u8> = [1, 1, 0, 0, 0].repeat(10_000);
    let mut out = Segments::default();
    out.bytes(&deep);
    let error = decode(&mut Cursor::new("test", out.into_bytes())).unwrap_err();
    assert!(error.to_string().contains("too deep"), "{error}");
}
