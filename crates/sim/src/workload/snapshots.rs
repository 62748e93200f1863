//! Snapshots of the shared table under load, and of the table of the administrator.
//!
//! A snapshot of the shared table is like a read of every row between the beginning and the end of the call. Later, when
//! files of that time were compacted away and the server ended a few times, a clone is read. So its rows are checked as
//! those of a read at the time of the snapshot.

use super::Workload;
use super::admin::tablets_of;
use crate::history::Moment;
use bytes::Bytes;
use std::sync::Arc;
use stele_client::{NewSnapshot, ReadRows, ServiceResult, SnapshotName, TableAdmin};
use stele_master::Master;
use stele_types::{Cell, ErrorKind, RowRange, RowSet, TableName};

/// Attempts at reading a clone.
const READS_MAX: u32 = 200;

/// A snapshot of the shared table, and when it was taken.
pub(super) struct Taken {
    name: SnapshotName,
    began: Moment,
    ended: Moment,
}

fn new_snapshot(name: &SnapshotName, table: TableName) -> NewSnapshot {
    NewSnapshot {
        name: name.clone(),
        table,
        flush: true,
        only_of_name: false,
        expires_micros: None,
        front_end_data: Vec::new(),
    }
}

impl Workload {
    /// Takes a snapshot of the shared table, and has its files replaced.
    pub(super) async fn snapshot_under_load(&self, round: u64) -> Result<Taken, String> {
        let name = SnapshotName::new("sim", format!("shared{round}"));
        let began = self.tick();
        self.take(&name, super::table()).await?;
        let ended = self.tick();
        let compact = |master: Arc<Master>| async move { master.compact(&super::table(), None, true).await };
        // A full disk refuses it.
        let node = self.running_node().await;
        let asked = self.ask(&node, compact(node.master.clone())).await;
        self.cluster.sim().note(&format!("compact: {asked:?}"));
        Ok(Taken { name, began, ended })
    }

    async fn take(&self, name: &SnapshotName, table: TableName) -> Result<(), String> {
        let new = new_snapshot(name, table);
        let take = |master: Arc<Master>| {
            let new = new.clone();
            async move { master.create_snapshot(new).await.map(drop) }
        };
        self.until_done("snapshot", Some(ErrorKind::AlreadyExists), take).await
    }

    async fn clone_it(&self, name: &SnapshotName, clone: &TableName) -> Result<(), String> {
        let make = |master: Arc<Master>| {
            let (name, clone) = (name.clone(), clone.clone());
            async move { master.clone_snapshot(&name, &clone, None).await.map(drop) }
        };
        self.until_done("clone", Some(ErrorKind::AlreadyExists), make).await
    }

    async fn drop_snapshot(&self, name: &SnapshotName) -> Result<(), String> {
        let forget = |master: Arc<Master>| {
            let name = name.clone();
            async move { master.delete_snapshot(&name).await }
        };
        self.until_done("delete snapshot", Some(ErrorKind::NotFound), forget)
            .await
    }

    /// Clones a snapshot of the shared table, checks its rows, and deletes both.
    pub(super) async fn check_snapshot(&self, taken: &Taken) -> Result<(), String> {
        let clone = TableName::new("sim", format!("of-{}", taken.name.name));
        self.clone_it(&taken.name, &clone).await?;
        let is_early = self.below(2) == 0;
        if is_early {
            self.drop_snapshot(&taken.name).await?;
        }
        let rows = self.read_slots(&clone).await?;
        for number in 0..super::ROWS {
            let row = Bytes::from(format!("r{number}"));
            let found = rows.iter().find(|(key, _)| *key == row);
            let cells = found.map(|(_, cells)| cells.as_slice()).unwrap_or_default();
            self.check_row(&row, cells, taken.began, taken.ended);
        }
        let drop_clone = |master: Arc<Master>| {
            let clone = clone.clone();
            async move { master.delete_table(&clone).await }
        };
        self.until_done("delete clone", Some(ErrorKind::NotFound), drop_clone)
            .await?;
        match is_early {
            true => Ok(()),
            false => self.drop_snapshot(&taken.name).await,
        }
    }

    /// The rows of slots of a clone, to which nobody writes.
    async fn read_slots(&self, clone: &TableName) -> Result<Vec<(Bytes, Vec<Cell>)>, String> {
        let range = RowRange::prefix(&Bytes::from_static(b"r"));
        for _ in 0..READS_MAX {
            let node = self.node_after_a_pause().await;
            let request = ReadRows::new(clone.clone(), RowSet::new(vec![range.clone()]));
            if let Some(rows) = self.read(&node, request).await {
                return Ok(rows);
            }
        }
        Err(format!("clone {clone} does not respond to reads"))
    }

    /// A table is cloned and restored, and its rows are those of the snapshot each time.
    pub(super) async fn snapshot_table(&self, table: &TableName) -> Result<(), String> {
        let name = SnapshotName::new("sim", table.table.clone());
        let clone = TableName::new("sim", format!("{}-clone", table.table));
        self.take(&name, table.clone()).await?;
        self.change_after_snapshot(table).await?;
        self.clone_it(&name, &clone).await?;
        self.expect(&clone, Some(&["a", "z"])).await?;
        self.put_until_done(&clone, "k").await?;
        let restore = |master: Arc<Master>| {
            let (name, table) = (name.clone(), table.clone());
            async move { master.restore_snapshot(&name, &table).await.map(drop) }
        };
        self.until_done("restore", None, restore).await?;
        self.expect(table, Some(&["a", "z"])).await?;
        self.put_until_done(table, "b").await?;
        self.drop_snapshot(&name).await?;
        self.expect(table, Some(&["a", "b", "z"])).await?;
        self.expect(&clone, Some(&["a", "k", "z"])).await?;
        let drop_clone = |master: Arc<Master>| {
            let clone = clone.clone();
            async move { master.delete_table(&clone).await }
        };
        self.until_done("delete clone", Some(ErrorKind::NotFound), drop_clone)
            .await
    }

    /// Some change by which no tablet refers to the files of a snapshot any more, or to parts of them only.
    async fn change_after_snapshot(&self, table: &TableName) -> Result<(), String> {
        self.put_until_done(table, "m").await?;
        match self.below(3) {
            0 => {
                let truncate = |master: Arc<Master>| {
                    let table = table.clone();
                    async move { master.truncate(&table, false).await }
                };
                self.until_done("truncate", None, truncate).await?;
                self.expect(table, Some(&[])).await
            }
            1 => {
                let compact = |master: Arc<Master>| {
                    let table = table.clone();
                    async move { master.compact(&table, None, true).await }
                };
                self.until_done("compact", None, compact).await?;
                self.expect(table, Some(&["a", "m", "z"])).await
            }
            _ => {
                let split = |master: Arc<Master>| {
                    let table = table.clone();
                    async move { split_at_c(&master, &table).await }
                };
                self.until_done("split", None, split).await?;
                let range = RowRange::prefix(&Bytes::from_static(b"a"));
                let drop_them = |master: Arc<Master>| {
                    let (table, range) = (table.clone(), range.clone());
                    async move { master.drop_row_range(&table, range).await }
                };
                self.until_done("drop rows", None, drop_them).await?;
                self.expect(table, Some(&["m", "z"])).await
            }
        }
    }
}

async fn split_at_c(master: &Master, table: &TableName) -> ServiceResult<()> {
    let at = Some(Bytes::from_static(b"c"));
    let tablets = tablets_of(master, table).await?;
    match tablets.as_slice() {
        // The table begins with a split at `n`.
        [first, _] => master.split(table, *first, at).await.map(drop),
        _ => Ok(()),
    }
}
