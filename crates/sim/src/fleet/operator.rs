//! An operator who gives up the ends of log files where errors propose it.

use crate::hdfs::Hdfs;
use std::collections::BTreeSet;
use stele_hdfs::client::{Client, Fault, NewFile};

/// Makes a note of the readable end of each log file in HDFS that cannot be read to its end, if the servers have made none that is
/// readable. The number of these files, or the failure.
pub(super) async fn give_up_ends(hdfs: &Hdfs) -> Result<u64, String> {
    let paths = hdfs.paths();
    let notes: BTreeSet<(&str, usize)> = paths.iter().filter_map(|path| note(path)).collect();
    let mut given_up = 0;
    for (path, readable) in hdfs.unreadable() {
        let Some(piece) = path.strip_suffix(".open") else {
            continue;
        };
        if notes.range((piece, 0)..=(piece, readable)).next().is_some() {
            continue;
        }
        let note = NewFile {
            replication: None,
            permission: 0o600,
            makes_directories: false,
        };
        let created = hdfs.create(&format!("{piece}.synced-{readable:x}"), note).await;
        match created {
            Ok(_) => given_up += 1,
            // A server was faster, or the file was deleted.
            Err(Fault::AlreadyExists | Fault::NotFound) => {}
            Err(fault) => return Err(format!("{path} was not given up: {fault:?}")),
        }
    }
    Ok(given_up)
}

/// The piece of a note, and the number of bytes in its name.
fn note(path: &str) -> Option<(&str, usize)> {
    let (piece, len) = path.rsplit_once(".synced-")?;
    Some((piece, usize::from_str_radix(len, 16).ok()?))
}
