//! Settings of a client.

use crate::dial::Dial;
use bytes::Bytes;
use std::fmt;
use std::sync::Arc;
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
    /// Makes the sockets.
    pub dial: Dial,
    /// A bearer token, which servers that know such tokens take for the name of the caller.
    pub token: Option<Token>,
}

/// A bearer token. It is not printed.
#[derive(Clone)]
pub struct Token(Arc<str>);

impl Token {
    /// A token without the word before it.
    pub fn new(token: String) -> Self {
        Token(token.into())
    }

    /// The value of the attribute of a connection.
    pub(crate) fn value(&self) -> Bytes {
        format!("Bearer {}", self.0).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            timeout: CALL_TIMEOUT,
            retry_for: RETRY_FOR,
            codec: KEY_VALUE_CODEC,
            user: "stele",
            dial: Dial::default(),
            token: None,
        }
    }
}
