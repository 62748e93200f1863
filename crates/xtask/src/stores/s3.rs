//! A real S3 server: versitygw over a folder. It is built by the Go toolchain once, and needs a file system with extended
//! attributes.

use super::{BUCKET, Store};
use crate::hosts::Host;
use crate::launch;
use crate::server::Scratch;
use crate::tools;
use anyhow::Result;
use std::fs;

const ACCESS: &str = "stele";
const SECRET: &str = "stele-secret";

pub fn start(scratch: &Scratch, host: &Host) -> Result<Store> {
    let program = tools::versitygw()?;
    let root = scratch.join("s3");
    let folder = root.join(BUCKET);
    fs::create_dir_all(&folder)?;
    let [address] = host.addresses()?;
    let command = host
        .program(program)
        .args(["--port", &address, "--keep-alive", "--quiet", "posix"])
        .args([&root])
        .env("ROOT_ACCESS_KEY_ID", ACCESS)
        .env("ROOT_SECRET_ACCESS_KEY", SECRET);
    Ok(Store {
        process: launch::listening("the S3 server", command, &address, &scratch.join("s3.log"))?,
        url: format!("s3://{BUCKET}"),
        options: format!(
            "endpoint=http://{address},allow_http=true,region=us-east-1,access_key_id={ACCESS},secret_access_key={SECRET}"
        ),
        folder: Some(folder),
    })
}
