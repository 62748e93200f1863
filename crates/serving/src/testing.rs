//! Certificates for tests, and an authority that signs them.

use crate::tls::{PeerMaterial, TlsMaterial};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use std::sync::Arc;

/// An authority that signs certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate as PEM.
    pub certificate: String,
}

/// A certificate and its key as PEM.
pub struct Signed {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().pem();
        Authority {
            issuer: Issuer::new(params, key),
            certificate,
        }
    }

    /// A certificate with a common name, for these hosts.
    pub fn sign(&self, name: &str, hosts: &[&str], usage: ExtendedKeyUsagePurpose) -> Signed {
        self.sign_for(name, hosts, &[usage])
    }

    /// The same for several uses.
    pub fn sign_for(&self, name: &str, hosts: &[&str], usages: &[ExtendedKeyUsagePurpose]) -> Signed {
        let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        if !name.is_empty() {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        params.extended_key_usages.extend_from_slice(usages);
        let key = KeyPair::generate().unwrap();
        Signed {
            certificate: params.signed_by(&key, &self.issuer).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }

    /// A certificate of a server on this machine.
    pub fn server_certificate(&self) -> Signed {
        self.sign(
            "server",
            &["localhost", "127.0.0.1"],
            ExtendedKeyUsagePurpose::ServerAuth,
        )
    }

    /// A certificate of a server of a cluster, for this machine and these names.
    pub fn peer_certificate(&self, names: &[&str]) -> Signed {
        let hosts: Vec<&str> = ["localhost", "127.0.0.1"].iter().chain(names).copied().collect();
        let both = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        self.sign_for("a server", &hosts, &both)
    }

    /// The material of a server of a cluster with such a certificate.
    pub fn peer(&self, name: Option<&str>) -> PeerMaterial {
        let signed = self.peer_certificate(name.as_slice());
        PeerMaterial {
            certificate: signed.certificate.into_bytes(),
            key: signed.key.into_bytes(),
            authorities: self.certificate.clone().into_bytes(),
            name: name.map(str::to_owned),
            client_ca: None,
        }
    }

    /// A certificate of a client.
    pub fn client_certificate(&self, name: &str) -> Signed {
        self.sign(name, &[], ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// The material of a server on this machine.
    pub fn server(&self) -> TlsMaterial {
        let signed = self.server_certificate();
        TlsMaterial {
            certificate: signed.certificate.into_bytes(),
            key: signed.key.into_bytes(),
            client_ca: None,
            requires_client: false,
        }
    }

    /// The same for a server that asks clients for certificates of this authority.
    pub fn server_that_asks(&self, requires_client: bool) -> TlsMaterial {
        TlsMaterial {
            client_ca: Some(self.certificate.clone().into_bytes()),
            requires_client,
            ..self.server()
        }
    }

    /// The configuration of a client that trusts this authority.
    pub fn client(&self, own: Option<&Signed>) -> Arc<rustls::ClientConfig> {
        use rustls::pki_types::pem::PemObject;
        use rustls::pki_types::{CertificateDer, PrivateKeyDer};
        let mut roots = rustls::RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap())
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        Arc::new(match own {
            None => builder.with_no_client_auth(),
            Some(own) => {
                let chain = vec![CertificateDer::from_pem_slice(own.certificate.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        })
    }
}
