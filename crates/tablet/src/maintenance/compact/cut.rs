//! Ends a job into the bottom level at a row. The job then reads a bounded part of the upper runs.

use super::plan::row_of;
use crate::error::Result;
use crate::held::HeldFile;
use bytes::Bytes;
use std::collections::BTreeSet;
use std::ops::Range;

/// Parts of a job's bytes at whose ends it may be cut: it has at least one part of the bytes that it might have.
const PARTS: u64 = 16;

/// The same part of a compaction, cut at a row so that it reads no more than `bytes_max` of the upper runs, which begin with
/// `row`. Many of their rows may be absent from the bottom level. At least one row remains. The part ends between two files
/// of the bottom level if it has more than one. Otherwise it ends within one, and the rest of that file stays.
pub(super) async fn cut_to(
    bottom: &[HeldFile],
    (mut inputs, upper): (Range<usize>, Option<Bytes>),
    (upper_runs, row): (&[HeldFile], &[u8]),
    bytes_max: u64,
) -> Result<(Range<usize>, Option<Bytes>)> {
    if bytes_until(upper_runs, upper.as_deref()).await? <= bytes_max {
        return Ok((inputs, upper));
    }
    debug_assert!(inputs.end <= bottom.len(), "inputs are files of the bottom");
    let is_within = |at: &Bytes| &at[..] > row && upper.as_ref().is_none_or(|upper| at < upper);
    let mut ends = BTreeSet::new();
    for run in upper_runs.chunk_by(|a, b| a.reference.continues_in(&b.reference)) {
        let mut before = 0;
        for file in run {
            // Behind this the run alone has too much.
            if before > bytes_max {
                break;
            }
            let (first, last) = (file.reference.lower.as_deref(), file.reference.upper.as_deref());
            let samples = file
                .sstable
                .row_samples((bytes_max / PARTS).max(1), first, last)
                .await?;
            ends.insert(row_of(file.first_key()));
            ends.extend(samples.into_iter().map(|(row, _)| Bytes::from(row)));
            before += file.bytes();
        }
    }
    let ends: Vec<Bytes> = ends.into_iter().filter(is_within).collect();
    let (mut best, mut too_much) = (0, ends.len());
    while too_much.saturating_sub(best) > 1 {
        let middle = best.midpoint(too_much);
        match bytes_until(upper_runs, ends.get(middle).map(|end| &end[..])).await? <= bytes_max {
            true => best = middle,
            false => too_much = middle,
        }
    }
    let Some(mut end) = ends.get(best).cloned() else {
        // One row alone.
        return Ok((inputs, upper));
    };
    debug_assert!(&end[..] > row, "at least one row is left to the job");
    let begins = |file: &HeldFile| row_of(file.first_key());
    let taken = bottom.get(inputs.clone()).unwrap_or_default();
    inputs.end = inputs.start + taken.partition_point(|file| begins(file) < end);
    if let [_, .., last] = bottom.get(inputs.clone()).unwrap_or_default()
        && !last.ends_before(&end)
    {
        end = begins(last);
        inputs.end -= 1;
    }
    Ok((inputs, Some(end)))
}

/// About how many bytes of these files are of keys below this one.
async fn bytes_until(files: &[HeldFile], upper: Option<&[u8]>) -> Result<u64> {
    let mut bytes = 0;
    for file in files {
        bytes += match upper {
            Some(upper) if !file.ends_before(upper) => {
                let bounds = (file.reference.lower.as_deref(), Some(upper));
                match file.may_contain(&[], Some(upper)) {
                    true => file.sstable.approximate_bytes(bounds.0, bounds.1).await?,
                    false => 0,
                }
            }
            _ => file.bytes(),
        };
    }
    Ok(bytes)
}
