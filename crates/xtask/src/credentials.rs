//! Certificates and tokens of servers under test.

use crate::shell::Run;
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// A folder with an authority and the certificate of a server.
pub struct Certificates(PathBuf);

impl Certificates {
    /// Makes them for a server of these names, of which the first is `localhost`.
    pub fn make(program: &Path, folder: PathBuf, names: &str) -> Result<Certificates> {
        Run::new(program)
            .args(["certificates", "--server", names, "--dir"])
            .args([&folder])
            .output()?;
        Ok(Certificates(folder))
    }

    /// The certificate of the authority.
    pub fn authority(&self) -> PathBuf {
        self.0.join("ca.pem")
    }

    /// Arguments of `stele start`.
    pub fn of_server(&self) -> Vec<OsString> {
        arguments([
            ("--tls-cert", self.0.join("localhost.pem")),
            ("--tls-key", self.0.join("localhost.key")),
        ])
    }

    /// Whether a server under TLS answers that it is ready.
    pub fn is_ready(&self, program: &Path, http: &str) -> bool {
        let health = Run::new(program)
            .args(["health", "--http", &format!("https://{http}"), "--tls-ca"])
            .args([self.authority()]);
        let quiet = health
            .into_command()
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        quiet.is_ok_and(|status| status.success())
    }
}

/// Makes a token of a superuser, and writes it to a file. Returns arguments of `stele start`, with the file of `tokens`.
pub fn superuser(program: &Path, name: &str, tokens: PathBuf, token: &Path) -> Result<Vec<OsString>> {
    let made = Run::new(program)
        .args(["token", "create", name, "--file"])
        .args([&tokens])
        .output()?;
    fs::write(token, made).with_context(|| format!("writing {}", token.display()))?;
    let mut server = arguments([("--tokens", tokens)]);
    server.extend(["--access", "rules", "--superusers", name].map(OsString::from));
    Ok(server)
}

/// Options with paths.
pub fn arguments<const N: usize>(options: [(&str, PathBuf); N]) -> Vec<OsString> {
    let pairs = options.into_iter().map(|(name, value)| [name.into(), value.into()]);
    pairs.flatten().collect()
}
