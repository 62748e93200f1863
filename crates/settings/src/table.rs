//! The table of settings that are of no other module.

/// The value that turns an address off.
pub(crate) const OFF: &str = "off";

/// One setting, for the reference.
pub(crate) struct Setting {
    pub(crate) key: &'static str,
    pub(crate) meaning: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) default: &'static str,
    pub(crate) range: &'static str,
}

pub(crate) const SETTINGS: [Setting; 22] = [
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
        range: "any local address, with advertise none that only this machine reaches; port 0 takes a free one",
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
        default: "127.0.0.1:16020",
        range: "any local address; port 0 takes a free one; off",
    },
    Setting {
        key: "hbase_host",
        meaning: "Host that HBase clients are told to reach this server at.",
        unit: "name or address",
        default: "",
        range: "empty for advertise; without that for the address of hbase, or the machine's name if that is 0.0.0.0 or \
                [::]",
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
                  benefit of each; the process should stay within 200MB of it.",
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
