//! Settings of a client.

use crate::dial::Dial;
use crate::failure::Failure;
use bytes::Bytes;
use std::fmt;
use std::net::IpAddr;
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
    /// Whether the token goes to other machines as plain text. The registry and `hbase:meta` name servers, so it matters also
    /// where the first address is on this machine.
    pub token_in_clear: bool,
}

impl Settings {
    /// The token for the server at an address.
    ///
    /// # Errors
    /// It would go to another machine as plain text, and must not.
    pub(crate) fn token_for(&self, address: &str) -> Result<Option<&Token>, Failure> {
        let is_safe = self.dial.is_tls() || self.token_in_clear || is_on_loopback(address);
        match &self.token {
            Some(_) if !is_safe => Err(Failure::Protocol(format!(
                "{address}: the token would be sent as plain text; begin the address with hbases://, or give --insecure if \
                 nobody else can listen to the network"
            ))),
            token => Ok(token.as_ref()),
        }
    }
}

/// Whether an address leads back to this machine, which an unspecified one does as well.
fn is_on_loopback(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_own = |ip: IpAddr| ip.to_canonical().is_loopback() || ip.is_unspecified();
    host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(is_own)
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
            // The load generator has tokens of test servers alone. A client of others decides by its user's word.
            token_in_clear: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_goes_to_other_machines_if_it_may() {
        let with = |token_in_clear| Settings {
            token: Some(Token::new("secret".to_owned())),
            token_in_clear,
            ..Settings::default()
        };
        for near in [
            "127.0.0.1:1",
            "LOCALHOST:1",
            "[::1]:1",
            "[::ffff:127.0.0.1]:1",
            "0.0.0.0:1",
        ] {
            assert!(with(false).token_for(near).unwrap().is_some(), "{near}");
        }
        for far in ["h:1", "192.0.2.1:1", "[2001:db8::1]:1", "127.0.0.1.example:1"] {
            let refused = with(false).token_for(far).unwrap_err().to_string();
            assert!(refused.starts_with(&format!("{far}: the token would")), "{refused}");
            assert!(with(true).token_for(far).unwrap().is_some(), "{far}");
        }
        let none = Settings {
            token_in_clear: false,
            ..Settings::default()
        };
        assert!(none.token_for("h:1").unwrap().is_none());
    }
}
