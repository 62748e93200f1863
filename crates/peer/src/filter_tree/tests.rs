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
