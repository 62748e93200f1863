use super::*;
use crate::values::file::{ValueFile, check, inspect};
use crate::values::writer::ValueWriter;
use async_trait::async_trait;
use bytes::Bytes;
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use stele_storage::memory::MemoryStorage;
use stele_storage::{ReadFile, Storage, StorageError};
use stele_types::{Compression, ErrorKind};

const GOLDEN: &[u8] = include_bytes!("../../testdata/v1.val");
const ID: FileId = FileId(3 << 32 | 8);

fn values() -> [Bytes; 3] {
    [
        Bytes::from_static(b"a value"),
        Bytes::new(),
        Bytes::from(b"compressible ".repeat(40)),
    ]
}

async fn written() -> (Bytes, Vec<ValueRef>) {
    let storage = MemoryStorage::new();
    let file = storage.create("file").await.unwrap();
    let mut writer = ValueWriter::new(file, ID, Compression::Lz4, 1);
    let references = values().iter().map(|value| writer.add(value)).collect();
    let len = writer.finish().await.unwrap();
    let content = storage.read_all("file").await.unwrap();
    assert_eq!(content.len() as u64, len);
    (content, references)
}

async fn open(content: &[u8]) -> Arc<dyn ReadFile> {
    let storage = MemoryStorage::new();
    storage
        .put_if_absent("file", Bytes::copy_from_slice(content))
        .await
        .unwrap();
    storage.open("file").await.unwrap()
}

#[tokio::test]
async fn files_are_written_and_read_as_ever() {
    let (content, references) = written().await;
    if std::env::var_os("WRITE_GOLDEN").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/v1.val");
        #[allow(clippy::disallowed_methods, reason = "writes the golden file on request")]
        std::fs::write(path, &content).unwrap();
    }
    assert!(content == GOLDEN, "the bytes of a value file have changed");
    let file = ValueFile::open(open(GOLDEN).await, ID).await.unwrap();
    for (reference, value) in references.into_iter().zip(values()) {
        assert_eq!(ValueRef::decode(&reference.encode()), Some(reference));
        assert_eq!(file.read(reference).await.unwrap(), value);
    }
    assert!(file.damage().is_none());
    let text = inspect(open(GOLDEN).await, true).await.unwrap();
    assert!(text.contains("3 records") && text.contains("compression Lz4"), "{text}");
    assert!(ValueFile::open(open(GOLDEN).await, FileId(1)).await.is_err());
}

/// With any bit flipped, opening fails, or the check finds it, and a value is the right one or an error naming the
/// file.
#[tokio::test]
async fn a_flipped_bit_is_found() {
    let (content, references) = written().await;
    for at in 0..content.len() {
        let mut rotten = content.to_vec();
        rotten[at] ^= 1 << (at % 8);
        let file = open(&rotten).await;
        let found = check(&*file, ID, |_| {}, |_, _, _| {}).await;
        let found = found.map_or_else(|error| vec![error], |checked| checked.findings);
        assert!(!found.is_empty(), "byte {at}");
        assert!(inspect(file.clone(), false).await.is_err(), "byte {at}");
        let opened = ValueFile::open_or_damaged(Ok(file), "file", ID).await;
        let Ok(opened) = opened else { continue };
        for (reference, value) in references.iter().zip(values()) {
            match opened.read(*reference).await {
                Ok(read) => assert_eq!(read, value, "byte {at}"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corruption);
                    assert!(error.to_string().starts_with("file"), "{error}");
                    assert!(opened.damage().is_some());
                }
            }
        }
    }
}

/// Bytes at the front of a file cost no value: the magic, the checksum, the number, and bytes that the device cannot
/// read.
#[tokio::test]
async fn a_damaged_header_costs_no_value() {
    let (content, references) = written().await;
    let storage = MemoryStorage::new();
    for at in [0, 12, 16] {
        let mut rotten = content.to_vec();
        rotten[at] ^= 1;
        let path = format!("rotten{at}");
        storage.put_if_absent(&path, rotten.into()).await.unwrap();
    }
    storage.put_if_absent("unread", content).await.unwrap();
    storage.make_unreadable("unread", 0..1);
    for (path, is_unopened) in [
        ("rotten0", false),
        ("rotten12", false),
        ("rotten16", false),
        ("unread", true),
    ] {
        let file = storage.open(path).await.unwrap();
        let checked = check(&*file, ID, |_| {}, |_, _, _| {}).await.unwrap();
        assert_eq!((checked.findings.len(), checked.records), (1, 3), "{path}");
        let opened = ValueFile::open_or_damaged(Ok(file), path, ID).await.unwrap();
        for (reference, value) in references.iter().zip(values()) {
            assert_eq!(opened.read(*reference).await.unwrap(), value, "{path}");
        }
        assert!(opened.damage().is_some(), "{path} is not to be collected");
        assert_eq!(
            (opened.is_unopened(), opened.is_open()),
            (is_unopened, !is_unopened),
            "{path}"
        );
    }
}

#[tokio::test]
async fn references_to_elsewhere_are_refused() {
    let (content, references) = written().await;
    let file = ValueFile::open(open(&content).await, ID).await.unwrap();
    let sound = references[0];
    for wrong in [
        ValueRef { offset: 0, ..sound },
        ValueRef {
            offset: u64::MAX,
            ..sound
        },
        ValueRef {
            offset: sound.offset + 1,
            ..sound
        },
        ValueRef {
            payload_len: 8,
            ..sound
        },
        ValueRef {
            payload_len: u32::MAX,
            ..sound
        },
        ValueRef { value_len: 1, ..sound },
        ValueRef {
            crc: !sound.crc,
            ..sound
        },
        ValueRef {
            offset: references[1].offset,
            ..sound
        },
    ] {
        let error = file.read(wrong).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{wrong:?}");
    }
    let missing = stele_storage::StorageError::NotFound {
        path: "file".to_owned(),
    };
    let gone = ValueFile::open_or_damaged(Err(missing), "file", ID).await.unwrap();
    assert!(gone.read(sound).await.unwrap_err().to_string().contains("missing"));
}

#[tokio::test]
async fn a_later_version_is_no_damage() {
    let (content, _) = written().await;
    let mut later = content.to_vec();
    later[8] = 2;
    let error = ValueFile::open(open(&later).await, ID).await.unwrap_err();
    assert_ne!(error.kind(), ErrorKind::Corruption, "{error}");
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..100), offset in any::<u64>()) {
        let _ = decode_header(&bytes);
        let _ = decode_record(ID, offset, &bytes);
        let _ = record_len(&bytes);
        if let Some(reference) = ValueRef::decode(&bytes) {
            prop_assert_eq!(&reference.encode()[..], &bytes[..]);
        }
    }
}

/// A file that the device cannot read during an outage, and that counts its reads.
struct Unsteady {
    file: Arc<dyn ReadFile>,
    is_outage: AtomicBool,
    reads: AtomicU64,
}

#[async_trait]
impl ReadFile for Unsteady {
    async fn read_at(&self, offset: u64, len: usize) -> stele_storage::Result<Bytes> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        if self.is_outage.load(Ordering::Relaxed) {
            return Err(StorageError::Unreadable {
                path: self.path().to_owned(),
                offset,
                message: "an outage".to_owned(),
            });
        }
        self.file.read_at(offset, len).await
    }

    fn try_read_at(&self, _: u64, _: usize) -> Option<stele_storage::Result<Bytes>> {
        None
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn path(&self) -> &str {
        self.file.path()
    }
}

/// Opening a file also reads its first part, where that is a request. Reading it again would be a request of half a
/// MiB, for each file of a start.
#[tokio::test]
async fn to_open_a_file_reads_its_header_once() {
    let (content, references) = written().await;
    let counted = Arc::new(Unsteady {
        file: open(&content).await,
        is_outage: AtomicBool::new(false),
        reads: AtomicU64::new(0),
    });
    let file = ValueFile::open_or_damaged(Ok(counted.clone()), "file", ID).await;
    assert_eq!(counted.reads.load(Ordering::Relaxed), 1);
    assert_eq!(file.unwrap().read(references[0]).await.unwrap(), values()[0]);
}

/// Or its garbage would stay until the next start.
#[tokio::test]
async fn what_an_outage_did_not_read_is_damaged_no_longer_than_that() {
    let (content, references) = written().await;
    let device = Arc::new(Unsteady {
        file: open(&content).await,
        is_outage: AtomicBool::new(false),
        reads: AtomicU64::new(0),
    });
    let file = ValueFile::open(device.clone(), ID).await.unwrap();
    device.is_outage.store(true, Ordering::Relaxed);
    let error = file.read(references[0]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    file.try_unreadable().await;
    assert!(file.is_unread() && file.damage().is_some() && !file.is_unopened());

    device.is_outage.store(false, Ordering::Relaxed);
    assert_eq!(file.read(references[0]).await.unwrap(), values()[0]);
    file.try_unreadable().await;
    assert!(!file.is_unread() && file.damage().is_none());
}
