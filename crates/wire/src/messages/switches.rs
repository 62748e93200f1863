//! Switches of the master and of servers.
//!
//! Most of their messages hold one boolean in field 1, so they share their types here.

/// Argument of calls that set a switch (`SetBalancerRunning`, `SetNormalizerRunning`, `EnableCatalogJanitor`,
/// `SetCleanerChoreRunning`, `SwitchSnapshotCleanup`, `SwitchRpcThrottle`, `CompactionSwitch`).
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct SetSwitchRequest {
    /// Its new position.
    #[prost(bool, required, tag = "1")]
    pub on: bool,
    /// Whether running work is waited for.
    #[prost(bool, optional, tag = "2")]
    pub synchronous: Option<bool>,
}

/// A response that holds one boolean: a position of a switch, the position that it had before, or whether work was done.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct OneBool {
    /// The boolean. It is always written.
    #[prost(bool, required, tag = "1")]
    pub value: bool,
}

/// Response of `Balance`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct BalanceResponse {
    /// Whether the balancer ran.
    #[prost(bool, required, tag = "1")]
    pub balancer_ran: bool,
    /// Moves of regions that it wants.
    #[prost(uint32, optional, tag = "2")]
    pub moves_calculated: Option<u32>,
    /// Moves that it made.
    #[prost(uint32, optional, tag = "3")]
    pub moves_executed: Option<u32>,
}

/// Switches of splits and merges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum MasterSwitchType {
    /// Splits.
    Split = 0,
    /// Merges.
    Merge = 1,
}

/// Argument of `SetSplitOrMergeEnabled`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SetSplitOrMergeEnabledRequest {
    /// The new position.
    #[prost(bool, required, tag = "1")]
    pub enabled: bool,
    /// Whether running work is waited for.
    #[prost(bool, optional, tag = "2")]
    pub synchronous: Option<bool>,
    /// The switches.
    #[prost(enumeration = "MasterSwitchType", repeated, packed = "false", tag = "3")]
    pub switch_types: Vec<i32>,
}

/// Response of `SetSplitOrMergeEnabled`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SetSplitOrMergeEnabledResponse {
    /// Positions before, in the order of the request.
    #[prost(bool, repeated, packed = "false", tag = "1")]
    pub prev_value: Vec<bool>,
}

/// Argument of `IsSplitOrMergeEnabled`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct IsSplitOrMergeEnabledRequest {
    /// The switch.
    #[prost(enumeration = "MasterSwitchType", required, tag = "1")]
    pub switch_type: i32,
}

/// Response of `RunCatalogScan`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct RunCatalogScanResponse {
    /// Entries that were removed.
    #[prost(int32, optional, tag = "1")]
    pub scan_result: Option<i32>,
}
