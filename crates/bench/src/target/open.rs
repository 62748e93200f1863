//! Target addresses, and opening what they name.
//!
//! `bigtable://host:port/INSTANCE`, `hbase://host:port`, `null://hbase`, `null://bigtable`; parameters after `?`:
//! * `party=FILE`: what is known of the server (`docs/rivals.md`): name, version, processes, configuration.
//! * `name=NAME`: name in tables and charts; the party file's, else the scheme, when absent.
//! * `connections=N`: sockets of each generator thread (Bigtable; default 4 for each thread).
//! * `lie=KIND:N`: makes the driver lie about every N-th row ([`super::lying`]), to prove that the bench notices.

use super::{Result, Target, TargetError};
use std::sync::Arc;

/// A target's address, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetUrl {
    /// As given.
    pub text: String,
    /// `bigtable`, `hbase`, `null`.
    pub scheme: String,
    /// Host, or what a `null` target imitates.
    pub host: String,
    /// Port, if given.
    pub port: Option<u16>,
    /// What follows the first slash.
    pub path: String,
    /// Parameters in order.
    pub parameters: Vec<(String, String)>,
}

impl TargetUrl {
    /// Takes an address apart.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self> {
        let bad = |why: String| TargetError::Unsupported(format!("target address {text:?}: {why}"));
        let url = url::Url::parse(text).map_err(|e| bad(e.to_string()))?;
        let host = url.host_str().unwrap_or_default().to_owned();
        Ok(Self {
            text: text.to_owned(),
            scheme: url.scheme().to_owned(),
            host,
            port: url.port(),
            path: url.path().trim_start_matches('/').to_owned(),
            parameters: url
                .query_pairs()
                .map(|(k, v)| (k.into_owned(), v.into_owned()))
                .collect(),
        })
    }

    /// The value of a parameter.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(k, _)| k == name).map(|(_, v)| v.as_str())
    }
}

/// Opens a target. Sockets are opened by [`Target::connect`] only.
///
/// # Errors
/// An address that names no known kind of target, or a parameter that it does not have.
pub async fn open(text: &str) -> Result<Arc<dyn Target>> {
    let url = TargetUrl::parse(text)?;
    let target: Arc<dyn Target> = match url.scheme.as_str() {
        "bigtable" => super::bigtable::open(&url)?,
        "hbase" => super::hbase::open(&url)?,
        "null" => super::null::open(&url).await?,
        other => return Err(TargetError::Unsupported(format!("no such kind of target: {other}"))),
    };
    match url.parameter("lie") {
        Some(lie) => super::lying::wrap(target, lie),
        None => Ok(target),
    }
}
