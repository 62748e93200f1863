//! The pieces of growing files: their names, and the files that they make.

use crate::cluster::Cluster;
use std::collections::BTreeMap;
use stele_storage::{Result, StorageError};

/// Directories of growing files: the prefixes of [`stele_storage::grows`].
pub(super) const DIRECTORIES: [&str; 2] = ["log/", "coord/log-"];

const OPEN: &str = ".open";

const SYNCED: &str = ".synced-";

pub(crate) fn piece_key(path: &str, number: u32) -> String {
    format!("{path}/@{number:08x}")
}

pub(crate) fn open_key(path: &str, number: u32) -> String {
    format!("{path}/@{number:08x}{OPEN}")
}

/// The file and number of a piece's key, and whether the piece is open.
pub(crate) fn parse_piece(key: &str) -> Option<(&str, u32, bool)> {
    let (path, name) = key.rsplit_once("/@")?;
    let (digits, open) = match name.strip_suffix(OPEN) {
        Some(digits) => (digits, true),
        None => (name, false),
    };
    let number = u32::from_str_radix(digits, 16).ok()?;
    let spelled = if open {
        open_key(path, number)
    } else {
        piece_key(path, number)
    };
    (spelled == key).then_some((path, number, open))
}

/// The name that states the length of an open piece at its last sync.
pub(super) fn synced_key(path: &str, number: u32, len: u64) -> String {
    format!("{}{len:x}", synced_prefix(path, number))
}

pub(super) fn synced_prefix(path: &str, number: u32) -> String {
    debug_assert!(number > 0, "piece 0 has no content");
    format!("{path}/@{number:08x}{SYNCED}")
}

/// The pieces of one file in a listing.
#[derive(Default)]
pub(crate) struct Pieces {
    finished: BTreeMap<u32, u64>,
    pub(super) open: BTreeMap<u32, u64>,
}

impl Pieces {
    pub(super) async fn list(cluster: &Cluster, path: &str) -> Result<Pieces> {
        let mut pieces = Pieces::default();
        for (key, status) in cluster.entries(path).await? {
            if let Some((of, number, open)) = parse_piece(&key)
                && of == path
            {
                pieces.add(number, open, status.len);
            }
        }
        Ok(pieces)
    }

    pub(crate) fn add(&mut self, number: u32, open: bool, len: u64) {
        if open {
            self.open.insert(number, len)
        } else {
            self.finished.insert(number, len)
        };
    }

    pub(crate) fn is_file(&self) -> bool {
        self.finished.contains_key(&0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.finished.is_empty() && self.open.is_empty()
    }

    /// Length in bytes, as far as the NameNode knows it. A copied piece may still exist under both names.
    pub(crate) fn len(&self) -> u64 {
        let open = self
            .open
            .iter()
            .filter(|(number, _)| !self.finished.contains_key(number));
        self.finished.values().chain(open.map(|(_, len)| len)).sum()
    }

    /// The first piece below `end` that has bytes and was not finished by its writer or a new owner.
    fn unfinished(&self, end: u32) -> Option<u32> {
        let unsealed =
            |(number, len): &(&u32, &u64)| **number < end && **len > 0 && !self.finished.contains_key(number);
        self.open.iter().find(unsealed).map(|(number, _)| *number)
    }

    /// The readable pieces: all below piece `end`, or all. A gap is an error.
    pub(crate) fn readable(&self, path: &str, end: Option<u32>) -> Result<Vec<(u32, u64)>> {
        let end = end.unwrap_or(u32::MAX);
        if let Some(number) = self.unfinished(end) {
            return Err(unfinished_piece(open_key(path, number)));
        }
        let found = self.finished.iter().take_while(|(number, _)| **number < end);
        let found: Vec<(u32, u64)> = found.map(|(number, len)| (*number, *len)).collect();
        for (expected, (number, _)) in (0..).zip(&found) {
            if *number != expected {
                return Err(StorageError::Lost {
                    path: piece_key(path, expected),
                    detail: "the piece is missing, though later ones are there",
                });
            }
        }
        assert!(
            (0..).zip(&found).all(|(expected, (number, _))| *number == expected),
            "readable pieces are consecutive"
        );
        Ok(found)
    }
}

/// Fails if a growing file is being written, or was left by a writer that died.
pub(crate) async fn check_finished(cluster: &Cluster) -> Result<()> {
    let mut files: BTreeMap<String, Pieces> = BTreeMap::new();
    for directory in DIRECTORIES {
        for (key, len) in cluster.files(directory).await? {
            if let Some((path, number, open)) = parse_piece(&key) {
                files.entry(path.to_owned()).or_default().add(number, open, len);
            }
        }
    }
    // Other errors of a file show when it is read.
    let unfinished = |(path, pieces): (&String, &Pieces)| Some(open_key(path, pieces.unfinished(u32::MAX)?));
    match files.iter().filter(|(_, pieces)| pieces.is_file()).find_map(unfinished) {
        None => Ok(()),
        Some(key) => Err(unfinished_piece(key)),
    }
}

fn unfinished_piece(key: String) -> StorageError {
    StorageError::Io {
        path: key,
        operation: "open",
        message: "the piece was not finished and not sealed".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_have_one_spelling() {
        assert_eq!(parse_piece("log/1/@0000000a"), Some(("log/1", 10, false)));
        assert_eq!(parse_piece("log/1/@0000000a.open"), Some(("log/1", 10, true)));
        for other in [
            "log/1/@0000000A",
            "log/1/@a",
            "log/1/0000000a",
            "@0000000a",
            "log/1/@0000000a.opened",
        ] {
            assert_eq!(parse_piece(other), None, "{other}");
        }
    }

    fn pieces(found: &[(u32, bool, u64)]) -> Pieces {
        let mut pieces = Pieces::default();
        found
            .iter()
            .for_each(|(number, open, len)| pieces.add(*number, *open, *len));
        pieces
    }

    #[test]
    fn only_what_is_durable_is_readable() {
        let whole = pieces(&[(0, false, 0), (1, false, 5), (2, false, 7)]);
        assert_eq!(whole.readable("p", None).unwrap(), [(0, 0), (1, 5), (2, 7)]);
        assert_eq!((whole.is_file(), whole.len()), (true, 12));
        let open = pieces(&[(0, false, 0), (1, false, 5), (2, true, 7)]);
        assert_eq!(open.len(), 12);
        assert_eq!(open.readable("p", Some(2)).unwrap(), [(0, 0), (1, 5)]);
        for end in [None, Some(3)] {
            let error = open.readable("p", end).unwrap_err().to_string();
            assert!(error.contains("@00000002.open"), "{error}");
        }
        // Copied, and the original not deleted yet.
        let both = pieces(&[(0, false, 0), (1, false, 5), (1, true, 5)]);
        assert_eq!((both.readable("p", None).unwrap().len(), both.len()), (2, 5));
        // Begun by a process that then saw that it had been replaced.
        let void = pieces(&[(0, false, 0), (1, false, 5), (2, true, 0)]);
        assert_eq!(void.readable("p", None).unwrap(), [(0, 0), (1, 5)]);
        let hole = pieces(&[(0, false, 0), (2, false, 7)]);
        assert!(hole.readable("p", None).unwrap_err().to_string().contains("@00000001"));
        assert!(!pieces(&[(1, true, 3)]).is_file());
    }
}
