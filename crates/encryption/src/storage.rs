//! A storage that encrypts the files of the one below it.

use crate::append::EncryptedAppend;
use crate::cipher::NONCE_BYTES;
use crate::error::EncryptionError;
use crate::header::{Beginning, FileHeader, HEADER_BYTES, beginning};
use crate::keyring::{KeyRing, RingKey};
use crate::read::EncryptedRead;
use crate::record::{DIRECTORY, KeyName, is_plain};
use crate::remembered::Remembered;
use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use stele_storage::{AppendFile, FileInfo, ReadFile, Result, Storage, StorageError};
use stele_types::TableId;

const HEADER: u64 = HEADER_BYTES as u64;

/// Beginnings of files that a listing reads concurrently.
const READ_CONCURRENTLY: usize = 16;

/// Encrypts all files of a root, but those that [`is_plain`]. Shows their contents, and files from before encryption.
pub struct EncryptedStorage {
    below: Arc<dyn Storage>,
    keys: Arc<KeyRing>,
    /// No file is from before encryption.
    is_uniform: bool,
    remembered: Mutex<Remembered>,
}

impl EncryptedStorage {
    /// The root that has the keys.
    pub fn of_root(below: Arc<dyn Storage>, keys: Arc<KeyRing>) -> Arc<EncryptedStorage> {
        let is_uniform = keys.is_fresh();
        Arc::new(Self::new(below, keys, is_uniform))
    }

    /// Another root, under the keys of a root.
    pub fn beside(below: Arc<dyn Storage>, keys: Arc<KeyRing>) -> Arc<EncryptedStorage> {
        Arc::new(Self::new(below, keys, false))
    }

    fn new(below: Arc<dyn Storage>, keys: Arc<KeyRing>, is_uniform: bool) -> EncryptedStorage {
        EncryptedStorage {
            below,
            keys,
            is_uniform,
            remembered: Mutex::default(),
        }
    }

    async fn key_for(&self, name: KeyName) -> Result<Arc<RingKey>> {
        self.keys.writing(name).await.map_err(EncryptionError::into_storage)
    }

    async fn create_under(&self, path: &str, name: KeyName) -> Result<Box<dyn AppendFile>> {
        check_free(path)?;
        if is_plain(path) {
            return self.below.create(path).await;
        }
        let key = self.key_for(name).await?;
        let mut nonce = [0; NONCE_BYTES];
        self.keys.fill(&mut nonce, path)?;
        let file = self.below.create(path).await?;
        self.remember(path, true);
        Ok(Box::new(EncryptedAppend::new(file, key, nonce)))
    }

    /// Shows the content of an open file.
    async fn shown(&self, path: &str, file: Arc<dyn ReadFile>) -> Result<Arc<dyn ReadFile>> {
        if is_plain(path) {
            return Ok(file);
        }
        let header = match read_beginning(&*file).await? {
            Beginning::Plain => return Ok(file),
            Beginning::Empty => {
                let key = self
                    .keys
                    .reading(KeyName::Root)
                    .await
                    .map_err(EncryptionError::into_storage)?;
                return Ok(Arc::new(EncryptedRead::new(file, key, [0; NONCE_BYTES])));
            }
            Beginning::Encrypted(header) => header,
            Beginning::Damaged(detail) => return Err(lost(path, detail)),
        };
        let key = self.key_of(path, &header).await?;
        Ok(Arc::new(EncryptedRead::new(file, key, header.nonce)))
    }

    async fn key_of(&self, path: &str, header: &FileHeader) -> Result<Arc<RingKey>> {
        let key = self.keys.reading(header.key).await;
        let key = key.map_err(EncryptionError::into_storage)?;
        match header.is_by(&key.content) {
            true => Ok(key),
            false => Err(lost(
                path,
                "it was encrypted in another data root, or with a key that is gone",
            )),
        }
    }

    fn remember(&self, path: &str, is_encrypted: bool) {
        if !self.is_uniform {
            self.remembered.lock().insert(path, is_encrypted);
        }
    }

    fn forget(&self, path: &str) {
        if !self.is_uniform {
            self.remembered.lock().remove(path);
        }
    }

    /// A listed file with the length of its content.
    async fn with_content_len(&self, file: FileInfo) -> Result<FileInfo> {
        let FileInfo { path, len } = file;
        if len == 0 || is_plain(&path) {
            return Ok(FileInfo { path, len });
        }
        let known = self.remembered.lock().get(&path);
        let is_encrypted = match known {
            _ if self.is_uniform => true,
            Some(known) => known,
            // The header alone: a cache of an object store would fetch and keep a chunk of the file.
            None => match self.below.open_known(&path, len, 0..HEADER).await {
                Ok(file) => match read_beginning(&*file).await {
                    Ok(beginning) => {
                        let is_encrypted = beginning != Beginning::Plain;
                        self.remember(&path, is_encrypted);
                        is_encrypted
                    }
                    // One damaged file must not hide all others.
                    Err(StorageError::Unreadable { .. }) => true,
                    Err(error) => return Err(error),
                },
                // Deleted since.
                Err(StorageError::NotFound { .. }) => true,
                Err(error) => return Err(error),
            },
        };
        let len = if is_encrypted { len.saturating_sub(HEADER) } else { len };
        Ok(FileInfo { path, len })
    }

    fn check_and_forget(&self, paths: &[String]) -> Result<()> {
        paths.iter().try_for_each(|path| check_free(path))?;
        paths.iter().for_each(|path| self.forget(path));
        Ok(())
    }
}

/// Refuses the paths of data keys.
fn check_free(path: &str) -> Result<()> {
    match path.starts_with(DIRECTORY) {
        false => Ok(()),
        true => Err(StorageError::InvalidPath { path: path.to_owned() }),
    }
}

fn lost(path: &str, detail: &'static str) -> StorageError {
    StorageError::Lost {
        path: path.to_owned(),
        detail,
    }
}

async fn read_beginning(file: &dyn ReadFile) -> Result<Beginning> {
    let len = file.len().min(HEADER) as usize;
    let first = match file.try_read_at(0, len) {
        Some(read) => read?,
        None => file.read_at(0, len).await?,
    };
    Ok(beginning(file.path(), &first))
}

#[async_trait]
impl Storage for EncryptedStorage {
    async fn create(&self, path: &str) -> Result<Box<dyn AppendFile>> {
        self.create_under(path, KeyName::Root).await
    }

    async fn create_of_table(&self, path: &str, table: TableId) -> Result<Box<dyn AppendFile>> {
        self.create_under(path, KeyName::Table(table)).await
    }

    async fn open(&self, path: &str) -> Result<Arc<dyn ReadFile>> {
        check_free(path)?;
        let file = self.below.open(path).await?;
        self.shown(path, file).await
    }

    async fn open_known(&self, path: &str, len: u64, first: Range<u64>) -> Result<Arc<dyn ReadFile>> {
        check_free(path)?;
        let (len, start, end) = match is_plain(path) {
            true => (len, first.start, first.end),
            false => (
                len.saturating_add(HEADER),
                first.start.saturating_add(HEADER),
                first.end.saturating_add(HEADER),
            ),
        };
        let file = self.below.open_known(path, len, start..end).await?;
        self.shown(path, file).await
    }

    async fn put_if_absent(&self, path: &str, content: Bytes) -> Result<()> {
        check_free(path)?;
        if is_plain(path) || content.is_empty() {
            return self.below.put_if_absent(path, content).await;
        }
        let key = self.key_for(KeyName::Root).await?;
        let mut nonce = [0; NONCE_BYTES];
        self.keys.fill(&mut nonce, path)?;
        let mut sealed = Vec::with_capacity(HEADER_BYTES + content.len());
        sealed.extend_from_slice(&FileHeader::new(key.name, &key.content, nonce).encode());
        sealed.extend_from_slice(&content);
        key.content
            .apply(&nonce, 0, sealed.get_mut(HEADER_BYTES..).unwrap_or_default());
        self.below.put_if_absent(path, sealed.into()).await?;
        self.remember(path, true);
        Ok(())
    }

    async fn list(&self, prefix: &str) -> Result<Vec<FileInfo>> {
        let mut files = self.below.list(prefix).await?;
        files.retain(|file| !file.path.starts_with(DIRECTORY));
        if self.is_uniform {
            for file in files.iter_mut().filter(|file| !is_plain(&file.path)) {
                file.len = file.len.saturating_sub(HEADER);
            }
            return Ok(files);
        }
        self.remembered.lock().keep_listed(prefix, &files);
        let shown = files.into_iter().map(|file| self.with_content_len(file));
        futures::stream::iter(shown)
            .buffered(READ_CONCURRENTLY)
            .try_collect()
            .await
    }

    async fn delete(&self, path: &str) -> Result<()> {
        check_free(path)?;
        self.forget(path);
        self.below.delete(path).await
    }

    async fn delete_all(&self, paths: &[String]) -> Result<()> {
        self.check_and_forget(paths)?;
        self.below.delete_all(paths).await
    }

    async fn discard(&self, path: &str) -> Result<()> {
        check_free(path)?;
        self.forget(path);
        self.below.discard(path).await
    }

    async fn discard_all(&self, paths: &[String]) -> Result<()> {
        self.check_and_forget(paths)?;
        self.below.discard_all(paths).await
    }

    async fn sync_file(&self, path: &str) -> Result<()> {
        self.below.sync_file(path).await
    }

    async fn inherit(&self) -> Result<bool> {
        self.below.inherit().await
    }

    async fn free_bytes(&self) -> Result<Option<u64>> {
        self.below.free_bytes().await
    }

    fn keeps_appends(&self) -> bool {
        self.below.keeps_appends()
    }

    fn owner_epoch(&self) -> Option<u64> {
        self.below.owner_epoch()
    }

    async fn confirm_owner(&self) -> Result<()> {
        self.below.confirm_owner().await
    }

    fn stored(&self) -> Option<&dyn Storage> {
        Some(&*self.below)
    }

    /// Without opening the file: an object store answers one request.
    async fn read_all(&self, path: &str) -> Result<Bytes> {
        check_free(path)?;
        let content = self.below.read_all(path).await?;
        if is_plain(path) {
            return Ok(content);
        }
        let first = content.get(..content.len().min(HEADER_BYTES)).unwrap_or_default();
        let header = match beginning(path, first) {
            Beginning::Plain => return Ok(content),
            Beginning::Empty => return Ok(Bytes::new()),
            Beginning::Encrypted(header) => header,
            Beginning::Damaged(detail) => return Err(lost(path, detail)),
        };
        let key = self.key_of(path, &header).await?;
        let mut plain = content.get(HEADER_BYTES..).unwrap_or_default().to_vec();
        key.content.apply(&header.nonce, 0, &mut plain);
        Ok(plain.into())
    }
}

#[cfg(test)]
pub(crate) mod tests;
