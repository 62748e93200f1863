//! The load of a server and of its tablets, and the calls of the master that reach [`Assignments`].

use super::Assignments;
use crate::server::TabletServer;
use async_trait::async_trait;
use stele_client::{Assignment, Closing, ServerLoad, ServiceError, ServiceResult, TabletAssignments, TabletLoad};
use stele_env::Priority;
use stele_types::{Epoch, ErrorKind, FilesInUse, TabletId};

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
                mutations: tablet.next_sequence().counter().saturating_sub(1),
                compaction_debt_bytes: tablet.compaction_debt(),
                logs: self.logs_of(tablet),
            });
        }
        debug_assert!(
            load.tablets.windows(2).all(|pair| matches!(pair, [a, b] if a.tablet < b.tablet)),
            "tablets are listed by their identifiers"
        );
        load
    }

    /// Removes a tablet whose next commit found another owner. Its next owner may need the log.
    async fn give_up_lost(&self, tablet: TabletId, epoch: Epoch) {
        if self.sealed.is_none() {
            return;
        }
        let lost = self.close(tablet, epoch, Closing::Abandon).await;
        if let Err(error) = lost {
            tracing::debug!(%tablet, %error, "a tablet of another owner is left until the next look");
        }
    }
}

fn stopped() -> ServiceError {
    ServiceError::new(ErrorKind::Aborted, "the server stopped before the tablet was opened or closed")
}

/// Openings and closings are tasks of their own: they are not stopped half-way when their caller goes away.
#[async_trait]
impl TabletAssignments for TabletServer {
    async fn open_tablets(&self, assignments: Vec<Assignment>) -> Vec<ServiceResult<()>> {
        let (count, of_server) = (assignments.len(), self.assignments.clone());
        let open = async move { of_server.open(assignments).await };
        let opened = self.env().spawn_join(Priority::Foreground, "open tablets", open).await;
        opened.unwrap_or_else(|_| vec![Err(stopped()); count])
    }

    async fn close_tablet(&self, tablet: TabletId, epoch: Epoch, closing: Closing) -> ServiceResult<()> {
        let of_server = self.assignments.clone();
        let close = async move { of_server.close(tablet, epoch, closing).await };
        let closed = self.env().spawn_join(Priority::Foreground, "close a tablet", close).await;
        closed.unwrap_or_else(|_| Err(stopped()))
    }

    async fn load(&self) -> ServiceResult<ServerLoad> {
        Ok(self.assignments.load().await)
    }

    async fn files_in_use(&self) -> ServiceResult<FilesInUse> {
        Ok(self.parts.context.files.in_use())
    }
}
