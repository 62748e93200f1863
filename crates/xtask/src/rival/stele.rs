//! Stele's release binary, started like the other servers.
//!
//! It has data of its own, the default durability, and settings by `--set`.

use super::party::{Member, Party};
use super::settings::{self, Known, Setting};
use super::{PartName, Place, Request, process};
use crate::server;
use crate::shell::Run;
use anyhow::{Result, bail};
use std::collections::BTreeMap;
use std::time::Duration;

/// Its only process; it drains requests for ten seconds by default, and then writes out its memtables.
pub const PART: PartName = PartName {
    name: "server",
    patience: Duration::from_secs(60),
};

/// The Bigtable API is here, health and metrics on the port after it.
const PORT: u16 = 17_200;

/// Recovery of a large log takes seconds; two minutes mean that something hangs.
const START_LIMIT: Duration = Duration::from_secs(120);

const KNOWN: [Known; 1] = [Known {
    key: "port",
    meaning: "Bigtable API; the next one serves health and metrics (17200)",
}];

/// Decided here, so that the party file is right about them.
const PLACEMENT: [&str; 4] = ["data", "bigtable", "http", "config"];

struct Plan {
    port: u16,
    /// Key as in the configuration file, and value.
    options: Vec<(String, String)>,
}

/// Builds and starts it unless it runs.
pub fn complete(place: &Place, request: &Request) -> Result<Party> {
    let running = process::running(place, PART.name);
    if running.is_none() {
        server::build()?;
    }
    let defaults = defaults(&Run::new(server::stele()).args(["config", "--defaults"]).output()?);
    let plan = plan(request, &defaults)?;
    let address = format!("127.0.0.1:{}", plan.port);
    let http = format!("127.0.0.1:{}", plan.port + 1);
    let identity = match running {
        Some(identity) => identity,
        None => {
            process::expect_free(plan.port, "Bigtable API of Stele", process::PORT_PATIENCE)?;
            process::expect_free(plan.port + 1, "health and metrics of Stele", process::PORT_PATIENCE)?;
            process::launch(place, &launch(place, &plan, &address, &http))?
        }
    };
    process::wait_until(place, PART.name, &identity, START_LIMIT, || {
        Ok(server::http_get(&http, "/readyz").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")))
    })?;
    let data = place.data();
    let data_text = data.to_string_lossy();
    let mut set = vec![
        ("data", data_text.as_ref()),
        ("bigtable", address.as_str()),
        ("http", http.as_str()),
    ];
    set.extend(plan.options.iter().map(|(key, value)| (key.as_str(), value.as_str())));
    Ok(Party {
        name: "stele",
        version: version()?,
        url: format!("bigtable://{address}/bench"),
        members: vec![Member {
            name: PART.name.to_owned(),
            identity,
            gc_log: None,
        }],
        configuration: configuration(&set, &defaults),
        data_dirs: vec![data.clone()],
        settings: request.settings.clone(),
    })
}

fn plan(request: &Request, defaults: &BTreeMap<String, String>) -> Result<Plan> {
    let mut plan = Plan {
        port: PORT,
        options: Vec::new(),
    };
    if request.conf.is_some() {
        bail!("--conf: all that Stele can be told has a --set");
    }
    for setting in settings::parse(&request.settings)? {
        // Flags have `-` where the file has `_`.
        let key = setting.key.replace('-', "_");
        if key == "port" {
            plan.port = setting.port(1)?;
        } else if PLACEMENT.contains(&key.as_str()) {
            bail!("--set {}: decided by this command; there is --set port=N", setting.key);
        } else if defaults.contains_key(&key) {
            plan.options.push((key, setting.value));
        } else {
            return unknown(&setting, defaults);
        }
    }
    Ok(plan)
}

fn unknown<T>(setting: &Setting, defaults: &BTreeMap<String, String>) -> Result<T> {
    let keys: Vec<&str> = defaults
        .keys()
        .map(String::as_str)
        .filter(|key| !PLACEMENT.contains(key))
        .collect();
    setting.unknown(
        "stele",
        &KNOWN,
        &format!("And what `stele start` takes: {}", keys.join(", ")),
    )
}

fn launch(place: &Place, plan: &Plan, address: &str, http: &str) -> process::Launch {
    let data = place.data().to_string_lossy().into_owned();
    let mut arguments: Vec<String> = ["start", "--bigtable", address, "--http", http, "--data", &data]
        .map(str::to_owned)
        .to_vec();
    for (key, value) in &plan.options {
        arguments.push(format!("--{}={value}", key.replace('_', "-")));
    }
    process::Launch {
        part: PART.name.to_owned(),
        program: server::stele(),
        arguments,
    }
}

/// The settings with their defaults, from the output of `stele config --defaults`: `#key = "value"` among comments.
fn defaults(printed: &str) -> BTreeMap<String, String> {
    printed
        .lines()
        .filter_map(|line| line.strip_prefix('#')?.split_once(" = "))
        .filter(|(key, _)| !key.is_empty() && key.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
        .map(|(key, value)| (key.to_owned(), value.trim_matches('"').to_owned()))
        .collect()
}

/// Settings that were changed and settings that were left alone, told apart.
fn configuration(set: &[(&str, &str)], defaults: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut map = BTreeMap::new();
    for (key, value) in defaults {
        match set.iter().find(|(own, _)| own == key) {
            Some((_, value)) => map.insert(format!("stele set: {key}"), (*value).to_owned()),
            None => map.insert(format!("stele default: {key}"), value.clone()),
        };
    }
    map
}

/// The version the binary names, and the commit it was built from where that can be told.
fn version() -> Result<String> {
    let printed = Run::new(server::stele()).args(["--version"]).output()?;
    let version = printed.trim().trim_start_matches("stele ").to_owned();
    let commit = Run::new("git").args(["describe", "--always", "--dirty"]).output();
    Ok(match commit {
        Ok(commit) => format!("{version} ({})", commit.trim()),
        Err(_) => version,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "# Settings.\n\n# Budget. x = 1 here\n# unit: bytes\n#memory = \"50%\"\n\n#tablet_size = \"512MiB\"\n\
                           #data = \"./stele-data\"\n#count = 3\n";

    fn plan_of(settings: &[&str]) -> Result<Plan> {
        let request = Request {
            settings: settings.iter().map(|s| (*s).to_owned()).collect(),
            conf: None,
            fresh: false,
        };
        plan(&request, &defaults(PRINTED))
    }

    #[test]
    fn defaults_are_read_from_what_is_printed() {
        let found: Vec<(String, String)> = defaults(PRINTED).into_iter().collect();
        let expected = [
            ("count", "3"),
            ("data", "./stele-data"),
            ("memory", "50%"),
            ("tablet_size", "512MiB"),
        ];
        assert_eq!(found, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
    }

    #[test]
    fn settings_become_flags() -> Result<()> {
        let plan = plan_of(&["memory=4GiB", "tablet-size=64MiB", "port=19000"])?;
        let launch = launch(&Place::of("x"), &plan, "h:1", "h:2");
        assert_eq!(plan.port, 19_000);
        assert!(
            launch
                .arguments
                .ends_with(&["--memory=4GiB".to_owned(), "--tablet-size=64MiB".to_owned()])
        );
        Ok(())
    }

    #[test]
    fn what_the_server_does_not_know_is_refused() {
        let error = plan_of(&["memroy=4GiB"]).err().expect("unknown").to_string();
        assert!(
            error.contains("\"memroy\"") && error.contains("memory, tablet_size"),
            "{error}"
        );
        assert!(plan_of(&["data=/tmp"]).is_err());
    }

    #[test]
    fn what_was_set_is_told_from_what_was_not() {
        let map = configuration(&[("memory", "4GiB")], &defaults(PRINTED));
        assert_eq!(map.get("stele set: memory").map(String::as_str), Some("4GiB"));
        assert_eq!(
            map.get("stele default: tablet_size").map(String::as_str),
            Some("512MiB")
        );
        assert_eq!(map.len(), 4);
    }
}
