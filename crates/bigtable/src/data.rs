//! The data API: `google.bigtable.v2.Bigtable`.

use crate::context::{Context, responses};
use crate::features::Client;
use crate::filters;
use crate::mutations::{Resolver, check_mutation_count, check_row_key, no_mutations};
use crate::names::{InstanceName, TableResource, addressed_table};
use crate::pb::rpc;
use crate::pb::stubs::bigtable_server::Bigtable;
use crate::pb::v2;
use crate::ranges;
use crate::reads::{self, Responses};
use crate::rmw;
use crate::status::{invalid, status};
use crate::times::TableTime;
use crate::wire;
use std::sync::Arc;
use stele_client::{CheckAndMutate, MutateRows, ReadModifyWrite};
use stele_types::{RowMutation, RowRange};
use tonic::codegen::BoxStream;
use tonic::{Code, Request, Response, Status};

/// Entries of one MutateRowsResponse: with messages of up to 400 bytes each, all failing, this stays below 4 MiB.
const ENTRIES_PER_MESSAGE: usize = 10_000;

/// Bytes of an entry's error message; longer ones are cut.
const ENTRY_MESSAGE_BYTES_MAX: usize = 300;

/// Serves the data API.
pub(crate) struct DataService(pub Arc<Context>);

#[tonic::async_trait]
impl Bigtable for DataService {
    type ReadRowsStream = BoxStream<wire::ReadRowsResponse>;
    type SampleRowKeysStream = BoxStream<v2::SampleRowKeysResponse>;
    type MutateRowsStream = BoxStream<v2::MutateRowsResponse>;

    async fn read_rows(
        &self,
        request: Request<wire::ReadRowsRequest>,
    ) -> Result<Response<Self::ReadRowsStream>, Status> {
        let client = Client::of(request.metadata());
        let request = request.into_inner();
        let table = addressed_table(
            &request.table_name,
            &request.authorized_view_name,
            &request.materialized_view_name,
        )?;
        let schema = self.0.schema(&table)?;
        let (read, options) = reads::read(table.name, &schema, request, client)?;
        let rows = self.0.service.read_rows(read).await.map_err(status)?;
        let responses = Responses::new(rows, schema, options, self.0.env.clone());
        Ok(Response::new(Box::pin(responses.into_stream())))
    }

    async fn sample_row_keys(
        &self,
        request: Request<wire::SampleRowKeysRequest>,
    ) -> Result<Response<Self::SampleRowKeysStream>, Status> {
        let request = request.into_inner();
        let table = addressed_table(
            &request.table_name,
            &request.authorized_view_name,
            &request.materialized_view_name,
        )?;
        self.0.schema(&table)?;
        let range = match request.row_range {
            Some(range) => ranges::row_range(range).map_err(|reason| invalid(format!("row_range: {reason}")))?,
            None => RowRange::all(),
        };
        let end = range.end.clone().unwrap_or_default();
        let samples = self
            .0
            .service
            .sample_row_keys(&table.name, range)
            .await
            .map_err(status)?;
        let messages = samples.into_iter().map(move |sample| v2::SampleRowKeysResponse {
            // The last sample is the end of what was asked for.
            row_key: if sample.row.is_empty() { end.clone() } else { sample.row },
            offset_bytes: i64::try_from(sample.offset_bytes).unwrap_or(i64::MAX),
        });
        Ok(responses(messages))
    }

    async fn mutate_row(
        &self,
        request: Request<wire::MutateRowRequest>,
    ) -> Result<Response<v2::MutateRowResponse>, Status> {
        let request = request.into_inner();
        let table = addressed_table(&request.table_name, &request.authorized_view_name, "")?;
        check_mutation_count(request.mutations.len())?;
        let schema = self.0.schema(&table)?;
        let row = Resolver::new(&schema, self.0.env.wall_micros()).row(request.row_key, request.mutations)?;
        let mut results = self.write(&table, vec![row]).await?;
        results.pop().unwrap_or_else(|| Err(missing_result()))?;
        Ok(Response::new(v2::MutateRowResponse {}))
    }

    async fn mutate_rows(
        &self,
        request: Request<wire::MutateRowsRequest>,
    ) -> Result<Response<Self::MutateRowsStream>, Status> {
        let request = request.into_inner();
        let table = addressed_table(&request.table_name, &request.authorized_view_name, "")?;
        let count = request.entries.iter().map(|entry| entry.mutations.len()).sum();
        check_mutation_count(count)?;
        if count == 0 {
            return Err(no_mutations());
        }
        let schema = self.0.schema(&table)?;
        let resolver = Resolver::new(&schema, self.0.env.wall_micros());
        let mut outcomes: Vec<Result<(), Status>> = Vec::with_capacity(request.entries.len());
        let mut rows = Vec::with_capacity(request.entries.len());
        for entry in request.entries {
            let row = resolver.row(entry.row_key, entry.mutations);
            outcomes.push(row.map(|row| rows.push(row)));
        }
        let mut written = self.write(&table, rows).await?.into_iter();
        for outcome in outcomes.iter_mut().filter(|outcome| outcome.is_ok()) {
            *outcome = written.next().unwrap_or_else(|| Err(missing_result()));
        }
        Ok(responses(entry_messages(outcomes)))
    }

    async fn check_and_mutate_row(
        &self,
        request: Request<wire::CheckAndMutateRowRequest>,
    ) -> Result<Response<v2::CheckAndMutateRowResponse>, Status> {
        let request = request.into_inner();
        let table = addressed_table(&request.table_name, &request.authorized_view_name, "")?;
        check_row_key(&request.row_key)?;
        check_mutation_count(request.true_mutations.len() + request.false_mutations.len())?;
        if request.true_mutations.is_empty() && request.false_mutations.is_empty() {
            return Err(no_mutations());
        }
        let schema = self.0.schema(&table)?;
        let resolver = Resolver::new(&schema, self.0.env.wall_micros());
        let branch = |mutations: Vec<wire::Mutation>| -> Result<Option<RowMutation>, Status> {
            if mutations.is_empty() {
                return Ok(None);
            }
            resolver.row(request.row_key.clone(), mutations).map(Some)
        };
        let check = CheckAndMutate {
            predicate: filters::filter(request.predicate_filter, TableTime::of(&schema))?.map(Arc::new),
            on_match: branch(request.true_mutations)?,
            otherwise: branch(request.false_mutations)?,
            row: request.row_key.clone(),
            table: table.name,
            durability: None,
        };
        let predicate_matched = self.0.service.check_and_mutate(check).await.map_err(status)?;
        Ok(Response::new(v2::CheckAndMutateRowResponse { predicate_matched }))
    }

    async fn ping_and_warm(
        &self,
        request: Request<v2::PingAndWarmRequest>,
    ) -> Result<Response<v2::PingAndWarmResponse>, Status> {
        InstanceName::parse(&request.get_ref().name)?;
        Ok(Response::new(v2::PingAndWarmResponse {}))
    }

    async fn read_modify_write_row(
        &self,
        request: Request<v2::ReadModifyWriteRowRequest>,
    ) -> Result<Response<v2::ReadModifyWriteRowResponse>, Status> {
        let request = request.into_inner();
        let table = addressed_table(&request.table_name, &request.authorized_view_name, "")?;
        let schema = self.0.schema(&table)?;
        let resolver = Resolver::new(&schema, self.0.env.wall_micros());
        let operation = ReadModifyWrite {
            rules: rmw::rules(&resolver, &request.row_key, request.rules)?,
            row: request.row_key.clone(),
            table: table.name,
            durability: None,
        };
        let cells = self.0.service.read_modify_write(operation).await.map_err(status)?;
        let row = rmw::row(&schema, request.row_key, cells)?;
        Ok(Response::new(v2::ReadModifyWriteRowResponse { row: Some(row) }))
    }
}

impl DataService {
    /// Writes rows, if any; one result per row.
    async fn write(&self, table: &TableResource, rows: Vec<RowMutation>) -> Result<Vec<Result<(), Status>>, Status> {
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let request = MutateRows {
            table: table.name.clone(),
            rows: rows.into(),
            durability: None,
        };
        let results = self.0.service.mutate_rows(request).await.map_err(status)?;
        Ok(results.into_iter().map(|result| result.map_err(status)).collect())
    }
}

/// The service answered fewer rows than it was given: it is not known whether the row was written.
fn missing_result() -> Status {
    Status::internal("The write was not answered; it may or may not have been applied")
}

/// Messages that answer every entry once, in order.
fn entry_messages(outcomes: Vec<Result<(), Status>>) -> impl Iterator<Item = v2::MutateRowsResponse> {
    let mut entries = outcomes.into_iter().enumerate().map(|(index, outcome)| {
        let status = match outcome {
            Ok(()) => rpc::Status {
                code: Code::Ok as i32,
                ..rpc::Status::default()
            },
            Err(status) => rpc::Status {
                code: status.code() as i32,
                message: cut(status.message(), ENTRY_MESSAGE_BYTES_MAX).to_owned(),
                details: Vec::new(),
            },
        };
        v2::mutate_rows_response::Entry {
            index: index as i64,
            status: Some(status),
        }
    });
    std::iter::from_fn(move || {
        let entries: Vec<_> = entries.by_ref().take(ENTRIES_PER_MESSAGE).collect();
        (!entries.is_empty()).then_some(v2::MutateRowsResponse {
            entries,
            rate_limit_info: None,
        })
    })
}

/// At most `max` bytes of a text, whole characters.
fn cut(text: &str, max: usize) -> &str {
    text.get(..text.floor_char_boundary(max)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message as _;

    #[test]
    fn every_entry_is_answered_once_in_small_messages() {
        let outcomes = (0..25_000)
            .map(|i| {
                if i % 2 == 0 {
                    Ok(())
                } else {
                    Err(invalid("é".repeat(1_000)))
                }
            })
            .collect();
        let messages: Vec<_> = entry_messages(outcomes).collect();
        assert!(messages.iter().all(|m| m.encoded_len() < 4 << 20));
        let indexes: Vec<i64> = messages
            .iter()
            .flat_map(|m| m.entries.iter().map(|e| e.index))
            .collect();
        assert_eq!(indexes, (0..25_000).collect::<Vec<i64>>());
        assert_eq!(
            messages[0].entries[1].status.as_ref().unwrap().code,
            Code::InvalidArgument as i32
        );
    }
}
