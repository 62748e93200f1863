//! TLS between the servers of a cluster: both sides show a certificate of one authority.
//!
//! A *server* of the cluster is the holder of a certificate of that authority that is valid for servers and for clients. If a name is
//! configured, the certificate must have it, in either direction: then the authority may sign for others as well. Without a
//! name, the connecting server verifies that the certificate has the host of the address.
//!
//! Both ends are this program, so there is one version of TLS, 1.3, and a name of the protocol that no client sends. Sessions are
//! not resumed: each connection verifies the other side again.
//!
//! The bytes of certificates are given by the caller: this module reads no files.

mod connector;
mod verifier;

pub use connector::PeerConnector;

use super::{TlsError, certificates, private_key};
use crate::warnings::Warnings;
use arc_swap::ArcSwap;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, DnsName, ServerName, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::io;
use std::sync::Arc;
use stele_env::Env;
use tokio::sync::watch;
use verifier::ServersOnly;

/// The application protocol that both ends name. A certificate that was made for another use cannot be talked into this one.
const PROTOCOL: &[u8] = b"stele-peer";

/// Certificates and keys as PEM text, as they were read from their files.
#[derive(Clone, PartialEq, Eq)]
pub struct PeerMaterial {
    /// The certificate of this server, followed by those that lead to an authority.
    pub certificate: Vec<u8>,
    /// Its private key: PKCS #8, PKCS #1 or SEC1.
    pub key: Vec<u8>,
    /// The authorities of the servers.
    pub authorities: Vec<u8>,
    /// The DNS name that every certificate of a server has.
    pub name: Option<String>,
    /// The authorities of clients, if clients are asked for certificates. Without a name no authority may be in both.
    pub client_ca: Option<Vec<u8>>,
}

impl std::fmt::Debug for PeerMaterial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PeerMaterial")
    }
}

/// The certificates between servers that are in use.
pub struct PeerTls {
    configs: ArcSwap<Configs>,
    /// Changes when other servers are trusted than before.
    trust: watch::Sender<u64>,
    warnings: Warnings,
}

struct Configs {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    name: Option<ServerName<'static>>,
    /// To tell whether another replaces them.
    trusted: (Vec<u8>, Option<String>),
}

impl PeerTls {
    /// With these certificates. The own certificate must be one that the other servers accept.
    pub fn new(material: &PeerMaterial, env: Env) -> Result<Self, TlsError> {
        Ok(PeerTls {
            configs: ArcSwap::from_pointee(Configs::new(material)?),
            trust: watch::Sender::new(0),
            warnings: Warnings::new(env),
        })
    }

    /// Uses others for later handshakes. After an error the former ones stay.
    pub fn replace(&self, material: &PeerMaterial) -> Result<(), TlsError> {
        let next = Configs::new(material)?;
        let is_same = self.configs.load().trusted == next.trusted;
        self.configs.store(Arc::new(next));
        if !is_same {
            self.trust.send_modify(|number| *number += 1);
        }
        Ok(())
    }

    /// Completes when other servers are trusted than at the time of the call. Connections from before are to end then.
    pub fn trust_changed(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut trust = self.trust.subscribe();
        async move {
            // Without the sender nothing is replaced any more.
            if trust.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// The configuration of the next handshake on the port of this server.
    pub(crate) fn server_config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.configs.load().server)
    }

    /// The configuration of the next connection to another server, and the name that it must show.
    fn client_config(&self, address: &str) -> io::Result<(Arc<ClientConfig>, ServerName<'static>)> {
        let configs = self.configs.load();
        let name = match &configs.name {
            Some(name) => name.clone(),
            None => host_of(address)?,
        };
        Ok((Arc::clone(&configs.client), name))
    }
}

/// Refuses a connection whose ends did not agree on the protocol.
pub(crate) fn check_protocol(agreed: Option<&[u8]>) -> io::Result<()> {
    match agreed == Some(PROTOCOL) {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the other side does not name the protocol between servers",
        )),
    }
}

/// The host of `host:port`.
fn host_of(address: &str) -> io::Result<ServerName<'static>> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    ServerName::try_from(host.to_owned()).map_err(|_| {
        let message = format!("{address} has no host that a certificate can name");
        io::Error::new(io::ErrorKind::InvalidInput, message)
    })
}

impl Configs {
    fn new(material: &PeerMaterial) -> Result<Self, TlsError> {
        let name = match &material.name {
            None => None,
            Some(name) => {
                let parsed = DnsName::try_from(name.clone());
                Some(ServerName::DnsName(parsed.map_err(|_| {
                    TlsError::Authorities(format!("{name:?} is not a DNS name that certificates can have"))
                })?))
            }
        };
        let authorities = certificates("authorities of servers", &material.authorities)?;
        if name.is_none() {
            check_apart(&authorities, material.client_ca.as_deref())?;
        }
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            let added = roots.add(authority);
            added.map_err(|error| TlsError::Authorities(error.to_string()))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = ServersOnly::new(Arc::new(roots), name.clone(), Arc::clone(&provider))?;
        let chain = certificates("certificate", &material.certificate)?;
        verifier.check_own(&chain, UnixTime::now())?;
        Ok(Configs {
            server: server_config(material, &chain, &verifier, &provider)?,
            client: client_config(material, &chain, &verifier, provider)?,
            name,
            trusted: (material.authorities.clone(), material.name.clone()),
        })
    }
}

fn server_config(
    material: &PeerMaterial,
    chain: &[CertificateDer<'static>],
    verifier: &Arc<ServersOnly>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let builder = ServerConfig::builder_with_provider(Arc::clone(provider)).with_protocol_versions(&[&TLS13]);
    let builder = builder.map_err(|error| TlsError::Pair(error.to_string()))?;
    let config = builder
        .with_client_cert_verifier(Arc::clone(verifier) as _)
        .with_single_cert(chain.to_vec(), private_key(&material.key)?);
    let mut config = config.map_err(|error| TlsError::Pair(error.to_string()))?;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

fn client_config(
    material: &PeerMaterial,
    chain: &[CertificateDer<'static>],
    verifier: &ServersOnly,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<ClientConfig>, TlsError> {
    let owners = WebPkiServerVerifier::builder_with_provider(verifier.roots(), Arc::clone(&provider)).build();
    let owners = owners.map_err(|error| TlsError::Authorities(error.to_string()))?;
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]);
    let builder = builder.map_err(|error| TlsError::Pair(error.to_string()))?;
    let config = builder
        .with_webpki_verifier(owners)
        .with_client_auth_cert(chain.to_vec(), private_key(&material.key)?);
    let mut config = config.map_err(|error| TlsError::Pair(error.to_string()))?;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// Refuses an authority that signs for clients and for servers, where nothing else tells them apart.
fn check_apart(servers: &[CertificateDer<'static>], client_ca: Option<&[u8]>) -> Result<(), TlsError> {
    let Some(client_ca) = client_ca else { return Ok(()) };
    let clients = certificates("client authorities", client_ca)?;
    match servers.iter().any(|authority| clients.contains(authority)) {
        false => Ok(()),
        true => Err(TlsError::Authorities(
            "an authority of servers is one of clients, too, so any client could be a server: give the servers an authority of \
             their own, or a name with peer_tls_name"
                .to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests;
