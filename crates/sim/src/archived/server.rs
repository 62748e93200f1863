//! A server with backups and an archive of its log, connected as in the binary.

use super::hindrance::Hindrance;
use crate::bucket::Bucket;
use crate::cluster::options;
use crate::runtime::Process;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use stele_backup::archive::{Archive, ArchiveMetrics, ArchiveSettings, Archiver};
use stele_backup::{Archives, Backups, DataRoot, OpenDestination, PlaceToOpen, Places};
use stele_catalog::{Catalog, draw_epoch};
use stele_client::{
    BackupAdmin, BackupDestination, BackupOrder, BackupTask, MutateRows, NewFamily, NewTable, ReadRows, Router,
    ServiceError, ServiceResult, TableAdmin, TableService,
};
use stele_commitlog::LogClock;
use stele_coord::EmbeddedCoord;
use stele_env::metrics::Metrics;
use stele_env::{Env, Priority};
use stele_master::Master;
use stele_objects::{Client, ObjectStorage};
use stele_sstable::Cache;
use stele_storage::Storage;
use stele_tabletserver::{ServerOptions, TabletServer, last_epoch};
use stele_types::{
    Compression, Epoch, ErrorKind, FamilyId, Mutation, RowMutation, RowSet, TableName, Timestamp, ValueType,
};

/// The prefixes of the archive and of the backups in the bucket.
const ARCHIVE: &str = "archive";
const BACKUPS: &str = "backups";
/// The time between two rounds of the archiver.
const INTERVAL: Duration = Duration::from_millis(300);
/// More log than a run writes.
const WAITING_BYTES_MAX: u64 = 1 << 30;

/// How a server archives its log.
#[derive(Clone)]
pub(super) struct Archiving {
    pub(super) waiting_bytes_max: u64,
    /// In the way of its archive.
    pub(super) hindrance: Hindrance,
}

impl Default for Archiving {
    fn default() -> Self {
        Archiving {
            waiting_bytes_max: WAITING_BYTES_MAX,
            hindrance: Hindrance::default(),
        }
    }
}
/// Longest time that a client waits, and that an orderly end takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two questions about a work, and most of them.
const ASKED_EVERY: Duration = Duration::from_millis(50);
const ASKED_MAX: u32 = 20_000;
/// Bytes of a value, so that a few bursts of writes are flushed.
const VALUE_BYTES: usize = 300;

/// One life of a server.
pub(super) struct Server {
    process: Process,
    env: Env,
    master: Arc<Master>,
    tablets: Arc<TabletServer>,
    router: Arc<Router>,
    backups: Arc<Backups>,
    bucket: Bucket,
    archiver: Option<Arc<Archiver>>,
    /// Of the log and of backups.
    pub(super) clock: Arc<LogClock>,
}

fn table() -> TableName {
    TableName::new("space", "t")
}

fn place(address: &str) -> BackupDestination {
    BackupDestination {
        address: address.to_owned(),
        options: Vec::new(),
    }
}

/// Opens prefixes of the bucket.
fn opener(bucket: &Bucket, env: &Env, hindrance: &Hindrance) -> OpenDestination {
    let (bucket, env, hindrance) = (bucket.clone(), env.clone(), hindrance.clone());
    Arc::new(move |PlaceToOpen { place, .. }| {
        let (client, env): (Arc<dyn Client>, Env) = (Arc::new(bucket.clone()), env.clone());
        let hindrance = hindrance.clone();
        Box::pin(async move {
            let opened = ObjectStorage::shared_client(client, &place.address, env.clone()).await;
            let storage: Arc<dyn Storage> =
                opened.map_err(|error| ServiceError::new(ErrorKind::Unavailable, error.to_string()))?;
            Ok(hindrance.before(storage, env).into())
        })
    })
}

/// Starts a server, which may archive its log.
pub(super) async fn open(
    process: Process,
    env: Env,
    storage: Arc<dyn Storage>,
    bucket: Bucket,
    archiving: Option<Archiving>,
) -> Result<Server, String> {
    let archives = archiving.is_some();
    let archiving = archiving.unwrap_or_default();
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let coord = EmbeddedCoord::open(storage.clone(), env.clone()).await;
    let coord = coord.map_err(|e| text(&e))?;
    let used = last_epoch(&*storage).await.map_err(|e| text(&e))?;
    let epoch = draw_epoch(&*coord, used, archives).await.map_err(|e| text(&e))?;
    let catalog_in_doubt = coord.was_torn();
    let catalog = Arc::new(Catalog::load(coord).await.map_err(|e| text(&e))?);
    if archives {
        catalog.inherit_archived_log(epoch).await.map_err(|e| text(&e))?;
    }
    let clock = LogClock::new(env.clone(), catalog.noted_moment().await.map_err(|e| text(&e))?);
    let options = ServerOptions {
        catalog_in_doubt,
        log_clock: archives.then(|| clock.clone()),
        log_streams: 1 + env.random_below(2) as u32,
        ..options()
    };
    let cache = Arc::new(Cache::with_shards(crate::cluster::CACHE_BYTES, 1));
    let metrics = Metrics::new();
    let started = TabletServer::start(env.clone(), storage, &catalog, Epoch(epoch), cache, options, &metrics);
    let (tablets, _) = started.await.map_err(|e| text(&e))?;
    let master = Master::new(env.clone(), catalog.clone(), tablets.clone());
    let times = clock.clone();
    master.take_times_from(Arc::new(move || times.now()));
    master.start_splitting();
    let root = DataRoot::new(env.clone(), catalog.clone(), master.clone(), tablets.clone()).with_clock(clock.clone());
    let places = Places::new(opener(&bucket, &env, &archiving.hindrance));
    let mut archiver = None;
    if let Some(log) = tablets.archived_log() {
        let settings = ArchiveSettings {
            place: place(ARCHIVE),
            interval: INTERVAL,
            waiting_bytes_max: archiving.waiting_bytes_max,
        };
        let metrics = ArchiveMetrics::new(&Metrics::new());
        let made = Archiver::new(env.clone(), catalog.clone(), log, places.clone(), settings, metrics).await;
        let made = made.map_err(|e| text(&e))?;
        made.start();
        archiver = Some(made);
    }
    let backups = Backups::new(root, opener(&bucket, &env, &Hindrance::default())).with_archives(Archives {
        places,
        own: Some(place(ARCHIVE)),
    });
    Ok(Server {
        router: Arc::new(Router::new(env.clone(), catalog, tablets.clone())),
        process,
        env,
        master,
        tablets,
        backups,
        bucket,
        archiver,
        clock,
    })
}

impl Server {
    pub(super) fn kill(&self) {
        self.process.kill();
    }

    /// Stops it in order, if it does so in time.
    pub(super) async fn shut_down(&self, client: &Env) {
        let (tablets, archiver) = (self.tablets.clone(), self.archiver.clone());
        let stop = self.env.spawn_join(Priority::Foreground, "shutdown", async move {
            tablets.shut_down().await;
            if let Some(archiver) = archiver {
                archiver.finish().await;
            }
        });
        let _ = client.timeout(PATIENCE, stop).await;
    }

    /// Runs a request in the server.
    async fn call<T: Send + 'static>(
        &self,
        client: &Env,
        request: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, String> {
        let answer = self.env.spawn_join(Priority::Foreground, "request", request);
        match client.timeout(PATIENCE, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) | Err(_) => Err("no answer".to_owned()),
        }
    }

    pub(super) async fn make_table(&self) -> Result<(), String> {
        let new = NewTable {
            families: vec![NewFamily {
                name: "f".to_owned(),
                gc_rule: None,
                value_type: ValueType::Bytes,
                deletes: Default::default(),
                front_end_data: Vec::new(),
            }],
            initial_splits: vec![row_key(12)],
            compression: Compression::Lz4,
            ..NewTable::new(table())
        };
        self.master
            .create_table(new)
            .await
            .map(drop)
            .map_err(|error| error.message)
    }

    /// Writes a version of a row.
    pub(super) async fn write(&self, client: &Env, row: u64, version: u64) -> Result<(), String> {
        let put = Mutation::Put {
            family: FamilyId(1),
            qualifier: Bytes::from_static(b"q"),
            timestamp: Timestamp(version as i64),
            value: Bytes::from(vec![b'v'; VALUE_BYTES]),
        };
        let request = MutateRows {
            id: None,
            table: table(),
            rows: vec![RowMutation {
                row: row_key(row),
                mutations: vec![put],
            }]
            .into(),
            durability: None,
        };
        let router = self.router.clone();
        let written = async move {
            router
                .mutate_rows(request)
                .await?
                .into_iter()
                .collect::<ServiceResult<()>>()
        };
        self.call(client, written).await?.map_err(|error| error.message)
    }

    /// The newest version of each row.
    pub(super) async fn rows(&self) -> Result<BTreeMap<u64, u64>, String> {
        let mut stream = self
            .router
            .read_rows(ReadRows::new(table(), RowSet::all()))
            .await
            .map_err(|e| e.message)?;
        let mut rows = BTreeMap::new();
        while let Some(batch) = stream.next().await.map_err(|e| e.message)? {
            for (row, cells) in batch.shared_rows() {
                let number = String::from_utf8_lossy(&row).trim_start_matches('r').parse();
                let number = number.map_err(|_| format!("a row {row:?} that nobody wrote"))?;
                let newest = cells.iter().map(|cell| cell.timestamp.0 as u64).max();
                rows.insert(number, newest.unwrap_or_default());
            }
        }
        Ok(rows)
    }

    /// Archives the log so far, on a network without faults.
    pub(super) async fn complete_archive(&self, client: &Env, attempts: u32) -> Result<(), String> {
        let archiver = self.archiver.as_ref().ok_or("the server archives nothing")?;
        let mut why = String::new();
        for _ in 0..attempts {
            match archiver.round().await {
                Ok(()) => return Ok(()),
                Err(error) => why = error.to_string(),
            }
            client.sleep(INTERVAL).await;
        }
        Err(format!(
            "the archive is not completed, although there are no faults: {why}"
        ))
    }

    /// Bytes of the segments that wait for the archive.
    pub(super) fn waiting_bytes(&self) -> u64 {
        let log = self.tablets.archived_log();
        log.map_or(0, |log| log.positions().iter().map(|at| at.end).sum())
    }

    /// Ranges of the archive.
    pub(super) async fn ranges(&self) -> Result<usize, String> {
        let client: Arc<dyn Client> = Arc::new(self.bucket.clone());
        let storage = ObjectStorage::shared_client(client, ARCHIVE, self.env.clone()).await;
        let archive = Archive::open(storage.map_err(|e| e.to_string())?, false).await;
        let ranges = archive.map_err(|e| e.to_string())?.ranges().await;
        ranges.map(|ranges| ranges.len()).map_err(|e| e.to_string())
    }

    pub(super) async fn back_up(&self, name: &str) -> ServiceResult<()> {
        self.work(name, BackupTask::Create { tables: Vec::new() }, None).await
    }

    pub(super) async fn restore(&self, at: i64) -> ServiceResult<()> {
        let task = BackupTask::Restore {
            table: None,
            target: None,
        };
        self.work("", task, Some(at)).await
    }

    async fn work(&self, backup: &str, task: BackupTask, at: Option<i64>) -> ServiceResult<()> {
        let order = BackupOrder {
            destination: place(BACKUPS),
            backup: backup.to_owned(),
            task,
            bytes_per_second: None,
            parallel: 2,
            digests: false,
            at,
            archive: None,
        };
        let number = self.backups.begin(order).await?;
        for _ in 0..ASKED_MAX {
            if let Some(outcome) = self.backups.work(number)?.outcome {
                return outcome.map(drop);
            }
            self.env.sleep(ASKED_EVERY).await;
        }
        Err(ServiceError::new(ErrorKind::Unavailable, "the work takes too long"))
    }
}

fn row_key(row: u64) -> Bytes {
    Bytes::from(format!("r{row:03}"))
}
