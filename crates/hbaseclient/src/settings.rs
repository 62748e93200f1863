//! Settings of a client.

use std::time::Duration;
use stele_wire::messages::KEY_VALUE_CODEC;

/// HBase's `hbase.rpc.timeout`.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// A minute: a region that does not come back within it counts as missing in a measurement.
const RETRY_FOR: Duration = Duration::from_secs(60);

/// Settings of a client; constant after construction.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Longest time of each attempt of a call.
    pub timeout: Duration,
    /// Longest time from the first failure of a call to its last attempt.
    pub retry_for: Duration,
    /// Java class of the codec of cell blocks.
    pub codec: &'static str,
    /// The user, where the environment names none.
    pub user: &'static str,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            timeout: CALL_TIMEOUT,
            retry_for: RETRY_FOR,
            codec: KEY_VALUE_CODEC,
            user: "stele",
        }
    }
}
