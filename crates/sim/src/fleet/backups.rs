//! Backups of the table of a cluster, made and restored while servers fail.
//!
//! An archivist orders backups at a destination in the bucket, and restores tables of them. An order whose work is lost with the
//! leader is given again, to whichever server answers. Each row of a restored table must be as it was at a moment between the first
//! order of its backup and the completion. When all faults are over, every backup is completed, verified and restored. Then all are
//! deleted, and nothing of them may be left.

use super::clients::Clients;
use super::node::SKEW_MICROS_MAX;
use super::nodes::Nodes;
use super::{BACKUPS, Fleet, table_name};
use crate::history::Moment;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use stele_client::{BackupDestination, BackupOrder, BackupOutcome, BackupTask, ServiceError, ServiceResult};
use stele_types::{ErrorKind, TableName};

/// Backups and restores of a run.
const ORDERS_MIN: u64 = 4;
const ORDERS_MAX: u64 = 9;
/// Longest pause between two.
const PAUSE_MS_MAX: u64 = 6_000;
/// Moments of a run to which the table is restored at its end.
const MOMENTS: usize = 3;
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
    /// Restores that were not done in the end.
    given_up: Mutex<usize>,
    /// Moments of the run, where tables are restored to such.
    moments: Option<Arc<Moments>>,
}

impl Archivist {
    pub(super) fn new(fleet: Arc<Fleet>, nodes: Arc<Nodes>, clients: Arc<Clients>) -> Archivist {
        Archivist {
            fleet,
            nodes,
            clients,
            ordered: Mutex::default(),
            named: Mutex::new(0),
            given_up: Mutex::new(0),
            moments: None,
        }
    }

    /// The same for servers that archive their logs.
    pub(super) fn with_archive(fleet: Arc<Fleet>, nodes: Arc<Nodes>, clients: Arc<Clients>) -> Archivist {
        let moments = Moments::follow(fleet.clone(), clients.clone());
        Archivist {
            moments: Some(moments),
            ..Archivist::new(fleet, nodes, clients)
        }
    }

    /// Works on backups for a while.
    pub(super) async fn keep(&self) {
        for _ in 0..ORDERS_MIN + self.fleet.below(ORDERS_MAX - ORDERS_MIN) {
            let pause = Duration::from_millis(self.fleet.below(PAUSE_MS_MAX));
            self.fleet.env.sleep(pause).await;
            let choice = self.fleet.below(3);
            if choice == 1 && self.moments.is_some() {
                let now = self.fleet.env.wall_micros();
                let back = self.fleet.below(20_000_000) as i64;
                self.restore_at(now - back, ATTEMPTS_MIN).await;
                continue;
            }
            match (choice, self.some_complete()) {
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
        let mut names: Vec<String> = self.ordered.lock().keys().cloned().collect();
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
        if self.moments.is_some() {
            self.check_moments().await;
            names.push("last".to_owned());
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

    /// Restores to moments of the run, and to one behind a last backup, which must be possible.
    async fn check_moments(&self) {
        let env = &self.fleet.env;
        let begun = self.run_micros();
        for _ in 0..MOMENTS {
            let span = (env.wall_micros() - begun).max(1) as u64;
            let at = begun + self.fleet.below(span) as i64;
            self.restore_at(at, 1).await;
        }
        // Writes that a server had acknowledged shortly before are in nothing else than the rest of its log.
        let kills = self.fleet.kills.lock().clone();
        for at in kills {
            self.restore_at(at + 3 * SKEW_MICROS_MAX, 1).await;
        }
        self.make("last", ATTEMPTS_MAX).await;
        env.sleep(Duration::from_micros(3 * SKEW_MICROS_MAX as u64)).await;
        let at = env.wall_micros();
        // Until each server has written a part, also an idle one.
        env.sleep(Duration::from_secs(40)).await;
        if !self.restore_at(at, ATTEMPTS_MAX).await {
            self.violate("a moment behind the last backup cannot be restored, although there are no faults".to_owned());
        }
    }

    fn run_micros(&self) -> i64 {
        let first = self.moments.as_ref().and_then(|moments| moments.first());
        first.unwrap_or_else(|| self.fleet.env.wall_micros())
    }

    /// Restores the table to a moment and compares its rows; whether it could be restored.
    async fn restore_at(&self, at: i64, attempts: u32) -> bool {
        let Some(moments) = &self.moments else { return false };
        let target = TableName::new("sim", format!("moment{}", self.number()));
        let task = BackupTask::Restore {
            table: Some(table_name()),
            target: Some(target.clone()),
        };
        let restored = self.try_at(attempts, ("", Some(at)), task).await;
        let is_there = match restored {
            Ok(_) => true,
            Err(error) => error.kind == ErrorKind::AlreadyExists,
        };
        *self.given_up.lock() += usize::from(!is_there);
        let mut is_checked = !is_there;
        if is_there {
            let within = moments.around(at, 2 * SKEW_MICROS_MAX);
            let within = (within.0, within.1.unwrap_or_else(|| self.clients.tick()));
            for _ in 0..attempts {
                is_checked = self.clients.check_copy(&target, within).await;
                if is_checked {
                    self.fleet.verdict.lock().moments += 1;
                    break;
                }
                self.fleet.env.sleep(PAUSE).await;
            }
        }
        self.drop_table(&target).await;
        is_there && is_checked
    }

    async fn check_nothing_is_left(&self) {
        let at = self.fleet.shared.share(BACKUPS, self.fleet.env.clone()).await;
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
        // A restore that was given up leaves its snapshot to the same order.
        let is_of_restore = |name: &str| name.starts_with("restore-");
        let given_up = *self.given_up.lock();
        match listed {
            Ok(left) if left.len() <= given_up && left.iter().all(|left| is_of_restore(&left.name.name)) => {}
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
        *self.given_up.lock() += usize::from(!is_there);
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
        self.try_at(attempts, (backup, None), task).await
    }

    /// The same of a restore to a moment.
    async fn try_at(
        &self,
        attempts: u32,
        (backup, at): (&str, Option<i64>),
        task: BackupTask,
    ) -> ServiceResult<BackupOutcome> {
        let mut last = ServiceError::new(ErrorKind::Unavailable, "no attempt");
        for _ in 0..attempts {
            let done = self.work((backup, at), task.clone()).await;
            self.fleet
                .sim
                .note(&format!("{task:?} of {backup} at {at:?}: {done:?}"));
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
    async fn work(&self, (backup, at): (&str, Option<i64>), task: BackupTask) -> Option<ServiceResult<BackupOutcome>> {
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
            at,
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

/// Times by the clock of the clients, and by the wall clock of none of the servers.
struct Moments(Mutex<Vec<(i64, Moment)>>);

impl Moments {
    /// Notes a moment every second of the run.
    fn follow(fleet: Arc<Fleet>, clients: Arc<Clients>) -> Arc<Moments> {
        let moments = Arc::new(Moments(Mutex::default()));
        let (noting, env) = (moments.clone(), fleet.env.clone());
        fleet.env.spawn("moments", async move {
            loop {
                noting.0.lock().push((env.wall_micros(), clients.tick()));
                env.sleep(PAUSE).await;
            }
        });
        moments
    }

    fn first(&self) -> Option<i64> {
        self.0.lock().first().map(|(micros, _)| *micros)
    }

    /// Moments that are certainly before a time on every server, and after it if there is one.
    fn around(&self, micros: i64, skew: i64) -> (Moment, Option<Moment>) {
        let noted = self.0.lock();
        let before = noted.iter().rev().find(|(at, _)| *at < micros - skew);
        let after = noted.iter().find(|(at, _)| *at > micros + skew);
        (before.map_or(0, |(_, tick)| *tick), after.map(|(_, tick)| *tick))
    }
}

/// Another attempt would end in the same way.
fn is_final(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::AlreadyExists | ErrorKind::NotFound | ErrorKind::InvalidArgument | ErrorKind::Unimplemented
    )
}
