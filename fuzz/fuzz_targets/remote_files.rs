//! Files of storage backends that several processes reach, and of their caches.
//!
//! Names of parts, owner records and chunks have one spelling. Files of parts are read without a gap or refused. A
//! chunk's file is that chunk's or nothing.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeSet;
use stele_hdfs::fuzzing as hdfs;
use stele_objects::fuzzing as objects;
use stele_storage::remote::cache::CHUNK_BYTES;
use stele_storage::remote::cache::chunk::{Chunk, ChunkId};
use stele_storage::remote::owner;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        names(text);
    }
    made_up(bytes);
    listing(bytes);
    chunk(bytes);
});

fn names(text: &str) {
    if let Some((path, number)) = objects::part(text) {
        assert_eq!(objects::part_key(path, number), text);
    }
    if let Some((path, number, open)) = hdfs::piece(text) {
        assert_eq!(hdfs::piece_key(path, number, open), text);
    }
    if let Some(epoch) = owner::parse_record(text) {
        assert_eq!(owner::record_path(epoch), text);
    }
    if let Some(id) = ChunkId::parse(text) {
        assert_eq!(id.file_name(), text);
    }
}

/// Names of any number, of a path that is any text.
fn made_up(bytes: &[u8]) {
    let path = String::from_utf8_lossy(bytes);
    let number = bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    assert_eq!(objects::part(&objects::part_key(&path, number)), Some((&*path, number)));
    for open in [false, true] {
        let key = hdfs::piece_key(&path, number, open);
        assert_eq!(hdfs::piece(&key), Some((&*path, number, open)));
    }
    let number = bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    assert_eq!(owner::parse_record(&owner::record_path(number)), Some(number));
    let id = ChunkId::of(&path, "tag", number);
    assert_eq!(ChunkId::parse(&id.file_name()), Some(id));
}

/// Two bytes are a part or a piece: number, and length with whether it is open.
fn listing(bytes: &[u8]) {
    let (mut numbers, mut names) = (BTreeSet::new(), BTreeSet::new());
    let (mut parts, mut pieces) = (Vec::new(), Vec::new());
    for [number, what] in bytes.as_chunks().0 {
        let (number, len, open) = (u32::from(*number), u64::from(what / 2), what % 2 == 1);
        if numbers.insert(number) {
            parts.push((number, len));
        }
        if names.insert((number, open)) {
            pieces.push((number, len, open));
        }
    }
    objects::parts(&parts);
    let joined = bytes.as_chunks().0.iter().map(|[first, what]| {
        let (first, len) = (u32::from(*first), u64::from(what / 2));
        (first.max(1), first.max(1) + 1 + len as u32 % 4, len)
    });
    objects::extents(&parts, &joined.collect::<Vec<_>>());
    let end = bytes.last().map(|end| u32::from(end / 4));
    for end in [None, end] {
        hdfs::pieces(&pieces, end);
    }
}

fn chunk(bytes: &[u8]) {
    let len = (bytes.len() as u64).min(CHUNK_BYTES);
    let of = |tag, number| Chunk::of("sst/f.sst", tag, number, number * CHUNK_BYTES + len);
    let chunk = of("tag", 1);
    let mut file = chunk.encode(bytes);
    let whole = Bytes::copy_from_slice(&file);
    assert_eq!(
        chunk.decode(&whole).as_deref(),
        Some(bytes).filter(|_| bytes.len() as u64 == len)
    );
    for other in [
        of("tah", 1),
        of("tag", 2),
        Chunk::of("sst/g.sst", "tag", 1, CHUNK_BYTES + len),
    ] {
        assert_eq!(other.decode(&whole), None, "of another chunk");
    }
    assert_eq!(chunk.decode(&whole.slice(..whole.len() - 1)), None, "cut");
    let at = bytes.first().map_or(0, |at| usize::from(*at) % file.len());
    file[at] ^= 1 << (at % 8);
    assert_eq!(chunk.decode(&Bytes::from(file)), None, "byte {at} is another");
    if let Some(content) = chunk.decode(&Bytes::copy_from_slice(bytes)) {
        assert!(bytes.ends_with(&content));
    }
}
