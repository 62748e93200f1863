//! The calls to HDFS that files are made of.
//!
//! Real clusters are called by [`crate::native`]; a simulation has an implementation of its own. Paths are absolute. Callers limit each
//! call in time. They repeat it where that is safe, so an implementation repeats nothing.

pub use crate::fault::Fault;
use async_trait::async_trait;
use bytes::Bytes;

/// The result of a call.
pub type Result<T> = std::result::Result<T, Fault>;

/// The properties of a new file.
#[derive(Clone, Copy, Debug)]
pub struct NewFile {
    /// `None` takes the cluster's default.
    pub replication: Option<u32>,
    /// Unix permission bits.
    pub permission: u32,
    /// Whether missing directories above it are made.
    pub makes_directories: bool,
}

/// The NameNode's knowledge of a file or a directory.
#[derive(Clone, Copy, Debug)]
pub struct Status {
    /// Bytes. Of a file that is being written, those of its last sync.
    pub len: u64,
    /// The time of the last change.
    pub modified_millis: u64,
    /// Replicas of a file.
    pub replication: Option<u32>,
    /// Whether it is a directory.
    pub is_directory: bool,
}

/// A client of one NameNode and its DataNodes.
#[async_trait]
pub trait Client: Send + Sync + 'static {
    /// Begins a file that does not exist, and takes its lease.
    async fn create(&self, path: &str, file: NewFile) -> Result<Box<dyn FileWriter>>;

    /// Reads the places of a file's blocks.
    async fn open(&self, path: &str) -> Result<Box<dyn FileReader>>;

    /// The status of a file or a directory.
    async fn status(&self, path: &str) -> Result<Status>;

    /// The names in a directory, with their status.
    async fn list(&self, path: &str) -> Result<Vec<(String, Status)>>;

    /// Deletes a file, an empty directory, or a directory with its content. Something that does not exist is no error.
    async fn delete(&self, path: &str, with_content: bool) -> Result<()>;

    /// Gives a file a name that is free. The NameNode tests first that the source exists.
    async fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// Takes the lease of a file from its writer; `true` once the file is closed. `AlreadyExists` while the writer closes it.
    async fn recover_lease(&self, path: &str) -> Result<bool>;

    /// Makes a directory and those above it, unless they exist.
    async fn make_directory(&self, path: &str, permission: u32) -> Result<()>;
}

/// A file that is being written. After a failure it can only be dropped.
#[async_trait]
pub trait FileWriter: Send {
    /// Appends bytes, which may stay in this process until the next sync.
    async fn write(&mut self, bytes: Bytes) -> Result<()>;

    /// Has every DataNode of the pipeline call `fsync`. Then the NameNode notes the length, if this writer still has the lease.
    async fn sync(&mut self) -> Result<()>;

    /// Syncs, and closes the file.
    async fn close(&mut self) -> Result<()>;
}

/// A file with the places of its blocks.
#[async_trait]
pub trait FileReader: Send + Sync {
    /// Bytes in finished blocks.
    fn length(&self) -> u64;

    /// Reads bytes within the file.
    async fn read(&self, offset: u64, len: usize) -> Result<Bytes>;
}
