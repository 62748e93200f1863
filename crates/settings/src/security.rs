//! Settings of security, and the rule for addresses that other machines can reach.

use super::tls_files::TlsFiles;
use super::{Config, Setting, cluster};
use anyhow::{Context, bail};
use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use stele_access::oidc::OidcOptions;
use stele_kms::KmsAddress;

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
    /// Issuer of OpenID Connect whose tokens are accepted, as the claim iss has it [default: none]
    #[arg(long, env = "STELE_OIDC_ISSUER", value_name = "URL")]
    oidc_issuer: Option<String>,
    /// Audience that its tokens must be for
    #[arg(long, env = "STELE_OIDC_AUDIENCE", value_name = "NAME")]
    oidc_audience: Option<String>,
    /// File with the keys of the issuer as a JSON Web Key Set [default: the issuer is asked]
    #[arg(long, env = "STELE_JWKS", value_name = "FILE")]
    jwks: Option<String>,
    /// Claim with the name of the caller [default: sub]
    #[arg(long, env = "STELE_OIDC_USER_CLAIM", value_name = "CLAIM")]
    oidc_user_claim: Option<String>,
    /// Claim with the groups of the caller [default: groups]
    #[arg(long, env = "STELE_OIDC_GROUPS_CLAIM", value_name = "CLAIM")]
    oidc_groups_claim: Option<String>,
    /// Believes the user name that an HBase client states
    #[arg(long, env = "STELE_HBASE_TRUST_USER", value_name = "yes|no", num_args = 0..=1, default_missing_value = YES)]
    hbase_trust_user: Option<String>,
    /// Folder for the audit log [default: none]
    #[arg(long, env = "STELE_AUDIT_LOG", value_name = "DIR")]
    audit_log: Option<String>,
    /// Writes reads and writes of rows to the audit log, too
    #[arg(long, env = "STELE_AUDIT_ROWS", value_name = "yes|no", num_args = 0..=1, default_missing_value = YES)]
    audit_rows: Option<String>,
    /// File with the key that encrypts the data at rest [default: none, plain text]
    #[arg(long, env = "STELE_ENCRYPTION_KEY_FILE", value_name = "FILE")]
    encryption_key_file: Option<String>,
    /// Keys in a key management service that encrypt the data at rest: aws-kms://REGION/KEY or vault://HOST/MOUNT/KEY [default: none]
    #[arg(long, env = "STELE_ENCRYPTION_KMS", value_name = "ADDRESS,...")]
    encryption_kms: Option<String>,
}

const YES: &str = "yes";

pub(super) const SETTINGS: [Setting; 18] = [
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
                  (optional).",
        unit: "",
        default: "",
        range: "required, optional; empty for required; needs tls_client_ca",
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
        key: "oidc_issuer",
        meaning: "Issuer of OpenID Connect whose tokens are accepted, exactly as the claim iss has it. Its keys are found through \
                  its discovery document, unless jwks has them.",
        unit: "",
        default: "",
        range: "an https URL, or with jwks any name; empty for none; needs access = rules",
    },
    Setting {
        key: "oidc_audience",
        meaning: "Audience that the tokens of the issuer must be for. Use one that no other service accepts.",
        unit: "",
        default: "",
        range: "needed with oidc_issuer",
    },
    Setting {
        key: "jwks",
        meaning: "File with the keys of the issuer as a JSON Web Key Set. It is read again when it changes.",
        unit: "path",
        default: "",
        range: "a file; empty to ask the issuer; needs oidc_issuer",
    },
    Setting {
        key: "oidc_user_claim",
        meaning: "Claim with the name of the caller. Callers must not be able to choose it themselves.",
        unit: "",
        default: "sub",
        range: "a name, or a path of names with dots between them",
    },
    Setting {
        key: "oidc_groups_claim",
        meaning: "Claim with the groups of the caller, which rules can name.",
        unit: "",
        default: "groups",
        range: "a name, or a path of names with dots between them",
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
    Setting {
        key: "encryption_key_file",
        meaning: "File with the key that encrypts the data at rest, and backups that the server makes. Each line has an id and 32 \
                  bytes as hexadecimal digits or base64; the first line encrypts, and the others are former keys. Data that \
                  are encrypted can never be read without it.",
        unit: "path",
        default: "",
        range: "a file; empty for plain text, or for keys of encryption_kms",
    },
    Setting {
        key: "encryption_kms",
        meaning: "Keys in a key management service that encrypt the data at rest, instead of a key file. The first one encrypts, and the \
                  others are former keys, and so are those of encryption_key_file. Credentials come from the variables that the \
                  tools of the service read.",
        unit: "addresses, separated by commas",
        default: "",
        range: "aws-kms://REGION/KEY, aws-kms://ARN, vault://HOST[:PORT]/MOUNT/KEY",
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
    /// The keys of encryption at rest.
    pub encryption: KeySources,
}

/// The places of the keys of encryption at rest. Data are plain text if there is none.
#[derive(Clone, Debug, Default)]
pub struct KeySources {
    /// A key file.
    pub file: Option<PathBuf>,
    /// Keys in key management services. The first one encrypts, also where there is a key file.
    pub kms: Vec<KmsAddress>,
}

impl KeySources {
    /// Of the settings of a key file and of key management services; empty texts for none.
    pub fn parse(file: Option<PathBuf>, kms: &str) -> anyhow::Result<KeySources> {
        let addresses = kms.split(',').map(str::trim).filter(|address| !address.is_empty());
        let kms = addresses.map(|text| {
            let address = KmsAddress::parse(text, |variable| std::env::var(variable).ok())?;
            check_key_address(address.url())?;
            anyhow::Ok(address)
        });
        Ok(KeySources {
            file,
            kms: kms.collect::<Result<_, _>>().context("encryption_kms")?,
        })
    }
}

/// Parsed settings of callers and their rights.
#[derive(Clone, Debug)]
pub struct AccessConfig {
    /// Callers that may do everything.
    pub superusers: HashSet<String>,
    /// The file of tokens.
    pub tokens: Option<PathBuf>,
    /// The issuer whose tokens are accepted.
    pub oidc: Option<OidcConfig>,
    /// The names that HBase clients state are believed.
    pub trusts_users: bool,
    /// The folder of the audit log.
    pub audit_log: Option<PathBuf>,
    /// Reads and writes of rows are in the audit log, too.
    pub audits_rows: bool,
}

/// An issuer of tokens.
#[derive(Clone, Debug)]
pub struct OidcConfig {
    /// The tokens that are accepted.
    pub options: OidcOptions,
    /// The file with its keys; `None` to ask the issuer.
    pub jwks: Option<PathBuf>,
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
        let client_auth = text("tls_client_auth", &self.tls_client_auth);
        let requires_client = match client_auth.as_str() {
            "" | "required" => true,
            "optional" => false,
            other => bail!("tls_client_auth: {other:?} is none of required, optional"),
        };
        let client_ca = file("tls_client_ca", &self.tls_client_ca);
        if client_ca.is_none() && !client_auth.is_empty() {
            // It would seem to protect.
            bail!("tls_client_auth: has no effect without tls_client_ca");
        }
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
            oidc: self.oidc(text)?,
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
            encryption: KeySources::parse(
                file("encryption_key_file", &self.encryption_key_file).map(PathBuf::from),
                &text("encryption_kms", &self.encryption_kms),
            )?,
        })
    }
}

impl SecurityArgs {
    fn oidc(&self, text: &impl Fn(&str, &Option<String>) -> String) -> anyhow::Result<Option<OidcConfig>> {
        let options = OidcOptions {
            issuer: text("oidc_issuer", &self.oidc_issuer),
            audience: text("oidc_audience", &self.oidc_audience),
            user_claim: text("oidc_user_claim", &self.oidc_user_claim),
            groups_claim: text("oidc_groups_claim", &self.oidc_groups_claim),
        };
        let jwks = Some(text("jwks", &self.jwks)).filter(|path| !path.is_empty());
        match (options.issuer.is_empty(), options.audience.is_empty(), &jwks) {
            (true, true, None) => return Ok(None),
            (true, _, _) => bail!("oidc_audience and jwks: have no effect without oidc_issuer"),
            (false, true, _) => {
                bail!("oidc_audience: is needed with oidc_issuer, or tokens for other services would count here")
            }
            (false, false, None) => check_key_address(&options.issuer).context("oidc_issuer")?,
            (false, false, Some(_)) => {}
        }
        for (key, claim) in [
            ("oidc_user_claim", &options.user_claim),
            ("oidc_groups_claim", &options.groups_claim),
        ] {
            if claim.is_empty() {
                bail!("{key}: is empty");
            }
        }
        let jwks = jwks.map(PathBuf::from);
        Ok(Some(OidcConfig { options, jwks }))
    }
}

impl AccessConfig {
    /// Refuses settings without an effect: they would seem to protect.
    fn check_unused(&self) -> anyhow::Result<()> {
        let given = [
            ("superusers", !self.superusers.is_empty()),
            ("tokens", self.tokens.is_some()),
            ("oidc_issuer", self.oidc.is_some()),
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
        if !has_certificates && self.tokens.is_none() && self.oidc.is_none() && !self.trusts_users {
            bail!(
                "access: callers cannot show who they are: give tls_client_ca, tokens, oidc_issuer or hbase_trust_user"
            );
        }
        if self.audits_rows && self.audit_log.is_none() {
            bail!("audit_rows: has no effect without audit_log");
        }
        Ok(())
    }
}

/// Fails for an address from which the keys of an issuer must not come: others could replace them on the way.
pub fn check_key_address(text: &str) -> anyhow::Result<()> {
    let Some((scheme, rest)) = text.split_once("://") else {
        bail!("{text:?} is no URL");
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(address) => address.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    if host.is_empty() || authority.contains(['@', '\\', ' ']) {
        bail!("{text:?} has no host, or more before it");
    }
    let is_here = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    match scheme {
        "https" => Ok(()),
        "http" if is_here => Ok(()),
        _ => bail!("{text}: only https counts, except on the loopback address"),
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
    use super::check_key_address;
    use crate::{Config, StartArgs, parse_file, resolve};

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
    fn keys_come_over_https_or_from_this_machine() {
        for good in [
            "https://id.example/realm",
            "http://127.0.0.1:80",
            "http://[::1]/x",
            "http://localhost:1",
        ] {
            assert!(check_key_address(good).is_ok(), "{good}");
        }
        for bad in [
            "http://id.example",
            "http://10.0.0.1",
            "ftp://localhost",
            "id.example",
            "http://127.0.0.1.example",
            "https://",
            "http://localhost@id.example",
        ] {
            assert!(check_key_address(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (text, named) in [
            ("tls_cert = \"c\"", "both are needed"),
            ("tls_key = \"k\"", "both are needed"),
            ("tls_client_ca = \"a\"", "needs tls_cert"),
            ("tls_client_auth = \"maybe\"", "maybe"),
            ("tls_client_auth = \"required\"", "no effect without tls_client_ca"),
            (
                "tls_cert = \"c\"\ntls_key = \"k\"\ntls_client_auth = \"optional\"",
                "no effect without tls_client_ca",
            ),
            (
                "encryption_kms = \"aws-kms://key\"",
                "encryption_kms: \"aws-kms://key\"",
            ),
            (
                "encryption_kms = \"vault://h/transit/k, vault+http://192.0.2.1/transit/k\"",
                "encryption_kms: http://192.0.2.1: only https",
            ),
            ("insecure = \"true\"", "none of yes, no"),
            ("access = \"on\"", "none of off, rules"),
            ("access = \"rules\"", "cannot show who they are"),
            ("oidc_audience = \"stele\"", "without oidc_issuer"),
            ("jwks = \"keys\"", "without oidc_issuer"),
            ("oidc_issuer = \"https://id.example\"", "oidc_audience: is needed"),
            (
                "oidc_issuer = \"https://id.example\"\noidc_audience = \"stele\"",
                "no effect without access",
            ),
            (
                "access = \"rules\"\noidc_issuer = \"http://id.example\"\noidc_audience = \"stele\"",
                "only https",
            ),
            (
                "access = \"rules\"\noidc_issuer = \"id\"\noidc_audience = \"stele\"\njwks = \"k\"\noidc_user_claim = \"\"",
                "oidc_user_claim: is empty",
            ),
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
