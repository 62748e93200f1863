//! Samples that HBase's own writer has made (`tests/rivals/hbase`, `HFiles`), and damaged ones.

use crate::error::HFileError;
use crate::fuzzing::{decode_block, file, read_all, without_checksums};
use crate::trailer::TrailerMessage;
use crate::{BlockMemory, HFile, inspect};
use bytes::Bytes;
use proptest::prelude::*;
use prost::Message;
use std::fmt::Write;
use std::time::Duration;
use stele_env::tokio_env::TokioRuntime;
use stele_memory::{Part, Pool};
use stele_types::ErrorKind;

macro_rules! samples {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_bytes!(concat!("../testdata/", $name, ".hfile")))),*]
    };
}

type Samples = &'static [(&'static str, &'static [u8])];

/// All of them have the same cells.
const SAMPLES: Samples = samples![
    "none",
    "prefix",
    "diff",
    "fast_diff",
    "row_index_v1",
    "codec_gz",
    "codec_snappy",
    "codec_lz4",
    "codec_zstd",
    "fast_diff_gz",
    "fast_diff_snappy",
    "fast_diff_lz4",
    "fast_diff_zstd",
    "crc32",
    "no_checksum",
    "deep_index",
];

/// The same with tags.
const SAMPLES_WITH_TAGS: Samples = samples!["tags", "tags_diff", "tags_compressed", "tags_row_index"];

const EMPTY: &[u8] = include_bytes!("../testdata/empty.hfile");

fn memory() -> BlockMemory {
    BlockMemory::now(&Pool::default().of(Part::Requests))
}

/// The cells as the program that wrote them lists them.
async fn listed(bytes: &'static [u8]) -> String {
    let opened = HFile::open(file(Bytes::from_static(bytes)), &memory()).await.unwrap();
    let (mut scan, mut block, mut out, mut last) = (opened.scan(0), None, String::new(), Bytes::new());
    while let Some(mut next) = scan.next_block(block.take()).await.unwrap() {
        while let Some((cell, tags)) = next.next_cell().unwrap() {
            let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
            let mut line = format!(
                "{} {}:{} {} {:?} [{}] ",
                text(&cell.row),
                text(&cell.family),
                text(&cell.qualifier),
                cell.timestamp,
                cell.kind,
                text(&cell.value)
            );
            tags.iter().for_each(|byte| write!(line, "{byte:02x}").unwrap());
            out.push_str(line.trim_end());
            out.push('\n');
            last = cell.row;
        }
        block = Some(next);
    }
    assert_eq!(opened.last_row().unwrap(), Some(&last[..]));
    out
}

#[tokio::test]
async fn files_of_hbase_have_the_cells_that_were_written() {
    for (name, bytes) in SAMPLES {
        assert_eq!(listed(bytes).await, include_str!("../testdata/cells.txt"), "{name}");
    }
    for (name, bytes) in SAMPLES_WITH_TAGS {
        let expected = include_str!("../testdata/cells_with_tags.txt");
        assert_eq!(listed(bytes).await, expected, "{name}");
    }
}

#[tokio::test]
async fn a_file_without_cells_has_no_last_row() {
    let opened = HFile::open(file(Bytes::from_static(EMPTY)), &memory()).await.unwrap();
    assert_eq!((opened.entries(), opened.last_row().unwrap()), (0, None));
    assert!(opened.scan(0).next_block(None).await.unwrap().is_none());
}

#[tokio::test]
async fn the_index_names_all_data_blocks() {
    let (_, bytes) = SAMPLES.iter().find(|(name, _)| *name == "deep_index").unwrap();
    let opened = HFile::open(file(Bytes::from_static(bytes)), &memory()).await.unwrap();
    assert!(opened.trailer().index_levels >= 3);
    let index = opened.index(usize::MAX).await.unwrap();
    let mut blocks = 0;
    let (mut scan, mut block) = (opened.scan(0), None);
    while let Some(mut next) = scan.next_block(block.take()).await.unwrap() {
        while next.next_cell().unwrap().is_some() {}
        blocks += 1;
        block = Some(next);
    }
    assert_eq!(index.len(), blocks);
    assert!(index.is_sorted_by_key(|entry| entry.offset));
}

#[tokio::test]
async fn a_file_is_printed() {
    let (_, bytes) = SAMPLES_WITH_TAGS[0];
    let text = inspect(file(Bytes::from_static(bytes))).await.unwrap();
    for wanted in [
        "HFile 3.3: ",
        "BULKLOAD_TIMESTAMP = ",
        "index: 1 levels",
        "row-0000 cf:a @1000000 Put [7] value 0 tags ",
    ] {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
}

#[tokio::test]
async fn blocks_take_memory() {
    let (_, bytes) = SAMPLES[0];
    let memory = Pool::default().limited(Part::Requests, 10_000).of(Part::Requests);
    let blocks = BlockMemory::now(&memory);
    let opened = HFile::open(file(Bytes::from_static(bytes)), &blocks).await.unwrap();
    let read = opened.scan(0).next_block(None).await;
    let kind = read.err().map(|error| error.kind());
    assert_eq!(kind, Some(ErrorKind::Busy), "a piece of a megabyte does not fit");
    drop(opened);
    assert_eq!(memory.used(), 0);
}

/// Other work fills the memory for moments, and a file is read in thousands of blocks.
#[tokio::test(start_paused = true)]
async fn a_block_waits_for_memory_for_a_while() {
    let (_, bytes) = SAMPLES[0];
    let env = TokioRuntime::current();
    let memory = Pool::default().limited(Part::Requests, 1 << 20).of(Part::Requests);
    let blocks = BlockMemory::waiting(&memory, &env);
    let opened = HFile::open(file(Bytes::from_static(bytes)), &blocks).await.unwrap();
    let others = || memory.try_reserve(memory.limit() - memory.used()).unwrap();
    let (mut scan, others_now) = (opened.scan(0), others());
    let ends = async {
        env.sleep(Duration::from_secs(1)).await;
        drop(others_now);
    };
    let (first, ()) = tokio::join!(scan.next_block(None), ends);
    let (mut block, mut cells) = (first.unwrap(), 0);
    while let Some(mut some) = block.take() {
        while some.next_cell().unwrap().is_some() {
            cells += 1;
        }
        block = scan.next_block(Some(some)).await.unwrap();
    }
    assert_eq!(cells, opened.entries());
    drop(scan);
    let others_for_ever = others();
    let refused = opened.scan(0).next_block(None).await.err();
    assert_eq!(refused.map(|error| error.kind()), Some(ErrorKind::Busy));
    assert_eq!(memory.waiting(), 0);
    drop((others_for_ever, opened));
    assert_eq!(memory.used(), 0);
}

/// A file that is only the root of an index, of this many entries without a key.
fn root_only(entries: usize) -> Vec<u8> {
    let content = vec![0; entries * 13];
    let length = |bytes: usize| (bytes as u32).to_be_bytes();
    let mut bytes = b"IDXROOT2".to_vec();
    bytes.extend([length(content.len()), length(content.len())].concat());
    bytes.extend([0; 8]);
    // No checksums.
    bytes.push(0);
    bytes.extend([length(0), length(33 + content.len())].concat());
    bytes.extend(content);
    let trailer = TrailerMessage {
        // One more than there are.
        data_index_count: Some(entries as u32 + 1),
        ..TrailerMessage::default()
    };
    let mut end = [&crate::TRAILER_MAGIC[..], &trailer.encode_length_delimited_to_vec()].concat();
    end.resize(4092, 0);
    bytes.extend(end);
    bytes.extend([3, 0, 0, 3]);
    bytes
}

/// Entries of 13 bytes take several times that when they are decoded.
#[tokio::test]
async fn memory_is_taken_before_the_root_of_the_index_is_decoded() {
    let bytes = Bytes::from(root_only(10_000));
    let open = async |limit: usize| {
        let memory = Pool::default().limited(Part::Requests, limit).of(Part::Requests);
        let opened = HFile::open(file(bytes.clone()), &BlockMemory::now(&memory)).await;
        opened.err().map(|error| error.kind())
    };
    // The block with its content before compression.
    let block = 2 * bytes.len();
    assert_eq!(
        open(block).await,
        Some(ErrorKind::Busy),
        "decoded, the missing entry would be the error"
    );
    assert_eq!(open(block + 1_000_000).await, Some(ErrorKind::InvalidArgument));
}

#[test]
fn other_files_are_refused() {
    let kind = |bytes: &[u8]| read_all(bytes).unwrap_err().kind();
    assert_eq!(kind(b""), ErrorKind::InvalidArgument);
    assert_eq!(kind(&[7; 5000]), ErrorKind::InvalidArgument);
    let (_, bytes) = SAMPLES[0];
    let mut old = bytes.to_vec();
    let version = old.len() - 4;
    old[version..].copy_from_slice(&[0, 0, 0, 2]);
    assert_eq!(kind(&old), ErrorKind::Unimplemented);
}

#[test]
fn no_part_of_a_file_is_read_as_one() {
    for (name, bytes) in SAMPLES.iter().chain(SAMPLES_WITH_TAGS) {
        assert!(read_all(bytes).is_ok());
        for cut in (0..bytes.len()).step_by(7) {
            assert!(read_all(&bytes[..cut]).is_err(), "{name} cut at {cut}");
        }
    }
}

/// Every changed byte of a block with checksums is found.
#[test]
fn damage_is_found_and_named() {
    for (name, bytes) in [SAMPLES[3], SAMPLES[13]] {
        for at in (33..2_000).step_by(11) {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 0x40;
            let read = read_all(&damaged);
            let is_named = matches!(&read, Err(HFileError::Corrupt { detail, .. }) if !detail.is_empty());
            assert!(is_named, "{name} at {at}: {read:?}");
        }
    }
}

/// The blocks of the sample without checksums reach the decoders as they are.
fn changed(name: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let (_, bytes) = SAMPLES
        .iter()
        .chain(SAMPLES_WITH_TAGS)
        .find(|(other, _)| *other == name)
        .unwrap();
    let changes = proptest::collection::vec((0..bytes.len(), any::<u8>()), 1..6);
    changes.prop_map(|changes| {
        let mut bytes = bytes.to_vec();
        without_checksums(&mut bytes);
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn arbitrary_changes_cause_no_panic(
        prefix in changed("prefix"), diff in changed("diff"), fast in changed("fast_diff"), rows in changed("row_index_v1"),
        tags in changed("tags_compressed"), index in changed("deep_index"), snappy in changed("codec_snappy"),
    ) {
        for bytes in [prefix, diff, fast, rows, tags, index, snappy] {
            let _ = read_all(&bytes);
        }
    }

    #[test]
    fn arbitrary_blocks_cause_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), encoding in 0..8u8) {
        decode_block(&bytes);
        let encoded = [&[bytes.len() as u8 | 8, 0, encoding, 0, 0, 1, 0][..], &bytes].concat();
        decode_block(&encoded);
    }
}
