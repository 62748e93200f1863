//! Estimates how the bytes of a tablet are distributed over its rows.
//!
//! Samples let a client divide a table among workers, and the server choose a row to split at.
//!
//! Invariant: a sample is of one state. A flush or compaction that ends meanwhile would otherwise count for the
//! later rows alone; and where it has dropped many bytes, a later row would have fewer bytes before it than an earlier one.

use crate::error::Result;
use crate::held::{HeldFile, share};
use crate::state::State;
use crate::tablet::Tablet;
use bytes::Bytes;
use stele_types::key;

impl Tablet {
    /// About how many bytes there are; and if these are more than `every`, rows about that far apart, in order, each with
    /// about how many bytes lie before it. At most `rows_max` rows, the first ones.
    pub async fn sample(&self, every: u64, rows_max: usize) -> Result<(u64, Vec<(Bytes, u64)>)> {
        let state = self.state();
        let bytes = state.file_bytes() + state.memtable_bytes();
        let mut samples = Vec::new();
        if bytes <= every {
            return Ok((bytes, samples));
        }
        let mut rows = state.sample_rows(every).await?;
        rows.retain(|row| self.range().contains(row));
        rows.truncate(rows_max);
        debug_assert!(rows.is_sorted(), "sampled rows come in key order");
        for row in rows {
            let before = state.bytes_before(&row).await?;
            samples.push((row, before.min(bytes)));
        }
        Ok((bytes, samples))
    }

    /// A row that divides the tablet into two halves of about equal size; `None` when there is none.
    pub async fn split_row(&self) -> Result<Option<Bytes>> {
        let state = self.state();
        let Some(run) = largest_run(&state) else {
            return Ok(None);
        };
        let half = run.iter().map(HeldFile::size).sum::<u64>() / 2;
        let (mut before, mut at) = (0, 0);
        while let Some(file) = run.get(at)
            && before + file.size() < half
        {
            before += file.size();
            at += 1;
        }
        let Some(file) = run.get(at) else { return Ok(None) };
        // Of a file that reaches across the middle the nearest of its ends and of its own middle divides best.
        let off = |place: u64| place.abs_diff(half);
        let middle = off(before + file.size() / 2);
        let mut ends = [(at, before), (at + 1, before + file.size())];
        ends.sort_by_key(|(_, place)| off(*place));
        let row_at = |end: usize| {
            let next = run.get(end).filter(|_| end > 0);
            next.and_then(|next| decoded_row(next.first_key()))
        };
        let [(nearest, place), _] = ends;
        let row = match row_at(nearest).filter(|_| off(place) <= middle) {
            Some(row) => Some(row),
            None => {
                let (lower, upper) = (file.reference.lower.as_deref(), file.reference.upper.as_deref());
                let prefix = file.sstable.split_row(lower, upper).await?;
                prefix.and_then(|prefix| decoded_row(&prefix))
            }
        };
        // A file of a single row has no middle: then split next to that row, however small the other half will be.
        let concurrent = ends.into_iter().filter_map(|(end, _)| row_at(end));
        let divides = |row: &Bytes| self.range().contains(row) && *row != self.range().start;
        Ok(row.into_iter().chain(concurrent).find(divides))
    }
}

impl State {
    /// About how many bytes of files lie before `row`.
    pub(crate) async fn bytes_before(&self, row: &[u8]) -> Result<u64> {
        let end = key::row_prefix(row);
        let mut bytes = 0;
        for file in self.groups.iter().flat_map(|g| &g.files) {
            let upper = file.reference.upper.as_deref().map_or(&end[..], |u| u.min(&end));
            let before = file
                .sstable
                .approximate_bytes(file.reference.lower.as_deref(), Some(upper))
                .await?;
            bytes += before + share(file.reference.value_bytes(), before, file.bytes());
        }
        Ok(bytes)
    }

    /// Rows about every `every` bytes, from the largest run.
    async fn sample_rows(&self, every: u64) -> Result<Vec<Bytes>> {
        let mut rows = Vec::new();
        let mut since = 0;
        for file in largest_run(self).unwrap_or_default() {
            if since >= every {
                rows.extend(decoded_row(file.first_key()));
                since = 0;
            }
            let (lower, upper) = (file.reference.lower.as_deref(), file.reference.upper.as_deref());
            // The file is sampled by its own bytes, which stand for those of its values, too.
            let own = share(every, file.bytes(), file.size()).max(1);
            let samples = file.sstable.row_samples(own, lower, upper).await?;
            since = match samples.last() {
                Some((_, before)) => share(file.size(), file.bytes().saturating_sub(*before), file.bytes()),
                None => since + file.size(),
            };
            rows.extend(samples.iter().filter_map(|(prefix, _)| decoded_row(prefix)));
        }
        Ok(rows)
    }
}

/// The run that holds the most bytes.
fn largest_run(state: &State) -> Option<&[HeldFile]> {
    let runs = state.groups.iter().flat_map(|group| group.runs());
    runs.max_by_key(|run| run.iter().map(HeldFile::size).sum::<u64>())
}

/// The row a key or a row's encoded prefix begins with.
fn decoded_row(key: &[u8]) -> Option<Bytes> {
    let prefix = key.get(..key::row_prefix_len(key)?)?;
    key::decode_row(prefix).map(|row| Bytes::copy_from_slice(&row))
}
