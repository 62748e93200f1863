//! A server over some storage, and tables with rows.

use crate::archive::{ArchiveMetrics, ArchiveSettings, Archiver};
use crate::{Archives, Backups, DataRoot, OpenDestination, Places};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use stele_catalog::{Catalog, draw_epoch};
use stele_client::{
    BackupAdmin, BackupDestination, BackupOrder, BackupTask, BackupWork, MutateRows, NewFamily, NewTable, ReadRows,
    Router, ServiceResult, TableAdmin, TableService,
};
use stele_commitlog::LogClock;
use stele_coord::EmbeddedCoord;
use stele_env::Env;
use stele_env::metrics::Metrics;
use stele_env::tokio_env::TokioRuntime;
use stele_master::Master;
use stele_sstable::Cache;
use stele_storage::Storage;
use stele_tabletserver::{ServerOptions, TabletServer, last_epoch};
use stele_types::{Compression, Epoch, FamilyId, Mutation, RowMutation, RowSet, TableName, Timestamp, ValueType};

pub(super) struct Node {
    pub(super) env: Env,
    pub(super) catalog: Arc<Catalog>,
    pub(super) master: Arc<Master>,
    pub(super) server: Arc<TabletServer>,
    pub(super) service: Router,
    pub(super) backups: Arc<Backups>,
    /// Of the log and of backups.
    pub(super) clock: Arc<LogClock>,
    /// Archives the log, in rounds that the test asks for.
    pub(super) archiver: Option<Arc<Archiver>>,
}

/// Every stored entry of a row as text, by row.
pub(super) type Rows = BTreeMap<Bytes, Vec<String>>;

pub(super) fn table(name: &str) -> TableName {
    TableName::new("space", name)
}

/// Opens the same storage for every destination.
pub(super) fn opening(destination: &Arc<dyn Storage>) -> OpenDestination {
    let destination = destination.clone();
    Arc::new(move |_| {
        let destination = destination.clone();
        Box::pin(async move { Ok(destination.into()) })
    })
}

pub(super) async fn start(storage: &Arc<dyn Storage>, destination: &Arc<dyn Storage>) -> Node {
    try_start(storage, destination).await.unwrap()
}

pub(super) async fn try_start(storage: &Arc<dyn Storage>, destination: &Arc<dyn Storage>) -> Result<Node, String> {
    try_start_archiving(storage, destination, None).await
}

/// The place of the archive in tests.
pub(super) fn archive_place() -> BackupDestination {
    BackupDestination {
        address: "archive".to_owned(),
        options: Vec::new(),
    }
}

/// The same of a server that archives its log; a bounded number of its bytes waits.
pub(super) async fn try_start_archiving(
    storage: &Arc<dyn Storage>,
    destination: &Arc<dyn Storage>,
    archive: Option<(&Arc<dyn Storage>, u64)>,
) -> Result<Node, String> {
    let env = TokioRuntime::current();
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let coord = EmbeddedCoord::open(storage.clone(), env.clone())
        .await
        .map_err(|e| text(&e))?;
    let used = last_epoch(&**storage).await.map_err(|e| text(&e))?;
    let epoch = draw_epoch(&*coord, used, archive.is_some())
        .await
        .map_err(|e| text(&e))?;
    let catalog = Arc::new(Catalog::load(coord).await.map_err(|e| text(&e))?);
    if archive.is_some() {
        catalog.inherit_archived_log(epoch).await.map_err(|e| text(&e))?;
    }
    let clock = LogClock::new(env.clone(), catalog.noted_moment().await.map_err(|e| text(&e))?);
    let options = ServerOptions {
        log_clock: archive.map(|_| clock.clone()),
        // Several segments, of which the archive has some to let go.
        log_segment_bytes: 64 << 10,
        value_separate_bytes: 1_000,
        sstable_bytes: 64 << 10,
        ..ServerOptions::for_memory(128 << 20)
    };
    let (server, _) = TabletServer::start(
        env.clone(),
        storage.clone(),
        &catalog,
        Epoch(epoch),
        Arc::new(Cache::new(4 << 20)),
        options,
        &Metrics::new(),
    )
    .await
    .map_err(|e| text(&e))?;
    let master = Master::new(env.clone(), catalog.clone(), server.clone());
    let times = clock.clone();
    master.take_times_from(Arc::new(move || times.now()));
    let root = DataRoot::new(env.clone(), catalog.clone(), master.clone(), server.clone()).with_clock(clock.clone());
    let mut archiver = None;
    let backups = Backups::new(root, opening(destination));
    if let Some((at, waiting_bytes_max)) = archive {
        let places = Places::new(opening(at));
        let settings = ArchiveSettings {
            place: archive_place(),
            interval: Duration::from_secs(1),
            waiting_bytes_max,
        };
        let log = server.archived_log().ok_or("the log is not archived")?;
        let metrics = ArchiveMetrics::new(&Metrics::new());
        let made = Archiver::new(env.clone(), catalog.clone(), log, places.clone(), settings, metrics).await;
        archiver = Some(made.map_err(|e| text(&e))?);
        backups.clone().with_archives(Archives {
            places,
            own: Some(archive_place()),
        });
    }
    let service = Router::new(env.clone(), catalog.clone(), server.clone());
    Ok(Node {
        env,
        catalog,
        master,
        server,
        service,
        backups,
        clock,
        archiver,
    })
}

pub(super) fn order(backup: &str, task: BackupTask) -> BackupOrder {
    BackupOrder {
        destination: BackupDestination {
            address: "memory".to_owned(),
            options: Vec::new(),
        },
        backup: backup.to_owned(),
        task,
        bytes_per_second: None,
        parallel: 3,
        digests: false,
        at: None,
        archive: None,
    }
}

pub(super) fn create() -> BackupTask {
    BackupTask::Create { tables: Vec::new() }
}

pub(super) fn restore() -> BackupTask {
    BackupTask::Restore {
        table: None,
        target: None,
    }
}

pub(super) fn restore_as(from: &str, to: &str) -> BackupTask {
    BackupTask::Restore {
        table: Some(table(from)),
        target: Some(table(to)),
    }
}

impl Node {
    pub(super) async fn make_table(&self, name: &str) {
        let family = |name: &str| NewFamily {
            name: name.to_owned(),
            gc_rule: None,
            value_type: ValueType::Bytes,
            deletes: Default::default(),
            front_end_data: Vec::new(),
        };
        let new = NewTable {
            families: vec![family("f"), family("g")],
            initial_splits: vec![Bytes::from_static(b"row-00100")],
            compression: Compression::Lz4,
            front_end_data: b"data of a front end".to_vec(),
            ..NewTable::new(table(name))
        };
        self.master.create_table(new).await.unwrap();
    }

    pub(super) async fn try_mutate(&self, name: &str, row: String, mutation: Mutation) -> ServiceResult<()> {
        let request = MutateRows {
            id: None,
            table: table(name),
            rows: vec![RowMutation {
                row: row.into(),
                mutations: vec![mutation],
            }]
            .into(),
            durability: None,
        };
        self.service.mutate_rows(request).await?.into_iter().collect()
    }

    /// Writes rows, some with values that go to value files.
    pub(super) async fn write(&self, name: &str, rows: std::ops::Range<usize>, version: i64) {
        for n in rows {
            let len = if n % 10 == 0 { 5_000 } else { 50 };
            let put = Mutation::Put {
                family: FamilyId(1 + (n % 2) as u32),
                qualifier: Bytes::from_static(b"q"),
                timestamp: Timestamp(version),
                value: Bytes::from(format!("{n}-{version}-").repeat(len)),
            };
            self.try_mutate(name, format!("row-{n:05}"), put).await.unwrap();
        }
    }

    pub(super) async fn delete_row(&self, name: &str, n: usize) {
        let delete = Mutation::DeleteRow { up_to: Timestamp::MAX };
        self.try_mutate(name, format!("row-{n:05}"), delete).await.unwrap();
    }

    pub(super) async fn flush(&self, name: &str) {
        self.master.flush(&table(name), None).await.unwrap();
    }

    /// All rows as a reader sees them, or everything stored.
    pub(super) async fn rows(&self, name: &str, raw: bool) -> Rows {
        let request = ReadRows {
            raw,
            ..ReadRows::new(table(name), RowSet::all())
        };
        let mut stream = self.service.read_rows(request).await.unwrap();
        let mut rows = Rows::new();
        while let Some(batch) = stream.next().await.unwrap() {
            for (row, cells) in batch.shared_rows() {
                let shown = cells.iter().map(|cell| format!("{cell:?}"));
                rows.entry(row).or_default().extend(shown);
            }
        }
        rows
    }

    /// Does a work to its end.
    pub(super) async fn work(&self, backup: &str, task: BackupTask) -> BackupWork {
        self.carry_out(order(backup, task)).await
    }

    pub(super) async fn carry_out(&self, order: BackupOrder) -> BackupWork {
        let number = self.backups.begin(order).await.unwrap();
        loop {
            let work = self.backups.work(number).unwrap();
            if work.outcome.is_some() {
                return work;
            }
            self.env.sleep(std::time::Duration::from_millis(2)).await;
        }
    }

    /// The same where it succeeds.
    pub(super) async fn done(&self, backup: &str, task: BackupTask) -> BackupWork {
        let work = self.work(backup, task).await;
        assert!(!matches!(work.outcome, Some(Err(_))), "{:?}", work.outcome);
        work
    }

    pub(super) async fn stop(self) {
        self.server.shut_down().await;
        if let Some(archiver) = &self.archiver {
            archiver.finish().await;
        }
    }

    /// Archives the log so far.
    pub(super) async fn archive(&self) {
        self.archiver.as_ref().unwrap().round().await.unwrap();
    }

    /// A moment behind everything that was done, and before everything that will be.
    pub(super) async fn moment(&self) -> i64 {
        let now = self.env.wall_micros();
        while self.env.wall_micros() <= now {
            self.env.sleep(Duration::from_millis(1)).await;
        }
        now
    }
}
