//! Every kind of damage to files of a short run, each by itself.
//!
//! The tests cover reads, and splits of the run.

use super::*;
use stele_types::key;

/// The damage to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Whole,
    /// It has lost its index: where its keys begin and end is known.
    NoIndex,
    /// It has lost its footer, and with that everything.
    NoFooter,
}

const KINDS: [Kind; 3] = [Kind::Whole, Kind::NoIndex, Kind::NoFooter];

/// The first and the last row left of each file after the drop of [`fill_cut_run`].
const LEFT: [(&str, &str); 4] = [("1a", "1c"), ("2a", "2b"), ("3b", "3c"), ("4a", "4c")];

fn path(file: usize) -> String {
    FileRef::path(FileId::new(1, file as u32 + 1))
}

async fn copied(storage: &Arc<dyn Storage>) -> Arc<dyn Storage> {
    let copy: Arc<dyn Storage> = MemoryStorage::new();
    for file in storage.list("").await.unwrap() {
        let content = storage.read_all(&file.path).await.unwrap();
        copy.put_if_absent(&file.path, content).await.unwrap();
    }
    copy
}

/// The same run with every file whole, with every file without its index, and with every file without its footer.
async fn run_of_each_kind() -> [Arc<dyn Storage>; 3] {
    let whole: Arc<dyn Storage> = MemoryStorage::new();
    fill_cut_run(&whole).await;
    let (no_index, no_footer) = (copied(&whole).await, copied(&whole).await);
    for file in 0..LEFT.len() {
        damage_index(&no_index, FileId::new(1, file as u32 + 1)).await;
        flip(&no_footer, &path(file), -1).await;
    }
    [whole, no_index, no_footer]
}

/// Rows of whole files are there, rows of damaged ones fail, and rows that were dropped are not there.
async fn check_reads(tablet: &Arc<Tablet>, kinds: [Kind; 4]) {
    for (file, kind) in kinds.into_iter().enumerate() {
        for part in ["a", "b", "c"] {
            let row = format!("{}{part}", file + 1);
            let expected = match kind {
                _ if row == "2c" || row == "3a" => Ok(0),
                Kind::Whole => Ok(1),
                _ => Err(ErrorKind::Corruption),
            };
            let found = read_row(tablet, &row).await.map_err(|e| e.kind());
            assert_eq!(found, expected, "row {row} with {kinds:?}");
        }
    }
}

/// Halves have the whole content of each file, on the side where it is; or the split is refused.
async fn check_split(tablet: &Tablet, at: &'static str, kinds: [Kind; 4]) -> bool {
    let row = Bytes::from_static(at.as_bytes());
    let (left, right) = match tablet.divide(&row, TabletId(2), TabletId(3)).await {
        Ok(halves) => halves,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
            return false;
        }
    };
    let files = |half: &Manifest| {
        half.all_files()
            .map(|file| FileRef::path(file.id()))
            .collect::<Vec<_>>()
    };
    let count = LEFT.iter().filter(|(first, _)| *first < at).count();
    let expected = |files: std::ops::Range<usize>| files.map(path).collect::<Vec<_>>();
    let all = (files(&left), files(&right));
    assert_eq!(
        all,
        (expected(0..count), expected(count..4)),
        "before {at} with {kinds:?}"
    );
    for (file, (first, last)) in left.all_files().chain(right.all_files()).zip(LEFT) {
        let (first, last) = (key::row_prefix(first.as_bytes()), key::row_prefix(last.as_bytes()));
        let begins = file.lower.as_ref().is_none_or(|lower| lower[..] <= first[..]);
        let ends = file.upper.as_ref().is_none_or(|upper| upper[..] > last[..]);
        assert!(begins && ends, "{file:?} lacks rows before {at} with {kinds:?}");
    }
    true
}

#[tokio::test]
async fn whatever_is_damaged_nothing_else_is_missing_or_fails() {
    let of_kind = run_of_each_kind().await;
    let mut divided = 0;
    for number in 0..81usize {
        let kinds: [Kind; 4] = [1, 3, 9, 27].map(|place| KINDS[number / place % 3]);
        let storage = copied(&of_kind[0]).await;
        for (file, kind) in kinds.into_iter().enumerate() {
            let content = of_kind[kind as usize].read_all(&path(file)).await.unwrap();
            storage.delete(&path(file)).await.unwrap();
            storage.put_if_absent(&path(file), content).await.unwrap();
        }
        let tablet = open(&storage, 3).await;
        check_reads(&tablet, kinds).await;
        for at in ["2a", "2c", "3b", "4a"] {
            divided += usize::from(check_split(&tablet, at, kinds).await);
        }
    }
    // Refused are those before 2a and 4a where the file that begins there has lost its footer: it may have rows before.
    assert_eq!(divided, 4 * 81 - 2 * 27);
}
