//! The certificates that are accepted at the port for servers.

use crate::tls::TlsError;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};
use std::sync::Arc;

/// Accepts a certificate that is valid for a client and for a server, and that has the name of the servers if there is one.
///
/// A certificate of a client, which an authority has limited to that use, is refused thus.
#[derive(Debug)]
pub(super) struct ServersOnly {
    clients: Arc<dyn ClientCertVerifier>,
    roots: Arc<RootCertStore>,
    name: Option<ServerName<'static>>,
    provider: Arc<CryptoProvider>,
}

impl ServersOnly {
    pub(super) fn new(
        roots: Arc<RootCertStore>,
        name: Option<ServerName<'static>>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Arc<Self>, TlsError> {
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider)).build();
        Ok(Arc::new(ServersOnly {
            clients: clients.map_err(|error| TlsError::Authorities(error.to_string()))?,
            roots,
            name,
            provider,
        }))
    }

    pub(super) fn roots(&self) -> Arc<RootCertStore> {
        Arc::clone(&self.roots)
    }

    /// Whether other servers accept a certificate. One that they do not accept would only show at the first connection.
    pub(super) fn check_own(&self, chain: &[CertificateDer<'static>], now: UnixTime) -> Result<(), TlsError> {
        let Some((own, rest)) = chain.split_first() else {
            return Err(TlsError::Pair("there is no certificate".to_owned()));
        };
        self.verify_client_cert(own, rest, now).map(drop).map_err(|error| {
            TlsError::Pair(format!(
                "other servers would not accept the certificate; it must be of peer_tls_ca, valid for servers and for clients, and \
                 have the name peer_tls_name if that is given: {error}"
            ))
        })
    }
}

impl ClientCertVerifier for ServersOnly {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.clients.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.clients.verify_client_cert(end_entity, intermediates, now)?;
        let parsed = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, intermediates, now, algorithms)?;
        if let Some(name) = &self.name {
            verify_server_name(&parsed, name)?;
        }
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.clients.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.clients.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.clients.supported_verify_schemes()
    }
}
