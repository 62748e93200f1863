//! Times of records of a tablet ascend, whichever servers it has been on.
//!
//! Where servers share the data root and archive their logs, their clocks differ, and a tablet moves between them. A server notes a moment
//! before a tablet leaves it, and before a tablet is replaced by others. The next owner moves its clock to the noted moment, and to
//! the times in the logs that it replays, before it serves the tablet.

use crate::roots::Moments;
use std::sync::Arc;
use stele_client::ServiceResult;
use stele_commitlog::LogClock;

/// The clock of the log of a server, and the moments that all servers know.
pub(crate) struct Times {
    clock: Arc<LogClock>,
    moments: Arc<dyn Moments>,
}

impl Times {
    pub(crate) fn new(clock: Arc<LogClock>, moments: Arc<dyn Moments>) -> Times {
        Times { clock, moments }
    }

    /// Before a tablet is served: moves the clock behind all times of its records. `replayed` is the newest time in the logs that were replayed. A
    /// segment that is not there any more was let go after a moment behind it was noted, so the noted one is read now.
    pub(crate) async fn follow(&self, replayed: i64) -> ServiceResult<()> {
        let noted = self.moments.noted().await?;
        self.clock.raise(replayed.max(noted));
        let now = self.clock.now();
        assert!(
            now >= replayed,
            "no later record gets an earlier time than one that was replayed"
        );
        assert!(
            now >= noted,
            "no later record gets an earlier time than one of a former owner"
        );
        Ok(())
    }

    /// Before others take a tablet over, and when its writers have ended: none of its records has a later time than the noted one.
    pub(crate) async fn leave(&self) -> ServiceResult<()> {
        self.moments.note(self.clock.now()).await
    }
}
