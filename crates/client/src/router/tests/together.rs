//! Rows that are written together.

use super::*;
use parking_lot::Mutex;

/// Notes the rows of each call, by tablet. It fails the first call as if the tablet were moving.
#[derive(Default)]
struct Notes(Mutex<Vec<(TabletId, usize)>>);

impl Notes {
    fn noted(&self, tablet: TabletId, rows: usize) -> ServiceResult<()> {
        let mut calls = self.0.lock();
        calls.push((tablet, rows));
        match calls.len() {
            1 => Err(ServiceError::new(ErrorKind::Unavailable, "not here")),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl TabletService for Notes {
    async fn rows_operation(&self, tablet: TabletId, request: TabletRowsOperation) -> ServiceResult<bool> {
        let rows = request.conditions.len() + request.rows.len();
        self.noted(tablet, rows).map(|()| true)
    }

    async fn read(&self, _: TabletId, _: TabletRead) -> ServiceResult<Box<dyn RowStream>> {
        Ok(Box::new(Rows))
    }

    async fn mutate(&self, tablet: TabletId, rows: RowWrites, _: Option<Durability>) -> ServiceResult<()> {
        self.noted(tablet, rows.len())
    }

    async fn row_operation(&self, _: TabletId, _: TabletRowOperation) -> ServiceResult<RowOutcome> {
        Err(ServiceError::invalid("not called"))
    }

    async fn sample(&self, _: TabletId, _: u64) -> ServiceResult<TabletSample> {
        Ok(TabletSample::default())
    }
}

/// A router for a table of two tablets, which meet at the row `m`.
async fn routed() -> (Router, Arc<Notes>, TableSchema) {
    let env = TokioRuntime::current();
    let coord = EmbeddedCoord::open(MemoryStorage::new(), env.clone()).await;
    let catalog = Arc::new(Catalog::load(coord.unwrap()).await.unwrap());
    let middle = Bytes::from_static(b"m");
    let left = RowRange {
        start: Bytes::new(),
        end: Some(middle.clone()),
    };
    let right = RowRange {
        start: middle,
        end: None,
    };
    let (schema, tablets) = (schema(), vec![(TabletId(1), left), (TabletId(2), right)]);
    catalog.create_table(schema.clone(), tablets).await.unwrap();
    let notes = Arc::new(Notes::default());
    (Router::new(env, catalog, notes.clone()), notes, schema)
}

#[tokio::test]
async fn rows_of_one_tablet_are_one_call_and_others_are_refused() {
    let (router, notes, schema) = routed().await;
    let write = async |rows: &[&'static str]| {
        let row = |row: &&'static str| RowMutation {
            row: Bytes::from_static(row.as_bytes()),
            mutations: vec![Mutation::DeleteRow { up_to: Timestamp::MAX }],
        };
        let request = MutateRows {
            table: schema.name.clone(),
            id: None,
            rows: rows.iter().map(row).collect::<Vec<_>>().into(),
            durability: None,
        };
        let written = router.mutate_rows_together(request).await;
        written.map_err(|error| error.kind)
    };
    assert_eq!(write(&[]).await, Ok(()));
    assert_eq!(write(&["a", "z"]).await, Err(ErrorKind::FailedPrecondition));
    assert_eq!(notes.0.lock().len(), 0, "nothing has happened");
    assert_eq!(write(&["z", "m", "z"]).await, Ok(()));
    assert_eq!(notes.0.lock()[..], [(TabletId(2), 3), (TabletId(2), 3)]);
}

#[tokio::test]
async fn an_operation_on_rows_is_for_one_tablet() {
    let (router, notes, schema) = routed().await;
    let operate = async |conditions: &[&'static str], rows: &[&'static str]| {
        let key = |row: &&'static str| Bytes::from_static(row.as_bytes());
        let request = RowsOperation {
            table: schema.name.clone(),
            id: None,
            conditions: conditions
                .iter()
                .map(|row| (key(row), Condition::any_cell(None)))
                .collect(),
            rows: rows.iter().map(|row| (key(row), Vec::new())).collect(),
            durability: None,
        };
        router.rows_operation(request).await.map_err(|error| error.kind)
    };
    assert_eq!(operate(&[], &[]).await, Ok(true));
    assert_eq!(operate(&["a"], &["b", "z"]).await, Err(ErrorKind::FailedPrecondition));
    assert_eq!(operate(&["z"], &["a"]).await, Err(ErrorKind::FailedPrecondition));
    assert_eq!(notes.0.lock().len(), 0, "nothing has happened");
    assert_eq!(operate(&["a"], &["b", "c"]).await, Ok(true));
    assert_eq!(operate(&["z"], &[]).await, Ok(true));
    let calls = [(TabletId(1), 3), (TabletId(1), 3), (TabletId(2), 1)];
    assert_eq!(notes.0.lock()[..], calls);
}
