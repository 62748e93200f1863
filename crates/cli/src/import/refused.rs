//! Finds the records for which the server refuses an entry that has several.
//!
//! Records of one key are one entry of a batch, which the server takes or refuses as a whole. An entry that it refuses is
//! written again in halves, and refused halves in their halves, so that only the bad records are left.
//!
//! Invariants:
//! * A record's mutations stay together.
//! * Parts are written one after the other in the order of their records, so later ones still win.
//! * An entry with one bad record of `n` takes about `2 log2(n)` writes, and never more than `2 n`.

use super::batch::Origin;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::mutate_rows_request::Entry;
use std::ops::Range;
use tonic::{Code, Status};

/// A record that the server refuses.
#[derive(Clone, Debug)]
pub struct Refused {
    /// Index of the entry in its batch.
    pub entry: usize,
    /// Index of the record in the origins of the entry.
    pub origin: usize,
    /// The reason.
    pub status: Status,
}

/// Whether a refusal concerns the row rather than the table, the server or the right to write.
pub fn is_fault_of_the_row(status: &Status) -> bool {
    matches!(status.code(), Code::InvalidArgument | Code::OutOfRange)
}

/// The mutations of some records of an entry.
pub fn mutations(entry: &Entry, origins: &[Origin], records: Range<usize>) -> Range<usize> {
    let first = |at: usize| {
        origins
            .get(at)
            .map_or(entry.mutations.len(), |origin| origin.first_mutation)
    };
    first(records.start)..first(records.end)
}

/// Writes an entry that was refused again in parts; the refused records. The writer answers with the refusal of its entry.
pub async fn write_apart<F: Future<Output = Result<Option<Status>, Status>>>(
    entry: &Entry,
    origins: &[Origin],
    refusal: Status,
    mut write: impl FnMut(Entry) -> F,
) -> Result<Vec<(usize, Status)>, Status> {
    let mut found = Vec::new();
    // The next part is the last of them. A part that is larger than one record is split at most once, so there are few.
    let mut parts = vec![(0..origins.len(), Some(refusal))];
    while let Some((records, refusal)) = parts.pop() {
        let refusal = match refusal {
            Some(refusal) => Some(refusal),
            None => write(part(entry, origins, records.clone())).await?,
        };
        match refusal {
            None => {}
            Some(status) if !is_fault_of_the_row(&status) => return Err(status),
            Some(status) if records.len() <= 1 => found.push((records.start, status)),
            Some(_) => {
                let middle = records.start + records.len() / 2;
                parts.push((middle..records.end, None));
                parts.push((records.start..middle, None));
            }
        }
    }
    Ok(found)
}

fn part(entry: &Entry, origins: &[Origin], records: Range<usize>) -> Entry {
    let mutations = entry.mutations.get(mutations(entry, origins, records));
    Entry {
        row_key: entry.row_key.clone(),
        mutations: mutations.unwrap_or_default().to_vec(),
        ..Entry::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::{
        Mutation,
        mutation::{self, SetCell},
    };
    use std::future::ready;

    /// An entry whose records have these timestamps, two cells each.
    fn entry(timestamps: &[i64]) -> (Entry, Vec<Origin>) {
        let cell = |at: &i64| Mutation {
            mutation: Some(mutation::Mutation::SetCell(SetCell {
                timestamp_micros: *at,
                ..SetCell::default()
            })),
        };
        let entry = Entry {
            row_key: "r".into(),
            mutations: timestamps.iter().flat_map(|at| [cell(at), cell(at)]).collect(),
            ..Entry::default()
        };
        let origins = (0..timestamps.len()).map(|at| Origin {
            record: at as u64,
            line: at as u64 + 1,
            first_mutation: 2 * at,
        });
        (entry, origins.collect())
    }

    /// Writes to a server of milliseconds. Returns the refused records, the timestamps that it has, and the number of writes.
    async fn write(timestamps: &[i64]) -> (Vec<usize>, Vec<i64>, usize) {
        let (entry, origins) = entry(timestamps);
        let (mut stored, mut writes) = (Vec::new(), 0);
        let refusal = Status::invalid_argument("granularity");
        let refused = write_apart(&entry, &origins, refusal, |part| {
            writes += 1;
            let times = part.mutations.iter().map(|mutation| match &mutation.mutation {
                Some(mutation::Mutation::SetCell(cell)) => cell.timestamp_micros,
                _ => 0,
            });
            let times: Vec<i64> = times.collect();
            if times.iter().any(|at| at % 1000 != 0) {
                return ready(Ok(Some(Status::invalid_argument("granularity"))));
            }
            stored.extend(times);
            ready(Ok(None))
        });
        let refused = refused.await.unwrap().into_iter().map(|(at, _)| at).collect();
        (refused, stored, writes)
    }

    #[tokio::test]
    async fn good_records_are_written_in_their_order() {
        let times = [3000, 1000, 1_700_000_000_123_456];
        assert_eq!(write(&times).await, (vec![2], vec![3000, 3000, 1000, 1000], 4));
        let mut times: Vec<i64> = (0..1000).map(|at| at * 1000).collect();
        times[700] += 1;
        let (refused, stored, writes) = write(&times).await;
        assert_eq!((refused, stored.len()), (vec![700], 1998));
        assert!(stored.is_sorted() && writes <= 20, "{writes}");
        let (refused, stored, writes) = write(&[1; 100]).await;
        assert_eq!((refused.len(), stored.len()), (100, 0));
        assert!(writes < 200, "{writes}");
    }

    #[tokio::test]
    async fn other_errors_end_it() {
        let (entry, origins) = entry(&[1, 2]);
        let denied = || ready(Ok(Some(Status::permission_denied(""))));
        let ended = write_apart(&entry, &origins, Status::invalid_argument(""), |_| denied()).await;
        assert_eq!(ended.unwrap_err().code(), Code::PermissionDenied);
    }
}
