//! Paths below a destination. Each has one spelling: no capital digits, no signs.

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

/// The directory of the documents of a backup.
pub fn documents(backup: u64) -> String {
    format!("{DOCUMENTS}{backup:016x}/")
}

/// The backup of a document's path.
pub fn parse_document(path: &str) -> Option<u64> {
    let (digits, _) = path.strip_prefix(DOCUMENTS)?.split_once('/')?;
    let backup = u64::from_str_radix(digits, 16).ok()?;
    path.starts_with(&documents(backup)).then_some(backup)
}

/// The path of the record of a backup.
pub fn record(backup: u64) -> String {
    format!("{}record", documents(backup))
}

/// The path of a list of files.
pub fn list(backup: u64, number: u32) -> String {
    format!("{}files-{number:08x}", documents(backup))
}

/// The number of a list's path.
pub fn parse_list(backup: u64, path: &str) -> Option<u32> {
    let digits = path.strip_prefix(&documents(backup))?.strip_prefix("files-")?;
    let number = u32::from_str_radix(digits, 16).ok()?;
    (list(backup, number) == path).then_some(number)
}

/// The path of a part of a table.
pub fn part(backup: u64, table: u32, part: u32) -> String {
    format!("{}table-{table:08x}-{part:08x}", documents(backup))
}

/// The path of a file that a backup copied.
pub fn file(backup: u64, file: StoredFile) -> String {
    let path = file.path();
    let name = path.rsplit('/').next().unwrap_or_default();
    format!("{FILES}{backup:016x}/{name}")
}

/// The backup and the file of such a path.
pub fn parse_file(path: &str) -> Option<(u64, StoredFile)> {
    let (backup, name) = path.strip_prefix(FILES)?.split_once('/')?;
    let backup = u64::from_str_radix(backup, 16).ok()?;
    let stored = StoredFile::parse_path(&format!("sst/{name}"))?;
    (file(backup, stored) == path).then_some((backup, stored))
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
