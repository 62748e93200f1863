//! Seeds of kept data, of answers of services, and of targets with structured input.

use super::{Seeds, add, field, number, schema};
use bytes::Bytes;
use prost::Message;
use std::sync::Arc;
use stele_access::tokens::{RANDOM_BYTES, make};
use stele_catalog::record::switches::encode_switches;
use stele_catalog::record::{access, encode_snapshot};
use stele_catalog::{ArchivedChain, SnapshotEntry};
use stele_types::{AccessRule, Kept, Member, Rights, SnapshotId, Switches, TableId, TimeUnit};
use stele_wire::messages::{
    BytesBytesPair, ColumnFamilySchema, SnapshotDescription, TableSchema, TraceHeader, TraceInfo,
};

/// Bytes of a seed that a target turns into structured input: some hundred steps of a history.
const STRUCTURED_BYTES: usize = 4 << 10;

/// Targets with structured input.
const STRUCTURED: [&str; 4] = ["commit_log_replay", "filter_tree", "sstable_build", "tablet_reads"];

/// Bytes at the end of such a seed, from which the lengths of byte strings are taken.
const LENGTHS_BYTES: usize = 1 << 10;

/// Seeds of each of these targets.
const STRUCTURED_SEEDS: u64 = 24;

/// Adds them all.
pub fn all(seeds: &mut Seeds) {
    catalog(seeds);
    cluster(seeds);
    hbase(seeds);
    services(seeds);
    tokens(seeds);
    structured(seeds);
}

/// A snapshot with access rules, switches, and records of the data root.
fn catalog(seeds: &mut Seeds) {
    let table = schema(TimeUnit::Micros, 1_000);
    let rule = AccessRule {
        member: Member::parse("user:alice").expect("a user"),
        rights: Rights::READ,
        families: vec!["a".to_owned()],
        row_prefix: Bytes::from_static(b"r"),
    };
    let snapshot = SnapshotEntry {
        id: SnapshotId(1),
        name: ("n".to_owned(), "s".to_owned()),
        schema: Arc::new(table),
        tablet_set: TableId(2),
        created_micros: 1,
        completed_micros: 2,
        expires_micros: Some(3),
        front_end_data: Bytes::from_static(b"data"),
        parts: 1,
        tablets: 2,
        bytes: 3,
        kept: Some(Kept::Truncated),
        rules: vec![rule.clone()].into(),
        version: 7,
    };
    add(seeds, "catalog", encode_snapshot(&snapshot));
    add(seeds, "catalog", access::encode_rules(&[rule]));
    let switches = Switches {
        balance: false,
        split: false,
        merge: true,
        snapshot_cleanup: false,
    };
    add(seeds, "catalog", encode_switches(switches));
    let chain = ArchivedChain {
        number: [7; 16],
        epoch: 5,
    };
    add(seeds, "catalog", chain.encode());
    add(seeds, "catalog", 5i64.to_le_bytes());
}

fn cluster(seeds: &mut Seeds) {
    let (records, control) = stele_cluster::fuzzing::seeds();
    for (target, inputs) in [("cluster_records", records), ("cluster_control", control)] {
        inputs.into_iter().for_each(|input| add(seeds, target, input));
    }
}

/// Data of the front end, and values of its clients.
fn hbase(seeds: &mut Seeds) {
    let pair = |name: &'static str, value: &'static str| BytesBytesPair {
        first: name.into(),
        second: value.into(),
    };
    let family = |name: &'static str, attributes| ColumnFamilySchema {
        name: name.into(),
        attributes,
        ..ColumnFamilySchema::default()
    };
    let files = vec![
        pair("COMPRESSION", "GZ"),
        pair("BLOCKSIZE", "8192"),
        pair("BLOOMFILTER", "NONE"),
    ];
    let rules = vec![pair("VERSIONS", "3"), pair("TTL", "FOREVER"), pair("MIN_VERSIONS", "1")];
    let deletes = vec![pair("KEEP_DELETED_CELLS", "TTL"), pair("NEW_VERSION_BEHAVIOR", "true")];
    let table = TableSchema {
        attributes: vec![
            pair("DURABILITY", "ASYNC_WAL"),
            pair("MAX_FILESIZE", "5368709120"),
            pair("READONLY", "true"),
        ],
        column_families: vec![family("a", files), family("b", rules), family("c", deletes)],
        ..TableSchema::default()
    };
    add(seeds, "hbase_stored", table.encode_to_vec());
    let snapshot = SnapshotDescription {
        name: "s".to_owned(),
        owner: Some("user".to_owned()),
        ttl: Some(60),
        r#type: Some(2),
        ..SnapshotDescription::default()
    };
    add(seeds, "hbase_stored", snapshot.encode_to_vec());
    let settings = field(1, [field(1, "key"), field(2, "value")].concat());
    let own = [settings, field(2, "cluster")].concat();
    // Field 100 of the record of a namespace, between those of others.
    let own = [&[0xa2, 0x06, own.len() as u8][..], &own].concat();
    add(seeds, "hbase_stored", [field(1, "other"), own, number(3, 7)].concat());
    for block in stele_hbase::fuzzing::blocks(b"cells of a block, cells of a block") {
        add(seeds, "hbase_values", block);
    }
    let header = |name: &str, value: &str| TraceHeader {
        name: name.to_owned(),
        value: value.to_owned(),
    };
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let headers = vec![header("traceparent", parent), header("tracestate", "a=b")];
    add(seeds, "hbase_values", TraceInfo { headers }.encode_to_vec());
    let long = [&[8][..], &1.5f64.to_be_bytes(), &(-7i64).to_be_bytes()].concat();
    let decimal = [&[6][..], &[0, 0, 0, 3, 0x0f, 25], &[0xff, 0xff, 0xff, 0xfe, 0x80]].concat();
    for numbers in [long, decimal] {
        add(seeds, "hbase_values", numbers);
    }
}

/// Answers of etcd, and of key management services behind the byte of their status.
fn services(seeds: &mut Seeds) {
    for response in stele_etcd::fuzzing::seeds() {
        add(seeds, "etcd_responses", response);
    }
    let key = "WlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlo=";
    let answers = [
        "\u{0}{\"CiphertextBlob\":\"AAEC\",\"KeyId\":\"arn:aws:kms:r:1:key/0a-1b\"}".to_owned(),
        format!("\u{0}{{\"Plaintext\":\"{key}\"}}"),
        "\u{1}{\"__type\":\"com.amazonaws.kms#ThrottlingException\",\"message\":\"slow\"}".to_owned(),
        "\u{0}{\"data\":{\"ciphertext\":\"vault:v3:AAEC\"}}".to_owned(),
        format!("\u{0}{{\"data\":{{\"plaintext\":\"{key}\"}}}}"),
        "\u{2}{\"errors\":[\"sealed\"]}".to_owned(),
    ];
    answers
        .into_iter()
        .for_each(|answer| add(seeds, "key_services", answer));
    for address in [
        "aws-kms://eu-west-1/alias/stele",
        "aws-kms://arn:aws:kms:eu-west-1:111122223333:key/mrk-1",
        "vault://host:8200/team/transit/stele",
    ] {
        add(seeds, "key_services", address);
    }
}

/// Files of tokens, and a name with random bytes.
fn tokens(seeds: &mut Seeds) {
    let random = std::array::from_fn::<u8, RANDOM_BYTES, _>(|at| at as u8);
    let lines = [("alice", Some(1_000)), ("bob@example.com", None)].map(|(name, expires)| {
        let made = make(name, &random, expires).expect("a name");
        made.line
    });
    add(seeds, "tokens", format!("# tokens\n\n{}\n", lines[0]));
    add(seeds, "tokens", lines[1].clone());
    add(seeds, "tokens", "alice\n7 random bytes and more");
}

/// Pseudo-random bytes. Two things make long histories of them: a list goes on for as long as a byte is odd, and a byte string has a
/// length of one or two bytes from the end. So bytes are odd more often in some seeds, and lengths are short.
fn structured(seeds: &mut Seeds) {
    for target in STRUCTURED {
        for seed in 0..STRUCTURED_SEEDS {
            let mut random = Random(seed);
            let odd = seed % 6;
            let bytes = (0..STRUCTURED_BYTES - LENGTHS_BYTES)
                .map(|_| random.byte_odd_by(odd))
                .collect::<Vec<_>>();
            let lengths = (0..LENGTHS_BYTES).map(|at| if at % 2 == 0 { 0 } else { random.byte_odd_by(0) % 24 });
            add(seeds, target, bytes.into_iter().chain(lengths).collect::<Vec<_>>());
        }
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A byte that is even in one of `2^(1 + shift)` cases.
    fn byte_odd_by(&mut self, shift: u64) -> u8 {
        let [byte, chance, ..] = self.next().to_le_bytes();
        let is_even = chance >> (7 - shift) == 0;
        (byte & !1) | u8::from(!is_even)
    }
}
