//! Servers that demand credentials, so that their cost is measured.

use super::party::Kind;
use crate::server::{Scratch, http_get};
use crate::shell::Run;
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Arguments of a server and of its clients. None for a server that serves everybody in plain text.
#[derive(Default)]
pub struct Secured {
    /// Of `stele start`.
    pub server: Vec<OsString>,
    /// Of a client's load program.
    pub client: Vec<OsString>,
    authority: Option<PathBuf>,
}

/// Makes certificates or a token in the folder of the measurement.
pub fn make(kind: Kind, program: &Path, scratch: &Scratch) -> Result<Secured> {
    match kind {
        Kind::SteleTls => under_tls(program, &scratch.join("certificates")),
        _ => with_rights(program, scratch),
    }
}

fn under_tls(program: &Path, folder: &Path) -> Result<Secured> {
    Run::new(program)
        .args(["certificates", "--dir"])
        .args([folder])
        .output()?;
    let authority = folder.join("ca.pem");
    Ok(Secured {
        server: arguments([
            ("--tls-cert", folder.join("localhost.pem")),
            ("--tls-key", folder.join("localhost.key")),
        ]),
        client: arguments([("-ca", authority.clone())]),
        authority: Some(authority),
    })
}

fn with_rights(program: &Path, scratch: &Scratch) -> Result<Secured> {
    let (tokens, token) = (scratch.join("tokens"), scratch.join("token"));
    let made = Run::new(program)
        .args(["token", "create", "measure", "--file"])
        .args([&tokens])
        .output()?;
    fs::write(&token, made).with_context(|| format!("writing {}", token.display()))?;
    let mut server = arguments([("--tokens", tokens)]);
    server.extend(["--access", "rules", "--superusers", "measure"].map(OsString::from));
    Ok(Secured {
        server,
        client: arguments([("-token", token)]),
        authority: None,
    })
}

fn arguments<const N: usize>(options: [(&str, PathBuf); N]) -> Vec<OsString> {
    let pairs = options.into_iter().map(|(name, value)| [name.into(), value.into()]);
    pairs.flatten().collect()
}

impl Secured {
    /// Whether the server answers that it is ready.
    pub fn is_ready(&self, program: &Path, http: &str) -> bool {
        let Some(authority) = &self.authority else {
            return http_get(http, "/readyz").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"));
        };
        let health = Run::new(program)
            .args(["health", "--http", &format!("https://{http}"), "--tls-ca"])
            .args([authority]);
        let quiet = health
            .into_command()
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        quiet.is_ok_and(|status| status.success())
    }
}
