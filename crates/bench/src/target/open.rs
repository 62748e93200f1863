//! Parses target addresses and opens targets.
//!
//! `bigtable://host:port/INSTANCE` ([`super::bigtable`]), `hbase://host:port`, `null://hbase`, `null://bigtable`, and
//! `memory://NAME` ([`super::memory`]); parameters after `?`:
//! * `party=FILE`: a description of the target (`docs/rivals.md`): name, version, processes, configuration.
//! * `name=NAME`: name in tables and charts; when absent, that of the file above, or else the scheme.
//! * `lie=KIND:N`: makes the driver lie about every N-th row ([`super::lying`]), to prove that the bench notices. It may
//!   be repeated; the last lie sees a call first.
//!
//! Drivers have parameters of their own. An unknown parameter is an error: with a misspelt one the run would
//! differ from the command.

use super::{Result, Target, TargetError};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// A target's address, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetUrl {
    /// As given.
    pub text: String,
    /// `bigtable`, `hbase`, `null`, `memory`.
    pub scheme: String,
    /// Host, or the protocol of a `null` target, or the name of a `memory` store.
    pub host: String,
    /// Port, if given.
    pub port: Option<u16>,
    /// The text after the first slash.
    pub path: String,
    /// Parameters in order.
    pub parameters: Vec<(String, String)>,
}

impl TargetUrl {
    /// Parses an address.
    ///
    /// # Errors
    /// The fault of the text.
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

    /// The name in tables and charts.
    ///
    /// # Errors
    /// A `party` file that cannot be read.
    pub fn name_or(&self, default: &str) -> Result<String> {
        if let Some(name) = self.parameter("name").filter(|name| !name.is_empty()) {
            return Ok(name.to_owned());
        }
        let Some(path) = self.parameter("party") else {
            return Ok(default.to_owned());
        };
        let bad = |why: String| TargetError::Unsupported(format!("`party` file {path}: {why}"));
        let text = std::fs::read_to_string(path).map_err(|e| bad(e.to_string()))?;
        let party: PartyName = serde_json::from_str(&text).map_err(|e| bad(e.to_string()))?;
        let name = party.name.filter(|name| !name.is_empty());
        Ok(name.unwrap_or_else(|| default.to_owned()))
    }

    /// A parameter that is a number within `range`, or its default.
    ///
    /// # Errors
    /// A text that is no such number.
    pub fn number(&self, name: &str, range: RangeInclusive<u64>, default: u64) -> Result<u64> {
        let Some(text) = self.parameter(name) else {
            return Ok(default);
        };
        let number = text.parse().ok().filter(|number| range.contains(number));
        let (low, high) = (range.start(), range.end());
        number.ok_or_else(|| {
            let text = format!("{}: {name}={text} is not a number from {low} to {high}", self.text);
            TargetError::Unsupported(text)
        })
    }

    /// Refuses parameters that are neither common to all targets nor among `own`.
    ///
    /// # Errors
    /// The first such parameter.
    pub fn allow_parameters(&self, own: &[&str]) -> Result<()> {
        let known = |name: &str| COMMON_PARAMETERS.contains(&name) || own.contains(&name);
        match self.parameters.iter().find(|(name, _)| !known(name)) {
            None => Ok(()),
            Some((name, _)) => {
                let text = format!("{}: a {} target has no parameter {name}", self.text, self.scheme);
                Err(TargetError::Unsupported(text))
            }
        }
    }
}

/// The one field of a `party` file that a target needs.
#[derive(serde::Deserialize)]
struct PartyName {
    name: Option<String>,
}

/// Parameters of every target.
const COMMON_PARAMETERS: [&str; 3] = ["party", "name", "lie"];

/// Opens a target. Sockets are opened by [`Target::connect`] only.
///
/// # Errors
/// An address that names no known kind of target, or a parameter that it does not have.
pub async fn open(text: &str) -> Result<Arc<dyn Target>> {
    let url = TargetUrl::parse(text)?;
    let target: Arc<dyn Target> = match url.scheme.as_str() {
        "bigtable" => super::bigtable::open(&url)?,
        "hbase" => super::hbase::open(&url)?,
        "memory" => super::memory::open(&url)?,
        "null" => super::null::open(&url).await?,
        other => return Err(TargetError::Unsupported(format!("no such kind of target: {other}"))),
    };
    let lies = url.parameters.iter().filter(|(name, _)| name == "lie");
    lies.map(|(_, lie)| lie)
        .try_fold(target, |target, lie| super::lying::wrap(target, lie))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        let url = TargetUrl::parse("bigtable://[::1]:8086/inst?name=a%20b&connections=3").unwrap();
        assert_eq!(
            (url.scheme.as_str(), url.host.as_str(), url.port, url.path.as_str()),
            ("bigtable", "[::1]", Some(8086), "inst")
        );
        assert_eq!(url.name_or("bigtable").unwrap(), "a b");
        assert_eq!(url.number("connections", 1..=8, 4).unwrap(), 3);
        assert_eq!(url.number("threads", 1..=8, 4).unwrap(), 4);
        assert!(url.number("connections", 1..=2, 1).is_err());
        assert!(url.allow_parameters(&["connections"]).is_ok());
        assert!(url.allow_parameters(&["connection"]).is_err());
        assert!(TargetUrl::parse("localhost").is_err());
    }

    #[test]
    fn a_target_is_named_by_its_party_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, r#"{"name": "stele", "version": "0.1"}"#).unwrap();
        let party = format!("hbase://h:1?party={}", file.path().display());
        let name = |text: &str| TargetUrl::parse(text).unwrap().name_or("hbase");
        assert_eq!(name("hbase://h:1").unwrap(), "hbase");
        assert_eq!(name(&party).unwrap(), "stele");
        assert_eq!(name(&format!("{party}&name=mine")).unwrap(), "mine");
        assert!(name(&format!("{party}.gone")).is_err());
    }

    #[tokio::test]
    async fn unknown_targets_and_lies_are_errors() {
        assert!(open("cassandra://localhost:9042").await.is_err());
        assert!(open("memory://open-tests?lie=sometimes:3").await.is_err());
        assert!(open("memory://open-tests?lie=drop:0").await.is_err());
        assert!(open("memory://open-tests").await.is_ok());
    }
}
