//! Translates the row filters of requests.
//!
//! [`Filter::compile`] checks the arguments of filters, in one place for every front end. This module checks the
//! properties that the tree cannot express: flags that must be true, the limits on the serialized form, and the depth,
//! so that the recursion below is bounded.

use crate::limits::FILTER_BYTES_MAX;
use crate::pb::v2;
use crate::pb::v2::column_range::{EndQualifier, StartQualifier};
use crate::pb::v2::value_range::{EndValue, StartValue};
use crate::status::invalid;
use crate::times::TableTime;
use crate::wire::{Condition, FilterKind, RowFilter};
use bytes::Bytes;
use prost::Message as _;
use std::ops::Bound;
use stele_filter::Filter;
use tonic::Status;

/// Nesting of chains, interleaves and conditions (data.proto, `RowFilter`).
const FILTER_DEPTH_MAX: usize = 20;

/// The filter of a request; `None` when it has none and everything passes.
pub(crate) fn filter(filter: Option<RowFilter>, time: TableTime) -> Result<Option<Filter>, Status> {
    let Some(filter) = filter else {
        return Ok(None);
    };
    let bytes = filter.encoded_len();
    if bytes > FILTER_BYTES_MAX {
        return Err(invalid(format!(
            "The filter has {bytes} bytes, the limit is {FILTER_BYTES_MAX}"
        )));
    }
    if filter.filter.is_none() {
        return Ok(None);
    }
    convert(filter, time, FILTER_DEPTH_MAX).map(Some)
}

/// Whether it may make several cells of one. Recursion is as deep as the tree, which [`filter`] has bounded.
pub(crate) fn multiplies(filter: &Filter) -> bool {
    match filter {
        Filter::Interleave(_) => true,
        Filter::Chain(members) => members.iter().any(multiplies),
        Filter::Condition {
            predicate,
            on_true,
            on_false,
        } => {
            let branches = [on_true.as_deref(), on_false.as_deref()];
            multiplies(predicate) || branches.into_iter().flatten().any(multiplies)
        }
        _ => false,
    }
}

fn convert(filter: RowFilter, time: TableTime, depth_left: usize) -> Result<Filter, Status> {
    let Some(kind) = filter.filter else {
        return Ok(Filter::PassAll);
    };
    Ok(match kind {
        FilterKind::Chain(chain) => Filter::Chain(members(chain.filters, "Chain", time, depth_left)?),
        FilterKind::Interleave(interleave) => {
            Filter::Interleave(members(interleave.filters, "Interleave", time, depth_left)?)
        }
        FilterKind::Condition(condition) => convert_condition(*condition, time, depth_left)?,
        FilterKind::Sink(flag) => set("sink", flag, Filter::Sink)?,
        FilterKind::PassAllFilter(flag) => set("pass_all_filter", flag, Filter::PassAll)?,
        FilterKind::BlockAllFilter(flag) => set("block_all_filter", flag, Filter::BlockAll)?,
        FilterKind::StripValueTransformer(flag) => set("strip_value_transformer", flag, Filter::StripValue)?,
        FilterKind::RowKeyRegexFilter(pattern) => Filter::RowKeyRegex(pattern),
        FilterKind::RowSampleFilter(probability) => Filter::RowSample(probability),
        FilterKind::FamilyNameRegexFilter(pattern) => Filter::FamilyRegex(pattern.into()),
        FilterKind::ColumnQualifierRegexFilter(pattern) => Filter::QualifierRegex(pattern),
        FilterKind::ColumnRangeFilter(range) => column_range(range),
        FilterKind::TimestampRangeFilter(range) => timestamp_range(range, time)?,
        FilterKind::ValueRegexFilter(pattern) => Filter::ValueRegex(pattern),
        FilterKind::ValueRangeFilter(range) => value_range(range),
        FilterKind::CellsPerRowOffsetFilter(count) => Filter::CellsPerRowOffset(count),
        FilterKind::CellsPerRowLimitFilter(count) => Filter::CellsPerRow(count),
        FilterKind::CellsPerColumnLimitFilter(count) => Filter::CellsPerColumn(count),
        FilterKind::ApplyLabelTransformer(label) => Filter::ApplyLabel(label),
        FilterKind::ValueBitmaskFilter(bitmask) => Filter::ValueBitmask(bitmask.mask),
    })
}

fn deeper(depth_left: usize) -> Result<usize, Status> {
    depth_left
        .checked_sub(1)
        .ok_or_else(|| invalid(format!("The filter nests deeper than {FILTER_DEPTH_MAX} levels")))
}

fn members(filters: Vec<RowFilter>, kind: &str, time: TableTime, depth_left: usize) -> Result<Vec<Filter>, Status> {
    if filters.len() < 2 {
        return Err(invalid(format!("{kind} must contain at least two RowFilters")));
    }
    let depth_left = deeper(depth_left)?;
    filters
        .into_iter()
        .map(|member| convert(member, time, depth_left))
        .collect()
}

fn convert_condition(condition: Condition, time: TableTime, depth_left: usize) -> Result<Filter, Status> {
    let depth_left = deeper(depth_left)?;
    let branch = |filter: Option<Box<RowFilter>>| -> Result<Option<Box<Filter>>, Status> {
        filter.map(|f| convert(*f, time, depth_left).map(Box::new)).transpose()
    };
    let predicate = branch(condition.predicate_filter)?
        .ok_or_else(|| invalid("Error in field 'condition' : predicate_filter must be set"))?;
    Ok(Filter::Condition {
        predicate,
        on_true: branch(condition.true_filter)?,
        on_false: branch(condition.false_filter)?,
    })
}

fn set(field: &str, flag: bool, filter: Filter) -> Result<Filter, Status> {
    if flag {
        Ok(filter)
    } else {
        Err(invalid(format!("{field} must be true if set")))
    }
}

fn column_range(range: v2::ColumnRange) -> Filter {
    let start = match range.start_qualifier {
        Some(StartQualifier::StartQualifierClosed(qualifier)) => Bound::Included(qualifier),
        Some(StartQualifier::StartQualifierOpen(qualifier)) => Bound::Excluded(qualifier),
        None => Bound::Unbounded,
    };
    let end: Bound<Bytes> = match range.end_qualifier {
        Some(EndQualifier::EndQualifierClosed(qualifier)) => Bound::Included(qualifier),
        Some(EndQualifier::EndQualifierOpen(qualifier)) => Bound::Excluded(qualifier),
        None => Bound::Unbounded,
    };
    Filter::ColumnRange {
        family: range.family_name,
        start,
        end,
    }
}

fn value_range(range: v2::ValueRange) -> Filter {
    let start = match range.start_value {
        Some(StartValue::StartValueClosed(value)) => Bound::Included(value),
        Some(StartValue::StartValueOpen(value)) => Bound::Excluded(value),
        None => Bound::Unbounded,
    };
    let end: Bound<Bytes> = match range.end_value {
        Some(EndValue::EndValueClosed(value)) => Bound::Included(value),
        Some(EndValue::EndValueOpen(value)) => Bound::Excluded(value),
        None => Bound::Unbounded,
    };
    Filter::ValueRange { start, end }
}

/// Bounds need not be multiples of the granularity. The managed service refuses such bounds, but the emulator and its
/// users' tests do not.
fn timestamp_range(range: v2::TimestampRange, time: TableTime) -> Result<Filter, Status> {
    let (start, end) = (range.start_timestamp_micros, range.end_timestamp_micros);
    if start < 0 || end < 0 {
        return Err(invalid(format!(
            "Error in field 'timestamp_range_filter' : bounds must not be negative: [{start}, {end})"
        )));
    }
    let end = (end != 0).then(|| time.lower_bound(end));
    Ok(Filter::TimestampRange {
        start: time.lower_bound(start),
        end,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use crate::wire::Chain;

    fn wire(kind: FilterKind) -> RowFilter {
        RowFilter { filter: Some(kind) }
    }

    fn converted(kind: FilterKind) -> Result<Option<Filter>, Status> {
        filter(Some(wire(kind)), TableTime::of(&testing::schema()))
    }

    fn pass() -> RowFilter {
        wire(FilterKind::PassAllFilter(true))
    }

    #[test]
    fn absent_is_none_and_unset_members_pass() {
        let time = TableTime::of(&testing::schema());
        assert_eq!(filter(None, time).unwrap(), None);
        assert_eq!(filter(Some(RowFilter::default()), time).unwrap(), None);
        let chain = Chain {
            filters: vec![RowFilter::default(), pass()],
        };
        assert_eq!(
            converted(FilterKind::Chain(chain)).unwrap(),
            Some(Filter::Chain(vec![Filter::PassAll, Filter::PassAll]))
        );
    }

    #[test]
    fn interleaves_make_several_cells_of_one_wherever_they_are() {
        let twice = || Filter::Interleave(vec![Filter::PassAll, Filter::PassAll]);
        let condition = |on_false| Filter::Condition {
            predicate: Box::new(Filter::PassAll),
            on_true: None,
            on_false: Some(Box::new(on_false)),
        };
        assert!(multiplies(&Filter::Chain(vec![Filter::PassAll, condition(twice())])));
        assert!(!multiplies(&Filter::Chain(vec![
            Filter::StripValue,
            condition(Filter::Sink)
        ])));
    }

    #[test]
    fn flags_must_be_true_and_chains_have_two() {
        for kind in [
            FilterKind::Sink(false),
            FilterKind::PassAllFilter(false),
            FilterKind::BlockAllFilter(false),
            FilterKind::StripValueTransformer(false),
            FilterKind::Condition(Box::default()),
        ] {
            assert!(converted(kind.clone()).is_err(), "{kind:?}");
        }
        let error = converted(FilterKind::Chain(Chain { filters: vec![pass()] })).unwrap_err();
        assert_eq!(error.message(), "Chain must contain at least two RowFilters");
    }

    #[test]
    fn depth_and_size_are_bounded() {
        let nested = |levels: usize| {
            (0..levels).fold(pass(), |inner, _| {
                wire(FilterKind::Chain(Chain {
                    filters: vec![inner, pass()],
                }))
            })
        };
        let time = TableTime::of(&testing::schema());
        assert!(filter(Some(nested(FILTER_DEPTH_MAX)), time).is_ok());
        assert!(
            filter(Some(nested(FILTER_DEPTH_MAX + 1)), time)
                .unwrap_err()
                .message()
                .contains("nests deeper")
        );
        let long = FilterKind::ValueRegexFilter(Bytes::from(vec![b'a'; FILTER_BYTES_MAX]));
        assert!(converted(long).unwrap_err().message().contains("limit is 20480"));
    }

    #[test]
    fn newer_kinds_survive_the_wire() {
        let bitmask = wire(FilterKind::ValueBitmaskFilter(crate::wire::ValueBitmask {
            mask: Bytes::from_static(b"\x0f"),
        }));
        let bytes = bitmask.encode_to_vec();
        assert_eq!(bytes, [0xa2, 0x01, 0x03, 0x0a, 0x01, 0x0f]);
        assert_eq!(RowFilter::decode(bytes.as_slice()).unwrap(), bitmask);
    }

    #[test]
    fn timestamp_ranges_end_at_zero_means_open() {
        let range = |start, end| {
            converted(FilterKind::TimestampRangeFilter(v2::TimestampRange {
                start_timestamp_micros: start,
                end_timestamp_micros: end,
            }))
        };
        assert_eq!(
            range(1_000, 0).unwrap(),
            Some(Filter::TimestampRange {
                start: 1_000,
                end: None
            })
        );
        assert_eq!(
            range(1_000, 2_001).unwrap(),
            Some(Filter::TimestampRange {
                start: 1_000,
                end: Some(2_001)
            })
        );
        assert!(range(-1, 0).is_err());
    }
}
