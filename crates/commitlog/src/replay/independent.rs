//! Logs in which no segment can be dropped, told without reading them.
//!
//! A segment is dropped because one before it lost its end, and only if it took over from that one ([`super::gap`]).
//! Segments that stand alone count in any case. On object stores and HDFS all do: there a full segment is synced before
//! the next one begins.

use super::{OPENED_CONCURRENTLY, open_wanted, unless_deleted};
use crate::error::LogError;
use crate::format::{GROUP_HEADER_BYTES, GroupHeader, SEGMENT_HEADER_BYTES};
use futures::{StreamExt, TryStreamExt};
use stele_storage::{ReadFile, Storage};

/// The bytes of the log if no segment depends on the one before it; `None` if one may. Reads the headers of segments and of
/// their first groups.
pub async fn independent_bytes(storage: &dyn Storage) -> Result<Option<u64>, LogError> {
    let segments = open_wanted(storage, &|_, _| true).await?;
    debug_assert!(
        segments.iter().all(|(_, number, ..)| *number > 0),
        "segments are numbered from 1"
    );
    let checks = segments.into_iter().map(|(_, number, file, header)| async move {
        let follows = header.is_some_and(|header| header.previous > 0);
        let is_independent = match follows {
            true => unless_deleted(stands_alone(&*file, number).await)?.unwrap_or(true),
            false => true,
        };
        Ok(is_independent.then(|| file.len()))
    });
    let lens: Vec<Option<u64>> = futures::stream::iter(checks.collect::<Vec<_>>())
        .buffered(OPENED_CONCURRENTLY)
        .try_collect::<Vec<_>>()
        .await
        .map_err(|error: LogError| error)?;
    Ok(lens.into_iter().sum())
}

/// Whether the first group says that the segment counts although one before it lost its end. A segment without a group has
/// no record that could count.
async fn stands_alone(file: &dyn ReadFile, number: u64) -> Result<bool, LogError> {
    let begin = SEGMENT_HEADER_BYTES as u64;
    if file.len() < begin + GROUP_HEADER_BYTES as u64 {
        return Ok(true);
    }
    let first = file.read_at(begin, GROUP_HEADER_BYTES).await?;
    debug_assert_eq!(first.len(), GROUP_HEADER_BYTES, "a range within a file is read whole");
    let first = GroupHeader::decode(number, &first).filter(|group| group.offset == begin);
    Ok(first.is_some_and(|group| group.unsynced == 0))
}
