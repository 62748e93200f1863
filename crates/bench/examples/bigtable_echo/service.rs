//! The calls that the echo answers, with messages made at its start.

use bytes::Bytes;
use futures::stream::Once;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2;
use googleapis_tonic_google_rpc::google::rpc;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{Grpc, NamedService, ServerStreamingService, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use v2::read_rows_response::CellChunk;
use v2::read_rows_response::cell_chunk::RowStatus;

/// Bytes of a value outside the table of large ones.
const VALUE_BYTES: usize = 1000;

/// Rows of the longest scan.
const SCAN_ROWS_MAX: usize = 1000;

const SERVICE: &str = "/google.bigtable.v2.Bigtable/";
const LARGE_TABLE: &str = "/large";

/// The service. Clones share the prepared rows.
#[derive(Clone)]
pub struct Echo {
    prepared: Arc<Prepared>,
}

struct Prepared {
    /// Rows in the order of their keys.
    rows: Vec<CellChunk>,
    large: CellChunk,
}

impl Echo {
    /// With values of this length in the table `large`.
    pub fn new(large_bytes: usize) -> Self {
        let value = noise(VALUE_BYTES);
        Echo {
            prepared: Arc::new(Prepared {
                rows: (0..SCAN_ROWS_MAX).map(|number| row(number, value.clone())).collect(),
                large: row(0, noise(large_bytes)),
            }),
        }
    }
}

fn row(number: usize, value: Bytes) -> CellChunk {
    CellChunk {
        row_key: format!("{number:016x}").into(),
        family_name: Some("f".to_owned()),
        qualifier: Some(b"q".to_vec()),
        timestamp_micros: 1000,
        value,
        row_status: Some(RowStatus::CommitRow(true)),
        ..Default::default()
    }
}

/// Bytes without a pattern, by the xorshift generator.
fn noise(length: usize) -> Bytes {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let bytes = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    bytes.flatten().take(length).collect()
}

/// The fixed row, or as many rows as the request's limit asks for.
impl ServerStreamingService<v2::ReadRowsRequest> for Echo {
    type Response = v2::ReadRowsResponse;
    type ResponseStream = Once<Ready<Result<v2::ReadRowsResponse, Status>>>;
    type Future = Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<v2::ReadRowsRequest>) -> Self::Future {
        let request = request.get_ref();
        let rows = usize::try_from(request.rows_limit).unwrap_or(0).max(1);
        let chunks = if request.table_name.ends_with(LARGE_TABLE) {
            vec![self.prepared.large.clone()]
        } else {
            self.prepared.rows.iter().take(rows).cloned().collect()
        };
        let message = v2::ReadRowsResponse {
            chunks,
            ..Default::default()
        };
        ready(Ok(Response::new(futures::stream::once(ready(Ok(message))))))
    }
}

/// OK for each entry.
impl ServerStreamingService<v2::MutateRowsRequest> for Echo {
    type Response = v2::MutateRowsResponse;
    type ResponseStream = Once<Ready<Result<v2::MutateRowsResponse, Status>>>;
    type Future = Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<v2::MutateRowsRequest>) -> Self::Future {
        let entries = (0_i64..).zip(&request.get_ref().entries);
        let entries = entries.map(|(index, _)| v2::mutate_rows_response::Entry {
            index,
            status: Some(rpc::Status::default()),
        });
        let message = v2::MutateRowsResponse {
            entries: entries.collect(),
            ..Default::default()
        };
        ready(Ok(Response::new(futures::stream::once(ready(Ok(message))))))
    }
}

impl UnaryService<v2::MutateRowRequest> for Echo {
    type Response = v2::MutateRowResponse;
    type Future = Ready<Result<Response<Self::Response>, Status>>;

    fn call(&mut self, _: Request<v2::MutateRowRequest>) -> Self::Future {
        ready(Ok(Response::new(v2::MutateRowResponse::default())))
    }
}

/// A row with one counter, always of the same value.
impl UnaryService<v2::ReadModifyWriteRowRequest> for Echo {
    type Response = v2::ReadModifyWriteRowResponse;
    type Future = Ready<Result<Response<Self::Response>, Status>>;

    fn call(&mut self, request: Request<v2::ReadModifyWriteRowRequest>) -> Self::Future {
        let cell = v2::Cell {
            timestamp_micros: 1000,
            value: Bytes::from_static(&[0, 0, 0, 0, 0, 0, 0, 1]),
            ..Default::default()
        };
        let column = v2::Column {
            qualifier: Bytes::from_static(b"n"),
            cells: vec![cell],
        };
        let family = v2::Family {
            name: "f".to_owned(),
            columns: vec![column],
        };
        let row = v2::Row {
            key: request.into_inner().row_key,
            families: vec![family],
        };
        ready(Ok(Response::new(v2::ReadModifyWriteRowResponse { row: Some(row) })))
    }
}

/// Clients with a pool of connections begin each with this call.
impl UnaryService<v2::PingAndWarmRequest> for Echo {
    type Response = v2::PingAndWarmResponse;
    type Future = Ready<Result<Response<Self::Response>, Status>>;

    fn call(&mut self, _: Request<v2::PingAndWarmRequest>) -> Self::Future {
        ready(Ok(Response::new(v2::PingAndWarmResponse::default())))
    }
}

impl NamedService for Echo {
    const NAME: &'static str = "google.bigtable.v2.Bigtable";
}

impl Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let echo = self.clone();
        Box::pin(async move {
            let method = request.uri().path().strip_prefix(SERVICE).unwrap_or_default();
            let response = match method {
                "ReadRows" => {
                    let codec = ProstCodec::<v2::ReadRowsResponse, v2::ReadRowsRequest>::default();
                    Grpc::new(codec).server_streaming(echo, request).await
                }
                "MutateRow" => {
                    let codec = ProstCodec::<v2::MutateRowResponse, v2::MutateRowRequest>::default();
                    Grpc::new(codec).unary(echo, request).await
                }
                "MutateRows" => {
                    let codec = ProstCodec::<v2::MutateRowsResponse, v2::MutateRowsRequest>::default();
                    Grpc::new(codec).server_streaming(echo, request).await
                }
                "ReadModifyWriteRow" => {
                    let codec = ProstCodec::<v2::ReadModifyWriteRowResponse, v2::ReadModifyWriteRowRequest>::default();
                    Grpc::new(codec).unary(echo, request).await
                }
                "PingAndWarm" => {
                    let codec = ProstCodec::<v2::PingAndWarmResponse, v2::PingAndWarmRequest>::default();
                    Grpc::new(codec).unary(echo, request).await
                }
                _ => Status::unimplemented("the echo does not answer this call").into_http(),
            };
            Ok(response)
        })
    }
}
