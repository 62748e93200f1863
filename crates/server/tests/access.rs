//! Callers, rights, tokens and the audit log of the real process.

use crate::support::certificates::{Certificates, slices};
use crate::support::server::{FREE_PORTS, Server, stele};
use rustix::process::Signal;
use std::path::Path;
use std::time::{Duration, Instant};
use stele_access::testing::issuer::Issuer;

/// Longest time until something happens, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

struct Setting {
    folder: tempfile::TempDir,
    certificates: Certificates,
    server: Server,
}

impl Setting {
    /// A server whose superuser is `root`, with an audit log and tokens of `alice` and `bob`.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let certificates = Certificates::new();
        certificates.client("root");
        for name in ["alice", "bob"] {
            token(folder.path(), name);
        }
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let mut settings = certificates.settings_that_ask("optional");
        settings.extend(["--memory", "128MiB", "--hbase", "127.0.0.1:0"].map(str::to_owned));
        settings.extend(["--access", "rules", "--superusers", "root"].map(str::to_owned));
        settings.extend(["--tokens".into(), path("tokens"), "--audit-log".into(), path("audit")]);
        let server = Server::start(&folder.path().join("data"), &slices(&settings));
        Setting {
            folder,
            certificates,
            server,
        }
    }

    fn run(&self, options: &[String], arguments: &[&str]) -> Result<String, String> {
        let all: Vec<&str> = arguments.iter().copied().chain(slices(options)).collect();
        let output = self.server.client(&all);
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    fn root(&self, arguments: &[&str]) -> Result<String, String> {
        self.run(&self.certificates.client_options(Some("root")), arguments)
    }

    /// As the holder of a token; empty for none.
    fn by_token(&self, name: &str, arguments: &[&str]) -> Result<String, String> {
        let mut options = self.certificates.client_options(None);
        if !name.is_empty() {
            let file = self.folder.path().join(format!("{name}.token"));
            options.extend(["--token-file".into(), file.to_str().unwrap().to_owned()]);
        }
        self.run(&options, arguments)
    }
}

/// Makes a token in the file of the server, and a file with it for its holder.
fn token(folder: &Path, name: &str) {
    let file = folder.join("tokens");
    let output = stele(&["token", "create", name, "--file", file.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    std::fs::write(folder.join(format!("{name}.token")), output.stdout).unwrap();
}

#[test]
fn callers_have_the_rights_that_they_were_given() {
    let setting = Setting::new();
    setting
        .root(&["create-table", "main/t", "--family", "f", "--family", "g"])
        .unwrap();
    setting.root(&["put", "main/t", "eu-1", "f:q=1", "g:q=2"]).unwrap();
    let get = ["get", "main/t", "eu-1"];
    let denied = |outcome: Result<String, String>, code: &str| {
        let said = outcome.expect_err("denied");
        assert!(said.contains(code), "{said}");
    };
    denied(setting.by_token("", &get), "Unauthenticated");
    denied(setting.by_token("alice", &get), "PermissionDenied");
    setting
        .root(&["grant", "alice", "read", "main/t", "--family", "f", "--prefix", "eu-"])
        .unwrap();
    let read = setting.by_token("alice", &get).unwrap();
    assert!(read.contains("f:q") && !read.contains("g:q"), "{read}");
    denied(
        setting.by_token("alice", &["get", "main/t", "us-1"]),
        "PermissionDenied",
    );
    denied(
        setting.by_token("alice", &["put", "main/t", "eu-1", "f:q=3"]),
        "PermissionDenied",
    );
    denied(
        setting.by_token("alice", &["grant", "alice", "write", "main/t"]),
        "PermissionDenied",
    );
    denied(setting.by_token("bob", &get), "PermissionDenied");
    setting.root(&["grant", "bob", "read,write", "main"]).unwrap();
    setting.by_token("bob", &["put", "main/t", "eu-1", "g:q=4"]).unwrap();
    let rules = setting.root(&["rules"]).unwrap();
    assert!(
        rules.contains("main/t  user:alice  read  families f  rows eu-"),
        "{rules}"
    );
    assert!(rules.contains("main  user:bob  read,write"), "{rules}");
    setting
        .root(&["revoke", "alice", "read", "main/t", "--family", "f", "--prefix", "eu-"])
        .unwrap();
    denied(setting.by_token("alice", &get), "PermissionDenied");
    // A prefix of other bytes is taken by the spelling in which it is shown, and only once.
    let prefix = r"\xff\x01";
    let part = ["alice", "read", "main/t", "--prefix", prefix];
    setting.root(&[&["grant"][..], &part].concat()).unwrap();
    let rules = setting.root(&["rules", "main/t"]).unwrap();
    assert!(rules.contains(&format!("user:alice  read  rows {prefix}…")), "{rules}");
    let revoke = [&["revoke"][..], &part].concat();
    setting.root(&revoke).unwrap();
    let rules = setting.root(&["rules", "main/t"]).unwrap();
    assert!(!rules.contains("user:alice  read  rows"), "{rules}");
    assert!(setting.root(&revoke).unwrap_err().contains("NotFound"));
    // A line that is deleted withdraws the token.
    let file = setting.folder.path().join("tokens");
    let lines = std::fs::read_to_string(&file).unwrap();
    let kept: String = lines
        .lines()
        .filter(|line| !line.starts_with("bob "))
        .map(|line| format!("{line}\n"))
        .collect();
    std::fs::write(&file, kept).unwrap();
    let began = Instant::now();
    loop {
        match setting.by_token("bob", &get) {
            Err(said) => break assert!(said.contains("Unauthenticated"), "{said}"),
            Ok(_) => assert!(began.elapsed() < PATIENCE, "withdrawn"),
        }
    }
    let Setting { folder, server, .. } = setting;
    assert_eq!(server.stop(Signal::TERM), Some(0));
    let log = std::fs::read_to_string(folder.path().join("audit/log/audit-00000001.jsonl")).unwrap();
    let has = |parts: &[&str]| log.lines().any(|line| parts.iter().all(|part| line.contains(part)));
    assert!(
        has(&[
            "\"who\":\"root\"",
            "\"by\":\"certificate\"",
            "create_table",
            "table main/t",
            "\"done\""
        ]),
        "{log}"
    );
    assert!(
        has(&["\"who\":\"alice\"", "\"by\":\"token\"", "read_rows", "\"denied\""]),
        "{log}"
    );
    assert!(has(&["set_rules", "namespace main", "\"done\""]), "{log}");
    assert!(has(&["\"unauthenticated\"", "ReadRows"]), "{log}");
    assert!(!log.contains("eu-1"), "no rows: {log}");
}

/// A server that accepts tokens of an issuer, whose keys are in a file.
#[test]
fn tokens_of_an_issuer_name_callers_and_groups() {
    let folder = tempfile::tempdir().unwrap();
    let certificates = Certificates::new();
    certificates.client("root");
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (first, second) = (Issuer::new(1, "k1"), Issuer::new(2, "k2"));
    std::fs::write(path("keys"), "{").unwrap();
    let mut settings = certificates.settings_that_ask("optional");
    settings.extend(["--memory", "128MiB", "--access", "rules", "--superusers", "root"].map(str::to_owned));
    settings.extend(
        [
            "--oidc-issuer",
            "https://id.example",
            "--oidc-audience",
            "stele",
            "--jwks",
        ]
        .map(str::to_owned),
    );
    settings.extend([path("keys"), "--audit-log".into(), path("audit")]);
    let data = folder.path().join("data");
    let start = [
        &["start", "--data", data.to_str().unwrap()],
        &FREE_PORTS[..],
        &slices(&settings),
    ]
    .concat();
    let refused = stele(&start).output().unwrap();
    let says = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && says.contains("jwks"), "{says}");
    assert!(!data.exists(), "such a server has not joined its cluster");
    std::fs::write(path("keys"), Issuer::key_set(&[&first])).unwrap();
    let server = Server::start(&data, &slices(&settings));
    let setting = Setting {
        folder,
        certificates,
        server,
    };
    setting.root(&["create-table", "main/t", "--family", "f"]).unwrap();
    setting.root(&["put", "main/t", "r", "f:q=1"]).unwrap();
    setting.root(&["grant", "group:staff", "read", "main/t"]).unwrap();
    let show = |name: &str, issuer: &Issuer, audience: &str, groups: &[&str]| {
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .as_secs();
        let claims = serde_json::json!({
            "iss": "https://id.example", "aud": audience, "sub": name, "exp": now + 3600, "groups": groups,
        });
        let file = setting.folder.path().join(format!("{name}.token"));
        std::fs::write(file, issuer.token(&claims)).unwrap();
    };
    let get = |name: &str| setting.by_token(name, &["get", "main/t", "r"]);
    show("alice", &first, "stele", &["staff"]);
    show("bob", &first, "stele", &["guests"]);
    show("carol", &first, "other", &["staff"]);
    assert!(get("alice").unwrap().contains("f:q"));
    assert!(get("bob").unwrap_err().contains("PermissionDenied"));
    assert!(get("carol").unwrap_err().contains("another audience"));
    // The key of the tokens is withdrawn.
    std::fs::write(setting.folder.path().join("keys"), Issuer::key_set(&[&second])).unwrap();
    let began = Instant::now();
    while get("alice").is_ok() {
        assert!(began.elapsed() < PATIENCE, "withdrawn");
    }
    assert!(
        get("alice")
            .unwrap_err()
            .contains("a key that the issuer does not have")
    );
    show("alice", &second, "stele", &["staff"]);
    assert!(get("alice").is_ok());
    let Setting { folder, server, .. } = setting;
    assert_eq!(server.stop(Signal::TERM), Some(0));
    let log = std::fs::read_to_string(folder.path().join("audit/log/audit-00000001.jsonl")).unwrap();
    let has = |parts: &[&str]| log.lines().any(|line| parts.iter().all(|part| line.contains(part)));
    assert!(
        has(&["\"who\":\"bob\"", "\"by\":\"oidc token\"", "\"denied\""]),
        "{log}"
    );
    assert!(has(&["\"unauthenticated\"", "another audience"]), "{log}");
}
