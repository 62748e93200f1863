//! Our own server of the XML API of Google Cloud Storage.
//!
//! The public emulators leave out preconditions and uploads in parts, without which Stele cannot work.

use super::{BUCKET, Store};
use crate::launch;
use crate::server::{Scratch, free_address};
use crate::shell::Run;
use crate::tools;
use anyhow::Result;
use std::fs;

pub fn start(scratch: &Scratch) -> Result<Store> {
    let program = tools::go_program("gcs")?;
    let contents = scratch.join("gcs");
    fs::create_dir_all(&contents)?;
    let address = free_address()?;
    let command = Run::new(program)
        .args(["-address", &address, "-bucket", BUCKET, "-folder"])
        .args([&contents]);
    Ok(Store {
        process: launch::listening(
            "the server of Google's API",
            command,
            &address,
            &scratch.join("gcs.log"),
        )?,
        url: format!("gs://{BUCKET}"),
        options: format!("base_url=http://{address},allow_http=true,bearer_token=unused"),
        folder: None,
    })
}
