//! Files of a run that cannot be opened leave a gap.
//!
//! The tests cover rows between the neighbours of such files, and drops of rows and splits there.

mod kinds;

use super::*;
use stele_sstable::{BloomMemory, Sstable};

/// Makes one run of all files of the tablet, which have followed each other.
async fn make_one_run(storage: &Arc<dyn Storage>) {
    let (mut log, mut manifest) = ManifestLog::open(storage.clone(), TabletId(1)).await.unwrap();
    manifest.groups[0].files.iter_mut().for_each(|file| file.run = 9);
    log.commit(&manifest).await.unwrap();
}

/// A tablet of one run: four files, each of which has the rows `a` to `c` of its number.
async fn fill_run(storage: &Arc<dyn Storage>) {
    let tablet = fresh(storage).await;
    for row in 1..5u64 {
        for part in ["a", "b", "c"] {
            write_row(&tablet, Bytes::from(format!("{row}{part}")), vec![put(1, "v")]);
        }
        tablet.flush().await.unwrap();
    }
    make_one_run(storage).await;
}

/// In a run the neighbours tell where the damaged file's keys end.
#[tokio::test]
async fn a_damaged_file_of_a_run_fails_the_gap_between_its_neighbours() {
    for damaged in [&[2u64][..], &[1], &[4], &[2, 3], &[1, 2, 3, 4]] {
        let storage: Arc<dyn Storage> = MemoryStorage::new();
        fill_run(&storage).await;
        for &file in damaged {
            flip(&storage, &FileRef::path(FileId::new(1, file as u32)), -1).await;
        }
        let tablet = open(&storage, 2).await;
        for row in 1..5u64 {
            // Those next to the gap as well: no row goes on in the next file.
            for part in ["a", "b", "c"] {
                let outcome = read_row(&tablet, &format!("{row}{part}")).await.map_err(|e| e.kind());
                let expected = match damaged.contains(&row) {
                    true => Err(ErrorKind::Corruption),
                    false => Ok(1),
                };
                assert_eq!(outcome, expected, "row {row}{part} with {damaged:?} damaged");
            }
        }
    }
}

/// Splits come between files where they can.
#[tokio::test]
async fn a_split_and_a_drop_may_begin_with_the_file_behind_a_damaged_one() {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    fill_run(&storage).await;
    let id = |file: u32| FileId::new(1, file);
    flip(&storage, &FileRef::path(id(2)), -1).await;
    let tablet = open(&storage, 2).await;
    let row = Bytes::from_static(b"3a");
    let (left, right) = tablet.divide(&row, TabletId(2), TabletId(3)).await.unwrap();
    let files = |half: &Manifest| half.all_files().map(FileRef::id).collect::<Vec<_>>();
    assert_eq!((files(&left), files(&right)), (vec![id(1), id(2)], vec![id(3), id(4)]));
    drop_range(&tablet, "3a", "5").await.unwrap();
    assert_eq!(files_of(&tablet).await, [id(1), id(2)]);
}

async fn drop_range(tablet: &Tablet, start: &'static str, end: &'static str) -> Result<(), TabletError> {
    let range = RowRange {
        start: Bytes::from(start),
        end: Some(Bytes::from(end)),
    };
    let stopped = tablet.stop_compactions().await;
    tablet.drop_rows(&range, &stopped).await
}

/// The first of several stands for all, which is nothing to be written down: the others would have no rows when the outage is
/// over.
#[tokio::test]
async fn a_drop_of_other_rows_leaves_files_that_cannot_be_opened_as_they_are() {
    for unread in [&[2u32, 3][..], &[3, 4], &[2, 3, 4]] {
        let memory = MemoryStorage::new();
        let storage: Arc<dyn Storage> = memory.clone();
        fill_run(&storage).await;
        let path = |file: u32| FileRef::path(FileId::new(1, file));
        for &file in unread {
            let len = storage.read_all(&path(file)).await.unwrap().len() as u64;
            memory.make_unreadable(&path(file), len - 1..len);
        }
        let tablet = open(&storage, 2).await;
        drop_range(&tablet, "1a", "1b").await.unwrap();
        // Nobody knows the effect of a drop on rows between their neighbours.
        let error = drop_range(&tablet, "3a", "3b").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");

        for &file in unread {
            memory.make_readable(&path(file));
            let file = StoredFile::Sstable(FileId::new(1, file));
            assert!(tablet.context.files.open_again(file).await);
        }
        assert!(tablet.hold_opened().await.unwrap());
        for (row, cells) in [("1a", 0), ("1b", 1), ("2b", 1), ("3b", 1), ("4b", 1)] {
            let found = read_row(&tablet, row).await.unwrap();
            assert_eq!(found, cells, "row {row} after {unread:?} were read again");
        }
    }
}

/// They have no other rows, so none of them may come back with them.
#[tokio::test]
async fn a_drop_of_all_rows_that_they_may_have_takes_files_along_that_cannot_be_opened() {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    fill_run(&storage).await;
    for file in [2, 3] {
        flip(&storage, &FileRef::path(FileId::new(1, file)), -1).await;
    }
    let tablet = open(&storage, 2).await;
    drop_range(&tablet, "1b", "5").await.unwrap();
    assert_eq!(files_of(&tablet).await, [FileId::new(1, 1)]);
}

/// Damages the index of a file, and nothing that is needed to know which keys it has.
async fn damage_index(storage: &Arc<dyn Storage>, id: FileId) {
    let path = FileRef::path(id);
    let len = storage.read_all(&path).await.unwrap().len() as isize;
    let mut found = false;
    for at in 1..=len {
        flip(storage, &path, -at).await;
        let file = storage.open(&path).await;
        let opened =
            Sstable::open_or_damaged(file, &path, id, Arc::new(Cache::new(0)), &BloomMemory::unlimited()).await;
        let is_index = |file: &Arc<Sstable>| {
            let knows_keys = file.properties().largest_key.len() < 1_000;
            file.damage().of_everything().is_some() && knows_keys
        };
        found = opened.is_ok_and(|file| is_index(&file));
        if found {
            break;
        }
        flip(storage, &path, -at).await;
    }
    assert!(found, "the file has no index");
}

/// For a file without its index the end of its keys is known: it does not stand for the keys behind that.
#[tokio::test]
async fn what_lies_behind_a_damaged_index_is_of_the_next_damaged_file() {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    fill_run(&storage).await;
    let id = |file: u32| FileId::new(1, file);
    damage_index(&storage, id(1)).await;
    flip(&storage, &FileRef::path(id(2)), -1).await;
    let tablet = open(&storage, 2).await;
    for (row, expected) in [("1b", None), ("2b", None), ("3b", Some(1)), ("4b", Some(1))] {
        let found = read_row(&tablet, row).await.map_err(|e| e.kind());
        assert_eq!(found, expected.ok_or(ErrorKind::Corruption), "row {row}");
    }
    // Both are of the left half, with any content of the second.
    let row = Bytes::from_static(b"4a");
    let (left, right) = tablet.divide(&row, TabletId(2), TabletId(3)).await.unwrap();
    let files = |half: &Manifest| half.all_files().map(FileRef::id).collect::<Vec<_>>();
    assert_eq!((files(&left), files(&right)), (vec![id(1), id(2), id(3)], vec![id(4)]));
}

/// It goes to one of the halves as it is: nobody has to know how large a part of it would be.
#[tokio::test]
async fn a_split_beside_a_damaged_index_needs_nothing_of_it() {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    fill_run(&storage).await;
    let id = |file: u32| FileId::new(1, file);
    damage_index(&storage, id(3)).await;
    let tablet = open(&storage, 2).await;
    for (row, of_left) in [("2a", 1), ("3a", 2), ("4a", 3)] {
        let row = Bytes::from(row);
        let (left, right) = tablet.divide(&row, TabletId(2), TabletId(3)).await.unwrap();
        let files = left.all_files().chain(right.all_files()).map(FileRef::id);
        assert_eq!(files.collect::<Vec<_>>(), [id(1), id(2), id(3), id(4)]);
        assert_eq!(left.all_files().count(), of_left, "before {row:?}");
    }
    let within = tablet.divide(&Bytes::from("3b"), TabletId(2), TabletId(3)).await;
    assert_eq!(within.unwrap_err().kind(), ErrorKind::Corruption);
}

/// One whose keys are known, between others that stand for all there might be.
#[tokio::test]
async fn what_lies_around_a_damaged_index_is_of_the_damaged_files_there() {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    fill_run(&storage).await;
    damage_index(&storage, FileId::new(1, 2)).await;
    for file in [1, 3] {
        flip(&storage, &FileRef::path(FileId::new(1, file)), -1).await;
    }
    let tablet = open(&storage, 2).await;
    for (row, expected) in [("1b", None), ("2b", None), ("3b", None), ("4b", Some(1))] {
        let found = read_row(&tablet, row).await.map_err(|e| e.kind());
        assert_eq!(found, expected.ok_or(ErrorKind::Corruption), "row {row}");
    }
}

/// A run of which a drop has taken the end of the second file and the beginning of the third: rows `2c` and `3a`.
async fn fill_cut_run(storage: &Arc<dyn Storage>) {
    fill_run(storage).await;
    let tablet = open(storage, 2).await;
    drop_range(&tablet, "2c", "3b").await.unwrap();
    tablet.close();
    let (_, manifest) = ManifestLog::open(storage.clone(), TabletId(1)).await.unwrap();
    let bounds = manifest
        .all_files()
        .map(|file| (file.lower.is_some(), file.upper.is_some()));
    let expected = [(false, false), (false, true), (true, false), (false, false)];
    assert_eq!(bounds.collect::<Vec<_>>(), expected);
}

/// Whichever cannot be opened: none of their rows is missing in silence, and all others are there.
#[tokio::test]
async fn damaged_files_of_a_run_that_is_cut_fail_what_they_may_have() {
    for damaged in 1..16u32 {
        let storage: Arc<dyn Storage> = MemoryStorage::new();
        fill_cut_run(&storage).await;
        let is_damaged = |file: u32| damaged & (1 << (file - 1)) != 0;
        for file in (1..5).filter(|file| is_damaged(*file)) {
            flip(&storage, &FileRef::path(FileId::new(1, file)), -1).await;
        }
        let tablet = open(&storage, 3).await;
        for file in 1..5 {
            let outcome = read_row(&tablet, &format!("{file}b")).await.map_err(|e| e.kind());
            let expected = match is_damaged(file) {
                true => Err(ErrorKind::Corruption),
                false => Ok(1),
            };
            assert_eq!(outcome, expected, "row {file}b with {damaged:#06b} damaged");
        }
        for row in ["2c", "3a"] {
            let outcome = read_row(&tablet, row).await.map_err(|e| e.kind());
            assert_eq!(outcome, Ok(0), "row {row} with {damaged:#06b} damaged");
        }
    }
}

/// The one before it has an end of its own, so it does not stand for the keys behind that.
#[tokio::test]
async fn a_drop_within_a_file_that_cannot_be_opened_is_refused_whatever_is_before_it() {
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    fill_cut_run(&storage).await;
    let id = |file: u32| FileId::new(1, file);
    for file in [2, 3] {
        flip(&storage, &FileRef::path(id(file)), -1).await;
    }
    let tablet = open(&storage, 3).await;
    let error = drop_range(&tablet, "3c", "5").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    assert_eq!(files_of(&tablet).await, [id(1), id(2), id(3), id(4)]);
    drop_range(&tablet, "3b", "5").await.unwrap();
    assert_eq!(files_of(&tablet).await, [id(1), id(2)]);
}

/// The bound in memory for the end of a run of them is longer than any key, and in no manifest: nothing is rewritten
/// for it.
#[tokio::test]
async fn files_that_cannot_be_opened_take_no_more_of_the_manifest() {
    const FILES: u32 = 140;
    let storage: Arc<dyn Storage> = MemoryStorage::new();
    let tablet = fresh(&storage).await;
    for row in 0..FILES {
        write_row(&tablet, Bytes::from(format!("{row:03}")), vec![put(1, "v")]);
        tablet.flush().await.unwrap();
    }
    make_one_run(&storage).await;
    for file in 1..=FILES {
        flip(&storage, &FileRef::path(FileId::new(1, file)), -1).await;
    }
    let tablet = open(&storage, 2).await;
    assert_eq!(tablet.state().groups[0].files.len(), FILES as usize);
    assert!(!tablet.state().is_cut_up());
}
