use super::*;
use crate::limits::TXN_OPS_MAX;

const GENERATION: u64 = 7;

/// The files of format 1 as its first release wrote them. They never change.
const GOLDEN_LOG: &[u8] = include_bytes!("../../testdata/log-v1.golden");
const GOLDEN_SNAPSHOT: &[u8] = include_bytes!("../../testdata/snapshot-v1.golden");

fn put(key: &str, value: &[u8]) -> Write {
    Write::Put {
        key: key.to_owned(),
        value: Bytes::copy_from_slice(value),
    }
}

fn transactions() -> Vec<Vec<Write>> {
    let bound = Write::PutBound {
        key: "election/master".to_owned(),
        value: Bytes::from_static(b"node-1"),
        session: SessionId(0x0700_0001),
    };
    vec![
        vec![put("table/a", b"\x00binary\xff"), put("table/b", b"")],
        vec![bound],
        vec![
            Write::Delete {
                key: "table/a".to_owned(),
            },
            put("epoch/log", b"12"),
        ],
    ]
}

/// A log and the offset of each record in it.
fn log() -> (Vec<u8>, Vec<usize>) {
    let mut bytes = Vec::from(encode_log_header(GENERATION));
    let mut offsets = Vec::new();
    for (i, writes) in transactions().iter().enumerate() {
        offsets.push(bytes.len());
        bytes.extend_from_slice(&encode_record(GENERATION, 100 + i as u64, writes));
    }
    (bytes, offsets)
}

fn snapshot() -> Bytes {
    let long = [b'x'; 100];
    let entries = [
        ("epoch/log", 12, &b"11"[..]),
        ("long", 1, &long[..]),
        ("table/ä", 99, &b"\x00\xff"[..]),
    ];
    encode_snapshot(GENERATION, 99, entries.into_iter())
}

fn decode(bytes: &[u8]) -> Result<Log, FormatError> {
    decode_log(&Bytes::copy_from_slice(bytes), GENERATION)
}

/// The writes of a log, by transaction.
fn writes_of(log: &Log) -> Vec<Vec<Write>> {
    log.records.iter().map(|record| record.writes.clone()).collect()
}

#[test]
fn golden_files() {
    assert!(log().0 == GOLDEN_LOG, "the encoding of logs has changed");
    assert!(snapshot() == GOLDEN_SNAPSHOT, "the encoding of snapshots has changed");
    let log = decode(GOLDEN_LOG).unwrap();
    assert_eq!(writes_of(&log), transactions());
    assert_eq!(log.torn_at, None);
    let revisions: Vec<u64> = log.records.iter().map(|r| r.revision).collect();
    assert_eq!(revisions, [100, 101, 102]);
    let snapshot = decode_snapshot(&Bytes::from_static(GOLDEN_SNAPSHOT)).unwrap();
    assert_eq!((snapshot.generation, snapshot.revision), (GENERATION, 99));
    let keys: Vec<(&str, u64)> = snapshot.entries.iter().map(|e| (e.key.as_str(), e.version)).collect();
    assert_eq!(keys, [("epoch/log", 12), ("long", 1), ("table/ä", 99)]);
}

#[test]
fn inspection() {
    let (mut bytes, offsets) = log();
    assert_eq!(offsets, [24, 77, 130]);
    bytes.truncate(bytes.len() - 1);
    assert_eq!(
        inspect(&Bytes::from(bytes)).unwrap(),
        r#"coordination log, generation 7
      24  revision 100
          put table/a = "\x00binary\xff"
          put table/b = ""
      77  revision 101
          put election/master = "node-1" while session 0000000007000001
     130  torn end, never acknowledged
"#
    );
    assert_eq!(
        inspect(&snapshot()).unwrap(),
        format!(
            "coordination snapshot, generation 7, revision 99, 3 keys\n      \
             12  epoch/log = \"11\"\n       \
             1  long = \"{}\"… (100 bytes)\n      \
             99  table/ä = \"\\x00\\xff\"\n",
            "x".repeat(64)
        )
    );
    let error = inspect(&Bytes::from_static(b"something else")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "byte 0: expected a coordination log or snapshot, found \"somethin\""
    );
}

#[test]
fn a_log_cut_anywhere_is_a_prefix_with_a_torn_end() {
    let (bytes, offsets) = log();
    for len in 0..bytes.len() {
        let log = decode(&bytes[..len]).unwrap();
        let ends = offsets.iter().skip(1).copied().chain([bytes.len()]);
        let whole = ends.filter(|end| *end <= len).count();
        assert_eq!(writes_of(&log), transactions()[..whole], "cut at {len}");
        let at = if len < LOG_HEADER_BYTES { 0 } else { offsets[whole] };
        let expected = (len != offsets[whole]).then_some(at as u64);
        assert_eq!(log.torn_at, expected, "cut at {len}");
    }
}

/// Garbage or zeros from any offset in the last record on, as a crash leaves an unsynced record.
#[test]
fn a_torn_last_record_is_dropped() {
    let (bytes, offsets) = log();
    let last = offsets[2];
    for from in last..bytes.len() {
        for filler in [0, 0xa5] {
            let mut torn = bytes.clone();
            torn[from..].fill(filler);
            if torn == bytes {
                continue;
            }
            let log = decode(&torn).unwrap();
            assert_eq!(writes_of(&log), transactions()[..2], "torn from {from}");
            assert_eq!(log.torn_at, Some(last as u64));
        }
    }
    // The header and the first record are unsynced together.
    let first = &mut bytes[..offsets[1]].to_vec();
    first.fill(0);
    assert_eq!(
        decode(first).unwrap(),
        Log {
            records: vec![],
            torn_at: Some(0)
        }
    );
}

#[test]
fn damage_before_the_last_record_is_an_error() {
    let (bytes, offsets) = log();
    for at in 0..offsets[2] {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            let error = decode(&damaged).unwrap_err();
            // It is found where it is, within the same header or record.
            let part = |offset: usize| offsets.iter().filter(|o| **o <= offset).count();
            assert_eq!(part(error.offset as usize), part(at), "bit {bit} of byte {at}: {error}");
        }
    }
}

#[test]
fn a_record_of_another_generation_or_revision_is_an_error() {
    let (bytes, _) = log();
    let more = |generation, revision| {
        let mut bytes = bytes.clone();
        bytes.extend_from_slice(&encode_record(generation, revision, &transactions()[0]));
        decode(&bytes)
    };
    assert_eq!(more(GENERATION, 103).unwrap().records.len(), 4);
    for revision in [102, 104, 0] {
        let error = more(GENERATION, revision).unwrap_err();
        assert_eq!(error.expected, "revision 103");
    }
    // A stale block: not a record of this log, hence a torn end.
    let stale = more(GENERATION - 1, 103).unwrap();
    assert_eq!((stale.records.len(), stale.torn_at), (3, Some(bytes.len() as u64)));
    assert_eq!(decode_log(&Bytes::from(bytes), 8).unwrap_err().expected, "generation 8");
}

#[test]
fn a_long_damaged_end_is_more_than_one_record() {
    let (mut bytes, offsets) = log();
    bytes.resize(offsets[2] + RECORD_HEADER_BYTES + BODY_BYTES_MAX, 0);
    bytes[offsets[2]..].fill(0);
    assert_eq!(decode(&bytes).unwrap().torn_at, Some(offsets[2] as u64));
    bytes.push(0);
    assert_eq!(decode(&bytes).unwrap_err().offset, offsets[2] as u64);
}

#[test]
fn a_future_version_is_not_a_torn_end() {
    let mut header = Vec::new();
    header.extend_from_slice(&LOG_MAGIC);
    header.extend_from_slice(&2u32.to_le_bytes());
    let checksum = crc(&[&header, &GENERATION.to_le_bytes()]);
    header.extend_from_slice(&checksum.to_le_bytes());
    header.extend_from_slice(&GENERATION.to_le_bytes());
    let error = decode(&header).unwrap_err();
    assert_eq!(error.to_string(), "byte 8: expected format version 1, found 2");
}

#[test]
fn the_largest_transaction_fits_into_a_record() {
    let key = |i: usize| format!("{i:04}{}", "k".repeat(KEY_BYTES_MAX - 4));
    let value = Bytes::from(vec![0; TXN_BYTES_MAX / RECORD_WRITES_MAX as usize - KEY_BYTES_MAX]);
    let session = SessionId(u64::MAX);
    let write = |i| Write::PutBound {
        key: key(i),
        value: value.clone(),
        session,
    };
    let writes: Vec<Write> = (0..RECORD_WRITES_MAX as usize).map(write).collect();
    let mut bytes = Vec::from(encode_log_header(GENERATION));
    bytes.extend_from_slice(&encode_record(GENERATION, 1, &writes));
    assert!(bytes.len() < TXN_BYTES_MAX + 4_100);
    assert!(TXN_OPS_MAX as u64 <= RECORD_WRITES_MAX);
    assert_eq!(writes_of(&decode(&bytes).unwrap()), [writes]);
}

#[test]
fn damaged_snapshots_are_errors() {
    let bytes = snapshot();
    for at in 0..bytes.len() {
        assert!(decode_snapshot(&bytes.slice(..at)).is_err(), "cut at {at}");
        for bit in 0..8 {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 1 << bit;
            assert!(
                decode_snapshot(&Bytes::from(damaged)).is_err(),
                "bit {bit} of byte {at}"
            );
        }
    }
    let unsorted = [("b", 1, &b""[..]), ("a", 1, &b""[..])];
    let error = decode_snapshot(&encode_snapshot(1, 1, unsorted.into_iter())).unwrap_err();
    assert_eq!(error.expected, "a key after \"b\"");
    let newer = [("a", 2, &b""[..])];
    let error = decode_snapshot(&encode_snapshot(1, 1, newer.into_iter())).unwrap_err();
    assert_eq!(error.expected, "a version of at most 1");
}

/// Bodies with right checksums and wrong content, cut and changed everywhere: an error or a value, never a panic.
#[test]
fn bodies_are_decoded_totally() {
    let body = encode_record(GENERATION, 1, &transactions()[1]).slice(RECORD_HEADER_BYTES..);
    for at in 0..body.len() {
        assert!(decode_body(&body.slice(..at), 0).is_err(), "cut at {at}");
        for byte in 0..=255 {
            let mut changed = body.to_vec();
            changed[at] = byte;
            let _ = decode_body(&Bytes::from(changed), 0);
        }
    }
    let mut many = 1u64.to_le_bytes().to_vec();
    varint::put_u64(&mut many, u64::MAX);
    assert_eq!(
        decode_body(&Bytes::from(many), 0).unwrap_err().expected,
        "1 to 128 writes"
    );
}
