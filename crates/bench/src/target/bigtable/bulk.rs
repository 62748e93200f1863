//! Batches of rows: the flush of a client's write buffer.
//!
//! A MutateRows call may carry 100,000 mutations, and a server takes messages of at least 256 MB, but no client sends
//! such calls. Google's batchers cut at 20 MB (Java, Python) or smaller, and send several concurrently. Here a batch is
//! cut at 4 MiB, and one batch is sent on each socket at a time. A buffer of 12 MB, the size in the published
//! evaluations, is three concurrent calls on the four sockets of a default connection.
//!
//! The call itself succeeds when entries fail. Each entry gets exactly one status. Entries whose failure may be
//! temporary are sent again, alone.

use super::connection::{BigtableConnection, TablePlace};
use super::http2::{Failure, Method};
use super::retry::{Safety, Trouble};
use super::{error, of_code, requests};
use crate::target::{Put, Result, TargetError};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::{
    MutateRowsRequest, MutateRowsResponse, mutate_rows_request::Entry, mutate_rows_response,
};
use tonic::Code;

/// Mutations of one call, by the API's rules.
const BATCH_MUTATIONS_MAX: usize = 100_000;

/// Key and value bytes of one call, unless one row alone has more.
const BATCH_BYTES_MAX: u64 = 4 << 20;

/// Writes all rows.
pub(super) async fn put_many(connection: &BigtableConnection, table: &TablePlace, puts: Vec<Put>) -> Result<()> {
    let mut waiting = batches(puts).into_iter();
    let mut running = FuturesUnordered::new();
    running.extend(
        waiting
            .by_ref()
            .take(connection.width())
            .map(|batch| send(connection, table, batch)),
    );
    while let Some(done) = running.next().await {
        done?;
        running.extend(waiting.next().map(|batch| send(connection, table, batch)));
    }
    Ok(())
}

fn batches(puts: Vec<Put>) -> Vec<Vec<Entry>> {
    let mut batches = Vec::new();
    let mut batch = Vec::new();
    let (mut mutations, mut bytes) = (0, 0);
    for put in puts {
        let (more_mutations, more_bytes) = (put.cells.len(), put.volume());
        let full = mutations + more_mutations > BATCH_MUTATIONS_MAX || bytes + more_bytes > BATCH_BYTES_MAX;
        if full && !batch.is_empty() {
            batches.push(std::mem::take(&mut batch));
            (mutations, bytes) = (0, 0);
        }
        mutations += more_mutations;
        bytes += more_bytes;
        batch.push(requests::entry(put));
    }
    if !batch.is_empty() {
        batches.push(batch);
    }
    batches
}

async fn send(connection: &BigtableConnection, table: &TablePlace, entries: Vec<Entry>) -> Result<()> {
    let mut request = MutateRowsRequest {
        table_name: table.place.table.clone(),
        app_profile_id: table.place.app_profile.clone(),
        entries,
        ..MutateRowsRequest::default()
    };
    let mut attempts = connection.attempts(Safety::Put);
    loop {
        let mut answers = Answers::new(request.entries.len());
        let ended = call(connection, table, &request, &mut answers).await;
        let failure = answers.failure(ended)?;
        let Some((trouble, failure)) = failure else {
            return Ok(());
        };
        if !attempts.may_pass(trouble).await {
            return Err(failure);
        }
        answers.keep_failed(&mut request.entries);
    }
}

async fn call(
    connection: &BigtableConnection,
    table: &TablePlace,
    request: &MutateRowsRequest,
    answers: &mut Answers,
) -> std::result::Result<(), Failure> {
    let channel = connection.channel();
    let mut stream = channel.stream(Method::MutateRows, &table.headers, request).await?;
    while let Some(message) = stream.next_message::<MutateRowsResponse>().await? {
        for entry in message.entries {
            answers.take(entry).map_err(Failure::Protocol)?;
        }
    }
    Ok(())
}

/// The status of each entry of a call.
struct Answers {
    entries: Vec<Answer>,
}

#[derive(Debug, Clone, PartialEq)]
enum Answer {
    None,
    Written,
    Failed(Code, String),
}

impl Answers {
    fn new(entries: usize) -> Self {
        Self {
            entries: vec![Answer::None; entries],
        }
    }

    fn take(&mut self, entry: mutate_rows_response::Entry) -> std::result::Result<(), String> {
        let count = self.entries.len();
        let place = usize::try_from(entry.index)
            .ok()
            .and_then(|index| self.entries.get_mut(index));
        let Some(answer) = place else {
            return Err(format!("MutateRows: status for entry {} of {count}", entry.index));
        };
        if *answer != Answer::None {
            return Err(format!("MutateRows: two statuses for entry {}", entry.index));
        }
        let status = entry.status.unwrap_or_default();
        *answer = match Code::from_i32(status.code) {
            Code::Ok => Answer::Written,
            code => Answer::Failed(code, status.message),
        };
        Ok(())
    }

    /// The failure of the unwritten entries, when sending them again may help. `None` when all are written.
    ///
    /// # Errors
    /// A failure that another attempt would not cure.
    fn failure(&self, ended: std::result::Result<(), Failure>) -> Result<Option<(Trouble, TargetError)>> {
        let mut passing = None;
        for answer in &self.entries {
            if let Answer::Failed(code, message) = answer {
                let trouble = Trouble::of_code(*code);
                let failure = of_code(*code, message);
                if !trouble.may_pass(Safety::Put) {
                    return Err(failure);
                }
                passing.get_or_insert((trouble, failure));
            }
        }
        let unanswered = self.entries.iter().filter(|answer| **answer == Answer::None).count();
        match ended {
            Err(failure @ Failure::Protocol(_)) => Err(error(failure)),
            Err(failure) if unanswered > 0 => Ok(Some((Trouble::of(&failure), error(failure)))),
            Ok(()) if unanswered > 0 => {
                let text = format!(
                    "MutateRows: no status for {unanswered} of {} entries",
                    self.entries.len()
                );
                Err(TargetError::Protocol(text))
            }
            _ => Ok(passing),
        }
    }

    fn keep_failed(&self, entries: &mut Vec<Entry>) {
        let mut answers = self.entries.iter();
        entries.retain(|_| answers.next() != Some(&Answer::Written));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use googleapis_tonic_google_rpc::google::rpc::Status;

    fn put(bytes: usize, cells: usize) -> Put {
        let value = Bytes::from(vec![0; bytes / cells]);
        Put {
            key: "r".into(),
            cells: (0..cells).map(|_| ("f".into(), Bytes::new(), value.clone())).collect(),
        }
    }

    #[test]
    fn batches_keep_to_both_limits() {
        let sizes = |puts: Vec<Put>| batches(puts).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(sizes(vec![]), Vec::<usize>::new());
        let row = BATCH_BYTES_MAX as usize / 4 - 1;
        assert_eq!(sizes((0..10).map(|_| put(row, 1)).collect()), [4, 4, 2]);
        // A row that is too large by itself still goes out.
        assert_eq!(sizes(vec![put(1, 1), put(5 << 20, 1), put(1, 1)]), [1, 1, 1]);
        assert_eq!(sizes((0..3).map(|_| put(50_000, 50_000)).collect()), [2, 1]);
    }

    fn answers(codes: &[Option<Code>]) -> Answers {
        let mut answers = Answers::new(codes.len());
        for (index, code) in codes.iter().enumerate() {
            if let Some(code) = code {
                let status = Status {
                    code: *code as i32,
                    ..Status::default()
                };
                let index = index as i64;
                answers
                    .take(mutate_rows_response::Entry {
                        index,
                        status: Some(status),
                    })
                    .unwrap();
            }
        }
        answers
    }

    #[test]
    fn only_entries_whose_failure_may_pass_are_sent_again() {
        let (ok, busy, bad) = (Some(Code::Ok), Some(Code::Unavailable), Some(Code::NotFound));
        assert!(answers(&[ok, ok]).failure(Ok(())).unwrap().is_none());
        assert!(answers(&[ok, busy, bad]).failure(Ok(())).is_err());
        let half = answers(&[ok, busy, ok, busy]);
        assert_eq!(half.failure(Ok(())).unwrap().unwrap().0, Trouble::Unavailable);
        let mut entries: Vec<Entry> = ["a", "b", "c", "d"]
            .map(|key| Entry {
                row_key: key.into(),
                ..Entry::default()
            })
            .into();
        half.keep_failed(&mut entries);
        let keys: Vec<_> = entries.iter().map(|entry| entry.row_key.clone()).collect();
        assert_eq!(keys, ["b", "d"]);
    }

    #[test]
    fn every_entry_must_be_answered_once() {
        let ok = Some(Code::Ok);
        let silent = answers(&[ok, None]).failure(Ok(()));
        assert!(matches!(silent, Err(TargetError::Protocol(_))), "{silent:?}");
        let broken = answers(&[ok, None]).failure(Err(Failure::Broken(String::new())));
        assert_eq!(broken.unwrap().unwrap().0, Trouble::Unavailable);
        // Once every entry has its status, the end of the stream does not matter.
        assert!(
            answers(&[ok, ok])
                .failure(Err(Failure::Broken(String::new())))
                .unwrap()
                .is_none()
        );
        let entry = |index| mutate_rows_response::Entry { index, status: None };
        assert!(answers(&[ok]).take(entry(0)).is_err());
        assert!(answers(&[ok]).take(entry(1)).is_err());
        assert!(answers(&[ok]).take(entry(-1)).is_err());
        assert!(answers(&[None]).take(entry(0)).is_ok());
    }
}
