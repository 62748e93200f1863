//! Translates row sets and row ranges of requests.
//!
//! An absent start is the first row and an absent end is infinity. An end that is present but empty is infinity too,
//! because clients send it that way. A request without keys and ranges means the whole table, unlike one whose ranges
//! hold no row. Inverted ranges are refused in the words of the emulator; equal bounds are not.

use crate::pb::v2;
use crate::pb::v2::row_range::{EndKey, StartKey};
use crate::status::invalid;
use bytes::Bytes;
use std::ops::Bound;
use stele_types::{RowRange, RowSet};
use tonic::Status;

/// The rows of a read.
pub(crate) fn row_set(rows: Option<v2::RowSet>) -> Result<RowSet, Status> {
    let Some(rows) = rows else {
        return Ok(RowSet::all());
    };
    if rows.row_keys.is_empty() && rows.row_ranges.is_empty() {
        return Ok(RowSet::all());
    }
    let mut ranges: Vec<RowRange> = rows.row_keys.iter().map(RowRange::single).collect();
    for (index, range) in rows.row_ranges.into_iter().enumerate() {
        let range = row_range(range).map_err(|reason| invalid(format!("Error in element #{index}: {reason}")))?;
        ranges.push(range);
    }
    Ok(RowSet::new(ranges))
}

/// One range, or the mistake in it.
pub(crate) fn row_range(range: v2::RowRange) -> Result<RowRange, String> {
    let (start, start_field) = match range.start_key {
        Some(StartKey::StartKeyClosed(key)) => (bound(key, Bound::Included), "start_key_closed"),
        Some(StartKey::StartKeyOpen(key)) => (bound(key, Bound::Excluded), "start_key_open"),
        None => (Bound::Unbounded, ""),
    };
    let (end, end_field) = match range.end_key {
        Some(EndKey::EndKeyClosed(key)) => (bound(key, Bound::Included), "end_key_closed"),
        Some(EndKey::EndKeyOpen(key)) => (bound(key, Bound::Excluded), "end_key_open"),
        None => (Bound::Unbounded, ""),
    };
    if let (Some(first), Some(last)) = (key_of(&start), key_of(&end))
        && first > last
    {
        return Err(format!("{start_field} must be less than {end_field}"));
    }
    Ok(RowRange::from_bounds(start, end))
}

fn bound(key: Bytes, kind: fn(Bytes) -> Bound<Bytes>) -> Bound<Bytes> {
    if key.is_empty() { Bound::Unbounded } else { kind(key) }
}

fn key_of(bound: &Bound<Bytes>) -> Option<&Bytes> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    fn range(start: Option<StartKey>, end: Option<EndKey>) -> v2::RowRange {
        v2::RowRange {
            start_key: start,
            end_key: end,
        }
    }

    #[test]
    fn nothing_named_is_everything() {
        assert_eq!(row_set(None).unwrap(), RowSet::all());
        assert_eq!(row_set(Some(v2::RowSet::default())).unwrap(), RowSet::all());
        let empty = range(
            Some(StartKey::StartKeyOpen(bytes("a"))),
            Some(EndKey::EndKeyOpen(bytes("a"))),
        );
        let set = row_set(Some(v2::RowSet {
            row_keys: vec![],
            row_ranges: vec![empty],
        }))
        .unwrap();
        assert!(set.is_empty());
    }

    #[test]
    fn bounds_mean_what_they_say() {
        let check = |start, end, rows: &[(&str, bool)]| {
            let range = row_range(range(start, end)).unwrap();
            for (row, inside) in rows {
                assert_eq!(range.contains(row.as_bytes()), *inside, "{row} in {range:?}");
            }
        };
        let closed_start = Some(StartKey::StartKeyClosed(bytes("b")));
        let open_start = Some(StartKey::StartKeyOpen(bytes("b")));
        let closed_end = Some(EndKey::EndKeyClosed(bytes("d")));
        let open_end = Some(EndKey::EndKeyOpen(bytes("d")));
        check(
            closed_start,
            closed_end,
            &[("a", false), ("b", true), ("d", true), ("d\0", false)],
        );
        check(
            open_start,
            open_end,
            &[("b", false), ("b\0", true), ("c", true), ("d", false)],
        );
        check(None, Some(EndKey::EndKeyOpen(bytes(""))), &[("a", true), ("zz", true)]);
        check(
            Some(StartKey::StartKeyOpen(bytes(""))),
            Some(EndKey::EndKeyClosed(bytes(""))),
            &[("a", true)],
        );
    }

    #[test]
    fn inverted_ranges_name_the_fields() {
        let inverted = range(
            Some(StartKey::StartKeyClosed(bytes("b"))),
            Some(EndKey::EndKeyOpen(bytes("a"))),
        );
        let fine = range(None, None);
        let error = row_set(Some(v2::RowSet {
            row_keys: vec![],
            row_ranges: vec![fine, inverted],
        }))
        .unwrap_err();
        assert_eq!(error.code(), tonic::Code::InvalidArgument);
        assert_eq!(
            error.message(),
            "Error in element #1: start_key_closed must be less than end_key_open"
        );
        let equal = range(
            Some(StartKey::StartKeyOpen(bytes("a"))),
            Some(EndKey::EndKeyClosed(bytes("a"))),
        );
        assert!(row_range(equal).unwrap().is_empty());
    }
}
