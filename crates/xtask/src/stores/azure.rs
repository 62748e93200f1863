//! Azurite, the emulator of Azure Blob Storage by its makers. It comes from its registry once, and needs Node.js.

use super::{BUCKET, Store};
use crate::launch;
use crate::server::{Scratch, free_address};
use crate::shell::{Run, root};
use crate::tools;
use anyhow::{Context, Result};
use std::fs;

/// The account of every Azurite, and its key, which its documentation publishes.
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// Whether the machine can fetch and run it.
pub fn available() -> bool {
    ["node", "npm"].iter().all(|program| {
        let version = Run::new(program).args(["--version"]).into_command().output();
        version.is_ok_and(|output| output.status.success())
    })
}

pub fn start(scratch: &Scratch) -> Result<Store> {
    let program = tools::azurite()?;
    let folder = scratch.join("azure");
    fs::create_dir_all(&folder)?;
    let address = free_address()?;
    let (host, port) = address.split_once(':').context("an address with a port")?;
    let command = Run::new(program)
        .args(["--silent", "--disableTelemetry", "--skipApiVersionCheck"])
        .args(["--blobHost", host, "--blobPort", port, "--location"])
        .args([&folder]);
    let process = launch::listening("Azurite", command, &address, &scratch.join("azure.log"))?;
    Run::new("node")
        .args([root().join("tests/stores/azure-container.mjs")])
        .args([&address, ACCOUNT, KEY, BUCKET])
        .check()
        .context("making a container")?;
    Ok(Store {
        process,
        url: format!("az://{BUCKET}"),
        options: format!(
            "endpoint=http://{address}/{ACCOUNT},allow_http=true,account_name={ACCOUNT},account_key={KEY}"
        ),
        folder: None,
    })
}
