//! A service of one table in memory, for tests.
//!
//! Its clients are connected by pipes, and its time is tokio's.

use crate::HBaseFrontEnd;
use crate::context::Identity;
use crate::{meta_table, regions};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use stele_client::*;
use stele_env::metrics::Metrics;
use stele_env::tokio_env::TokioRuntime;
use stele_env::{BlockingWork, Env, Priority, Runtime};
use stele_memory::Pool;
use stele_storage::foreign::ForeignFiles;
use stele_types::*;
use stele_wire::frame::{self, CellBlock, Response};
use stele_wire::messages::{CLIENT_SERVICE, ConnectionHeader, KEY_VALUE_CODEC, RegionSpecifier, RequestHeader};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::Semaphore;

/// Family, token and cells of a source of a bulk load.
pub(crate) type LoadedSource = (FamilyId, Option<RequestToken>, Vec<(Bytes, Mutation)>);

/// The error of a change, if it is to fail, and the schema that the table has then, if it is another one.
pub(crate) type ChangeOutcome = (Option<ErrorKind>, Option<Arc<TableSchema>>);

/// A table with families `info` and `table`, in tablets that begin at given rows.
pub(crate) struct Model {
    pub schema: Arc<TableSchema>,
    pub places: Vec<TabletPlace>,
    pub rows: Mutex<BTreeMap<Bytes, Vec<Cell>>>,
    /// Whether rows are read without waiting.
    pub is_in_memory: AtomicBool,
    /// Rows of a batch of a read.
    pub batch_rows: AtomicUsize,
    /// How often a row in memory was read.
    pub reads: AtomicUsize,
    /// Held by a write while it waits for its permit, and by a load; a snapshot and its deletion end when they have had it.
    pub latch: Arc<futures::lock::Mutex<()>>,
    /// Permits of writes.
    pub writes: Semaphore,
    /// The version of the service; 0 for none.
    pub version: AtomicU64,
    /// How often a schema was asked for.
    pub schemas: AtomicUsize,
    /// How often the tablets were listed.
    pub listings: AtomicUsize,
    /// Files that bulk loads may read.
    pub files: Mutex<ForeignFiles>,
    /// Sources of bulk loads: family, token, and cells.
    pub loads: Mutex<Vec<LoadedSource>>,
    /// How many loads have begun.
    pub loads_begun: AtomicUsize,
    /// All snapshots.
    pub snapshots: Arc<Mutex<Vec<Arc<SnapshotInfo>>>>,
    /// Work that servers do by themselves.
    pub switches: Mutex<Switches>,
    /// How many snapshots have begun.
    pub snapshots_begun: AtomicUsize,
    /// Snapshots that were deleted or cloned.
    pub named: Mutex<Vec<String>>,
    /// Steps of row operations.
    pub steps: Mutex<Vec<Step>>,
    /// Mutations of other writes of rows.
    pub mutations: Mutex<Vec<Mutation>>,
    /// Rows of both, in the order in which they came.
    pub written: Mutex<Vec<String>>,
    /// Updates of the table.
    pub updates: Mutex<Vec<TableUpdate>>,
    /// Other administrative changes.
    pub changes: Mutex<Vec<String>>,
    /// Of the next changes and updates; those after them succeed.
    pub outcomes: Mutex<VecDeque<ChangeOutcome>>,
    /// The schema of the table, if it is no longer the first.
    pub newer: Mutex<Option<Arc<TableSchema>>>,
    /// The other servers of its cluster.
    pub others: Mutex<Vec<Arc<ServerPlace>>>,
    /// Of every tablet.
    pub figures: Mutex<Option<TabletFigures>>,
    /// The status of its cluster; `None` where there is one server.
    pub cluster: Mutex<Option<ClusterStatus>>,
}

impl Model {
    pub fn new(starts: &[&str]) -> Arc<Self> {
        let schema = TableSchema {
            id: TableId(7),
            name: TableName::new("default", "t"),
            deletion_protection: false,
            ..TableSchema::clone(&meta_table::SCHEMA)
        };
        let ends = starts.iter().skip(1).map(|end| Some(Bytes::from((*end).to_owned())));
        let place = |(n, (start, end)): (usize, (&&str, Option<Bytes>))| {
            let range = RowRange {
                start: Bytes::from((*start).to_owned()),
                end,
            };
            TabletPlace::here(TabletId(n as u64 + 1), range)
        };
        Arc::new(Model {
            schema: Arc::new(schema),
            places: starts.iter().zip(ends.chain([None])).enumerate().map(place).collect(),
            rows: Mutex::default(),
            is_in_memory: AtomicBool::new(true),
            batch_rows: AtomicUsize::new(1_000),
            reads: AtomicUsize::new(0),
            latch: Arc::default(),
            writes: Semaphore::new(1_000),
            version: AtomicU64::new(0),
            schemas: AtomicUsize::new(0),
            listings: AtomicUsize::new(0),
            files: Mutex::default(),
            loads: Mutex::default(),
            loads_begun: AtomicUsize::new(0),
            snapshots: Arc::default(),
            switches: Mutex::default(),
            snapshots_begun: AtomicUsize::new(0),
            named: Mutex::default(),
            steps: Mutex::default(),
            mutations: Mutex::default(),
            written: Mutex::default(),
            updates: Mutex::default(),
            changes: Mutex::default(),
            outcomes: Mutex::default(),
            newer: Mutex::default(),
            others: Mutex::default(),
            figures: Mutex::default(),
            cluster: Mutex::default(),
        })
    }

    /// Stores one cell of the first family.
    pub fn put(&self, row: &str, qualifier: &str, value: impl Into<Bytes>) {
        let cell = Cell::put(
            FamilyId(1),
            Bytes::from(qualifier.to_owned()),
            Timestamp(5),
            value.into(),
        );
        let mut rows = self.rows.lock();
        rows.entry(Bytes::from(row.to_owned())).or_default().push(cell);
    }

    /// The schema of the table now.
    fn newest(&self) -> Arc<TableSchema> {
        let newer = self.newer.lock().clone();
        newer.unwrap_or_else(|| Arc::clone(&self.schema))
    }

    /// Ends a change as the test wants it.
    fn changed(&self) -> ServiceResult<Arc<TableSchema>> {
        let (error, newer) = self.outcomes.lock().pop_front().unwrap_or_default();
        if newer.is_some() {
            *self.newer.lock() = newer;
        }
        match error {
            Some(kind) => Err(ServiceError::new(kind, "as the test wants it")),
            None => Ok(self.newest()),
        }
    }

    /// The same, and notes the change.
    fn note_change(&self, change: String) -> ServiceResult<Arc<TableSchema>> {
        self.changes.lock().push(change);
        self.changed()
    }

    /// Has another server of its cluster, `other:2`, serve a tablet.
    pub fn with_another_server(self: Arc<Self>, tablet: usize) -> Arc<Self> {
        let other = Arc::new(ServerPlace {
            host: "other".to_owned(),
            port: 2,
            start_code: 8,
        });
        let mut model = Arc::into_inner(self).expect("it is not shared yet");
        model.others.lock().push(Arc::clone(&other));
        model.places[tablet].server = Some(other);
        Arc::new(model)
    }

    /// The region of a row.
    pub fn region(&self, row: &str) -> RegionSpecifier {
        let place = self.place_of(&self.schema.name, row.as_bytes()).unwrap();
        RegionSpecifier::named(stele_wire::region::name(&regions::info(&self.schema.name, &place)))
    }

    /// A front end over it, with this memory.
    pub fn front_end(self: &Arc<Self>, pool: &Pool) -> HBaseFrontEnd {
        let identity = Identity {
            host: "localhost".into(),
            port: 1,
            start_code: 9,
            cluster_id: "c".into(),
        };
        let identity = (identity, self.files.lock().clone());
        HBaseFrontEnd::new(self.clone(), self.clone(), clocked(), identity, &Metrics::new(), pool)
    }

    /// Rows of a read, without cells where its filter lets none through.
    fn selected(&self, read: &ReadRows) -> Vec<(Bytes, Vec<Cell>)> {
        let rows = self.rows.lock();
        let filter = read.filter.as_ref().map(|filter| filter.compile(&self.schema).unwrap());
        let of_row = |row: &Bytes, cells: &Vec<Cell>| {
            let passes = |filter: &stele_filter::CompiledFilter| {
                !filter.apply(row, cells.clone(), &mut || 0.5).unwrap().is_empty()
            };
            let passes = filter.as_ref().is_none_or(passes);
            (row.clone(), if passes { cells.clone() } else { Vec::new() })
        };
        let is_in = |row: &Bytes| read.rows.ranges().iter().any(|range| range.contains(row));
        let mut found: Vec<_> = rows
            .iter()
            .filter(|(row, _)| is_in(row))
            .map(|(row, cells)| of_row(row, cells))
            .collect();
        if read.reversed {
            found.reverse();
        }
        found
    }
}

/// The environment of a test, whose time is tokio's.
pub(crate) fn clocked() -> Env {
    Env::new(Arc::new(Clocked {
        env: TokioRuntime::current(),
        origin: tokio::time::Instant::now(),
    }))
}

/// The test's runtime. All of its time passes as the test says.
struct Clocked {
    env: Env,
    origin: tokio::time::Instant,
}

impl Runtime for Clocked {
    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn wall_micros(&self) -> i64 {
        self.env.wall_micros()
    }

    fn random_u64(&self) -> u64 {
        self.env.random_u64()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let env = self.env.clone();
        Box::pin(async move { env.sleep(duration).await })
    }

    fn spawn(&self, _: Priority, name: &'static str, task: BoxFuture<'static, ()>) {
        self.env.spawn(name, task);
    }

    fn run_blocking(&self, work: BlockingWork) {
        work();
    }
}

fn no_table(table: &TableName) -> ServiceError {
    ServiceError::new(ErrorKind::NotFound, format!("no table {}", table.table))
}

fn no_cluster() -> ServiceError {
    ServiceError::new(ErrorKind::FailedPrecondition, "this server is not one of a cluster")
}

fn not_here<T>() -> ServiceResult<T> {
    Err(ServiceError::new(ErrorKind::Unimplemented, "not in this model"))
}

struct Rows(VecDeque<(Bytes, Vec<Cell>)>, usize);

#[async_trait]
impl RowStream for Rows {
    async fn next(&mut self) -> ServiceResult<Option<RowBatch>> {
        let mut batch = RowBatch::default();
        for (row, cells) in self.0.drain(..self.1.min(self.0.len())) {
            batch.scanned_through = Some(row.clone());
            batch.seen.rows += 1;
            batch.push_row(&row, cells);
        }
        Ok(batch.scanned_through.is_some().then_some(batch))
    }

    async fn next_within(&mut self, room: &mut dyn BatchReservation) -> ServiceResult<Option<RowBatch>> {
        let first = self
            .0
            .front()
            .map_or(0, |(_, cells)| cells.iter().map(Cell::weight).sum());
        if first > room.bytes() {
            room.renew(first).await?;
        }
        self.next().await
    }
}

#[async_trait]
impl TableService for Model {
    fn version(&self) -> Option<u64> {
        Some(self.version.load(Ordering::Relaxed)).filter(|version| *version > 0)
    }

    fn schema(&self, table: &TableName) -> ServiceResult<Arc<TableSchema>> {
        self.schemas.fetch_add(1, Ordering::Relaxed);
        Some(self.newest())
            .filter(|schema| schema.name == *table)
            .ok_or_else(|| no_table(table))
    }

    async fn read_rows(&self, request: ReadRows) -> ServiceResult<Box<dyn RowStream>> {
        let rows = self.selected(&request).into();
        Ok(Box::new(Rows(rows, self.batch_rows.load(Ordering::Relaxed))))
    }

    fn try_read_row(&self, request: &ReadRows) -> ServiceResult<Option<RowBatch>> {
        if !self.is_in_memory.load(Ordering::Relaxed) {
            return Ok(None);
        }
        self.reads.fetch_add(1, Ordering::Relaxed);
        let mut batch = RowBatch::default();
        for (row, cells) in self.selected(request) {
            batch.push_row(&row, cells);
        }
        Ok(Some(batch))
    }

    async fn mutate_rows(&self, request: MutateRows) -> ServiceResult<Vec<ServiceResult<()>>> {
        let _latch = self.latch.lock().await;
        self.writes.acquire().await.expect("it is never closed").forget();
        let rows: Vec<RowMutation> = request.rows.iter().map(|row| row.to_owned()).collect();
        let written = rows.iter().map(|row| format!("mutation {}", row.row.escape_ascii()));
        self.written.lock().extend(written);
        self.mutations
            .lock()
            .extend(rows.into_iter().flat_map(|row| row.mutations));
        Ok((0..request.rows.len()).map(|_| Ok(())).collect())
    }

    async fn mutate_rows_together(&self, _: MutateRows) -> ServiceResult<()> {
        not_here()
    }

    async fn rows_operation(&self, _: RowsOperation) -> ServiceResult<bool> {
        not_here()
    }

    async fn bulk_load(&self, load: BulkLoad) -> ServiceResult<Loaded> {
        self.loads_begun.fetch_add(1, Ordering::Relaxed);
        let _turn = self.latch.lock().await;
        let mut loaded = Vec::new();
        for mut source in load.sources {
            let mut cells = Vec::new();
            while let Some(mut some) = source.cells.next().await? {
                cells.append(&mut some);
            }
            if !cells.iter().all(|(row, _)| load.tablet.1.contains(row)) {
                return Ok(Loaded::DoesNotFit);
            }
            loaded.push((source.family, source.token, cells));
        }
        self.loads.lock().append(&mut loaded);
        Ok(Loaded::All)
    }

    async fn row_operation(&self, operation: RowOperation) -> ServiceResult<RowOutcome> {
        let cells = self.rows.lock().get(&operation.row).cloned().unwrap_or_default();
        let row = operation.row.escape_ascii();
        self.written.lock().push(format!("operation {row}"));
        // The cells that an increment or append wrote are those that are there.
        let is_written = |cell: &&Cell| {
            operation.steps.iter().any(|step| match step {
                Step::Modify(rule) => (rule.family, &rule.qualifier) == (cell.family, &cell.qualifier),
                _ => false,
            })
        };
        let written = cells.iter().filter(is_written).cloned().collect();
        self.steps.lock().extend(operation.steps);
        let matched = match operation.condition.map(|condition| condition.test) {
            Some(ConditionTest::Cells(test)) => test.decide(&cells)?.0,
            _ => true,
        };
        Ok(RowOutcome { matched, written })
    }

    async fn sample_row_keys(&self, _: &TableName, _: RowRange) -> ServiceResult<Vec<RowSample>> {
        not_here()
    }

    fn place_of(&self, table: &TableName, row: &[u8]) -> ServiceResult<TabletPlace> {
        let holds = |place: &&TabletPlace| *table == self.schema.name && place.range.contains(row);
        let found = self.places.iter().find(holds);
        found.cloned().ok_or_else(|| no_table(table))
    }

    fn places(&self, _: &TableName) -> ServiceResult<Vec<TabletPlace>> {
        self.listings.fetch_add(1, Ordering::Relaxed);
        Ok(self.places.clone())
    }

    fn other_servers(&self) -> Vec<Arc<ServerPlace>> {
        self.others.lock().clone()
    }

    async fn tablets(&self, _: &TableName) -> ServiceResult<Vec<TabletInfo>> {
        let info = |place: &TabletPlace| TabletInfo {
            id: place.id,
            range: place.range.clone(),
            figures: *self.figures.lock(),
        };
        Ok(self.places.iter().map(info).collect())
    }
}

#[async_trait]
impl TableAdmin for Model {
    async fn create_table(&self, new: NewTable) -> ServiceResult<Arc<TableSchema>> {
        self.note_change(format!("create {}", new.name))
    }

    async fn delete_table(&self, table: &TableName) -> ServiceResult<()> {
        self.note_change(format!("delete {table}")).map(drop)
    }

    async fn update_table(&self, _: &TableName, update: TableUpdate) -> ServiceResult<Arc<TableSchema>> {
        self.updates.lock().push(update);
        self.changed()
    }

    async fn modify_families(&self, _: &TableName, changes: Vec<FamilyChange>) -> ServiceResult<Arc<TableSchema>> {
        let show = |change: &FamilyChange| match change {
            FamilyChange::Create(family) => format!("create {}", family.name),
            FamilyChange::Update { name, .. } => format!("update {name}"),
            FamilyChange::Drop { name } => format!("drop {name}"),
        };
        let changes: Vec<String> = changes.iter().map(show).collect();
        self.note_change(changes.join(", "))
    }

    async fn groups(&self, _: &TableName) -> ServiceResult<TableGroups> {
        not_here()
    }

    async fn modify_groups(&self, _: &TableName, changes: Vec<GroupChange>) -> ServiceResult<TableGroups> {
        let show = |change: &GroupChange| match change {
            GroupChange::Create { name, .. } => format!("create group {name}"),
            GroupChange::Alter { name, .. } => format!("alter group {name}"),
            GroupChange::MoveFamily { family, group } => format!("move {family} to {group}"),
        };
        let changes: Vec<String> = changes.iter().map(show).collect();
        Ok(TableGroups {
            schema: self.note_change(changes.join(", "))?,
            unsettled: Default::default(),
        })
    }

    async fn drop_row_range(&self, _: &TableName, _: RowRange) -> ServiceResult<()> {
        not_here()
    }

    async fn flush(&self, _: &TableName, _: Option<TabletId>) -> ServiceResult<()> {
        not_here()
    }

    async fn compact(&self, _: &TableName, _: Option<TabletId>, _: bool) -> ServiceResult<()> {
        not_here()
    }

    async fn compactions(&self, _: &TableName) -> ServiceResult<Vec<(TabletId, CompactionState)>> {
        let states = self.places.iter().map(|place| (place.id, CompactionState::None));
        Ok(states.collect())
    }

    async fn split(&self, _: &TableName, _: TabletId, _: Option<Bytes>) -> ServiceResult<(TabletId, TabletId)> {
        not_here()
    }

    async fn merge(&self, _: &TableName, _: Vec<TabletId>) -> ServiceResult<TabletId> {
        not_here()
    }

    async fn truncate(&self, table: &TableName, _: bool) -> ServiceResult<()> {
        self.note_change(format!("truncate {table}")).map(drop)
    }

    /// As the master does, it goes on without its caller.
    #[allow(clippy::disallowed_methods, reason = "a task of the test's runtime")]
    async fn create_snapshot(&self, new: NewSnapshot) -> ServiceResult<Arc<SnapshotInfo>> {
        self.snapshots_begun.fetch_add(1, Ordering::Relaxed);
        let (latch, snapshots, schema) = (self.latch.clone(), self.snapshots.clone(), self.schema.clone());
        let task = tokio::spawn(async move {
            let _latch = latch.lock().await;
            let taken = Arc::new(SnapshotInfo {
                kept: None,
                id: SnapshotId(1),
                name: new.name,
                schema,
                created_micros: 1,
                completed_micros: 1,
                expires_micros: None,
                tablets: 1,
                bytes: 0,
                front_end_data: new.front_end_data.into(),
            });
            snapshots.lock().push(Arc::clone(&taken));
            taken
        });
        Ok(task.await.expect("it does not panic"))
    }

    async fn copy_snapshot(&self, _: SnapshotCopy) -> ServiceResult<Arc<SnapshotInfo>> {
        not_here()
    }

    async fn switches(&self) -> ServiceResult<Switches> {
        Ok(*self.switches.lock())
    }

    async fn set_switches(&self, change: SwitchesChange) -> ServiceResult<Switches> {
        let mut switches = self.switches.lock();
        let next = change.of(*switches);
        Ok(std::mem::replace(&mut *switches, next))
    }

    async fn list_snapshots(&self, _: Option<&str>) -> ServiceResult<Vec<Arc<SnapshotInfo>>> {
        Ok(self.snapshots.lock().clone())
    }

    async fn snapshot(&self, _: &SnapshotName) -> ServiceResult<Arc<SnapshotInfo>> {
        not_here()
    }

    async fn update_snapshot(&self, _: &SnapshotName, _: SnapshotUpdate) -> ServiceResult<Arc<SnapshotInfo>> {
        not_here()
    }

    async fn delete_snapshot(&self, name: &SnapshotName) -> ServiceResult<()> {
        self.named
            .lock()
            .push(format!("delete {}/{}", name.namespace, name.name));
        let _latch = self.latch.lock().await;
        Ok(())
    }

    async fn clone_snapshot(
        &self,
        name: &SnapshotName,
        _: &TableName,
        _: Option<Vec<u8>>,
    ) -> ServiceResult<Arc<TableSchema>> {
        self.named
            .lock()
            .push(format!("clone {}/{}", name.namespace, name.name));
        Ok(Arc::clone(&self.schema))
    }

    async fn restore_snapshot(&self, _: &SnapshotName, _: &TableName) -> ServiceResult<Arc<TableSchema>> {
        not_here()
    }

    async fn list_tables(&self, namespace: &str) -> ServiceResult<Vec<Arc<TableSchema>>> {
        let is_here = namespace == self.schema.name.namespace;
        Ok(is_here.then(|| Arc::clone(&self.schema)).into_iter().collect())
    }

    async fn create_namespace(&self, _: &str, _: Vec<u8>) -> ServiceResult<()> {
        not_here()
    }

    async fn update_namespace(&self, _: &str, _: Bytes, _: Vec<u8>) -> ServiceResult<()> {
        not_here()
    }

    async fn delete_namespace(&self, namespace: &str, only_if_empty: bool) -> ServiceResult<()> {
        let which = if only_if_empty { "empty" } else { "whole" };
        self.note_change(format!("delete {which} namespace {namespace}"))
            .map(drop)
    }

    async fn cluster_status(&self) -> ServiceResult<ClusterStatus> {
        self.cluster.lock().clone().ok_or_else(no_cluster)
    }

    async fn move_tablet(&self, tablet: TabletId, to: ServerId) -> ServiceResult<()> {
        self.note_change(format!("move {tablet} to {to}")).map(drop)
    }

    async fn drain_server(&self, server: ServerId, drains: bool) -> ServiceResult<()> {
        self.note_change(format!("drain {server} {drains}"))?;
        let mut cluster = self.cluster.lock();
        let servers = &mut cluster.as_mut().ok_or_else(no_cluster)?.servers;
        let drained = servers.iter_mut().find(|known| known.server == server);
        drained.expect("a server of the cluster").drains = drains;
        Ok(())
    }

    async fn namespace(&self, _: &str) -> ServiceResult<Option<Bytes>> {
        Ok(Some(Bytes::new()))
    }

    async fn list_namespaces(&self) -> ServiceResult<Vec<(String, Bytes)>> {
        Ok(vec![(self.schema.name.namespace.clone(), Bytes::new())])
    }
}

/// A client with a connection of its own.
pub(crate) struct Client {
    pub socket: DuplexStream,
    pub received: BytesMut,
    /// The milliseconds for which it waits, as the headers of its calls say.
    pub timeout: Option<u32>,
    calls: u32,
}

/// The task that serves a connection.
pub(crate) type Served = tokio::task::JoinHandle<Result<(), crate::ConnectionError>>;

impl Client {
    /// Connects through a pipe of this size.
    pub async fn connect(front_end: &HBaseFrontEnd, pipe_bytes: usize, compressor: Option<&str>) -> (Self, Served) {
        let header = ConnectionHeader {
            service_name: Some(CLIENT_SERVICE.to_owned()),
            cell_block_codec_class: Some(KEY_VALUE_CODEC.to_owned()),
            cell_block_compressor_class: compressor.map(str::to_owned),
            ..ConnectionHeader::default()
        };
        Self::open(front_end, pipe_bytes, &header).await
    }

    /// Connects with this header.
    pub async fn open(front_end: &HBaseFrontEnd, pipe_bytes: usize, header: &ConnectionHeader) -> (Self, Served) {
        Self::open_until(front_end, pipe_bytes, header, std::future::pending()).await
    }

    /// Connects to a service.
    pub async fn of_service(front_end: &HBaseFrontEnd, service: &str) -> Self {
        let header = ConnectionHeader {
            service_name: Some(service.to_owned()),
            ..ConnectionHeader::default()
        };
        Self::open(front_end, 1 << 16, &header).await.0
    }

    /// Connects with this header to a server that drains once the future is ready.
    #[allow(clippy::disallowed_methods, reason = "a connection is a task of the test's runtime")]
    pub async fn open_until(
        front_end: &HBaseFrontEnd,
        pipe_bytes: usize,
        header: &ConnectionHeader,
        drain: impl Future<Output = ()> + Send + 'static,
    ) -> (Self, Served) {
        let (client, server) = tokio::io::duplex(pipe_bytes);
        let front_end = front_end.clone();
        let served = tokio::spawn(async move { front_end.serve(server, drain).await });
        let mut client = Client {
            socket: client,
            received: BytesMut::new(),
            timeout: None,
            calls: 0,
        };
        let mut out = BytesMut::new();
        frame::encode_preamble(&mut out, header);
        client.socket.write_all(&out).await.unwrap();
        (client, served)
    }

    /// Sends a call; returns its number.
    pub async fn send(&mut self, method: &'static str, message: &impl prost::Message, cells: &impl CellBlock) -> u32 {
        self.calls += 1;
        let header = RequestHeader {
            call_id: Some(self.calls),
            method_name: Some(Bytes::from_static(method.as_bytes())),
            timeout: self.timeout,
            ..RequestHeader::default()
        };
        let mut out = BytesMut::new();
        frame::encode_request(&mut out, header, message, cells).unwrap();
        self.socket.write_all(&out).await.unwrap();
        self.calls
    }

    /// The next response.
    pub async fn response(&mut self) -> Response {
        loop {
            if let Some(frame) = frame::take_frame(&mut self.received, 1 << 30).unwrap() {
                return frame::decode_response(frame).unwrap();
            }
            let n = self.socket.read_buf(&mut self.received).await.unwrap();
            assert!(n > 0, "the connection stays open");
        }
    }

    /// Calls a method.
    pub async fn call(&mut self, method: &'static str, message: &impl prost::Message) -> Response {
        self.send(method, message, &()).await;
        self.response().await
    }
}

/// The message of a call that succeeded.
pub(crate) fn message<M: prost::Message + Default>(response: &Response) -> M {
    assert_eq!(response.header.exception, None);
    stele_wire::messages::decode("response", response.message.clone()).unwrap()
}

/// The class of the exception of a call that failed.
pub(crate) fn failure(response: &Response) -> String {
    let exception = response.header.exception.clone().expect("it failed");
    exception.exception_class_name.unwrap()
}

/// A block of a file, of which values are slices.
pub(crate) struct Block {
    bytes: Bytes,
    is_held: Weak<()>,
}

impl Block {
    /// A block of this length.
    pub fn new(len: usize) -> Self {
        struct Held(Vec<u8>, Arc<()>);
        impl AsRef<[u8]> for Held {
            fn as_ref(&self) -> &[u8] {
                debug_assert_eq!(Arc::strong_count(&self.1), 1, "the block has it alone");
                &self.0
            }
        }
        let marker = Arc::new(());
        Block {
            is_held: Arc::downgrade(&marker),
            bytes: Bytes::from_owner(Held(vec![7; len], marker)),
        }
    }

    /// A value within the block.
    pub fn value(&self, len: usize) -> Bytes {
        self.bytes.slice(..len)
    }

    /// Whether any value is left once the model has forgotten its rows.
    pub fn held_without(self, model: &Model) -> bool {
        model.rows.lock().clear();
        drop(self.bytes);
        self.is_held.strong_count() > 0
    }
}

/// Counts how often another task of the runtime has its turn.
#[allow(clippy::disallowed_methods, reason = "a task of the test's runtime")]
pub(crate) fn count_turns() -> Turns {
    let turns = Turns(Arc::default());
    let count = Arc::downgrade(&turns.0);
    tokio::spawn(async move {
        while let Some(count) = count.upgrade() {
            count.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    });
    turns
}

/// Counts until it is dropped.
pub(crate) struct Turns(Arc<AtomicUsize>);

impl Turns {
    pub fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}
