//! The loops that carry out compactions.
//!
//! Work that comes up by itself (cells expire, reads add up) is found by a slow round over all tablets, a few at a time, so
//! that ten thousand idle tablets cost nothing worth mentioning. While the disk is full, all that may shrink are checked, and
//! those first of which most is garbage: each byte written then frees most.

use super::{AFTER_FAILURE, IDLE, note_failure};
use crate::admission::Admission;
use crate::parts::Parts;
use crate::stopping::Stopping;
use crate::tablets::{Served, Tablets};
use crate::work::Compactions;
use parking_lot::Mutex;
use std::ops::Bound;
use std::sync::Arc;
use stele_client::{CompactionState, ServiceError, ServiceResult};
use stele_env::Env;
use stele_env::metrics::IntCounter;
use stele_tablet::{MajorBounds, MajorEnd, Tablet, TabletError};
use stele_types::{ErrorKind, TabletId};

/// Tablets checked every [`IDLE`] by the slow round: ten thousand take a minute and a half a thousandth of a core.
const ROUND_STEP: usize = 32;

/// Compacts tablets.
pub(crate) struct Compactor {
    env: Env,
    tablets: Arc<Tablets>,
    admission: Arc<Admission>,
    compactions: Arc<Compactions>,
    /// Compactions that run concurrently.
    compactions_max: usize,
    failures: IntCounter,
    stopping: Stopping,
    /// The last tablet of the slow round.
    round: Mutex<Option<TabletId>>,
}

/// Whether a compaction failed for want of disk space, which may be there at any moment. Space in the manifest is not.
fn is_for_space(error: &TabletError) -> bool {
    error.kind() == ErrorKind::ResourceExhausted && !matches!(error, TabletError::ManifestTooLarge { .. })
}

impl Compactor {
    /// Of a server.
    pub(crate) fn new(parts: &Parts) -> Self {
        Compactor {
            env: parts.context.env.clone(),
            tablets: parts.tablets.clone(),
            admission: parts.admission.clone(),
            compactions: parts.compactions.clone(),
            compactions_max: parts.options.compactions_max,
            failures: parts.metrics.maintenance_failures.clone(),
            stopping: parts.stopping.clone(),
            round: Mutex::default(),
        }
    }

    /// Starts the loops; they end when the server stops.
    pub(crate) fn start(self: &Arc<Self>) {
        for _ in 0..self.compactions_max {
            let compactor = self.clone();
            self.env
                .spawn_background("compact", async move { compactor.compact_loop().await });
        }
    }

    async fn compact_loop(&self) {
        while !self.stopping.is_stopping() {
            let is_full = self.admission.is_disk_full();
            let urgency = |tablet| {
                self.tablets.served(tablet).map_or(0, |served| match is_full {
                    true => served.tablet.garbage_share(),
                    false => served.tablet.compaction_debt(),
                })
            };
            // One compaction may have all free space; two would share little.
            match self.compactions.begin(is_full, self.env.now(), urgency) {
                Some((tablet, is_second)) => {
                    match self.tablets.served(tablet) {
                        Ok(served) => self.compact_tablet(&served, is_second).await,
                        Err(_) => {
                            self.compactions.forget_failures(tablet);
                            self.compactions.forget_requests(tablet);
                        }
                    }
                    self.compactions.end(tablet);
                }
                None => {
                    let _ = self.env.timeout(IDLE, self.compactions.wanted()).await;
                }
            }
        }
    }

    async fn compact_tablet(&self, served: &Served, is_second: bool) {
        let tablet = &served.tablet;
        if !is_second && self.compactions.begin_major(tablet.id()) {
            let end = self.compact_everything(tablet).await;
            self.compactions.end_major(tablet.id(), end == Some(MajorEnd::Stopped));
            return;
        }
        if !is_second {
            // One file at a time; an error of the device is one that readers of the file meet, too.
            match tablet.warm_next().await {
                Ok(true) => self.compactions.announce(tablet.id()),
                Ok(false) => {}
                Err(error) => tracing::warn!(tablet = %tablet.id(), %error, "a file could not be read into memory"),
            }
        }
        // A compaction without space now is found again by the slow round.
        let compacted = match self.admission.is_disk_full() {
            true => tablet.compact_for_space(self.admission.reservation(1)).await,
            false => {
                let reservation = self.admission.reservation(self.compactions_max);
                tablet.compact_within(reservation).await
            }
        };
        // A second job says nothing of the first, which may be about to fail again.
        if compacted.is_ok() && !is_second {
            self.compactions.forget_failures(tablet.id());
        }
        match compacted {
            Ok(Some(_)) => self.compactions.announce(tablet.id()),
            Ok(None) => {}
            Err(error) => {
                note_failure(&self.failures, "compaction", &error);
                self.compactions
                    .failed(tablet.id(), self.env.now(), is_for_space(&error));
                self.env.sleep(AFTER_FAILURE).await;
            }
        }
    }

    /// Carries out a requested compaction of everything. One that fails, or has too little space, is not tried again: the
    /// first part may be all that it ever gets done.
    async fn compact_everything(&self, tablet: &Tablet) -> Option<MajorEnd> {
        let id = tablet.id();
        let bounds = MajorBounds {
            space: &|| self.admission.reservation(self.compactions_max),
            goes_on: &|| !self.stopping.is_stopping() && self.compactions.major_goes_on(id),
        };
        match tablet.compact_files(&bounds).await {
            Ok(end) => {
                if end == MajorEnd::NoSpace {
                    tracing::warn!(tablet = %id, "too little disk space for the requested major compaction");
                }
                Some(end)
            }
            Err(error) => {
                if !matches!(error, TabletError::Closed { .. }) {
                    self.failures.inc();
                    tracing::error!(tablet = %id, %error, "the requested major compaction failed");
                }
                self.env.sleep(AFTER_FAILURE).await;
                None
            }
        }
    }

    /// Notes a client's request for a compaction; a worker takes it up.
    pub(crate) fn request(&self, tablet: TabletId, major: bool) -> ServiceResult<()> {
        self.tablets.served(tablet)?;
        if major && self.admission.is_disk_full() {
            let message = "the disk is full: only compactions that free space are run";
            return Err(ServiceError::new(ErrorKind::ResourceExhausted, message));
        }
        self.compactions.request(tablet, major);
        Ok(())
    }

    /// The compactions of a tablet that run or were requested.
    pub(crate) fn state(&self, tablet: TabletId) -> ServiceResult<CompactionState> {
        self.tablets.served(tablet)?;
        Ok(self.compactions.state(tablet))
    }

    /// While the disk is full, announces everything that may shrink.
    pub(super) fn check_for_space(&self) {
        if self.admission.is_disk_full() {
            let served = self.tablets.all();
            let shrinks = served.iter().filter(|served| served.tablet.may_shrink());
            shrinks.for_each(|served| self.compactions.announce(served.tablet.id()));
        }
    }

    /// The next step of the slow round.
    pub(super) fn check_some(&self) {
        let mut round = self.round.lock();
        let from = round.map_or(Bound::Unbounded, Bound::Excluded);
        let some = self.tablets.some_from(from, ROUND_STEP);
        let is_wanted = |served: &&Arc<Served>| served.tablet.compaction_due() || served.tablet.wants_warming();
        for served in some.iter().filter(is_wanted) {
            self.compactions.announce(served.tablet.id());
        }
        let whole = some.len() == ROUND_STEP;
        let next = some.last().filter(|_| whole).map(|served| served.tablet.id());
        assert!(
            next.is_none() || next > *round,
            "a round goes up in identifiers until it begins again: {next:?} after {round:?}"
        );
        *round = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_manifest_is_no_want_of_space() {
        let full = stele_storage::StorageError::NoSpace { path: "f".to_owned() };
        assert!(is_for_space(&TabletError::Storage(full)));
        let too_large = TabletError::ManifestTooLarge {
            tablet: TabletId(1),
            bytes: 2,
            limit: 1,
        };
        assert!(!is_for_space(&too_large));
    }
}
