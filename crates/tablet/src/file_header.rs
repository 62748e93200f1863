//! The header of manifests, of parts of snapshots and of documents of backups.
//!
//! It has a magic number, a version, the length of the payload, and a checksum.
//!
//! Byte tables: `docs/formats/manifest.md`, `docs/formats/snapshot.md`, `docs/formats/backup.md`. The checksum covers the header before it and the payload.

use crate::error::{Result, TabletError};
use bytes::{BufMut, Bytes, BytesMut};
use std::sync::Arc;

/// Bytes before the payload.
pub(crate) const HEADER_BYTES: usize = 20;

/// A kind of file with this header.
#[derive(Clone, Copy, Debug)]
pub struct FileKind {
    /// The first bytes.
    pub magic: [u8; 8],
    /// The newest version that this program reads.
    pub version_max: u32,
    /// Largest payload.
    pub bytes_max: usize,
    /// Its name in errors, with an article.
    pub name: &'static str,
}

impl FileKind {
    /// A whole file.
    pub fn encode(&self, version: u32, payload: &[u8]) -> Bytes {
        debug_assert!(payload.len() <= self.bytes_max, "a file that is written can be read");
        let mut out = BytesMut::with_capacity(HEADER_BYTES + payload.len());
        out.put_slice(&self.magic);
        out.put_u32_le(version);
        out.put_u32_le(payload.len() as u32);
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&out);
        hasher.update(payload);
        out.put_u32_le(hasher.finalize());
        assert_eq!(out.len(), HEADER_BYTES, "the payload begins behind the header");
        out.put_slice(payload);
        out.freeze()
    }

    /// Decodes the payload of a whole file, once its header is valid; `path` is for errors.
    pub fn decode<M>(
        &self,
        path: &str,
        bytes: &[u8],
        decode: impl FnOnce(&[u8]) -> std::result::Result<M, prost::DecodeError>,
    ) -> Result<M> {
        let corruption = |detail: &str| TabletError::Corruption {
            path: Arc::from(path),
            detail: detail.to_owned(),
        };
        let (header, payload) = bytes
            .split_at_checked(HEADER_BYTES)
            .ok_or_else(|| corruption("shorter than its header"))?;
        let field = |at: usize| -> u32 {
            let bytes = header.get(at..at + 4).and_then(|b| b.try_into().ok());
            bytes.map_or(0, u32::from_le_bytes)
        };
        if header.get(..8) != Some(&self.magic) {
            return Err(corruption(&format!("not {}: wrong magic", self.name)));
        }
        if field(8) > self.version_max {
            return Err(TabletError::TooNew {
                path: Arc::from(path),
                found: field(8),
                supported: self.version_max,
            });
        }
        if field(12) as usize != payload.len() || payload.len() > self.bytes_max {
            return Err(corruption("the length in the header is not the length of the payload"));
        }
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(header.get(..16).unwrap_or_default());
        hasher.update(payload);
        if hasher.finalize() != field(16) {
            return Err(corruption("the checksum does not match"));
        }
        decode(payload).map_err(|e| corruption(&format!("checksum right, content not decodable: {e}")))
    }
}
