//! A real S3 server: versitygw over a folder. It is built by the Go toolchain once, and needs a file system with extended
//! attributes.

use super::{BUCKET, Store};
use crate::launch;
use crate::server::{Scratch, free_address};
use crate::shell::Run;
use crate::tools;
use anyhow::Result;
use std::fs;

const ACCESS: &str = "stele";
const SECRET: &str = "stele-secret";

pub fn start(scratch: &Scratch) -> Result<Store> {
    let program = tools::versitygw()?;
    let root = scratch.join("s3");
    let folder = root.join(BUCKET);
    fs::create_dir_all(&folder)?;
    let address = free_address()?;
    let command = Run::new(program)
        .args(["--port", &address, "--keep-alive", "--quiet", "posix"])
        .args([&root])
        .env("ROOT_ACCESS_KEY_ID", ACCESS)
        .env("ROOT_SECRET_ACCESS_KEY", SECRET);
    Ok(Store {
        _process: launch::listening("the S3 server", command, &address, &scratch.join("s3.log"))?,
        url: format!("s3://{BUCKET}"),
        options: format!(
            "endpoint=http://{address},allow_http=true,region=us-east-1,access_key_id={ACCESS},secret_access_key={SECRET}"
        ),
        folder: Some(folder),
    })
}
