//! Manifests, parts of snapshots and mutation batches of all versions, byte for byte. A change of these bytes is a new version.

use crate::TokenRecord;
use crate::manifest::{self, FileRef, GroupFiles, Manifest};
use crate::snapshot::SnapshotPart;
use crate::tokens::StoredTokens;
use crate::{Batch, BatchBuilder};
use bytes::Bytes;
use stele_types::{Cell, CellKind, FamilyId, FileId, Labels, Mutation, RequestToken, RowMutation, Timestamp};

const MANIFEST: &[u8] = include_bytes!("../../testdata/v1.manifest");
const SNAPSHOT: &[u8] = include_bytes!("../../testdata/v1.snapshot");
const BATCH: &[u8] = include_bytes!("../../testdata/v2.batch");
const MANIFEST_WITH_TOKENS: &[u8] = include_bytes!("../../testdata/v3.manifest");
const BATCH_WITH_TOKEN: &[u8] = include_bytes!("../../testdata/v3.batch");

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
        request_tokens: None,
    }
}

/// A manifest with the tokens of two requests.
fn manifest_with_tokens() -> Manifest {
    let mut records = Vec::new();
    record().encode(&mut records);
    let nonce = RequestToken::Nonce { group: 1, nonce: 2 };
    TokenRecord::new(&nonce, b"row", 1_600_000_000_000_000, false, &[]).encode(&mut records);
    Manifest {
        request_tokens: Some(StoredTokens {
            records: records.into(),
            forgotten_micros: 1_500_000_000_000_000,
        }),
        ..manifest()
    }
}

fn record() -> TokenRecord {
    let token = RequestToken::Dated {
        token: Bytes::from_static(b"token-01"),
        start_micros: 1_600_000_000_000_000,
    };
    let cell = Cell {
        family: FamilyId(300),
        kind: CellKind::Put,
        qualifier: Bytes::from_static(b"q"),
        timestamp: Timestamp(-7),
        value: Bytes::copy_from_slice(&5i64.to_be_bytes()),
        labels: Labels::none(),
    };
    TokenRecord::new(&token, b"row", 1_600_000_000_000_001, true, &[cell])
}

fn batch() -> Batch {
    builder().finish()
}

/// One entry of every kind.
fn builder() -> BatchBuilder {
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
    builder
}

#[test]
fn manifests_are_written_and_read_as_ever() {
    assert!(
        manifest().encode_file() == MANIFEST,
        "the bytes of a manifest have changed"
    );
    assert_eq!(Manifest::decode_file("v1.manifest", MANIFEST).unwrap(), manifest());
    assert!(
        manifest_with_tokens().encode_file() == MANIFEST_WITH_TOKENS,
        "the bytes of a manifest with tokens have changed"
    );
    let decoded = Manifest::decode_file("v3.manifest", MANIFEST_WITH_TOKENS).unwrap();
    assert_eq!(decoded, manifest_with_tokens());
    let text = manifest::inspect("v3.manifest", MANIFEST_WITH_TOKENS).unwrap();
    assert!(text.contains("request tokens: 2"), "{text}");
}

#[test]
fn parts_of_snapshots_are_written_and_read_as_ever() {
    let part = SnapshotPart {
        snapshot: 0x12,
        part: 1,
        tablets: vec![manifest()],
    };
    assert!(
        part.encode_file() == SNAPSHOT,
        "the bytes of a part of a snapshot have changed"
    );
    assert_eq!(SnapshotPart::decode_file("v1.snapshot", SNAPSHOT).unwrap(), part);
}

/// Data that an older program wrote has no runs; a run is bytes that it passes over.
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

/// A batch of a cell that expires by itself, which program versions before it refuse.
#[test]
fn cells_that_expire_are_written_and_read_as_ever() {
    let mut builder = BatchBuilder::default();
    builder.push_row(&RowMutation {
        row: Bytes::from_static(b"row"),
        mutations: vec![Mutation::ExpiringPut {
            family: FamilyId(1),
            qualifier: Bytes::from_static(b"q"),
            timestamp: Timestamp(4),
            stored: stele_types::lifetime::stored(5, b"v"),
        }],
    });
    let batch = builder.finish();
    let expected = b"\x02\x01\x0a\x03row\x01\x01q\x08\x09\0\0\0\0\0\0\0\x05v";
    assert_eq!(batch.to_bytes()[..], expected[..]);
    assert_eq!(Batch::decode(Bytes::from_static(expected)), Some(batch));
    let mut short = expected[..expected.len() - 2].to_vec();
    short[11] = 7;
    assert_eq!(Batch::decode(short.into()), None, "a lifetime has eight bytes");
}

#[test]
fn batches_are_written_and_read_as_ever() {
    assert!(
        batch().to_bytes() == BATCH,
        "the bytes of a mutation batch have changed"
    );
    assert_eq!(Batch::decode(Bytes::from_static(BATCH)), Some(batch()));
    let with_token = builder().finish_with(Some(record()));
    assert!(
        with_token.to_bytes() == BATCH_WITH_TOKEN,
        "the bytes of a mutation batch with a token have changed"
    );
    let decoded = Batch::decode(Bytes::from_static(BATCH_WITH_TOKEN)).unwrap();
    assert_eq!((&decoded, decoded.token()), (&with_token, Some(&record())));
}

/// Behind the entries there is one record, and nothing else.
#[test]
fn a_batch_with_a_cut_or_continued_token_is_refused() {
    for cut in BATCH.len() - 2..BATCH_WITH_TOKEN.len() {
        assert_eq!(
            Batch::decode(Bytes::from_static(&BATCH_WITH_TOKEN[..cut])),
            None,
            "{cut}"
        );
    }
    let more = [BATCH_WITH_TOKEN, &[0]].concat();
    assert_eq!(Batch::decode(more.into()), None);
    let only_token = [&[3, 0], &BATCH_WITH_TOKEN[BATCH.len()..]].concat();
    assert_eq!(Batch::decode(only_token.into()), None, "nothing is changed");
}

/// Version 1 was never released; a version that is not known is refused with any bytes after it.
#[test]
fn batches_of_other_versions_are_refused() {
    for version in (0..=u8::MAX).filter(|version| *version != 2) {
        let mut other = BATCH.to_vec();
        other[0] = version;
        assert_eq!(Batch::decode(other.into()), None, "version {version}");
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
