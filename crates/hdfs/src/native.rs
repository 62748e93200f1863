//! The client of real clusters.

use crate::client::{Client, FileReader, FileWriter, NewFile, Result, Status};
use crate::fault::Fault;
use async_trait::async_trait;
use bytes::Bytes;
use hdfs_native::client::FileStatus;
use hdfs_native::{WriteOptions, file};

/// The client library.
pub(crate) struct Native(pub(crate) hdfs_native::Client);

impl From<&FileStatus> for Status {
    fn from(status: &FileStatus) -> Status {
        Status {
            len: status.length as u64,
            modified_millis: status.modification_time,
            replication: status.replication,
            is_directory: status.isdir,
        }
    }
}

#[async_trait]
impl Client for Native {
    async fn create(&self, path: &str, file: NewFile) -> Result<Box<dyn FileWriter>> {
        let options = WriteOptions {
            replication: file.replication,
            permission: file.permission,
            create_parent: file.makes_directories,
            ..WriteOptions::default()
        };
        let writer = self.0.create(path, &options).await?;
        Ok(Box::new(Writer(writer)))
    }

    async fn open(&self, path: &str) -> Result<Box<dyn FileReader>> {
        let reader = self.0.read(path).await?;
        Ok(Box::new(Reader(reader)))
    }

    async fn status(&self, path: &str) -> Result<Status> {
        Ok(Status::from(&self.0.get_file_info(path).await?))
    }

    async fn list(&self, path: &str) -> Result<Vec<(String, Status)>> {
        let listed = self.0.list_status(path, false).await?;
        // The listing of a file is the file itself, under an empty name.
        let named = listed.iter().filter_map(|status| {
            let name = status.path.strip_prefix(path)?.strip_prefix('/')?;
            debug_assert!(!name.contains('/'), "a listing shows one directory");
            Some((name.to_owned(), Status::from(status)))
        });
        Ok(named.collect())
    }

    async fn delete(&self, path: &str, with_content: bool) -> Result<()> {
        self.0.delete(path, with_content).await?;
        Ok(())
    }

    async fn rename(&self, from: &str, to: &str) -> Result<()> {
        Ok(self.0.rename(from, to, false).await?)
    }

    async fn recover_lease(&self, path: &str) -> Result<bool> {
        Ok(self.0.recover_lease(path).await?)
    }

    async fn make_directory(&self, path: &str, permission: u32) -> Result<()> {
        Ok(self.0.mkdirs(path, permission, true).await?)
    }
}

struct Writer(file::FileWriter);

#[async_trait]
impl FileWriter for Writer {
    async fn write(&mut self, bytes: Bytes) -> Result<()> {
        self.0.write_bytes(bytes).await?;
        Ok(())
    }

    async fn sync(&mut self) -> Result<()> {
        Ok(self.0.hsync().await?)
    }

    async fn close(&mut self) -> Result<()> {
        Ok(self.0.close().await?)
    }
}

struct Reader(file::FileReader);

#[async_trait]
impl FileReader for Reader {
    fn length(&self) -> u64 {
        self.0.file_length() as u64
    }

    async fn read(&self, offset: u64, len: usize) -> Result<Bytes> {
        let offset =
            usize::try_from(offset).map_err(|_| Fault::Refused("an offset beyond the address space".to_owned()))?;
        Ok(self.0.read_range(offset, len).await?)
    }
}
