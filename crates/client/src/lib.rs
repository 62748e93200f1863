//! The service interface of the system, and the way from rows to tablets.
//!
//! Front ends translate their protocol into [`TableService`] and know nothing below it. [`router::Router`] implements
//! its data half. It finds the tablets of a request in the catalog, calls the [`TabletService`] of the server that owns
//! each, and continues where a tablet has split or moved in between. [`scanner::ScannerRegistry`] adds scanners with
//! leases, for protocols whose scans span requests. The router notes [`slow`] calls.
#![forbid(unsafe_code)]

pub mod access;
pub mod assignment;
pub mod backup;
pub mod bulk_load;
pub mod cancellation;
pub mod cluster;
pub mod error;
pub mod figures;
mod namespace_change;
pub mod request;
pub mod router;
pub mod row_operation;
pub mod scanner;
pub mod service;
pub mod slow;
pub mod snapshot;
pub mod tablets;

pub use access::AccessAdmin;
pub use assignment::{Assignment, Closing, Confirm, ServerLoad, TabletAssignments, TabletLoad, unconfirmed};
pub use backup::{
    BackupAdmin, BackupDestination, BackupInfo, BackupOrder, BackupOutcome, BackupProgress, BackupTask, BackupWork,
    OrderedWork, WorkOrder,
};
pub use bulk_load::{BulkLoad, LoadSource, LoadTarget, Loaded, SortedCells};
pub use cancellation::{CancelOnDrop, Cancellation};
pub use cluster::{ClusterCheck, ClusterStatus, ServerStatus, TabletStatus};
pub use error::{ServiceError, ServiceResult};
pub use figures::{TabletFigures, TabletOperations, TabletStorage};
pub use namespace_change::ChangeAttempts;
pub use request::{
    CompactionState, FamilyChange, GroupChange, GroupUpdate, MutateRows, NewFamily, NewTable, ReadRows, RowSample,
    ServerPlace, TableGroups, TableUpdate, TabletInfo, TabletPlace, ViewChange,
};
pub use router::{Router, Servers};
pub use row_operation::{
    CellsTest, Condition, ConditionTest, EncodedTest, RmwOperation, RmwRule, RowOperation, RowOutcome, RowsOperation,
    Step, TestDecoder,
};
pub use scanner::{ScannerId, ScannerRegistry};
pub use service::{BatchReservation, RowStream, TableAdmin, TableService};
pub use slow::{CallKind, SlowCall, SlowCalls};
pub use snapshot::{
    NewSnapshot, SnapshotCopy, SnapshotFiles, SnapshotInfo, SnapshotName, SnapshotTablet, SnapshotUpdate,
};
pub use tablets::{
    SplitPolicy, TabletControl, TabletRead, TabletRowOperation, TabletRowsOperation, TabletSample, TabletService,
};
