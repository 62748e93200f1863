//! Measures the overlap of a run: how many of its rows older runs have.
//!
//! Bloom filters answer for the rows of a sample. Files whose filters are not in memory are read for a few of these rows.

use crate::error::Result;
use crate::held::{HeldFile, ReadOptions, Times};
use crate::merging::Step;
use crate::run::RunCursor;
use crate::run::fences::RowLookup;
use crate::state::GroupState;
use bytes::Bytes;
use std::time::Duration;
use stele_env::Env;

/// Rows that are looked for in files whose filters are not in memory: each costs an index block and a data block.
const SEARCHED_MAX: usize = 16;
/// The time limit: an object store answers within some tenths of that, and a caller that waits for a flush waits for this.
const PROBE_MAX: Duration = Duration::from_secs(1);
/// How that is read.
const LOOK: ReadOptions = ReadOptions {
    fill_cache: false,
    readahead_bytes: 0,
    single_row: true,
    times: Times::ALL,
};
/// How many in a hundred of the sampled rows are in the runs among the first `files` files of a group. Takes [`PROBE_MAX`] at most.
pub(super) async fn overlap_with(env: &Env, group: &GroupState, files: usize, rows: &[Bytes]) -> u64 {
    let (mut known, mut unknown) = (0, Vec::new());
    for row in rows {
        let row_lookup = RowLookup::new(row);
        let is_left_out = |file: &&HeldFile| file.sstable.filter_bytes() > 0 && !file.sstable.holds_filter();
        let (left_out, others): (Vec<_>, Vec<_>) = group.older_holders(&row_lookup, files).partition(is_left_out);
        if others
            .iter()
            .any(|file| file.sstable.may_contain_hash(row_lookup.hash()))
        {
            known += 1;
        } else if !left_out.is_empty() {
            unknown.push((row, left_out));
        }
    }
    let every = unknown.len().div_ceil(SEARCHED_MAX).max(1);
    let probes = unknown.iter().step_by(every);
    let probes = probes.map(|(row, files)| env.timeout(PROBE_MAX, is_in(row, files)));
    let probes = futures::future::join_all(probes).await;
    let found: Vec<bool> = probes.into_iter().filter_map(|look| look.ok()?.ok()).collect();
    // Where nothing could be found out, all of them count.
    let are_there = found.iter().filter(|is_there| **is_there).count();
    known += (unknown.len() * are_there)
        .checked_div(found.len())
        .unwrap_or(unknown.len());
    debug_assert!(known <= rows.len(), "no more rows are found than are sampled");
    (known as u64 * 100).checked_div(rows.len() as u64).unwrap_or(100)
}

/// Whether one of the files has cells of the row.
async fn is_in(row: &[u8], files: &[&HeldFile]) -> Result<bool> {
    for file in files {
        let mut cursor = RunCursor::new(vec![(*file).clone()], LOOK);
        let step = match cursor.seek(row)? {
            Step::Pending => cursor.load().await?,
            step => step,
        };
        if step == Step::Ready && cursor.key().starts_with(row) {
            return Ok(true);
        }
    }
    Ok(false)
}
