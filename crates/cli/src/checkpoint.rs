//! Checkpoints of imports and exports, from which the same command continues after an interruption.
//!
//! A checkpoint is a small JSON file, replaced atomically (temporary file, fsync, rename, fsync of the directory), so a
//! crash leaves the old or the new one. It holds the identity of the work. Different work must not resume from it,
//! because it would skip data silently.
//!
//! Terms: the *prefix* of an import is a number of records from the start of the input. Every write of these is
//! acknowledged, and every bad one is in the list of bad records. Batches finish in any order; the prefix only moves
//! over closed gaps. Records after the prefix are written again on resuming. This changes nothing because keys and
//! timestamps are the same.

use crate::escape;
use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Which file an import reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputIdentity {
    /// Absolute path, escaped if it is not UTF-8.
    pub path: String,
    /// Length in bytes.
    pub bytes: u64,
    /// Modification time in microseconds since 1970.
    pub modified_micros: i64,
}

/// State of an interrupted import.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImportCheckpoint {
    /// Always [`IMPORT_FORMAT`].
    pub format: String,
    /// The input; any change of it makes the checkpoint unusable.
    pub input: InputIdentity,
    /// Hash of every option that affects the written cells.
    pub options: String,
    /// The timestamp the import gives its cells.
    pub timestamp_micros: i64,
    /// The prefix.
    pub records: u64,
    /// Bad records within the prefix.
    pub bad_records: u64,
    /// Length of the list of bad records, up to the prefix.
    pub bad_bytes: u64,
    /// Absolute path of that list, escaped if it is not UTF-8; earlier versions did not note it.
    #[serde(default)]
    pub bad_list: Option<String>,
}

/// State of an interrupted export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportCheckpoint {
    /// Always [`EXPORT_FORMAT`].
    pub format: String,
    /// Hash of every option that affects the output.
    pub options: String,
    /// Key of the last row in the output, base64.
    pub last_row: Option<String>,
    /// Bytes of the output that hold the rows up to it; a multiple of whole compressed members.
    pub output_bytes: u64,
    /// Rows up to it.
    pub rows: u64,
    /// Cells up to it.
    pub cells: u64,
}

/// First field of an import's checkpoint; the number changes with the meaning of the fields.
pub const IMPORT_FORMAT: &str = "stele import checkpoint 1";
/// The part of it that stays.
pub const IMPORT_KIND: &str = "stele import checkpoint";
/// First field of an export's checkpoint.
pub const EXPORT_FORMAT: &str = "stele export checkpoint 1";

impl ImportCheckpoint {
    /// Why this checkpoint cannot continue `now`, if it cannot.
    pub fn mismatch(&self, now: &ImportCheckpoint) -> Option<String> {
        if self.format != now.format {
            return Some(format!("it has format `{}`, expected `{}`", self.format, now.format));
        }
        if self.input != now.input {
            return Some("the input has changed since".to_owned());
        }
        (self.options != now.options).then(|| "it was made with other options".to_owned())
    }
}

impl ExportCheckpoint {
    /// Why this checkpoint cannot continue an export with these options, if it cannot.
    pub fn mismatch(&self, options: &str) -> Option<String> {
        if self.format != EXPORT_FORMAT {
            return Some(format!("it has format `{}`, expected `{EXPORT_FORMAT}`", self.format));
        }
        (self.options != options).then(|| "it was made with other options".to_owned())
    }

    /// The key after which the export goes on.
    pub fn last_row(&self) -> Result<Option<Vec<u8>>, String> {
        self.last_row.as_deref().map(escape::from_b64).transpose()
    }
}

/// Identifies a set of options: equal text, equal hash.
pub fn options_hash(parts: &[String]) -> String {
    // Lengths keep ["ab", "c"] apart from ["a", "bc"].
    let text: String = parts.iter().map(|part| format!("{}:{part};", part.len())).collect();
    format!("{:016x}", xxhash_rust::xxh3::xxh3_64(text.as_bytes()))
}

/// Reads a checkpoint; `None` if there is none.
pub fn load<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    match fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .with_context(|| format!("{} is not a checkpoint (delete it to start over)", path.display())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Replaces the checkpoint.
pub fn store<T: Serialize>(path: &Path, checkpoint: &T) -> Result<()> {
    let write = || -> std::io::Result<()> {
        let temporary = with_suffix(path, ".tmp");
        let mut file = File::create(&temporary)?;
        serde_json::to_writer_pretty(&mut file, checkpoint)?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        sync_directory(path)
    };
    write().with_context(|| format!("cannot write checkpoint {}", path.display()))
}

/// Removes the checkpoint of finished work; none there is fine.
pub fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Removes the checkpoint of work that starts over. A file of another kind than `kind`, the beginning of its format, is
/// left: its name was given by mistake.
pub fn start_over(path: &Path, kind: &str) -> Result<()> {
    #[derive(Deserialize)]
    struct Any {
        format: String,
    }
    match load::<Any>(path)? {
        Some(Any { format }) if !format.starts_with(kind) => {
            bail!("{} is a `{format}`, not a `{kind}`: name another file", path.display())
        }
        _ => remove(path),
    }
}

/// Makes a rename in the directory of `path` durable.
pub fn sync_directory(path: &Path) -> std::io::Result<()> {
    match path.parent() {
        Some(parent) if parent != Path::new("") => File::open(parent)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

/// The path with something appended to its last component.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

/// Moves over finished ranges in order.
#[derive(Debug)]
pub struct Prefix {
    /// Everything before this is finished.
    next: u64,
    /// Finished ranges after a gap, start to end. At most as many as there are batches in flight.
    after_gap: BTreeMap<u64, u64>,
}

impl Prefix {
    /// A prefix that begins with `records` finished ones.
    pub fn new(records: u64) -> Self {
        Prefix {
            next: records,
            after_gap: BTreeMap::new(),
        }
    }

    /// Notes that these records are finished. Ranges must not overlap.
    pub fn complete(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        debug_assert!(range.start >= self.next, "record {} finished twice", range.start);
        self.after_gap.insert(range.start, range.end);
        while let Some(end) = self.after_gap.remove(&self.next) {
            self.next = end;
        }
    }

    /// Number of records finished without a gap.
    pub fn records(&self) -> u64 {
        self.next
    }
}

/// Refuses to go on with a checkpoint of other work.
pub fn refuse(path: &Path, why: &str) -> Result<()> {
    bail!(
        "{} belongs to other work: {why}. Run that command again, or start over with --restart",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn checkpoint() -> ImportCheckpoint {
        ImportCheckpoint {
            format: IMPORT_FORMAT.to_owned(),
            input: InputIdentity {
                path: "/x".to_owned(),
                bytes: 1,
                modified_micros: 2,
            },
            options: options_hash(&["a".to_owned()]),
            timestamp_micros: 3,
            records: 4,
            bad_records: 0,
            bad_bytes: 0,
            bad_list: None,
        }
    }

    #[test]
    fn stores_replace_and_load_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("in.csv.state");
        assert_eq!(load::<ImportCheckpoint>(&path).unwrap(), None);
        for records in [1, 2] {
            store(
                &path,
                &ImportCheckpoint {
                    records,
                    ..checkpoint()
                },
            )
            .unwrap();
        }
        let loaded: ImportCheckpoint = load(&path).unwrap().unwrap();
        assert_eq!(
            loaded,
            ImportCheckpoint {
                records: 2,
                ..checkpoint()
            }
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        remove(&path).unwrap();
        remove(&path).unwrap();
        fs::write(&path, "{}").unwrap();
        assert!(
            load::<ImportCheckpoint>(&path)
                .unwrap_err()
                .to_string()
                .contains("in.csv.state")
        );
    }

    #[test]
    fn other_work_is_told_apart() {
        let now = checkpoint();
        assert_eq!(
            checkpoint().mismatch(&ImportCheckpoint {
                records: 9,
                ..checkpoint()
            }),
            None
        );
        let options = options_hash(&["b".to_owned()]);
        assert!(
            ImportCheckpoint {
                options,
                ..checkpoint()
            }
            .mismatch(&now)
            .is_some()
        );
        let input = InputIdentity {
            bytes: 2,
            ..now.input.clone()
        };
        assert!(ImportCheckpoint { input, ..checkpoint() }.mismatch(&now).is_some());
        let split = |parts: [&str; 2]| options_hash(&parts.map(str::to_owned));
        assert_ne!(split(["ab", "c"]), split(["a", "bc"]));
    }

    proptest! {
        /// The prefix ends at the first unfinished batch, in any order of completion.
        #[test]
        fn prefix_stops_at_the_first_gap(order in Just((0..12u64).collect::<Vec<_>>()).prop_shuffle()) {
            let mut prefix = Prefix::new(100);
            let mut done = [false; 12];
            for batch in order {
                prefix.complete(100 + batch * 10..110 + batch * 10);
                done[batch as usize] = true;
                let whole = done.iter().take_while(|done| **done).count() as u64;
                prop_assert_eq!(prefix.records(), 100 + whole * 10);
            }
        }
    }
}
