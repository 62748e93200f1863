//! An etcd that wants TLS, certificates of its clients, and a user.

use crate::support::cluster::free_address;
use crate::{LONG, commit, put, text};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose as Usage, IsCa, Issuer, KeyPair};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stele_coord::{Coord, WatchEvent};
use stele_env::tokio_env::TokioRuntime;
use stele_etcd::{EtcdAddress, EtcdCoord, EtcdSecurity, EtcdUser};
use stele_types::ErrorKind;
use tempfile::TempDir;
use tonic::Request;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic_prost::ProstCodec;

const PASSWORD: &str = "correct horse";

/// An authority, with a certificate of etcd and of a client in PEM form.
struct Certificates {
    authority: String,
    member: (String, String),
    client: (String, String),
}

impl Certificates {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "etcd authority");
        let key = KeyPair::generate().unwrap();
        let authority = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        let sign = |hosts: &[&str], usages: &[Usage]| {
            let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
            let mut params = CertificateParams::new(hosts).unwrap();
            params.distinguished_name = rcgen::DistinguishedName::new();
            params.extended_key_usages.extend_from_slice(usages);
            let key = KeyPair::generate().unwrap();
            (params.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem())
        };
        Certificates {
            member: sign(&["localhost", "127.0.0.1"], &[Usage::ServerAuth, Usage::ClientAuth]),
            client: sign(&[], &[Usage::ClientAuth]),
            authority,
        }
    }

    fn security(&self, user: Option<&str>) -> EtcdSecurity {
        EtcdSecurity {
            authorities: Some(self.authority.clone().into_bytes()),
            own: Some((self.client.0.clone().into_bytes(), self.client.1.clone().into_bytes())),
            user: user.map(|password| EtcdUser {
                name: "root".to_owned(),
                password: password.to_owned(),
            }),
        }
    }
}

/// One member, killed when dropped.
struct Secured {
    child: Child,
    address: String,
    certificates: Certificates,
    _folder: TempDir,
}

impl Drop for Secured {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Secured {
    /// Starts one, if the machine has an etcd for tests. Its tokens count for five seconds.
    async fn start() -> Option<Secured> {
        let program = std::env::var_os("STELE_TEST_ETCD")?;
        let parent = std::env::var_os("STELE_TEST_ETCD_FOLDER").expect("a folder for the data of etcd");
        let folder = TempDir::new_in(parent).unwrap();
        let certificates = Certificates::new();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let (client, peer) = (free_address(), free_address());
        let (at, peer_at) = (format!("https://{client}"), format!("http://{peer}"));
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let child = Command::new(program)
            .args(["--name", "m0", "--data-dir"])
            .arg(folder.path().join("m0"))
            .args(["--listen-client-urls", &at, "--advertise-client-urls", &at])
            .args([
                "--listen-peer-urls",
                &peer_at,
                "--initial-advertise-peer-urls",
                &peer_at,
            ])
            .args(["--initial-cluster", &format!("m0={peer_at}")])
            .args(["--cert-file", &file("member.pem", &certificates.member.0)])
            .args(["--key-file", &file("member.key", &certificates.member.1)])
            .args(["--trusted-ca-file", &file("ca.pem", &certificates.authority)])
            .args(["--client-cert-auth", "--auth-token-ttl", "5"])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("starting etcd");
        let secured = Secured {
            child,
            address: client,
            certificates,
            _folder: folder,
        };
        let began = Instant::now();
        while secured
            .fail("etcds", secured.certificates.security(None))
            .await
            .is_some()
        {
            assert!(began.elapsed() < LONG, "etcd does not serve");
        }
        Some(secured)
    }

    /// With much time for each request: etcd spends some on a password.
    async fn connect(&self, security: EtcdSecurity) -> stele_coord::Result<Arc<EtcdCoord>> {
        self.connect_by("etcds", security, LONG).await
    }

    /// Where no answer is expected.
    async fn fail(&self, scheme: &str, security: EtcdSecurity) -> Option<ErrorKind> {
        let connected = self.connect_by(scheme, security, Duration::from_secs(4)).await;
        connected.err().map(|error| error.kind())
    }

    async fn connect_by(
        &self,
        scheme: &str,
        security: EtcdSecurity,
        limit: Duration,
    ) -> stele_coord::Result<Arc<EtcdCoord>> {
        let address = EtcdAddress::parse(&format!("{scheme}://{}/secured", self.address)).unwrap();
        EtcdCoord::connect_with(&address, security, TokioRuntime::current(), limit).await
    }

    /// Makes etcd ask for users, and makes one.
    async fn enable_users(&self) {
        let channel = self.channel().await;
        let user = Words {
            first: "root".to_owned(),
            second: PASSWORD.to_owned(),
        };
        call(&channel, "/etcdserverpb.Auth/UserAdd", user).await;
        let role = Words {
            first: "root".to_owned(),
            second: String::new(),
        };
        call(&channel, "/etcdserverpb.Auth/RoleAdd", role).await;
        let grant = Words {
            first: "root".to_owned(),
            second: "root".to_owned(),
        };
        call(&channel, "/etcdserverpb.Auth/UserGrantRole", grant).await;
        call(&channel, "/etcdserverpb.Auth/AuthEnable", Words::default()).await;
    }

    async fn channel(&self) -> Channel {
        let Certificates { authority, client, .. } = &self.certificates;
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(authority))
            .identity(Identity::from_pem(&client.0, &client.1));
        let endpoint = Endpoint::from_shared(format!("https://{}", self.address)).unwrap();
        endpoint.tls_config(tls).unwrap().connect().await.unwrap()
    }
}

/// A request of one or two texts, as those of users and roles are.
#[derive(Clone, PartialEq, prost::Message)]
struct Words {
    #[prost(string, tag = "1")]
    first: String,
    #[prost(string, tag = "2")]
    second: String,
}

async fn call(channel: &Channel, path: &'static str, words: Words) {
    let mut calls = tonic::client::Grpc::new(channel.clone());
    calls.ready().await.unwrap();
    let codec: ProstCodec<Words, ()> = ProstCodec::default();
    calls
        .unary(Request::new(words), PathAndQuery::from_static(path), codec)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_and_users() {
    let Some(etcd) = Secured::start().await else { return };
    let certificates = &etcd.certificates;
    let coord = etcd.connect(certificates.security(None)).await.unwrap();
    commit(&*coord, put("a", "1")).await;
    // Plain text, no certificate, and an authority that did not sign etcd's.
    let kind = |outcome: stele_coord::Result<Arc<EtcdCoord>>| outcome.err().map(|error| error.kind());
    let unreachable = Some(ErrorKind::Unavailable);
    assert_eq!(etcd.fail("etcd", EtcdSecurity::default()).await, unreachable);
    let bare = EtcdSecurity {
        own: None,
        ..certificates.security(None)
    };
    assert_eq!(etcd.fail("etcds", bare).await, unreachable);
    let stranger = Certificates::new().security(None);
    assert_eq!(etcd.fail("etcds", stranger).await, unreachable);
    let faulty = EtcdSecurity {
        own: Some((b"no".to_vec(), b"thing".to_vec())),
        ..certificates.security(None)
    };
    assert_eq!(
        kind(etcd.connect(faulty.clone()).await),
        Some(ErrorKind::InvalidArgument)
    );
    assert_eq!(
        coord.set_security(faulty).unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
    // A user is no fault where none is asked for.
    let early = etcd.connect(certificates.security(Some(PASSWORD))).await.unwrap();
    commit(&*early, put("a", "2")).await;
    let mut watch = early.watch("").await.unwrap();

    etcd.enable_users().await;
    let wrong = etcd.connect(certificates.security(Some("wrong"))).await;
    assert_eq!(kind(wrong), Some(ErrorKind::PermissionDenied));
    let nobody = etcd.connect(certificates.security(None)).await;
    assert_eq!(kind(nobody), Some(ErrorKind::PermissionDenied));
    let user = etcd.connect(certificates.security(Some(PASSWORD))).await.unwrap();
    let session = user.session(Duration::from_secs(60)).await.unwrap();
    for value in ["3", "4"] {
        commit(&*user, put("a", value)).await;
        session.keep_alive().await.unwrap();
        // Longer than a token counts.
        tokio::time::sleep(Duration::from_secs(8)).await;
    }
    assert_eq!(text(&*user, "a").await.as_deref(), Some("4"));
    // One that had no token gets one, and its watch goes on.
    commit(&*early, put("a", "5")).await;
    while let Some(event) = watch.next().await {
        if matches!(&event, WatchEvent::Put { current, .. } if &current.value[..] == b"5") {
            break;
        }
    }
    // Renewed credentials are used without a new coordinator.
    coord.set_security(certificates.security(Some(PASSWORD))).unwrap();
    commit(&*coord, put("a", "6")).await;
}
