//! TLS to the members of etcd, and the user of etcd that this process is.
//!
//! A user has a password, and etcd gives a token for it. etcd forgets tokens, and refuses them when its users or roles have changed.
//! Such a refusal comes before a request is executed, so the request is sent again with a new token ([`crate::calls`]).

use crate::failure::Failure;
use parking_lot::RwLock;
use std::sync::Arc;
use stele_coord::CoordError;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

/// A user of etcd.
#[derive(Clone, PartialEq, Eq)]
pub struct EtcdUser {
    /// Its name.
    pub name: String,
    /// Its password.
    pub password: String,
}

/// The protection of connections to etcd. Certificates and keys are PEM text, and count only for an address of `etcds://`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct EtcdSecurity {
    /// The authorities of etcd's certificates; `None` for those of the system.
    pub authorities: Option<Vec<u8>>,
    /// The certificate that etcd is shown, and its private key.
    pub own: Option<(Vec<u8>, Vec<u8>)>,
    /// The user; `None` if etcd knows none, or takes the name in the certificate.
    pub user: Option<EtcdUser>,
}

impl std::fmt::Debug for EtcdSecurity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EtcdSecurity")
    }
}

/// The same, as connections use it.
#[derive(Clone)]
pub(crate) struct Secured {
    pub(crate) tls: Option<ClientTlsConfig>,
    pub(crate) user: Option<Arc<User>>,
}

/// A user, and the token that etcd gave last.
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) password: String,
    token: RwLock<Option<MetadataValue<Ascii>>>,
}

impl Secured {
    pub(crate) fn new(is_tls: bool, security: EtcdSecurity) -> Secured {
        let EtcdSecurity { authorities, own, user } = security;
        let tls = is_tls.then(|| {
            let tls = ClientTlsConfig::new();
            let tls = match authorities {
                Some(pem) => tls.ca_certificate(Certificate::from_pem(pem)),
                None => tls.with_native_roots(),
            };
            match own {
                Some((certificate, key)) => tls.identity(Identity::from_pem(certificate, key)),
                None => tls,
            }
        });
        let user = user.map(|user| {
            Arc::new(User {
                name: user.name,
                password: user.password,
                token: RwLock::new(None),
            })
        });
        Secured { tls, user }
    }
}

impl User {
    /// The token that etcd gave last.
    pub(crate) fn token(&self) -> Option<MetadataValue<Ascii>> {
        self.token.read().clone()
    }

    /// Whether a request failed because it needs another token.
    pub(crate) fn needs_token(&self, failure: &Failure) -> bool {
        let has_none = || self.token().is_none_or(|token| token.is_empty());
        match failure {
            Failure::Token(_) => true,
            Failure::Refused(CoordError::Denied { .. }) => has_none(),
            _ => false,
        }
    }

    /// Keeps a token. None is needed, so far, by an etcd that does not ask for users.
    pub(crate) fn set_token(&self, token: &str) -> Result<(), Failure> {
        let parsed = token.parse::<MetadataValue<Ascii>>();
        let mut parsed = parsed.map_err(|_| {
            let message = "etcd gave a token that no header can have".to_owned();
            Failure::Refused(CoordError::Denied { message })
        })?;
        parsed.set_sensitive(true);
        *self.token.write() = Some(parsed);
        Ok(())
    }
}
