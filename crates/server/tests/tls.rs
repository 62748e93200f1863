//! TLS of the real process, and certificates that change while it runs.

use crate::support::certificates::{Certificates, connect, slices};
use crate::support::server::{Server, stele};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longest time until something happens, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A value of several windows and buffers.
const LARGE_BYTES: usize = 8 << 20;

fn start(settings: &[String]) -> (TempDir, Server) {
    let folder = tempfile::tempdir().unwrap();
    let more = [
        "--memory".to_owned(),
        "128MiB".into(),
        "--hbase".into(),
        "127.0.0.1:0".into(),
    ];
    let settings: Vec<String> = settings.iter().cloned().chain(more).collect();
    let server = Server::start(&folder.path().join("data"), &slices(&settings));
    (folder, server)
}

/// Runs the command line client with these certificates.
fn client(
    server: &Server,
    certificates: &Certificates,
    name: Option<&str>,
    arguments: &[&str],
) -> Result<String, String> {
    let options = certificates.client_options(name);
    let all: Vec<&str> = arguments.iter().copied().chain(slices(&options)).collect();
    let output = server.client(&all);
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

const CREATE: [&str; 4] = ["create-table", "main/t", "--family", "f"];
const GET_PAGE: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
/// A client of HBase that asks for the cluster's id.
const REGISTRY: &[u8] = b"Regist";

#[test]
fn every_port_is_under_tls() {
    let certificates = Certificates::new();
    let (_folder, server) = start(&certificates.settings());
    client(&server, &certificates, None, &CREATE).unwrap();
    let value = "v".repeat(LARGE_BYTES);
    let file = certificates.file("rows.csv");
    std::fs::write(&file, format!("key,v\nrow,{value}\n")).unwrap();
    let arguments = [
        "import",
        "main/t",
        file.to_str().unwrap(),
        "--key",
        "key",
        "--map",
        "v=f:v",
    ];
    client(&server, &certificates, None, &arguments).unwrap();
    let read = client(&server, &certificates, None, &["get", "main/t", "row"]).unwrap();
    assert!(read.contains(&value[..1_000]), "{} bytes", read.len());
    let page = certificates.exchange(&server.http, None, GET_PAGE).unwrap();
    assert!(page.starts_with(b"HTTP/1.1 200"), "{}", page.escape_ascii());
    let hbase = server.hbase.clone().unwrap();
    let answer = certificates.exchange(&hbase, None, REGISTRY).unwrap();
    assert!(answer.len() > 36, "a cluster id: {}", answer.escape_ascii());
}

/// `stele migrate` from one server under TLS to another.
#[test]
fn hbase_clients_are_under_tls() {
    let certificates = Certificates::new();
    let (_source, source) = start(&certificates.settings());
    let (folder, target) = start(&certificates.settings());
    client(&source, &certificates, None, &CREATE).unwrap();
    client(&source, &certificates, None, &["put", "main/t", "row", "f:q=value"]).unwrap();
    let (from, to) = (source.hbase.clone().unwrap(), target.hbase.clone().unwrap());
    let (from, to) = (format!("hbases://{from}"), format!("hbases://{to}"));
    let state = folder.path().join("state").to_str().unwrap().to_owned();
    let arguments = ["migrate", &from, "--to", &to, "--state", &state];
    let migrated = client(&source, &certificates, None, &arguments);
    assert!(migrated.is_ok(), "{migrated:?}");
    let read = client(&target, &certificates, None, &["get", "main/t", "row"]).unwrap();
    assert!(read.contains("value"), "{read}");
    // Another authority does not vouch for the server.
    let stranger = Certificates::new();
    let refused = client(&source, &stranger, None, &arguments).unwrap_err();
    assert!(refused.contains("certificate"), "{refused}");
    let plain = [
        "migrate",
        &from.replace("hbases", "hbase"),
        "--to",
        &to.replace("hbases", "hbase"),
    ];
    assert!(
        client(&source, &certificates, None, &plain)
            .unwrap_err()
            .contains("hbases://")
    );
}

#[test]
fn plain_text_and_strangers_are_refused() {
    let certificates = Certificates::new();
    let (_folder, server) = start(&certificates.settings());
    // Plain text to the ports under TLS.
    for address in [&server.bigtable, &server.http, server.hbase.as_ref().unwrap()] {
        for bytes in [GET_PAGE, REGISTRY, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"HBas\0P"] {
            let mut socket = connect(address).unwrap();
            socket.write_all(bytes).unwrap();
            let _ = socket.shutdown(std::net::Shutdown::Write);
            let mut answer = Vec::new();
            let _ = socket.read_to_end(&mut answer);
            // An alert of TLS at most.
            assert!(answer.len() <= 16, "{}", answer.escape_ascii());
        }
    }
    let plain = server.client(&["tables", "main", "--address", &format!("http://{}", server.bigtable)]);
    let error = String::from_utf8_lossy(&plain.stderr).into_owned();
    assert!(!plain.status.success() && error.contains("it is under TLS"), "{error}");
    // A client that does not trust the authority.
    let other = Certificates::new();
    assert!(client(&server, &other, None, &["tables", "main"]).is_err());
    client(&server, &certificates, None, &CREATE).unwrap();
}

#[test]
fn tls_to_plain_ports_is_refused() {
    let certificates = Certificates::new();
    let (_folder, server) = start(&[]);
    for address in [&server.bigtable, &server.http, server.hbase.as_ref().unwrap()] {
        assert!(certificates.exchange(address, None, GET_PAGE).is_err());
    }
    assert!(client(&server, &certificates, None, &["tables", "main"]).is_err());
    server.says(&CREATE);
}

#[test]
fn clients_need_a_certificate_where_one_is_required() {
    let certificates = Certificates::new();
    let alice = certificates.client("alice");
    let (_folder, server) = start(&certificates.settings_that_ask("required"));
    client(&server, &certificates, Some("alice"), &CREATE).unwrap();
    let error = client(&server, &certificates, None, &["tables", "main"]).unwrap_err();
    assert!(error.contains("requires a certificate"), "{error}");
    assert!(certificates.exchange(&server.http, None, GET_PAGE).is_err());
    assert!(certificates.exchange(&server.http, Some(&alice), GET_PAGE).is_ok());
    let stranger = Certificates::new().client("alice");
    assert!(certificates.exchange(&server.http, Some(&stranger), GET_PAGE).is_err());
}

/// The certificates of `stele certificates`, and the commands that ask the HTTP port.
#[test]
fn a_first_server_has_certificates_of_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let arguments = [
        "certificates",
        "--dir",
        &path(""),
        "--server",
        "node-1",
        "--client",
        "alice",
    ];
    let made = stele(&arguments).output().unwrap();
    assert!(
        made.status.success() && String::from_utf8_lossy(&made.stdout).contains("client alice"),
        "{made:?}"
    );
    let (cert, key, ca) = (path("node-1.pem"), path("node-1.key"), path("ca.pem"));
    let settings = ["--tls-cert", &cert, "--tls-key", &key, "--tls-client-ca", &ca];
    let (_data, server) = start(&settings.map(str::to_owned));
    let (own, own_key) = (path("alice.pem"), path("alice.key"));
    let options = ["--tls-ca", &ca, "--tls-cert", &own, "--tls-key", &own_key];
    for command in [
        &CREATE[..],
        &["shell", "--execute", "put main/t row f:q=1"],
        &["health", "--http", &server.http],
        &["health", "--alive", "--http", &format!("https://{}", server.http)],
        &["top", "--once", "--http", &server.http],
        &["slow", "--http", &server.http],
    ] {
        let address = format!("https://{}", server.bigtable);
        let output = stele(&[command, &options].concat())
            .env("STELE_ADDRESS", address)
            .output()
            .unwrap();
        assert!(output.status.success(), "{command:?}: {output:?}");
    }
    // Without a certificate, and without TLS.
    for options in [&["--tls-ca", &ca][..], &[]] {
        let output = server.client(&[&["health", "--http", &server.http], options].concat());
        assert!(!output.status.success(), "{output:?}");
    }
}

#[test]
fn silent_connections_do_not_keep_clients_out() {
    let certificates = Certificates::new();
    let (_folder, server) = start(&certificates.settings());
    // More than the handshakes that may run; each has sent a part of a record.
    let silent: Vec<TcpStream> = (0..600)
        .map(|_| {
            let mut socket = connect(&server.bigtable).unwrap();
            socket.write_all(b"\x16\x03\x01").unwrap();
            socket
        })
        .collect();
    client(&server, &certificates, None, &CREATE).unwrap();
    // All of them are cut off within the time of a handshake.
    let began = Instant::now();
    for mut socket in silent {
        let _ = socket.read(&mut [0; 64]);
    }
    assert!(began.elapsed() < PATIENCE);
    let metrics = certificates.exchange(&server.http, None, &page("/metrics")).unwrap();
    let metrics = String::from_utf8_lossy(&metrics).into_owned();
    assert!(
        metrics.contains("stele_tls_handshakes_failed_total{cause=\"crowded\"}"),
        "{metrics}"
    );
    assert!(metrics.contains("stele_tls_handshakes_failed_total{cause=\"slow\"}"));
}

fn page(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").into_bytes()
}

#[test]
fn certificates_are_replaced_without_a_restart() {
    let certificates = Certificates::new();
    let (_folder, server) = start(&certificates.settings_that_ask("required"));
    certificates.client("alice");
    client(&server, &certificates, Some("alice"), &CREATE).unwrap();
    let reload = || kill_process(Pid::from_raw(server.pid() as i32).unwrap(), Signal::HUP).unwrap();
    // Files that do not fit together change nothing.
    let key = std::fs::read_to_string(certificates.file("server.key")).unwrap();
    certificates.write("server.key", "nothing");
    reload();
    let tables = ["tables", "main"];
    let is_failing = |expected: &str| {
        let alice = certificates.authority.client_certificate("alice");
        let metrics = certificates
            .exchange(&server.http, Some(&alice), &page("/metrics"))
            .unwrap_or_default();
        String::from_utf8_lossy(&metrics).contains(&format!("stele_tls_reload_failing {expected}\n"))
    };
    eventually(|| is_failing("1"));
    client(&server, &certificates, Some("alice"), &tables).unwrap();
    certificates.write("server.key", &key);
    reload();
    eventually(|| is_failing("0"));
    // Another authority of clients: the clients of the former one are refused.
    let other = Certificates::new();
    let trusted = std::fs::read_to_string(certificates.file("ca.pem")).unwrap();
    certificates.write("ca.pem", &other.authority.certificate);
    reload();
    eventually(|| {
        certificates.write("trusted.pem", &trusted);
        let alice = certificates.authority.client_certificate("alice");
        certificates.exchange(&server.http, Some(&alice), GET_PAGE).is_err()
    });
    let bob = other.authority.client_certificate("bob");
    assert!(certificates.exchange(&server.http, Some(&bob), GET_PAGE).is_ok());
    assert_eq!(server.stop(Signal::TERM), Some(0));
}

fn eventually(mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_start_that_is_not_safe_is_refused() {
    let certificates = Certificates::new();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let refusal = |status: i32, arguments: &[&str]| {
        let output = stele(&["start", "--data", data.to_str().unwrap()])
            .args(arguments)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let said = refusal(2, &["--bigtable", "0.0.0.0:0", "--http", "127.0.0.1:0"]);
    assert!(said.contains("tls_cert") && said.contains("insecure"), "{said}");
    let (cert, key) = (certificates.path("server.pem"), certificates.path("nowhere"));
    let said = refusal(
        1,
        &[
            "--tls-cert",
            &cert,
            "--tls-key",
            &key,
            "--bigtable",
            "127.0.0.1:0",
            "--http",
            "127.0.0.1:0",
        ],
    );
    assert!(said.contains("nowhere"), "{said}");
    let said = refusal(
        1,
        &[
            "--tls-cert",
            &cert,
            "--tls-key",
            &cert,
            "--bigtable",
            "127.0.0.1:0",
            "--http",
            "127.0.0.1:0",
        ],
    );
    assert!(said.contains("key"), "{said}");
}
