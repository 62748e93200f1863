use super::*;
use std::os::unix::fs::PermissionsExt;
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::FromDer;

/// 2026-01-01.
const NOW: u64 = 1_767_225_600;

fn args(dir: &Path, servers: &[&str], clients: &[&str]) -> CertificatesArgs {
    let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    CertificatesArgs {
        dir: dir.to_owned(),
        servers: owned(servers),
        clients: owned(clients),
        days: 365,
        renew: false,
    }
}

fn read(dir: &Path, name: &str) -> String {
    std::fs::read_to_string(dir.join(name)).unwrap()
}

/// Whether the authority of the folder has signed a certificate, and for whom.
fn verified(dir: &Path, name: &str) -> (String, Vec<String>) {
    let der = |name: &str| parse_x509_pem(read(dir, name).as_bytes()).unwrap().1.contents;
    let (ca, own) = (der("ca.pem"), der(name));
    let (_, ca) = x509_parser::certificate::X509Certificate::from_der(&ca).unwrap();
    let (_, own) = x509_parser::certificate::X509Certificate::from_der(&own).unwrap();
    assert_eq!(own.issuer(), ca.subject());
    assert!(ca.is_ca() && !own.is_ca());
    let hosts = own.subject_alternative_name().unwrap();
    let hosts = hosts.map(|names| names.value.general_names.iter().map(ToString::to_string).collect());
    (own.subject().to_string(), hosts.unwrap_or_default())
}

#[test]
fn a_first_cluster_has_all_files() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("certificates");
    let said = run(&args(&dir, &["node-1,192.0.2.1", "*.stele.svc"], &["alice"]), NOW).unwrap();
    assert!(said.contains("server node-1 192.0.2.1 localhost"), "{said}");
    assert!(said.contains("client alice, until 2027-01-01"), "{said}");
    assert!(said.contains("the authority, until 2035-12-30"), "{said}");
    let (subject, hosts) = verified(&dir, "node-1.pem");
    assert_eq!((subject.as_str(), hosts.len()), ("CN=node-1", 6));
    assert_eq!(verified(&dir, "_.stele.svc.pem").0, "CN=*.stele.svc");
    assert_eq!(verified(&dir, "alice.pem"), ("CN=alice".to_owned(), Vec::new()));
    for key in ["ca.key", "node-1.key", "alice.key"] {
        let mode = std::fs::metadata(dir.join(key)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{key}");
    }
}

#[test]
fn a_second_run_adds_and_keeps() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    run(&args(dir, &[], &[]), NOW).unwrap();
    let (ca, first) = (read(dir, "ca.pem"), read(dir, "localhost.pem"));
    let said = run(&args(dir, &[], &["bob"]), NOW + 86_400).unwrap();
    assert!(
        said.contains("bob, until 2027-01-02") && !said.contains("localhost"),
        "{said}"
    );
    let said = run(&args(dir, &["localhost"], &[]), NOW + 86_400).unwrap();
    assert!(said.contains("(exists), until 2027-01-01"), "{said}");
    assert_eq!(
        (read(dir, "ca.pem"), read(dir, "localhost.pem")),
        (ca.clone(), first.clone())
    );
    verified(dir, "bob.pem");
    let renew = CertificatesArgs {
        renew: true,
        ..args(dir, &[], &[])
    };
    run(&renew, NOW + 172_800).unwrap();
    assert!(read(dir, "ca.pem") == ca && read(dir, "localhost.pem") != first);
    verified(dir, "localhost.pem");
}

#[test]
fn all_certificates_of_a_folder_are_listed_and_renewed() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    run(&args(dir, &["node-1,192.0.2.1", "node-2,2001:db8::2"], &["admin"]), NOW).unwrap();
    let said = run(&args(dir, &[], &[]), NOW).unwrap();
    assert_eq!(said.matches("(exists), until 2027-01-01").count(), 3, "{said}");
    let files = ["node-1.pem", "node-2.pem", "admin.pem"];
    let before = files.map(|file| (read(dir, file), verified(dir, file)));
    let renew = CertificatesArgs {
        renew: true,
        ..args(dir, &[], &[])
    };
    let said = run(&renew, NOW + 86_400).unwrap();
    assert_eq!(said.matches(", until 2027-01-02").count(), 3, "{said}");
    assert!(
        !said.contains("no longer") && !dir.join("localhost.pem").exists(),
        "{said}"
    );
    for (file, (text, holder)) in files.iter().zip(before) {
        assert_ne!(read(dir, file), text);
        assert_eq!(verified(dir, file), holder);
    }
}

#[test]
fn a_renewal_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, other) = (&folder.path().join("own"), &folder.path().join("other"));
    let made = ["node-1,192.0.2.1,2001:db8::2"];
    run(&args(dir, &made, &["admin"]), NOW).unwrap();
    let renew = |servers: &[&str]| {
        let args = CertificatesArgs {
            renew: true,
            ..args(dir, servers, &[])
        };
        run(&args, NOW + 86_400).map_err(|error| error.to_string())
    };
    let before = read(dir, "node-1.pem");
    let error = renew(&["node-1"]).unwrap_err();
    assert!(error.contains("192.0.2.1 2001:db8::2"), "{error}");
    assert_eq!(read(dir, "node-1.pem"), before);
    renew(&["node-1,192.0.2.1,2001:DB8::2,more"]).unwrap();
    assert_ne!(read(dir, "node-1.pem"), before);
    // A certificate that exists is shown as it is.
    let said = run(&args(dir, &["node-1,192.0.2.9"], &[]), NOW).unwrap();
    assert!(
        said.contains("it lacks 192.0.2.9: --renew") && said.contains("192.0.2.1"),
        "{said}"
    );
    // Those of others, and those without a key, stay.
    run(&args(other, &["node-9"], &[]), NOW).unwrap();
    for file in ["node-9.pem", "node-9.key"] {
        std::fs::copy(other.join(file), dir.join(file)).unwrap();
    }
    std::fs::remove_file(dir.join("admin.key")).unwrap();
    let left = ["node-9.pem", "node-9.key", "admin.pem"].map(|file| read(dir, file));
    let said = renew(&[]).unwrap();
    assert!(
        said.contains("of another authority") && said.contains("without its key"),
        "{said}"
    );
    assert_eq!(
        ["node-9.pem", "node-9.key", "admin.pem"].map(|file| read(dir, file)),
        left
    );
    // A renewal makes no authority.
    std::fs::remove_file(dir.join("ca.key")).unwrap();
    assert!(renew(&[]).unwrap_err().contains("no authority"));
}

#[test]
fn mistakes_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let error = |args: &CertificatesArgs, now: u64| format!("{:#}", run(args, now).unwrap_err());
    for (servers, clients, named) in [
        (&["a,,b"][..], &[][..], "empty name"),
        (&["a"], &["a"], "names two"),
        (&[], &["ca"], "names two"),
        (&[], &["../x"], "cannot name a file"),
        (&["höst"], &[], "hosts"),
    ] {
        let said = error(&args(dir, servers, clients), NOW);
        assert!(said.contains(named), "{said}");
    }
    run(&args(dir, &[], &[]), NOW).unwrap();
    let late = NOW + 86_400 * (CA_DAYS - 10);
    assert!(error(&args(dir, &["late"], &[]), late).contains("outlive its authority"));
    let ca = read(dir, "ca.pem");
    std::fs::write(dir.join("ca.pem"), "x").unwrap();
    assert!(error(&args(dir, &[], &[]), NOW).contains("ca.pem"));
    std::fs::write(dir.join("ca.pem"), ca).unwrap();
    std::fs::remove_file(dir.join("ca.key")).unwrap();
    assert!(error(&args(dir, &[], &[]), NOW).contains("ca.key"));
    std::fs::write(dir.join("localhost.pem"), "x").unwrap();
    assert!(error(&args(dir, &[], &[]), NOW).contains("localhost.pem: not a certificate"));
}
