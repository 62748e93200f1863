//! Logs in which no segment can be dropped, told without reading them.
//!
//! A segment is dropped because one before it lost its end, and only if it took over from that one ([`super::gap`]).
//! Segments that stand alone count in any case. On object stores and HDFS all do: there a full segment is synced before
//! the next one begins.

use super::{Opened, open_wanted};
use crate::error::LogError;
use crate::format::{GROUP_HEADER_BYTES, GroupHeader, SEGMENT_HEADER_BYTES};
use stele_storage::Storage;

/// The bytes of the log if no segment depends on the one before it; `None` if one may. Reads the headers of segments and of
/// their first groups, in one read for both: rows wait for it after a failure.
pub async fn independent_bytes(storage: &dyn Storage) -> Result<Option<u64>, LogError> {
    let segments = open_wanted(storage, ("log/", &|_, _| true), GROUP_HEADER_BYTES).await?;
    debug_assert!(
        segments.iter().all(|segment| segment.number > 0),
        "segments are numbered from 1"
    );
    let lens = segments
        .iter()
        .map(|segment| is_independent(segment).then(|| segment.file.len()));
    Ok(lens.sum())
}

/// Whether a segment counts although one before it lost its end: its first group says so. One without a group has no record that could
/// count, and one that follows none cannot be dropped.
fn is_independent(segment: &Opened) -> bool {
    let begin = SEGMENT_HEADER_BYTES as u64;
    let follows = segment.header.is_some_and(|header| header.previous > 0);
    if !follows || segment.file.len() < begin + GROUP_HEADER_BYTES as u64 {
        return true;
    }
    debug_assert_eq!(
        segment.behind.len(),
        GROUP_HEADER_BYTES,
        "a range within a file is read whole"
    );
    let first = GroupHeader::decode(segment.number, &segment.behind).filter(|group| group.offset == begin);
    first.is_some_and(|group| group.unsynced == 0)
}
