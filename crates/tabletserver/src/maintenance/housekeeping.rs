//! Housekeeping deletes obsolete files and log segments, and notices disk space and damage. It also runs the slower
//! rounds.

use super::{AFTER_FAILURE, Compactor, FilterChooser, Gauges, IDLE, UnreadFiles};
use crate::admission::Admission;
use crate::log::CommitLog;
use crate::parts::Parts;
use crate::stopping::Stopping;
use crate::tablets::Tablets;
use std::sync::Arc;
use std::time::Duration;
use stele_env::Env;
use stele_env::metrics::IntCounterVec;
use stele_storage::Storage;
use stele_tablet::{FileRegistry, TokenMemory};
use tokio::sync::Notify;

/// Checks between two reports: a second.
const CHECKS_PER_REPORT: u32 = 5;
/// Checks after which devices are asked again for bytes that they could not read: a minute.
const CHECKS_PER_TRY: u32 = 60 * CHECKS_PER_REPORT;
/// Checks after which filters in memory are chosen again, where there is no memory for all: five seconds.
const CHECKS_PER_CHOICE: u32 = 5 * CHECKS_PER_REPORT;
/// How long data read ahead for a scan is kept while its reader does not come for more: a client that only computes
/// between two batches mostly does sooner.
const READER_IDLE: Duration = Duration::from_secs(2);

/// Two loops: one deletes obsolete files, one does everything else.
pub(crate) struct Housekeeper {
    env: Env,
    storage: Arc<dyn Storage>,
    files: Arc<FileRegistry>,
    tablets: Arc<Tablets>,
    log: Arc<CommitLog>,
    admission: Arc<Admission>,
    tokens: TokenMemory,
    log_bytes_max: u64,
    /// Reads that met damage, by file.
    corruption: IntCounterVec,
    stopping: Stopping,
    rounds: Rounds,
    /// Wakes the loop: a flush has made log segments superfluous.
    tidy: Arc<Notify>,
}

/// The services that have their turn from time to time.
pub(crate) struct Rounds {
    pub(crate) compactor: Arc<Compactor>,
    pub(crate) filters: Arc<FilterChooser>,
    pub(crate) unread: Arc<UnreadFiles>,
    pub(crate) gauges: Arc<Gauges>,
}

impl Housekeeper {
    /// Of a server. `tidy` wakes it.
    pub(crate) fn new(parts: &Parts, rounds: Rounds, tidy: Arc<Notify>) -> Self {
        Housekeeper {
            env: parts.context.env.clone(),
            storage: parts.context.storage.clone(),
            files: parts.context.files.clone(),
            tablets: parts.tablets.clone(),
            log: parts.log.clone(),
            admission: parts.admission.clone(),
            tokens: parts.context.tokens.clone(),
            log_bytes_max: parts.options.log_bytes_max,
            corruption: parts.metrics.corruption.clone(),
            stopping: parts.stopping.clone(),
            rounds,
            tidy,
        }
    }

    /// Starts the loops; they end when the server stops.
    pub(crate) fn start(self: &Arc<Self>) {
        let keeper = self.clone();
        self.env
            .spawn_background("delete", async move { keeper.delete_loop().await });
        let keeper = self.clone();
        self.env
            .spawn_background("housekeeping", async move { keeper.housekeeping_loop().await });
    }

    /// Deletes obsolete files as they become obsolete, or as their last readers let go. Concurrently with everything else: a
    /// device may take a tenth of a second for a file, and compactions make many within a moment.
    async fn delete_loop(&self) {
        while !self.stopping.is_stopping() {
            match self.files.delete_obsolete().await {
                // Writers may be waiting for the space.
                Ok(1..) if self.admission.is_disk_full() => self.tidy.notify_one(),
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%error, "obsolete sstables left over");
                    self.env.sleep(AFTER_FAILURE).await;
                }
            }
            let _ = self.env.timeout(IDLE, self.files.obsolete_noted()).await;
        }
    }

    async fn housekeeping_loop(&self) {
        let (mut checks, mut delete_from) = (0u32, Duration::ZERO);
        while !self.stopping.is_stopping() {
            self.admission.check_disk(&self.storage).await;
            if self.env.now() >= delete_from
                && let Err(error) = self.log.delete_unneeded().await
            {
                tracing::warn!(%error, "log segment left over");
                delete_from = self.env.now() + AFTER_FAILURE;
            }
            self.check_unflushable_log();
            self.rounds.compactor.check_some();
            // Work that visits every file or tablet has its turn less often.
            if checks.is_multiple_of(CHECKS_PER_REPORT) {
                self.report();
            }
            checks = checks.wrapping_add(1);
            if checks.is_multiple_of(CHECKS_PER_CHOICE) {
                self.rounds.filters.begin();
            }
            if checks.is_multiple_of(CHECKS_PER_TRY) {
                self.rounds.unread.begin();
            }
            let _ = self.env.timeout(IDLE, self.tidy.notified()).await;
        }
    }

    fn report(&self) {
        self.rounds.gauges.update();
        self.report_damage();
        self.rounds.compactor.check_for_space();
        let served = self.tablets.all();
        let fair_tokens = self.tokens.fair_part(served.len());
        for served in served {
            served.tablet.drop_readahead(READER_IDLE);
            served.tablet.forget_tokens(fair_tokens);
        }
    }

    /// Sees whether the log keeps more than it may for tablets whose flush fails.
    fn check_unflushable_log(&self) {
        let kept = self.log.bytes_kept_growing(&self.admission.unflushable.tablets());
        self.admission.unflushable.set_kept(kept, self.log_bytes_max);
    }

    /// Counts how often readers met damage since the last check, and logs each damaged file once.
    fn report_damage(&self) {
        for damaged in self.files.damaged() {
            let path = damaged.file.path();
            let counter = self.corruption.with_label_values(&[&path]);
            if counter.get() == 0 {
                tracing::error!(error = %damaged.error, "a file is damaged; `stele check` says more");
            }
            counter.inc_by(damaged.times_met.saturating_sub(counter.get()));
        }
    }
}
