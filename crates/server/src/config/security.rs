//! Settings of security, and the rule for addresses that other machines can reach.

use super::{Config, Setting, cluster};
use anyhow::bail;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The flags of security.
#[derive(clap::Args, Default)]
pub struct SecurityArgs {
    /// Certificate of the server for TLS on all ports, as PEM, followed by those that lead to an authority [default: none]
    #[arg(long, env = "STELE_TLS_CERT", value_name = "FILE")]
    tls_cert: Option<String>,
    /// Private key of that certificate, as PEM
    #[arg(long, env = "STELE_TLS_KEY", value_name = "FILE")]
    tls_key: Option<String>,
    /// Authorities whose certificates clients may present, as PEM [default: none]
    #[arg(long, env = "STELE_TLS_CLIENT_CA", value_name = "FILE")]
    tls_client_ca: Option<String>,
    /// Whether clients must present a certificate [default: required]
    #[arg(long, env = "STELE_TLS_CLIENT_AUTH", value_name = "required|optional")]
    tls_client_auth: Option<String>,
    /// Serves without TLS at addresses that other machines can reach
    #[arg(long, env = "STELE_INSECURE", value_name = "yes|no", num_args = 0..=1, default_missing_value = YES)]
    insecure: Option<String>,
    /// Whether callers must be known and need rights: off or rules [default: off]
    #[arg(long, env = "STELE_ACCESS", value_name = "off|rules")]
    access: Option<String>,
    /// Names of callers that may do everything, separated by commas
    #[arg(long, env = "STELE_SUPERUSERS", value_name = "NAME,...")]
    superusers: Option<String>,
    /// File with the hashes of bearer tokens, which `stele token create` writes [default: none]
    #[arg(long, env = "STELE_TOKENS", value_name = "FILE")]
    tokens: Option<String>,
    /// Believes the user name that an HBase client states
    #[arg(long, env = "STELE_HBASE_TRUST_USER", value_name = "yes|no", num_args = 0..=1, default_missing_value = YES)]
    hbase_trust_user: Option<String>,
    /// Folder for the audit log [default: none]
    #[arg(long, env = "STELE_AUDIT_LOG", value_name = "DIR")]
    audit_log: Option<String>,
    /// Writes reads and writes of rows to the audit log, too
    #[arg(long, env = "STELE_AUDIT_ROWS", value_name = "yes|no", num_args = 0..=1, default_missing_value = YES)]
    audit_rows: Option<String>,
}

const YES: &str = "yes";

pub(super) const SETTINGS: [Setting; 11] = [
    Setting {
        key: "tls_cert",
        meaning: "Certificate of the server, as PEM, followed by those that lead to an authority. With it all ports are \
                  under TLS. It is read again when it changes.",
        unit: "path",
        default: "",
        range: "a file; empty for plain text",
    },
    Setting {
        key: "tls_key",
        meaning: "Private key of tls_cert, as PEM.",
        unit: "path",
        default: "",
        range: "a file; needed with tls_cert",
    },
    Setting {
        key: "tls_client_ca",
        meaning: "Authorities whose certificates clients may present, as PEM. The name in such a certificate is the \
                  client's.",
        unit: "path",
        default: "",
        range: "a file; empty to ask clients for no certificate",
    },
    Setting {
        key: "tls_client_auth",
        meaning: "Whether a client without a certificate is refused (required) or may show its identity in another way \
                  (optional). Needs tls_client_ca.",
        unit: "",
        default: "required",
        range: "required, optional",
    },
    Setting {
        key: "insecure",
        meaning: "Serves without TLS at addresses that other machines can reach. For networks that nobody else can \
                  listen to.",
        unit: "",
        default: "no",
        range: "yes, no",
    },
    Setting {
        key: "access",
        meaning: "Whether everybody may do everything (off), or callers must show their identity and need rights (rules).",
        unit: "",
        default: "off",
        range: "off, rules",
    },
    Setting {
        key: "superusers",
        meaning: "Callers that may do everything, without regard to the rules. The first rules are theirs to give.",
        unit: "names, separated by commas",
        default: "",
        range: "needs access = rules",
    },
    Setting {
        key: "tokens",
        meaning: "File with the hashes of bearer tokens. It is read again when it changes.",
        unit: "path",
        default: "",
        range: "a file; empty for none; needs access = rules",
    },
    Setting {
        key: "hbase_trust_user",
        meaning: "Believes the user name that an HBase client without a certificate states. Anybody who reaches the port can \
                  then be anybody, superusers excepted.",
        unit: "",
        default: "no",
        range: "yes, no; needs access = rules",
    },
    Setting {
        key: "audit_log",
        meaning: "Folder for the audit log: administrative calls, refused callers and denied calls as JSON lines.",
        unit: "path",
        default: "",
        range: "a folder of its own; empty for none; needs access = rules",
    },
    Setting {
        key: "audit_rows",
        meaning: "Writes reads and writes of rows to the audit log, too: their table, never their rows or values.",
        unit: "",
        default: "no",
        range: "yes, no; needs audit_log",
    },
];

/// Parsed settings of security.
#[derive(Clone, Debug)]
pub struct SecurityConfig {
    /// TLS of all ports; `None` for plain text.
    pub tls: Option<TlsFiles>,
    /// Plain text is served at any address.
    pub insecure: bool,
    /// Callers and their rights; `None` where everybody may do everything.
    pub access: Option<AccessConfig>,
}

/// Parsed settings of callers and their rights.
#[derive(Clone, Debug)]
pub struct AccessConfig {
    /// Callers that may do everything.
    pub superusers: HashSet<String>,
    /// The file of tokens.
    pub tokens: Option<PathBuf>,
    /// The names that HBase clients state are believed.
    pub trusts_users: bool,
    /// The folder of the audit log.
    pub audit_log: Option<PathBuf>,
    /// Reads and writes of rows are in the audit log, too.
    pub audits_rows: bool,
}

/// The files of TLS.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The server's certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authorities of clients.
    pub client_ca: Option<PathBuf>,
    /// A client without a certificate is refused.
    pub requires_client: bool,
}

impl SecurityArgs {
    /// Parses the settings; `text` gives that of a key and its flag.
    pub(super) fn resolve(&self, text: &impl Fn(&str, &Option<String>) -> String) -> anyhow::Result<SecurityConfig> {
        let yes = |key: &str, flag: &Option<String>| match text(key, flag).as_str() {
            YES => Ok(true),
            "no" => Ok(false),
            other => bail!("{key}: {other:?} is none of yes, no"),
        };
        let file = |key: &str, flag: &Option<String>| Some(text(key, flag)).filter(|path| !path.is_empty());
        let requires_client = match text("tls_client_auth", &self.tls_client_auth).as_str() {
            "required" => true,
            "optional" => false,
            other => bail!("tls_client_auth: {other:?} is none of required, optional"),
        };
        let client_ca = file("tls_client_ca", &self.tls_client_ca);
        let tls = match (file("tls_cert", &self.tls_cert), file("tls_key", &self.tls_key)) {
            (Some(certificate), Some(key)) => Some(TlsFiles {
                certificate: certificate.into(),
                key: key.into(),
                client_ca: client_ca.map(PathBuf::from),
                requires_client,
            }),
            (None, None) if client_ca.is_some() => bail!("tls_client_ca: needs tls_cert and tls_key"),
            (None, None) => None,
            _ => bail!("tls_cert and tls_key: both are needed, or none"),
        };
        let superusers = text("superusers", &self.superusers);
        let names = superusers.split(',').map(str::trim).filter(|name| !name.is_empty());
        let access = AccessConfig {
            superusers: names.map(str::to_owned).collect(),
            tokens: file("tokens", &self.tokens).map(PathBuf::from),
            trusts_users: yes("hbase_trust_user", &self.hbase_trust_user)?,
            audit_log: file("audit_log", &self.audit_log).map(PathBuf::from),
            audits_rows: yes("audit_rows", &self.audit_rows)?,
        };
        let has_certificates = tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        let access = match text("access", &self.access).as_str() {
            "off" => access.check_unused().map(|()| None)?,
            "rules" => access.check(has_certificates).map(|()| Some(access))?,
            other => bail!("access: {other:?} is none of off, rules"),
        };
        Ok(SecurityConfig {
            tls,
            insecure: yes("insecure", &self.insecure)?,
            access,
        })
    }
}

impl AccessConfig {
    /// Refuses settings without an effect: they would seem to protect.
    fn check_unused(&self) -> anyhow::Result<()> {
        let given = [
            ("superusers", !self.superusers.is_empty()),
            ("tokens", self.tokens.is_some()),
            ("hbase_trust_user", self.trusts_users),
            ("audit_log", self.audit_log.is_some()),
            ("audit_rows", self.audits_rows),
        ];
        match given.iter().find(|(_, is_given)| *is_given) {
            Some((key, _)) => bail!("{key}: has no effect without access = \"rules\""),
            None => Ok(()),
        }
    }

    fn check(&self, has_certificates: bool) -> anyhow::Result<()> {
        if !has_certificates && self.tokens.is_none() && !self.trusts_users {
            bail!("access: callers cannot show who they are: give tls_client_ca, tokens or hbase_trust_user");
        }
        if self.audits_rows && self.audit_log.is_none() {
            bail!("audit_rows: has no effect without audit_log");
        }
        Ok(())
    }
}

/// Refuses plain text at addresses that other machines can reach, unless it was asked for.
pub(super) fn check_addresses(config: &Config) -> anyhow::Result<()> {
    if let Some(of) = &config.cluster {
        cluster::check_address(of.peer, &of.connections, config.security.insecure)?;
    }
    if config.security.tls.is_some() || config.security.insecure {
        return Ok(());
    }
    let addresses: [(&str, Option<SocketAddr>); 4] = [
        ("bigtable", Some(config.bigtable)),
        ("hbase", config.hbase),
        ("zookeeper_facade", config.zookeeper_facade),
        ("http", Some(config.http)),
    ];
    for (key, address) in addresses {
        if let Some(address) = address.filter(|address| !address.ip().to_canonical().is_loopback()) {
            bail!(
                "{key}: other machines can reach {address}, and everything would be sent as plain text: give tls_cert and \
                 tls_key, or set insecure = \"yes\" if nobody else can listen to the network"
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, StartArgs, parse_file, resolve};

    fn load(text: &str) -> Result<Config, String> {
        let file = parse_file(text).map_err(|e| e.to_string())?;
        resolve(&StartArgs::default(), &file, 8 << 30).map_err(|e| format!("{e:#}"))
    }

    #[test]
    fn plain_text_stays_on_the_machine() {
        for (key, address) in [
            ("bigtable", "0.0.0.0:1"),
            ("bigtable", "[::]:1"),
            ("hbase", "192.0.2.1:1"),
            ("zookeeper_facade", "[::ffff:192.0.2.1]:1"),
            ("http", "192.0.2.1:1"),
        ] {
            let line = format!("{key} = \"{address}\"\n");
            let error = load(&line).unwrap_err();
            assert!(error.starts_with(&format!("{key}: other machines")), "{error}");
            for allowed in ["insecure = \"yes\"", "tls_cert = \"c\"\ntls_key = \"k\""] {
                assert!(load(&format!("{line}{allowed}")).is_ok(), "{line}{allowed}");
            }
        }
        for address in ["127.0.0.2:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert!(load(&format!("http = \"{address}\"")).is_ok());
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (text, named) in [
            ("tls_cert = \"c\"", "both are needed"),
            ("tls_key = \"k\"", "both are needed"),
            ("tls_client_ca = \"a\"", "needs tls_cert"),
            ("tls_client_auth = \"maybe\"", "maybe"),
            ("insecure = \"true\"", "none of yes, no"),
            ("access = \"on\"", "none of off, rules"),
            ("access = \"rules\"", "cannot show who they are"),
            ("superusers = \"root\"", "no effect"),
            ("audit_log = \"/var/log/stele\"", "no effect"),
            (
                "access = \"rules\"\ntokens = \"t\"\naudit_rows = \"yes\"",
                "without audit_log",
            ),
        ] {
            let error = load(text).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }
}
