//! The flags of `stele start`.

use crate::archive::ArchiveArgs;
use crate::cluster::ConnectionArgs;
use crate::loads::LoadArgs;
use crate::security::SecurityArgs;
use crate::traces::TraceArgs;
use std::path::PathBuf;

/// The flags of `stele start`. All are text here; [`load`](crate::load) parses them together with the other sources.
#[derive(clap::Args, Default)]
pub struct StartArgs {
    /// The data: a folder, made when missing, s3://, gs:// or az://BUCKET/PREFIX, or hdfs://HOST:PORT/DIRECTORY
    /// [default: ./stele-data]
    #[arg(long, env = "STELE_DATA", value_name = "DIR|URL")]
    pub(crate) data: Option<String>,
    /// Setting of the object store or of HDFS, such as endpoint=https://store:9000; may be repeated
    #[arg(long, env = "STELE_DATA_OPTION", value_name = "KEY=VALUE", value_delimiter = ',')]
    pub(crate) data_option: Vec<String>,
    /// Folder that caches data read from the object store or HDFS [default: none]
    #[arg(long, env = "STELE_CACHE_DIR", value_name = "DIR")]
    pub(crate) cache_dir: Option<String>,
    /// Most bytes in that folder [default: 10GiB]
    #[arg(long, env = "STELE_CACHE_SIZE", value_name = "BYTES")]
    pub(crate) cache_size: Option<String>,
    /// Coordinator of the cluster that the server joins, etcd:// or etcds://HOST:PORT,…/NAME [default: none, a single server]
    #[arg(long, env = "STELE_CLUSTER", value_name = "URL")]
    pub(crate) cluster: Option<String>,
    /// Address at which other servers of the cluster reach this one [default: 127.0.0.1:7070]
    #[arg(long, env = "STELE_PEER", value_name = "ADDR")]
    pub(crate) peer: Option<String>,
    /// Host that other servers and clients of the cluster are told [default: the one of each address]
    #[arg(long, env = "STELE_ADVERTISE", value_name = "HOST")]
    pub(crate) advertise: Option<String>,
    /// How long a server that is silent keeps its tablets [default: 10s]
    #[arg(long, env = "STELE_SESSION", value_name = "DURATION")]
    pub(crate) session: Option<String>,
    /// Address of the Bigtable API [default: 127.0.0.1:8086]
    #[arg(long, env = "STELE_BIGTABLE", value_name = "ADDR")]
    pub(crate) bigtable: Option<String>,
    /// Address of the HBase API, or off [default: 127.0.0.1:16020]
    #[arg(long, env = "STELE_HBASE", value_name = "ADDR|off")]
    pub(crate) hbase: Option<String>,
    /// Host that HBase clients are told [default: the one of the address, or of the machine if that is any]
    #[arg(long, env = "STELE_HBASE_HOST", value_name = "HOST")]
    pub(crate) hbase_host: Option<String>,
    /// Address at which HBase clients find the server as if in ZooKeeper, or off [default: off]
    #[arg(long, env = "STELE_ZOOKEEPER_FACADE", value_name = "ADDR|off")]
    pub(crate) zookeeper_facade: Option<String>,
    /// Address of the console, health checks and metrics [default: 127.0.0.1:8088]
    #[arg(long, env = "STELE_HTTP", value_name = "ADDR")]
    pub(crate) http: Option<String>,
    /// Memory budget, in bytes or percent of the machine or cgroup [default: 50%]
    #[arg(long, env = "STELE_MEMORY", value_name = "BYTES|PERCENT")]
    pub(crate) memory: Option<String>,
    /// Durability of acknowledged writes: sync survives a power loss, flush the end of the process, none neither
    /// [default: sync]
    #[arg(long, env = "STELE_DURABILITY", value_name = "sync|flush|none")]
    pub(crate) durability: Option<String>,
    /// Bytes at which a tablet splits [default: 512MiB]
    #[arg(long, env = "STELE_TABLET_SIZE", value_name = "BYTES")]
    pub(crate) tablet_size: Option<String>,
    /// Free bytes of the disk below which writes are refused [default: 64MiB]
    #[arg(long, env = "STELE_FREE_SPACE_MIN", value_name = "BYTES")]
    pub(crate) free_space_min: Option<String>,
    /// How long deleted tables and dropped rows can be had back: a number of seconds, hours (24h) or days (7d), or off
    /// [default: 24h]
    #[arg(long, env = "STELE_KEEP_DELETED", value_name = "DURATION|off")]
    pub(crate) keep_deleted: Option<String>,
    /// Time from which on a call is kept among the slow ones, or off [default: 200ms]
    #[arg(long, env = "STELE_SLOW_CALL", value_name = "DURATION|off")]
    pub(crate) slow_call: Option<String>,
    /// How long requests in flight may take at shutdown [default: 10s]
    #[arg(long, env = "STELE_DRAIN_TIMEOUT", value_name = "DURATION")]
    pub(crate) drain_timeout: Option<String>,
    /// Log level, or a tracing filter [default: info]
    #[arg(long, env = "STELE_LOG", value_name = "FILTER")]
    pub(crate) log: Option<String>,
    /// Format of the log: text or json [default: text]
    #[arg(long, env = "STELE_LOG_FORMAT", value_name = "text|json")]
    pub(crate) log_format: Option<String>,
    #[command(flatten)]
    pub(crate) traces: TraceArgs,
    #[command(flatten)]
    pub(crate) archive: ArchiveArgs,
    #[command(flatten)]
    pub(crate) loads: LoadArgs,
    #[command(flatten)]
    pub(crate) security: SecurityArgs,
    #[command(flatten)]
    pub(crate) connections: ConnectionArgs,
    /// Configuration file with any of these keys
    #[arg(long, env = "STELE_CONFIG", value_name = "FILE.toml")]
    pub(crate) config: Option<PathBuf>,
}
