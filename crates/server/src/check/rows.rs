//! Converts keys of cells to the rows that users know.

use super::report::Place;
use super::tablets::TabletInfo;
use stele_sstable::check::KeyGap;
use stele_types::key;

/// The part of a tablet that a gap of keys lies in; `None` when the gap has no rows of the tablet. `lower` and `upper`
/// are the bounds of the tablet's reference.
pub fn place(tablet: &TabletInfo, lower: Option<&[u8]>, upper: Option<&[u8]>, gap: Option<&KeyGap>) -> Option<Place> {
    let start = gap.map_or(&[][..], |gap| &gap.lower).max(lower.unwrap_or(&[]));
    let gap_end = gap.and_then(|gap| gap.upper.as_deref());
    let end = match (gap_end, upper) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    if end.is_some_and(|end| start >= end) {
        return None;
    }
    let mut first = row_of(start);
    if first.as_slice() < &tablet.range.start[..] {
        first = tablet.range.start.to_vec();
    }
    let mut last = end.map(row_of);
    if let Some(range_end) = &tablet.range.end
        && last.as_ref().is_none_or(|last| last.as_slice() > &range_end[..])
    {
        last = Some(range_end.to_vec());
    }
    let rows = (
        first.escape_ascii().to_string(),
        last.map(|row| row.escape_ascii().to_string()),
    );
    Some(Place {
        rows: Some(rows),
        ..tablet.place()
    })
}

/// The row of a key, or of the beginning of a key.
pub fn row_of(key: &[u8]) -> Vec<u8> {
    if let Some(row) = key::row_prefix_len(key).and_then(|len| key::decode_row(key.get(..len)?)) {
        return row.into_owned();
    }
    // A separator may end within the row; a terminator then completes it.
    let mut cut = key.strip_suffix(&[0]).unwrap_or(key).to_vec();
    cut.extend_from_slice(&key::row_prefix(&[]));
    key::decode_row(&cut).map_or_else(|| key.to_vec(), std::borrow::Cow::into_owned)
}
