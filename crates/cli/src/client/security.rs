//! TLS and tokens of a client.

use anyhow::{Context, Result, bail};
use clap::Args;
use std::path::{Path, PathBuf};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

/// Credentials of the server and of the caller.
#[derive(Args, Clone, Debug, Default)]
pub struct SecurityOptions {
    /// Authorities to trust for the server's certificate, as PEM [default: those of the system]
    #[arg(long, value_name = "FILE", env = "STELE_CA")]
    pub tls_ca: Option<PathBuf>,
    /// The client's own certificate, as PEM
    #[arg(long, value_name = "FILE", env = "STELE_CLIENT_CERT")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of that certificate, as PEM
    #[arg(long, value_name = "FILE", env = "STELE_CLIENT_KEY")]
    pub tls_key: Option<PathBuf>,
    /// File with a bearer token
    #[arg(long, value_name = "FILE", env = "STELE_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,
}

impl SecurityOptions {
    /// The address without a scheme, and the configuration of TLS if the address, or an option, asks for it.
    pub(super) fn tls_of<'a>(&self, address: &'a str) -> Result<(&'a str, Option<ClientTlsConfig>)> {
        let (bare, is_tls) = match (address.strip_prefix("https://"), address.strip_prefix("http://")) {
            (Some(bare), _) => (bare, true),
            (None, Some(bare)) => (bare, false),
            (None, None) => (address, self.tls_ca.is_some() || self.tls_cert.is_some()),
        };
        if !is_tls {
            if self.tls_ca.is_some() || self.tls_cert.is_some() {
                bail!("{address}: certificates are of no use to http://");
            }
            return Ok((bare, None));
        }
        let mut config = ClientTlsConfig::new();
        config = match &self.tls_ca {
            Some(path) => config.ca_certificate(Certificate::from_pem(read(path)?)),
            None => config.with_native_roots(),
        };
        match (&self.tls_cert, &self.tls_key) {
            (Some(cert), Some(key)) => config = config.identity(Identity::from_pem(read(cert)?, read(key)?)),
            (None, None) => {}
            _ => bail!("--tls-cert and --tls-key are needed together"),
        }
        Ok((bare, Some(config)))
    }

    /// The header with the token.
    pub(super) fn authorization(&self) -> Result<Option<MetadataValue<Ascii>>> {
        let Some(path) = &self.token_file else {
            return Ok(None);
        };
        let token = read(path)?;
        let token = std::str::from_utf8(&token).ok().map(str::trim);
        let value = token.and_then(|token| format!("Bearer {token}").parse::<MetadataValue<Ascii>>().ok());
        let mut value = value.with_context(|| format!("{}: not a token", path.display()))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    #[allow(clippy::disallowed_methods, reason = "the user's files")]
    std::fs::read(path).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_is_asked_for_by_address_or_option() {
        let plain = SecurityOptions::default();
        let trusting = SecurityOptions {
            tls_ca: Some("/nowhere/ca.pem".into()),
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
            tls_cert: Some("c".into()),
            ..plain
        };
        assert!(half.tls_of("https://h:1").unwrap_err().to_string().contains("together"));
    }
}
