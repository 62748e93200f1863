//! Tests of the front end through the generated clients of the published crates.
//!
//! The clients call the services in process, over a model of the service interface. One test uses a real connection.

mod access;
mod backups;
mod calls;
mod instances;
mod reads;
mod slow_clients;
mod tables;
mod views;
mod writes;

use crate::pb::admin::bigtable_instance_admin_client::BigtableInstanceAdminClient;
use crate::pb::admin::bigtable_table_admin_client::BigtableTableAdminClient;
use crate::pb::longrunning::operations_client::OperationsClient;
use crate::pb::v2::bigtable_client::BigtableClient;
use crate::pb::v2::mutation::{Mutation as Kind, SetCell};
use crate::pb::{admin, v2};
use crate::testing::fake::Fake;
use crate::wire::FeatureFlags;
use crate::{BigtableFrontEnd, BigtableService, CallLimits};
use base64::Engine as _;
use bytes::Bytes;
use prost::Message as _;
use std::sync::Arc;
use stele_env::Env;
use stele_env::metrics::Metrics;
use stele_env::tokio_env::TokioRuntime;
use stele_memory::{Part, Pool};
use tonic::{Code, Request, Status};

const INSTANCE: &str = "projects/p/instances/i";
const TABLE: &str = "projects/p/instances/i/tables/t";

/// A front end over an empty model, and its clients.
struct Harness {
    fake: Arc<Fake>,
    metrics: Metrics,
    pool: Pool,
    service: BigtableService,
}

impl Harness {
    fn new() -> Self {
        Self::with_limits(CallLimits::default())
    }

    fn with_limits(limits: CallLimits) -> Self {
        let pool = Pool::default().limited(Part::Requests, limits.request_bytes_max);
        Self::with_pool(limits, pool, TokioRuntime::current())
    }

    fn with_pool(limits: CallLimits, pool: Pool, env: Env) -> Self {
        let fake = Arc::new(Fake::default());
        let metrics = Metrics::new();
        let front_end = BigtableFrontEnd::with_limits(fake.clone(), fake.clone(), env, &metrics, limits, pool.clone());
        Harness {
            fake,
            metrics,
            pool,
            service: front_end.into_service(),
        }
    }

    /// Another process over the same model: its log of operations is empty.
    fn restarted(&self) -> Self {
        let (fake, metrics, pool) = (self.fake.clone(), Metrics::new(), self.pool.clone());
        let env = TokioRuntime::current();
        let limits = CallLimits::default();
        let front_end = BigtableFrontEnd::with_limits(fake.clone(), fake.clone(), env, &metrics, limits, pool.clone());
        Harness {
            fake,
            metrics,
            pool,
            service: front_end.into_service(),
        }
    }

    /// With table `t`: families `f` and `g` of bytes, `sum`, split at `m`.
    async fn with_table() -> Self {
        let harness = Self::new();
        harness.tables().create_table(table_request("t")).await.unwrap();
        harness
    }

    fn data(&self) -> BigtableClient<BigtableService> {
        BigtableClient::new(self.service.clone())
    }

    fn tables(&self) -> BigtableTableAdminClient<BigtableService> {
        BigtableTableAdminClient::new(self.service.clone())
    }

    fn instances(&self) -> BigtableInstanceAdminClient<BigtableService> {
        BigtableInstanceAdminClient::new(self.service.clone())
    }

    fn operations(&self) -> OperationsClient<BigtableService> {
        OperationsClient::new(self.service.clone())
    }

    async fn put(&self, row: &'static str, family: &str, qualifier: &'static str, value: impl Into<Bytes>) {
        let request = v2::MutateRowRequest {
            table_name: TABLE.into(),
            row_key: row.into(),
            mutations: vec![set(family, qualifier, 1_000, value)],
            ..Default::default()
        };
        self.data().mutate_row(request).await.unwrap();
    }
}

fn table_request(id: &str) -> admin::CreateTableRequest {
    use admin::r#type::{Aggregate, Kind, aggregate::Aggregator};
    let sum = Aggregate {
        aggregator: Some(Aggregator::Sum(Default::default())),
        ..Default::default()
    };
    let sum = admin::Type {
        kind: Some(Kind::AggregateType(Box::new(sum))),
    };
    let families = [("f", None), ("g", None), ("sum", Some(sum))];
    let column_families = families
        .map(|(name, value_type)| {
            (
                name.to_owned(),
                admin::ColumnFamily {
                    gc_rule: None,
                    value_type,
                },
            )
        })
        .into();
    admin::CreateTableRequest {
        parent: INSTANCE.into(),
        table_id: id.into(),
        table: Some(admin::Table {
            column_families,
            ..Default::default()
        }),
        initial_splits: vec![admin::create_table_request::Split {
            key: Bytes::from_static(b"m"),
        }],
    }
}

fn set(family: &str, qualifier: &'static str, timestamp_micros: i64, value: impl Into<Bytes>) -> v2::Mutation {
    v2::Mutation {
        mutation: Some(Kind::SetCell(SetCell {
            family_name: family.into(),
            column_qualifier: qualifier.into(),
            timestamp_micros,
            value: value.into(),
        })),
    }
}

/// A request from a client with all features.
fn featured<T>(message: T) -> Request<T> {
    let features = FeatureFlags {
        reverse_scans: true,
        last_scanned_row_responses: true,
    };
    let header = base64::engine::general_purpose::URL_SAFE.encode(features.encode_to_vec());
    let mut request = Request::new(message);
    request
        .metadata_mut()
        .insert("bigtable-features", header.parse().unwrap());
    request
}

fn code<T>(result: Result<T, Status>) -> Code {
    result.map_or_else(|status| status.code(), |_| Code::Ok)
}

fn mask(paths: &[&str]) -> Option<prost_types::FieldMask> {
    Some(prost_types::FieldMask {
        paths: paths.iter().map(|path| (*path).to_owned()).collect(),
    })
}

/// The typed content of a done operation.
fn unpack<R: prost::Message + Default>(
    operation: &crate::pb::longrunning::Operation,
    response: &str,
    metadata: &str,
) -> R {
    assert!(operation.done);
    let url = |name: &str| format!("type.googleapis.com/google.bigtable.admin.v2.{name}");
    assert_eq!(operation.metadata.as_ref().unwrap().type_url, url(metadata));
    let Some(crate::pb::longrunning::operation::Result::Response(any)) = &operation.result else {
        unreachable!("{operation:?}")
    };
    assert_eq!(any.type_url, url(response));
    R::decode(any.value.as_slice()).unwrap()
}
