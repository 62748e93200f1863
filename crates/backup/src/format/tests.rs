use super::*;
use stele_types::ErrorKind;

fn state() -> State {
    State {
        number: 7,
        backups: vec![
            Entry {
                id: 0xabcd,
                name: "nightly-1".to_owned(),
                root: vec![9; 16],
                begun_micros: 1_600_000_000_000_000,
                completed_micros: 1_600_000_001_000_000,
                since: 3,
                tables: 2,
                files: 5,
                bytes: 1 << 30,
                copied_bytes: 1 << 20,
                attempts: vec![0x1234_5678],
            },
            Entry {
                id: 1,
                name: "nightly-2".to_owned(),
                root: vec![9; 16],
                begun_micros: 1_600_000_002_000_000,
                since: 7,
                attempts: vec![8, 0x1_0000_0000],
                ..Entry::default()
            },
        ],
        deleted: vec![Deleted { id: 5, since: 6 }],
    }
}

fn record() -> Record {
    Record {
        id: 0xabcd,
        name: "nightly-1".to_owned(),
        root: vec![9; 16],
        tables: vec![TableOf {
            table: b"a table record".to_vec(),
            created_micros: 1_600_000_000_000_001,
            completed_micros: 1_600_000_000_000_002,
            parts: 1,
            tablets: 3,
            bytes: 4,
            sha256: vec![0xab; 32],
            rows: 5,
            cells: 6,
        }],
        lists: 2,
        created_by: "stele 0.1.0".to_owned(),
        attempt: 0x1234_5678,
        of_some: false,
    }
}

/// As programs wrote it that knew no attempts.
fn without_attempts(mut state: State) -> State {
    state.backups.iter_mut().for_each(|entry| entry.attempts.clear());
    state
}

fn list() -> FileList {
    let file = |file, kind| ListedFile {
        file,
        kind,
        len: 4096,
        crc: 0x0102_0304,
        tail_crc: 0x0506_0708,
        copied_by: 0xabcd,
        ends: 0,
    };
    FileList {
        attempt: 0xabcd,
        number: 1,
        files: vec![file(3 << 32 | 8, 0), file(3 << 32 | 9, 1)],
    }
}

/// Each document is as an earlier version of the program wrote it.
#[allow(clippy::disallowed_methods, reason = "writes the golden files on request")]
fn check<D: Document + PartialEq + std::fmt::Debug>(document: &D, golden: &[u8], name: &str) {
    let encoded = document.encode_file(name).unwrap();
    if std::env::var_os("WRITE_GOLDEN").is_some() {
        let path = format!("{}/testdata/{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::write(path, &encoded).unwrap();
        return;
    }
    assert!(encoded == golden, "{name}: the bytes have changed");
    check_read(document, golden, name);
}

/// It is read, and damage of it is found.
fn check_read<D: Document + PartialEq + std::fmt::Debug>(document: &D, golden: &[u8], name: &str) {
    assert_eq!(&D::decode_file(name, golden).unwrap(), document);
    for at in 0..golden.len() {
        let mut damaged = golden.to_vec();
        damaged[at] ^= 1;
        let error = D::decode_file(name, &damaged).expect_err("a changed byte is found");
        let is_version = (8..12).contains(&at);
        assert!(
            is_version || error.kind() == ErrorKind::Corruption,
            "byte {at}: {error}"
        );
        assert!(D::decode_file(name, &golden[..at]).is_err());
    }
    let shown = inspect(name, golden).expect("the magic is known").unwrap();
    assert!(shown.contains("abcd") || shown.contains("43981"), "{shown}");
}

#[test]
fn documents_are_written_and_read_as_ever() {
    check(&state(), include_bytes!("../../testdata/v2.state"), "v2.state");
    let first = without_attempts(state());
    check_read(&first, include_bytes!("../../testdata/v1.state"), "v1.state");
    assert_eq!(first.backups[0].all_attempts(), [0xabcd]);
    assert_eq!(first.backups[0].attempt(), 0xabcd);
    let without_digest = TableOf {
        sha256: Vec::new(),
        rows: 0,
        cells: 0,
        ..record().tables[0].clone()
    };
    let first = Record {
        attempt: 0,
        tables: vec![without_digest],
        ..record()
    };
    assert_eq!(first.attempt(), 0xabcd);
    check(&first, include_bytes!("../../testdata/v1.record"), "v1.record");
    check(
        &record(),
        include_bytes!("../../testdata/v1.record-of-an-attempt"),
        "v1.record-of-an-attempt",
    );
    let of_some = Record {
        of_some: true,
        ..record()
    };
    check(
        &of_some,
        include_bytes!("../../testdata/v1.record-of-some"),
        "v1.record-of-some",
    );
    check(&list(), include_bytes!("../../testdata/v1.list"), "v1.list");
    let mut with_ends = list();
    with_ends.files.iter_mut().for_each(|file| {
        (file.tail_crc, file.ends) = (0, 0x0102_0304_0506_0708);
    });
    check(
        &with_ends,
        include_bytes!("../../testdata/v1.list-with-ends"),
        "v1.list-with-ends",
    );
    assert!(inspect("x", b"STELEMANxxxxxxxx").is_none());
    assert!(inspect("x", b"short").is_none());
}

#[test]
fn kinds_are_not_mixed_up() {
    let encoded = state().encode_file("s").unwrap();
    assert!(Record::decode_file("s", &encoded).is_err());
    assert_eq!(list().files[1].stored(), Some(StoredFile::Values(FileId(3 << 32 | 9))));
    let unknown = ListedFile {
        kind: 2,
        ..list().files[0]
    };
    assert_eq!(unknown.stored(), None);
}
