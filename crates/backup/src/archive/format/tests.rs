use super::*;
use stele_types::ErrorKind;

fn part() -> Part {
    Part {
        number: 0x1234,
        root: vec![9; 16],
        chain: vec![8; 16],
        epoch: 3,
        range_first: 0x1200,
        range_from: 1_600_000_000_000_000,
        from_micros: 1_600_000_010_000_000,
        to_micros: 1_600_000_020_000_000,
        pieces: vec![Piece {
            stream: 1,
            segment: 3 << 32 | 7,
            from: 56,
            len: 4096,
            crc: 0x0102_0304,
        }],
        ends: vec![StreamEnd {
            stream: 1,
            segment: 3 << 32 | 7,
            end: 4152,
        }],
        changes: vec![TableChange {
            at_micros: 1_600_000_015_000_000,
            table: 1 << 20,
            record: b"a table record".to_vec(),
            tablets: vec![2 << 20, (2 << 20) + 1],
        }],
        restated_micros: 1_600_000_010_500_000,
        gap: "the first part".to_owned(),
        first_piece: 2,
        barriers: vec![Barrier {
            at_micros: 1_600_000_016_000_000,
            tablet: 2 << 20,
            cause: 1,
        }],
        change_pieces: Vec::new(),
        lives: Vec::new(),
        is_last: false,
    }
}

/// The same with its changes in pieces.
fn part_with_pieces() -> Part {
    let piece = |len, crc| ChangesPiece { len, crc };
    Part {
        changes: Vec::new(),
        change_pieces: vec![piece(1 << 20, 0x0102_0304), piece(300, 5)],
        ..part()
    }
}

/// Parts of a cluster: of its tables, and the last one of a server.
fn parts_of_cluster() -> [Part; 2] {
    let life = |server, ended_micros, gaps| Life {
        server,
        from_micros: 1_600_000_001_000_000,
        ended_micros,
        gaps,
    };
    let tables = Part {
        lives: vec![life(5, 1_600_000_019_000_000, 2), life(6, 0, 0)],
        ..part()
    };
    let last = Part {
        changes: Vec::new(),
        is_last: true,
        ..part()
    };
    [tables, last]
}

fn changes() -> TableChanges {
    TableChanges {
        changes: part().changes,
    }
}

#[test]
fn pieces_of_changes_are_written_and_read_as_ever() {
    let golden = include_bytes!("../../../testdata/archive-part-v2");
    assert!(
        part_with_pieces().encode_file().unwrap() == golden[..],
        "the bytes of a part have changed"
    );
    assert_eq!(Part::decode_file("p", golden).unwrap(), part_with_pieces());
    let golden = include_bytes!("../../../testdata/archive-changes-v1");
    assert!(
        changes().encode_file().unwrap() == golden[..],
        "the bytes of changes have changed"
    );
    assert_eq!(TableChanges::decode_file("p", golden).unwrap(), changes());
    let text = inspect("p", golden).unwrap().unwrap();
    assert!(text.contains("cannot be decoded") && text.contains("1048576"), "{text}");
    let paths = [part_with_pieces().piece_path(0), part_with_pieces().change_path(0)];
    assert_eq!(
        paths.map(|path| path[25..].to_owned()),
        ["00000003-00000002", "00000003-00000003"].map(|p| p[1..].to_owned())
    );
}

#[test]
fn parts_are_written_and_read_as_ever() {
    let golden = include_bytes!("../../../testdata/archive-part-v1");
    assert!(
        part().encode_file().unwrap() == golden[..],
        "the bytes of a part have changed"
    );
    assert_eq!(Part::decode_file("p", golden).unwrap(), part());
    let text = inspect("p", golden).unwrap().unwrap();
    assert!(
        text.contains("cannot be decoded") && text.contains("the first part"),
        "{text}"
    );
}

#[test]
fn parts_of_a_cluster_are_written_and_read_as_ever() {
    let golden = [
        &include_bytes!("../../../testdata/archive-part-of-tables-v2")[..],
        &include_bytes!("../../../testdata/archive-part-last-v2")[..],
    ];
    for (part, golden) in parts_of_cluster().iter().zip(golden) {
        let encoded = part.encode_file().unwrap();
        assert!(encoded == golden[..], "the bytes of a part have changed");
        assert_eq!(Part::decode_file("p", golden).unwrap(), *part);
    }
}

#[test]
fn every_changed_byte_of_a_part_is_damage() {
    let bytes = part().encode_file().unwrap();
    for changed in 0..bytes.len() {
        let mut other = bytes.to_vec();
        other[changed] ^= 1;
        assert!(Part::decode_file("p", &other).is_err(), "byte {changed}");
    }
    assert_eq!(
        Part::decode_file("p", &bytes[..30]).unwrap_err().kind(),
        ErrorKind::Corruption
    );
}

#[test]
fn paths_have_one_spelling() {
    assert_eq!(parse_part(&part_path(0xab)), Some(0xab));
    assert_eq!(parse_part(&part_path(0xab).replace("ab", "AB")), None);
    let piece = piece_path(0xab, 3, 1);
    assert_eq!(piece, "pieces/00000000000000ab/00000003-00000001");
    assert_eq!(parse_piece(&piece), Some(0xab));
    for other in [
        piece.replace("ab", "AB"),
        format!("{piece}x"),
        piece.replace("0003", "003"),
    ] {
        assert_eq!(parse_piece(&other), None, "{other}");
    }
}
