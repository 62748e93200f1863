//! Settings come from one table of keys.
//!
//! Flags, variables, the configuration file and the reference are made from it. A flag takes precedence over a
//! `STELE_…` variable, which takes precedence over the file, which takes precedence over the default. Unknown keys in
//! the file are errors.

mod archive;
mod cluster;
mod loads;
mod security;
pub mod sizes;
mod tls_files;
mod traces;

pub use archive::ArchiveConfig;
pub use cluster::{Connections, EtcdArgs, EtcdFiles, PeerTlsFiles};
pub use security::{AccessConfig, OidcConfig, SecurityConfig, check_key_address};
pub use tls_files::TlsFiles;
pub use traces::TraceConfig;

use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use stele_etcd::EtcdAddress;
use stele_hdfs::HdfsAddress;
use stele_objects::Address;
use stele_storage::remote::cache::CacheOptions;
use stele_types::{Durability, limits};

/// The flags of `stele start`. All are text here; [`load`] parses them together with the other sources.
#[derive(clap::Args, Default)]
pub struct StartArgs {
    /// The data: a folder, made when missing, s3://, gs:// or az://BUCKET/PREFIX, or hdfs://HOST:PORT/DIRECTORY
    /// [default: ./stele-data]
    #[arg(long, env = "STELE_DATA", value_name = "DIR|URL")]
    data: Option<String>,
    /// Setting of the object store or of HDFS, such as endpoint=http://127.0.0.1:7070; may be repeated
    #[arg(long, env = "STELE_DATA_OPTION", value_name = "KEY=VALUE", value_delimiter = ',')]
    data_option: Vec<String>,
    /// Folder that caches data read from the object store or HDFS [default: none]
    #[arg(long, env = "STELE_CACHE_DIR", value_name = "DIR")]
    cache_dir: Option<String>,
    /// Most bytes in that folder [default: 10GiB]
    #[arg(long, env = "STELE_CACHE_SIZE", value_name = "BYTES")]
    cache_size: Option<String>,
    /// Coordinator of the cluster that the server joins, etcd:// or etcds://HOST:PORT,…/NAME [default: none, a single server]
    #[arg(long, env = "STELE_CLUSTER", value_name = "URL")]
    cluster: Option<String>,
    /// Address at which other servers of the cluster reach this one [default: 127.0.0.1:7070]
    #[arg(long, env = "STELE_PEER", value_name = "ADDR")]
    peer: Option<String>,
    /// Host that other servers and clients of the cluster are told [default: the one of each address]
    #[arg(long, env = "STELE_ADVERTISE", value_name = "HOST")]
    advertise: Option<String>,
    /// How long a server that is silent keeps its tablets [default: 10s]
    #[arg(long, env = "STELE_SESSION", value_name = "DURATION")]
    session: Option<String>,
    /// Address of the Bigtable API [default: 127.0.0.1:8086]
    #[arg(long, env = "STELE_BIGTABLE", value_name = "ADDR")]
    bigtable: Option<String>,
    /// Address of the HBase API, or off [default: 127.0.0.1:16020]
    #[arg(long, env = "STELE_HBASE", value_name = "ADDR|off")]
    hbase: Option<String>,
    /// Host that HBase clients are told [default: the one of the address, or of the machine if that is any]
    #[arg(long, env = "STELE_HBASE_HOST", value_name = "HOST")]
    hbase_host: Option<String>,
    /// Address at which HBase clients find the server as if in ZooKeeper, or off [default: off]
    #[arg(long, env = "STELE_ZOOKEEPER_FACADE", value_name = "ADDR|off")]
    zookeeper_facade: Option<String>,
    /// Address of the console, health checks and metrics [default: 127.0.0.1:8088]
    #[arg(long, env = "STELE_HTTP", value_name = "ADDR")]
    http: Option<String>,
    /// Memory budget, in bytes or percent of the machine or cgroup [default: 50%]
    #[arg(long, env = "STELE_MEMORY", value_name = "BYTES|PERCENT")]
    memory: Option<String>,
    /// Durability of acknowledged writes: sync survives a power loss, flush the end of the process, none neither
    /// [default: sync]
    #[arg(long, env = "STELE_DURABILITY", value_name = "sync|flush|none")]
    durability: Option<String>,
    /// Bytes at which a tablet splits [default: 512MiB]
    #[arg(long, env = "STELE_TABLET_SIZE", value_name = "BYTES")]
    tablet_size: Option<String>,
    /// Free bytes of the disk below which writes are refused [default: 64MiB]
    #[arg(long, env = "STELE_FREE_SPACE_MIN", value_name = "BYTES")]
    free_space_min: Option<String>,
    /// How long deleted tables and dropped rows can be had back: a number of seconds, hours (24h) or days (7d), or off
    /// [default: 24h]
    #[arg(long, env = "STELE_KEEP_DELETED", value_name = "DURATION|off")]
    keep_deleted: Option<String>,
    /// Time from which on a call is kept among the slow ones, or off [default: 200ms]
    #[arg(long, env = "STELE_SLOW_CALL", value_name = "DURATION|off")]
    slow_call: Option<String>,
    /// How long requests in flight may take at shutdown [default: 10s]
    #[arg(long, env = "STELE_DRAIN_TIMEOUT", value_name = "DURATION")]
    drain_timeout: Option<String>,
    /// Log level, or a tracing filter [default: info]
    #[arg(long, env = "STELE_LOG", value_name = "FILTER")]
    log: Option<String>,
    /// Format of the log: text or json [default: text]
    #[arg(long, env = "STELE_LOG_FORMAT", value_name = "text|json")]
    log_format: Option<String>,
    #[command(flatten)]
    traces: traces::TraceArgs,
    #[command(flatten)]
    archive: archive::ArchiveArgs,
    #[command(flatten)]
    loads: loads::LoadArgs,
    #[command(flatten)]
    security: security::SecurityArgs,
    #[command(flatten)]
    connections: cluster::ConnectionArgs,
    /// Configuration file with any of these keys
    #[arg(long, env = "STELE_CONFIG", value_name = "FILE.toml")]
    config: Option<PathBuf>,
}

/// One setting, for the reference.
struct Setting {
    key: &'static str,
    meaning: &'static str,
    unit: &'static str,
    default: &'static str,
    range: &'static str,
}

const SETTINGS: [Setting; 22] = [
    Setting {
        key: "data",
        meaning: "Place of the data: a folder, made when missing and used by one server at a time, or a prefix of an object \
                  store or a directory of HDFS, whose owner is the last server started on it.",
        unit: "path, or s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, hdfs://host:port/directory",
        default: "./stele-data",
        range: "a folder, prefix or directory that is empty or was made by Stele",
    },
    Setting {
        key: "data_option",
        meaning: "Settings of the object store or of HDFS. For an object store, in addition to the variables of its provider: endpoint, region, allow_http, \
                  virtual_hosted_style_request, access_key_id and others, as the object_store library names them. For HDFS, \
                  in addition to Hadoop's files in HADOOP_CONF_DIR: user, replication, and properties of Hadoop.",
        unit: "key=value, several separated by commas",
        default: "",
        range: "",
    },
    Setting {
        key: "cache_dir",
        meaning: "Folder of the local disk that caches data read from the object store or HDFS. It may be lost at any time; two \
                  servers must not share it.",
        unit: "path",
        default: "",
        range: "a folder; empty for none",
    },
    Setting {
        key: "cache_size",
        meaning: "Most bytes in cache_dir.",
        unit: "bytes",
        default: "10GiB",
        range: "0 and more",
    },
    Setting {
        key: "cluster",
        meaning: "Coordinator of the cluster that the server joins. All its servers have the same one and the same data.",
        unit: "etcd://host:port,host:port/name, or etcds:// under TLS",
        default: "",
        range: "empty for a single server",
    },
    Setting {
        key: "peer",
        meaning: "Address at which the other servers of the cluster reach this one.",
        unit: "address:port",
        default: "127.0.0.1:7070",
        range: "any local address; port 0 takes a free one",
    },
    Setting {
        key: "advertise",
        meaning: "Host that other servers of the cluster and clients are told for the ports of this server.",
        unit: "name or address",
        default: "",
        range: "empty for the host of each address",
    },
    Setting {
        key: "session",
        meaning: "How long a server of a cluster that is silent keeps its tablets. A server whose process is gone loses them \
                  at once.",
        unit: "seconds",
        default: "10s",
        range: "2s to 600s",
    },
    Setting {
        key: "bigtable",
        meaning: "Address of the Bigtable API (gRPC).",
        unit: "address:port",
        default: "127.0.0.1:8086",
        range: "any local address; port 0 takes a free one",
    },
    Setting {
        key: "hbase",
        meaning: "Address of the HBase API. If it is not given and the default is taken by another process, the server \
                  starts without it and warns.",
        unit: "address:port",
        default: HBASE_DEFAULT,
        range: "any local address; port 0 takes a free one; off",
    },
    Setting {
        key: "hbase_host",
        meaning: "Host that HBase clients are told to reach this server at.",
        unit: "name or address",
        default: "",
        range: "empty for the address of hbase, or the machine's name if that is 0.0.0.0 or [::]",
    },
    Setting {
        key: "zookeeper_facade",
        meaning: "Address of a read-only server of ZooKeeper's protocol that names this server to HBase clients. It is for \
                  clients that can set only a ZooKeeper quorum, and for HBase's replication.",
        unit: "address:port",
        default: OFF,
        range: "any local address; port 0 takes a free one; off",
    },
    Setting {
        key: "http",
        meaning: "Address of the console, /healthz, /readyz and /metrics.",
        unit: "address:port",
        default: "127.0.0.1:8088",
        range: "any local address other than the Bigtable one; port 0 takes a free one",
    },
    Setting {
        key: "memory",
        meaning: "Budget of memtables, block cache, row cache, indexes of open files and requests in flight. The server divides it by the \
                  benefit of each; the process stays within 200MB of it.",
        unit: "bytes, or percent of the machine's or cgroup's memory",
        default: "50%",
        range: "64MiB and more",
    },
    Setting {
        key: "durability",
        meaning: "Failure that an acknowledged write survives, unless the table sets another: power loss (sync), the end of \
                  the process (flush), or none.",
        unit: "",
        default: "sync",
        range: "sync, flush, none",
    },
    Setting {
        key: "tablet_size",
        meaning: "Stored bytes at which a tablet splits in two.",
        unit: "bytes",
        default: "512MiB",
        range: "1MiB to 64GiB",
    },
    Setting {
        key: "free_space_min",
        meaning: "Free bytes of the disk below which writes are refused, so that accepted writes can still be stored. \
                  64MiB more are reserved for the server's own records.",
        unit: "bytes",
        default: "64MiB",
        range: "0 and more",
    },
    Setting {
        key: "keep_deleted",
        meaning: "How long a table that was deleted, and a table before rows or families of it were dropped, is kept so that the \
                  accident can be undone. Until then its files take space; while the disk is full they are given up. How long \
                  it takes until an accident is noticed only its operators know.",
        unit: "seconds, hours or days",
        default: "24h",
        range: "1s to 90d, or off",
    },
    Setting {
        key: "slow_call",
        meaning: "Time that the server works on a call from which on the call is kept among the slow ones, which the console \
                  and `stele slow` show. The right value depends on the storage and on the rows.",
        unit: "milliseconds or seconds",
        default: "200ms",
        range: "1ms to 3600s, or off",
    },
    Setting {
        key: "drain_timeout",
        meaning: "Longest time that a stopping server waits for requests in flight.",
        unit: "seconds",
        default: "10s",
        range: "0s to 3600s",
    },
    Setting {
        key: "log",
        meaning: "Log level: error, warn, info, debug, trace, or a tracing filter such as \
                  info,stele_tabletserver=debug.",
        unit: "",
        default: "info",
        range: "a tracing filter",
    },
    Setting {
        key: "log_format",
        meaning: "Format of the log on standard error.",
        unit: "",
        default: "text",
        range: "text, json",
    },
];

/// The value that turns an address off.
const OFF: &str = "off";

/// Where the HBase API is served if the settings do not say.
const HBASE_DEFAULT: &str = "127.0.0.1:16020";

/// The smallest budget that covers the fixed costs and leaves memory for requests.
const MEMORY_MIN: u64 = 64 << 20;

/// The place of the data.
#[derive(Clone, Debug)]
pub enum Place {
    /// A folder of the local disk.
    Folder(PathBuf),
    /// A prefix of an object store.
    Objects(Address),
    /// A directory of HDFS.
    Hdfs(HdfsAddress),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Folder(path) => write!(f, "{}", path.display()),
            Place::Objects(address) => write!(f, "{address}"),
            Place::Hdfs(address) => write!(f, "{address}"),
        }
    }
}

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
    /// Whether the settings name that address, and not the default one.
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
        let resolved = std::net::ToSocketAddrs::to_socket_addrs(&text)
            .ok()
            .and_then(|mut found| found.next());
        resolved.with_context(|| format!("{key}: {text:?} is not an address and port such as 127.0.0.1:8086"))
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
        hbase_is_given: text("hbase", &args.hbase) != HBASE_DEFAULT,
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
        let told = [Some(cluster.peer), Some(config.bigtable), config.hbase];
        if cluster.advertise.is_empty() && told.into_iter().flatten().any(|address| address.ip().is_unspecified()) {
            bail!(
                "advertise: other servers cannot be told to connect to 0.0.0.0 or [::]; give the host of this server"
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

/// `key=value,key=value`.
pub fn parse_options(text: &str) -> anyhow::Result<Vec<(String, String)>> {
    let given = text.split(',').map(str::trim).filter(|option| !option.is_empty());
    given
        .map(|option| match option.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.trim().to_owned())),
            _ => bail!("data_option: {option:?} is not of the form key=value"),
        })
        .collect()
}

/// A folder, or a prefix of an object store.
pub fn parse_place(text: &str, options: &[(String, String)]) -> anyhow::Result<Place> {
    if Address::is_one(text) {
        return Ok(Place::Objects(Address::parse(text, options).context("data")?));
    }
    if HdfsAddress::is_one(text) {
        return Ok(Place::Hdfs(HdfsAddress::parse(text, options).context("data")?));
    }
    if text.contains("://") {
        bail!("data: {text:?} is neither a folder nor an address with s3://, gs://, az:// or hdfs://");
    }
    if let Some((key, _)) = options.first() {
        bail!("data_option: {key:?} is of no use to a folder");
    }
    Ok(Place::Folder(text.into()))
}

/// The longest time that deleted tables are kept: that of a backup of the Bigtable API.
const GRACE_SECONDS_MAX: u64 = 90 * 86_400;

fn parse_grace(text: &str) -> anyhow::Result<Duration> {
    let text = text.trim();
    if text == OFF || text == "0" {
        return Ok(Duration::ZERO);
    }
    let (number, unit) = match text.strip_suffix(['s', 'h', 'd']) {
        Some(number) if text.ends_with('h') => (number, 3_600),
        Some(number) if text.ends_with('d') => (number, 86_400),
        Some(number) => (number, 1),
        None => (text, 1),
    };
    let seconds = number
        .trim()
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(unit));
    match seconds {
        Some(seconds @ 1..=GRACE_SECONDS_MAX) => Ok(Duration::from_secs(seconds)),
        _ => bail!("keep_deleted: {text:?} is neither off nor a time from 1s to 90d"),
    }
}

fn parse_slow_call(text: &str) -> anyhow::Result<Duration> {
    let text = text.trim();
    if text == OFF {
        return Ok(Duration::MAX);
    }
    let parse = |number: &str| number.trim().parse::<u64>().ok();
    let millis = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(millis), _) => parse(millis),
        (None, Some(seconds)) => parse(seconds).and_then(|seconds| seconds.checked_mul(1_000)),
        (None, None) => None,
    };
    match millis {
        Some(millis @ 1..=3_600_000) => Ok(Duration::from_millis(millis)),
        _ => bail!("slow_call: {text:?} is neither off nor a time from 1ms to 3600s"),
    }
}

/// A time in seconds, with or without the unit. `key` is the setting that an error names.
pub fn parse_seconds(key: &str, text: &str) -> anyhow::Result<Duration> {
    let number = text.trim().strip_suffix('s').unwrap_or(text.trim()).trim();
    match number.parse::<u64>() {
        Ok(seconds) if seconds <= 3600 => Ok(Duration::from_secs(seconds)),
        _ => bail!("{key}: {text:?} is not a number of seconds from 0s to 3600s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load_text(text: &str, args: &StartArgs) -> Result<Config, String> {
        let file = parse_file(text).map_err(|e| e.to_string())?;
        resolve(args, &file, 8 << 30).map_err(|e| format!("{e:#}"))
    }

    #[test]
    fn defaults_are_valid_and_the_reference_parses_back_to_them() {
        let plain = load_text("", &StartArgs::default()).unwrap();
        assert_eq!((plain.memory, plain.tablet_size), (4 << 30, 512 << 20));
        let uncommented: String = describe()
            .lines()
            .filter_map(|l| l.strip_prefix('#').filter(|l| !l.starts_with(' ')))
            .fold(String::new(), |all, line| all + line + "\n");
        let spelled_out = load_text(&uncommented, &StartArgs::default()).unwrap();
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
