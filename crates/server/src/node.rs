//! Builds a node: coordinator, catalog, tablet server, master and router.
//!
//! These are all parts between the storage and the front ends.

use crate::encryption::Keys;
use crate::{allocator, backup_destination};
use anyhow::Context;
use std::sync::Arc;
use std::time::Duration;
use stele_backup::archive::{ArchiveMetrics, ArchiveSettings, Archiver};
use stele_backup::{Archives, Backups, DataRoot, Places};
use stele_catalog::{Catalog, EPOCHS, draw_epoch};
use stele_client::{AccessAdmin, BackupAdmin, BackupDestination, Router, SlowCalls, TableAdmin, TableService};
use stele_cluster::ClusterAdmin;
use stele_commitlog::LogClock;
use stele_coord::{Coord, EmbeddedCoord, next_epoch_above};
use stele_env::Env;
use stele_env::metrics::Metrics;
use stele_master::Master;
use stele_settings::{ArchiveConfig, Config, sizes};
use stele_sstable::Cache;
use stele_storage::Storage;
use stele_tabletserver::{MemoryBudget, RecoveryReport, ServerOptions, TabletServer, last_epoch};
use stele_types::{Epoch, ServerId};

/// A running node.
pub struct Node {
    /// The service for data.
    pub service: Arc<dyn TableService>,
    /// The service for administration: the master, which also splits tablets while this value lives.
    pub admin: Arc<dyn TableAdmin>,
    /// The access rules.
    pub rules: Arc<dyn AccessAdmin>,
    /// The tablet server.
    pub server: Arc<TabletServer>,
    /// Makes backups at destinations; `None` in a cluster, whose leader makes them.
    #[allow(dead_code, reason = "owns them: the master refers to them weakly")]
    pub backups: Option<Arc<Backups>>,
    /// Archives the log, if the settings say so.
    pub archiver: Option<Arc<Archiver>>,
    /// The report of recovery.
    pub recovery: RecoveryReport,
    /// The calls that were slow.
    pub slow: Arc<SlowCalls>,
    /// Facts about its cluster, if it is one of a cluster.
    pub cluster: Option<OfCluster>,
}

/// Facts about the cluster of a node.
pub struct OfCluster {
    /// Its administration.
    pub admin: Arc<ClusterAdmin>,
    /// The number of the node.
    pub number: ServerId,
    /// Its number.
    pub cluster: [u8; 16],
    /// Wall-clock microseconds of the start of the node, as the other servers know it.
    pub started_micros: i64,
}

/// An epoch that no server had and that no log has. The counter alone does not suffice: the coordination log may have
/// lost the last epoch.
pub async fn next_server_epoch(coord: &dyn Coord, storage: &dyn Storage) -> anyhow::Result<Epoch> {
    let used = last_epoch(storage).await.context("commit log")?;
    let epoch = next_epoch_above(coord, EPOCHS, used).await.context("coordination")?;
    let epoch = u32::try_from(epoch).ok().filter(|epoch| *epoch < 1 << 24);
    epoch.map(Epoch).context("server epochs are used up")
}

/// The coordinator of a node, and facts that it gave.
struct Coordination {
    /// The coordinator.
    coord: Arc<dyn Coord>,
    /// The epoch of this start. The chain of archived logs went on or ended when it was drawn.
    epoch: Epoch,
    /// The catalog may lack its last change, so tablets that it does not name must stay.
    catalog_in_doubt: bool,
}

/// The block cache and the options of a tablet server with these settings.
pub fn server_parts(config: &Config) -> (Arc<Cache>, ServerOptions) {
    let cache = Arc::new(Cache::new(ServerOptions::block_cache_bytes(config.memory)));
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let options = ServerOptions {
        durability: config.durability,
        tablet_bytes_max: config.tablet_size,
        free_bytes_min: config.free_space_min,
        memory: Some(MemoryBudget {
            resident: Some(Arc::new(sizes::resident_bytes)),
            give_back: Some(Arc::new(allocator::give_back)),
            ..MemoryBudget::new(config.memory)
        }),
        ..ServerOptions::for_machine(config.memory, cores)
    };
    (cache, options)
}

/// Microseconds by which the wall clock may be behind before somebody is told: more than time servers correct.
const CLOCK_BEHIND_MAX: i64 = 60_000_000;

impl Node {
    /// Recovers the data in the storage, with the coordinator that is stored there, and starts serving it. The keys are those of
    /// backups that the server makes.
    pub async fn start(
        env: Env,
        (storage, keys): (Arc<dyn Storage>, Keys),
        config: &Config,
        metrics: &Metrics,
    ) -> anyhow::Result<Node> {
        let coord = EmbeddedCoord::open(storage.clone(), env.clone());
        let (coord, used) = tokio::join!(coord, last_epoch(&*storage));
        let coord = coord.context("coordination")?;
        let used = used.context("commit log")?;
        let archives = config.archive_log.is_some();
        let epoch = draw_epoch(&*coord, used, archives).await;
        let epoch = Epoch(epoch.context("coordination")?);
        let in_doubt = coord.was_torn();
        if in_doubt {
            tracing::warn!(
                "the coordination log ends with a torn record: a transaction that was not acknowledged, unless it is damage; \
                 tablets that it does not name are left for the next start"
            );
        }
        let coordination = Coordination {
            coord,
            epoch,
            catalog_in_doubt: in_doubt,
        };
        Node::start_with(env, (storage, keys), coordination, config, metrics).await
    }

    /// The same with that coordinator.
    async fn start_with(
        env: Env,
        (storage, keys): (Arc<dyn Storage>, Keys),
        coordination: Coordination,
        config: &Config,
        metrics: &Metrics,
    ) -> anyhow::Result<Node> {
        let Coordination {
            coord,
            epoch,
            catalog_in_doubt,
        } = coordination;
        let catalog = Arc::new(Catalog::load(coord).await.context("catalog")?);
        let (cache, options) = server_parts(config);
        // Before anything of the log can be deleted: it would be missing in the archive.
        if config.archive_log.is_some() {
            catalog.inherit_archived_log(epoch.0).await.context("catalog")?;
        }
        let clock = clock(&env, &catalog).await?;
        let options = ServerOptions {
            catalog_in_doubt,
            log_clock: config.archive_log.as_ref().map(|_| clock.clone()),
            ..options
        };
        let (server, recovery) = TabletServer::start(env.clone(), storage, &catalog, epoch, cache, options, metrics)
            .await
            .context("recovery")?;
        let master = Master::new(env.clone(), catalog.clone(), server.clone());
        master.keep_deleted_for(config.keep_deleted);
        master.start_splitting();
        let times = clock.clone();
        master.take_times_from(Arc::new(move || times.now()));
        let root = DataRoot::new(env.clone(), catalog.clone(), master.clone(), server.clone()).with_clock(clock);
        let archives = Places::new(backup_destination::opener_of_archives(env.clone(), keys.clone()));
        let archiver = archive(&env, &catalog, &server, (&archives, config), metrics).await?;
        let backups = Backups::new(root, backup_destination::opener(env.clone(), keys)).with_archives(Archives {
            places: archives,
            own: config.archive_log.as_ref().map(place_of),
        });
        let makes_backups: Arc<dyn BackupAdmin> = backups.clone();
        master.set_backups(Arc::downgrade(&makes_backups));
        let slow = Arc::new(SlowCalls::new(config.slow_call));
        let service = Arc::new(Router::noting(env, catalog, server.clone(), slow.clone()));
        Ok(Node {
            service,
            rules: master.clone(),
            backups: Some(backups),
            archiver,
            admin: master,
            server,
            recovery,
            cluster: None,
            slow,
        })
    }
}

impl Node {
    /// Archives the end of the log of a server that has stopped. The next start archives the rest.
    pub async fn finish_archive(&self, env: &Env, wait_max: Duration) {
        if let Some(archiver) = &self.archiver
            && env.timeout(wait_max, archiver.finish()).await.is_err()
        {
            tracing::warn!("the archive lacks the end of the log until the next start");
        }
    }
}

/// The clock of the log and of backups. It goes on where that of the last owner was.
async fn clock(env: &Env, catalog: &Catalog) -> anyhow::Result<Arc<LogClock>> {
    let noted = catalog.noted_moment().await.context("catalog")?;
    let behind = noted.saturating_sub(env.wall_micros());
    if behind > CLOCK_BEHIND_MAX {
        tracing::warn!(
            behind_seconds = behind / 1_000_000,
            "the wall clock was set back: the times of backups and of the archived log stand still until it has caught up"
        );
    }
    Ok(LogClock::new(env.clone(), noted))
}

fn place_of(archive: &ArchiveConfig) -> BackupDestination {
    BackupDestination {
        address: archive.address.clone(),
        options: archive.options.clone(),
    }
}

/// The archive of these settings.
pub fn archive_settings(archive: &ArchiveConfig) -> ArchiveSettings {
    ArchiveSettings {
        place: place_of(archive),
        interval: archive.interval,
        waiting_bytes_max: archive.waiting_bytes_max,
    }
}

/// Begins to archive the log, if the settings say so.
async fn archive(
    env: &Env,
    catalog: &Arc<Catalog>,
    server: &TabletServer,
    (places, config): (&Arc<Places>, &Config),
    metrics: &Metrics,
) -> anyhow::Result<Option<Arc<Archiver>>> {
    let Some((archive, log)) = config.archive_log.as_ref().zip(server.archived_log()) else {
        return Ok(None);
    };
    let settings = archive_settings(archive);
    let metrics = ArchiveMetrics::new(metrics);
    let archiver = Archiver::new(env.clone(), catalog.clone(), log, places.clone(), settings, metrics);
    let archiver = archiver.await.context("archive of the log")?;
    archiver.start();
    Ok(Some(archiver))
}
