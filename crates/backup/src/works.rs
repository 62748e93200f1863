//! The works of a server.
//!
//! One runs at a time, and the outcomes of the last ones are kept. A work runs in a task of its own and goes on when the client that
//! ordered it is gone. It ends early when it is called off. In a cluster the leader does the works. With its term they end.

use crate::archive::AnyArchive;
use crate::archive::prune::prune;
use crate::create::{create, delete_snapshots};
use crate::delete::delete;
use crate::destination::Destination;
use crate::error::{BackupError, Result};
use crate::format::Entry;
use crate::places::{OpenDestination, Places};
use crate::restore::{restore, restore_to};
use crate::restore_at::{Moment, restorable};
use crate::root::DataRoot;
use crate::verify::verify;
use crate::work::Work;
use async_trait::async_trait;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};
use stele_client::{
    BackupAdmin, BackupDestination, BackupInfo, BackupOrder, BackupOutcome, BackupProgress, BackupTask, BackupWork,
    OrderedWork, ServiceError, ServiceResult, WorkOrder,
};
use stele_types::{ErrorKind, TableName};

/// Ended works whose outcomes are kept.
const ENDED_KEPT: usize = 64;
/// Numbers of works of one term.
const TERM_SHIFT: u32 = 20;
/// Most tables that a list of backups shows, over all of them.
const SHOWN_TABLES_MAX: usize = 10_000;

/// Archives that works read.
pub struct Archives {
    /// Opens them.
    pub places: Arc<Places>,
    /// The one of an order that names none: that of the server's own log.
    pub own: Option<BackupDestination>,
}

/// Backups of a server.
pub struct Backups {
    root: Arc<DataRoot>,
    places: Arc<Places>,
    works: Mutex<Works>,
    archives: OnceLock<Archives>,
    this: Weak<Backups>,
}

#[derive(Default)]
struct Works {
    last: u64,
    running: Option<Running>,
    ended: BTreeMap<u64, OrderedWork>,
    /// The term of the leader is over.
    is_over: bool,
}

struct Running {
    number: u64,
    work: Arc<Work>,
    /// As it was when the work began.
    ordered: OrderedWork,
}

impl Running {
    fn now(&self) -> OrderedWork {
        let mut ordered = self.ordered.clone();
        ordered.work.progress = self.work.progress();
        ordered
    }
}

impl Backups {
    /// Of a data root; `open` opens destinations.
    pub fn new(root: DataRoot, open: OpenDestination) -> Arc<Backups> {
        Backups::numbered_from(root, open, 0)
    }

    /// Of the data root of a cluster, for one term of its leader: works of other terms have other numbers.
    pub fn of_term(root: DataRoot, open: OpenDestination, term: u64) -> Arc<Backups> {
        Backups::numbered_from(root, open, term.wrapping_shl(TERM_SHIFT))
    }

    fn numbered_from(root: DataRoot, open: OpenDestination, last: u64) -> Arc<Backups> {
        let works = Works {
            last,
            ..Works::default()
        };
        Arc::new_cyclic(|this| Backups {
            root: Arc::new(root),
            places: Places::new(open),
            works: Mutex::new(works),
            archives: OnceLock::new(),
            this: this.clone(),
        })
    }

    /// Has works read archives of logs.
    pub fn with_archives(self: Arc<Self>, archives: Archives) -> Arc<Self> {
        let _ = self.archives.set(archives);
        self
    }

    /// Calls off the work that runs, and begins none any more.
    pub fn end_term(&self) {
        let mut works = self.works.lock();
        works.is_over = true;
        if let Some(running) = &works.running {
            running.work.cancel();
        }
    }

    async fn destination(&self, destination: BackupDestination, make: bool) -> Result<Destination> {
        let storage = self.places.open(destination, make).await?;
        Destination::open(storage, make).await
    }

    /// The archive that an order names, or that of the server's own log; `None` if there is neither.
    async fn archive(&self, named: Option<BackupDestination>) -> Result<Option<AnyArchive>> {
        let Some(archives) = self.archives.get() else {
            return Ok(None);
        };
        let Some(place) = named.or_else(|| archives.own.clone()) else {
            return Ok(None);
        };
        AnyArchive::open(&archives.places, place).await.map(Some)
    }

    async fn archive_of(&self, named: Option<BackupDestination>) -> Result<AnyArchive> {
        let archive = self.archive(named).await?;
        archive.ok_or_else(|| {
            let message = "no archive of the log is named, and the server archives its own log nowhere";
            BackupError::Invalid(message.to_owned())
        })
    }

    /// Does a work to its end.
    pub async fn run(&self, order: BackupOrder, work: &Arc<Work>) -> Result<BackupOutcome> {
        let make = matches!(order.task, BackupTask::Create { .. });
        let destination = self.destination(order.destination, make).await?;
        match order.task {
            BackupTask::Create { tables } => {
                let tables = (&tables[..], order.digests);
                create(&self.root, &destination, &order.backup, tables, work).await?;
                Ok(BackupOutcome::default())
            }
            BackupTask::Restore { table, target } => {
                let names = (table.as_ref(), target.as_ref());
                if names.0.is_none() && names.1.is_some() {
                    let message = "a name for one table was given, and no table of the backup";
                    return Err(BackupError::Invalid(message.to_owned()));
                }
                let tables = match order.at {
                    None => restore(&self.root, &destination, &order.backup, names, work).await?,
                    Some(at) => {
                        if !self.root.restores_to_moments() {
                            let message = "servers of a cluster that do not archive their logs do not restore to a moment: restore \
                                           into a single server";
                            return Err(BackupError::Invalid(message.to_owned()));
                        }
                        let archive = &self.archive_of(order.archive).await?;
                        let name = Some(&order.backup[..]).filter(|name| !name.is_empty());
                        let moment = Moment { at, archive };
                        restore_to(&self.root, &destination, name, names, &moment, work).await?
                    }
                };
                Ok(BackupOutcome {
                    tables,
                    ..BackupOutcome::default()
                })
            }
            BackupTask::Verify => verify(&destination, &order.backup, order.digests, work).await,
            BackupTask::Prune => {
                let archive = self.archive_of(order.archive).await?;
                prune(&archive, &destination, work).await?;
                Ok(BackupOutcome::default())
            }
            BackupTask::Delete => {
                // Snapshots that a creation has left go first: the name is not known any more afterwards.
                let state = destination.state().await?;
                if let Some(entry) = state.backups.iter().find(|entry| entry.name == order.backup) {
                    delete_snapshots(&self.root, entry.id).await?;
                }
                delete(&destination, &order.backup, work).await?;
                Ok(BackupOutcome::default())
            }
        }
    }

    fn end(&self, number: u64, outcome: ServiceResult<BackupOutcome>) {
        match &outcome {
            Ok(_) => tracing::info!(number, "a work on backups is done"),
            Err(error) => tracing::warn!(number, %error, "a work on backups ended"),
        }
        let mut works = self.works.lock();
        let running = works.running.take().filter(|running| running.number == number);
        assert!(running.is_some(), "one work runs at a time");
        if let Some(mut ended) = running.map(|running| running.now()) {
            ended.work.outcome = Some(outcome);
            ended.order.ended_micros = Some(self.root.env().wall_micros());
            works.ended.insert(number, ended);
        }
        while works.ended.len() > ENDED_KEPT {
            works.ended.pop_first();
        }
    }
}

#[async_trait]
impl BackupAdmin for Backups {
    async fn begin(&self, order: BackupOrder) -> ServiceResult<u64> {
        let work = Work::new(self.root.env().clone(), order.bytes_per_second, order.parallel);
        let number = {
            let mut works = self.works.lock();
            if works.is_over {
                let message = "this server does not lead the cluster any more";
                return Err(ServiceError::new(ErrorKind::Unavailable, message));
            }
            if let Some(Running { number, .. }) = &works.running {
                let message = format!("work {number} on backups runs; the server does one at a time");
                return Err(ServiceError::new(ErrorKind::Unavailable, message));
            }
            works.last += 1;
            works.running = Some(Running {
                number: works.last,
                work: work.clone(),
                ordered: ordered(works.last, &order, self.root.env().wall_micros()),
            });
            works.last
        };
        let this = self.this.upgrade().ok_or_else(|| BackupError::Cancelled)?;
        tracing::info!(number, destination = ?order.destination, backup = order.backup, "a work on backups begins");
        self.root.env().spawn_background("backup", async move {
            let outcome = this.run(order, &work).await;
            this.end(number, outcome.map_err(ServiceError::from));
        });
        Ok(number)
    }

    fn work(&self, number: u64) -> ServiceResult<BackupWork> {
        let works = self.works.lock();
        if let Some(running) = works.running.as_ref().filter(|running| running.number == number) {
            return Ok(running.now().work);
        }
        let ended = works.ended.get(&number).map(|ended| ended.work.clone());
        let message =
            "on backups: since then the server was started, or another leads the cluster. The same order continues it";
        ended.ok_or_else(|| ServiceError::not_found(format!("there is no work {number} {message}")))
    }

    fn works(&self) -> Vec<OrderedWork> {
        let works = self.works.lock();
        let running = works.running.iter().map(Running::now);
        running.chain(works.ended.values().rev().cloned()).collect()
    }

    fn cancel(&self, number: u64) -> ServiceResult<()> {
        if let Some(running) = &self.works.lock().running
            && running.number == number
        {
            running.work.cancel();
            return Ok(());
        }
        self.work(number).map(drop)
    }

    async fn restorable(
        &self,
        destination: BackupDestination,
        archive: Option<BackupDestination>,
    ) -> ServiceResult<Vec<(i64, i64)>> {
        let Some(archive) = self.archive(archive).await? else {
            return Ok(Vec::new());
        };
        let destination = self.destination(destination, false).await?;
        Ok(restorable(&destination, &archive).await?)
    }

    async fn list(&self, destination: BackupDestination) -> ServiceResult<Vec<BackupInfo>> {
        let destination = self.destination(destination, false).await?;
        let mut entries = destination.state().await?.backups;
        entries.sort_by_key(|entry| entry.begun_micros);
        let (mut shown, mut backups) = (0, Vec::with_capacity(entries.len()));
        for entry in entries {
            let tables = match entry.is_complete() && shown < SHOWN_TABLES_MAX {
                true => tables_of(&destination, entry.attempt()).await?,
                false => Vec::new(),
            };
            shown += tables.len();
            backups.push(info(entry, tables));
        }
        Ok(backups)
    }
}

/// A work that begins.
fn ordered(number: u64, order: &BackupOrder, begun_micros: i64) -> OrderedWork {
    OrderedWork {
        work: BackupWork {
            number,
            progress: BackupProgress::default(),
            outcome: None,
        },
        order: WorkOrder {
            task: order.task.name().to_owned(),
            backup: order.backup.clone(),
            destination: order.destination.address.clone(),
            begun_micros,
            ended_micros: None,
        },
    }
}

async fn tables_of(destination: &Destination, attempt: u64) -> Result<Vec<TableName>> {
    let record = match destination.record(attempt).await {
        Ok(record) => record,
        // The list is wanted most when something is damaged; `verify` names it.
        Err(error) if error.kind() == ErrorKind::Corruption => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let decoded = record
        .tables
        .iter()
        .filter_map(|table| stele_catalog::record::decode_table(&table.table).ok());
    Ok(decoded.map(|(schema, _)| schema.name).collect())
}

fn info(entry: Entry, tables: Vec<TableName>) -> BackupInfo {
    BackupInfo {
        completed_micros: entry.is_complete().then_some(entry.completed_micros),
        name: entry.name,
        begun_micros: entry.begun_micros,
        tables,
        files: entry.files,
        bytes: entry.bytes,
        copied_bytes: entry.copied_bytes,
    }
}
