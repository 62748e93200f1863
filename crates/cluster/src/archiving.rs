//! Archives of the logs of a cluster.
//!
//! Each server archives its own log (docs/adr/0048-archives-of-a-cluster.md). The leader archives the changes of tables, and the rest of the logs of servers that
//! have ended. The coordinator knows the servers whose logs are archived, the chain of the archive of the tables, and the newest moment.
//!
//! Invariants:
//! * A server is noted before it may get a tablet, and its record stays until the archive of the tables names its end.
//! * Log that is not archived goes only after its gap is counted.
//! * The chain ends when a server joins or leads that does not archive its log at the same place.
//!
//! Modules: [`notes`]: in the coordinator. [`rest`]: logs of servers that have ended.

mod notes;
mod rest;

use crate::local::Local;
use crate::records::{self, ARCHIVED_CHAIN, LifeRecord, NUMBERS};
use notes::{ClusterLives, CoordNotes, Subject};
use std::sync::Arc;
use stele_backup::Places;
use stele_backup::archive::{ArchiveMetrics, ArchiveSettings, Archiver, Chain, ClusterArchive, Life, LifeOf, TablesOf};
use stele_catalog::{Catalog, CatalogError, next_moment, noted_moment};
use stele_client::{BackupDestination, ServiceError};
use stele_commitlog::LogClock;
use stele_coord::{Condition, Coord, CoordError, Txn, TxnOutcome, Write, next_epoch};
use stele_env::Env;
use stele_tabletserver::TabletServer;
use stele_types::{Epoch, ServerId};

pub(crate) use notes::CoordMoments;
pub(crate) use rest::Rests;

/// The archive of a cluster, as a server knows it.
#[derive(Clone)]
pub struct Archiving {
    /// Opens places.
    pub places: Arc<Places>,
    /// Of its own log; `None` if it does not archive it.
    pub own: Option<ArchiveSettings>,
    /// Counts.
    pub metrics: ArchiveMetrics,
}

impl Archiving {
    /// The archive of the cluster.
    pub(crate) fn archive(&self) -> Option<(ClusterArchive, &ArchiveSettings)> {
        let settings = self.own.as_ref()?;
        let archive = ClusterArchive::new(self.places.clone(), settings.place.clone());
        Some((archive, settings))
    }

    /// The place of the own log.
    pub(crate) fn place(&self) -> Option<BackupDestination> {
        self.own.as_ref().map(|settings| settings.place.clone())
    }
}

/// A server of this process that archives its log.
pub(crate) struct OwnLife {
    pub(crate) clock: Arc<LogClock>,
    pub(crate) record: LifeRecord,
}

impl OwnLife {
    /// Begins with a moment that is after all that were noted; `None` where the log is not archived.
    pub(crate) async fn begin(
        env: &Env,
        coord: &dyn Coord,
        archiving: &Archiving,
    ) -> Result<Option<OwnLife>, CatalogError> {
        let Some(settings) = &archiving.own else {
            return Ok(None);
        };
        let clock = LogClock::new(env.clone(), 0);
        let from_micros = next(coord, &clock).await?;
        let record = LifeRecord {
            place: settings.place.address.clone(),
            from_micros,
            ..LifeRecord::default()
        };
        Ok(Some(OwnLife { clock, record }))
    }

    /// Once it is noted: a leader that did not find it has noted a moment before, and nothing here gets an earlier time.
    pub(crate) async fn noted(&self, coord: &dyn Coord) -> Result<(), CatalogError> {
        self.clock.raise(noted_moment(coord).await?);
        Ok(())
    }

    /// Begins to archive the log.
    pub(crate) async fn archive(
        &self,
        env: &Env,
        (coord, catalog): (&Arc<dyn Coord>, &Catalog),
        server: &TabletServer,
        number: ServerId,
        archiving: &Archiving,
    ) -> Result<Option<Arc<Archiver>>, CatalogError> {
        let (Some((archive, settings)), Some(log)) = (archiving.archive(), server.archived_log()) else {
            return Ok(None);
        };
        let of = LifeOf {
            root: catalog.root_id([env.random_u64(), env.random_u64()]).await?,
            life: life(number, &self.record),
            notes: Arc::new(CoordNotes {
                coord: coord.clone(),
                of: Subject::Log(number),
            }),
        };
        let settings = (&archive, settings.clone());
        let archiver = Archiver::of_life(env.clone(), log, of, settings, archiving.metrics.clone());
        archiver.start();
        Ok(Some(archiver))
    }
}

/// A life in the words of the archive.
fn life(server: ServerId, record: &LifeRecord) -> Life {
    Life {
        server: server.0,
        from_micros: record.from_micros,
        ended_micros: record.ended_micros,
        gaps: record.gaps,
    }
}

/// Notes a moment that is after all that were noted.
async fn next(coord: &dyn Coord, clock: &LogClock) -> Result<i64, CatalogError> {
    next_moment(coord, |after| {
        clock.raise(after);
        clock.now()
    })
    .await
}

/// Archives of a term of a leader.
pub(crate) struct TermArchives {
    archiver: Option<Arc<Archiver>>,
}

impl TermArchives {
    /// Begins to archive the tables. A leader that does not ends the chain, before it changes anything.
    pub(crate) async fn begin(
        local: &Local,
        (coord, catalog): (&Arc<dyn Coord>, &Arc<Catalog>),
        fence: Condition,
        archiving: &Archiving,
    ) -> Result<TermArchives, String> {
        let text = |error: CatalogError| error.to_string();
        let own = archiving.archive().zip(local.server.archived_log());
        let Some(((archive, settings), log)) = own else {
            end_chain(&**coord, fence).await.map_err(|error| error.to_string())?;
            return Ok(TermArchives { archiver: None });
        };
        // Above the numbers of former terms, so of two leaders the later one writes.
        let epoch = next_epoch(&**coord, NUMBERS).await.map_err(|error| error.to_string())?;
        let epoch = u32::try_from(epoch).map_err(|_| "epochs are used up".to_owned())?;
        // The notes of this leader have later times than those of former ones.
        next(&**coord, log.clock()).await.map_err(text)?;
        let chain = coord.get(ARCHIVED_CHAIN).await.map_err(|error| error.to_string())?;
        let env = &local.env;
        let of = TablesOf {
            root: catalog
                .root_id([env.random_u64(), env.random_u64()])
                .await
                .map_err(text)?,
            catalog: catalog.clone(),
            chain: chain.and_then(|chain| Chain::try_from(&chain.value[..]).ok()),
            notes: Arc::new(CoordNotes {
                coord: coord.clone(),
                of: Subject::Tables(env.clone(), fence.clone()),
            }),
            lives: Arc::new(ClusterLives {
                coord: coord.clone(),
                place: archive.address().to_owned(),
                fence,
            }),
        };
        let log = log.without_log(Epoch(epoch));
        let settings = (&archive, settings.clone());
        let archiver = Archiver::of_tables(env.clone(), log, of, settings, archiving.metrics.of_tables()).await;
        let archiver = archiver.map_err(|error| error.to_string())?;
        archiver.start();
        Ok(TermArchives {
            archiver: Some(archiver),
        })
    }

    /// The term is over.
    pub(crate) fn end(&self) {
        if let Some(archiver) = &self.archiver {
            archiver.stop();
        }
    }
}

async fn end_chain(coord: &dyn Coord, fence: Condition) -> Result<(), CoordError> {
    if coord.get(ARCHIVED_CHAIN).await?.is_none() {
        return Ok(());
    }
    tracing::warn!("this leader does not archive its log: moments from here on cannot be restored");
    let key = ARCHIVED_CHAIN.to_owned();
    let txn = Txn {
        conditions: vec![fence],
        writes: vec![Write::Delete { key }],
    };
    match coord.txn(txn).await? {
        TxnOutcome::Committed { .. } => Ok(()),
        TxnOutcome::Conflict { key } => Err(CoordError::BadValue {
            key,
            expected: "that this server leads",
            found: "another one".to_owned(),
        }),
    }
}

/// A failure of the coordinator, for a caller of a service.
fn from_coord(error: &CoordError) -> ServiceError {
    ServiceError::new(error.kind(), error.to_string())
}

/// The record of a server that archives its log; the error says that it cannot be read.
fn record(value: &[u8]) -> Result<LifeRecord, ServiceError> {
    records::decode(value).map_err(|error| {
        let message = format!("the record of a server that archives its log cannot be read: {error}");
        ServiceError::new(stele_types::ErrorKind::Corruption, message)
    })
}
