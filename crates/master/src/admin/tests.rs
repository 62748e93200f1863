//! Ranges of new tables, and changes whose callers go away.

#![allow(clippy::disallowed_methods, reason = "the test drops a caller by the real clock")]

use super::*;
use std::time::Duration;
use stele_coord::EmbeddedCoord;
use stele_env::tokio_env::TokioRuntime;
use stele_storage::faulty::{FaultPlan, FaultyStorage};
use stele_types::{Compression, DeleteRule, TimeUnit};

/// A server that has nothing to do.
struct Idle;

#[async_trait]
impl TabletControl for Idle {
    async fn create_tablets(&self, _: Arc<TableSchema>, _: Vec<(TabletId, RowRange)>) -> ServiceResult<()> {
        Ok(())
    }

    async fn drop_tablets(&self, _: Vec<TabletId>) {}

    async fn set_schema(&self, _: Arc<TableSchema>) {}

    fn unsettled(&self, _: TabletId) -> ServiceResult<BTreeSet<FamilyId>> {
        Ok(BTreeSet::new())
    }

    async fn drop_rows(&self, _: TabletId, _: RowRange) -> ServiceResult<()> {
        Ok(())
    }

    fn split_candidates(&self) -> Vec<TabletId> {
        Vec::new()
    }

    async fn prepare_split(&self, _: TabletId, _: TabletId, _: TabletId) -> ServiceResult<Option<Bytes>> {
        Ok(None)
    }

    async fn finish_split(&self, _: TabletId, _: bool) {}
}

fn new_table(name: &TableName) -> NewTable {
    NewTable {
        name: name.clone(),
        time_unit: TimeUnit::Micros,
        granularity: 1,
        delete_rule: DeleteRule::BySequence,
        durability: None,
        deletion_protection: false,
        families: Vec::new(),
        compression: Compression::None,
        initial_splits: Vec::new(),
        front_end_data: Vec::new(),
    }
}

async fn load(storage: &Arc<FaultyStorage>, env: &Env) -> Catalog {
    let coord = EmbeddedCoord::open(storage.clone(), env.clone()).await;
    Catalog::load(coord.unwrap()).await.unwrap()
}

#[tokio::test]
async fn a_change_survives_its_caller() {
    let env = TokioRuntime::current();
    let storage = FaultyStorage::new(env.clone());
    let catalog = Arc::new(load(&storage, &env).await);
    let master = Master::new(env.clone(), catalog.clone(), Arc::new(Idle));
    let name = TableName::new("n", "t");
    master.create_table(new_table(&name)).await.unwrap();

    let pause = Duration::from_millis(20);
    storage.set_plan(FaultPlan {
        latency_min: pause,
        latency_max: pause,
        ..FaultPlan::default()
    });
    // The caller goes away while the medium works.
    assert!(env.timeout(pause / 2, master.delete_table(&name)).await.is_err());
    env.sleep(pause * 20).await;
    let in_memory = catalog.view().table(&name).is_some();
    storage.kill();
    let storage = storage.reopen();
    storage.set_plan(FaultPlan::default());
    let on_medium = load(&storage, &env).await.view().table(&name).is_some();
    assert_eq!((in_memory, on_medium), (false, false));
}

#[test]
fn splits_become_ranges_that_cover_everything() {
    let key = |k: &'static str| Bytes::from_static(k.as_bytes());
    let ranges = initial_ranges(vec![key("m"), key(""), key("c"), key("m")]).unwrap();
    let expected = [("", Some("c")), ("c", Some("m")), ("m", None)];
    let expected: Vec<RowRange> = expected
        .into_iter()
        .map(|(s, e)| RowRange {
            start: key(s),
            end: e.map(key),
        })
        .collect();
    assert_eq!(ranges, expected);
    assert_eq!(initial_ranges(vec![]).unwrap(), vec![RowRange::all()]);
}
