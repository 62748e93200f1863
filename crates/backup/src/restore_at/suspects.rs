//! Changes in the logs of a cluster of tablets whose table is not known.
//!
//! A tablet that was made and replaced between two parts of the leader's archive is in none of them. Its table would lack the change.

use super::refusals::ownerless;
use crate::archive::memory::RestoreMemory;
use crate::archive::orphans::{Orphan, Orphans};
use crate::archive::{Archive, Range};
use crate::error::{BackupError, Result};
use crate::work::Work;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Tablets of other tables than those of the backup that are remembered during a restore: some 50 MB of memory at most.
const SUSPECTS_MAX: usize = 1 << 20;

/// Unknown tablets, each with the time of its first change.
pub(crate) type Found = BTreeMap<u64, i64>;

/// The known tablets, and the archive that may know others.
pub(crate) struct Suspects {
    pub(crate) orphans: Orphans,
    /// The parts with changes of tables, and the first that was read.
    pub(crate) range: Range,
    pub(crate) first: u64,
    /// When the backup was begun, and when it was complete.
    pub(crate) begun: i64,
    pub(crate) completed: i64,
}

impl Suspects {
    /// Notes a change of a tablet if its table is not known.
    pub(crate) fn note(&self, tablet: u64, micros: i64, found: &mut Found) -> Result<()> {
        if micros < self.begun || self.orphans.knows(tablet) {
            return Ok(());
        }
        let first = found.entry(tablet).or_insert(micros);
        *first = micros.min(*first);
        match found.len() > SUSPECTS_MAX {
            true => Err(BackupError::TooMuch(format!(
                "the log has changes of more than {SUSPECTS_MAX} tablets of tables that the backup does not have"
            ))),
            false => Ok(()),
        }
    }

    /// Fails if a change is perhaps one of the tables of the backup.
    pub(crate) async fn judge(
        &self,
        found: Found,
        (archive, memory): (&Archive, &RestoreMemory),
        work: &Arc<Work>,
    ) -> Result<()> {
        if found.is_empty() {
            return Ok(());
        }
        let found = found.into_iter().map(|(tablet, micros)| Orphan { micros, tablet });
        let range = (&self.range, self.first);
        match self
            .orphans
            .resolve(found.collect(), (archive, memory), range, work)
            .await?
        {
            Some(orphan) => Err(ownerless(orphan, self.completed)),
            None => Ok(()),
        }
    }
}
