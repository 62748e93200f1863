//! Gaps: segments that lost their end and have a successor.
//!
//! The successor says how many bytes of a segment were acknowledged. If fewer check, the segment has a *gap*. It is
//! either the work of a power loss, or damage:
//! * A segment that stands alone counts even if bytes are missing before it. Its first group states the distance 0.
//! * Any other segment took over from the one with the gap. Nothing in it was synced before all older segments were. So if
//!   any byte of it is known to have been synced, the gap is damage. Else it is dropped: a later write must not survive
//!   without an earlier one.

use super::reader::{KnownLengths, find_synced_past};
use crate::error::LogError;
use crate::format::{GROUP_HEADER_BYTES, GroupHeader, SEGMENT_HEADER_BYTES, SegmentHeader};
use std::sync::Arc;
use stele_storage::ReadFile;

/// The place where a segment lost its end.
#[derive(Clone, Debug)]
pub(crate) struct Gap {
    pub(crate) path: Arc<str>,
    pub(crate) offset: u64,
}

/// The gap of a segment without a valid header. An error when the next one says that bytes of it were synced: the header
/// comes before all others, so it was synced, too.
pub(crate) fn gap_without_header(path: &str, lengths: Option<KnownLengths>) -> Result<Option<Gap>, LogError> {
    let (path, offset): (Arc<str>, u64) = (Arc::from(path), 0);
    match lengths {
        Some(known) if known.synced > 0 => Err(LogError::Corruption {
            path,
            offset,
            detail: format!(
                "no valid header, yet the next segment says that {} bytes were synced",
                known.synced
            ),
        }),
        Some(known) if known.acknowledged > 0 => Ok(Some(Gap { path, offset })),
        _ => Ok(None),
    }
}

/// Whether a segment counts although one before it has a gap. An error when the gap is damage.
pub(crate) async fn counts_behind(
    gap: &Gap,
    file: &dyn ReadFile,
    header: &SegmentHeader,
    lengths: Option<KnownLengths>,
) -> Result<bool, LogError> {
    let begin = SEGMENT_HEADER_BYTES as u64;
    let mut said = lengths.is_some_and(|known| known.synced > begin);
    if file.len() >= begin + GROUP_HEADER_BYTES as u64 {
        let first = file.read_at(begin, GROUP_HEADER_BYTES).await?;
        let first = GroupHeader::decode(header.number, &first).filter(|group| group.offset == begin);
        if first.is_some_and(|group| group.unsynced == 0) {
            return Ok(true);
        }
        // Its header had been synced when the first group was written, and all older segments before that.
        said |= first.is_some_and(|group| group.synced_through() > 0);
    }
    if said || find_synced_past(file, header.number, begin).await?.is_some() {
        return Err(LogError::Corruption {
            path: gap.path.clone(),
            offset: gap.offset,
            detail: format!(
                "no valid group here, yet it was synced before anything of {}",
                file.path()
            ),
        });
    }
    Ok(false)
}
