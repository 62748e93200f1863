//! HDFS as several processes reach it over a network with faults.
//!
//! A NameNode ([`names`]) and DataNodes ([`blocks`]). All DataNodes have the same bytes, and lose power together: the replicas of a
//! block differ in nothing that a client could rely on. The model gives the weakest of HDFS's promises:
//!
//! * Bytes that a writer has not synced are in its process, or in page caches of DataNodes, at random.
//! * Lease recovery ends a file anywhere between the last sync and the last byte received. Bytes behind the last sync are not durable
//!   then, though the file has them.
//! * A file is closed some time after its writer has asked for that, and its lease cannot be taken meanwhile.
//! * The lease is lost with the request for its recovery, and the pipeline some seconds later.
//! * A power loss takes any bytes that were not synced, also of closed files, and breaks all pipelines.
//! * A reader finds the blocks of a deleted file for some seconds more.

mod blocks;
mod names;

use crate::requests::Requests;
use async_trait::async_trait;
use bytes::Bytes;
use names::{Closing, FileId, Names};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use stele_env::Env;
use stele_hdfs::client::{Client, Fault, FileReader, FileWriter, NewFile, Result, Status};

/// Entries of a page of a listing; a run chooses one number.
const PAGES: [usize; 3] = [2, 7, 1_000];
/// Longest time until DataNodes have agreed on the end of a file: they hear of it with their next heartbeat.
const RECOVERY_MAX: Duration = Duration::from_secs(3);
/// Longest time until DataNodes report the last block of a file that its writer closes, and the pause of the writer meanwhile.
const REPORT_MAX: Duration = Duration::from_millis(500);
const CLOSE_PAUSE: Duration = Duration::from_millis(100);
/// Longest time until DataNodes delete the blocks of a deleted file.
const DELETION_MAX: Duration = Duration::from_secs(10);
/// While requests are lost, a NameNode refuses one in this many: it starts, or is not the active one.
const BUSY_ONE_IN: u64 = 50;

/// NameNode, DataNodes, and the network to them.
#[derive(Clone)]
pub struct Hdfs {
    names: Arc<Mutex<Names>>,
    page: usize,
    requests: Requests,
}

impl Hdfs {
    /// An empty file system. The environment is that of a process that is never killed.
    pub fn new(env: Env) -> Hdfs {
        Hdfs {
            names: Arc::default(),
            page: PAGES[env.random_below(PAGES.len() as u64) as usize],
            requests: Requests::new(env, "hdfs"),
        }
    }

    /// The faults, and counts of requests.
    pub fn requests(&self) -> &Requests {
        &self.requests
    }

    /// All DataNodes lose power, and have it again.
    pub fn lose_power(&self) {
        let env = self.env();
        self.names
            .lock()
            .lose_power(|most| env.random_below(most as u64 + 1) as usize);
    }

    /// The disks of all DataNodes lose synced bytes at the ends of files that are being written, against their promise. Whether there was one.
    pub fn lose_synced(&self) -> bool {
        self.names.lock().lose_synced()
    }

    /// The paths of all files.
    pub fn paths(&self) -> Vec<String> {
        self.names.lock().paths()
    }

    /// The closed files that cannot be read to their ends, each with the number of its bytes that can be read.
    pub fn unreadable(&self) -> Vec<(String, usize)> {
        self.names.lock().unreadable()
    }

    fn env(&self) -> &Env {
        self.requests.env()
    }

    fn now_millis(&self) -> u64 {
        u64::try_from(self.env().wall_micros() / 1_000).unwrap_or(0)
    }

    /// A call of the NameNode with this effect.
    async fn call<T: Send + 'static>(
        &self,
        effect: impl FnOnce(&Hdfs, &mut Names) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if self.requests.network().lost > 0 && self.env().random_below(BUSY_ONE_IN) == 0 {
            return Err(Fault::Busy("the NameNode is in safe mode".to_owned()));
        }
        self.reach(effect).await
    }

    /// A request to NameNode or DataNodes with this effect.
    async fn reach<T: Send + 'static>(
        &self,
        effect: impl FnOnce(&Hdfs, &mut Names) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let hdfs = self.clone();
        let effect = async move { effect(&hdfs, &mut hdfs.names.lock()) };
        self.requests
            .send(effect, || Fault::Unknown("the connection was lost".to_owned()))
            .await
    }

    fn some_time(&self, most: Duration) -> Duration {
        Duration::from_micros(self.env().random_below(most.as_micros() as u64))
    }

    /// Has DataNodes agree on the end of a file whose lease was taken.
    fn recover_later(&self, file: FileId) {
        let (hdfs, pause) = (self.clone(), self.some_time(RECOVERY_MAX));
        self.env().spawn("block recovery", async move {
            hdfs.env().sleep(pause).await;
            let now = hdfs.now_millis();
            let mut names = hdfs.names.lock();
            names.end_recovery(file, now, |most| hdfs.env().random_below(most as u64 + 1) as usize);
        });
    }

    /// Has DataNodes report the last block of a file.
    fn report_later(&self, file: FileId) {
        let (hdfs, pause) = (self.clone(), self.some_time(REPORT_MAX));
        self.env().spawn("block report", async move {
            hdfs.env().sleep(pause).await;
            let now = hdfs.now_millis();
            hdfs.names.lock().end_close(file, now);
        });
    }

    fn delete_blocks_later(&self, files: Vec<FileId>) {
        if files.is_empty() {
            return;
        }
        let (hdfs, pause) = (self.clone(), self.some_time(DELETION_MAX));
        self.env().spawn("blocks of deleted files", async move {
            hdfs.env().sleep(pause).await;
            hdfs.names.lock().delete_blocks(&files);
        });
    }
}

#[async_trait]
impl Client for Hdfs {
    async fn create(&self, path: &str, file: NewFile) -> Result<Box<dyn FileWriter>> {
        let owned = path.to_owned();
        let create = move |hdfs: &Hdfs, names: &mut Names| {
            let now = hdfs.now_millis();
            names.create(&owned, file.makes_directories, now)
        };
        let (file, lease) = self.call(create).await?;
        Ok(Box::new(Writer {
            hdfs: self.clone(),
            file,
            lease,
            sent: 0,
            waiting: Vec::new(),
        }))
    }

    async fn open(&self, path: &str) -> Result<Box<dyn FileReader>> {
        let path = path.to_owned();
        let (file, len) = self.call(move |_, names| names.open(&path)).await?;
        Ok(Box::new(Reader {
            hdfs: self.clone(),
            file,
            len,
        }))
    }

    async fn status(&self, path: &str) -> Result<Status> {
        let path = path.to_owned();
        self.call(move |_, names| names.status(&path)).await
    }

    /// A call for each page.
    async fn list(&self, path: &str) -> Result<Vec<(String, Status)>> {
        let mut listed: Vec<(String, Status)> = Vec::new();
        loop {
            let (path, most) = (path.to_owned(), self.page);
            let after = listed.last().map(|(name, _)| name.clone());
            let page = self
                .call(move |_, names| names.list(&path, after.as_deref(), most))
                .await?;
            let is_last = page.len() < most;
            listed.extend(page);
            if is_last {
                return Ok(listed);
            }
        }
    }

    async fn delete(&self, path: &str, with_content: bool) -> Result<()> {
        let path = path.to_owned();
        let delete = move |hdfs: &Hdfs, names: &mut Names| {
            let deleted = names.delete(&path, with_content)?;
            hdfs.delete_blocks_later(deleted);
            Ok(())
        };
        self.call(delete).await
    }

    async fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (from.to_owned(), to.to_owned());
        self.call(move |_, names| names.rename(&from, &to)).await
    }

    async fn recover_lease(&self, path: &str) -> Result<bool> {
        let path = path.to_owned();
        let recover = move |hdfs: &Hdfs, names: &mut Names| {
            let recovery = names.recover_lease(&path)?;
            if let names::Recovery::Begins(file) = recovery {
                hdfs.recover_later(file);
            }
            Ok(recovery == names::Recovery::Over)
        };
        self.call(recover).await
    }

    async fn make_directory(&self, path: &str, _: u32) -> Result<()> {
        let path = path.to_owned();
        self.call(move |_, names| names.make_directory(&path)).await
    }
}

struct Writer {
    hdfs: Hdfs,
    file: FileId,
    lease: u64,
    /// Bytes sent to the DataNodes.
    sent: usize,
    /// Bytes that wait in this process.
    waiting: Vec<u8>,
}

impl Writer {
    /// Sends the first waiting bytes through the pipeline.
    async fn send(&mut self, count: usize, is_sync: bool) -> Result<()> {
        let bytes: Vec<u8> = self.waiting.drain(..count).collect();
        let (file, lease, offset) = (self.file, self.lease, self.sent);
        self.sent += bytes.len();
        self.hdfs
            .reach(move |_, names| names.blocks(file)?.receive(lease, offset, &bytes, is_sync))
            .await
    }
}

#[async_trait]
impl FileWriter for Writer {
    async fn write(&mut self, bytes: Bytes) -> Result<()> {
        self.waiting.extend_from_slice(&bytes);
        let count = self.hdfs.env().random_below(2 * self.waiting.len() as u64 + 1) as usize;
        match count <= self.waiting.len() {
            true => self.send(count, false).await,
            false => Ok(()),
        }
    }

    async fn sync(&mut self) -> Result<()> {
        self.send(self.waiting.len(), true).await?;
        let (file, lease, len) = (self.file, self.lease, self.sent);
        self.hdfs
            .call(move |_, names| names.note_length(file, lease, len))
            .await
    }

    async fn close(&mut self) -> Result<()> {
        self.send(self.waiting.len(), true).await?;
        let (file, lease, len) = (self.file, self.lease, self.sent);
        loop {
            let close = move |hdfs: &Hdfs, names: &mut Names| {
                let closing = names.close(file, lease, len)?;
                if closing == Closing::Begins {
                    hdfs.report_later(file);
                }
                Ok(closing)
            };
            if self.hdfs.call(close).await? == Closing::Over {
                return Ok(());
            }
            self.hdfs.env().sleep(CLOSE_PAUSE).await;
        }
    }
}

struct Reader {
    hdfs: Hdfs,
    file: FileId,
    len: usize,
}

#[async_trait]
impl FileReader for Reader {
    fn length(&self) -> u64 {
        self.len as u64
    }

    async fn read(&self, offset: u64, len: usize) -> Result<Bytes> {
        let (file, offset) = (self.file, offset as usize);
        self.hdfs
            .reach(move |_, names| names.blocks(file)?.read(offset, len))
            .await
    }
}
