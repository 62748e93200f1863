//! Operations on one directory of HDFS, with time limits and bounded retries. Only operations for which it is safe are
//! retried.
//!
//! Operations that only read, and idempotent ones, are retried after every failure. The creation of a file for writing
//! is retried only when the NameNode did not execute it. A put consists of steps whose outcome can be determined
//! afterwards: see [`Cluster::put_new`].

use crate::HdfsMetrics;
use crate::client::{Client, FileReader, FileWriter, NewFile, Status};
use crate::fault::Fault;
use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use stele_env::Env;
use stele_env::metrics::IntCounter;
use stele_storage::remote::owner::{DIRECTORY, Records};
use stele_storage::{Result, StorageError};

/// Attempts at one operation: with the pauses below, about ten seconds of a NameNode that refuses immediately.
const ATTEMPTS: u32 = 8;
/// The pause after the first failure; it doubles, up to the largest, and half of it is random.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(3);
/// Time limit of a NameNode call. It takes milliseconds; after a failover the client tries the other NameNode, with
/// pauses of its own, for some 15 s.
const CALL_LIMIT: Duration = Duration::from_secs(30);
/// Time limit of a read: three replicas on hosts that are silent for ten seconds each, and their bytes at 1 MiB/s.
const READ_LIMIT: Duration = Duration::from_secs(40);
/// Time limit of a write or a close. The client waits a minute for a silent DataNode, removes it from the pipeline, and
/// may meet a second one.
const WRITE_LIMIT: Duration = Duration::from_secs(150);
/// Time limit of a sync. It takes milliseconds, and 15 s is an eternity to a writer. When a DataNode dies during a
/// sync, the client (0.14.8) deadlocks with its own sender: this limit ends that, and the stream.
const SYNC_LIMIT: Duration = Duration::from_secs(15);
/// Additional time for bytes at the lowest accepted throughput, 1 MiB/s.
const LIMIT_PER_MIB: Duration = Duration::from_secs(1);

/// Attempts at writing the file of a put.
const PUT_ATTEMPTS: u32 = 5;

/// Times that the directory of a put may go before its rename.
const DIRECTORIES_LEFT_MAX: usize = 8;

/// Directories listed concurrently.
const LISTS_CONCURRENT: usize = 16;

/// Directory of unfinished puts, below the root.
pub(crate) const UNFINISHED: &str = "tmp";
/// An unfinished put of this age has no writer: each of its steps is limited to minutes. The rest allows for clock
/// differences.
const UNFINISHED_AGE_MICROS: i64 = 3_600_000_000;

/// Written files belong to the user that writes them.
const PERMISSION: u32 = 0o600;
const DIRECTORY_PERMISSION: u32 = 0o700;

/// A directory of HDFS and the client that reaches it.
#[derive(Clone)]
pub(crate) struct Cluster {
    client: Arc<dyn Client>,
    /// Absolute, without a slash at its end.
    root: String,
    /// `None` takes the cluster's default.
    replication: Option<u32>,
    pub(crate) env: Env,
    pub(crate) metrics: HdfsMetrics,
}

/// The lease of a file that was to be taken from its writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lease {
    /// The file is closed.
    Over,
    /// The writer has lost it, and DataNodes agree on the end of the file.
    Taken,
    /// The writer has it. It closes the file, and the NameNode waits for DataNodes to report the last block.
    Closing,
}

impl Cluster {
    pub(crate) fn new(
        client: Arc<dyn Client>,
        root: &str,
        replication: Option<u32>,
        env: Env,
        metrics: HdfsMetrics,
    ) -> Cluster {
        assert!(
            !root.is_empty() && !root.starts_with('/') && !root.ends_with('/'),
            "the root is a directory without slashes at its ends"
        );
        Cluster {
            client,
            root: format!("/{root}"),
            replication,
            env,
            metrics,
        }
    }

    /// The same for a caller's client.
    pub(crate) fn of_client(client: Arc<dyn Client>, root: &str, env: Env) -> Cluster {
        Self::new(client, root, None, env, HdfsMetrics::default())
    }

    /// The path of a key in HDFS.
    pub(crate) fn absolute(&self, key: &str) -> String {
        debug_assert!(!key.starts_with('/'), "keys are relative to the root");
        if key.is_empty() {
            self.root.clone()
        } else {
            format!("{}/{key}", self.root)
        }
    }

    async fn limited<T>(
        &self,
        limit: Duration,
        operation: impl Future<Output = std::result::Result<T, Fault>>,
    ) -> std::result::Result<T, Fault> {
        match self.env.timeout(limit, operation).await {
            Ok(answer) => answer,
            Err(_) => Err(Fault::Unknown(format!("no answer within {limit:?}"))),
        }
    }

    /// Waits before attempt number `failed + 1`; false when there is none.
    pub(crate) async fn pause(&self, failed: u32) -> bool {
        debug_assert!(failed > 0, "a pause follows a failed attempt");
        if failed >= ATTEMPTS {
            return false;
        }
        self.metrics.retries.inc();
        let pause = (PAUSE_MIN * (1 << failed.min(10))).min(PAUSE_MAX);
        let chance = Duration::from_micros(self.env.random_below(pause.as_micros() as u64 / 2 + 1));
        self.env.sleep(pause / 2 + chance).await;
        true
    }

    /// Retries an idempotent call.
    async fn repeat<T, R: Future<Output = std::result::Result<T, Fault>>>(
        &self,
        counter: &IntCounter,
        call: impl Fn() -> R,
    ) -> std::result::Result<T, Fault> {
        let mut failed = 0;
        loop {
            counter.inc();
            match self.limited(CALL_LIMIT, call()).await {
                Err(fault @ (Fault::Unknown(_) | Fault::Busy(_))) => {
                    failed += 1;
                    if !self.pause(failed).await {
                        return Err(fault);
                    }
                }
                other => return other,
            }
        }
    }

    /// Begins a file that does not exist. After an error other than `AlreadyExists` it may exist, empty.
    pub(crate) async fn create(&self, key: &str, makes_directories: bool) -> Result<Box<dyn FileWriter>> {
        let file = NewFile {
            replication: self.replication,
            permission: PERMISSION,
            makes_directories,
        };
        let path = self.absolute(key);
        let mut failed = 0;
        loop {
            self.metrics.creates.inc();
            match self.limited(CALL_LIMIT, self.client.create(&path, file)).await {
                Err(fault @ Fault::Busy(_)) => {
                    failed += 1;
                    if !self.pause(failed).await {
                        return Err(fault.on(key, "create"));
                    }
                }
                other => return other.map_err(|fault| fault.on(key, "create")),
            }
        }
    }

    /// Hands bytes to the pipeline. Only the next sync or close determines their fate.
    pub(crate) async fn write(&self, key: &str, writer: &mut dyn FileWriter, content: &[Bytes]) -> Result<()> {
        let bytes: usize = content.iter().map(Bytes::len).sum();
        let write = async {
            for slice in content.iter().filter(|slice| !slice.is_empty()) {
                writer.write(slice.clone()).await?;
            }
            Ok(())
        };
        let written = self.limited(limit_of(WRITE_LIMIT, bytes), write).await;
        written.map_err(|fault| fault.on(key, "append"))
    }

    /// Returns when every DataNode of the pipeline has called `fsync`, and the NameNode has the length and confirms
    /// that the file is still ours to write.
    pub(crate) async fn sync(&self, key: &str, writer: &mut dyn FileWriter) -> Result<()> {
        self.metrics.syncs.inc();
        let synced = self.limited(SYNC_LIMIT, writer.sync()).await;
        synced.map_err(|fault| fault.on(key, "sync"))
    }

    /// Finishes a file. The client asks the DataNodes to `fsync` with the last packet of each block, so a closed file is as
    /// durable as a synced one.
    pub(crate) async fn close(&self, key: &str, writer: &mut dyn FileWriter) -> Result<()> {
        self.metrics.closes.inc();
        let closed = self.limited(WRITE_LIMIT, writer.close()).await;
        closed.map_err(|fault| fault.on(key, "close"))
    }

    /// Reads the places of a file's blocks.
    pub(crate) async fn open(&self, key: &str) -> Result<Box<dyn FileReader>> {
        let path = self.absolute(key);
        let found = self.repeat(&self.metrics.opens, || self.client.open(&path)).await;
        found.map_err(|fault| fault.on(key, "open"))
    }

    /// Reads bytes within a file, without a retry; the caller has checked the range.
    pub(crate) async fn read(
        &self,
        reader: &dyn FileReader,
        offset: u64,
        len: usize,
    ) -> std::result::Result<Bytes, Fault> {
        self.metrics.reads.inc();
        self.limited(limit_of(READ_LIMIT, len), reader.read(offset, len)).await
    }

    pub(crate) async fn status(&self, key: &str) -> Result<Status> {
        let path = self.absolute(key);
        let found = self.repeat(&self.metrics.looks, || self.client.status(&path)).await;
        found.map_err(|fault| fault.on(key, "status"))
    }

    /// A file's status; `NotFound` for a directory.
    pub(crate) async fn file_status(&self, key: &str) -> Result<Status> {
        let status = self.status(key).await?;
        if status.is_directory {
            Err(StorageError::NotFound { path: key.to_owned() })
        } else {
            Ok(status)
        }
    }

    /// The entries of a directory, by key; none when it does not exist.
    pub(crate) async fn entries(&self, directory: &str) -> Result<Vec<(String, Status)>> {
        let path = self.absolute(directory);
        let listed = match self.repeat(&self.metrics.lists, || self.client.list(&path)).await {
            Err(Fault::NotFound) => return Ok(Vec::new()),
            listed => listed.map_err(|fault| fault.on(directory, "list"))?,
        };
        let key = |name: String| match directory {
            "" => name,
            directory => format!("{directory}/{name}"),
        };
        Ok(listed.into_iter().map(|(name, status)| (key(name), status)).collect())
    }

    /// All files whose keys begin with `prefix`, with their lengths, without unfinished puts and owner records.
    pub(crate) async fn files(&self, prefix: &str) -> Result<Vec<(String, u64)>> {
        let mut files = Vec::new();
        self.walk(prefix, |_, entries| {
            let found = entries.iter().filter(|(_, status)| !status.is_directory);
            files.extend(found.map(|(key, status)| (key.clone(), status.len)));
        })
        .await?;
        files.retain(|(key, _)| key.starts_with(prefix));
        files.sort_unstable();
        Ok(files)
    }

    /// Removes empty directories. Only before this process writes anything.
    pub(crate) async fn remove_empty_directories(&self) -> Result<()> {
        let mut empty = Vec::new();
        self.walk("", |directory, entries| {
            if entries.is_empty() && !directory.is_empty() {
                empty.push(directory.to_owned());
            }
        })
        .await?;
        for directory in empty {
            let path = self.absolute(&directory);
            // Refused when it is no longer empty; then it stays.
            let _ = self.limited(CALL_LIMIT, self.client.delete(&path, false)).await;
        }
        Ok(())
    }

    /// Lists every directory that can contain keys with this prefix.
    async fn walk(&self, prefix: &str, mut each: impl FnMut(&str, &[(String, Status)])) -> Result<()> {
        let directory = prefix.rsplit_once('/').map_or("", |(directory, _)| directory);
        if prefix.starts_with('/') || directory.split('/').any(|c| c == "." || c == "..") {
            return Ok(());
        }
        let mut level = vec![directory.to_owned()];
        while !level.is_empty() {
            let lists = level.into_iter().map(|directory| async move {
                let entries = self.entries(&directory).await?;
                Ok::<_, StorageError>((directory, entries))
            });
            let mut lists = futures::stream::iter(lists).buffer_unordered(LISTS_CONCURRENT);
            let mut next = Vec::new();
            while let Some((directory, entries)) = lists.try_next().await? {
                each(&directory, &entries);
                let below = entries.into_iter().filter(|(key, status)| {
                    status.is_directory
                        && key.starts_with(prefix)
                        && key != UNFINISHED
                        && !DIRECTORY.starts_with(&**key)
                });
                next.extend(below.map(|(key, _)| key));
            }
            level = next;
        }
        Ok(())
    }

    /// Deletes a file, or a directory with all its content, in one operation.
    pub(crate) async fn delete(&self, key: &str, directory: bool) -> Result<()> {
        assert!(!key.is_empty(), "the root is never deleted");
        let path = self.absolute(key);
        let deleted = self
            .repeat(&self.metrics.deletes, || self.client.delete(&path, directory))
            .await;
        match deleted {
            Ok(()) | Err(Fault::NotFound) => Ok(()),
            Err(fault) => Err(fault.on(key, "delete")),
        }
    }

    /// Removes directories of one tablet or one snapshot that these files were in, if they are empty: each takes space in the NameNode,
    /// and tablets come and go.
    pub(crate) async fn leave(&self, keys: &[String]) {
        let directories: BTreeSet<&str> = keys.iter().filter_map(|key| own_directory(key)).collect();
        for directory in directories {
            assert!(
                directory.contains('/'),
                "neither the root nor the directory of all tablets is removed"
            );
            let path = self.absolute(directory);
            self.metrics.deletes.inc();
            // Refused when it is not empty. Another failure leaves it there, which does no harm.
            let _ = self.limited(CALL_LIMIT, self.client.delete(&path, false)).await;
        }
    }

    /// Gives a file a free name. A caller that retries it must consider the possible effect of an earlier attempt.
    pub(crate) async fn rename(&self, from: &str, to: &str) -> std::result::Result<(), Fault> {
        assert_ne!(from, to, "a rename changes the name");
        self.metrics.renames.inc();
        let (from, to) = (self.absolute(from), self.absolute(to));
        self.limited(CALL_LIMIT, self.client.rename(&from, &to)).await
    }

    /// Takes the lease of a file from its writer.
    pub(crate) async fn recover_lease(&self, key: &str) -> Result<Lease> {
        let path = self.absolute(key);
        let recovered = self
            .repeat(&self.metrics.recoveries, || self.client.recover_lease(&path))
            .await;
        match recovered {
            Ok(true) => Ok(Lease::Over),
            Ok(false) => Ok(Lease::Taken),
            Err(Fault::AlreadyExists) => Ok(Lease::Closing),
            Err(fault) => Err(fault.on(key, "recover lease")),
        }
    }

    async fn make_directory(&self, key: &str) -> Result<()> {
        let path = self.absolute(key);
        let made = self
            .repeat(&self.metrics.directories, || {
                self.client.make_directory(&path, DIRECTORY_PERMISSION)
            })
            .await;
        made.map_err(|fault| fault.on(key, "make directory"))
    }

    /// A name for a file that is not visible yet.
    pub(crate) fn unfinished(&self) -> String {
        let random = (self.env.random_u64(), self.env.random_u64());
        format!("{UNFINISHED}/{:016x}{:016x}", random.0, random.1)
    }

    /// Deletes the files of puts whose processes died long ago.
    pub(crate) async fn remove_unfinished(&self) -> Result<()> {
        let now = self.env.wall_micros();
        for (key, status) in self.entries(UNFINISHED).await? {
            let modified = i64::try_from(status.modified_millis)
                .unwrap_or(i64::MAX)
                .saturating_mul(1_000);
            if now.saturating_sub(modified) > UNFINISHED_AGE_MICROS {
                self.delete(&key, true).await?;
            }
        }
        Ok(())
    }

    /// Creates a whole file that does not exist: it is written and closed under a temporary name, then renamed, which
    /// succeeds for one of many. After an error other than `AlreadyExists` it may exist or not.
    pub(crate) async fn put_new(&self, key: &str, content: &Bytes) -> Result<()> {
        // Avoids writing a file in vain.
        match self.status(key).await {
            Ok(_) => return Err(StorageError::AlreadyExists { path: key.to_owned() }),
            Err(StorageError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        let unfinished = self.write_unfinished(key, content).await?;
        let put = self.put_by_rename(&unfinished, key, content).await;
        if put.is_err() {
            self.discard(&unfinished).await;
        }
        put
    }

    /// Writes the temporary file of a put, and retries failures. A pipeline through a DataNode that has just died
    /// cannot be set up, and the next one may go through others.
    async fn write_unfinished(&self, key: &str, content: &Bytes) -> Result<String> {
        let mut failed = 0;
        loop {
            let unfinished = self.unfinished();
            let error = match self.write_file(&unfinished, content).await {
                Ok(()) => return Ok(unfinished),
                Err(error) => error,
            };
            self.discard(&unfinished).await;
            failed += 1;
            let again = matches!(error, StorageError::Io { .. });
            if !again || failed >= PUT_ATTEMPTS || !self.pause(failed).await {
                return Err(match error {
                    StorageError::NoSpace { .. } => StorageError::NoSpace { path: key.to_owned() },
                    other => StorageError::Io {
                        path: key.to_owned(),
                        operation: "put",
                        message: other.to_string(),
                    },
                });
            }
        }
    }

    async fn write_file(&self, key: &str, content: &Bytes) -> Result<()> {
        let mut writer = self.create(key, true).await?;
        self.write(key, &mut *writer, std::slice::from_ref(content)).await?;
        self.close(key, &mut *writer).await
    }

    /// Deletes an unfinished file and ignores errors; a later owner deletes files that stay.
    async fn discard(&self, key: &str) {
        assert!(
            key.strip_prefix(UNFINISHED).is_some_and(|name| name.starts_with('/')),
            "only unfinished puts are discarded"
        );
        let path = self.absolute(key);
        let _ = self.limited(CALL_LIMIT, self.client.delete(&path, false)).await;
    }

    /// Gives a finished put its name.
    async fn put_by_rename(&self, unfinished: &str, key: &str, content: &Bytes) -> Result<()> {
        debug_assert!(
            !key.starts_with(UNFINISHED),
            "a finished put leaves the directory of unfinished ones"
        );
        if let Some((directory, _)) = key.rsplit_once('/') {
            self.make_directory(directory).await?;
        }
        let (mut failed, mut unknown, mut left) = (0, false, 0..DIRECTORIES_LEFT_MAX);
        loop {
            let fault = match self.rename(unfinished, key).await {
                Ok(()) => return Ok(()),
                // Somebody has left the directory since it was made, and removed it.
                Err(Fault::NotFound) if left.next().is_some() && self.status(unfinished).await.is_ok() => {
                    if let Some((directory, _)) = key.rsplit_once('/') {
                        self.make_directory(directory).await?;
                    }
                    continue;
                }
                // The NameNode checks the source first, and it still exists: no attempt of ours created this.
                Err(Fault::AlreadyExists) => return Err(Fault::AlreadyExists.on(key, "put")),
                Err(Fault::NotFound) if unknown => return self.was_put(key, content).await,
                Err(Fault::NotFound) => Fault::Refused(
                    "the finished file, or again and again its directory, was gone before it had its name".to_owned(),
                ),
                Err(fault) => fault,
            };
            unknown |= matches!(fault, Fault::Unknown(_));
            failed += 1;
            let again = matches!(fault, Fault::Unknown(_) | Fault::Busy(_));
            let fault = match fault {
                // `NoSpace` would mean that the file does not exist.
                Fault::NoSpace if unknown => {
                    Fault::Unknown("no space left, and an attempt before may have done it".to_owned())
                }
                fault => fault,
            };
            if !again || !self.pause(failed).await {
                return Err(fault.on(key, "put"));
            }
        }
    }

    /// Determines the outcome when the temporary file is gone after an attempt without a response: the put has its name
    /// now, unless another process deleted it.
    async fn was_put(&self, key: &str, content: &Bytes) -> Result<()> {
        let found = match self.content(key).await {
            Err(StorageError::NotFound { .. }) => None,
            found => Some(found?),
        };
        match found {
            Some(found) if found == content => Ok(()),
            Some(_) => Err(StorageError::AlreadyExists { path: key.to_owned() }),
            None => Err(Fault::Unknown("its file was deleted before it had its name".to_owned()).on(key, "put")),
        }
    }

    /// Reads a whole small file, without a retry.
    pub(crate) async fn content(&self, key: &str) -> Result<Bytes> {
        let reader = self.open(key).await?;
        let content = self.read(&*reader, 0, reader.length() as usize).await;
        content.map_err(|fault| fault.on(key, "read"))
    }
}

const _: () = assert!(SYNC_LIMIT.as_secs() < WRITE_LIMIT.as_secs() && CALL_LIMIT.as_secs() < WRITE_LIMIT.as_secs());

fn limit_of(limit: Duration, bytes: usize) -> Duration {
    limit + LIMIT_PER_MIB * u32::try_from(bytes >> 20).unwrap_or(u32::MAX)
}

/// The directory of a file, if that belongs to one tablet or one snapshot alone.
fn own_directory(key: &str) -> Option<&str> {
    let (directory, _) = key.rsplit_once('/')?;
    debug_assert!(
        key.len() > directory.len(),
        "a file has a longer key than its directory"
    );
    let (of, name) = directory.split_once('/')?;
    (["tablets", "snapshots"].contains(&of) && !name.contains('/')).then_some(directory)
}

#[async_trait]
impl Records for Cluster {
    async fn records(&self) -> Result<Vec<String>> {
        let entries = self.entries(DIRECTORY.trim_end_matches('/')).await?;
        Ok(entries.into_iter().map(|(key, _)| key).collect())
    }

    async fn make_record(&self, key: &str, content: Bytes) -> Result<()> {
        self.put_new(key, &content).await
    }

    async fn has_record(&self, key: &str) -> Result<bool> {
        match self.status(key).await {
            Ok(_) => Ok(true),
            Err(StorageError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn delete_records(&self, keys: &[String]) -> Result<()> {
        for key in keys {
            self.delete(key, false).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_of_one_tablet_or_snapshot_are_left() {
        assert_eq!(own_directory("tablets/0007/manifest-1"), Some("tablets/0007"));
        assert_eq!(own_directory("snapshots/0007/part-1"), Some("snapshots/0007"));
        for other in [
            "sst/1.sst",
            "tablets/x",
            "log/0000/1.log",
            "FORMAT",
            "a/tablets/1/m",
            "tablets/1/2/m",
        ] {
            assert_eq!(own_directory(other), None, "{other}");
        }
    }
}
