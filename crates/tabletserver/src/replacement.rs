//! Replacements of tablets run on the server here; the master decides them in the catalog.
//!
//! A replacement has two halves, between which the catalog changes. The first shuts the old tablets to writers and makes the
//! new ones: two over the files of one (`split`), one over the files of several, or empty ones. The second,
//! [`Replacements::finish`], serves the new tablets, or drops them and opens the old ones again.
//!
//! Invariants:
//! * A tablet has at most one prepared replacement, and its gate is shut as long as that exists.
//! * The new tablets of a replacement have the rows of the old ones, each row once.

use crate::error::from_tablet;
use crate::lifecycle::Lifecycle;
use crate::maintenance::UnreadFiles;
use crate::parts::Parts;
use crate::tablets::{Served, Shut, Tablets};
use crate::times::Times;
use crate::work::{Compactions, FlushDemand};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stele_client::ServiceResult;
use stele_env::metrics::IntCounter;
use stele_tablet::Tablet;
use stele_types::{Epoch, RowRange, TableSchema, TabletId};

/// A replacement between its halves.
pub(crate) struct Prepared {
    /// The tablets that are replaced.
    pub(crate) old: Vec<TabletId>,
    /// Those that replace them, not served yet.
    pub(crate) new: Vec<Arc<Tablet>>,
    /// Keep writers out of the old ones.
    pub(crate) gates: Vec<Shut>,
    /// Counts it when it is done.
    pub(crate) counter: Option<IntCounter>,
    /// The new ones have the schema of a snapshot, and not that of the old ones.
    pub(crate) is_restore: bool,
}

/// The prepared replacements, and how they end.
pub(crate) struct Replacements {
    tablets: Arc<Tablets>,
    lifecycle: Arc<Lifecycle>,
    unread: Arc<UnreadFiles>,
    flushes: Arc<FlushDemand>,
    compactions: Arc<Compactions>,
    merges: IntCounter,
    times: Option<Arc<Times>>,
    /// By the first of the old tablets, with a number that no other preparation here has.
    prepared: Mutex<BTreeMap<TabletId, (u64, Prepared)>>,
    preparations: AtomicU64,
    /// The new tablets of replacements, from the preparation until they are served or gone.
    coming: Mutex<BTreeMap<TabletId, Epoch>>,
}

impl Replacements {
    /// Of the tablets of a server. Files of new tablets that could not be opened are left to `unread`.
    pub(crate) fn new(parts: &Parts, lifecycle: Arc<Lifecycle>, unread: Arc<UnreadFiles>) -> Self {
        Replacements {
            tablets: parts.tablets.clone(),
            lifecycle,
            unread,
            flushes: parts.flushes.clone(),
            compactions: parts.compactions.clone(),
            merges: parts.metrics.merges.clone(),
            times: parts.times.clone(),
            prepared: Mutex::default(),
            preparations: AtomicU64::new(0),
            coming: Mutex::default(),
        }
    }

    /// Keeps a replacement until its outcome is known.
    pub(crate) fn keep(&self, prepared: Prepared) {
        let first = *prepared.old.first().expect("a replacement replaces a tablet at least");
        let coming = prepared.new.iter().map(|tablet| (tablet.id(), tablet.epoch()));
        self.coming.lock().extend(coming);
        let number = self.preparations.fetch_add(1, Ordering::Relaxed);
        let former = self.prepared.lock().insert(first, (number, prepared));
        assert!(
            former.is_none(),
            "a tablet has one replacement at a time: its gate is shut until that is finished"
        );
    }

    /// The first tablet of each replacement whose outcome is not known here, with the number of the preparation.
    pub(crate) fn prepared(&self) -> Vec<(TabletId, u64)> {
        let prepared = self.prepared.lock();
        prepared.iter().map(|(first, (number, _))| (*first, *number)).collect()
    }

    /// Whether a replacement of a tablet is prepared.
    pub(crate) fn replaces(&self, tablet: TabletId) -> bool {
        let prepared = self.prepared.lock();
        prepared.values().any(|(_, prepared)| prepared.old.contains(&tablet))
    }

    /// The number of the preparation that begins with a tablet.
    pub(crate) fn number_of(&self, first: TabletId) -> Option<u64> {
        let number = self.prepared.lock().get(&first).map(|(number, _)| *number);
        let next = self.preparations.load(Ordering::Relaxed);
        assert!(
            number.is_none_or(|number| number < next),
            "numbers of preparations ascend"
        );
        number
    }

    /// The new tablets of replacements whose outcome is not carried out yet, with their epochs.
    pub(crate) fn coming(&self) -> BTreeMap<TabletId, Epoch> {
        self.coming.lock().clone()
    }

    /// Makes one tablet over the files of neighbours, in row order.
    pub(crate) async fn prepare_merge(&self, old: Vec<TabletId>, merged: TabletId) -> ServiceResult<()> {
        let served: Vec<Arc<Served>> = old
            .iter()
            .map(|id| self.tablets.served(*id))
            .collect::<ServiceResult<_>>()?;
        // In the order of a split, and for its reasons: compactions, most of the memtables, writers, the rest.
        let _held: Vec<_> = old.iter().map(|id| self.compactions.hold_majors(*id)).collect();
        let mut stopped = Vec::with_capacity(served.len());
        for part in &served {
            stopped.push(part.tablet.stop_compactions().await);
        }
        for part in &served {
            part.tablet.flush().await.map_err(from_tablet)?;
        }
        let mut gates = Vec::with_capacity(served.len());
        for part in &served {
            gates.push(Shut::shut(part).await);
            part.tablet.check_open().map_err(from_tablet)?;
            part.tablet.flush().await.map_err(from_tablet)?;
        }
        if let Some(times) = &self.times {
            times.leave().await?;
        }
        let parts: Vec<&Tablet> = served.iter().map(|part| &*part.tablet).collect();
        let manifest = Tablet::join(&parts, merged).await.map_err(from_tablet)?;
        let schema = parts.first().map(|part| part.schema()).expect("several are merged");
        let tablet = self.lifecycle.create(schema, manifest).await.map_err(from_tablet)?;
        tablet.learn_from_parts(&parts);
        drop(stopped);
        self.keep(Prepared {
            old,
            new: vec![tablet],
            gates,
            counter: Some(self.merges.clone()),
            is_restore: false,
        });
        Ok(())
    }

    /// Makes empty tablets for all rows of a table. Damaged tablets are replaced, too.
    pub(crate) async fn prepare_truncation(
        &self,
        schema: Arc<TableSchema>,
        old: Vec<TabletId>,
        empty: Vec<(TabletId, RowRange)>,
    ) -> ServiceResult<()> {
        let (new, made) = self.lifecycle.make_empty(schema, empty).await;
        if let Err(error) = made {
            self.lifecycle.discard(new).await;
            return Err(error);
        }
        let mut gates = Vec::with_capacity(old.len());
        for served in old.iter().filter_map(|id| self.tablets.served(*id).ok()) {
            gates.push(Shut::shut(&served).await);
        }
        self.keep(Prepared {
            old,
            new,
            gates,
            counter: None,
            is_restore: false,
        });
        Ok(())
    }

    /// Serves the new tablets of a replacement that is `committed`, and the old ones otherwise; removes the others.
    pub(crate) async fn finish(&self, first: TabletId, committed: bool) {
        // The master may ask again after an answer was lost.
        let prepared = self.prepared.lock().remove(&first);
        if let Some((_, prepared)) = prepared {
            self.end(prepared, committed).await;
        }
    }

    /// The same of one preparation: its tablets may be prepared once more meanwhile.
    pub(crate) async fn finish_preparation(&self, first: TabletId, number: u64, committed: bool) {
        let prepared = match self.prepared.lock().entry(first) {
            Entry::Occupied(found) if found.get().0 == number => found.remove().1,
            _ => return,
        };
        self.end(prepared, committed).await;
    }

    async fn end(&self, prepared: Prepared, committed: bool) {
        let Prepared {
            old,
            new,
            gates,
            counter,
            is_restore,
        } = prepared;
        let came: Vec<TabletId> = new.iter().map(|tablet| tablet.id()).collect();
        if committed {
            // The new ones first: between the two a row is found in either.
            let served = old.iter().find_map(|id| self.tablets.served(*id).ok());
            let schema = served.map(|served| served.tablet.schema()).filter(|_| !is_restore);
            for tablet in &new {
                if let Some(schema) = &schema {
                    tablet.set_schema(schema.clone());
                }
                // Under a schema that came while nobody had told this server of the outcome.
                self.lifecycle.serve(tablet.clone());
                self.unread.note_unopened(tablet);
            }
            self.lifecycle.drop_all(old).await;
            if let Some(counter) = counter {
                counter.inc();
            }
        } else {
            self.lifecycle.discard(new).await;
        }
        drop(gates);
        let mut coming = self.coming.lock();
        coming.retain(|tablet, _| !came.contains(tablet));
        drop(coming);
        self.flushes.wake();
    }
}
