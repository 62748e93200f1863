//! The progress file, from which the same command continues after an interruption.
//!
//! A copy that has ended stays in it until the comparison behind it has found no difference. The next run without a
//! comparison then copies all again: nothing else is left for it to do, and rows may have come meanwhile.
//!
//! A table of the source may have been dropped and made again since its ranges were planned. Its regions are all newer
//! then, and nothing of it counts as copied. The same holds if all regions were split or merged meanwhile, which cannot be
//! told apart: the copy of such a table begins again, which does no harm.
//!
//! It is replaced atomically, as the checkpoints of imports are. `docs/migrating-from-hbase.md` lists its fields. It
//! names both clusters by their ids, so work for other clusters is never taken for done.

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::path::PathBuf;
use stele_cli::checkpoint;
use stele_cli::file_lock::FileLock;

/// First field of the file; the number changes with the meaning of the fields.
const FORMAT: &str = "stele migrate progress 1";

/// The part of it that stays.
const KIND: &str = "stele migrate progress";

/// The file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: String,
    /// XXH3 of the text of `progress`.
    checksum: String,
    progress: Box<RawValue>,
}

/// Identifies the work: progress of other work must not be continued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Id of the source's cluster.
    pub source: String,
    /// Id of the target's.
    pub target: String,
    /// Hash of the options that affect the copied cells.
    pub options: String,
}

/// How far the copy is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// The work.
    pub work: Identity,
    /// Ranges of each table, in their order.
    pub tables: BTreeMap<String, Vec<Range>>,
    /// For each table the highest id of the source's regions when its ranges were planned. Absent in files of earlier
    /// versions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub region_ids: BTreeMap<String, u64>,
}

/// A range and its position.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// First row.
    #[serde(with = "base64_bytes")]
    pub start: Bytes,
    /// Row behind the last one; empty for the end of the table.
    #[serde(with = "base64_bytes")]
    pub end: Bytes,
    /// The last row of which all cells are in the target, as are those of all rows before it.
    #[serde(with = "base64_option")]
    pub through: Option<Bytes>,
    /// Whether all rows are copied.
    pub done: bool,
    /// Rows copied.
    pub rows: u64,
    /// Cells copied.
    pub cells: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
}

/// Sums over ranges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// All ranges.
    pub ranges: u64,
    /// Ranges whose rows are all copied.
    pub done: u64,
    /// Rows copied.
    pub rows: u64,
    /// Cells copied.
    pub cells: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The progress, and the file that records it.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    /// The progress now.
    pub progress: Progress,
    /// Another process would replace the progress of this one by an older one.
    _lock: FileLock,
}

impl Journal {
    /// Continues the progress in the file, if there is one and it is not to be started over.
    ///
    /// # Errors
    /// A file that is damaged, belongs to other work, or is in use.
    pub fn open(path: PathBuf, work: Identity, restart: bool) -> Result<Journal> {
        let lock = FileLock::of(&path)?;
        if restart {
            checkpoint::start_over(&path, KIND)?;
        }
        let found = checkpoint::load::<File>(&path)?;
        let progress = match found {
            None => Progress {
                work,
                tables: BTreeMap::new(),
                region_ids: BTreeMap::new(),
            },
            Some(file) => {
                let progress = read(&file).with_context(|| format!("{}", path.display()))?;
                if progress.work != work {
                    checkpoint::refuse(&path, "it has other clusters or options")?;
                }
                progress
            }
        };
        Ok(Journal {
            path,
            progress,
            _lock: lock,
        })
    }

    /// Plans the ranges of a table, unless there are some. `region_id` is the highest one of the source's regions.
    pub fn plan(&mut self, table: &str, region_id: Option<u64>, ranges: impl FnOnce() -> Vec<Range>) {
        if self.knows(table) {
            return;
        }
        self.progress.tables.insert(table.to_owned(), ranges());
        if let Some(id) = region_id {
            self.progress.region_ids.insert(table.to_owned(), id);
        }
    }

    /// Whether all regions of the source, of which this is the lowest id, are newer than the progress of a table.
    pub fn is_outdated(&self, table: &str, lowest: Option<u64>) -> bool {
        let planned = self.progress.region_ids.get(table);
        planned.zip(lowest).is_some_and(|(planned, lowest)| lowest > *planned)
    }

    /// Whether all ranges of these tables that were planned are done, and there are some.
    pub fn is_done<'a>(&self, tables: impl IntoIterator<Item = &'a str>) -> bool {
        let totals = self.totals(tables);
        totals.ranges > 0 && totals.done == totals.ranges
    }

    /// Whether a table has ranges.
    pub fn knows(&self, table: &str) -> bool {
        self.progress.tables.contains_key(table)
    }

    /// Forgets the progress of a table, which is of no use any more. Returns whether there was some.
    pub fn forget(&mut self, table: &str) -> bool {
        self.progress.region_ids.remove(table);
        self.progress.tables.remove(table).is_some()
    }

    /// A range of a table, to be changed.
    pub fn range(&mut self, table: &str, at: usize) -> Option<&mut Range> {
        self.progress.tables.get_mut(table)?.get_mut(at)
    }

    /// Sums over these tables.
    pub fn totals<'a>(&self, tables: impl IntoIterator<Item = &'a str>) -> Totals {
        let mut totals = Totals::default();
        let ranges = tables.into_iter().filter_map(|table| self.progress.tables.get(table));
        for range in ranges.flatten() {
            totals.ranges += 1;
            totals.done += u64::from(range.done);
            totals.rows += range.rows;
            totals.cells += range.cells;
            totals.bytes += range.bytes;
        }
        totals
    }

    /// Replaces the file.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn save(&self) -> Result<()> {
        checkpoint::store(&self.path, &written(&self.progress)?)
    }

    /// Forgets finished tables. The file goes with the last one: others may have been begun by an earlier run.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn finish<'a>(&mut self, tables: impl IntoIterator<Item = &'a str>) -> Result<()> {
        for table in tables {
            self.forget(table);
        }
        match self.progress.tables.is_empty() {
            true => checkpoint::remove(&self.path),
            false => self.save(),
        }
    }
}

fn written(progress: &Progress) -> Result<File> {
    let progress = serde_json::value::to_raw_value(progress)?;
    Ok(File {
        format: FORMAT.to_owned(),
        checksum: checksum(&progress),
        progress,
    })
}

fn read(file: &File) -> Result<Progress> {
    if file.format != FORMAT {
        bail!("it has format `{}`, expected `{FORMAT}`", file.format);
    }
    let found = checksum(&file.progress);
    if found != file.checksum {
        bail!(
            "it is damaged: checksum {found}, expected {}; start over with --restart",
            file.checksum
        );
    }
    Ok(serde_json::from_str(file.progress.get())?)
}

fn checksum(progress: &RawValue) -> String {
    format!("{:016x}", xxhash_rust::xxh3::xxh3_64(progress.get().as_bytes()))
}

mod base64_bytes {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use bytes::Bytes;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(bytes: &Bytes, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(bytes))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
        let text = String::deserialize(from)?;
        STANDARD.decode(text).map(Bytes::from).map_err(D::Error::custom)
    }
}

mod base64_option {
    use bytes::Bytes;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Encoded(#[serde(with = "super::base64_bytes")] Bytes);

    pub fn serialize<S: Serializer>(bytes: &Option<Bytes>, to: S) -> Result<S::Ok, S::Error> {
        bytes.clone().map(Encoded).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Bytes>, D::Error> {
        Ok(Option::<Encoded>::deserialize(from)?.map(|encoded| encoded.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn work(source: &str) -> Identity {
        Identity {
            source: source.to_owned(),
            target: "t".to_owned(),
            options: "o".to_owned(),
        }
    }

    fn range() -> Range {
        Range {
            start: Bytes::new(),
            end: "m".into(),
            through: Some(Bytes::from_static(&[0xff, 0])),
            rows: 3,
            ..Range::default()
        }
    }

    /// What version 1 writes; a reader of this format must always read it.
    const GOLDEN: &str = r#"{
  "format": "stele migrate progress 1",
  "checksum": "834005f5a113ab09",
  "progress": {"work":{"source":"s","target":"t","options":"o"},"tables":{"ns:t":[{"start":"","end":"bQ==","through":"/wA=","done":false,"rows":3,"cells":0,"bytes":0}]}}
}
"#;

    #[test]
    fn progress_survives_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let mut journal = Journal::open(path.clone(), work("s"), false).unwrap();
        journal.plan("ns:t", None, || vec![range()]);
        journal.save().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), GOLDEN);
        journal.forget("ns:t");
        journal.plan("ns:t", Some(7), || vec![range()]);
        journal.save().unwrap();
        let in_use = Journal::open(path.clone(), work("s"), false).unwrap_err();
        assert!(in_use.to_string().contains("in use by another process"), "{in_use}");
        let before = journal.progress.clone();
        drop(journal);
        let again = Journal::open(path.clone(), work("s"), false).unwrap();
        assert_eq!(again.progress, before);
        drop(again);
        assert!(Journal::open(path.clone(), work("other"), false).is_err());
        assert!(
            Journal::open(path, work("other"), true)
                .unwrap()
                .progress
                .tables
                .is_empty()
        );
    }

    #[test]
    fn tables_of_an_earlier_run_stay() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let mut journal = Journal::open(path.clone(), work("s"), false).unwrap();
        for table in ["begun", "done"] {
            journal.plan(table, None, || vec![range()]);
        }
        journal.finish(["done"]).unwrap();
        drop(journal);
        let mut journal = Journal::open(path.clone(), work("s"), false).unwrap();
        assert!(journal.knows("begun") && !journal.knows("done"));
        journal.finish(["begun"]).unwrap();
        drop(journal);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_copy_that_ended_and_one_of_another_table_are_known() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(dir.path().join("state"), work("s"), false).unwrap();
        assert!(!journal.is_done(["a", "b"]), "nothing is planned");
        for (table, id) in [("a", Some(7)), ("b", None)] {
            journal.plan(table, id, || vec![range()]);
            assert!(!journal.is_done(["a", "b"]));
        }
        journal.range("a", 0).unwrap().done = true;
        assert!(journal.is_done(["a", "new"]) && !journal.is_done(["a", "b"]));
        for (lowest, is_outdated) in [(Some(6), false), (Some(7), false), (Some(8), true), (None, false)] {
            assert_eq!(journal.is_outdated("a", lowest), is_outdated);
            assert!(!journal.is_outdated("b", lowest), "no id is known");
        }
        journal.forget("a");
        assert!(journal.progress.region_ids.is_empty());
    }

    #[test]
    fn a_file_of_another_kind_is_not_started_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        for content in ["id,name\n1,x\n", "{\"format\":\"other\"}"] {
            fs::write(&path, content).unwrap();
            Journal::open(path.clone(), work("s"), true).unwrap_err();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
    }

    #[test]
    fn a_changed_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        for (from, to) in [
            ("\"rows\":3", "\"rows\":4"),
            ("progress 1", "progress 2"),
            ("bQ==", "b"),
            ("{", ""),
        ] {
            fs::write(&path, GOLDEN.replacen(from, to, 1)).unwrap();
            assert!(Journal::open(path.clone(), work("s"), false).is_err(), "{from}");
        }
    }

    #[test]
    fn sums_are_over_the_chosen_tables() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(dir.path().join("state"), work("s"), false).unwrap();
        journal.plan("a", None, || vec![range(), range()]);
        journal.plan("b", None, || vec![range()]);
        journal.range("a", 1).unwrap().done = true;
        let totals = journal.totals(["a"]);
        assert_eq!((totals.ranges, totals.done, totals.rows), (2, 1, 6));
        assert!(journal.knows("a") && journal.forget("a") && !journal.forget("a"));
    }
}
