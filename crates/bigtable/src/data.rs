//! The data API: `google.bigtable.v2.Bigtable`, but for the calls that [`crate::data_plane`] serves.

use crate::accounting::{account_current, carry_out, charge_current};
use crate::context::{Context, responses};
use crate::filters;
use crate::mutations::{Resolver, check_mutation_count, check_row_key, no_mutations};
use crate::names::{InstanceName, addressed_table};
use crate::pb::stubs::bigtable_server::Bigtable;
use crate::pb::v2;
use crate::ranges;
use crate::rmw;
use crate::status::{invalid, status};
use crate::times::TableTime;
use crate::wire;
use prost::Message as _;
use std::sync::Arc;
use stele_client::{CheckAndMutate, ReadModifyWrite, RowSample};
use stele_types::{RowMutation, RowRange};
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status};

/// Serves the data API.
pub(crate) struct DataService(pub Arc<Context>);

#[tonic::async_trait]
impl Bigtable for DataService {
    type SampleRowKeysStream = BoxStream<v2::SampleRowKeysResponse>;

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
        let bytes = |sample: &RowSample| size_of::<RowSample>() + sample.row.len();
        charge_current(samples.iter().map(bytes).sum())?;
        let messages = samples.into_iter().map(move |sample| v2::SampleRowKeysResponse {
            // The last sample is the end of what was asked for.
            row_key: if sample.row.is_empty() { end.clone() } else { sample.row },
            offset_bytes: i64::try_from(sample.offset_bytes).unwrap_or(i64::MAX),
        });
        Ok(responses(messages))
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
        let predicate = filters::filter(request.predicate_filter, TableTime::of(&schema))?.map(Arc::new);
        charge_current(predicate.as_ref().map_or(0, |filter| filter.automata_bytes()))?;
        let check = CheckAndMutate {
            predicate,
            on_match: branch(request.true_mutations)?,
            otherwise: branch(request.false_mutations)?,
            row: request.row_key.clone(),
            table: table.name,
            id: Some(schema.id),
            durability: None,
        };
        let service = Arc::clone(&self.0.service);
        let write = async move { service.check_and_mutate(check).await.map_err(status) };
        let predicate_matched = carry_out(&self.0.env, write).await?;
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
            id: Some(schema.id),
            durability: None,
        };
        let service = Arc::clone(&self.0.service);
        let write = async move { service.read_modify_write(operation).await.map_err(status) };
        let cells = carry_out(&self.0.env, write).await?;
        let row = rmw::row(&schema, request.row_key, cells)?;
        // A byte that is appended may bring back a hundred megabytes, whose room ended with the write.
        account_current(row.encoded_len());
        Ok(Response::new(v2::ReadModifyWriteRowResponse { row: Some(row) }))
    }
}
