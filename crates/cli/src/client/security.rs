//! TLS and tokens of a client.

use anyhow::{Context, Result, bail};
use clap::Args;
use clap::builder::BoolishValueParser;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

/// TLS of a connection, and the certificate of the caller.
#[derive(Args, Clone, Debug, Default)]
pub struct TlsOptions {
    /// Authorities to trust for the server's certificate, as PEM [default: those of the system]
    #[arg(long, value_name = "FILE", env = "STELE_CA")]
    pub tls_ca: Option<PathBuf>,
    /// The client's own certificate, as PEM
    #[arg(long, value_name = "FILE", env = "STELE_CLIENT_CERT")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of that certificate, as PEM
    #[arg(long, value_name = "FILE", env = "STELE_CLIENT_KEY")]
    pub tls_key: Option<PathBuf>,
}

/// Credentials of the server and of the caller.
#[derive(Args, Clone, Debug, Default)]
pub struct SecurityOptions {
    /// TLS.
    #[command(flatten)]
    pub tls: TlsOptions,
    /// File with a bearer token
    #[arg(long, value_name = "FILE", env = "STELE_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,
    /// Sends the token as plain text to other machines
    // The server's STELE_INSECURE is about its own ports, and may be set for all programs of a container.
    #[arg(long, env = "STELE_TOKEN_IN_CLEAR", value_parser = BoolishValueParser::new())]
    pub insecure: bool,
}

impl TlsOptions {
    /// The address without a scheme, and whether the address, or an option, asks for TLS.
    pub(crate) fn is_tls<'a>(&self, address: &'a str) -> Result<(&'a str, bool)> {
        let has_files = self.tls_ca.is_some() || self.tls_cert.is_some();
        let (bare, is_tls) = match (address.strip_prefix("https://"), address.strip_prefix("http://")) {
            (Some(bare), _) => (bare, true),
            (None, Some(bare)) => (bare, false),
            (None, None) => (address, has_files),
        };
        if !is_tls && has_files {
            bail!("{address}: certificates are of no use to http://");
        }
        Ok((bare.trim_end_matches('/'), is_tls))
    }

    /// The files of the client's own certificate.
    fn own(&self) -> Result<Option<(&Path, &Path)>> {
        match (&self.tls_cert, &self.tls_key) {
            (Some(cert), Some(key)) => Ok(Some((cert, key))),
            (None, None) => Ok(None),
            _ => bail!("--tls-cert and --tls-key are needed together"),
        }
    }

    /// The configuration of a gRPC client.
    fn of_grpc(&self) -> Result<ClientTlsConfig> {
        let config = ClientTlsConfig::new();
        let config = match &self.tls_ca {
            Some(path) => config.ca_certificate(Certificate::from_pem(read(path)?)),
            None => config.with_native_roots(),
        };
        Ok(match self.own()? {
            Some((cert, key)) => config.identity(Identity::from_pem(read(cert)?, read(key)?)),
            None => config,
        })
    }

    /// The configuration of another client.
    pub fn of_stream(&self) -> Result<rustls::ClientConfig> {
        let mut roots = rustls::RootCertStore::empty();
        match &self.tls_ca {
            Some(path) => {
                for certificate in certificates(path)? {
                    roots.add(certificate).with_context(|| path.display().to_string())?;
                }
            }
            None => {
                let found = rustls_native_certs::load_native_certs();
                roots.add_parsable_certificates(found.certs);
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let Some((cert, key_path)) = self.own()? else {
            return Ok(builder.with_no_client_auth());
        };
        let key = PrivateKeyDer::from_pem_slice(&read(key_path)?);
        let key = key.with_context(|| format!("{}: not a key", key_path.display()))?;
        Ok(builder.with_client_auth_cert(certificates(cert)?, key)?)
    }
}

/// The certificates of a file.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let bytes = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => bail!("{}: not a certificate", path.display()),
    }
}

impl SecurityOptions {
    /// The address without a scheme, and the configuration of TLS if the address, or an option, asks for it.
    pub(super) fn tls_of<'a>(&self, address: &'a str) -> Result<(&'a str, Option<ClientTlsConfig>)> {
        let (bare, is_tls) = self.tls.is_tls(address)?;
        let config = is_tls.then(|| self.tls.of_grpc()).transpose()?;
        Ok((bare, config))
    }

    /// The token for a server, of characters that a header can have. `scheme` begins an address under TLS.
    ///
    /// # Errors
    /// The file has no token. Or there is no TLS, other machines are on the way, and the user has not permitted that.
    pub fn bearer(&self, bare: &str, is_tls: bool, scheme: &str) -> Result<Option<String>> {
        let Some(path) = &self.token_file else {
            return Ok(None);
        };
        if !is_tls && !self.insecure && !is_on_loopback(bare) {
            bail!(
                "{bare}: the token would be sent as plain text; begin the address with {scheme}, or give --insecure if nobody \
                 else can listen to the network"
            );
        }
        let token = read(path)?;
        let token = std::str::from_utf8(&token).ok().map(str::trim);
        let token = token.filter(|token| !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()));
        let token = token.with_context(|| format!("{}: not a token", path.display()))?;
        Ok(Some(token.to_owned()))
    }

    /// The header with the token.
    pub(super) fn authorization(&self, bare: &str, is_tls: bool) -> Result<Option<MetadataValue<Ascii>>> {
        let Some(token) = self.bearer(bare, is_tls, "https://")? else {
            return Ok(None);
        };
        let mut value: MetadataValue<Ascii> = format!("Bearer {token}").parse()?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

/// Whether an address leads back to this machine, which an unspecified one does as well.
fn is_on_loopback(address: &str) -> bool {
    // The name of a user precedes the host.
    if address.contains('@') {
        return false;
    }
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_own = |ip: IpAddr| ip.to_canonical().is_loopback() || ip.is_unspecified();
    host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(is_own)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    #[allow(clippy::disallowed_methods, reason = "the user's files")]
    std::fs::read(path).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_goes_to_other_machines_under_tls_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, "secret\n").unwrap();
        let with = |insecure| SecurityOptions {
            token_file: Some(path.clone()),
            insecure,
            ..SecurityOptions::default()
        };
        let is_sent = |address: &str, insecure: bool| {
            let security = with(insecure);
            let (bare, is_tls) = security.tls.is_tls(address).unwrap();
            security.bearer(bare, is_tls, "https://").map(|token| token.unwrap())
        };
        for near in [
            "127.0.0.1:1",
            "localhost:1",
            "http://[::1]:1",
            "[::ffff:127.0.0.1]:1",
            "0.0.0.0:1",
        ] {
            assert_eq!(is_sent(near, false).unwrap(), "secret", "{near}");
        }
        for far in [
            "h:1",
            "http://h:1",
            "192.0.2.1:1",
            "[2001:db8::1]:1",
            "127.0.0.1.example:1",
            "localhost@h:1",
            "localhost:x@h",
        ] {
            let why = is_sent(far, false).unwrap_err().to_string();
            assert!(
                why.contains("as plain text; begin the address with https://"),
                "{far}: {why}"
            );
            assert_eq!(is_sent(far, true).unwrap(), "secret", "{far}");
        }
        assert_eq!(is_sent("https://h:1", false).unwrap(), "secret");
        let none = SecurityOptions::default();
        assert!(none.bearer("h:1", false, "https://").unwrap().is_none());
    }

    #[test]
    fn a_variable_permits_it_too() {
        let command = SecurityOptions::augment_args(clap::Command::new("c"));
        let insecure = command.get_arguments().find(|arg| arg.get_id() == "insecure").unwrap();
        assert_eq!(insecure.get_env().unwrap(), "STELE_TOKEN_IN_CLEAR");
        let parser = insecure.get_value_parser().clone();
        let command = clap::Command::new("c").arg(clap::Arg::new("v").value_parser(parser));
        let is_permitted = |value: &str| {
            let found = command.clone().try_get_matches_from(["c", value]);
            found.ok().map(|found| found.get_one::<bool>("v").copied().unwrap())
        };
        assert_eq!(
            ["yes", "true", "no", "maybe"].map(is_permitted),
            [Some(true), Some(true), Some(false), None]
        );
    }

    #[test]
    fn tls_is_asked_for_by_address_or_option() {
        let plain = SecurityOptions::default();
        let trusting = SecurityOptions {
            tls: TlsOptions {
                tls_ca: Some("/nowhere/ca.pem".into()),
                ..TlsOptions::default()
            },
            ..plain.clone()
        };
        assert!(plain.tls_of("h:1").unwrap().1.is_none());
        assert!(plain.tls_of("http://h:1").unwrap().1.is_none());
        let (bare, tls) = plain.tls_of("https://h:1").unwrap();
        assert!(bare == "h:1" && tls.is_some());
        assert!(
            trusting
                .tls_of("http://h:1")
                .unwrap_err()
                .to_string()
                .contains("no use")
        );
        for address in ["h:1", "https://h:1"] {
            let error = trusting.tls_of(address).unwrap_err();
            assert_eq!(error.to_string(), "/nowhere/ca.pem");
        }
        let half = SecurityOptions {
            tls: TlsOptions {
                tls_cert: Some("c".into()),
                ..TlsOptions::default()
            },
            ..plain
        };
        assert!(half.tls_of("https://h:1").unwrap_err().to_string().contains("together"));
    }
}
