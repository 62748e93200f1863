//! Settings of a cluster: the place of commit logs, and connections.

use super::tls_files::TlsFiles;
use super::{Place, Setting, parse_options};
use anyhow::{Context, bail, ensure};
use std::net::SocketAddr;
use std::path::PathBuf;
use stele_etcd::EtcdAddress;
use stele_hdfs::HdfsAddress;
use stele_objects::Address;

/// The flags of these connections.
#[derive(clap::Args, Default)]
pub struct ConnectionArgs {
    /// Where the servers of the cluster have their commit logs: s3://, gs:// or az://BUCKET/PREFIX, or hdfs://HOST:PORT/DIRECTORY; the same for
    /// all [default: data]
    #[arg(long, env = "STELE_COMMIT_LOG", value_name = "URL")]
    commit_log: Option<String>,
    /// Settings of that store, as data-option [default: none; those of data where commit-log is not given]
    #[arg(
        long,
        env = "STELE_COMMIT_LOG_OPTION",
        value_name = "KEY=VALUE",
        value_delimiter = ','
    )]
    commit_log_option: Vec<String>,
    /// Authorities whose certificates the servers of the cluster have, as PEM; with it they talk under TLS [default: none]
    #[arg(long, env = "STELE_PEER_TLS_CA", value_name = "FILE")]
    peer_tls_ca: Option<String>,
    /// Certificate of the server for other servers, as PEM [default: tls-cert]
    #[arg(long, env = "STELE_PEER_TLS_CERT", value_name = "FILE")]
    peer_tls_cert: Option<String>,
    /// Private key of that certificate, as PEM [default: tls-key]
    #[arg(long, env = "STELE_PEER_TLS_KEY", value_name = "FILE")]
    peer_tls_key: Option<String>,
    /// DNS name that the certificates of all servers of the cluster have [default: the host of each]
    #[arg(long, env = "STELE_PEER_TLS_NAME", value_name = "NAME")]
    peer_tls_name: Option<String>,
    #[command(flatten)]
    etcd: EtcdArgs,
}

/// The flags of the connection to etcd.
#[derive(clap::Args, Default)]
pub struct EtcdArgs {
    /// Authorities of the certificates of etcd, as PEM [default: those of the system]
    #[arg(long, env = "STELE_ETCD_TLS_CA", value_name = "FILE")]
    etcd_tls_ca: Option<String>,
    /// Certificate that the server shows to etcd, as PEM [default: none]
    #[arg(long, env = "STELE_ETCD_TLS_CERT", value_name = "FILE")]
    etcd_tls_cert: Option<String>,
    /// Private key of that certificate, as PEM
    #[arg(long, env = "STELE_ETCD_TLS_KEY", value_name = "FILE")]
    etcd_tls_key: Option<String>,
    /// User of etcd [default: none]
    #[arg(long, env = "STELE_ETCD_USER", value_name = "NAME")]
    etcd_user: Option<String>,
    /// File with the password of that user
    #[arg(long, env = "STELE_ETCD_PASSWORD_FILE", value_name = "FILE")]
    etcd_password_file: Option<String>,
}

impl EtcdArgs {
    /// The values of the flags, in the order of [`etcd`].
    fn flags(&self) -> [(&'static str, &Option<String>); 5] {
        [
            ("etcd_tls_ca", &self.etcd_tls_ca),
            ("etcd_tls_cert", &self.etcd_tls_cert),
            ("etcd_tls_key", &self.etcd_tls_key),
            ("etcd_user", &self.etcd_user),
            ("etcd_password_file", &self.etcd_password_file),
        ]
    }

    /// The files, for a command without a configuration file.
    pub fn files(&self, coordinator: &EtcdAddress, insecure: bool) -> anyhow::Result<EtcdFiles> {
        let given = |(_, flag): (&str, &Option<String>)| flag.clone().filter(|value| !value.is_empty());
        etcd(self.flags().map(given), coordinator, insecure)
    }
}

pub(super) const SETTINGS: [Setting; 11] = [
    Setting {
        key: "commit_log",
        meaning: "Where the servers of the cluster have their commit logs, the same for all. Each acknowledged write waits for this storage, \
                  and not for that of the data.",
        unit: "s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, hdfs://host:port/directory",
        default: "",
        range: "empty for data; needs cluster",
    },
    Setting {
        key: "commit_log_option",
        meaning: "Settings of the object store or of HDFS of commit_log, as in data_option.",
        unit: "key=value, several separated by commas",
        default: "",
        range: "needs commit_log",
    },
    Setting {
        key: "peer_tls_ca",
        meaning: "Authorities whose certificates the servers of the cluster have, as PEM. With it the servers talk under TLS, and \
                  refuse everybody without such a certificate. It is read again when it changes, as are the next two.",
        unit: "path",
        default: "",
        range: "a file; empty for plain text; needs cluster",
    },
    Setting {
        key: "peer_tls_cert",
        meaning: "Certificate of the server for other servers, as PEM, followed by those that lead to an authority. It must be \
                  valid for servers and for clients.",
        unit: "path",
        default: "",
        range: "a file; empty for tls_cert",
    },
    Setting {
        key: "peer_tls_key",
        meaning: "Private key of peer_tls_cert, as PEM.",
        unit: "path",
        default: "",
        range: "a file; needed with peer_tls_cert",
    },
    Setting {
        key: "peer_tls_name",
        meaning: "DNS name that the certificates of all servers of the cluster have. It tells them from other certificates of the \
                  same authority.",
        unit: "name",
        default: "",
        range: "empty if the authority signs for the servers of this cluster alone; each certificate then has the host of its server",
    },
    Setting {
        key: "etcd_tls_ca",
        meaning: "Authorities of the certificates of etcd, as PEM. It is read again when it changes, as are the next two.",
        unit: "path",
        default: "",
        range: "a file; empty for those of the system; needs a cluster of etcds://",
    },
    Setting {
        key: "etcd_tls_cert",
        meaning: "Certificate that the server shows to etcd, as PEM.",
        unit: "path",
        default: "",
        range: "a file; empty for none; needs a cluster of etcds://",
    },
    Setting {
        key: "etcd_tls_key",
        meaning: "Private key of etcd_tls_cert, as PEM.",
        unit: "path",
        default: "",
        range: "a file; needed with etcd_tls_cert",
    },
    Setting {
        key: "etcd_user",
        meaning: "User of etcd, whose password is in etcd_password_file or in the variable STELE_ETCD_PASSWORD.",
        unit: "name",
        default: "",
        range: "empty for none; needs a cluster of etcds://, or of members on this machine",
    },
    Setting {
        key: "etcd_password_file",
        meaning: "File with the password of etcd_user. A line break at its end is not a part of it.",
        unit: "path",
        default: "",
        range: "a file; empty for the variable STELE_ETCD_PASSWORD",
    },
];

/// The files of TLS between servers.
#[derive(Clone, Debug)]
pub struct PeerTlsFiles {
    /// The authorities of the servers.
    pub authorities: PathBuf,
    /// The server's certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The name that all certificates have.
    pub name: Option<String>,
    /// The authorities of clients.
    pub client_ca: Option<PathBuf>,
}

/// The credentials for etcd, and its own.
#[derive(Clone, Debug, Default)]
pub struct EtcdFiles {
    /// The authorities of etcd; `None` for those of the system.
    pub authorities: Option<PathBuf>,
    /// The certificate that etcd is shown, and its key.
    pub own: Option<(PathBuf, PathBuf)>,
    /// The user, and the file of its password; the variable has it otherwise.
    pub user: Option<(String, Option<PathBuf>)>,
}

/// The connections inside of a cluster.
#[derive(Clone, Debug)]
pub struct Connections {
    /// TLS between servers; `None` for plain text.
    pub peers: Option<PeerTlsFiles>,
    /// To etcd.
    pub etcd: EtcdFiles,
}

impl ConnectionArgs {
    /// The place of commit logs; `None` for that of the data.
    pub(super) fn commit_log(
        &self,
        text: &impl Fn(&str, &Option<String>) -> String,
        is_cluster: bool,
    ) -> anyhow::Result<Option<Place>> {
        let joined = (!self.commit_log_option.is_empty()).then(|| self.commit_log_option.join(","));
        let options = text("commit_log_option", &joined);
        let log = text("commit_log", &self.commit_log);
        if log.is_empty() {
            ensure!(
                options.is_empty(),
                "commit_log_option: has no effect without commit_log"
            );
            return Ok(None);
        }
        ensure!(is_cluster, "commit_log: has no effect without cluster");
        let options = parse_options(&options).context("commit_log_option")?;
        let place = match () {
            () if Address::is_one(&log) => Place::Objects(Address::parse(&log, &options).context("commit_log")?),
            () if HdfsAddress::is_one(&log) => Place::Hdfs(HdfsAddress::parse(&log, &options).context("commit_log")?),
            () => bail!("commit_log: {log:?} is not an address with s3://, gs://, az:// or hdfs://"),
        };
        Ok(Some(place))
    }

    /// Parses the settings; `text` gives that of a key and its flag. `tls` is that of the ports of clients.
    pub(super) fn resolve(
        &self,
        text: &impl Fn(&str, &Option<String>) -> String,
        (coordinator, tls, insecure): (Option<&EtcdAddress>, Option<&TlsFiles>, bool),
    ) -> anyhow::Result<Connections> {
        let given = |key: &'static str, flag: &Option<String>| Some(text(key, flag)).filter(|value| !value.is_empty());
        let all = [
            ("peer_tls_ca", &self.peer_tls_ca),
            ("peer_tls_cert", &self.peer_tls_cert),
            ("peer_tls_key", &self.peer_tls_key),
            ("peer_tls_name", &self.peer_tls_name),
        ];
        let of_etcd = self.etcd.flags();
        let values = all.map(|(key, flag)| given(key, flag));
        let etcd = of_etcd.map(|(key, flag)| given(key, flag));
        let Some(coordinator) = coordinator else {
            let mut flags = all.iter().chain(&of_etcd).zip(values.iter().chain(&etcd));
            return match flags.find(|(_, value)| value.is_some()) {
                Some(((key, _), _)) => bail!("{key}: has no effect without cluster"),
                None => Ok(Connections {
                    peers: None,
                    etcd: EtcdFiles::default(),
                }),
            };
        };
        let [ca, cert, key, name] = values;
        Ok(Connections {
            peers: peers(ca, (cert, key), name, tls)?,
            etcd: self::etcd(etcd, coordinator, insecure)?,
        })
    }
}

fn peers(
    ca: Option<String>,
    own: (Option<String>, Option<String>),
    name: Option<String>,
    tls: Option<&TlsFiles>,
) -> anyhow::Result<Option<PeerTlsFiles>> {
    let Some(ca) = ca else {
        return match (own, name) {
            ((None, None), None) => Ok(None),
            _ => bail!("peer_tls_ca: is needed for TLS between servers; without it they talk in plain text"),
        };
    };
    let (certificate, key) = match (own, tls) {
        ((Some(certificate), Some(key)), _) => (certificate.into(), key.into()),
        ((None, None), Some(tls)) => (tls.certificate.clone(), tls.key.clone()),
        ((None, None), None) => bail!("peer_tls_ca: needs peer_tls_cert and peer_tls_key, or tls_cert and tls_key"),
        _ => bail!("peer_tls_cert and peer_tls_key: both are needed, or none"),
    };
    Ok(Some(PeerTlsFiles {
        authorities: ca.into(),
        certificate,
        key,
        name,
        client_ca: tls.and_then(|tls| tls.client_ca.clone()),
    }))
}

fn etcd(values: [Option<String>; 5], coordinator: &EtcdAddress, insecure: bool) -> anyhow::Result<EtcdFiles> {
    let [ca, cert, key, user, password] = values;
    if !coordinator.is_tls() && (ca.is_some() || cert.is_some() || key.is_some()) {
        bail!(
            "etcd_tls_ca, etcd_tls_cert and etcd_tls_key: have no effect without TLS; begin the address in cluster with etcds://"
        );
    }
    if user.is_some() && !coordinator.is_tls() && !coordinator.is_on_loopback() && !insecure {
        bail!(
            "etcd_user: the password would be sent as plain text; begin the address in cluster with etcds://, or set insecure = \
             \"yes\" if nobody else can listen to the network"
        );
    }
    let own = match (cert, key) {
        (Some(cert), Some(key)) => Some((cert.into(), key.into())),
        (None, None) => None,
        _ => bail!("etcd_tls_cert and etcd_tls_key: both are needed, or none"),
    };
    let user = match (user, password) {
        (None, None) => None,
        (None, Some(_)) => bail!("etcd_password_file: needs etcd_user"),
        (Some(user), password) => Some((user, password.map(PathBuf::from))),
    };
    Ok(EtcdFiles {
        authorities: ca.map(PathBuf::from),
        own,
        user,
    })
}

/// Refuses a port for other servers without TLS that other machines can reach.
pub(super) fn check_address(peer: SocketAddr, connections: &Connections, insecure: bool) -> anyhow::Result<()> {
    let is_open = !peer.ip().to_canonical().is_loopback();
    if is_open && connections.peers.is_none() && !insecure {
        bail!(
            "peer: other machines can reach {peer}, and each of them could act as a server: give peer_tls_ca, peer_tls_cert and \
             peer_tls_key, or set insecure = \"yes\" if nobody else can reach the network"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Connections;
    use crate::{StartArgs, parse_file, resolve};

    const CLUSTER: &str = "cluster = \"etcd://127.0.0.1/c\"\ndata = \"s3://b/p\"\n";

    fn load(text: &str) -> Result<Option<Connections>, String> {
        let file = parse_file(text).map_err(|error| error.to_string())?;
        let config = resolve(&StartArgs::default(), &file, 8 << 30).map_err(|error| format!("{error:#}"))?;
        Ok(config.cluster.map(|cluster| cluster.connections))
    }

    #[test]
    fn the_certificate_of_clients_serves_for_peers() {
        let own = "tls_cert = \"c\"\ntls_key = \"k\"\ntls_client_ca = \"a\"\n";
        let peers = |more: &str| load(&format!("{CLUSTER}{own}{more}")).unwrap().unwrap().peers;
        assert!(peers("").is_none());
        let shared = peers("peer_tls_ca = \"pa\"\npeer_tls_name = \"prod\"").unwrap();
        assert_eq!(shared.certificate.to_str(), Some("c"));
        assert_eq!(shared.client_ca.unwrap().to_str(), Some("a"));
        let own = peers("peer_tls_ca = \"pa\"\npeer_tls_cert = \"pc\"\npeer_tls_key = \"pk\"").unwrap();
        assert_eq!((own.certificate.to_str(), own.key.to_str()), (Some("pc"), Some("pk")));
    }

    #[test]
    fn commit_logs_are_on_a_storage_that_all_servers_reach() {
        let place = |text: &str| {
            let file = parse_file(text).map_err(|error| error.to_string())?;
            let config = resolve(&StartArgs::default(), &file, 8 << 30).map_err(|error| format!("{error:#}"))?;
            let log = config.cluster.and_then(|cluster| cluster.commit_log);
            Ok::<_, String>(log.map(|place| place.to_string()))
        };
        assert_eq!(place(CLUSTER).unwrap(), None);
        let on_hdfs = format!("{CLUSTER}commit_log = \"hdfs://n:8020/logs\"\n");
        assert_eq!(place(&on_hdfs).unwrap().as_deref(), Some("hdfs://n:8020/logs"));
        for (wrong, named) in [
            (format!("{CLUSTER}commit_log = \"/mnt/logs\""), "/mnt/logs"),
            (format!("{CLUSTER}commit_log_option = \"user=x\""), "without commit_log"),
            (format!("{on_hdfs}commit_log_option = \"usr=x\""), "usr"),
            ("commit_log = \"hdfs://n/logs\"".to_owned(), "without cluster"),
        ] {
            let error = place(&wrong).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn plain_text_between_servers_stays_on_the_machine() {
        let reachable = format!("{CLUSTER}peer = \"192.0.2.1:7070\"\n");
        let error = load(&reachable).unwrap_err();
        assert!(
            error.starts_with("peer: other machines") && error.contains("peer_tls_ca"),
            "{error}"
        );
        // TLS of clients does not protect that port.
        assert!(load(&format!("{reachable}tls_cert = \"c\"\ntls_key = \"k\"")).is_err());
        for allowed in [
            "insecure = \"yes\"",
            "peer_tls_ca = \"a\"\npeer_tls_cert = \"c\"\npeer_tls_key = \"k\"",
        ] {
            assert!(load(&format!("{reachable}{allowed}")).is_ok(), "{allowed}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (text, named) in [
            ("peer_tls_ca = \"a\"", "peer_tls_ca: needs peer_tls_cert"),
            ("peer_tls_name = \"n\"", "peer_tls_ca: is needed"),
            ("peer_tls_cert = \"c\"\npeer_tls_key = \"k\"", "peer_tls_ca: is needed"),
            ("peer_tls_ca = \"a\"\npeer_tls_cert = \"c\"", "both are needed"),
            ("etcd_tls_ca = \"a\"", "etcds://"),
            ("etcd_password_file = \"p\"", "needs etcd_user"),
        ] {
            let error = load(&format!("{CLUSTER}{text}")).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
        let error = load("peer_tls_ca = \"a\"").unwrap_err();
        assert!(error.contains("without cluster"), "{error}");
        let far = "cluster = \"etcd://e/c\"\ndata = \"s3://b/p\"\netcd_user = \"u\"\n";
        assert!(load(far).unwrap_err().contains("plain text"));
        let secured = far.replace("etcd://", "etcds://") + "etcd_tls_cert = \"c\"\n";
        assert!(load(&secured).unwrap_err().contains("both are needed"));
        let etcd = load(&(secured + "etcd_tls_key = \"k\"\n")).unwrap().unwrap().etcd;
        assert_eq!(etcd.user, Some(("u".to_owned(), None)));
    }
}
