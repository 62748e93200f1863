//! Settings come from one table of keys.
//!
//! Flags, variables, the configuration file and the reference are made from it. A flag takes precedence over a
//! `STELE_…` variable, which takes precedence over the file, which takes precedence over the default. Unknown keys in
//! the file are errors.

mod archive;
mod arguments;
mod cluster;
mod loads;
mod places;
mod security;
pub mod sizes;
mod table;
mod times;
mod tls_files;
mod traces;

pub use archive::ArchiveConfig;
pub use arguments::StartArgs;
pub use cluster::{Connections, EtcdArgs, EtcdFiles, PeerTlsFiles};
pub use places::{Place, parse_options, parse_place};
pub use security::{AccessConfig, KeySources, OidcConfig, SecurityConfig, check_key_address};
pub use times::parse_seconds;
pub use tls_files::TlsFiles;
pub use traces::TraceConfig;

use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use stele_etcd::EtcdAddress;
use stele_storage::remote::cache::CacheOptions;
use stele_types::{Durability, limits};
use table::{OFF, SETTINGS, Setting};
use times::{parse_grace, parse_slow_call};

/// The smallest budget that covers the fixed costs and leaves memory for requests.
const MEMORY_MIN: u64 = 64 << 20;

/// A host that is not known at the moment: no setting is wrong for it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UnknownHost(String);

/// The settings of a server of a cluster.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// The coordinator.
    pub coordinator: EtcdAddress,
    /// Address for other servers.
    pub peer: SocketAddr,
    /// Host that others are told; empty for that of each address.
    pub advertise: String,
    /// How long a silent server keeps its tablets.
    pub session: Duration,
    /// The place of the commit logs of all servers; `None` for that of the data.
    pub commit_log: Option<Place>,
    /// Protection of the connections to other servers and to the coordinator.
    pub connections: Connections,
}

impl Cluster {
    /// The text by which others are told an address of this server.
    pub fn told(&self, address: SocketAddr) -> String {
        match self.advertise.as_str() {
            "" => address.to_string(),
            host => with_port(host, address.port()),
        }
    }

    /// Whether others are told another host for the port that only this machine reaches.
    fn hides_its_port(&self) -> bool {
        let advertise = self.advertise.trim_matches(['[', ']']);
        let is_local = advertise.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        self.peer.ip().is_loopback() && !is_local && !matches!(advertise, "" | "localhost")
    }
}

fn with_port(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("[{}]:{port}", host.trim_matches(['[', ']'])),
        false => format!("{host}:{port}"),
    }
}

/// Parsed settings.
#[derive(Clone, Debug)]
pub struct Config {
    /// The place of the data.
    pub data: Place,
    /// The local cache of an object store or HDFS: its folder and size.
    pub cache: Option<CacheOptions>,
    /// The cluster that the server joins.
    pub cluster: Option<Cluster>,
    /// Address of the Bigtable API.
    pub bigtable: SocketAddr,
    /// Address of the HBase API; `None` if it is off.
    pub hbase: Option<SocketAddr>,
    /// Whether the settings name that address, be it the default one.
    pub hbase_is_given: bool,
    /// Host that HBase clients are told; empty for that of the address.
    pub hbase_host: String,
    /// Address of the façade of ZooKeeper; `None` if it is off.
    pub zookeeper_facade: Option<SocketAddr>,
    /// Address of the console, health checks and metrics.
    pub http: SocketAddr,
    /// Memory budget in bytes.
    pub memory: u64,
    /// Default durability.
    pub durability: Durability,
    /// Bytes at which a tablet splits.
    pub tablet_size: u64,
    /// Free bytes of the disk below which writes are refused.
    pub free_space_min: u64,
    /// How long deleted tables are kept; zero for not at all.
    pub keep_deleted: Duration,
    /// Time from which on a call is slow; the longest there is if none is.
    pub slow_call: Duration,
    /// Time for requests in flight at shutdown.
    pub drain_timeout: Duration,
    /// The archive of the commit log.
    pub archive_log: Option<ArchiveConfig>,
    /// The folders that bulk loads may read.
    pub bulk_load_roots: Vec<Place>,
    /// Log filter.
    pub log: String,
    /// Log as JSON.
    pub log_json: bool,
    /// The collector of traces; `None` if nobody collects them.
    pub traces: Option<TraceConfig>,
    /// TLS, identities and rights.
    pub security: SecurityConfig,
}

/// All settings.
fn settings() -> impl Iterator<Item = &'static Setting> {
    let all = SETTINGS.iter().chain(&traces::SETTINGS).chain(&loads::SETTINGS);
    all.chain(&archive::SETTINGS)
        .chain(&security::SETTINGS)
        .chain(&cluster::SETTINGS)
}

/// The reference of all settings: a configuration file with every key commented out.
pub fn describe() -> String {
    let mut out =
        String::from("# Settings of `stele start`. Each is also a flag (--key) and a variable (STELE_KEY).\n");
    for s in settings() {
        let flag = s.key.replace('_', "-");
        let variable = s.key.to_uppercase();
        let _ = write!(out, "\n# {}\n", s.meaning);
        if !s.unit.is_empty() {
            let _ = writeln!(out, "# unit: {}", s.unit);
        }
        let _ = writeln!(
            out,
            "# range: {}\n# flag: --{flag}, variable: STELE_{variable}",
            s.range
        );
        let _ = writeln!(out, "#{} = {:?}", s.key, s.default);
    }
    out
}

/// Merges the sources and parses every value.
pub fn load(args: &StartArgs) -> anyhow::Result<Config> {
    let file = match &args.config {
        None => BTreeMap::new(),
        Some(path) => {
            let text = std::fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
            parse_file(&text).with_context(|| format!("{}", path.display()))?
        }
    };
    resolve(args, &file, sizes::memory_of_machine())
}

/// The entries of a configuration file. An unknown key is an error.
pub fn parse_file(text: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let table: toml::Table = text.parse()?;
    let mut values = BTreeMap::new();
    for (key, value) in table {
        if !settings().any(|s| s.key == key) {
            let known: Vec<&str> = settings().map(|s| s.key).collect();
            bail!("unknown key {key:?}; the keys are {}", known.join(", "));
        }
        let text = match value {
            toml::Value::String(text) => text,
            toml::Value::Integer(number) => number.to_string(),
            other => bail!("{key}: expected a string or a whole number, found {}", other.type_str()),
        };
        values.insert(key, text);
    }
    Ok(values)
}

fn resolve(args: &StartArgs, file: &BTreeMap<String, String>, machine: u64) -> anyhow::Result<Config> {
    let text = |key: &str, flag: &Option<String>| -> String {
        let default = || settings().find(|s| s.key == key).map_or("", |s| s.default).to_owned();
        flag.clone().or_else(|| file.get(key).cloned()).unwrap_or_else(default)
    };
    let address = |key: &str, flag: &Option<String>| -> anyhow::Result<SocketAddr> {
        let text = text(key, flag);
        let wrong = || format!("{key}: {text:?} is not an address and port such as 127.0.0.1:8086");
        match std::net::ToSocketAddrs::to_socket_addrs(&text) {
            Ok(mut found) => found.next().with_context(wrong),
            Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => bail!(wrong()),
            Err(error) => Err(UnknownHost(format!("{key}: {text}: {error}")).into()),
        }
    };
    let address_or_off = |key: &str, flag: &Option<String>| match text(key, flag).as_str() {
        OFF => Ok(None),
        _ => address(key, flag).map(Some),
    };
    let bytes = |key: &str, flag: &Option<String>| -> anyhow::Result<u64> {
        sizes::parse_bytes(&text(key, flag)).map_err(|e| anyhow::anyhow!("{key}: {e}"))
    };
    // A percentage refers to memory, so it cannot state disk space.
    let memory = sizes::parse_share(&text("memory", &args.memory), machine);
    let option_text = (!args.data_option.is_empty()).then(|| args.data_option.join(","));
    let options = parse_options(&text("data_option", &option_text))?;
    let cache_dir = Some(text("cache_dir", &args.cache_dir)).filter(|dir| !dir.is_empty());
    let cache_bytes = bytes("cache_size", &args.cache_size)?;
    let security = args.security.resolve(&text)?;
    let coordinator = match text("cluster", &args.cluster).as_str() {
        "" => None,
        coordinator => Some(EtcdAddress::parse(coordinator).context("cluster")?),
    };
    let protection = (coordinator.as_ref(), security.tls.as_ref(), security.insecure);
    let connections = args.connections.resolve(&text, protection)?;
    let commit_log = args.connections.commit_log(&text, coordinator.is_some())?;
    let cluster = match coordinator {
        None => None,
        Some(coordinator) => Some(Cluster {
            coordinator,
            peer: address("peer", &args.peer)?,
            advertise: text("advertise", &args.advertise),
            session: parse_seconds("session", &text("session", &args.session))?,
            commit_log,
            connections,
        }),
    };
    let archive_log = args.archive.resolve(&text, cluster.is_some())?;
    let config = Config {
        archive_log,
        cluster,
        data: parse_place(&text("data", &args.data), &options)?,
        cache: cache_dir.map(|dir| CacheOptions {
            dir: dir.into(),
            bytes: cache_bytes,
        }),
        bigtable: address("bigtable", &args.bigtable)?,
        hbase: address_or_off("hbase", &args.hbase)?,
        hbase_is_given: args.hbase.is_some() || file.contains_key("hbase"),
        hbase_host: text("hbase_host", &args.hbase_host),
        zookeeper_facade: address_or_off("zookeeper_facade", &args.zookeeper_facade)?,
        http: address("http", &args.http)?,
        memory: memory.map_err(|e| anyhow::anyhow!("memory: {e}"))?,
        durability: match text("durability", &args.durability).as_str() {
            "sync" => Durability::Sync,
            "flush" => Durability::Flush,
            "none" => Durability::None,
            other => bail!("durability: {other:?} is none of sync, flush, none"),
        },
        tablet_size: bytes("tablet_size", &args.tablet_size)?,
        free_space_min: bytes("free_space_min", &args.free_space_min)?,
        keep_deleted: parse_grace(&text("keep_deleted", &args.keep_deleted))?,
        slow_call: parse_slow_call(&text("slow_call", &args.slow_call))?,
        drain_timeout: parse_seconds("drain_timeout", &text("drain_timeout", &args.drain_timeout))?,
        bulk_load_roots: args.loads.resolve(&text)?,
        log: text("log", &args.log),
        log_json: match text("log_format", &args.log_format).as_str() {
            "text" => false,
            "json" => true,
            other => bail!("log_format: {other:?} is none of text, json"),
        },
        traces: args.traces.resolve(&text)?,
        security,
    };
    check(&config)?;
    security::check_addresses(&config)?;
    Ok(config)
}

impl Config {
    /// The host that HBase clients are told, if a setting names one.
    pub fn hbase_told_host(&self) -> Option<&str> {
        let advertised = self.cluster.as_ref().map_or("", |cluster| &cluster.advertise);
        let mut named = [self.hbase_host.as_str(), advertised].into_iter();
        named.find(|host| !host.is_empty())
    }

    /// The text by which HBase clients are told an address of this server.
    pub fn hbase_told(&self, address: SocketAddr) -> String {
        match self.hbase_told_host() {
            Some(host) => with_port(host, address.port()),
            None => address.to_string(),
        }
    }
}

fn check(config: &Config) -> anyhow::Result<()> {
    let taken = |other: SocketAddr| config.hbase.is_some_and(|hbase| hbase == other && hbase.port() != 0);
    if taken(config.bigtable) || taken(config.http) {
        bail!("hbase is at the address of bigtable or http: give one of them another port");
    }
    if config.zookeeper_facade.is_some() && config.hbase.is_none() {
        bail!("zookeeper_facade names the HBase API, which is off: give hbase an address");
    }
    if config.bigtable == config.http && config.http.port() != 0 {
        bail!(
            "bigtable and http are both {}: give one of them another port",
            config.http
        );
    }
    if let Some(cluster) = &config.cluster {
        if !(2..=600).contains(&cluster.session.as_secs()) {
            bail!("session: {:?} is not within 2s and 600s", cluster.session);
        }
        let hbase = config.hbase.filter(|_| config.hbase_told_host().is_none());
        let told = [Some(cluster.peer), Some(config.bigtable), hbase];
        if cluster.advertise.is_empty() && told.into_iter().flatten().any(|address| address.ip().is_unspecified()) {
            bail!(
                "advertise: other servers cannot be told to connect to 0.0.0.0 or [::]; give the host of this server"
            );
        }
        if cluster.hides_its_port() {
            bail!(
                "peer: other servers are told {}, but only this machine reaches {}: they would take this server for \
                 dead. Give an address of this machine, or 0.0.0.0:{}",
                cluster.told(cluster.peer),
                cluster.peer,
                cluster.peer.port()
            );
        }
        if matches!(config.data, Place::Folder(_)) {
            bail!("data: the servers of a cluster share a storage; give s3://, gs://, az:// or hdfs://");
        }
    }
    if config.memory < MEMORY_MIN {
        let (given, least) = (sizes::show_bytes(config.memory), sizes::show_bytes(MEMORY_MIN));
        bail!("memory: {given} is less than the smallest budget, {least}");
    }
    if !limits::TABLET_BYTES.contains(&config.tablet_size) {
        bail!(
            "tablet_size: {} is not within 1 MiB and 64 GiB",
            sizes::show_bytes(config.tablet_size)
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load_text(text: &str, args: &StartArgs) -> Result<Config, String> {
        let file = parse_file(text).map_err(|e| e.to_string())?;
        resolve(args, &file, 8 << 30).map_err(|e| format!("{e:#}"))
    }

    #[test]
    fn hbase_clients_are_told_the_host_of_the_cluster_unless_they_have_their_own() {
        let at: SocketAddr = "127.0.0.1:16020".parse().unwrap();
        let told = |text: &str| {
            let config = load_text(text, &StartArgs::default()).unwrap();
            (config.hbase_told_host().map(str::to_owned), config.hbase_told(at))
        };
        let named = |host: &str, address: &str| (Some(host.to_owned()), address.to_owned());
        let cluster = "cluster = \"etcd://e/c\"\ndata = \"s3://b\"\npeer = \"192.0.2.1:7070\"\ninsecure = \"yes\"";
        assert_eq!(told(""), (None, "127.0.0.1:16020".to_owned()));
        assert_eq!(told(cluster), (None, "127.0.0.1:16020".to_owned()));
        let advertising = format!("{cluster}\nadvertise = \"node-1\"");
        assert_eq!(told(&advertising), named("node-1", "node-1:16020"));
        let own = format!("{advertising}\nhbase_host = \"::1\"");
        assert_eq!(told(&own), named("::1", "[::1]:16020"));
    }

    #[test]
    fn defaults_are_valid_and_the_reference_parses_back_to_them() {
        let plain = load_text("", &StartArgs::default()).unwrap();
        assert_eq!((plain.memory, plain.tablet_size), (4 << 30, 512 << 20));
        let uncommented: String = describe()
            .lines()
            .filter_map(|l| l.strip_prefix('#').filter(|l| !l.starts_with(' ')))
            .fold(String::new(), |all, line| all + line + "\n");
        let mut spelled_out = load_text(&uncommented, &StartArgs::default()).unwrap();
        assert!(!plain.hbase_is_given && spelled_out.hbase_is_given);
        spelled_out.hbase_is_given = false;
        assert_eq!(format!("{plain:?}"), format!("{spelled_out:?}"));
    }

    #[test]
    fn a_flag_wins_over_the_file() {
        let args = StartArgs {
            memory: Some("1GiB".into()),
            ..StartArgs::default()
        };
        let config = load_text("memory = \"25%\"\ndurability = \"flush\"\nfree_space_min = 1000", &args).unwrap();
        assert_eq!(
            (config.memory, config.durability, config.free_space_min),
            (1 << 30, Durability::Flush, 1000)
        );
    }

    #[test]
    fn the_default_address_of_hbase_counts_as_given_where_it_is() {
        let default = "127.0.0.1:16020";
        let args = StartArgs {
            hbase: Some(default.into()),
            ..StartArgs::default()
        };
        assert!(load_text("", &args).unwrap().hbase_is_given);
        let of_file = load_text(&format!("hbase = {default:?}"), &StartArgs::default());
        assert!(of_file.unwrap().hbase_is_given);
        let of_nobody = load_text("", &StartArgs::default()).unwrap();
        assert!(!of_nobody.hbase_is_given && of_nobody.hbase.unwrap().to_string() == default);
    }

    #[test]
    fn slow_calls_have_a_time_or_none() {
        let of = |text: &str| {
            load_text(&format!("slow_call = {text:?}"), &StartArgs::default())
                .unwrap()
                .slow_call
        };
        assert_eq!(
            [of("5ms"), of("3600s"), of("off")],
            [Duration::from_millis(5), Duration::from_secs(3_600), Duration::MAX]
        );
    }

    #[test]
    fn mistakes_are_named() {
        let none = StartArgs::default();
        assert!(load_text("memroy = 1", &none).unwrap_err().contains("memroy"));
        assert!(load_text("memory = true", &none).unwrap_err().contains("boolean"));
        assert!(load_text("memory = \"1MiB\"", &none).unwrap_err().contains("smallest"));
        assert!(
            load_text("durability = \"maybe\"", &none)
                .unwrap_err()
                .contains("maybe")
        );
        assert!(
            load_text("http = \"127.0.0.1:8086\"", &none)
                .unwrap_err()
                .contains("another port")
        );
        assert!(load_text("http = \"nowhere\"", &none).unwrap_err().contains("nowhere"));
        let facade = "hbase = \"off\"\nzookeeper_facade = \"127.0.0.1:2181\"";
        assert!(load_text(facade, &none).unwrap_err().contains("which is off"));
        for (text, named) in [
            ("data = \"ftp://x\"", "ftp://x"),
            ("cluster = \"etcd://e/c\"", "share a storage"),
            ("cluster = \"etcd://e/c\"\npeer = \"0.0.0.0:7070\"", "advertise"),
            (
                "cluster = \"etcd://e/c\"\nadvertise = \"host-1\"",
                "take this server for dead",
            ),
            (
                "cluster = \"etcd://e/c\"\nadvertise = \"192.0.2.1\"\npeer = \"[::1]:7070\"",
                "0.0.0.0:7070",
            ),
            ("cluster = \"etcd://e\"", "etcd://e"),
            ("free_space_min = \"10%\"", "free_space_min"),
            ("cache_size = \"50%\"", "cache_size"),
            ("data_option = \"endpoint=x\"", "endpoint"),
            ("data = \"s3://b\"\ndata_option = \"endpint=x\"", "endpint"),
            ("data = \"s3://b\"\ndata_option = \"endpoint\"", "key=value"),
            ("slow_call = \"0ms\"", "slow_call"),
            ("slow_call = \"200\"", "slow_call"),
            ("otlp = \"host:4317\"", "http://"),
            ("trace_sample = \"2\"", "trace_sample"),
        ] {
            let error = load_text(text, &none).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }
}
