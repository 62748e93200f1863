//! Manifests and mutation batches of all versions, byte for byte. A change of these bytes is a new version.

use crate::manifest::{self, FileRef, GroupFiles, Manifest};
use crate::{Batch, BatchBuilder};
use bytes::Bytes;
use stele_types::{FamilyId, FileId, Mutation, RowMutation, SeqNo, Timestamp};

const MANIFEST: &[u8] = include_bytes!("../../testdata/v1.manifest");
const BATCH_1: &[u8] = include_bytes!("../../testdata/v1.batch");
const BATCH_2: &[u8] = include_bytes!("../../testdata/v2.batch");

fn manifest() -> Manifest {
    let whole = FileRef {
        file: FileId::new(3, 7).0,
        len: 4096,
        lower: None,
        upper: None,
        cells: 100,
        deletes: 5,
        referenced: 4096,
        run: 0,
        values: Vec::new(),
    };
    let cut = FileRef {
        file: FileId::new(2, 1).0,
        lower: Some(Bytes::from_static(b"b\0\x01")),
        upper: Some(Bytes::from_static(b"m\0\x01")),
        referenced: 1000,
        ..whole.clone()
    };
    Manifest {
        tablet: 0x11,
        table: 0x10,
        epoch: 3,
        start: Bytes::from_static(b"b"),
        end: Some(Bytes::from_static(b"m")),
        flushed_through: 3 << 40 | 99,
        groups: vec![GroupFiles {
            group: 0,
            files: vec![cut, whole],
        }],
        written_micros: 1_600_000_000_000_000,
    }
}

/// One entry of every kind.
fn batch() -> Batch {
    let (family, qualifier, timestamp) = (FamilyId(300), Bytes::from_static(b"q\0"), Timestamp(-7));
    let mutations = vec![
        Mutation::Put {
            family,
            qualifier: qualifier.clone(),
            timestamp,
            value: Bytes::from_static(b"value"),
        },
        Mutation::Merge {
            family,
            qualifier: qualifier.clone(),
            timestamp,
            operand: Bytes::copy_from_slice(&5i64.to_be_bytes()),
        },
        Mutation::DeleteRow { up_to: Timestamp::MAX },
        Mutation::DeleteFamily {
            family,
            up_to: timestamp,
        },
        Mutation::DeleteFamilyVersion { family, timestamp },
        Mutation::DeleteColumn {
            family,
            qualifier: qualifier.clone(),
            from: Timestamp::MIN,
            to: timestamp,
        },
        Mutation::DeleteColumn {
            family,
            qualifier: qualifier.clone(),
            from: Timestamp(-9),
            to: timestamp,
        },
        Mutation::DeleteVersion {
            family,
            qualifier,
            timestamp,
        },
    ];
    let mut builder = BatchBuilder::default();
    builder.push_row(&RowMutation {
        row: Bytes::from_static(b"row"),
        mutations,
    });
    builder.finish()
}

#[test]
fn manifests_are_written_and_read_as_ever() {
    assert!(
        manifest().encode_file() == MANIFEST,
        "the bytes of a manifest have changed"
    );
    assert_eq!(Manifest::decode_file("v1.manifest", MANIFEST).unwrap(), manifest());
}

/// What an older program wrote has no runs; a run is bytes that it passes over.
#[test]
fn a_run_is_written_only_where_there_is_one() {
    let mut manifest = manifest();
    for file in &mut manifest.groups[0].files {
        file.run = 7;
    }
    let bytes = manifest.encode_file();
    assert_eq!(bytes.len(), MANIFEST.len() + 2 * 2);
    assert_eq!(Manifest::decode_file("runs", &bytes).unwrap(), manifest);
}

#[test]
fn batches_are_written_and_read_as_ever() {
    assert!(
        batch().to_bytes() == BATCH_2,
        "the bytes of a mutation batch have changed"
    );
    assert_eq!(Batch::decode(Bytes::from_static(BATCH_2)), Some(batch()));
}

#[test]
fn batches_of_version_1_are_still_read() {
    let entries = |batch: &Batch, wanted: fn(FamilyId) -> bool| {
        let mut entries = Vec::new();
        batch.entries_of(SeqNo(1000), wanted, |key, value| {
            entries.push((key.to_vec(), value.to_vec()))
        });
        entries
    };
    let old = Batch::decode(Bytes::from_static(BATCH_1)).unwrap();
    assert_eq!(entries(&old, |_| true), entries(&batch(), |_| true));
    assert_eq!(entries(&old, |_| true).len(), 8);
    assert_eq!(entries(&old, |family| family.0 == 300).len(), 7);
    assert_eq!(
        entries(&old, |family| family.0 == 0),
        entries(&batch(), |family| family.0 == 0)
    );
    for cut in 0..BATCH_1.len() {
        assert_eq!(Batch::decode(Bytes::from_static(&BATCH_1[..cut])), None);
    }
}

#[test]
fn a_flipped_bit_of_a_manifest_is_an_error_naming_the_file() {
    for at in 0..MANIFEST.len() {
        let mut rotten = MANIFEST.to_vec();
        rotten[at] ^= 1 << (at % 8);
        let error = manifest::inspect("the-path", &rotten).unwrap_err().to_string();
        assert!(error.starts_with("the-path"), "bit flip at {at}: {error}");
    }
    for len in 0..MANIFEST.len() {
        assert!(
            Manifest::decode_file("the-path", &MANIFEST[..len]).is_err(),
            "cut at {len}"
        );
    }
}
