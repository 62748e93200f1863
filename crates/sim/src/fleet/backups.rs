//! Backups of the table of a cluster, made and restored while servers fail.
//!
//! An archivist orders backups at a destination in the bucket, and restores tables of them. An order whose work is lost with the
//! leader is given again, to whichever server answers. Each row of a restored table must be as it was at a moment between the first
//! order of its backup and the completion. When all faults are over, every backup is completed, verified and restored. Then all are
//! deleted, and nothing of them may be left.

use super::clients::Clients;
use super::nodes::Nodes;
use super::{BACKUPS, Fleet, table_name};
use crate::history::Moment;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use stele_client::{BackupDestination, BackupOrder, BackupOutcome, BackupTask, ServiceError, ServiceResult};
use stele_objects::{Client, ObjectStorage};
use stele_storage::Storage;
use stele_types::{ErrorKind, TableName};

/// Backups and restores of a run.
const ORDERS_MIN: u64 = 4;
const ORDERS_MAX: u64 = 9;
/// Longest pause between two.
const PAUSE_MS_MAX: u64 = 6_000;
/// Attempts at one during faults; and when they are over.
const ATTEMPTS_MIN: u32 = 6;
const ATTEMPTS_MAX: u32 = 60;
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_secs(1);
/// Pause between two questions about a work, and most of them: a work during faults takes minutes.
const ASKED_EVERY: Duration = Duration::from_millis(300);
const ASKED_MAX: u32 = 1_000;

/// A backup that was ordered.
#[derive(Clone, Copy, Debug)]
struct Ordered {
    began: Moment,
    /// When it was known to be complete.
    ended: Option<Moment>,
}

/// Orders backups and restores.
pub(super) struct Archivist {
    fleet: Arc<Fleet>,
    nodes: Arc<Nodes>,
    clients: Arc<Clients>,
    ordered: Mutex<BTreeMap<String, Ordered>>,
    /// Backups and tables that have got a name.
    named: Mutex<u64>,
}

impl Archivist {
    pub(super) fn new(fleet: Arc<Fleet>, nodes: Arc<Nodes>, clients: Arc<Clients>) -> Archivist {
        Archivist {
            fleet,
            nodes,
            clients,
            ordered: Mutex::default(),
            named: Mutex::new(0),
        }
    }

    /// Works on backups for a while.
    pub(super) async fn keep(&self) {
        for _ in 0..ORDERS_MIN + self.fleet.below(ORDERS_MAX - ORDERS_MIN) {
            let pause = Duration::from_millis(self.fleet.below(PAUSE_MS_MAX));
            self.fleet.env.sleep(pause).await;
            match (self.fleet.below(3), self.some_complete()) {
                (0, Some((name, ordered))) => drop(self.restore(&name, ordered, ATTEMPTS_MIN).await),
                _ => {
                    let name = format!("b{}", self.number());
                    self.make(&name, ATTEMPTS_MIN).await;
                }
            }
        }
    }

    /// Completes, checks and deletes all backups, when there are no faults.
    pub(super) async fn check_everything(&self) {
        let names: Vec<String> = self.ordered.lock().keys().cloned().collect();
        for name in &names {
            self.make(name, ATTEMPTS_MAX).await;
            let Some(ordered) = self.ordered.lock().get(name).copied().filter(|it| it.ended.is_some()) else {
                self.violate(format!(
                    "backup {name} is never completed, although there are no faults"
                ));
                continue;
            };
            match self.try_for(ATTEMPTS_MAX, name, BackupTask::Verify).await {
                Ok(found) if found.damage.is_empty() => {}
                Ok(found) => self.violate(format!("backup {name} is damaged: {:?}", found.damage)),
                Err(error) => self.violate(format!("backup {name} is not verified: {error}")),
            }
            if !self.restore(name, ordered, ATTEMPTS_MAX).await {
                self.violate(format!(
                    "backup {name} cannot be restored, although there are no faults"
                ));
            }
        }
        for name in &names {
            if let Err(error) = self.try_for(ATTEMPTS_MAX, name, BackupTask::Delete).await
                && error.kind != ErrorKind::NotFound
            {
                self.violate(format!("backup {name} cannot be deleted: {error}"));
            }
        }
        self.check_nothing_is_left().await;
    }

    async fn check_nothing_is_left(&self) {
        let client: Arc<dyn Client> = Arc::new(self.fleet.bucket.clone());
        let at = ObjectStorage::shared_client(client, BACKUPS, self.fleet.env.clone()).await;
        let Ok(at) = at else {
            return self.violate("the destination cannot be opened, although there are no faults".to_owned());
        };
        for place in ["files/", "backups/"] {
            match at.list(place).await {
                Ok(left) if left.is_empty() => {}
                left => self.violate(format!("all backups are deleted, and these are left: {left:?}")),
            }
        }
        let listed = self
            .nodes
            .administer(|admin| async move { admin.list_snapshots(None).await })
            .await;
        match listed {
            Ok(left) if left.is_empty() => {}
            left => self.violate(format!(
                "all backups are deleted, and these snapshots are left: {left:?}"
            )),
        }
    }

    fn violate(&self, what: String) {
        self.fleet.violate(what);
    }

    fn number(&self) -> u64 {
        let mut named = self.named.lock();
        *named += 1;
        *named
    }

    fn some_complete(&self) -> Option<(String, Ordered)> {
        let ordered = self.ordered.lock();
        let complete: Vec<_> = ordered.iter().filter(|(_, it)| it.ended.is_some()).collect();
        let count = complete.len() as u64;
        let chosen = (count > 0).then(|| self.fleet.below(count) as usize)?;
        complete.get(chosen).map(|(name, it)| ((*name).clone(), **it))
    }

    /// Makes a backup, or completes one.
    async fn make(&self, name: &str, attempts: u32) {
        let now = self.clients.tick();
        let began = Ordered {
            began: now,
            ended: None,
        };
        if self
            .ordered
            .lock()
            .entry(name.to_owned())
            .or_insert(began)
            .ended
            .is_some()
        {
            return;
        }
        let tables = vec![table_name()];
        let made = self.try_for(attempts, name, BackupTask::Create { tables }).await;
        let is_complete = match &made {
            Ok(_) => true,
            // A work that was lost may have done it.
            Err(error) => error.kind == ErrorKind::AlreadyExists,
        };
        let ended = self.clients.tick();
        if let Some(ordered) = self.ordered.lock().get_mut(name).filter(|_| is_complete) {
            ordered.ended = Some(ended);
        }
    }

    /// Makes a table of a backup and compares its rows; whether all were read.
    async fn restore(&self, name: &str, ordered: Ordered, attempts: u32) -> bool {
        let target = TableName::new("sim", format!("restored{}", self.number()));
        let task = BackupTask::Restore {
            table: Some(table_name()),
            target: Some(target.clone()),
        };
        let is_there = match self.try_for(attempts, name, task).await {
            Ok(_) => true,
            Err(error) => error.kind == ErrorKind::AlreadyExists,
        };
        let mut is_checked = false;
        if let (true, Some(ended)) = (is_there, ordered.ended) {
            for _ in 0..attempts {
                is_checked = self.clients.check_copy(&target, (ordered.began, ended)).await;
                if is_checked {
                    break;
                }
                self.fleet.env.sleep(PAUSE).await;
            }
        }
        self.drop_table(&target).await;
        is_checked
    }

    async fn drop_table(&self, table: &TableName) {
        for _ in 0..ATTEMPTS_MAX {
            let target = table.clone();
            let answer = self
                .nodes
                .administer(|admin| async move { admin.delete_table(&target).await })
                .await;
            match answer {
                Ok(()) => return,
                Err(error) if error.kind == ErrorKind::NotFound => return,
                Err(_) => self.fleet.env.sleep(PAUSE).await,
            }
        }
    }

    /// Gives an order until its work is done, or refused for good.
    async fn try_for(&self, attempts: u32, backup: &str, task: BackupTask) -> ServiceResult<BackupOutcome> {
        let mut last = ServiceError::new(ErrorKind::Unavailable, "no attempt");
        for _ in 0..attempts {
            let done = self.work(backup, task.clone()).await;
            self.fleet.sim.note(&format!("{task:?} of {backup}: {done:?}"));
            match done {
                Some(Err(error)) if error.kind == ErrorKind::Corruption => {
                    self.violate(format!("{task:?} of {backup} met corruption: {error}"));
                    return Err(error);
                }
                Some(Err(error)) if is_final(error.kind) => return Err(error),
                Some(Err(error)) => last = error,
                Some(Ok(outcome)) => return Ok(outcome),
                None => {}
            }
            self.fleet.env.sleep(PAUSE).await;
        }
        Err(last)
    }

    /// Orders a work and waits for its end; `None` if it is lost with its leader.
    async fn work(&self, backup: &str, task: BackupTask) -> Option<ServiceResult<BackupOutcome>> {
        let order = BackupOrder {
            destination: BackupDestination {
                address: BACKUPS.to_owned(),
                options: Vec::new(),
            },
            backup: backup.to_owned(),
            task,
            bytes_per_second: None,
            parallel: 2,
            digests: true,
            at: None,
            archive: None,
        };
        let begun = self
            .nodes
            .administer(|admin| async move { admin.begin_backup_work(order).await })
            .await;
        let number = match begun {
            Ok(number) => number,
            Err(error) => return Some(Err(error)),
        };
        for _ in 0..ASKED_MAX {
            self.fleet.env.sleep(ASKED_EVERY).await;
            let asked = self
                .nodes
                .administer(|admin| async move { admin.backup_work(number).await })
                .await;
            match asked {
                Ok(work) if work.outcome.is_some() => return work.outcome,
                Err(error) if error.kind == ErrorKind::NotFound => return None,
                _ => {}
            }
        }
        None
    }
}

/// Another attempt would end in the same way.
fn is_final(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::AlreadyExists | ErrorKind::NotFound | ErrorKind::InvalidArgument | ErrorKind::Unimplemented
    )
}
