//! Paths below a destination. Each has one spelling: no capital digits, no signs.
//!
//! An attempt at a backup writes below its own number alone, so no two writers have a path in common.

use stele_tablet::StoredFile;

/// The file that marks a destination.
pub const FORMAT: &str = "FORMAT";
/// Its content.
pub const FORMAT_TEXT: &str = "stele-backups 1\n";
/// The directory of states.
pub const STATES: &str = "state/";
/// The directory of the documents of backups.
pub const DOCUMENTS: &str = "backups/";
/// The directory of copied files.
pub const FILES: &str = "files/";

/// The path of a state.
pub fn state(number: u64) -> String {
    format!("{STATES}state-{number:016x}")
}

/// The number of a state's path.
pub fn parse_state(path: &str) -> Option<u64> {
    let digits = path.strip_prefix(STATES)?.strip_prefix("state-")?;
    let number = u64::from_str_radix(digits, 16).ok()?;
    (state(number) == path).then_some(number)
}

/// The directory of the documents of an attempt.
pub fn documents(attempt: u64) -> String {
    format!("{DOCUMENTS}{attempt:016x}/")
}

/// The attempt of a document's path.
pub fn parse_document(path: &str) -> Option<u64> {
    let (digits, _) = path.strip_prefix(DOCUMENTS)?.split_once('/')?;
    let attempt = u64::from_str_radix(digits, 16).ok()?;
    path.starts_with(&documents(attempt)).then_some(attempt)
}

/// The path of the record that an attempt writes.
pub fn record(attempt: u64) -> String {
    format!("{}record", documents(attempt))
}

/// The path of a list of files.
pub fn list(attempt: u64, number: u32) -> String {
    format!("{}files-{number:08x}", documents(attempt))
}

/// The number of a list's path.
pub fn parse_list(attempt: u64, path: &str) -> Option<u32> {
    let digits = path.strip_prefix(&documents(attempt))?.strip_prefix("files-")?;
    let number = u32::from_str_radix(digits, 16).ok()?;
    (list(attempt, number) == path).then_some(number)
}

/// The path of a part of a table.
pub fn part(attempt: u64, table: u32, part: u32) -> String {
    format!("{}table-{table:08x}-{part:08x}", documents(attempt))
}

/// The directory of the files that an attempt copied.
pub fn files_of(attempt: u64) -> String {
    format!("{FILES}{attempt:016x}/")
}

/// The path of a file that an attempt copied.
pub fn file(attempt: u64, file: StoredFile) -> String {
    let path = file.path();
    let name = path.rsplit('/').next().unwrap_or_default();
    format!("{}{name}", files_of(attempt))
}

/// The attempt and the file of such a path.
pub fn parse_file(path: &str) -> Option<(u64, StoredFile)> {
    let (attempt, name) = path.strip_prefix(FILES)?.split_once('/')?;
    let attempt = u64::from_str_radix(attempt, 16).ok()?;
    let stored = StoredFile::parse_path(&format!("sst/{name}"))?;
    (file(attempt, stored) == path).then_some((attempt, stored))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_types::FileId;

    #[test]
    fn paths_have_one_spelling() {
        let sstable = file(0xab, StoredFile::Sstable(FileId(0xcd)));
        assert_eq!(sstable, "files/00000000000000ab/00000000000000cd.sst");
        assert_eq!(parse_file(&sstable), Some((0xab, StoredFile::Sstable(FileId(0xcd)))));
        let values = file(1, StoredFile::Values(FileId(2)));
        assert_eq!(parse_file(&values), Some((1, StoredFile::Values(FileId(2)))));
        assert_eq!(parse_state(&state(0xfe)), Some(0xfe));
        assert_eq!(parse_list(9, &list(9, 0xe)), Some(0xe));
        assert_eq!(parse_document(&record(0xab)), Some(0xab));
        assert_eq!(parse_document(&record(0xab).replace("ab", "AB")), None);
        for other in [
            sstable.replace("ab", "AB"),
            sstable.replace("00ab", "0ab"),
            format!("{sstable}x"),
        ] {
            assert_eq!(parse_file(&other), None, "{other}");
        }
        assert_eq!(parse_state(&state(0xfe).replace("fe", "FE")), None);
        assert_eq!(parse_list(8, &list(9, 0xe)), None);
    }
}
