//! The *party file* tells a benchmark more about a server than its address.
//!
//! It names the processes to watch, where their GC logs and their data are, and with which configuration they run, so
//! that a report can show it.
//!
//! The fields are described in `docs/rivals.md`; the reader is `stele-bench`.

use super::process::Identity;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// One process of a rival.
pub struct Member {
    pub name: String,
    pub identity: Identity,
    /// Of those that have a garbage collector that writes one.
    pub gc_log: Option<PathBuf>,
}

/// A running rival.
pub struct Party {
    pub name: &'static str,
    pub version: String,
    /// Without a query.
    pub url: String,
    pub members: Vec<Member>,
    /// `where: name` to value.
    pub configuration: BTreeMap<String, String>,
    pub data_dirs: Vec<PathBuf>,
    /// As given on the command line.
    pub settings: Vec<String>,
}

impl Party {
    fn json(&self) -> Value {
        let processes: Vec<Value> = self
            .members
            .iter()
            .map(|member| json!({"name": member.name, "pid": member.identity.pid, "gc_log": member.gc_log}))
            .collect();
        json!({
            "name": self.name,
            "version": self.version,
            "url": self.url,
            "processes": processes,
            "configuration": self.configuration,
            "data_dirs": self.data_dirs,
            "settings": self.settings,
        })
    }

    /// Writes the file; it appears whole or not at all.
    pub fn write(&self, path: &Path) -> Result<()> {
        let part = path.with_extension("json.part");
        fs::write(&part, serde_json::to_string_pretty(&self.json())?)
            .and_then(|()| fs::rename(&part, path))
            .with_context(|| format!("writing {}", path.display()))
    }
}

/// The URL of the rival a party file describes; `None` when there is no such file.
pub fn address_of(path: &Path) -> Option<String> {
    let party: Value = serde_json::from_str(&fs::read_to_string(path).ok()?).ok()?;
    Some(party.get("url")?.as_str()?.to_owned())
}

/// The same with the way to the file in it.
pub fn url_of(path: &Path) -> Option<String> {
    Some(with_party(&address_of(path)?, path))
}

fn with_party(url: &str, path: &Path) -> String {
    format!("{url}?party={}", query_value(&path.to_string_lossy()))
}

/// Percent-encodes characters that may not stand in the value of a URL's query (RFC 3986); `/` may.
fn query_value(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                encoded.push(char::from(byte))
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Scratch;

    #[test]
    fn the_file_holds_what_was_put_in() -> Result<()> {
        let scratch = Scratch::new("party")?;
        let path = scratch.join("party.json");
        assert_eq!(url_of(&path), None);
        let identity = Identity::of(std::process::id())?;
        let member = |name: &str, gc_log: Option<&str>| Member {
            name: name.to_owned(),
            identity: identity.clone(),
            gc_log: gc_log.map(PathBuf::from),
        };
        let party = Party {
            name: "hbase",
            version: "2.6".to_owned(),
            url: "hbase://127.0.0.1:17020".to_owned(),
            members: vec![member("regionserver", Some("/logs/gc.log")), member("master", None)],
            configuration: BTreeMap::from([("hbase-site.xml: a.b".to_owned(), "\"c\"".to_owned())]),
            data_dirs: vec![PathBuf::from("/data")],
            settings: vec!["heap=8g".to_owned()],
        };
        party.write(&path)?;
        let read: Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
        let pid = identity.pid;
        let expected = json!({
            "name": "hbase",
            "version": "2.6",
            "url": "hbase://127.0.0.1:17020",
            "processes": [
                {"name": "regionserver", "pid": pid, "gc_log": "/logs/gc.log"},
                {"name": "master", "pid": pid, "gc_log": null},
            ],
            "configuration": {"hbase-site.xml: a.b": "\"c\""},
            "data_dirs": ["/data"],
            "settings": ["heap=8g"],
        });
        assert_eq!(read, expected);
        let url = url_of(&path).expect("there is one");
        assert!(url.starts_with("hbase://127.0.0.1:17020?party=/"), "{url}");
        scratch.passed();
        Ok(())
    }

    #[test]
    fn a_path_of_any_letters_fits_into_a_url() {
        let url = with_party("bigtable://h:1/i", Path::new("/a b/ä&c#d/party.json"));
        assert_eq!(url, "bigtable://h:1/i?party=/a%20b/%C3%A4%26c%23d/party.json");
    }
}
