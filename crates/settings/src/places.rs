//! Places of data: folders, prefixes of object stores, and directories of HDFS.

use anyhow::{Context, bail};
use std::fmt;
use std::path::PathBuf;
use stele_hdfs::HdfsAddress;
use stele_objects::Address;

/// The place of the data.
#[derive(Clone, Debug)]
pub enum Place {
    /// A folder of the local disk.
    Folder(PathBuf),
    /// A prefix of an object store.
    Objects(Address),
    /// A directory of HDFS.
    Hdfs(HdfsAddress),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Folder(path) => write!(f, "{}", path.display()),
            Place::Objects(address) => write!(f, "{address}"),
            Place::Hdfs(address) => write!(f, "{address}"),
        }
    }
}

/// `key=value,key=value`.
pub fn parse_options(text: &str) -> anyhow::Result<Vec<(String, String)>> {
    let given = text.split(',').map(str::trim).filter(|option| !option.is_empty());
    given
        .map(|option| match option.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.trim().to_owned())),
            _ => bail!("data_option: {option:?} is not of the form key=value"),
        })
        .collect()
}

/// A folder, or a prefix of an object store.
pub fn parse_place(text: &str, options: &[(String, String)]) -> anyhow::Result<Place> {
    if Address::is_one(text) {
        return Ok(Place::Objects(Address::parse(text, options).context("data")?));
    }
    if HdfsAddress::is_one(text) {
        return Ok(Place::Hdfs(HdfsAddress::parse(text, options).context("data")?));
    }
    if text.contains("://") {
        bail!("data: {text:?} is neither a folder nor an address with s3://, gs://, az:// or hdfs://");
    }
    if let Some((key, _)) = options.first() {
        bail!("data_option: {key:?} is of no use to a folder");
    }
    Ok(Place::Folder(text.into()))
}
