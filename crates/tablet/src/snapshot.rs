//! Snapshots in storage: lists of the manifests of a table at one moment.
//!
//! A *part* is one immutable file with the manifests of some tablets. A snapshot has as many parts as it takes, in the order of
//! the rows; the catalog records how many. The snapshot exists when the catalog says so: its parts are durable before, and are
//! deleted after the catalog has forgotten it. Byte table: `docs/formats/snapshot.md`.
//!
//! Invariants:
//! * The number of a snapshot is never used again, so a part that exists is complete and of that snapshot.
//! * A part holds one manifest at least, and more only up to [`PART_BYTES`].

use crate::error::{Result, TabletError};
use crate::file_header::FileKind;
use crate::manifest::{FileRef, Manifest, StoredFile};
use bytes::Bytes;
use prost::Message;
use std::sync::Arc;
use stele_storage::{Storage, StorageError};
use stele_types::SnapshotId;

/// The first bytes of a part.
pub const MAGIC: [u8; 8] = *b"STELESNP";
const VERSION: u32 = 1;
/// The directory of all snapshots.
pub const DIRECTORY: &str = "snapshots/";
/// Bytes of manifests after which a part is ended: a thousand tablets of a few files each, and little enough to hold.
const PART_BYTES: usize = 1 << 20;
/// Largest payload: one manifest of the largest size, with its tag and the numbers.
const BYTES_MAX: usize = (64 << 20) + (64 << 10);

const KIND: FileKind = FileKind {
    magic: MAGIC,
    version_max: VERSION,
    bytes_max: BYTES_MAX,
    name: "a part of a snapshot",
};

/// One part of a snapshot.
#[derive(Clone, PartialEq, Message)]
pub struct SnapshotPart {
    /// Which snapshot.
    #[prost(uint64, tag = "1")]
    pub snapshot: u64,
    /// The number of the part, from 0 on.
    #[prost(uint32, tag = "2")]
    pub part: u32,
    /// The manifests of its tablets, in row order.
    #[prost(message, repeated, tag = "3")]
    pub tablets: Vec<Manifest>,
}

impl SnapshotPart {
    /// Encodes with header and checksum.
    pub fn encode_file(&self) -> Bytes {
        KIND.encode(VERSION, &self.encode_to_vec())
    }

    /// Decodes a whole file; `path` is for errors.
    pub fn decode_file(path: &str, bytes: &[u8]) -> Result<SnapshotPart> {
        KIND.decode(path, bytes, |payload| SnapshotPart::decode(payload))
    }

    /// Every reference of its manifests to a stored file, with the bytes of the file; some files more than once.
    pub fn stored(&self) -> impl Iterator<Item = (StoredFile, u64)> + '_ {
        self.tablets.iter().flat_map(stored)
    }
}

/// Every reference of a manifest to a stored file, with the bytes of the file; some files more than once.
pub fn stored(manifest: &Manifest) -> impl Iterator<Item = (StoredFile, u64)> + '_ {
    let of_file = |file: &FileRef| {
        let values = file.values.iter().map(|link| (StoredFile::Values(link.id()), link.len));
        let values: Vec<_> = values.collect();
        std::iter::once((StoredFile::Sstable(file.id()), file.len)).chain(values)
    };
    manifest.all_files().flat_map(of_file)
}

/// Bytes of rows that a manifest refers to, roughly.
pub fn referenced_bytes(manifest: &Manifest) -> u64 {
    let files = manifest.all_files();
    files.map(|file| file.referenced + file.value_bytes()).sum()
}

/// The directory of the parts of a snapshot.
pub fn directory(snapshot: SnapshotId) -> String {
    format!("{DIRECTORY}{:016x}/", snapshot.0)
}

/// The path of a part.
pub fn path(snapshot: SnapshotId, part: u32) -> String {
    format!("{}part-{part:08x}", directory(snapshot))
}

/// The snapshot and the number of a part's path. Accepts only paths that [`path`] makes: no capital digits, no signs.
pub fn parse_path(text: &str) -> Option<(SnapshotId, u32)> {
    let (snapshot, part) = text.strip_prefix(DIRECTORY)?.split_once('/')?;
    let part = u32::from_str_radix(part.strip_prefix("part-")?, 16).ok()?;
    let snapshot = SnapshotId(u64::from_str_radix(snapshot, 16).ok()?);
    (path(snapshot, part) == text).then_some((snapshot, part))
}

/// Writes the parts of a snapshot, one after the other.
pub struct SnapshotWriter {
    storage: Arc<dyn Storage>,
    next: SnapshotPart,
    /// Bytes of its manifests.
    bytes: usize,
}

impl SnapshotWriter {
    /// A writer for a snapshot that has no parts yet.
    pub fn new(storage: Arc<dyn Storage>, snapshot: SnapshotId) -> Self {
        let next = SnapshotPart {
            snapshot: snapshot.0,
            ..SnapshotPart::default()
        };
        SnapshotWriter {
            storage,
            next,
            bytes: 0,
        }
    }

    /// Adds the next tablet in row order.
    pub async fn add(&mut self, manifest: Manifest) -> Result<()> {
        let bytes = manifest.encoded_len();
        if !self.next.tablets.is_empty() && self.bytes + bytes > PART_BYTES {
            self.put().await?;
        }
        self.bytes += bytes;
        self.next.tablets.push(manifest);
        Ok(())
    }

    /// Ends the last part; how many there are.
    pub async fn finish(mut self) -> Result<u32> {
        if !self.next.tablets.is_empty() {
            self.put().await?;
        }
        Ok(self.next.part)
    }

    async fn put(&mut self) -> Result<()> {
        assert!(!self.next.tablets.is_empty(), "a part has a tablet");
        let path = path(SnapshotId(self.next.snapshot), self.next.part);
        let content = self.next.encode_file();
        // A put that failed is not tried again: the snapshot is given up, and another attempt has another number.
        self.storage.put_if_absent(&path, content).await?;
        self.next.part += 1;
        self.next.tablets.clear();
        self.bytes = 0;
        Ok(())
    }
}

/// Reads a part of a snapshot. A part that is missing is damage.
pub async fn read(storage: &dyn Storage, snapshot: SnapshotId, part: u32) -> Result<SnapshotPart> {
    let path = path(snapshot, part);
    let corruption = |detail: &str| TabletError::Corruption {
        path: Arc::from(path.as_str()),
        detail: detail.to_owned(),
    };
    let content = match storage.read_all(&path).await {
        Err(StorageError::NotFound { .. }) => {
            return Err(corruption("the catalog names the snapshot, but the part is missing"));
        }
        content => content?,
    };
    let found = SnapshotPart::decode_file(&path, &content)?;
    if (found.snapshot, found.part) != (snapshot.0, part) {
        return Err(corruption(&format!(
            "describes part {} of snapshot {}",
            found.part, found.snapshot
        )));
    }
    Ok(found)
}

/// Deletes the parts of a snapshot that the catalog does not name.
pub async fn delete(storage: &dyn Storage, snapshot: SnapshotId) -> Result<()> {
    let parts = storage.list(&directory(snapshot)).await?;
    let paths: Vec<String> = parts.into_iter().map(|file| file.path).collect();
    if !paths.is_empty() {
        storage.delete_all(&paths).await?;
    }
    Ok(())
}

/// Prints a part.
pub fn inspect(path: &str, bytes: &[u8]) -> Result<String> {
    let part = SnapshotPart::decode_file(path, bytes)?;
    Ok(format!("{part:#?}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_header::HEADER_BYTES;
    use stele_storage::memory::MemoryStorage;
    use stele_types::{FileId, GroupId};

    fn manifest(tablet: u64, padding: usize) -> Manifest {
        let mut manifest = Manifest {
            tablet,
            start: Bytes::from(vec![b'r'; padding]),
            ..Manifest::default()
        };
        let file = FileRef {
            file: tablet,
            len: 10,
            values: vec![crate::manifest::ValueLink {
                file: 100 + tablet,
                len: 20,
                ..Default::default()
            }],
            ..FileRef::default()
        };
        manifest.set_files(GroupId(0), vec![file]);
        manifest
    }

    #[tokio::test]
    async fn tablets_are_divided_into_parts_and_come_back() {
        let storage = MemoryStorage::new();
        let snapshot = SnapshotId(7);
        let mut writer = SnapshotWriter::new(storage.clone(), snapshot);
        let tablets: Vec<Manifest> = (0..4)
            .map(|n| manifest(n, if n == 1 { 2 * PART_BYTES } else { 8 }))
            .collect();
        for tablet in &tablets {
            writer.add(tablet.clone()).await.unwrap();
        }
        assert_eq!(writer.finish().await.unwrap(), 3);
        let mut found = Vec::new();
        for part in 0..3 {
            found.extend(read(&*storage, snapshot, part).await.unwrap().tablets);
        }
        assert_eq!(found, tablets);
        let missing = read(&*storage, snapshot, 3).await.unwrap_err();
        assert!(missing.to_string().contains("the part is missing"), "{missing}");
        let other = read(&*storage, SnapshotId(8), 0).await.unwrap_err();
        assert_eq!(other.kind(), stele_types::ErrorKind::Corruption);
        delete(&*storage, snapshot).await.unwrap();
        assert!(storage.list(DIRECTORY).await.unwrap().is_empty());
    }

    #[test]
    fn a_part_names_every_file_of_its_tablets() {
        let part = SnapshotPart {
            tablets: vec![manifest(1, 0), manifest(2, 0)],
            ..SnapshotPart::default()
        };
        let stored: Vec<_> = part.stored().collect();
        let sstable = |n| (StoredFile::Sstable(FileId(n)), 10);
        let values = |n| (StoredFile::Values(FileId(n)), 20);
        assert_eq!(stored, [sstable(1), values(101), sstable(2), values(102)]);
    }

    #[test]
    fn damage_is_told_by_its_kind() {
        let good = SnapshotPart {
            snapshot: 1,
            part: 0,
            tablets: vec![manifest(1, 0)],
        };
        let file = good.encode_file();
        assert_eq!(SnapshotPart::decode_file("p", &file).unwrap(), good);
        let changed = |at: usize| {
            let mut bytes = file.to_vec();
            bytes[at] ^= 1;
            SnapshotPart::decode_file("p", &bytes).unwrap_err().to_string()
        };
        assert!(changed(0).contains("magic"));
        assert!(changed(HEADER_BYTES).contains("checksum"));
        assert!(changed(12).contains("length"));
        let mut newer = file.to_vec();
        newer[8] = 9;
        assert!(matches!(
            SnapshotPart::decode_file("p", &newer),
            Err(TabletError::TooNew { .. })
        ));
        assert!(SnapshotPart::decode_file("p", &file[..10]).is_err());
    }

    #[test]
    fn paths_have_one_spelling() {
        let text = path(SnapshotId(0xab), 0xcd);
        assert_eq!(text, "snapshots/00000000000000ab/part-000000cd");
        assert_eq!(parse_path(&text), Some((SnapshotId(0xab), 0xcd)));
        for other in [
            text.replace("ab", "AB"),
            text.replace("00cd", "+0cd"),
            format!("{text}0"),
        ] {
            assert_eq!(parse_path(&other), None, "{other}");
        }
    }
}
