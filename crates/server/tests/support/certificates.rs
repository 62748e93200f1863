//! Certificates in files, and connections under TLS.

use rustls::pki_types::ServerName;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;
use stele_serving::testing::{Authority, Signed};
use tempfile::TempDir;

/// An authority whose certificates are in a folder.
pub struct Certificates {
    pub authority: Authority,
    folder: TempDir,
}

impl Certificates {
    /// With a certificate of the server: `server.pem`, `server.key`, and the authority's in `ca.pem`.
    pub fn new() -> Self {
        let certificates = Certificates {
            authority: Authority::new("authority"),
            folder: tempfile::tempdir().unwrap(),
        };
        certificates.write("ca.pem", &certificates.authority.certificate);
        certificates.write_signed("server", &certificates.authority.server_certificate());
        certificates
    }

    pub fn path(&self, name: &str) -> String {
        self.file(name).to_str().unwrap().to_owned()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.file(name), text).unwrap();
    }

    pub fn write_signed(&self, name: &str, signed: &Signed) {
        self.write(&format!("{name}.pem"), &signed.certificate);
        self.write(&format!("{name}.key"), &signed.key);
    }

    /// Writes the certificate of a client.
    pub fn client(&self, name: &str) -> Signed {
        let signed = self.authority.client_certificate(name);
        self.write_signed(name, &signed);
        signed
    }

    /// The settings of a server with these certificates.
    pub fn settings(&self) -> Vec<String> {
        let (cert, key) = (self.path("server.pem"), self.path("server.key"));
        vec!["--tls-cert".into(), cert, "--tls-key".into(), key]
    }

    /// The settings of a server that asks clients for certificates.
    pub fn settings_that_ask(&self, auth: &str) -> Vec<String> {
        let ca = self.path("ca.pem");
        let more = [
            "--tls-client-ca".into(),
            ca,
            "--tls-client-auth".into(),
            auth.to_owned(),
        ];
        self.settings().into_iter().chain(more).collect()
    }

    /// The options of the command line client.
    pub fn client_options(&self, name: Option<&str>) -> Vec<String> {
        let mut options = vec!["--tls-ca".to_owned(), self.path("ca.pem")];
        if let Some(name) = name {
            let (cert, key) = (self.path(&format!("{name}.pem")), self.path(&format!("{name}.key")));
            options.extend(["--tls-cert".into(), cert, "--tls-key".into(), key]);
        }
        options
    }

    /// Sends bytes under TLS, and returns the response up to its end.
    pub fn exchange(&self, address: &str, own: Option<&Signed>, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
        let socket = connect(address)?;
        let name = ServerName::try_from("localhost").unwrap();
        let session = rustls::ClientConnection::new(self.authority.client(own), name).unwrap();
        let mut stream = rustls::StreamOwned::new(session, socket);
        stream.write_all(bytes)?;
        let mut response = Vec::new();
        stream.read_to_end(&mut response)?;
        Ok(response)
    }
}

/// A connection whose reads do not take for ever.
pub fn connect(address: &str) -> std::io::Result<TcpStream> {
    let socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(Duration::from_secs(60)))?;
    Ok(socket)
}

/// As text slices.
pub fn slices(texts: &[String]) -> Vec<&str> {
    texts.iter().map(String::as_str).collect()
}
