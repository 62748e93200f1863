//! Writes `seeds/`, the inputs from which fuzzing starts.
//!
//! They are golden files, their parts, and output of the encoders. `cargo xtask fuzz` runs it, so that the seeds match
//! the current formats. Targets with structured input get pseudo-random bytes: the engine begins with inputs that are too
//! short for a history.

#[path = "seeds/others.rs"]
mod others;

use bytes::{Bytes, BytesMut};
use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};
use stele_access::testing::issuer::Issuer;
use stele_catalog::record;
use stele_commitlog::format::{GroupHeader, SegmentHeader, segment_path};
use stele_commitlog::{Payload, Record};
use stele_fuzz::schema;
use stele_peer::{Answer, Hello, Identity, VERSIONS};
use stele_sstable::block::{BlockBuilder, Trailer};
use stele_sstable::footer::{FOOTER_BYTES, Footer};
use stele_sstable::frame::{self, Handle};
use stele_sstable::index::{IndexBlock, common_prefix};
use stele_storage::remote::cache::CHUNK_BYTES;
use stele_storage::remote::cache::chunk::{Chunk, ChunkId};
use stele_storage::remote::owner;
use stele_tablet::batch::BatchBuilder;
use stele_tablet::manifest::ValueLink;
use stele_tablet::values::{HEADER_BYTES, ValueRef, record_len};
use stele_tablet::{Batch, FileRef, Manifest, StoredFile, manifest, snapshot};
use stele_types::key::row_prefix_len;
use stele_types::{
    CellKey, CellKind, Compression, FamilyId, FileId, GcRule, GroupId, GroupOptions, LocalityGroup, Mutation,
    RowMutation, RowRange, SeqNo, SnapshotId, TableId, TabletId, TimeUnit, Timestamp,
};
use stele_wire::cell::{CellRef, CellType};
use stele_wire::messages::{
    ConnectionHeader, GetRequest, RegionInfo, RegionSpecifier, RequestHeader, ResponseHeader, ScanResponse,
};
use stele_wire::zookeeper::{ConnectRequest, Request, Watches};
use stele_wire::{frame as hbase_frame, meta};

/// Seeds by target.
type Seeds = BTreeMap<&'static str, Vec<Vec<u8>>>;

fn main() -> io::Result<()> {
    let mut seeds = Seeds::new();
    sstables(&mut seeds)?;
    large_entries(&mut seeds);
    for golden in ["log-v1.golden", "snapshot-v1.golden"] {
        add(&mut seeds, "coord_log", golden_file("coord", golden)?);
    }
    cell_keys(&mut seeds);
    let batch = batch();
    add(&mut seeds, "mutation_batch", batch.to_bytes());
    for version in ["v2.batch", "v3.batch"] {
        add(&mut seeds, "mutation_batch", golden_file("tablet", version)?);
    }
    for version in ["v1.manifest", "v3.manifest"] {
        add(&mut seeds, "manifest", golden_file("tablet", version)?);
    }
    segment(&mut seeds, &batch);
    for golden in ["v1.state", "v1.record", "v1.list"] {
        add(&mut seeds, "backup_documents", golden_file("backup", golden)?);
    }
    for name in [
        "archive-part-v1",
        "archive-part-v2",
        "archive-part-of-tables-v2",
        "archive-part-last-v2",
        "archive-changes-v1",
    ] {
        add(&mut seeds, "log_archive", golden_file("backup", name)?);
    }
    add(&mut seeds, "log_archive", golden_file("commitlog", "v1.log")?);
    add(&mut seeds, "snapshot_part", golden_file("tablet", "v1.snapshot")?);
    add(&mut seeds, "snapshot_part", snapshot::path(SnapshotId(0xab), 1));
    manifests(&mut seeds);
    value_files(&mut seeds)?;
    catalog(&mut seeds);
    requests(&mut seeds);
    hbase(&mut seeds);
    hfiles(&mut seeds)?;
    zookeeper(&mut seeds);
    hbase_filters(&mut seeds)?;
    peers(&mut seeds);
    texts(&mut seeds);
    instance(&mut seeds);
    oidc(&mut seeds);
    remote_files(&mut seeds);
    encryption(&mut seeds)?;
    others::all(&mut seeds);
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    let _ = fs::remove_dir_all(&all);
    for (target, inputs) in seeds {
        let dir = all.join(target);
        fs::create_dir_all(&dir)?;
        for (number, input) in inputs.iter().enumerate() {
            fs::write(dir.join(format!("{number:02}")), input)?;
        }
    }
    Ok(())
}

fn add(seeds: &mut Seeds, target: &'static str, input: impl Into<Vec<u8>>) {
    let (input, of_target) = (input.into(), seeds.entry(target).or_default());
    if !of_target.contains(&input) {
        of_target.push(input);
    }
}

fn golden_file(of_crate: &str, name: &str) -> io::Result<Vec<u8>> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    fs::read(crates.join(of_crate).join("testdata").join(name))
}

/// Data keys and an encrypted file, in lines of a path and hexadecimal digits; and a key file.
fn encryption(seeds: &mut Seeds) -> io::Result<()> {
    for line in String::from_utf8_lossy(&golden_file("encryption", "v1.txt")?).lines() {
        let (path, digits) = line.split_once(' ').unwrap_or_default();
        let bytes = digits.as_bytes().as_chunks::<2>().0.iter().map(|pair| {
            let pair = std::str::from_utf8(pair).unwrap_or_default();
            u8::from_str_radix(pair, 16).unwrap_or_default()
        });
        add(seeds, "encryption", path);
        add(seeds, "encryption", bytes.collect::<Vec<u8>>());
    }
    let text = format!("# keys\nk1 {}\nk2 {}=\n", "5a".repeat(32), "A".repeat(43));
    add(seeds, "encryption", text);
    Ok(())
}

/// The golden sstables, whole and taken apart.
fn sstables(seeds: &mut Seeds) -> io::Result<()> {
    add(seeds, "sstable_file", golden_file("sstable", "v2-dictionary.sst")?);
    for name in ["v2.sst", "v2-lz4.sst", "v2-snappy.sst", "v2-zstd.sst"] {
        let bytes = Bytes::from(golden_file("sstable", name)?);
        add(seeds, "sstable_file", bytes.clone());
        let tail = bytes.slice(bytes.len() - FOOTER_BYTES..);
        let footer = Footer::decode(&tail).expect("golden");
        add(seeds, "sstable_parts", tail);
        let framed = |handle: Handle| {
            let at = handle.offset as usize;
            bytes.slice(at..at + handle.framed_len())
        };
        let open = |handle: Handle| frame::open(footer.file, handle.offset, &framed(handle)).expect("golden");
        add(seeds, "sstable_parts", open(footer.properties));
        add(seeds, "sstable_parts", open(footer.filter.expect("golden")));
        add(seeds, "sstable_parts", framed(footer.top_index));
        add(seeds, "sstable_index", open(footer.top_index));
        for index in children(open(footer.top_index)) {
            add(seeds, "sstable_index", open(index));
            for block in children(open(index)) {
                add(seeds, "sstable_block", open(block));
                let payload = framed(block);
                add(
                    seeds,
                    "sstable_compression",
                    payload.slice(..payload.len() - frame::TAIL_BYTES),
                );
            }
        }
    }
    Ok(())
}

/// Blocks of entries so large that they get a directory: rows of one version, of three with a tombstone, and of more
/// than an interval has.
fn large_entries(seeds: &mut Seeds) {
    let deleted = [CellKind::DeleteColumn, CellKind::Put, CellKind::Put];
    for (rows, kinds) in [(8, &[CellKind::Put][..]), (8, &deleted), (3, &[CellKind::Put; 18])] {
        let mut builder = BlockBuilder::default();
        let mut before = Vec::new();
        for row in 0..rows {
            let row = format!("row{:02}", 3 * row);
            for (version, kind) in (1..).zip(kinds) {
                let key = CellKey {
                    row: row.as_bytes().into(),
                    family: FamilyId(1),
                    qualifier: (&b"q"[..]).into(),
                    timestamp: Timestamp(-version),
                    seq: SeqNo(9),
                    kind: *kind,
                };
                let key = key.encode();
                let (body, trailer) = Trailer::split(&key).expect("a key has one");
                let row_len = row_prefix_len(body).expect("a key begins with a row");
                let value = if kind.is_delete() { vec![] } else { vec![b'v'; 400] };
                builder.add(common_prefix(&before, body), row_len, body, trailer, &value);
                before = body.to_vec();
            }
        }
        add(seeds, "sstable_block", builder.finish());
    }
}

fn children(content: Bytes) -> Vec<Handle> {
    let index = IndexBlock::parse(content).expect("golden");
    (0..index.len()).filter_map(|n| index.child(n)).collect()
}

/// One key of each kind.
fn cell_keys(seeds: &mut Seeds) {
    for kind in (1..=u8::MAX).map_while(CellKind::from_byte) {
        let row_level = kind == CellKind::DeleteRow;
        let key = CellKey {
            row: (&b"r\0w"[..]).into(),
            family: FamilyId(if row_level { 0 } else { 300 }),
            qualifier: if row_level {
                Default::default()
            } else {
                (&b"q\0"[..]).into()
            },
            timestamp: Timestamp(-5),
            seq: SeqNo(7),
            kind,
        };
        add(seeds, "cell_key", key.encode());
    }
}

/// One mutation of each kind.
fn batch() -> Batch {
    let (family, qualifier, timestamp) = (FamilyId(1), Bytes::from_static(b"q"), Timestamp(9));
    let mutations = vec![
        Mutation::Put {
            family,
            qualifier: qualifier.clone(),
            timestamp,
            value: Bytes::from_static(b"v"),
        },
        Mutation::Merge {
            family,
            qualifier: qualifier.clone(),
            timestamp,
            operand: Bytes::from_static(&[0; 8]),
        },
        Mutation::DeleteRow { up_to: timestamp },
        Mutation::DeleteFamily {
            family,
            up_to: timestamp,
        },
        Mutation::DeleteFamilyVersion { family, timestamp },
        Mutation::DeleteColumn {
            family,
            qualifier: qualifier.clone(),
            from: Timestamp(1),
            to: timestamp,
        },
        Mutation::DeleteVersion {
            family,
            qualifier,
            timestamp,
        },
    ];
    let mut batch = BatchBuilder::default();
    batch.push_row(&RowMutation {
        row: Bytes::from_static(b"row"),
        mutations,
    });
    batch.finish()
}

/// Header, group and records of a segment, and its path.
fn segment(seeds: &mut Seeds, batch: &Batch) {
    let header = SegmentHeader {
        version: 1,
        stream: 0,
        number: 7,
        previous: 6,
        previous_len: 99,
        previous_synced: 56,
    };
    let record = Record {
        tablet: TabletId(1),
        first: SeqNo(1),
        last: SeqNo(batch.len()),
        payload: Payload::new(batch.to_bytes()),
    };
    let record = [&record.encode_header()[..], &batch.to_bytes()].concat();
    let group = GroupHeader {
        records_len: record.len() as u32,
        records: 1,
        offset: 56,
        unsynced: 0,
    };
    add(seeds, "commit_log", header.encode());
    add(seeds, "commit_log", group.encode(7));
    add(seeds, "commit_log", record.repeat(2));
    add(seeds, "commit_log", segment_path(1, 0xab));
}

/// A manifest, and the names of files.
fn manifests(seeds: &mut Seeds) {
    let mut tablet = Manifest {
        tablet: 1,
        table: 2,
        epoch: 3,
        flushed_through: 4,
        written_micros: 5,
        ..Manifest::default()
    };
    tablet.end = Some(Bytes::from_static(b"m"));
    let file = FileRef {
        file: 1 << 32 | 1,
        len: 999,
        cells: 9,
        deletes: 1,
        referenced: 500,
        ..FileRef::default()
    };
    let cut = file
        .narrowed(Some(Bytes::from_static(b"a")), Some(Bytes::from_static(b"m")))
        .expect("not empty");
    tablet.set_files(GroupId(0), vec![file.clone(), cut]);
    add(seeds, "manifest", tablet.encode_file());
    let link = ValueLink {
        file: 1 << 32 | 2,
        len: 5_000,
        share: 4_000,
        bytes: 3_000,
    };
    let refers = FileRef {
        values: vec![link],
        ..file
    };
    tablet.set_files(GroupId(0), vec![refers]);
    add(seeds, "manifest", tablet.encode_file());
    add(seeds, "manifest", manifest::path(TabletId(1), 0xab));
    add(seeds, "manifest", FileRef::path(FileId(0xab)));
}

/// Files that HBase has written, in every encoding.
fn hfiles(seeds: &mut Seeds) -> io::Result<()> {
    for name in [
        "none",
        "prefix",
        "diff",
        "fast_diff",
        "row_index_v1",
        "tags_compressed",
        "deep_index",
        "codec_snappy",
    ] {
        add(seeds, "hfile", golden_file("hfile", &format!("{name}.hfile"))?);
    }
    Ok(())
}

/// A value file, its parts, and its name.
fn value_files(seeds: &mut Seeds) -> io::Result<()> {
    let file = golden_file("tablet", "v1.val")?;
    add(seeds, "value_file", file.get(..HEADER_BYTES).unwrap_or_default());
    let record = file.get(HEADER_BYTES..).unwrap_or_default();
    add(
        seeds,
        "value_file",
        record.get(..record_len(record).unwrap_or(0)).unwrap_or_default(),
    );
    let reference = ValueRef {
        file: FileId(7),
        offset: HEADER_BYTES as u64,
        payload_len: 7,
        value_len: 7,
        crc: 9,
    };
    add(seeds, "value_file", reference.encode());
    add(seeds, "value_file", StoredFile::Values(FileId(0xab)).path());
    add(seeds, "value_file", file);
    Ok(())
}

fn catalog(seeds: &mut Seeds) {
    let mut schema = schema(TimeUnit::Micros, 1_000);
    if let Some(family) = schema.families.get_mut(&FamilyId(1)) {
        let rules = vec![GcRule::MaxVersions(3), GcRule::MaxAgeMicros(1 << 40)];
        family.gc_rule = Some(GcRule::Union(vec![GcRule::Intersection(rules), GcRule::MaxVersions(9)]));
    }
    add(seeds, "catalog", record::encode_table(&schema, schema.id));
    let group = LocalityGroup {
        options: GroupOptions {
            compression: Compression::Zstd,
            zstd_level: 3,
            dictionary_bytes: 16 << 10,
            block_bytes: Some(4 << 10),
            filter_bits_per_row: Some(12),
            in_memory: true,
            file_bytes: Some(64 << 20),
        },
        left: [FamilyId(2)].into(),
        ..LocalityGroup::new(GroupId(1), "other", Compression::Zstd)
    };
    schema.groups.push(group);
    add(seeds, "catalog", record::encode_table(&schema, schema.id));
    let range = RowRange {
        start: Bytes::from_static(b"a"),
        end: Some(Bytes::from_static(b"m")),
    };
    add(seeds, "catalog", record::encode_tablet(&range, &Default::default()));
    let namespace = record::NamespaceRecord {
        front_end_data: Bytes::from_static(b"data"),
        explicit: true,
    };
    add(seeds, "catalog", record::encode(&namespace));
    add(seeds, "catalog", record::tablet_key(TableId(1), TabletId(0xab)));
}

/// A field of a message that has a length; numbers below 16 only.
fn field(number: u8, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    let len = u8::try_from(content.len())
        .ok()
        .filter(|len| *len < 0x80)
        .expect("seeds are short");
    [&[number << 3 | 2, len], content].concat()
}

/// A field that is a number.
fn number(number: u8, value: u8) -> Vec<u8> {
    vec![number << 3, value]
}

/// Frames of ZooKeeper's protocol: a connection and its requests.
fn zookeeper(seeds: &mut Seeds) {
    let path = || "/hbase/master".to_owned();
    let requests = [
        Request::Exists(path()),
        Request::GetData(path()),
        Request::GetAcl(path()),
        Request::GetChildren2(path()),
        Request::Auth("digest".to_owned(), Bytes::from_static(b"user:secret")),
        Request::SetWatches(Watches { count: 2 }),
        Request::Close,
    ];
    let mut all = BytesMut::new();
    let connect = ConnectRequest {
        timeout_ms: 90_000,
        password: Bytes::from_static(&[0; 16]),
        read_only: Some(false),
        ..ConnectRequest::default()
    };
    connect.encode(&mut all);
    for request in requests {
        let mut frame = BytesMut::new();
        request.encode(1, &mut frame);
        all.extend_from_slice(&frame);
        add(seeds, "zookeeper_requests", frame);
    }
    add(seeds, "zookeeper_requests", all);
}

/// A handshake, and bodies of calls between servers, by themselves and in frames.
fn peers(seeds: &mut Seeds) {
    let server = |server| Identity {
        cluster: [7; 16],
        server,
        epoch: 1,
    };
    let hello = Hello {
        versions: VERSIONS,
        caller: server(1),
        owner: server(2),
    };
    let answer = Answer {
        version: Ok(1),
        versions: VERSIONS,
        owner: server(2),
    };
    add(seeds, "peer_frames", hello.encode());
    add(seeds, "peer_frames", answer.encode());
    let (requests, answers) = stele_peer::fuzzing::seeds();
    for (target, bodies) in [("peer_requests", requests), ("peer_answers", answers)] {
        for body in bodies {
            for frame in stele_peer::fuzzing::frames(&body) {
                add(seeds, "peer_frames", frame);
            }
            add(seeds, target, body);
        }
    }
}

/// Frames and cells of HBase's protocol.
fn hbase(seeds: &mut Seeds) {
    let mut cells = BytesMut::new();
    let info = RegionInfo {
        region_id: 1,
        start_key: Some(Bytes::from_static(b"a")),
        ..RegionInfo::default()
    };
    let columns = [
        (meta::REGION_INFO, meta::encode_region_info(&info)),
        (meta::SERVER, Bytes::from_static(b"host:16020")),
        (meta::SERVER_START_CODE, Bytes::from_static(&[1; 8])),
    ];
    for (qualifier, value) in columns {
        let (row, family, kind) = (&b"t,a,1"[..], meta::INFO_FAMILY, CellType::Put);
        let cell = CellRef {
            row,
            family,
            qualifier,
            timestamp: 1,
            kind,
            value: &value,
        };
        cell.encode(&mut cells).expect("a short cell");
    }
    let cells = cells.freeze();
    add(seeds, "hbase_cells", cells.clone());
    let mut opening = BytesMut::new();
    let service_name = Some("ClientService".to_owned());
    let header = ConnectionHeader {
        service_name,
        ..ConnectionHeader::default()
    };
    hbase_frame::encode_preamble(&mut opening, &header);
    add(seeds, "hbase_frame", opening);
    let get = GetRequest {
        region: RegionSpecifier::named(Bytes::from_static(b"t,a,1")),
        ..GetRequest::default()
    };
    let mut request = BytesMut::new();
    let header = RequestHeader {
        call_id: Some(1),
        ..RequestHeader::default()
    };
    hbase_frame::encode_request(&mut request, header, &get, &cells).expect("it fits");
    add(seeds, "hbase_frame", request);
    let scanned = ScanResponse {
        cells_per_result: vec![3],
        ..ScanResponse::default()
    };
    let mut response = BytesMut::new();
    let header = ResponseHeader {
        call_id: Some(1),
        ..ResponseHeader::default()
    };
    hbase_frame::encode_response(&mut response, header, Some(&scanned), &cells).expect("it fits");
    add(seeds, "hbase_frame", response);
}

/// Some of the filters that are recorded with HBase's answers, behind a byte of flags.
fn hbase_filters(seeds: &mut Seeds) -> io::Result<()> {
    const PACKAGE: &str = "6f72672e6170616368652e6861646f6f702e68626173652e66696c7465722e";
    let recorded = golden_file("hbase", "filters.txt")?;
    let recorded = String::from_utf8_lossy(&recorded);
    let cases = recorded.lines().filter_map(|line| line.strip_prefix("case "));
    for (number, case) in cases.enumerate().step_by(11) {
        let hex = case.split(' ').nth(5).unwrap_or_default().replace('@', PACKAGE);
        let digits: Vec<_> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
        let (pairs, _) = digits.as_chunks::<2>();
        let message = pairs.iter().map(|[high, low]| (high * 16 + low) as u8);
        let flags = (number / 11 % 4) as u8;
        add(
            seeds,
            "hbase_filter",
            [flags].into_iter().chain(message).collect::<Vec<_>>(),
        );
    }
    Ok(())
}

/// Messages of the Bigtable API; the numbers are those of its data.proto and bigtable.proto.
fn requests(seeds: &mut Seeds) {
    let (family, qualifier) = (field(5, "a|b"), field(6, "q.*"));
    let columns = field(7, [field(1, "a"), field(2, "q"), field(5, "r")].concat());
    let times = field(8, [number(1, 1), number(2, 9)].concat());
    let values = field(15, [field(1, "a"), field(4, "z")].concat());
    let chain = field(
        1,
        [field(1, &family), field(1, &qualifier), field(1, number(11, 1))].concat(),
    );
    let interleave = field(
        2,
        [
            field(1, &columns),
            field(1, field(1, [field(1, &times), field(1, number(12, 1))].concat())),
        ]
        .concat(),
    );
    let condition = field(
        3,
        [field(1, &values), field(2, &chain), field(3, field(9, "v?"))].concat(),
    );
    for filter in [
        &family,
        &qualifier,
        &columns,
        &times,
        &values,
        &chain,
        &interleave,
        &condition,
    ] {
        add(seeds, "bigtable_filter", filter.clone());
    }
    let table = "projects/p/instances/i/tables/t";
    let ranges = [field(1, "key"), field(2, [field(1, "a"), field(4, "m")].concat())].concat();
    let read = [field(1, table), field(2, ranges), field(3, chain), number(4, 9)].concat();
    let set = field(1, [field(1, "a"), field(2, "q"), number(3, 0), field(4, "v")].concat());
    let add_to_cell = field(
        5,
        [
            field(1, "sum"),
            field(2, field(8, "q")),
            field(3, number(9, 0)),
            field(4, number(6, 5)),
        ]
        .concat(),
    );
    let delete = field(2, [field(1, "a"), field(2, "q")].concat());
    let mutations = [set, add_to_cell, delete, field(3, field(1, "b")), field(4, "")]
        .map(|m| field(2, m))
        .concat();
    let mutate = [field(1, table), field(2, [field(1, "row"), mutations].concat())].concat();
    let rules = field(3, [field(1, "a"), field(2, "q"), field(3, "more")].concat());
    let options = [
        field(1, "zstd"),
        number(2, 3),
        number(3, 9),
        number(4, 9),
        number(5, 9),
        number(6, 1),
        number(7, 9),
    ];
    let group = |change| field(2, [field(1, "cold"), change].concat());
    let groups = [
        field(1, table),
        group(field(2, options.concat())),
        group(field(3, options.concat())),
        group(field(4, "a")),
    ];
    add(seeds, "bigtable_requests", groups.concat());
    for request in [read, mutate, [field(1, table), field(2, "row"), rules].concat()] {
        add(seeds, "bigtable_requests", request);
    }
}

/// Patterns, and files to import behind the byte that chooses their format.
fn texts(seeds: &mut Seeds) {
    for pattern in [
        "a+|b{2,3}(?i:c)[[:alpha:]]",
        r"\C\Q.\E\x{ff}[^a-f]*?",
        r"(?s).*\pL\d\bend$",
        r"row$.*",
        r"row\z\C*",
    ] {
        add(seeds, "regex", pattern);
    }
    let files = [
        "\u{0}id,ts,v\nk,2024-02-29T12:30:45Z,\"a \"\"b\"\"\n\"\n\r\nk2,,\n",
        "\u{28}id\tv\nk\tbase64:/w==\n",
        "\u{2}{\"id\":\"k\",\"v\":1.10,\"n\":null,\"b\":{\"b64\":\"/w==\"}}\n",
        "\u{3}{\"row\":\"k\",\"cells\":[{\"family\":\"f\",\"qualifier\":\"q\",\"timestamp\":1000,\"value\":{\"b64\":\"/w==\"}}]}\n",
    ];
    for file in files {
        add(seeds, "import_formats", file);
    }
    let settings = [
        "memory = \"25%\"\ndurability = \"flush\" # fast\nfree_space_min = 1000\ndata_option = \"user=a\"\n",
        "1.5 GB",
        "4096KiB",
        "7M",
        "3 TiB",
        "12.5%",
        "30s",
        "user=stele, replication = 2,dfs.a.b=c=d",
        "hdfs://host:9000/a/b-1/\nuser=stele,replication=2,dfs.a.b=c",
        "etcd://h1:2379,H2,[::1]:1/prod.1-a_b",
        "s3://bucket/a/b",
        "gs://bucket",
        "./folder",
    ];
    for text in settings {
        add(seeds, "settings", text);
    }
}

/// A key set, a token, and claims.
fn oidc(seeds: &mut Seeds) {
    let claims = r#"{"iss":"i","aud":["a"],"exp":1900000000,"sub":"u","realm":{"roles":["g"]}}"#;
    let issuer = Issuer::new(1, "k1");
    let token = issuer.signed_text(r#"{"alg":"EdDSA","kid":"k1","typ":"JWT"}"#, claims.as_bytes());
    for (choice, text) in [(0u8, Issuer::key_set(&[&issuer])), (1, token), (2, claims.to_owned())] {
        add(seeds, "oidc", [&[choice][..], text.as_bytes()].concat());
    }
}

/// The stored record of an instance; the numbers are those of the API's instance.proto.
fn instance(seeds: &mut Seeds) {
    let labels = field(5, [field(1, "key"), field(2, "value")].concat());
    let instance = field(1, [field(2, "shown"), number(4, 2), labels].concat());
    let cluster = field(2, [field(1, "c1"), number(4, 3), number(5, 2)].concat());
    let routing = field(5, [field(1, "c1"), number(2, 1)].concat());
    let profile = field(3, [field(1, "default"), field(3, "text"), routing].concat());
    add(seeds, "bigtable_instance", [instance, cluster, profile].concat());
}

/// Names, a listing of parts, and the file of a chunk.
fn remote_files(seeds: &mut Seeds) {
    let log = segment_path(0, 7);
    add(seeds, "remote_files", stele_objects::fuzzing::part_key(&log, 0xab));
    add(seeds, "remote_files", stele_hdfs::fuzzing::piece_key(&log, 1, true));
    add(seeds, "remote_files", owner::record_path(0xab));
    add(seeds, "remote_files", ChunkId::of("sst/f.sst", "tag", 3).file_name());
    add(seeds, "remote_files", [0, 0, 1, 18, 2, 4, 3, 7]);
    let chunk = Chunk::of("sst/f.sst", "tag", 1, CHUNK_BYTES + 4);
    add(seeds, "remote_files", chunk.encode(b"text"));
}
