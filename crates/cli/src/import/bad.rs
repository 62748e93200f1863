//! The list of bad records: line number, reason and the unchanged record, separated by tabs.
//!
//! Records are found bad ahead of the checkpoint's prefix, and again after a resumption. So they wait here until the
//! prefix passes them. The file then holds exactly the bad records of the prefix, in their order. A resumed import
//! truncates it to the length in the checkpoint. It appends to a list of another name, which has something else so far.

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Digits of a line number.
const LINE_NUMBER_BYTES_MAX: u64 = 20;

/// One bad record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRecord {
    /// Line at which it begins.
    pub line: u64,
    /// Why it is bad.
    pub reason: String,
    /// Its bytes.
    pub raw: Vec<u8>,
}

impl BadRecord {
    /// Appends the line of the list. Line breaks within reason or record become the two characters `\n`.
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.line.to_string().as_bytes());
        for text in [self.reason.as_bytes(), &self.raw] {
            out.push(b'\t');
            for byte in text {
                match byte {
                    b'\n' => out.extend_from_slice(b"\\n"),
                    b'\r' => out.extend_from_slice(b"\\r"),
                    byte => out.push(*byte),
                }
            }
        }
        out.push(b'\n');
    }
}

/// The list and those that wait for it.
#[derive(Debug)]
pub struct BadList {
    path: PathBuf,
    /// Opened at the first bad record, so that a clean import leaves no file.
    file: Option<File>,
    bytes: u64,
    written: u64,
    /// By number of the record. Bounded by the records in flight, and by the limit on bad records.
    waiting: BTreeMap<u64, BadRecord>,
}

impl BadList {
    /// A list that already holds `written` records in `bytes` bytes.
    pub fn new(path: PathBuf, bytes: u64, written: u64) -> Self {
        BadList {
            path,
            file: None,
            bytes,
            written,
            waiting: BTreeMap::new(),
        }
    }

    /// The list of an import that has none yet. An earlier list is replaced at the first bad record; fails for any other file,
    /// which is named by mistake.
    pub fn begin(path: PathBuf) -> Result<Self> {
        let refused = || {
            format!(
                "{} is not a list of bad records: name another file with --bad",
                path.display()
            )
        };
        if !is_list(&path).with_context(refused)? {
            bail!(refused());
        }
        Ok(BadList::new(path, 0, 0))
    }

    /// The list of an import that continues. Fails if the file has less than was written.
    pub fn resume(path: PathBuf, bytes: u64, written: u64) -> Result<Self> {
        let found = length(&path)?;
        if found < bytes {
            bail!(
                "{} has {found} bytes, but the import had listed bad records in {bytes}: put the file back, name another one \
                 with --bad, or start over with --restart",
                path.display()
            );
        }
        Ok(BadList::new(path, bytes, written))
    }

    /// A list behind all that a file has, of an import that has listed `written` records elsewhere.
    pub fn append_to(path: PathBuf, written: u64) -> Result<Self> {
        let bytes = length(&path)?;
        Ok(BadList::new(path, bytes, written))
    }

    /// Where the list is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bad records so far, waiting ones included.
    pub fn count(&self) -> u64 {
        self.written + self.waiting.len() as u64
    }

    /// Bad records in the file, and its length.
    pub fn written(&self) -> (u64, u64) {
        (self.written, self.bytes)
    }

    /// Notes a bad record.
    pub fn note(&mut self, record: u64, bad: BadRecord) {
        self.waiting.insert(record, bad);
    }

    /// Writes and syncs the records before this one. They wait on if that fails, so that no checkpoint passes them.
    pub fn write_before(&mut self, record: u64) -> Result<()> {
        let mut lines = Vec::new();
        let mut count = 0;
        for bad in self.waiting.range(..record).map(|(_, bad)| bad) {
            bad.write(&mut lines);
            count += 1;
        }
        if count == 0 {
            return Ok(());
        }
        if let Err(error) = self.append(&lines) {
            // It may have a part of the lines: opened again, it is cut to those that count.
            self.file = None;
            return Err(error).with_context(|| format!("cannot write {}", self.path.display()));
        }
        self.waiting = self.waiting.split_off(&record);
        self.bytes += lines.len() as u64;
        self.written += count;
        Ok(())
    }

    fn append(&mut self, lines: &[u8]) -> std::io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let mut options = OpenOptions::new();
                let mut file = options.write(true).create(true).truncate(false).open(&self.path)?;
                if file.metadata()?.len() < self.bytes {
                    return Err(std::io::Error::other("it was made shorter since the import began"));
                }
                file.set_len(self.bytes)?;
                file.seek(SeekFrom::End(0))?;
                self.file.insert(file)
            }
        };
        file.write_all(lines)?;
        file.sync_data()
    }
}

/// Whether a file begins as a list does: a number and a tab. One that is empty or missing does, too.
fn is_list(path: &Path) -> std::io::Result<bool> {
    let mut start = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(LINE_NUMBER_BYTES_MAX + 1).read_to_end(&mut start)?,
        Err(error) if error.kind() == ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    let digits = start.iter().take_while(|byte| byte.is_ascii_digit()).count();
    Ok(start.is_empty() || digits > 0 && start.get(digits) == Some(&b'\t'))
}

/// Bytes of a file; none if there is none.
fn length(path: &Path) -> Result<u64> {
    match std::fs::metadata(path) {
        Ok(metadata) => Ok(metadata.len()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bad(line: u64) -> BadRecord {
        BadRecord {
            line,
            reason: format!("reason {line}"),
            raw: format!("a\tb\n{line}").into_bytes(),
        }
    }

    #[test]
    fn another_file_is_not_taken_for_a_list() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("in.csv");
        assert!(BadList::begin(path.clone()).is_ok(), "there is none");
        for (content, is_list) in [
            ("", true),
            ("17\treason\tx\n", true),
            ("id,name\n1,x\n", false),
            ("\tx", false),
            ("12", false),
        ] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(BadList::begin(path.clone()).is_ok(), is_list, "{content:?}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
        }
    }

    #[test]
    fn records_wait_on_when_they_cannot_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("in.bad");
        std::fs::create_dir(&path).unwrap();
        let mut list = BadList::new(path.clone(), 0, 0);
        list.note(3, bad(4));
        list.note(7, bad(8));
        list.write_before(7).unwrap_err();
        assert_eq!((list.count(), list.written()), (2, (0, 0)));
        std::fs::remove_dir(&path).unwrap();
        list.write_before(7).unwrap();
        assert_eq!((list.count(), list.written()), (2, (1, 18)));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "4\treason 4\ta\tb\\n4\n");
    }

    #[test]
    fn the_file_follows_the_prefix() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("in.bad");
        let read = || std::fs::read_to_string(&path).unwrap();
        let mut list = BadList::new(path.clone(), 0, 0);
        list.write_before(100).unwrap();
        assert!(!path.exists());
        list.note(7, bad(8));
        list.note(3, bad(4));
        list.write_before(7).unwrap();
        assert_eq!(read(), "4\treason 4\ta\tb\\n4\n");
        assert_eq!((list.count(), list.written()), (2, (1, 18)));
        list.write_before(u64::MAX).unwrap();
        assert_eq!(read().lines().count(), 2);

        // Resuming from the state in which one was written.
        let mut list = BadList::resume(path.clone(), 18, 1).unwrap();
        list.note(9, bad(10));
        list.write_before(10).unwrap();
        assert_eq!(read(), "4\treason 4\ta\tb\\n4\n10\treason 10\ta\tb\\n10\n");
    }
}
