//! The data folder: whose it is, and which format it has.
//!
//! `FORMAT` holds one line, `stele-data <version>`. It is looked at before anything in the folder is opened, so that a
//! folder of a newer version, or of something else altogether, is left exactly as it is.
#![allow(
    clippy::disallowed_methods,
    reason = "runs before the storage is opened, because opening it already tidies up"
)]

use anyhow::{Context, bail};
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
use stele_env::Env;
use stele_storage::Storage;
use stele_storage::local::LocalStorage;

/// Newest data folder format this binary knows.
const VERSION: u32 = 1;
/// The file that makes a folder ours.
pub const FORMAT: &str = "FORMAT";

/// Opens the folder as this process's own, making it when needed.
pub async fn open(root: &Path, env: Env) -> anyhow::Result<Arc<LocalStorage>> {
    check_format(root)?;
    let storage = LocalStorage::open(root, env)?;
    let format = Bytes::from(format!("stele-data {VERSION}\n"));
    match storage.put_if_absent(FORMAT, format).await {
        Ok(()) | Err(stele_storage::StorageError::AlreadyExists { .. }) => Ok(storage),
        Err(error) => Err(error).with_context(|| format!("data folder {}", root.display())),
    }
}

/// Whether there is a data folder.
pub fn exists(root: &Path) -> bool {
    root.join(FORMAT).exists()
}

fn check_format(root: &Path) -> anyhow::Result<()> {
    let shown = root.display();
    let path = root.join(FORMAT);
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            let version = text
                .trim()
                .strip_prefix("stele-data ")
                .and_then(|v| v.parse::<u32>().ok());
            let Some(version) = version else {
                bail!("{}: not a Stele format file", path.display())
            };
            if version > VERSION {
                bail!(
                    "data folder {shown} has format {version}, this version of Stele reads up to {VERSION}; it has not \
                     been touched"
                );
            }
            Ok(())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => check_new(root),
        Err(error) => Err(error).with_context(|| format!("{}", path.display())),
    }
}

/// A folder without a format must be new: what a first start that died left behind, at most.
fn check_new(root: &Path) -> anyhow::Result<()> {
    let entries = match std::fs::read_dir(root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("data folder {}", root.display())),
    };
    for entry in entries {
        let name = entry?.file_name();
        if name != "LOCK" && name != "tmp" && name != "lost+found" {
            bail!(
                "{} is not empty and not a Stele data folder (it has {:?} and no {FORMAT}); give another with --data",
                root.display(),
                name
            );
        }
    }
    Ok(())
}
