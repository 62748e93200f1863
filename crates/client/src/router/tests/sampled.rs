//! Samples of tables that change meanwhile.

use super::*;
use crate::tablets::TabletSample;
use parking_lot::Mutex;

/// A change of the table while its first tablet is sampled.
#[derive(Clone, Copy)]
enum Change {
    /// The second tablet is split at `t`.
    Split,
    /// Another table gets its name.
    MadeAgain,
}

/// A server whose tablets have 100 bytes each.
struct Changes {
    catalog: Arc<Catalog>,
    change: Mutex<Option<Change>>,
}

fn range(start: &'static str, end: Option<&'static str>) -> RowRange {
    RowRange {
        start: Bytes::from_static(start.as_bytes()),
        end: end.map(|end| Bytes::from_static(end.as_bytes())),
    }
}

#[async_trait]
impl TabletService for Changes {
    async fn read(&self, _: TabletId, _: TabletRead) -> ServiceResult<Box<dyn RowStream>> {
        Err(ServiceError::invalid("not called"))
    }

    async fn mutate(&self, _: TabletId, _: RowWrites, _: Option<Durability>) -> ServiceResult<()> {
        Err(ServiceError::invalid("not called"))
    }

    async fn row_operation(&self, _: TabletId, _: TabletRowOperation) -> ServiceResult<RowOutcome> {
        Err(ServiceError::invalid("not called"))
    }

    async fn sample(&self, _: TabletId, _: u64) -> ServiceResult<TabletSample> {
        let change = self.change.lock().take();
        let name = schema().name;
        match change {
            Some(Change::Split) => {
                let halves = vec![(TabletId(3), range("m", Some("t"))), (TabletId(4), range("t", None))];
                self.catalog
                    .replace_tablets(&name, &[TabletId(2)], halves)
                    .await
                    .unwrap();
            }
            Some(Change::MadeAgain) => {
                self.catalog.delete_table(&name).await.unwrap();
                create(&self.catalog, &schema(), 9).await;
            }
            None => {}
        }
        Ok(TabletSample {
            rows: Vec::new(),
            bytes: 100,
        })
    }
}

/// The rows of a sample of all of a table, and the bytes before them.
async fn sampled(change: Change) -> ServiceResult<Vec<(Bytes, u64)>> {
    let env = TokioRuntime::current();
    let coord = EmbeddedCoord::open(MemoryStorage::new(), env.clone()).await;
    let catalog = Arc::new(Catalog::load(coord.unwrap()).await.unwrap());
    let tablets = vec![(TabletId(1), range("", Some("m"))), (TabletId(2), range("m", None))];
    catalog.create_table(schema(), tablets).await.unwrap();
    let server = Arc::new(Changes {
        catalog: catalog.clone(),
        change: Mutex::new(Some(change)),
    });
    let router = Router::new(env, catalog, server);
    let samples = router.sample_row_keys(&schema().name, RowRange::all()).await?;
    Ok(samples
        .into_iter()
        .map(|sample| (sample.row, sample.offset_bytes))
        .collect())
}

#[tokio::test]
async fn a_tablet_that_is_split_before_its_turn_is_sampled_as_its_parts() {
    let expected = [("m", 100), ("t", 200), ("", 300)];
    let expected = expected.map(|(row, bytes)| (Bytes::from_static(row.as_bytes()), bytes));
    assert_eq!(sampled(Change::Split).await.unwrap(), expected);
}

#[tokio::test]
async fn another_table_of_the_same_name_is_not_sampled() {
    let error = sampled(Change::MadeAgain).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound);
}
