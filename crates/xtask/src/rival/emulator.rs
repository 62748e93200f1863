//! Google's in-memory Bigtable emulator, in the Go program that the measurements use, too.

use super::party::{Member, Party};
use super::settings::{self, Known};
use super::{PartName, Place, Request, process};
use crate::shell::root;
use crate::tools;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

/// Its only process; it holds nothing worth waiting for.
pub const PART: PartName = PartName {
    name: "emulator",
    patience: Duration::from_secs(5),
};

const PORT: u16 = 17_100;
const START_LIMIT: Duration = Duration::from_secs(30);
const KNOWN: [Known; 1] = [Known {
    key: "port",
    meaning: "where it listens (17100)",
}];

/// The module it comes from, as `go.mod` names it.
const MODULE: &str = "cloud.google.com/go/bigtable";

/// Starts it unless it runs.
pub fn complete(place: &Place, request: &Request) -> Result<Party> {
    if request.conf.is_some() {
        bail!("--conf: the emulator reads no configuration");
    }
    let mut port = PORT;
    for setting in settings::parse(&request.settings)? {
        match setting.key.as_str() {
            "port" => port = setting.port(0)?,
            _ => return setting.unknown("emulator", &KNOWN, ""),
        }
    }
    let address = format!("127.0.0.1:{port}");
    let identity = match process::running(place, PART.name) {
        Some(identity) => identity,
        None => {
            process::expect_free(port, "Bigtable API of the emulator", process::PORT_PATIENCE)?;
            let launch = process::Launch {
                part: PART.name.to_owned(),
                program: tools::go_program("emulator")?,
                arguments: vec!["-address".to_owned(), address.clone()],
            };
            process::launch(place, &launch)?
        }
    };
    process::wait_for_port(place, PART.name, &identity, port, START_LIMIT)?;
    let go_mod = fs::read_to_string(root().join("tests/clients/go/go.mod")).context("reading go.mod")?;
    Ok(Party {
        name: "emulator",
        version: module_version(&go_mod).with_context(|| format!("{MODULE} is not in go.mod"))?,
        url: format!("bigtable://{address}/bench"),
        members: vec![Member {
            name: PART.name.to_owned(),
            identity,
            gc_log: None,
        }],
        configuration: BTreeMap::from([
            ("emulator: address".to_owned(), address),
            (
                "emulator: storage".to_owned(),
                "memory of the process; nothing is durable".to_owned(),
            ),
        ]),
        data_dirs: Vec::new(),
        settings: request.settings.clone(),
    })
}

fn module_version(go_mod: &str) -> Option<String> {
    go_mod
        .lines()
        .filter_map(|line| line.trim().strip_prefix(MODULE)?.strip_prefix(' '))
        .find_map(|rest| rest.split_whitespace().next())
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_module() {
        let go_mod = "require (\n\tcloud.google.com/go/bigtable/x v1\n\tcloud.google.com/go/bigtable v1.58.0 // x\n)";
        assert_eq!(module_version(go_mod), Some("v1.58.0".to_owned()));
        assert_eq!(module_version("require a v1"), None);
    }
}
