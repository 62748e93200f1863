//! The parts of a promotion in memory.
//!
//! They are a single server with everything that must be carried, storages that end, and a server of a cluster.

use crate::check::report::Progress;
use crate::check::tests::{copy, make_table, start};
use crate::data_dir::FORMAT;
use crate::data_dir::marks::{PROMOTED, Source, read_if_there, source_of};
use crate::node::server_parts;
use crate::promote::steps::{Names, Task};
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use stele_backup::Places;
use stele_backup::archive::ArchiveMetrics;
use stele_client::{
    CellsTest, EncodedTest, MutateRows, NewSnapshot, ReadRows, ServiceError, ServiceResult, SlowCalls, SnapshotName,
    TableService, TestDecoder,
};
use stele_cluster::{
    Addresses, Archiving, ClusterNode, ClusterOptions, ClusterStorage, LogRoots, MergePace, SweepPace,
};
use stele_coord::{Coord, CoordError, EmbeddedCoord, Txn, TxnOutcome};
use stele_env::Env;
use stele_env::metrics::Metrics;
use stele_env::tokio_env::TokioRuntime;
use stele_settings::StartArgs;
use stele_storage::memory::MemoryStorage;
use stele_storage::{AppendFile, Storage, StorageError};
use stele_tabletserver::SealedLogs;
use stele_types::{
    AccessRule, ErrorKind, FamilyId, Member, Mutation, Resource, Rights, RowMutation, RowSet, ServerId, TableName,
    TableSchema, Timestamp,
};

/// Values by row and qualifier.
pub(super) type Rows = BTreeMap<(Bytes, Bytes), Bytes>;

pub(super) fn table() -> TableName {
    TableName::new("space", "table")
}

pub(super) fn kept() -> TableName {
    TableName::new("space", "kept")
}

pub(super) fn snapshot() -> SnapshotName {
    SnapshotName::new("space", "snap")
}

pub(super) async fn put(service: &dyn TableService, table: TableName, row: &str, value: Bytes) {
    let put = Mutation::Put {
        family: FamilyId(1),
        qualifier: Bytes::from_static(b"q"),
        timestamp: Timestamp(1),
        value,
    };
    let request = MutateRows {
        id: None,
        table,
        rows: vec![RowMutation {
            row: Bytes::copy_from_slice(row.as_bytes()),
            mutations: vec![put],
        }]
        .into(),
        durability: None,
    };
    for result in service.mutate_rows(request).await.unwrap() {
        result.unwrap();
    }
}

pub(super) async fn rows(service: &dyn TableService, table: TableName) -> ServiceResult<Rows> {
    let mut stream = service.read_rows(ReadRows::new(table, RowSet::all())).await?;
    let mut rows = Rows::new();
    while let Some(batch) = stream.next().await? {
        for (row, cells) in batch.shared_rows() {
            for cell in cells {
                rows.insert((row.clone(), cell.qualifier.clone()), cell.value.clone());
            }
        }
    }
    Ok(rows)
}

/// A root as a killed server left it, with its rows and those of its snapshot.
pub(super) struct Single {
    pub(super) storage: Arc<MemoryStorage>,
    pub(super) rows: Rows,
    pub(super) of_snapshot: Rows,
}

/// Rows in files, in value files and only in the log; a snapshot, a deleted table that is kept, and access rules.
pub(super) async fn single() -> Single {
    let storage = MemoryStorage::new();
    storage
        .put_if_absent(FORMAT, Bytes::from_static(b"stele-data 1\n"))
        .await
        .unwrap();
    let node = start(storage.clone()).await;
    make_table(&node, table()).await;
    make_table(&node, kept()).await;
    for n in 0..8 {
        let value = Bytes::from(format!("value {n} ").repeat(if n == 3 { 6_000 } else { 40 }));
        put(&*node.service, table(), &format!("a{n}"), value.clone()).await;
        put(&*node.service, table(), &format!("p{n}"), value.clone()).await;
        put(&*node.service, kept(), &format!("k{n}"), value).await;
    }
    for served in node.server.all_served() {
        served.tablet.flush().await.unwrap();
    }
    let new = NewSnapshot {
        name: snapshot(),
        table: table(),
        flush: true,
        only_of_name: false,
        expires_micros: None,
        front_end_data: Vec::new(),
    };
    node.admin.create_snapshot(new).await.unwrap();
    let of_snapshot = rows(&*node.service, table()).await.unwrap();
    node.admin.delete_table(&kept()).await.unwrap();
    node.rules
        .set_rules(&Resource::Table(table()), rules(), None)
        .await
        .unwrap();
    put(
        &*node.service,
        table(),
        "a0",
        Bytes::from_static(b"newer, in the log alone"),
    )
    .await;
    put(&*node.service, table(), "z", Bytes::from_static(b"in the log alone")).await;
    let rows = rows(&*node.service, table()).await.unwrap();
    Single {
        storage: copy(&*storage).await,
        rows,
        of_snapshot,
    }
}

pub(super) fn rules() -> Vec<AccessRule> {
    vec![AccessRule::whole(Member::User("alice".into()), Rights::READ)]
}

pub(super) async fn coordinator() -> Arc<dyn Coord> {
    let coord = EmbeddedCoord::open(MemoryStorage::new(), TokioRuntime::current());
    coord.await.unwrap()
}

pub(super) fn task(source: Arc<dyn Storage>, target: Option<Arc<dyn Storage>>, coord: &Arc<dyn Coord>) -> Task {
    let target_name = if target.is_some() {
        "s3://cluster/data"
    } else {
        "the source"
    };
    Task {
        env: TokioRuntime::current(),
        source,
        target,
        coord: coord.clone(),
        names: Names {
            source: "the source".to_owned(),
            target: target_name.to_owned(),
            cluster: "etcd://e:2379/prod".to_owned(),
        },
        memory: 64 << 20,
        parallel: 3,
        progress: Progress::hidden(),
    }
}

/// The state of a source as the command finds it.
pub(super) async fn state(source: &dyn Storage) -> Source {
    let format = read_if_there(source, FORMAT).await.unwrap();
    let mark = read_if_there(source, PROMOTED).await.unwrap();
    source_of("the source", format, mark).unwrap()
}

/// Runs the command once more, as it is after a kill.
pub(super) async fn run_again(task: &Task) -> anyhow::Result<()> {
    match state(&*task.source).await {
        Source::Whole => task.run().await.map(drop),
        Source::Left(mark) => task.end_after(&mark).await.map(drop),
    }
}

/// A number of changes after which nothing works any more, as after a kill.
#[derive(Clone)]
pub(super) struct Fuse {
    left: Arc<AtomicI64>,
    /// Whether the last change happens, although it is not acknowledged.
    happens: bool,
}

enum Step {
    Done,
    Last,
}

impl Fuse {
    pub(super) fn new(changes: i64, happens: bool) -> Fuse {
        Fuse {
            left: Arc::new(AtomicI64::new(changes)),
            happens,
        }
    }

    fn is_blown(&self) -> bool {
        self.left.load(Ordering::Relaxed) < 0
    }

    fn error(path: &str) -> StorageError {
        StorageError::Io {
            path: path.to_owned(),
            operation: "change",
            message: "the process was killed".to_owned(),
        }
    }

    /// Before a change: an error if it does not happen.
    fn step(&self, path: &str) -> stele_storage::Result<Step> {
        match self.left.fetch_sub(1, Ordering::Relaxed) {
            left if left > 0 => Ok(Step::Done),
            0 if self.happens => Ok(Step::Last),
            _ => Err(Fuse::error(path)),
        }
    }

    async fn change<T>(
        &self,
        path: &str,
        change: impl Future<Output = stele_storage::Result<T>> + Send,
    ) -> stele_storage::Result<T> {
        let step = self.step(path)?;
        let changed = change.await?;
        match step {
            Step::Done => Ok(changed),
            Step::Last => Err(Fuse::error(path)),
        }
    }
}

/// A storage behind a fuse.
pub(super) struct Ending {
    pub(super) inner: Arc<dyn Storage>,
    pub(super) fuse: Fuse,
}

struct EndingFile {
    inner: Box<dyn AppendFile>,
    fuse: Fuse,
}

#[async_trait]
impl AppendFile for EndingFile {
    async fn append(&mut self, slices: &[Bytes]) -> stele_storage::Result<()> {
        let fuse = self.fuse.clone();
        fuse.change("a file", self.inner.append(slices)).await
    }

    async fn sync(&mut self) -> stele_storage::Result<()> {
        let fuse = self.fuse.clone();
        fuse.change("a file", self.inner.sync()).await
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }
}

#[async_trait]
impl stele_storage::Layer for Ending {
    fn below(&self) -> &dyn Storage {
        &*self.inner
    }

    async fn create(&self, path: &str) -> stele_storage::Result<Box<dyn AppendFile>> {
        let inner = self.fuse.change(path, self.inner.create(path)).await?;
        let fuse = self.fuse.clone();
        Ok(Box::new(EndingFile { inner, fuse }))
    }

    async fn put_if_absent(&self, path: &str, content: Bytes) -> stele_storage::Result<()> {
        self.fuse.change(path, self.inner.put_if_absent(path, content)).await
    }

    async fn delete(&self, path: &str) -> stele_storage::Result<()> {
        self.fuse.change(path, self.inner.delete(path)).await
    }

    async fn confirm_owner(&self) -> stele_storage::Result<()> {
        match self.fuse.is_blown() {
            true => Err(Fuse::error("")),
            false => self.inner.confirm_owner().await,
        }
    }
}

/// A coordinator behind a fuse.
pub(super) struct EndingCoord {
    pub(super) inner: Arc<dyn Coord>,
    pub(super) fuse: Fuse,
}

#[async_trait]
impl stele_coord::Layer for EndingCoord {
    fn below(&self) -> &dyn Coord {
        &*self.inner
    }

    async fn txn(&self, txn: Txn) -> stele_coord::Result<TxnOutcome> {
        let unknown = |error: StorageError| CoordError::OutcomeUnknown {
            message: error.to_string(),
        };
        let step = self.fuse.step("the coordinator").map_err(unknown)?;
        let outcome = self.inner.txn(txn).await?;
        match step {
            Step::Done => Ok(outcome),
            Step::Last => Err(unknown(Fuse::error("the coordinator"))),
        }
    }
}

/// The log roots of a cluster.
#[derive(Default)]
struct Roots(Mutex<BTreeMap<ServerId, Arc<MemoryStorage>>>);

impl Roots {
    fn root(&self, server: ServerId) -> Arc<dyn Storage> {
        self.0.lock().entry(server).or_default().clone()
    }
}

#[async_trait]
impl SealedLogs for Roots {
    async fn open(&self, server: ServerId) -> stele_storage::Result<Arc<dyn Storage>> {
        Ok(self.root(server))
    }
}

#[async_trait]
impl LogRoots for Roots {
    async fn take_over(&self, server: ServerId) -> stele_storage::Result<Arc<dyn Storage>> {
        Ok(self.root(server))
    }
}

struct NoTests;

impl TestDecoder for NoTests {
    fn decode(&self, _: &Arc<TableSchema>, _: &EncodedTest) -> ServiceResult<Arc<dyn CellsTest>> {
        Err(ServiceError::new(ErrorKind::Unimplemented, "no front end"))
    }
}

/// The first server of a cluster over these data.
pub(super) async fn join(
    data: Arc<dyn Storage>,
    coord: &Arc<dyn Coord>,
) -> Result<ClusterNode, stele_cluster::JoinError> {
    let env: Env = TokioRuntime::current();
    let config = stele_settings::load(&StartArgs::default()).unwrap();
    let storage = ClusterStorage {
        data,
        roots: Arc::new(Roots::default()),
    };
    let options = ClusterOptions {
        session: Duration::from_secs(10),
        addresses: Addresses::default(),
        version: "test".to_owned(),
        lanes: 1,
        slow: Arc::new(SlowCalls::off()),
        tests: Arc::new(NoTests),
        agreed: stele_cluster::agree(&**coord, &env, "memory").await?,
        // Files that nothing needs go at the first chance: needed ones must not.
        sweep: SweepPace {
            interval: Duration::from_millis(50),
            grace: Duration::ZERO,
        },
        merge: MergePace::of_tablets(config.tablet_size),
        keep_deleted: config.keep_deleted,
        checks_rights: true,
        forwarded: None,
        destinations: crate::backup_destination::opener_of_cluster(env.clone(), crate::encryption::Keys::default()),
        archiving: Archiving {
            places: Places::new(crate::backup_destination::opener_of_cluster_archives(
                env.clone(),
                crate::encryption::Keys::default(),
            )),
            own: None,
            metrics: ArchiveMetrics::new(&Metrics::new()),
        },
    };
    let parts = server_parts(&config);
    stele_cluster::join(env, coord.clone(), storage, parts, options, &Metrics::new()).await
}

/// Reads a table of a cluster, whose tablets may not be assigned yet.
pub(super) async fn rows_of(node: &ClusterNode, table: TableName) -> Rows {
    let env: Env = TokioRuntime::current();
    let reading = async {
        loop {
            match rows(&*node.service, table.clone()).await {
                Ok(rows) => return rows,
                Err(_) => env.sleep(Duration::from_millis(20)).await,
            }
        }
    };
    env.timeout(Duration::from_secs(60), reading).await.unwrap()
}
