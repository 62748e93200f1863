//! Settings of the archive of the commit log.

use super::{Setting, parse_options, parse_place, parse_seconds, sizes};
use anyhow::{Context, bail};
use std::time::Duration;

/// The flags.
#[derive(clap::Args, Default)]
pub struct ArchiveArgs {
    /// Archive of the commit log, for restores to a moment: an absolute folder, s3://, gs:// or az://BUCKET/PREFIX, or
    /// hdfs://HOST:PORT/DIRECTORY [default: none]
    #[arg(long, env = "STELE_ARCHIVE_LOG", value_name = "DIR|URL")]
    archive_log: Option<String>,
    /// Setting of the object store or of HDFS of the archive; may be repeated
    #[arg(
        long,
        env = "STELE_ARCHIVE_LOG_OPTION",
        value_name = "KEY=VALUE",
        value_delimiter = ','
    )]
    archive_log_option: Vec<String>,
    /// Time between two copies of the log to the archive: as much is lost with the disk [default: 10s]
    #[arg(long, env = "STELE_ARCHIVE_LOG_INTERVAL", value_name = "DURATION")]
    archive_log_interval: Option<String>,
    /// Most bytes of log that wait for an archive that cannot be reached [default: 4GiB]
    #[arg(long, env = "STELE_ARCHIVE_LOG_WAITING", value_name = "BYTES")]
    archive_log_waiting: Option<String>,
}

/// Beginnings of addresses to which several servers write.
const OBJECT_STORES: [&str; 3] = ["s3://", "gs://", "az://"];

/// Their descriptions.
pub(super) const SETTINGS: [Setting; 4] = [
    Setting {
        key: "archive_log",
        meaning: "Archive of the commit log, with which backups can be restored to any later moment. Every write is then synced \
                  before it is acknowledged, whatever its durability. One data root has an archive of its own, which all servers of a cluster share.",
        unit: "absolute path, or s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, hdfs://host:port/directory",
        default: "",
        range: "empty for none; in a cluster the same object store for all servers",
    },
    Setting {
        key: "archive_log_option",
        meaning: "Settings of the object store or of HDFS of archive_log, as data_option has those of data.",
        unit: "key=value, several separated by commas",
        default: "",
        range: "",
    },
    Setting {
        key: "archive_log_interval",
        meaning: "Time between two copies of the log to the archive. Writes of this time are lost with the disk; each copy costs a \
                  few requests to the store.",
        unit: "seconds",
        default: "10s",
        range: "1s to 3600s",
    },
    Setting {
        key: "archive_log_waiting",
        meaning: "Most bytes of log that are kept for an archive that cannot be reached. Beyond them the log goes its way and the \
                  archive has a gap, so that writes go on. It depends on the space of the disk and on how long an outage may be.",
        unit: "bytes",
        default: "4GiB",
        range: "1MiB and more",
    },
];

/// The archive of the commit log of a server.
#[derive(Clone, Debug)]
pub struct ArchiveConfig {
    /// Its address.
    pub address: String,
    /// Settings of its store.
    pub options: Vec<(String, String)>,
    /// The time between two copies.
    pub interval: Duration,
    /// Bytes of log that may wait for it.
    pub waiting_bytes_max: u64,
}

impl ArchiveArgs {
    /// The archive, if there is one.
    pub(super) fn resolve(
        &self,
        text: &impl Fn(&str, &Option<String>) -> String,
        in_cluster: bool,
    ) -> anyhow::Result<Option<ArchiveConfig>> {
        let option_text = (!self.archive_log_option.is_empty()).then(|| self.archive_log_option.join(","));
        let options = parse_options(&text("archive_log_option", &option_text)).context("archive_log_option")?;
        let interval = text("archive_log_interval", &self.archive_log_interval);
        let interval = parse_seconds("archive_log_interval", &interval)?;
        if interval < Duration::from_secs(1) {
            bail!("archive_log_interval: {interval:?} is not within 1s and 3600s");
        }
        let waiting = text("archive_log_waiting", &self.archive_log_waiting);
        let waiting_bytes_max =
            sizes::parse_bytes(&waiting).map_err(|error| anyhow::anyhow!("archive_log_waiting: {error}"))?;
        if waiting_bytes_max < 1 << 20 {
            bail!("archive_log_waiting: {waiting:?} is less than 1MiB");
        }
        let address = text("archive_log", &self.archive_log);
        if address.is_empty() {
            return Ok(None);
        }
        if in_cluster && !OBJECT_STORES.iter().any(|scheme| address.starts_with(scheme)) {
            bail!(
                "archive_log: {address:?} is not an object store; all servers of a cluster write into one archive, which only an object store can serve: \
                 give s3://, gs:// or az://BUCKET/PREFIX"
            );
        }
        parse_place(&address, &options).context("archive_log")?;
        if !address.contains("://") && !address.starts_with('/') {
            bail!("archive_log: {address:?} is neither the absolute path of a folder nor the address of a store");
        }
        Ok(Some(ArchiveConfig {
            address,
            options,
            interval,
            waiting_bytes_max,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(address: &str, interval: &str, in_cluster: bool) -> Result<Option<ArchiveConfig>, String> {
        let text = |key: &str, _: &Option<String>| {
            let value = match key {
                "archive_log" => address,
                "archive_log_interval" => interval,
                "archive_log_waiting" => "1GiB",
                _ => "",
            };
            value.to_owned()
        };
        let resolved = ArchiveArgs::default().resolve(&text, in_cluster);
        resolved.map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn an_archive_has_a_place_which_servers_of_a_cluster_can_share() {
        assert!(resolve("", "10s", true).unwrap().is_none());
        let archive = resolve("s3://bucket/log", "5s", false).unwrap().unwrap();
        assert_eq!(
            (archive.interval, archive.waiting_bytes_max),
            (Duration::from_secs(5), 1 << 30)
        );
        assert!(resolve("/archive", "10s", false).unwrap().is_some());
        assert!(resolve("s3://bucket/log", "10s", true).unwrap().is_some());
        for (address, interval, in_cluster, why) in [
            ("archive", "10s", false, "absolute path"),
            ("ftp://host/x", "10s", false, "neither a folder"),
            ("/archive", "0s", false, "1s and 3600s"),
            ("/archive", "10s", true, "not an object store"),
            ("hdfs://host:8020/log", "10s", true, "not an object store"),
        ] {
            let error = resolve(address, interval, in_cluster).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
