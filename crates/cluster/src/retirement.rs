//! The end of the candidacy of a server that is about to stop.
//!
//! It leads no more, and is not elected again. Another server leads immediately, and need not find the process of this one gone.

use tokio::sync::watch;

/// How far the end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Stands,
    Asked,
    Retired,
}

/// The wish to retire, and its fulfilment.
pub(crate) struct Retirement(watch::Sender<Stage>);

impl Retirement {
    pub(crate) fn new() -> Retirement {
        Retirement(watch::Sender::new(Stage::Stands))
    }

    /// Asks the server to retire; completes when it has.
    pub(crate) async fn ask(&self) {
        self.reach(Stage::Asked);
        self.reached(Stage::Retired).await;
    }

    /// Completes when the server is to retire.
    pub(crate) async fn is_asked(&self) {
        self.reached(Stage::Asked).await;
    }

    /// Notes that the server neither leads nor can be elected.
    pub(crate) fn complete(&self) {
        self.reach(Stage::Retired);
    }

    fn reach(&self, next: Stage) {
        self.0.send_modify(|stage| *stage = next.max(*stage));
    }

    async fn reached(&self, wanted: Stage) {
        let mut stages = self.0.subscribe();
        // The sender is here, so it does not end.
        let _ = stages.wait_for(|stage| *stage >= wanted).await;
    }
}
