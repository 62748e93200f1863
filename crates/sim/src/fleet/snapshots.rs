//! Snapshots of the table of a cluster, taken and used while servers fail.
//!
//! A keeper takes snapshots, copies and deletes them, and lets some expire. It makes tables of them and restores these from
//! others. It deletes the tables, and undoes some of these deletions. Each row of such a table must be as it was at a moment between the beginning and the end of the call that took the
//! snapshot. When all faults are over, each snapshot that was taken and not deleted must be there, and every one that is listed
//! must be whole.

use super::clients::Clients;
use super::nodes::Nodes;
use super::{Fleet, table_name};
use crate::history::Moment;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use stele_client::{NewSnapshot, ServiceError, ServiceResult, SnapshotCopy, SnapshotName};
use stele_types::{ErrorKind, TableName};

/// Calls of a run.
const CALLS_MIN: u64 = 6;
const CALLS_MAX: u64 = 14;
/// Longest pause between two.
const PAUSE_MS_MAX: u64 = 6_000;
/// Lifetimes of snapshots that expire.
const LIFETIME_SECONDS: i64 = 20;
/// Attempts at something that succeeds once the faults are over.
const ATTEMPTS_MAX: u32 = 60;
/// Pause between two of them.
const PAUSE: Duration = Duration::from_secs(1);
const NAMESPACE: &str = "sim";

/// A snapshot that was asked for.
#[derive(Clone, Debug)]
struct Taken {
    /// When the call began.
    began: Moment,
    /// When it was answered; `None` if nobody knows whether the snapshot exists.
    ended: Option<Moment>,
    /// Wall-clock microseconds from which on it may be gone.
    expires: Option<i64>,
    /// A deletion was asked for.
    may_be_gone: bool,
}

/// Takes and uses snapshots.
pub(super) struct Keeper {
    fleet: Arc<Fleet>,
    nodes: Arc<Nodes>,
    clients: Arc<Clients>,
    taken: Mutex<BTreeMap<String, Taken>>,
    /// Snapshots and tables that have got a name.
    named: Mutex<u64>,
    faults_are_over: Mutex<bool>,
}

/// Whether a snapshot could be used.
enum Used {
    /// Its rows were checked.
    Checked,
    /// A fault kept it from that.
    NotNow(ServiceError),
}

impl Keeper {
    pub(super) fn new(fleet: Arc<Fleet>, nodes: Arc<Nodes>, clients: Arc<Clients>) -> Keeper {
        Keeper {
            fleet,
            nodes,
            clients,
            taken: Mutex::default(),
            named: Mutex::new(0),
            faults_are_over: Mutex::new(false),
        }
    }

    /// Works on snapshots for a while.
    pub(super) async fn keep(&self) {
        for _ in 0..CALLS_MIN + self.fleet.below(CALLS_MAX - CALLS_MIN) {
            let pause = Duration::from_millis(self.fleet.below(PAUSE_MS_MAX));
            self.fleet.env.sleep(pause).await;
            match self.fleet.below(10) {
                0..4 => self.take().await,
                4..7 => self.use_some().await,
                7 => self.copy().await,
                8 => self.delete().await,
                _ => drop(self.list().await),
            }
        }
    }

    /// Checks all snapshots, when there are no faults.
    pub(super) async fn check_everything(&self) {
        *self.faults_are_over.lock() = true;
        let Some(listed) = self.list().await else {
            self.fleet
                .violate("snapshots cannot be listed, although there are no faults".to_owned());
            return;
        };
        let (now, taken) = (self.fleet.env.wall_micros(), self.taken.lock().clone());
        for (name, taken) in &taken {
            let is_expired = taken.expires.is_some_and(|at| at + 5_000_000 < now);
            match listed.contains(name) {
                true if is_expired => self
                    .fleet
                    .violate(format!("snapshot {name} has expired and is still there")),
                false if self.must_exist(taken) => self.fleet.violate(format!("snapshot {name} is lost")),
                _ => {}
            }
        }
        for name in listed {
            let Some(taken) = taken.get(&name).filter(|taken| taken.expires.is_none()) else {
                continue;
            };
            let mut used = self.use_one(&name, taken).await;
            for _ in 0..ATTEMPTS_MAX {
                if matches!(used, Used::Checked) {
                    break;
                }
                self.fleet.env.sleep(PAUSE).await;
                used = self.use_one(&name, taken).await;
            }
            if let Used::NotNow(error) = used {
                self.fleet.violate(format!(
                    "snapshot {name} cannot be used, although there are no faults: {error}"
                ));
            }
        }
    }

    fn must_exist(&self, taken: &Taken) -> bool {
        taken.ended.is_some() && taken.expires.is_none() && !taken.may_be_gone
    }

    fn number(&self) -> u64 {
        let mut named = self.named.lock();
        *named += 1;
        *named
    }

    fn some(&self) -> Option<(String, Taken)> {
        let taken = self.taken.lock();
        let count = taken.len() as u64;
        let chosen = (count > 0).then(|| self.fleet.below(count) as usize)?;
        let (name, taken) = taken.iter().nth(chosen)?;
        Some((name.clone(), taken.clone()))
    }

    fn note<T>(&self, what: &str, answer: &ServiceResult<T>) {
        let error = answer.as_ref().err();
        self.fleet.sim.note(&format!("{what}: {error:?}"));
        if let Some(error) = error.filter(|error| error.kind == ErrorKind::Corruption) {
            self.fleet.violate(format!("{what} met corruption: {error}"));
        }
    }

    async fn take(&self) {
        let name = format!("s{}", self.number());
        let now = self.fleet.env.wall_micros();
        let expires = (self.fleet.below(6) == 0).then_some(now + LIFETIME_SECONDS * 1_000_000);
        let new = NewSnapshot {
            name: SnapshotName::new(NAMESPACE, name.clone()),
            table: table_name(),
            flush: true,
            only_of_name: false,
            expires_micros: expires,
            front_end_data: Vec::new(),
        };
        let taken = Taken {
            began: self.clients.tick(),
            ended: None,
            expires,
            may_be_gone: false,
        };
        self.taken.lock().insert(name.clone(), taken);
        let answer = self
            .nodes
            .administer(|admin| async move { admin.create_snapshot(new).await })
            .await;
        self.note(&format!("snapshot {name}"), &answer);
        self.ended(&name, answer.is_ok());
    }

    fn ended(&self, name: &str, is_taken: bool) {
        let ended = self.clients.tick();
        if let Some(taken) = self.taken.lock().get_mut(name).filter(|_| is_taken) {
            taken.ended = Some(ended);
        }
    }

    async fn copy(&self) {
        let Some((source, of_source)) = self.some() else {
            return;
        };
        let name = format!("s{}", self.number());
        let copy = SnapshotCopy {
            source: SnapshotName::new(NAMESPACE, source.clone()),
            name: SnapshotName::new(NAMESPACE, name.clone()),
            expires_micros: None,
            front_end_data: Vec::new(),
        };
        let taken = Taken {
            ended: None,
            expires: None,
            may_be_gone: false,
            ..of_source
        };
        self.taken.lock().insert(name.clone(), taken);
        let answer = self
            .nodes
            .administer(|admin| async move { admin.copy_snapshot(copy).await })
            .await;
        self.note(&format!("copy of {source} as {name}"), &answer);
        self.ended(&name, answer.is_ok());
        // It has the rows of the source, and not those of now.
        if let Some(taken) = self.taken.lock().get_mut(&name)
            && taken.ended.is_some()
        {
            taken.ended = of_source.ended.or(taken.ended);
        }
    }

    async fn delete(&self) {
        let Some((name, taken)) = self.some() else { return };
        if let Some(taken) = self.taken.lock().get_mut(&name) {
            taken.may_be_gone = true;
        }
        let snapshot = SnapshotName::new(NAMESPACE, name.clone());
        let answer = self
            .nodes
            .administer(|admin| async move { admin.delete_snapshot(&snapshot).await })
            .await;
        self.note(&format!("deletion of snapshot {name}"), &answer);
        if answer.is_err_and(|error| error.kind == ErrorKind::NotFound) && self.must_exist(&taken) {
            self.fleet.violate(format!("snapshot {name} is lost"));
        }
    }

    async fn list(&self) -> Option<Vec<String>> {
        for _ in 0..ATTEMPTS_MAX {
            let answer = self
                .nodes
                .administer(|admin| async move { admin.list_snapshots(Some(NAMESPACE)).await })
                .await;
            self.note("list of snapshots", &answer);
            if let Ok(listed) = answer {
                return Some(listed.into_iter().map(|snapshot| snapshot.name.name.clone()).collect());
            }
            self.fleet.env.sleep(PAUSE).await;
        }
        None
    }

    async fn use_some(&self) {
        let Some((name, taken)) = self.some() else { return };
        let used = self.use_one(&name, &taken).await;
        if let Used::NotNow(error) = used
            && error.kind == ErrorKind::NotFound
            && self.must_exist(&taken)
            && !self.taken.lock().get(&name).is_some_and(|taken| taken.may_be_gone)
        {
            self.fleet.violate(format!("snapshot {name} is lost"));
        }
    }

    /// Makes a table of a snapshot, perhaps restores it from another one, and compares its rows.
    async fn use_one(&self, name: &str, taken: &Taken) -> Used {
        let table = TableName::new(NAMESPACE, format!("copy{}", self.number()));
        let (snapshot, target) = (SnapshotName::new(NAMESPACE, name), table.clone());
        let answer = self
            .nodes
            .administer(|admin| async move { admin.clone_snapshot(&snapshot, &target, None).await })
            .await;
        self.note(&format!("table {table} of snapshot {name}"), &answer);
        let mut rows = None;
        let used = match answer {
            Ok(_) => {
                let moments = self.moments(taken);
                let is_read = self.clients.check_copy(&table, moments).await;
                rows = self.restore(&table, moments).await;
                match is_read {
                    true => Used::Checked,
                    false => Used::NotNow(ServiceError::new(ErrorKind::Unavailable, "not all rows can be read")),
                }
            }
            Err(error) => Used::NotNow(error),
        };
        let is_dropped = self.drop_table(&table).await;
        if let Some(moments) = rows.filter(|_| is_dropped && self.fleet.below(2) == 0) {
            self.undelete(&table, moments).await;
        }
        used
    }

    /// Undoes the deletion of a table, compares its rows, and deletes it again. The table may not have been kept, while servers fail.
    async fn undelete(&self, table: &TableName, moments: (Moment, Moment)) {
        let target = table.clone();
        let answer = self
            .nodes
            .administer(|admin| async move { admin.undelete_table(&target).await })
            .await;
        self.note(&format!("undoing the deletion of {table}"), &answer);
        match answer {
            Ok(_) => {
                if self.clients.check_copy(table, moments).await {
                    self.fleet.verdict.lock().undeleted += 1;
                }
            }
            Err(error) if error.kind == ErrorKind::NotFound && self.faults_are_over() => {
                self.fleet
                    .violate(format!("the deletion of {table} cannot be undone: {error}"));
            }
            Err(_) => {}
        }
        self.drop_table(table).await;
    }

    /// Whether nothing keeps a deleted table from being kept.
    fn faults_are_over(&self) -> bool {
        *self.faults_are_over.lock()
    }

    /// The moments between which a snapshot was taken that has just been used. Where its call got no answer, the leader may have
    /// carried it out until now.
    fn moments(&self, taken: &Taken) -> (Moment, Moment) {
        (taken.began, taken.ended.unwrap_or_else(|| self.clients.tick()))
    }

    /// Replaces a table of some moments by another snapshot, half of the time. The moments of its rows then, unless they are unknown.
    async fn restore(&self, table: &TableName, moments: (Moment, Moment)) -> Option<(Moment, Moment)> {
        let Some((name, taken)) = self.some().filter(|_| self.fleet.below(2) == 0) else {
            return Some(moments);
        };
        let (snapshot, target) = (SnapshotName::new(NAMESPACE, name.clone()), table.clone());
        let answer = self
            .nodes
            .administer(|admin| async move { admin.restore_snapshot(&snapshot, &target).await })
            .await;
        self.note(&format!("restore of {table} from {name}"), &answer);
        answer.ok()?;
        let moments = self.moments(&taken);
        self.clients.check_copy(table, moments).await;
        Some(moments)
    }

    /// Whether this call has dropped the table.
    async fn drop_table(&self, table: &TableName) -> bool {
        for _ in 0..ATTEMPTS_MAX {
            let target = table.clone();
            let answer = self
                .nodes
                .administer(|admin| async move { admin.delete_table(&target).await })
                .await;
            self.note(&format!("drop {table}"), &answer);
            match answer {
                Ok(()) => return true,
                Err(error) if error.kind == ErrorKind::NotFound => return false,
                Err(_) => self.fleet.env.sleep(PAUSE).await,
            }
        }
        false
    }
}
