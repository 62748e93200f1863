//! Tables that change their identity under a request.
#![allow(clippy::disallowed_methods, reason = "retries wait by the real clock")]

mod sampled;
mod together;

use super::*;
use crate::row_operation::{Condition, Step};
use crate::tablets::TabletSample;
use bytes::Bytes;
use std::sync::atomic::{AtomicU64, Ordering};
use stele_coord::EmbeddedCoord;
use stele_env::tokio_env::TokioRuntime;
use stele_storage::memory::MemoryStorage;
use stele_types::{Durability, Mutation, RowMutation, Timestamp};

/// A server that never has a tablet, and whose table is dropped and created again at the first call.
struct Replaces {
    catalog: Arc<Catalog>,
    schema: TableSchema,
    calls: AtomicU64,
}

impl Replaces {
    async fn refuse<T>(&self) -> ServiceResult<T> {
        if self.calls.fetch_add(1, Ordering::Relaxed) == 0 {
            self.catalog.delete_table(&self.schema.name).await.unwrap();
            create(&self.catalog, &self.schema, 2).await;
        }
        Err(ServiceError::new(ErrorKind::Unavailable, "not here"))
    }
}

#[async_trait]
impl TabletService for Replaces {
    async fn read(&self, _: TabletId, _: TabletRead) -> ServiceResult<Box<dyn RowStream>> {
        self.refuse().await
    }

    async fn mutate(&self, _: TabletId, _: RowWrites, _: Option<Durability>) -> ServiceResult<()> {
        self.refuse().await
    }

    async fn row_operation(&self, _: TabletId, _: TabletRowOperation) -> ServiceResult<RowOutcome> {
        self.refuse().await
    }

    async fn sample(&self, _: TabletId, _: u64) -> ServiceResult<TabletSample> {
        self.refuse().await
    }
}

async fn create(catalog: &Catalog, schema: &TableSchema, id: u64) {
    let mut schema = schema.clone();
    schema.id = TableId(id);
    let tablets = vec![(TabletId(id), RowRange::all())];
    catalog.create_table(schema, tablets).await.unwrap();
}

fn schema() -> TableSchema {
    TableSchema::new(TableId(0), TableName::new("n", "t"))
}

/// A router over one table of this number, its server, and a write to it.
async fn over_table(id: u64) -> (Router, Arc<Replaces>, RowMutation) {
    let env = TokioRuntime::current();
    let coord = EmbeddedCoord::open(MemoryStorage::new(), env.clone()).await;
    let catalog = Arc::new(Catalog::load(coord.unwrap()).await.unwrap());
    let schema = schema();
    create(&catalog, &schema, id).await;
    let server = Arc::new(Replaces {
        catalog: catalog.clone(),
        schema,
        calls: AtomicU64::new(0),
    });
    let router = Router::new(env, catalog, server.clone());
    let row = RowMutation {
        row: Bytes::from_static(b"r"),
        mutations: vec![Mutation::DeleteRow { up_to: Timestamp::MAX }],
    };
    (router, server, row)
}

#[tokio::test]
async fn a_request_does_not_go_on_in_a_table_that_took_the_name() {
    let (router, server, row) = over_table(1).await;
    let table = server.schema.name.clone();
    let results = router
        .mutate_rows(MutateRows {
            id: None,
            table,
            rows: vec![row].into(),
            durability: None,
        })
        .await
        .unwrap();
    assert_eq!(results[0].as_ref().map_err(|e| e.kind), Err(ErrorKind::NotFound));
    assert_eq!(server.calls.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_request_is_for_the_table_that_its_families_are_of() {
    let (router, server, row) = over_table(2).await;
    let table = server.schema.name.clone();
    let refused = router
        .mutate_rows(MutateRows {
            table: table.clone(),
            id: Some(TableId(1)),
            rows: vec![row.clone()].into(),
            durability: None,
        })
        .await;
    assert_eq!(refused.map_err(|e| e.kind), Err(ErrorKind::NotFound));
    let refused = router
        .row_operation(RowOperation {
            table,
            id: Some(TableId(1)),
            row: row.row,
            condition: Some(Condition::any_cell(None)),
            steps: Vec::new(),
            otherwise: row.mutations.into_iter().map(Step::Mutate).collect(),
            durability: None,
            token: None,
        })
        .await;
    assert_eq!(refused.map_err(|e| e.kind), Err(ErrorKind::NotFound));
    assert_eq!(server.calls.load(Ordering::Relaxed), 0);
}

/// Serves batches of one row each, for ever.
struct Rows;

#[async_trait]
impl RowStream for Rows {
    async fn next(&mut self) -> ServiceResult<Option<RowBatch>> {
        Ok(Some(RowBatch::default()))
    }
}

/// A server that carries out every call.
struct Willing;

#[async_trait]
impl TabletService for Willing {
    async fn read(&self, _: TabletId, _: TabletRead) -> ServiceResult<Box<dyn RowStream>> {
        Ok(Box::new(Rows))
    }

    async fn mutate(&self, _: TabletId, _: RowWrites, _: Option<Durability>) -> ServiceResult<()> {
        Ok(())
    }

    async fn row_operation(&self, _: TabletId, _: TabletRowOperation) -> ServiceResult<RowOutcome> {
        Ok(RowOutcome {
            matched: true,
            written: Vec::new(),
        })
    }

    async fn sample(&self, _: TabletId, _: u64) -> ServiceResult<TabletSample> {
        Ok(TabletSample::default())
    }
}

/// The outcome of every data call to a table, and of the lookups that a disabled table answers, too.
async fn calls(router: &Router, table: &TableName) -> (Vec<Option<ErrorKind>>, bool) {
    let kind = |error: Option<ServiceError>| error.map(|error| error.kind);
    let row = Bytes::from_static(b"r");
    let one_row = RowSet::new(vec![RowRange::single(&row)]);
    let read = ReadRows::new(table.clone(), RowSet::all());
    let point = ReadRows::new(table.clone(), one_row);
    let write = MutateRows {
        table: table.clone(),
        id: None,
        rows: vec![RowMutation {
            row: row.clone(),
            mutations: vec![Mutation::DeleteRow { up_to: Timestamp::MAX }],
        }]
        .into(),
        durability: None,
    };
    let operation = RowOperation {
        table: table.clone(),
        id: None,
        row,
        condition: None,
        steps: Vec::new(),
        otherwise: Vec::new(),
        durability: None,
        token: None,
    };
    let outcomes = vec![
        kind(router.read_rows(read).await.err()),
        kind(router.try_read_row(&point).err()),
        kind(router.mutate_rows(write).await.err()),
        kind(router.row_operation(operation).await.err()),
        kind(router.sample_row_keys(table, RowRange::all()).await.err()),
    ];
    (
        outcomes,
        router.schema(table).is_ok() && router.tablets(table).await.is_ok(),
    )
}

#[tokio::test]
async fn a_disabled_table_answers_no_data_calls_and_ends_running_reads() {
    let env = TokioRuntime::current();
    let coord = EmbeddedCoord::open(MemoryStorage::new(), env.clone()).await;
    let catalog = Arc::new(Catalog::load(coord.unwrap()).await.unwrap());
    create(&catalog, &schema(), 1).await;
    let router = Router::new(env, catalog.clone(), Arc::new(Willing));
    let set_enabled = async |enabled| {
        let mut next = TableSchema::clone(&catalog.table(&schema().name).unwrap().schema);
        (next.version, next.enabled) = (next.version + 1, enabled);
        catalog.update_schema(next, |_| async {}).await.unwrap();
    };
    let table = schema().name;
    let mut running = router
        .read_rows(ReadRows::new(table.clone(), RowSet::all()))
        .await
        .unwrap();
    assert!(running.next().await.unwrap().is_some());
    assert_eq!(calls(&router, &table).await, (vec![None; 5], true));

    set_enabled(false).await;
    let refused = vec![Some(ErrorKind::FailedPrecondition); 5];
    assert_eq!(calls(&router, &table).await, (refused, true));
    let ended = running.next().await.expect_err("the table is disabled");
    assert_eq!(
        (ended.kind, &ended.message[..]),
        (ErrorKind::FailedPrecondition, "table n/t is disabled")
    );
    set_enabled(true).await;
    assert_eq!(calls(&router, &table).await, (vec![None; 5], true));
}

#[tokio::test]
async fn a_read_only_table_answers_reads() {
    let env = TokioRuntime::current();
    let coord = EmbeddedCoord::open(MemoryStorage::new(), env.clone()).await;
    let catalog = Arc::new(Catalog::load(coord.unwrap()).await.unwrap());
    let schema = TableSchema {
        read_only: true,
        ..schema()
    };
    create(&catalog, &schema, 1).await;
    let router = Router::new(env, catalog, Arc::new(Willing));
    let refused = Some(ErrorKind::FailedPrecondition);
    let outcomes = vec![None, None, refused, refused, None];
    assert_eq!(calls(&router, &schema.name).await, (outcomes, true));
}
