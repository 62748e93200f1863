//! An address selects a NameNode and a directory: `hdfs://host:port/prefix` or `hdfs://nameservice/prefix`.
//!
//! Hadoop's own configuration (`core-site.xml`, `hdfs-site.xml`) is read from `HADOOP_CONF_DIR`, as Hadoop's tools do;
//! options override it. An option with a dot in its name is a Hadoop property.

use crate::HdfsMetrics;
use crate::cluster::Cluster;
use crate::native::Native;
use hdfs_native::ClientBuilder;
use std::fmt;
use std::sync::Arc;
use stele_env::Env;
use stele_storage::StorageError;

const SCHEME: &str = "hdfs://";

/// Silence of a DataNode after which the client reads from another. Hadoop's default of a minute is long for a reader.
/// A DataNode with a slow disk responds within a second or two.
const SOCKET_TIMEOUT: (&str, &str) = ("dfs.client.socket-timeout", "10000");

/// Most replicas of a file; the default limit of NameNodes.
const REPLICATION_MAX: u32 = 512;

/// A directory of HDFS, with the settings to reach it.
#[derive(Clone, Debug)]
pub struct HdfsAddress {
    /// `host:port` or the name of a name service.
    authority: String,
    /// Without a slash at either end; never empty.
    root: String,
    user: Option<String>,
    replication: Option<u32>,
    properties: Vec<(String, String)>,
}

impl fmt::Display for HdfsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.authority, self.root)
    }
}

/// An error in an address or an option.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct HdfsAddressError(String);

impl HdfsAddress {
    /// The host and port of the NameNode, or the name service.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    /// The directory, without slashes at its ends.
    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    /// A directory below this one.
    pub fn below(&self, path: &str) -> HdfsAddress {
        assert!(
            stele_storage::check_path(path).is_ok(),
            "{path:?} is a path below a directory"
        );
        HdfsAddress {
            root: format!("{}/{path}", self.root),
            ..self.clone()
        }
    }

    /// Whether a text is an address of HDFS.
    pub fn is_one(text: &str) -> bool {
        text.starts_with(SCHEME)
    }

    /// An address with options: `user`, `replication`, and Hadoop properties.
    pub fn parse(text: &str, options: &[(String, String)]) -> Result<HdfsAddress, HdfsAddressError> {
        let wrong = |what: &str| HdfsAddressError(format!("{text:?}: {what}"));
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| wrong("no hdfs://"))?;
        let (authority, root) = rest.split_once('/').unwrap_or((rest, ""));
        let root = root.trim_end_matches('/');
        if authority.is_empty() {
            return Err(wrong("no host and port of a NameNode, and no name service"));
        }
        if let Some((host, port)) = authority.rsplit_once(':')
            && (host.is_empty() || port.parse::<u16>().is_err())
        {
            return Err(wrong("what stands before the directory is no host:port"));
        }
        if root.is_empty() {
            return Err(wrong("no directory; the root of a file system belongs to everybody"));
        }
        if stele_storage::check_path(&format!("x/{root}")).is_err() {
            return Err(wrong(
                "a directory is of letters, digits, `.`, `_` and `-`, and of single slashes",
            ));
        }
        let mut address = HdfsAddress {
            authority: authority.to_owned(),
            root: root.to_owned(),
            user: None,
            replication: None,
            properties: Vec::new(),
        };
        for (key, value) in options {
            address.option(key, value)?;
        }
        Ok(address)
    }

    fn option(&mut self, key: &str, value: &str) -> Result<(), HdfsAddressError> {
        match key {
            "user" if !value.is_empty() => self.user = Some(value.to_owned()),
            "replication" => {
                let replicas = value.parse().ok().filter(|n| (1..=REPLICATION_MAX).contains(n));
                self.replication = Some(replicas.ok_or_else(|| {
                    HdfsAddressError(format!("replication: {value:?} is not within 1 and {REPLICATION_MAX}"))
                })?);
            }
            key if key.contains('.') => self.properties.push((key.to_owned(), value.to_owned())),
            _ => {
                return Err(HdfsAddressError(format!(
                    "unknown option {key:?} of hdfs://; there are user, replication and properties of Hadoop such as \
                     dfs.client.use.datanode.hostname"
                )));
            }
        }
        Ok(())
    }

    /// Connects at the first operation. Must be called on the runtime that executes the operations.
    pub(crate) fn cluster(&self, env: Env, metrics: HdfsMetrics) -> Result<Cluster, StorageError> {
        let mut properties = vec![(SOCKET_TIMEOUT.0.to_owned(), SOCKET_TIMEOUT.1.to_owned())];
        // A later one replaces an earlier one of the same name.
        properties.extend(self.properties.iter().cloned());
        let mut builder = ClientBuilder::new()
            .with_url(format!("{SCHEME}{}", self.authority))
            .with_config(properties);
        if let Some(user) = &self.user {
            builder = builder.with_user(user);
        }
        let client = builder.build().map_err(|error| StorageError::Io {
            path: self.to_string(),
            operation: "configure",
            message: error.to_string(),
        })?;
        Ok(Cluster::new(
            Arc::new(Native(client)),
            &self.root,
            self.replication,
            env,
            metrics,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (good, shown) in [
            ("hdfs://127.0.0.1:9000/stele", "hdfs://127.0.0.1:9000/stele"),
            ("hdfs://service/a/b-1/", "hdfs://service/a/b-1"),
            ("hdfs://service/tmp/x", "hdfs://service/tmp/x"),
        ] {
            assert_eq!(HdfsAddress::parse(good, &[]).unwrap().to_string(), shown);
        }
        for (bad, why) in [
            ("s3://bucket", "no hdfs"),
            ("hdfs:///a", "no host"),
            ("hdfs://host:x/a", "host:port"),
            ("hdfs://:1/a", "host:port"),
            ("hdfs://host:1", "no directory"),
            ("hdfs://host:1/", "no directory"),
            ("hdfs://host:1/a//b", "single slashes"),
            ("hdfs://host:1/a b", "letters"),
            ("hdfs://host:1/../b", "letters"),
        ] {
            let error = HdfsAddress::parse(bad, &[]).unwrap_err().to_string();
            assert!(error.contains(why), "{bad}: {error}");
        }
        assert!(HdfsAddress::is_one("hdfs://x/y") && !HdfsAddress::is_one("s3://x"));
    }

    #[test]
    fn options() {
        let parse = |key: &str, value: &str| {
            HdfsAddress::parse("hdfs://host:1/a", &[(key.to_owned(), value.to_owned())]).map_err(|e| e.to_string())
        };
        assert_eq!(parse("replication", "2").unwrap().replication, Some(2));
        assert_eq!(parse("user", "stele").unwrap().user.as_deref(), Some("stele"));
        assert_eq!(parse("dfs.a.b", "c").unwrap().properties.len(), 1);
        for (key, value) in [("replication", "0"), ("replication", "x"), ("usr", "a"), ("user", "")] {
            assert!(parse(key, value).unwrap_err().contains(key));
        }
    }
}
