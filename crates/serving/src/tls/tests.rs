//! Handshakes between configurations of the server and of clients, over connections in memory.

use super::*;
use crate::testing::{Authority, Signed};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// A handshake and one byte each way; the name of the client as the server sees it.
async fn meet(server: Arc<ServerConfig>, client: Arc<ClientConfig>) -> io::Result<Option<String>> {
    let (near, far) = tokio::io::duplex(1 << 16);
    let serve = async move {
        let mut stream = TlsAcceptor::from(server).accept(far).await?;
        let byte = stream.read_u8().await?;
        stream.write_u8(byte + 1).await?;
        stream.flush().await?;
        let certificates = stream.get_ref().1.peer_certificates();
        Ok::<_, io::Error>(certificates.and_then(|all| name_of_certificate(all.first()?)))
    };
    let ask = async move {
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = TlsConnector::from(client).connect(name, near).await?;
        stream.write_u8(7).await?;
        stream.flush().await?;
        assert_eq!(stream.read_u8().await?, 8);
        Ok::<_, io::Error>(())
    };
    let (served, asked) = tokio::join!(serve, ask);
    served.and_then(|name| asked.map(|()| name))
}

fn of(material: &TlsMaterial) -> Arc<ServerConfig> {
    Tls::new(material).unwrap().config(Application::Unnamed)
}

#[tokio::test]
async fn clients_are_named_by_their_certificates() {
    let authority = Authority::new("ca");
    let alice = authority.client_certificate("alice");
    let optional = of(&authority.server_that_asks(false));
    let required = of(&authority.server_that_asks(true));
    for server in [&optional, &required] {
        let met = meet(Arc::clone(server), authority.client(Some(&alice))).await;
        assert_eq!(met.unwrap().as_deref(), Some("alice"));
    }
    assert_eq!(meet(optional, authority.client(None)).await.unwrap(), None);
    assert!(meet(required, authority.client(None)).await.is_err());
    // A server that does not ask gets no name.
    let met = meet(of(&authority.server()), authority.client(Some(&alice))).await;
    assert_eq!(met.unwrap(), None);
}

/// A resumed session has the chain that was verified when it began.
#[test]
fn sessions_of_clients_with_certificates_are_not_resumed() {
    let authority = Authority::new("ca");
    for (material, resumes) in [(authority.server_that_asks(false), false), (authority.server(), true)] {
        let config = server_config(&material).unwrap();
        assert_eq!(config.session_storage.can_cache(), resumes);
        assert_eq!(config.send_tls13_tickets > 0, resumes);
    }
}

#[tokio::test]
async fn certificates_of_other_authorities_are_refused() {
    let (authority, other) = (Authority::new("ca"), Authority::new("ca"));
    let mallory = other.client_certificate("alice");
    for requires in [false, true] {
        let server = of(&authority.server_that_asks(requires));
        assert!(meet(server, authority.client(Some(&mallory))).await.is_err());
    }
    // A certificate of a server is none of a client.
    let server = of(&authority.server_that_asks(true));
    let signed = authority.server_certificate();
    assert!(meet(server, authority.client(Some(&signed))).await.is_err());
}

#[tokio::test]
async fn without_a_common_name_the_alternative_one_counts() {
    let authority = Authority::new("ca");
    let client = authority.sign("", &["alice.example"], rcgen::ExtendedKeyUsagePurpose::ClientAuth);
    let server = of(&authority.server_that_asks(true));
    let met = meet(server, authority.client(Some(&client))).await;
    assert_eq!(met.unwrap().as_deref(), Some("alice.example"));
}

#[tokio::test]
async fn another_authority_takes_effect_at_once() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let tls = Tls::new(&old.server_that_asks(true)).unwrap();
    let (alice, bob) = (old.client_certificate("alice"), new.client_certificate("bob"));
    // A client that could resume its session.
    let of_alice = old.client(Some(&alice));
    for _ in 0..2 {
        let met = meet(tls.config(Application::Http2), Arc::clone(&of_alice)).await;
        assert_eq!(met.unwrap().as_deref(), Some("alice"));
    }
    // The server's own certificate stays the old authority's.
    let material = TlsMaterial {
        client_ca: Some(new.certificate.clone().into_bytes()),
        ..old.server_that_asks(true)
    };
    tls.replace(&material).unwrap();
    assert!(meet(tls.config(Application::Http2), of_alice).await.is_err());
    let met = meet(tls.config(Application::Http2), old.client(Some(&bob))).await;
    assert_eq!(met.unwrap().as_deref(), Some("bob"));
    // A faulty replacement changes nothing.
    let faulty = TlsMaterial {
        key: b"nothing".to_vec(),
        ..material
    };
    assert!(tls.replace(&faulty).is_err());
    let met = meet(tls.config(Application::Http2), old.client(Some(&bob))).await;
    assert_eq!(met.unwrap().as_deref(), Some("bob"));
}

#[tokio::test]
async fn grpc_is_negotiated() {
    let authority = Authority::new("ca");
    let tls = Tls::new(&authority.server()).unwrap();
    let with = |protocol: &[u8]| {
        let mut config = ClientConfig::clone(&authority.client(None));
        config.alpn_protocols = vec![protocol.to_vec()];
        Arc::new(config)
    };
    assert!(meet(tls.config(Application::Http2), with(b"h2")).await.is_ok());
    assert!(meet(tls.config(Application::Http2), with(b"http/1.1")).await.is_err());
    assert!(meet(tls.config(Application::Http1), with(b"http/1.1")).await.is_ok());
}

#[test]
fn faults_name_the_file() {
    let authority = Authority::new("ca");
    let good = authority.server_that_asks(true);
    let fault = |material: TlsMaterial| Tls::new(&material).err().unwrap().to_string();
    let empty = Vec::new();
    let Signed { key, .. } = authority.server_certificate();
    let cases = [
        (
            TlsMaterial {
                certificate: empty.clone(),
                ..good.clone()
            },
            "certificate: no certificate",
        ),
        (
            TlsMaterial {
                key: empty.clone(),
                ..good.clone()
            },
            "key: ",
        ),
        (
            TlsMaterial {
                key: key.into_bytes(),
                ..good.clone()
            },
            "certificate and key: ",
        ),
        (
            TlsMaterial {
                client_ca: Some(empty),
                ..good
            },
            "client authorities: no certificate",
        ),
    ];
    for (material, expected) in cases {
        let text = fault(material);
        assert!(text.starts_with(expected), "{text}");
    }
}
