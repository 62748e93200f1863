//! The traits of the service interface.

use crate::backup::{BackupDestination, BackupInfo, BackupOrder, BackupWork, OrderedWork, no_backups};
use crate::bulk_load::{BulkLoad, LoadTarget, Loaded};
use crate::cluster::ClusterStatus;
use crate::error::{ServiceError, ServiceResult};
use crate::request::{
    CompactionState, FamilyChange, GroupChange, MutateRows, NewTable, ReadRows, RowSample, ServerPlace, TableGroups,
    TableUpdate, TabletInfo, TabletPlace,
};
use crate::row_operation::{RowOperation, RowOutcome, RowsOperation};
use crate::snapshot::{NewSnapshot, SnapshotCopy, SnapshotInfo, SnapshotName, SnapshotUpdate};
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;
use stele_types::{
    ErrorKind, RowBatch, RowRange, ServerId, Switches, SwitchesChange, TableName, TableSchema, TabletId,
};

/// The interface through which every front end serves its tables. Reads and writes of a disabled table are
/// `FailedPrecondition`; a read that runs already ends with that error at its next batch.
#[async_trait]
pub trait TableService: Send + Sync + 'static {
    /// A number that changes when any schema or tablet changes, so that answers about them can be kept until then. `None`
    /// when the service cannot tell. Costs little.
    fn version(&self) -> Option<u64> {
        None
    }

    /// The table's current schema; `NotFound` when there is no such table. Never blocks on I/O.
    fn schema(&self, table: &TableName) -> ServiceResult<Arc<TableSchema>>;

    /// Starts a read. The filter is compiled, and its errors are reported, before this returns.
    async fn read_rows(&self, request: ReadRows) -> ServiceResult<Box<dyn RowStream>>;

    /// The whole result of a read of one row that need not wait: a row in memory is read on the calling thread,
    /// without a stream. `None` for any other read; [`TableService::read_rows`] answers those, and gives the same
    /// result for this one.
    fn try_read_row(&self, request: &ReadRows) -> ServiceResult<Option<RowBatch>> {
        let _ = request;
        Ok(None)
    }

    /// Writes rows; one result per row, in the order of the request. The outer error is for the request as a whole.
    async fn mutate_rows(&self, request: MutateRows) -> ServiceResult<Vec<ServiceResult<()>>>;

    /// Writes rows of one tablet together: no reader sees some of them, and after a crash all are there or none.
    /// `FailedPrecondition` when the rows are of several tablets; nothing has happened then.
    async fn mutate_rows_together(&self, request: MutateRows) -> ServiceResult<()>;

    /// Reads and writes one row, atomically.
    async fn row_operation(&self, request: RowOperation) -> ServiceResult<RowOutcome>;

    /// Reads and writes rows of one tablet, atomically; whether all conditions held. `FailedPrecondition` when the rows are of
    /// several tablets, `Unimplemented` when their tablet is on another server.
    async fn rows_operation(&self, request: RowsOperation) -> ServiceResult<bool>;

    /// Whether the caller may load cells of these families into a tablet, which is asked before files are opened for it. Layers
    /// that know no rights allow everything.
    fn check_load(&self, target: &LoadTarget) -> ServiceResult<()> {
        let _ = target;
        Ok(())
    }

    /// Loads sorted cells into one tablet. `Unavailable` when the tablet is not on this server, or not any more.
    async fn bulk_load(&self, load: BulkLoad) -> ServiceResult<Loaded> {
        let _ = load;
        Err(ServiceError::new(
            ErrorKind::Unimplemented,
            "bulk loads are not supported",
        ))
    }

    /// Rows that cut the range into pieces of about equal size, ascending; tablet boundaries are always among them.
    /// The last sample is the empty row, for the end of the range, with the total.
    async fn sample_row_keys(&self, table: &TableName, range: RowRange) -> ServiceResult<Vec<RowSample>>;

    /// The tablet that holds a row now. Never blocks on I/O.
    fn place_of(&self, table: &TableName, row: &[u8]) -> ServiceResult<TabletPlace>;

    /// The tablets of a table in row order, without their sizes. Never blocks on I/O.
    fn places(&self, table: &TableName) -> ServiceResult<Vec<TabletPlace>>;

    /// The other servers of the cluster; none where there is one server.
    fn other_servers(&self) -> Vec<Arc<ServerPlace>> {
        Vec::new()
    }

    /// The tablets of a table in row order.
    async fn tablets(&self, table: &TableName) -> ServiceResult<Vec<TabletInfo>>;
}

/// Rows as they become available. Dropping it ends the read.
#[async_trait]
pub trait RowStream: Send + 'static {
    /// The next rows, or `None` at the end. A batch may be without rows when a filter let nothing through for a while;
    /// its `scanned_through` then still tells how far the read has come. Batches are bounded to about 1 MB, or one row.
    async fn next(&mut self) -> ServiceResult<Option<RowBatch>>;

    /// The same within `room`, which is made larger for a row that takes more, unless that may come in pieces
    /// ([`BatchReservation::takes_partial_rows`]). Streams that are read elsewhere, or put together by others, need not look at it.
    async fn next_within(&mut self, room: &mut dyn BatchReservation) -> ServiceResult<Option<RowBatch>> {
        let _ = room;
        self.next().await
    }

    /// Blocks of files that the read has waited for so far, for the log of slow calls; 0 where that is not known, as of a
    /// read on another server.
    fn blocks_read(&self) -> u64 {
        0
    }
}

/// Memory that is set aside for a batch before it is read.
#[async_trait]
pub trait BatchReservation: Send {
    /// How much there is.
    fn bytes(&self) -> usize;

    /// Whether a large row may come as partial rows: [`RowBatch::continues`]. Otherwise, or if its filter must see it
    /// as a whole, it comes whole and takes as much memory as it needs.
    fn takes_partial_rows(&self) -> bool {
        false
    }

    /// Releases the reservation, which must be empty, and waits for one of this size. A size that no waiting would
    /// give is `ResourceExhausted`; a wait that takes too long is `Busy`.
    async fn renew(&mut self, bytes: usize) -> ServiceResult<()>;
}

/// Administration of tables and namespaces. A change is durable, and visible to every later call, when it returns.
#[async_trait]
pub trait TableAdmin: Send + Sync + 'static {
    /// Makes a table; `AlreadyExists` when the name is taken.
    async fn create_table(&self, table: NewTable) -> ServiceResult<Arc<TableSchema>>;

    /// Drops a table and its data; `FailedPrecondition` when it is protected.
    async fn delete_table(&self, table: &TableName) -> ServiceResult<()>;

    /// Changes a table's own settings.
    async fn update_table(&self, table: &TableName, update: TableUpdate) -> ServiceResult<Arc<TableSchema>>;

    /// Changes families, all or nothing.
    async fn modify_families(&self, table: &TableName, changes: Vec<FamilyChange>) -> ServiceResult<Arc<TableSchema>>;

    /// The locality groups of a table.
    async fn groups(&self, table: &TableName) -> ServiceResult<TableGroups>;

    /// Changes locality groups, and which families are in them, all or nothing.
    async fn modify_groups(&self, table: &TableName, changes: Vec<GroupChange>) -> ServiceResult<TableGroups>;

    /// Deletes all rows of a range immediately, and leaves no tombstones for readers to step over.
    async fn drop_row_range(&self, table: &TableName, range: RowRange) -> ServiceResult<()>;

    /// Writes the memtables of all tablets of a table, or of one, to files; returns when they are durable. `NotFound` when
    /// the table has no such tablet.
    async fn flush(&self, table: &TableName, tablet: Option<TabletId>) -> ServiceResult<()>;

    /// Requests a compaction of all tablets of a table, or of one, and returns immediately. A `major` one rewrites all files
    /// of each locality group into one run, without deleted cells; another one runs if it is worth its writes. A tablet has
    /// one pending major compaction at most. `NotFound` when the table has no such tablet, `ResourceExhausted` for a major
    /// one while the disk is full.
    async fn compact(&self, table: &TableName, tablet: Option<TabletId>, major: bool) -> ServiceResult<()>;

    /// The compactions of each tablet of a table, in row order.
    async fn compactions(&self, table: &TableName) -> ServiceResult<Vec<(TabletId, CompactionState)>>;

    /// Splits a tablet before the row `at`, or in its middle, and returns the halves. `InvalidArgument` when the row is not
    /// the tablet's or is its first. `FailedPrecondition` when it has too few rows for a middle, or splits are switched off.
    /// `NotFound` when the table has no such tablet, or not any more.
    async fn split(
        &self,
        table: &TableName,
        tablet: TabletId,
        at: Option<Bytes>,
    ) -> ServiceResult<(TabletId, TabletId)>;

    /// Makes one tablet of 2 to 16 neighbours, given in any order. `InvalidArgument` when they are no neighbours, `NotFound`
    /// when the table has no such tablets, `FailedPrecondition` when merges are switched off.
    async fn merge(&self, table: &TableName, tablets: Vec<TabletId>) -> ServiceResult<TabletId>;

    /// Deletes all rows of a table and keeps its schema. New tablets replace its tablets, with their boundaries if
    /// `keep_tablets`, or else one. A running read fails, or goes on in the empty table.
    async fn truncate(&self, table: &TableName, keep_tablets: bool) -> ServiceResult<()>;

    /// Takes a snapshot of a table. It has every write that was acknowledged before this call, and none that is acknowledged
    /// after it returned; of each tablet, it is the state at one moment. `AlreadyExists` when the name is taken, `NotFound`
    /// when there is no such table.
    async fn create_snapshot(&self, snapshot: NewSnapshot) -> ServiceResult<Arc<SnapshotInfo>>;

    /// Makes another snapshot of the same rows.
    async fn copy_snapshot(&self, copy: SnapshotCopy) -> ServiceResult<Arc<SnapshotInfo>>;

    /// The snapshots of a namespace by name, or all by namespace and name.
    async fn list_snapshots(&self, namespace: Option<&str>) -> ServiceResult<Vec<Arc<SnapshotInfo>>>;

    /// A snapshot; `NotFound` when there is none of this name.
    async fn snapshot(&self, name: &SnapshotName) -> ServiceResult<Arc<SnapshotInfo>>;

    /// Changes the expiry or the data of a snapshot.
    async fn update_snapshot(&self, name: &SnapshotName, update: SnapshotUpdate) -> ServiceResult<Arc<SnapshotInfo>>;

    /// Deletes a snapshot. Files that nothing else needs are deleted in the background.
    async fn delete_snapshot(&self, name: &SnapshotName) -> ServiceResult<()>;

    /// Makes a table of a snapshot, enabled and without deletion protection. No row is copied. The front end's data of the
    /// table are those of the snapshot's, unless others are given. `AlreadyExists` when the name of the table is taken.
    async fn clone_snapshot(
        &self,
        name: &SnapshotName,
        table: &TableName,
        front_end_data: Option<Vec<u8>>,
    ) -> ServiceResult<Arc<TableSchema>>;

    /// Replaces the rows, the tablets and the families of a table by those of a snapshot, in one step. The table stays enabled
    /// or disabled. `FailedPrecondition` when it is protected against deletion.
    async fn restore_snapshot(&self, name: &SnapshotName, table: &TableName) -> ServiceResult<Arc<TableSchema>>;

    /// Tables that the server keeps although they were deleted, or something of them was dropped: as snapshots that it has taken
    /// by itself, and deletes at their expiry. Of a namespace by name, or all.
    async fn kept_tables(&self, namespace: Option<&str>) -> ServiceResult<Vec<Arc<SnapshotInfo>>> {
        let _ = namespace;
        Ok(Vec::new())
    }

    /// Makes a deleted table again as it was, enabled. `NotFound` when none of this name is kept, `AlreadyExists` when another has
    /// taken its name.
    async fn undelete_table(&self, table: &TableName) -> ServiceResult<Arc<TableSchema>> {
        Err(ServiceError::not_found(format!(
            "no table {table} was deleted that is still kept"
        )))
    }

    /// The schemas of all tables of a namespace, by name; empty for an unknown namespace.
    async fn list_tables(&self, namespace: &str) -> ServiceResult<Vec<Arc<TableSchema>>>;

    /// Makes a namespace with data the front end wants back; `AlreadyExists` when it was made before. A namespace that
    /// only came into being with a table does not count as made.
    async fn create_namespace(&self, namespace: &str, front_end_data: Vec<u8>) -> ServiceResult<()>;

    /// Replaces a namespace's data, which the caller has read as `former`; `Aborted` when it is other data by now, `NotFound`
    /// when there is no such namespace.
    async fn update_namespace(&self, namespace: &str, former: Bytes, front_end_data: Vec<u8>) -> ServiceResult<()>;

    /// Drops a namespace with all its tables; `FailedPrecondition` when one of them is protected, or when it has any and is to be
    /// dropped only if it is empty.
    async fn delete_namespace(&self, namespace: &str, only_if_empty: bool) -> ServiceResult<()>;

    /// A namespace's data; empty for one that came into being with a table. `None` when there is no such namespace.
    async fn namespace(&self, namespace: &str) -> ServiceResult<Option<Bytes>>;

    /// All namespaces with their data, by name.
    async fn list_namespaces(&self) -> ServiceResult<Vec<(String, Bytes)>>;

    /// Begins a work on backups at a destination, and returns its number: [`crate::BackupAdmin::begin`]. `Unimplemented` where
    /// the server makes none, also of the calls on backups below.
    async fn begin_backup_work(&self, order: BackupOrder) -> ServiceResult<u64> {
        let _ = order;
        Err(no_backups())
    }

    /// A work on backups: [`crate::BackupAdmin::work`].
    async fn backup_work(&self, number: u64) -> ServiceResult<BackupWork> {
        let _ = number;
        Err(no_backups())
    }

    /// The last works on backups: [`crate::BackupAdmin::works`].
    async fn backup_works(&self) -> ServiceResult<Vec<OrderedWork>> {
        Err(no_backups())
    }

    /// Calls a work on backups off: [`crate::BackupAdmin::cancel`].
    async fn cancel_backup_work(&self, number: u64) -> ServiceResult<()> {
        let _ = number;
        Err(no_backups())
    }

    /// The backups at a destination: [`crate::BackupAdmin::list`].
    async fn list_backups(&self, destination: BackupDestination) -> ServiceResult<Vec<BackupInfo>> {
        let _ = destination;
        Err(no_backups())
    }

    /// The times in which moments can be restored: [`crate::BackupAdmin::restorable`].
    async fn restorable_times(
        &self,
        destination: BackupDestination,
        archive: Option<BackupDestination>,
    ) -> ServiceResult<Vec<(i64, i64)>> {
        let _ = (destination, archive);
        Err(no_backups())
    }

    /// The work that servers do by themselves.
    async fn switches(&self) -> ServiceResult<Switches> {
        Ok(Switches::default())
    }

    /// Switches such work on or off; the positions before. They outlive servers.
    async fn set_switches(&self, change: SwitchesChange) -> ServiceResult<Switches> {
        let _ = change;
        Err(ServiceError::new(
            ErrorKind::Unimplemented,
            "this server has no switches",
        ))
    }

    /// Servers and tablets of the cluster. `FailedPrecondition` where there is one server, also of the two calls below.
    async fn cluster_status(&self) -> ServiceResult<ClusterStatus> {
        Err(no_cluster())
    }

    /// Has a tablet move to another server, and returns when the move is recorded. `NotFound` when there is no such tablet or
    /// server.
    async fn move_tablet(&self, tablet: TabletId, to: ServerId) -> ServiceResult<()> {
        let _ = (tablet, to);
        Err(no_cluster())
    }

    /// Has all tablets move away from a server, or lets it have tablets again.
    async fn drain_server(&self, server: ServerId, drains: bool) -> ServiceResult<()> {
        let _ = (server, drains);
        Err(no_cluster())
    }
}

fn no_cluster() -> ServiceError {
    ServiceError::new(ErrorKind::FailedPrecondition, "this server is not one of a cluster")
}
