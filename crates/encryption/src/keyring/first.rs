//! The first key of a root.

use super::{Result, fill, has_keys, make};
use crate::cipher::RandomBytes;
use crate::error::EncryptionError;
use crate::header;
use crate::record::{KeyName, is_plain};
use crate::service::KeyService;
use std::collections::BTreeMap;
use stele_storage::{FileInfo, Storage, StorageError};

/// Files of each directory whose beginnings are read. After encryption has begun in a root with files, the newest are encrypted.
const READ_OF_EACH: usize = 4;

/// Makes the key of the root, unless another server is faster. Refuses a root with files of a former key: servers that still have that key
/// would write files that this one cannot read, and the other way round.
pub(super) async fn make_first(below: &dyn Storage, service: &dyn KeyService, random: &dyn RandomBytes) -> Result<()> {
    let mut listed = below.list("").await?;
    listed.retain(|file| !is_plain(&file.path));
    for path in newest_of_each(&listed) {
        // Perhaps files of a server that has just made the key.
        if is_encrypted(below, path).await? && !has_keys(below).await? {
            let path = KeyName::Root.prefix();
            return Err(EncryptionError::Needed { path });
        }
    }
    let mut root = [0; 16];
    fill(random, &mut root, KeyName::Root)?;
    make(below, service, random, KeyName::Root, (root, listed.is_empty())).await?;
    Ok(())
}

/// Some files of each directory, those with the highest names.
fn newest_of_each(listed: &[FileInfo]) -> impl Iterator<Item = &str> {
    let mut of_each: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for file in listed {
        let (directory, _) = file.path.split_once('/').unwrap_or_default();
        of_each.entry(directory).or_default().push(&file.path);
    }
    of_each.into_values().flat_map(|mut paths| {
        paths.sort_unstable();
        paths.into_iter().rev().take(READ_OF_EACH)
    })
}

/// Whether a file begins as encrypted ones do.
async fn is_encrypted(below: &dyn Storage, path: &str) -> Result<bool> {
    let begin = async { below.open(path).await?.read_at(0, header::MAGIC.len()).await };
    match begin.await {
        Ok(begin) => Ok(*begin == header::MAGIC),
        Err(StorageError::NotFound { .. } | StorageError::OutOfBounds { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
