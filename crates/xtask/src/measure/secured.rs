//! Servers that demand credentials, so that their cost is measured.

use super::party::Kind;
use crate::credentials::{Certificates, arguments, superuser};
use crate::server::{Scratch, http_get};
use anyhow::Result;
use std::ffi::OsString;
use std::path::Path;

/// Arguments of a server and of its clients. None for a server that serves everybody in plain text.
#[derive(Default)]
pub struct Secured {
    /// Of `stele start`.
    pub server: Vec<OsString>,
    /// Of a client's load program.
    pub client: Vec<OsString>,
    certificates: Option<Certificates>,
}

/// Makes certificates or a token in the folder of the measurement.
pub fn make(kind: Kind, program: &Path, scratch: &Scratch) -> Result<Secured> {
    if kind == Kind::SteleTls {
        let certificates = Certificates::make(program, scratch.join("certificates"), "localhost")?;
        return Ok(Secured {
            server: certificates.of_server(),
            client: arguments([("-ca", certificates.authority())]),
            certificates: Some(certificates),
        });
    }
    let token = scratch.join("token");
    Ok(Secured {
        server: superuser(program, "measure", scratch.join("tokens"), &token)?,
        client: arguments([("-token", token)]),
        certificates: None,
    })
}

impl Secured {
    /// A server with these arguments that demands nothing.
    pub fn serving(server: Vec<OsString>) -> Secured {
        Secured {
            server,
            ..Secured::default()
        }
    }

    /// Whether the server answers that it is ready.
    pub fn is_ready(&self, program: &Path, http: &str) -> bool {
        match &self.certificates {
            Some(certificates) => certificates.is_ready(program, http),
            None => http_get(http, "/readyz").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")),
        }
    }
}
