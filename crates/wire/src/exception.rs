//! Java classes of the exceptions in servers' responses that a client acts on.
//!
//! The class decides the client's reaction: it locates the region again, waits, opens the scanner again, or gives up. A
//! Java client treats a class that it cannot load as [`DO_NOT_RETRY`], so only names of real classes make sense.

/// The region is not (or no longer) served there.
pub const NOT_SERVING_REGION: &str = "org.apache.hadoop.hbase.NotServingRegionException";
/// The region has moved; the text says where to.
pub const REGION_MOVED: &str = "org.apache.hadoop.hbase.exceptions.RegionMovedException";
/// The region is being opened there.
pub const REGION_OPENING: &str = "org.apache.hadoop.hbase.exceptions.RegionOpeningException";
/// The region takes no writes until it has flushed or compacted.
pub const REGION_TOO_BUSY: &str = "org.apache.hadoop.hbase.RegionTooBusyException";
/// A quota is used up for the moment.
pub const RPC_THROTTLING: &str = "org.apache.hadoop.hbase.quotas.RpcThrottlingException";
/// The server's queue is full.
pub const CALL_QUEUE_TOO_BIG: &str = "org.apache.hadoop.hbase.CallQueueTooBigException";
/// The call waited in the server's queue for too long.
pub const CALL_DROPPED: &str = "org.apache.hadoop.hbase.CallDroppedException";
/// The row is not in the region that was named.
pub const WRONG_REGION: &str = "org.apache.hadoop.hbase.regionserver.WrongRegionException";
/// The server is going down.
pub const SERVER_STOPPED: &str = "org.apache.hadoop.hbase.regionserver.RegionServerStoppedException";
/// The server is going down immediately.
pub const SERVER_ABORTED: &str = "org.apache.hadoop.hbase.regionserver.RegionServerAbortedException";
/// The server is coming up.
pub const SERVER_NOT_RUNNING: &str = "org.apache.hadoop.hbase.ipc.ServerNotRunningYetException";
/// The master is coming up.
pub const PLEASE_HOLD: &str = "org.apache.hadoop.hbase.PleaseHoldException";
/// The server is not the active master.
pub const MASTER_NOT_RUNNING: &str = "org.apache.hadoop.hbase.MasterNotRunningException";
/// Part of a batch was left out because its response had become too large.
pub const MULTI_TOO_LARGE: &str = "org.apache.hadoop.hbase.MultiActionResultTooLarge";
/// The client shall repeat the call without waiting.
pub const RETRY_IMMEDIATELY: &str = "org.apache.hadoop.hbase.RetryImmediatelyException";
/// The scanner is not known: its lease has run out, or the server has restarted.
pub const UNKNOWN_SCANNER: &str = "org.apache.hadoop.hbase.UnknownScannerException";
/// A request to a scanner was lost or repeated.
pub const OUT_OF_ORDER_SCANNER: &str = "org.apache.hadoop.hbase.exceptions.OutOfOrderScannerNextException";
/// The scanner lost its files and must be opened again.
pub const SCANNER_RESET: &str = "org.apache.hadoop.hbase.exceptions.ScannerResetException";
/// The scanner's lease is gone.
pub const LEASE: &str = "org.apache.hadoop.hbase.regionserver.LeaseException";
/// Another try cannot help; the class that all such classes are derived from.
pub const DO_NOT_RETRY: &str = "org.apache.hadoop.hbase.DoNotRetryIOException";
/// The connection was opened wrongly.
pub const FATAL_CONNECTION: &str = "org.apache.hadoop.hbase.ipc.FatalConnectionException";
/// There is no such table.
pub const TABLE_NOT_FOUND: &str = "org.apache.hadoop.hbase.TableNotFoundException";
/// There is such a table.
pub const TABLE_EXISTS: &str = "org.apache.hadoop.hbase.TableExistsException";
/// The table is disabled.
pub const TABLE_NOT_ENABLED: &str = "org.apache.hadoop.hbase.TableNotEnabledException";
/// The table is not disabled.
pub const TABLE_NOT_DISABLED: &str = "org.apache.hadoop.hbase.TableNotDisabledException";
/// There is no such family.
pub const NO_SUCH_FAMILY: &str = "org.apache.hadoop.hbase.regionserver.NoSuchColumnFamilyException";
/// There is such a snapshot.
pub const SNAPSHOT_EXISTS: &str = "org.apache.hadoop.hbase.snapshot.SnapshotExistsException";
/// There is no such snapshot.
pub const NO_SUCH_SNAPSHOT: &str = "org.apache.hadoop.hbase.snapshot.SnapshotDoesNotExistException";
/// A snapshot that a client asks for was never begun.
pub const UNKNOWN_SNAPSHOT: &str = "org.apache.hadoop.hbase.snapshot.UnknownSnapshotException";
/// A snapshot cannot be taken.
pub const SNAPSHOT_CREATION: &str = "org.apache.hadoop.hbase.snapshot.SnapshotCreationException";
/// A table cannot be made of a snapshot.
pub const RESTORE_SNAPSHOT: &str = "org.apache.hadoop.hbase.snapshot.RestoreSnapshotException";

/// A fault of the server that has no class of its own.
pub const HBASE_IO: &str = "org.apache.hadoop.hbase.HBaseIOException";
/// The caller may not do this.
pub const ACCESS_DENIED: &str = "org.apache.hadoop.hbase.security.AccessDeniedException";
/// The connection asks for a service that does not exist.
pub const UNKNOWN_SERVICE: &str = "org.apache.hadoop.hbase.ipc.UnknownServiceException";
/// The connection asks for a codec that does not exist.
pub const UNSUPPORTED_CODEC: &str = "org.apache.hadoop.hbase.ipc.UnsupportedCellCodecException";
/// The connection asks for a compression that does not exist.
pub const UNSUPPORTED_COMPRESSION: &str = "org.apache.hadoop.hbase.ipc.UnsupportedCompressionCodecException";
/// The connection has another version of the protocol.
pub const WRONG_VERSION: &str = "org.apache.hadoop.hbase.ipc.WrongVersionException";
/// The connection asks for an authentication that is not served.
pub const BAD_AUTH: &str = "org.apache.hadoop.hbase.ipc.BadAuthException";
/// There is no security to negotiate.
pub const SECURITY_NOT_ENABLED: &str = "org.apache.hadoop.hbase.ipc.SecurityNotEnabledException";
/// There is no such namespace.
pub const NAMESPACE_NOT_FOUND: &str = "org.apache.hadoop.hbase.NamespaceNotFoundException";
/// There is such a namespace.
pub const NAMESPACE_EXISTS: &str = "org.apache.hadoop.hbase.NamespaceExistException";
/// A change of a family that the table does not allow.
pub const INVALID_FAMILY_OPERATION: &str = "org.apache.hadoop.hbase.InvalidFamilyOperationException";
/// A change that a rule of the cluster does not allow. Clients do not have the class, and take it for [`DO_NOT_RETRY`].
pub const CONSTRAINT: &str = "org.apache.hadoop.hbase.constraint.ConstraintException";
/// Regions that cannot be merged.
pub const MERGE_REGION: &str = "org.apache.hadoop.hbase.exceptions.MergeRegionException";
/// There is no such region.
pub const UNKNOWN_REGION: &str = "org.apache.hadoop.hbase.UnknownRegionException";
/// A request or a schema that breaks a rule.
pub const FAILED_SANITY_CHECK: &str = "org.apache.hadoop.hbase.exceptions.FailedSanityCheckException";
/// The request is larger than the server takes.
pub const REQUEST_TOO_BIG: &str = "org.apache.hadoop.hbase.exceptions.RequestTooBigException";
/// The coprocessor or the old call does not exist.
pub const UNKNOWN_PROTOCOL: &str = "org.apache.hadoop.hbase.exceptions.UnknownProtocolException";
/// A filter that cannot be used with the rest of the scan.
pub const INCOMPATIBLE_FILTER: &str = "org.apache.hadoop.hbase.filter.IncompatibleFilterException";
/// A violated constraint on an operation's arguments, by its use.
pub const UNSUPPORTED_OPERATION: &str = "java.lang.UnsupportedOperationException";

/// Whether a client that gets this class gives up immediately.
pub fn is_final(class: &str) -> bool {
    DO_NOT_RETRY_CLASSES.contains(&class)
}

/// Classes derived from [`DO_NOT_RETRY`] in responses that carry no other sign of it: within a Multi.
pub const DO_NOT_RETRY_CLASSES: [&str; 24] = [
    DO_NOT_RETRY,
    TABLE_NOT_FOUND,
    TABLE_EXISTS,
    TABLE_NOT_ENABLED,
    TABLE_NOT_DISABLED,
    NO_SUCH_FAMILY,
    FATAL_CONNECTION,
    UNKNOWN_SERVICE,
    UNSUPPORTED_CODEC,
    UNSUPPORTED_COMPRESSION,
    WRONG_VERSION,
    BAD_AUTH,
    NAMESPACE_NOT_FOUND,
    NAMESPACE_EXISTS,
    INVALID_FAMILY_OPERATION,
    CONSTRAINT,
    MERGE_REGION,
    UNKNOWN_REGION,
    FAILED_SANITY_CHECK,
    REQUEST_TOO_BIG,
    UNKNOWN_PROTOCOL,
    "org.apache.hadoop.hbase.quotas.QuotaExceededException",
    "org.apache.hadoop.hbase.quotas.SpaceLimitingException",
    ACCESS_DENIED,
];
