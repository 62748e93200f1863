//! The load of a server and of its tablets.

use super::Assignments;
use stele_client::{Closing, ServerLoad, TabletLoad, unconfirmed};
use stele_types::{Epoch, TabletId};

impl Assignments {
    /// The load now. Tablets that another owner has claimed are given up first.
    pub(crate) async fn load(&self) -> ServerLoad {
        let mut load = ServerLoad {
            memtable_bytes: self.context.memory.bytes(),
            log_bytes: self.log.retained_bytes(),
            ..ServerLoad::default()
        };
        for served in self.tablets.all() {
            let tablet = &served.tablet;
            if tablet.check_open().is_err() {
                self.give_up_lost(tablet.id(), tablet.epoch()).await;
                continue;
            }
            load.tablets.push(TabletLoad {
                tablet: tablet.id(),
                epoch: tablet.epoch(),
                bytes: tablet.state().lasting_bytes(),
                memtable_bytes: served.memtable_bytes(),
                requests: served.traffic.requests_per_second(),
                compaction_debt_bytes: tablet.compaction_debt(),
                logs: self.logs_of(tablet),
            });
        }
        debug_assert!(
            load.tablets
                .windows(2)
                .all(|pair| matches!(pair, [a, b] if a.tablet < b.tablet)),
            "tablets are listed by their identifiers"
        );
        load
    }

    /// Removes a tablet whose next commit found another owner. Its next owner may need the log.
    async fn give_up_lost(&self, tablet: TabletId, epoch: Epoch) {
        if self.sealed.is_none() {
            return;
        }
        let lost = self.close(tablet, epoch, Closing::Abandon, unconfirmed()).await;
        if let Err(error) = lost {
            tracing::debug!(%tablet, %error, "a tablet of another owner is left until the next look");
        }
    }
}
