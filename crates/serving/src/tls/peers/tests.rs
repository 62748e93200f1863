//! Handshakes between servers over real sockets, and those of strangers.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the ends are sockets of the test"
)]

use super::*;
use crate::client_stream::PortSecurity;
use crate::handshakes::Handshakes;
use crate::testing::{Authority, Signed};
use rcgen::ExtendedKeyUsagePurpose as Usage;
use std::net::SocketAddr;
use stele_env::metrics::Metrics;
use stele_env::network::Connector;
use stele_env::tokio_env::TokioRuntime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn tls(material: &PeerMaterial) -> Arc<PeerTls> {
    Arc::new(PeerTls::new(material, TokioRuntime::current()).unwrap())
}

/// A port that answers each byte with the next one, and its address.
async fn port(tls: Arc<PeerTls>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let handshakes = Handshakes::of_peers(TokioRuntime::current(), &Metrics::new());
    let security = PortSecurity::peers(tls, Arc::new(handshakes));
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let security = security.clone();
            tokio::spawn(async move {
                let Some(mut stream) = security.begin(socket).await else {
                    return;
                };
                while let Ok(byte) = stream.read_u8().await {
                    stream.write_u8(byte + 1).await.unwrap();
                    stream.flush().await.unwrap();
                }
            });
        }
    });
    at
}

/// Whether a connection of a server gets an answer.
async fn meets(from: Arc<PeerTls>, at: SocketAddr) -> io::Result<()> {
    let connector = PeerConnector::new(from, TokioRuntime::current());
    let mut stream = connector.connect(&at.to_string()).await?;
    stream.write_u8(7).await?;
    stream.flush().await?;
    assert_eq!(stream.read_u8().await?, 8);
    Ok(())
}

/// The same of a stranger with a configuration of its own.
async fn stranger_meets(config: ClientConfig, at: SocketAddr) -> io::Result<()> {
    let socket = TcpStream::connect(at).await?;
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = tokio_rustls::TlsConnector::from(Arc::new(config))
        .connect(name, socket)
        .await?;
    stream.write_u8(7).await?;
    stream.flush().await?;
    stream.read_u8().await.map(drop)
}

fn stranger(authority: &Authority, own: Option<&Signed>, protocol: Option<&[u8]>) -> ClientConfig {
    let mut config = ClientConfig::clone(&authority.client(own));
    config.alpn_protocols = protocol.into_iter().map(<[u8]>::to_vec).collect();
    config
}

#[tokio::test]
async fn servers_of_one_authority_meet() {
    let authority = Authority::new("servers");
    let at = port(tls(&authority.peer(None))).await;
    meets(tls(&authority.peer(None)), at).await.unwrap();
    let named = port(tls(&authority.peer(Some("prod.stele")))).await;
    meets(tls(&authority.peer(Some("prod.stele"))), named).await.unwrap();
}

#[tokio::test]
async fn strangers_are_refused() {
    let (authority, other) = (Authority::new("servers"), Authority::new("servers"));
    let at = port(tls(&authority.peer(None))).await;
    // Each would be served if one thing were different.
    let own = authority.peer_certificate(&[]);
    stranger_meets(stranger(&authority, Some(&own), Some(PROTOCOL)), at)
        .await
        .unwrap();
    let forged = other.peer_certificate(&[]);
    let client = authority.client_certificate("alice");
    let server_only = authority.server_certificate();
    for certificate in [None, Some(&forged), Some(&client), Some(&server_only)] {
        let config = stranger(&authority, certificate, Some(PROTOCOL));
        assert!(stranger_meets(config, at).await.is_err());
    }
    for protocol in [None, Some(&b"h2"[..])] {
        assert!(
            stranger_meets(stranger(&authority, Some(&own), protocol), at)
                .await
                .is_err()
        );
    }
    let mut old = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    old.alpn_protocols = vec![PROTOCOL.to_vec()];
    assert!(stranger_meets(old, at).await.is_err());
    // And a server does not talk to a stranger, nor in plain text.
    assert!(meets(tls(&other.peer(None)), at).await.is_err());
    let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = plain.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut socket, _) = plain.accept().await.unwrap();
        let mut hello = [0; 8];
        socket.read_exact(&mut hello).await.unwrap();
        assert_eq!(hello[0], 0x16, "a record of TLS");
        let _ = socket.write_all(b"STELPEER").await;
    });
    assert!(meets(tls(&authority.peer(None)), silent).await.is_err());
}

#[tokio::test]
async fn a_name_tells_servers_from_others_of_the_authority() {
    let authority = Authority::new("everything");
    let named = |name| PeerMaterial {
        client_ca: Some(authority.certificate.clone().into_bytes()),
        ..authority.peer(name)
    };
    let at = port(tls(&named(Some("prod.stele")))).await;
    meets(tls(&named(Some("prod.stele"))), at).await.unwrap();
    // The certificate of another cluster's server, and one for all uses.
    for names in [&["test.stele"][..], &[]] {
        let other = authority.peer_certificate(names);
        assert!(
            stranger_meets(stranger(&authority, Some(&other), Some(PROTOCOL)), at)
                .await
                .is_err()
        );
    }
    let elsewhere = port(tls(&named(Some("test.stele")))).await;
    assert!(meets(tls(&named(Some("prod.stele"))), elsewhere).await.is_err());
    // Without a name nothing would tell them apart.
    let error = PeerTls::new(&named(None), TokioRuntime::current())
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("peer_tls_name"), "{error}");
}

#[tokio::test]
async fn without_a_name_the_host_must_fit() {
    let authority = Authority::new("servers");
    let both = [Usage::ServerAuth, Usage::ClientAuth];
    let signed = authority.sign_for("x", &["elsewhere.example"], &both);
    let material = PeerMaterial {
        certificate: signed.certificate.into_bytes(),
        key: signed.key.into_bytes(),
        ..authority.peer(None)
    };
    let at = port(tls(&material)).await;
    assert!(meets(tls(&authority.peer(None)), at).await.is_err());
    assert!(host_of("[::1]:7070").is_ok() && host_of("a b:1").is_err());
    assert_eq!(
        host_of("h.example:1").unwrap(),
        ServerName::try_from("h.example").unwrap()
    );
}

#[tokio::test]
async fn a_certificate_that_others_refuse_is_an_error_at_the_start() {
    let (authority, other) = (Authority::new("servers"), Authority::new("servers"));
    let good = authority.peer(Some("prod.stele"));
    for signed in [
        other.peer_certificate(&["prod.stele"]),
        authority.peer_certificate(&[]),
        authority.sign("s", &["prod.stele"], Usage::ServerAuth),
        authority.sign("s", &["prod.stele"], Usage::ClientAuth),
    ] {
        let material = PeerMaterial {
            certificate: signed.certificate.into_bytes(),
            key: signed.key.into_bytes(),
            ..good.clone()
        };
        let error = PeerTls::new(&material, TokioRuntime::current())
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("would not accept"), "{error}");
    }
    let other_key = PeerMaterial {
        key: authority.peer_certificate(&[]).key.into_bytes(),
        ..good
    };
    assert!(PeerTls::new(&other_key, TokioRuntime::current()).is_err());
}

#[tokio::test]
async fn other_authorities_end_the_trust_in_former_ones() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let served = tls(&old.peer(None));
    let at = port(Arc::clone(&served)).await;
    let caller = tls(&old.peer(None));
    meets(Arc::clone(&caller), at).await.unwrap();
    let changed = served.trust_changed();
    // A renewal by the same authority is no reason to end connections.
    served.replace(&old.peer(None)).unwrap();
    let mut changed = Box::pin(changed);
    assert!(futures::poll!(&mut changed).is_pending());
    let faulty = PeerMaterial {
        key: b"nothing".to_vec(),
        ..new.peer(None)
    };
    assert!(served.replace(&faulty).is_err());
    assert!(futures::poll!(&mut changed).is_pending());
    served.replace(&new.peer(None)).unwrap();
    changed.await;
    assert!(meets(caller, at).await.is_err());
    meets(tls(&new.peer(None)), at).await.unwrap();
}
