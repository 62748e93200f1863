//! Files below `deploy/`, and the page about installing, name flags, variables and ports that exist.

use crate::support::server::{STELE, stele};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use yaml_rust2::{Yaml, YamlLoader};

/// Variables of a client; those of the server are in its reference.
const CLIENT_VARIABLES: [&str; 6] = [
    "STELE_ADDRESS",
    "STELE_CA",
    "STELE_CLIENT_CERT",
    "STELE_CLIENT_KEY",
    "STELE_TOKEN_FILE",
    "STELE_TOKEN_IN_CLEAR",
];

/// Ports of other programs that the files name, and the number of the user in the image.
const OTHER_NUMBERS: [&str; 4] = ["2379", "2380", "9000", "10001"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect(path)
}

fn output(arguments: &[&str]) -> String {
    let output = stele(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// All files below a folder of `deploy/` that name Stele's settings.
fn deployed() -> Vec<(String, String)> {
    let mut files = Vec::new();
    let mut folders: Vec<PathBuf> = ["systemd", "debian", "docker", "compose", "helm"]
        .map(|folder| root().join("deploy").join(folder))
        .into();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => files.push((path.display().to_string(), fs::read_to_string(&path).unwrap())),
            }
        }
    }
    let page = "docs/installing.md";
    files.push((page.to_owned(), read(page)));
    assert!(files.len() > 12, "{}", files.len());
    files
}

/// The words of a text that begin with `start`.
fn words<'a>(text: &'a str, start: &'a str, allowed: fn(char) -> bool) -> impl Iterator<Item = &'a str> {
    text.split(move |c: char| !allowed(c))
        .filter(move |word| word.starts_with(start) && word.len() > start.len())
}

#[test]
fn variables_exist() {
    let reference = output(&["config", "--defaults"]);
    let known: BTreeSet<&str> = words(&reference, "STELE_", |c| c.is_ascii_uppercase() || c == '_').collect();
    let mut named = 0;
    for (path, text) in deployed() {
        for variable in words(&text, "STELE_", |c| c.is_ascii_uppercase() || c == '_') {
            let is_placeholder = variable == "STELE_KEY";
            assert!(
                known.contains(variable) || CLIENT_VARIABLES.contains(&variable) || is_placeholder,
                "{path}: {variable}"
            );
            named += 1;
        }
    }
    assert!(named > 40, "{named}");
    let help = output(&["tables", "--help"]);
    for variable in CLIENT_VARIABLES {
        assert!(help.contains(variable), "{variable}");
    }
}

/// Every line with the program parses: its flags, and that nothing is missing.
#[test]
fn flags_exist() {
    let help = |command: &str| output(&[command, "--help"]);
    let (start, certificates) = (help("start"), help("certificates"));
    let mut lines = 0;
    for (path, text) in deployed() {
        let joined = text.replace("\\\n", " ");
        for line in joined
            .lines()
            .filter(|line| line.contains("stele ") && line.contains(" --"))
        {
            for (command, known) in [("stele start", &start), ("stele certificates", &certificates)] {
                let Some((_, arguments)) = line.split_once(command) else {
                    continue;
                };
                for flag in words(arguments, "--", |c| c.is_ascii_lowercase() || c == '-') {
                    assert!(known.contains(flag), "{path}: {command} has no {flag}");
                }
                lines += 1;
            }
        }
    }
    assert!(lines > 3, "{lines}");
    for command in ["health", "cluster"] {
        assert!(!help(command).is_empty());
    }
}

#[test]
fn ports_are_the_defaults() {
    let reference = output(&["config", "--defaults"]);
    let default = |key: &str| {
        let line = reference
            .lines()
            .find_map(|line| line.strip_prefix(&format!("#{key} = ")));
        line.unwrap().trim_matches('"').rsplit(':').next().unwrap().to_owned()
    };
    let known: Vec<String> = ["bigtable", "hbase", "http", "peer"].map(default).into();
    for (key, port) in [("BIGTABLE", 0), ("HBASE", 1), ("HTTP", 2), ("PEER", 3)].map(|(key, at)| (key, &known[at])) {
        for file in ["deploy/docker/Dockerfile", "deploy/helm/templates/statefulset.yaml"] {
            let text = read(file);
            let line = text
                .lines()
                .find(|line| line.contains(&format!("STELE_{key}")))
                .unwrap();
            assert!(line.contains(&format!("0.0.0.0:{port}")), "{file}: {line}");
        }
    }
    let mut named = BTreeSet::new();
    for (path, text) in deployed() {
        // A colon and a port, alone or behind a host.
        for part in text.split(':').skip(1) {
            let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
            let ends = part
                .chars()
                .nth(digits.len())
                .is_none_or(|c| !c.is_ascii_alphanumeric() && c != '.');
            if !(4..=5).contains(&digits.len()) || !ends {
                continue;
            }
            // The containers of the second and third server have the same ports, and others outside.
            let is_outside = path.ends_with("compose.yaml") && ["8186", "8188", "8286", "8288"].contains(&&*digits);
            assert!(
                known.contains(&digits) || OTHER_NUMBERS.contains(&&*digits) || is_outside,
                "{path}: port {digits}"
            );
            named.insert(digits);
        }
    }
    assert!(named.len() >= known.len(), "{named:?}");
}

#[test]
fn the_unit_stops_no_server_too_early() {
    let unit = read("deploy/systemd/stele.service");
    let value = |key: &str| {
        let line = unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.expect(key)
    };
    assert_eq!(value("Type"), "notify");
    assert_eq!(value("RestartPreventExitStatus"), "2 4");
    let reference = output(&["config", "--defaults"]);
    let drain = reference
        .lines()
        .find_map(|line| line.strip_prefix("#drain_timeout = "));
    let drain: u64 = drain.unwrap().trim_matches('"').trim_end_matches('s').parse().unwrap();
    assert!(value("TimeoutStopSec").parse::<u64>().unwrap() >= 4 * drain);
    let files: u64 = value("LimitNOFILE").parse().unwrap();
    assert!(files >= 65_536);
}

#[test]
fn yaml_has_the_parts_that_belong_together() {
    let load = |path: &str| YamlLoader::load_from_str(&read(path)).expect(path);
    load("deploy/prometheus/alerts.yml");
    let chart = &load("deploy/helm/Chart.yaml")[0];
    let version = output(&["--version"]);
    assert_eq!(
        version.trim(),
        format!("stele {}", chart["appVersion"].as_str().unwrap())
    );
    let values = &load("deploy/helm/values.yaml")[0];
    let names: BTreeSet<&str> = values.as_hash().unwrap().keys().filter_map(Yaml::as_str).collect();
    for template in [
        "statefulset.yaml",
        "services.yaml",
        "policies.yaml",
        "_names.tpl",
        "NOTES.txt",
    ] {
        let text = read(&format!("deploy/helm/templates/{template}"));
        for value in text.split(".Values.").skip(1) {
            let end = value.find(|c: char| !c.is_ascii_alphanumeric() && c != '.').unwrap();
            let mut place = values;
            for name in value[..end].split('.') {
                assert!(
                    place.as_hash().is_some() && !place[name].is_badvalue(),
                    "{template}: {}",
                    &value[..end]
                );
                place = &place[name];
            }
        }
    }
    assert!(names.contains("networkPolicy"));
    let drain = values["drainTimeout"].as_str().unwrap().trim_end_matches('s');
    let grace = values["terminationGracePeriodSeconds"].as_i64().unwrap();
    assert!(grace > 2 * drain.parse::<i64>().unwrap());
    let compose = &load("deploy/compose/compose.yaml")[0];
    let services = compose["services"].as_hash().unwrap();
    let volumes = compose["volumes"].as_hash().unwrap();
    for (name, service) in services {
        for volume in service["volumes"].as_vec().into_iter().flatten() {
            let volume = volume.as_str().unwrap().split(':').next().unwrap();
            assert!(
                volumes.contains_key(&Yaml::String(volume.to_owned())),
                "{name:?}: {volume}"
            );
        }
    }
    for server in ["node-1", "node-2", "node-3"] {
        let environment = &compose["services"][server]["environment"];
        assert_eq!(environment["STELE_ADVERTISE"].as_str(), Some(server));
        let certificate = environment["STELE_TLS_CERT"].as_str().unwrap();
        assert_eq!(certificate, format!("/certificates/{server}.pem"));
    }
}

/// The S3 server of the containers is the one of the tests.
#[test]
fn containers_have_tested_programs() {
    let line = read("deploy/compose/compose.yaml");
    let pin = line
        .split("versitygw@")
        .nth(1)
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap()
        .to_owned();
    assert!(
        read("crates/xtask/src/tools.rs").contains(&format!("versitygw@{pin}\"")),
        "{pin}"
    );
    let toolchain = read("rust-toolchain.toml");
    let image = read("deploy/docker/Dockerfile");
    let tag = image.lines().find_map(|line| line.strip_prefix("FROM rust:")).unwrap();
    let version = tag.split('-').next().unwrap();
    assert!(toolchain.contains(&format!("channel = \"{version}.")), "{tag}");
}

#[test]
fn scripts_of_the_package_are_scripts() {
    for script in ["postinst", "prerm", "postrm"] {
        let path = root().join("deploy/debian").join(script);
        let checked = Command::new("sh").arg("-n").arg(&path).status().unwrap();
        assert!(checked.success(), "{script}");
    }
}

/// A server that `apt remove` stopped is down when the package is installed again; the script is told the former version then.
#[test]
fn an_installation_after_a_removal_starts_the_server() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    for program in ["deb-systemd-invoke", "deb-systemd-helper", "systemctl", "getent"] {
        let path = folder.path().join(program);
        fs::write(&path, "#!/bin/sh\necho \"$(basename \"$0\") $*\" >> \"$LOG\"\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    // Not every machine that runs this test has systemd.
    let script = read("deploy/debian/postinst").replace("/run/systemd/system", folder.path().to_str().unwrap());
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    for (former, action) in [(&["0.1.0"][..], "restart"), (&[], "start")] {
        let mut command = Command::new("sh");
        command.args(["-c", &script, "postinst", "configure"]).args(former);
        let done = command.env("PATH", &path).env("LOG", &log).status().unwrap();
        assert!(done.success());
        let said = fs::read_to_string(&log).unwrap();
        let last = said.lines().last().unwrap_or_default();
        assert_eq!(last, format!("deb-systemd-invoke {action} stele.service"), "{said}");
    }
}

#[test]
fn completions_and_manual_pages_follow_the_command_line() {
    for shell in ["bash", "zsh", "fish"] {
        let script = output(&["completions", shell]);
        assert!(
            script.contains("create-table") && script.contains("tls-cert"),
            "{shell}"
        );
    }
    let folder = tempfile::tempdir().unwrap();
    output(&["man", "--dir", folder.path().to_str().unwrap()]);
    let page = fs::read_to_string(folder.path().join("stele-start.1")).unwrap();
    assert!(page.contains("durability"), "{page}");
    assert!(folder.path().join("stele.1").exists());
    assert!(output(&["man"]).contains("stele"));
    assert!(Path::new(STELE).exists());
}
