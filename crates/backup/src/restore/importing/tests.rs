use super::*;
use stele_tablet::manifest::{GroupFiles, ValueLink};

fn file(number: u64, run: u64) -> FileRef {
    FileRef {
        file: number,
        len: 100,
        referenced: 50,
        run,
        ..FileRef::default()
    }
}

#[test]
fn files_runs_and_links_get_new_numbers() {
    let mut with_values = file(3, 9);
    with_values.values = vec![ValueLink {
        file: 7,
        len: 10,
        share: 10,
        bytes: 4,
    }];
    let mut manifest = Manifest {
        groups: vec![GroupFiles {
            group: 0,
            files: vec![file(1, 8), file(2, 8), with_values, file(1, 9), file(4, 0)],
        }],
        ..Manifest::default()
    };
    let mut files = BTreeMap::new();
    for number in 1..=4 {
        let restored = Restored {
            id: FileId(10 + number),
            len: 200,
        };
        files.insert(StoredFile::Sstable(FileId(number)), restored);
    }
    assert!(
        renumber(&mut manifest.clone(), 5, &files).is_err(),
        "the value file is missing"
    );
    let values = Restored {
        id: FileId(17),
        len: 10,
    };
    files.insert(StoredFile::Values(FileId(7)), values);
    renumber(&mut manifest, 5, &files).unwrap();
    let found: Vec<_> = manifest.all_files().map(|file| (file.file, file.run)).collect();
    assert_eq!(found, [(11, 11), (12, 11), (13, 13), (11, 13), (14, 0)]);
    assert_eq!(manifest.epoch, 5);
    let all: Vec<&FileRef> = manifest.all_files().collect();
    assert_eq!((all[0].len, all[0].referenced, all[2].values[0].file), (200, 100, 17));
}
