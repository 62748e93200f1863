//! Growing files: a directory of pieces, `<path>/@<number, 8 hex digits>`. The last one may still be written.
//!
//! * Piece 0 is empty. The file exists as long as it does; it is created first, and the whole directory is deleted in
//!   one operation.
//! * Pieces 1, 2, … are append streams. The name of the piece being written ends in `.open`. Mostly there is one piece.
//!   A file is cut only when this process reads it while it writes it. The block places that readers request do not
//!   cover the block being written.
//! * A piece loses its `.open` when all its bytes are durable: its writer closed it, which syncs, or a new owner copied
//!   it.
//! * Only pieces without `.open` are ever read. A file with an open piece is not readable, except by its writer up to
//!   that piece. An open piece without synced bytes is no obstacle: a replaced owner creates one and then checks the
//!   ownership.
//!
//! A sync is one packet through the pipeline, which makes every DataNode call `fsync`, and one call of the NameNode.
//! The NameNode answers only to the holder of the lease.
//!
//! To seal a file the new owner recovers the leases of its open pieces ([`seal`]). From that call on no sync of the old
//! owner succeeds, and its acknowledged bytes are below the end that the DataNodes agree on. Bytes after the last sync
//! may be included, in page caches only. Readers act on them, so the piece is copied. Nothing here opens a finished
//! piece for appending: a sealed file stays sealed.
//!
//! A power loss of the DataNodes before the copy is closed may take those bytes, and the file cannot be read to its end then. So the new
//! owner notes where the last sync ended, in the name of an empty file, as soon as it has the lease ([`note_synced`]). If the rest cannot be
//! read, the copy ends there: it has all acknowledged bytes, and nobody has read others.
//!
//! A writer whose operation failed cannot finish its piece. Its own process seals the file then, because it reads the
//! file later: the archive needs all acknowledged bytes of the log.

use crate::client::FileWriter;
use crate::cluster::{Cluster, Lease};
use crate::fault::Fault;
use crate::located::Located;
use crate::shared::Shared;
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use stele_env::PlantedBug;
use stele_storage::remote::owner;
use stele_storage::{AppendFile, ReadFile, Result, StorageError, check_range, grows};
use tokio::sync::Mutex;

/// Directories of growing files: the prefixes of [`stele_storage::grows`].
const DIRECTORIES: [&str; 2] = ["log/", "coord/log-"];

const OPEN: &str = ".open";
const SYNCED: &str = ".synced-";

/// Pieces sealed concurrently.
const SEALS_CONCURRENT: usize = 16;

/// Limit of a lease recovery. DataNodes hear of it with their next heartbeat, within three seconds; a dead one is given
/// up after minutes. A server that cannot read its log cannot start, so it waits.
const RECOVERY_LIMIT: Duration = Duration::from_secs(300);
const RECOVERY_PAUSE: Duration = Duration::from_millis(100);

/// Attempts at sealing a file that its writer could not finish, and the pause between them: ten minutes in which a
/// NameNode that cannot be reached may come back. Each attempt has retries of its own.
const OWN_SEALS_MAX: u32 = 10;
const OWN_SEAL_PAUSE: Duration = Duration::from_secs(60);

/// Bytes copied at a time.
const COPY_BYTES: u64 = 4 << 20;

/// Pieces that one read fetches concurrently.
const PIECES_CONCURRENT: usize = 8;

pub(crate) fn piece_key(path: &str, number: u32) -> String {
    format!("{path}/@{number:08x}")
}

pub(crate) fn open_key(path: &str, number: u32) -> String {
    format!("{path}/@{number:08x}{OPEN}")
}

/// The file and number of a piece's key, and whether the piece is open.
pub(crate) fn parse_piece(key: &str) -> Option<(&str, u32, bool)> {
    let (path, name) = key.rsplit_once("/@")?;
    let (digits, open) = match name.strip_suffix(OPEN) {
        Some(digits) => (digits, true),
        None => (name, false),
    };
    let number = u32::from_str_radix(digits, 16).ok()?;
    let spelled = if open {
        open_key(path, number)
    } else {
        piece_key(path, number)
    };
    (spelled == key).then_some((path, number, open))
}

/// The name that states the length of an open piece at its last sync.
fn synced_key(path: &str, number: u32, len: u64) -> String {
    format!("{}{len:x}", synced_prefix(path, number))
}

fn synced_prefix(path: &str, number: u32) -> String {
    debug_assert!(number > 0, "piece 0 has no content");
    format!("{path}/@{number:08x}{SYNCED}")
}

/// The pieces of one file in a listing.
#[derive(Default)]
pub(crate) struct Pieces {
    finished: BTreeMap<u32, u64>,
    open: BTreeMap<u32, u64>,
}

impl Pieces {
    async fn list(cluster: &Cluster, path: &str) -> Result<Pieces> {
        let mut pieces = Pieces::default();
        for (key, status) in cluster.entries(path).await? {
            if let Some((of, number, open)) = parse_piece(&key)
                && of == path
            {
                pieces.add(number, open, status.len);
            }
        }
        Ok(pieces)
    }

    pub(crate) fn add(&mut self, number: u32, open: bool, len: u64) {
        if open {
            self.open.insert(number, len)
        } else {
            self.finished.insert(number, len)
        };
    }

    pub(crate) fn is_file(&self) -> bool {
        self.finished.contains_key(&0)
    }

    fn is_empty(&self) -> bool {
        self.finished.is_empty() && self.open.is_empty()
    }

    /// Length in bytes, as far as the NameNode knows it. A copied piece may still exist under both names.
    pub(crate) fn len(&self) -> u64 {
        let open = self
            .open
            .iter()
            .filter(|(number, _)| !self.finished.contains_key(number));
        self.finished.values().chain(open.map(|(_, len)| len)).sum()
    }

    /// The first piece below `end` that has bytes and was not finished by its writer or a new owner.
    fn unfinished(&self, end: u32) -> Option<u32> {
        let unsealed =
            |(number, len): &(&u32, &u64)| **number < end && **len > 0 && !self.finished.contains_key(number);
        self.open.iter().find(unsealed).map(|(number, _)| *number)
    }

    /// The readable pieces: all below piece `end`, or all. A gap is an error.
    pub(crate) fn readable(&self, path: &str, end: Option<u32>) -> Result<Vec<(u32, u64)>> {
        let end = end.unwrap_or(u32::MAX);
        if let Some(number) = self.unfinished(end) {
            return Err(unfinished_piece(open_key(path, number)));
        }
        let found = self.finished.iter().take_while(|(number, _)| **number < end);
        let found: Vec<(u32, u64)> = found.map(|(number, len)| (*number, *len)).collect();
        for (expected, (number, _)) in (0..).zip(&found) {
            if *number != expected {
                return Err(StorageError::Lost {
                    path: piece_key(path, expected),
                    detail: "the piece is missing, though later ones are there",
                });
            }
        }
        assert!(
            (0..).zip(&found).all(|(expected, (number, _))| *number == expected),
            "readable pieces are consecutive"
        );
        Ok(found)
    }
}

/// Fails if a growing file is being written, or was left by a writer that died.
pub(crate) async fn check_finished(cluster: &Cluster) -> Result<()> {
    let mut files: BTreeMap<String, Pieces> = BTreeMap::new();
    for directory in DIRECTORIES {
        for (key, len) in cluster.files(directory).await? {
            if let Some((path, number, open)) = parse_piece(&key) {
                files.entry(path.to_owned()).or_default().add(number, open, len);
            }
        }
    }
    // Other errors of a file show when it is read.
    let unfinished = |(path, pieces): (&String, &Pieces)| Some(open_key(path, pieces.unfinished(u32::MAX)?));
    match files.iter().filter(|(_, pieces)| pieces.is_file()).find_map(unfinished) {
        None => Ok(()),
        Some(key) => Err(unfinished_piece(key)),
    }
}

fn unfinished_piece(key: String) -> StorageError {
    StorageError::Io {
        path: key,
        operation: "open",
        message: "the piece was not finished and not sealed".to_owned(),
    }
}

/// Ends every growing file, for its writer and for all readers. `Fenced` when another process has become the owner
/// since this one made its record.
pub(crate) async fn seal_all(cluster: &Cluster, epoch: u64) -> Result<()> {
    let mut open = Vec::new();
    for directory in DIRECTORIES {
        let files = cluster.files(directory).await?;
        open.extend(files.iter().filter_map(|(key, _)| match parse_piece(key) {
            Some((path, number, true)) => Some((path.to_owned(), number)),
            _ => None,
        }));
    }
    // Checked after the listing: an owner that comes later has created none of the listed files.
    let records = owner::Records::records(cluster).await?;
    owner::check_last(records.iter().map(String::as_str), epoch)?;
    let seals = open
        .into_iter()
        .map(|(path, number)| async move { gone_is_fine(seal(cluster, &path, number).await) });
    futures::stream::iter(seals)
        .buffer_unordered(SEALS_CONCURRENT)
        .try_collect::<()>()
        .await
}

/// The old owner may finish or delete a file as long as it has the lease.
fn gone_is_fine(outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(StorageError::NotFound { .. }) => Ok(()),
        other => other,
    }
}

/// Seals a file of this process whose writer has failed and is gone.
async fn seal_own(shared: &Shared, path: &str) -> Result<()> {
    assert!(grows(path), "other files have no pieces");
    assert!(shared.epoch > 0, "only an owner writes growing files");
    let mut failed = 0;
    loop {
        let Err(error) = try_seal_own(shared, path).await else {
            return Ok(());
        };
        failed += 1;
        if failed >= OWN_SEALS_MAX || shared.fence.by().is_some() {
            return Err(error);
        }
        tracing::debug!(path, %error, "a file is not sealed yet");
        shared.env.sleep(OWN_SEAL_PAUSE).await;
    }
}

async fn try_seal_own(shared: &Shared, path: &str) -> Result<()> {
    assert!(shared.epoch > 0, "only an owner writes growing files");
    // A new owner seals it, and may delete it then.
    shared.verify(path).await?;
    for number in Pieces::list(&shared.cluster, path).await?.open.into_keys() {
        let sealed = async {
            // This process has the lease, and syncs nothing any more.
            note_synced(&shared.cluster, path, number, 0).await?;
            seal(&shared.cluster, path, number).await
        };
        gone_is_fine(sealed.await)?;
    }
    Ok(())
}

/// Ends an open piece and makes it durable.
async fn seal(cluster: &Cluster, path: &str, number: u32) -> Result<()> {
    let (open, finished) = (open_key(path, number), piece_key(path, number));
    assert!(number > 0 && grows(path), "pieces with bytes are sealed");
    let before = take_lease(cluster, path, number).await?;
    let len = cluster.status(&open).await?.len;
    if len < before {
        note_synced(cluster, path, number, before).await?;
    }
    let stated = synced(cluster, path, number).await?;
    check_not_lost(cluster, path, number, (len, stated)).await?;
    let durable = match len {
        0 => open.clone(),
        _ if cluster.env.planted(PlantedBug::SkipCopy) => open.clone(),
        len => copy_piece(cluster, path, number, (len, stated)).await?,
    };
    match finish(cluster, &durable, &finished).await {
        // Another new owner was faster; its copy has the same acknowledged bytes. Or a replaced owner began the piece again.
        Err(StorageError::AlreadyExists { .. }) => cluster.delete(&durable, false).await?,
        finished => finished?,
    }
    cluster.delete(&open, false).await
}

/// Fails if an open piece has fewer bytes than were synced. DataNodes whose disks lost them may agree on such an end.
async fn check_not_lost(cluster: &Cluster, path: &str, number: u32, (len, stated): (u64, Option<u64>)) -> Result<()> {
    let Some(synced) = stated.filter(|synced| *synced > len) else {
        return Ok(());
    };
    match cluster.status(&piece_key(path, number)).await {
        // The piece was sealed, and a replaced owner began it again.
        Ok(_) => Ok(()),
        Err(StorageError::NotFound { .. }) => {
            // Fails if the file was deleted meanwhile.
            cluster.status(&open_key(path, number)).await?;
            tracing::error!(path, number, synced, len, "HDFS has lost the synced end of a log file");
            Err(StorageError::Lost {
                path: synced_key(path, number, synced),
                detail: "the file has fewer bytes than this name says were synced; delete the name to go on without them",
            })
        }
        Err(error) => Err(error),
    }
}

/// Takes the lease of an open piece from its writer, and waits until the piece has an end. The bytes that were synced before at least.
async fn take_lease(cluster: &Cluster, path: &str, number: u32) -> Result<u64> {
    assert!(number > 0, "piece 0 has no writer");
    let open = open_key(path, number);
    // The end may be known before the note is made. DataNodes that agree on fewer bytes have lost some.
    let before = cluster.status(&open).await?.len;
    let (deadline, mut is_noted) = (cluster.env.now() + RECOVERY_LIMIT, false);
    loop {
        match cluster.recover_lease(&open).await? {
            Lease::Over => return Ok(before),
            // Its writer can sync nothing any more.
            Lease::Taken if !std::mem::replace(&mut is_noted, true) => {
                note_synced(cluster, path, number, before).await?
            }
            Lease::Taken | Lease::Closing => {}
        }
        if cluster.env.now() >= deadline {
            return Err(StorageError::Io {
                path: open,
                operation: "recover lease",
                message: format!("its DataNodes have not agreed on its end within {RECOVERY_LIMIT:?}"),
            });
        }
        cluster.env.sleep(RECOVERY_PAUSE).await;
    }
}

/// States where the last sync of an open piece ended, which had this many bytes before. If its end is known by then, it states that, which
/// is behind.
async fn note_synced(cluster: &Cluster, path: &str, number: u32, before: u64) -> Result<()> {
    let len = cluster.status(&open_key(path, number)).await?.len.max(before);
    let key = synced_key(path, number, len);
    let mut failed = 0;
    loop {
        let error = match cluster.create(&key, false).await {
            Ok(mut writer) => {
                // Only the name matters, and the NameNode has it.
                let _ = cluster.close(&key, &mut *writer).await;
                return Ok(());
            }
            // Of an earlier attempt.
            Err(StorageError::AlreadyExists { .. }) => return Ok(()),
            Err(error) => error,
        };
        failed += 1;
        if matches!(error, StorageError::NotFound { .. }) || !cluster.pause(failed).await {
            return Err(error);
        }
    }
}

/// The first statement on where the last sync of an open piece ended.
async fn synced(cluster: &Cluster, path: &str, number: u32) -> Result<Option<u64>> {
    let prefix = synced_prefix(path, number);
    let entries = cluster.entries(path).await?;
    let stated = entries.iter().filter_map(|(key, _)| key.strip_prefix(&prefix));
    Ok(stated.filter_map(|len| u64::from_str_radix(len, 16).ok()).min())
}

/// Copies an open piece that has an end; the key of the copy.
async fn copy_piece(cluster: &Cluster, path: &str, number: u32, (len, stated): (u64, Option<u64>)) -> Result<String> {
    assert!(len > 0, "a piece without bytes is not copied");
    let (open, copy) = (open_key(path, number), cluster.unfinished());
    let Err(error) = copy_file(cluster, &open, (len, len), &copy).await else {
        return Ok(copy);
    };
    match stated {
        Some(acknowledged) if acknowledged < len => {
            tracing::warn!(
                path,
                number,
                acknowledged,
                len,
                %error,
                "the end of a log file cannot be read; it was not acknowledged, and is left out"
            );
            let copy = cluster.unfinished();
            copy_file(cluster, &open, (len, acknowledged), &copy).await?;
            Ok(copy)
        }
        _ => Err(error),
    }
}

/// Copies the first bytes of a file.
async fn copy_file(cluster: &Cluster, from: &str, (len, copied): (u64, u64), to: &str) -> Result<()> {
    assert!(copied <= len, "a copy has not more bytes than the file");
    let source = Located::open(cluster, from, len).await?;
    let mut writer = cluster.create(to, true).await?;
    let mut offset = 0;
    while offset < copied {
        let bytes = source.read(offset, (copied - offset).min(COPY_BYTES) as usize).await?;
        assert!(!bytes.is_empty(), "every step of a copy makes progress");
        offset += bytes.len() as u64;
        cluster.write(to, &mut *writer, &[bytes]).await?;
    }
    assert_eq!(offset, copied, "bytes copied equal bytes of the piece");
    cluster.close(to, &mut *writer).await
}

/// Gives a closed file the name of a finished piece.
async fn finish(cluster: &Cluster, from: &str, to: &str) -> Result<()> {
    debug_assert!(
        parse_piece(to).is_some_and(|(_, number, open)| number > 0 && !open),
        "a piece with bytes gets the name of a finished one"
    );
    let (mut failed, mut unknown) = (0, false);
    loop {
        let fault = match cluster.rename(from, to).await {
            Ok(()) => return Ok(()),
            // The response of an earlier attempt was lost.
            Err(Fault::NotFound) if unknown => return cluster.status(to).await.map(|_| ()),
            Err(fault) => fault,
        };
        unknown |= matches!(fault, Fault::Unknown(_));
        failed += 1;
        let again = matches!(fault, Fault::Unknown(_) | Fault::Busy(_));
        if !again || !cluster.pause(failed).await {
            return Err(fault.on(to, "finish"));
        }
    }
}

pub(crate) async fn delete(writers: &Writers, path: &str) -> Result<()> {
    writers.by_path.lock().remove(path);
    writers.shared.cluster.delete(path, true).await
}

/// Creates piece 0, and with it the file.
async fn mark(cluster: &Cluster, path: &str) -> Result<()> {
    let first = piece_key(path, 0);
    let mut marker = cluster.create(&first, true).await.map_err(|error| match error {
        StorageError::AlreadyExists { .. } => StorageError::AlreadyExists { path: path.to_owned() },
        other => other,
    })?;
    cluster.close(&first, &mut *marker).await
}

/// Creates a whole file: piece 1 first, so that the file appears with its content or not at all.
pub(crate) async fn put(shared: &Shared, path: &str, content: Bytes) -> Result<()> {
    let cluster = &shared.cluster;
    let there = Pieces::list(cluster, path).await?;
    if there.is_file() {
        return Err(StorageError::AlreadyExists { path: path.to_owned() });
    }
    if !there.is_empty() {
        // The remains of an interrupted put.
        cluster.delete(path, true).await?;
    }
    if !content.is_empty() {
        cluster.put_new(&piece_key(path, 1), &content).await?;
    }
    mark(cluster, path).await?;
    shared.verify(path).await
}

pub(crate) async fn create(writers: &Arc<Writers>, path: &str) -> Result<GrowingAppend> {
    let shared = &writers.shared;
    mark(&shared.cluster, path).await?;
    let writer = Arc::new(Writer {
        shared: Arc::clone(shared),
        path: path.to_owned(),
        state: Mutex::new(State::Between { next: 1 }),
    });
    let begun = match writer.begin(1).await {
        Ok(begun) => begun,
        Err(error) => {
            if !matches!(error, StorageError::Fenced { .. }) {
                // No caller knows of it, and there may be one for each group of writes while the cluster refuses.
                let (shared, path) = (Arc::clone(shared), path.to_owned());
                let env = shared.env.clone();
                env.spawn("log file given up", async move {
                    let _ = shared.cluster.delete(&path, true).await;
                });
            }
            return Err(error);
        }
    };
    *writer.state.lock().await = begun;
    writers.by_path.lock().insert(path.to_owned(), Arc::downgrade(&writer));
    Ok(GrowingAppend {
        writers: Arc::clone(writers),
        writer,
        len: 0,
    })
}

enum State {
    Open {
        number: u32,
        stream: Box<dyn FileWriter>,
        /// Whether the piece has bytes, and whether some were appended since the last sync.
        used: bool,
        dirty: bool,
    },
    /// The last piece is finished; the next append begins this one.
    Between { next: u32 },
    /// An operation failed or was abandoned.
    Broken,
}

/// The writer of a file, shared by its appender and by readers in this process, which cut the file.
pub(crate) struct Writer {
    shared: Arc<Shared>,
    path: String,
    /// Held across an operation: a file has one appender, and a reader that needs a cut waits for it. An operation that
    /// fails or is dropped in the middle leaves it `Broken`.
    state: Mutex<State>,
}

impl Writer {
    /// Begins a piece: creates it and then checks the ownership. Either this sees the new owner, or the new owner saw
    /// the piece.
    async fn begin(&self, number: u32) -> Result<State> {
        assert!(number > 0, "piece 0 has no content");
        let key = open_key(&self.path, number);
        let stream = self.shared.cluster.create(&key, false).await?;
        self.shared.verify(&self.path).await?;
        Ok(State::Open {
            number,
            stream,
            used: false,
            dirty: false,
        })
    }

    fn refused(&self, operation: &'static str) -> StorageError {
        StorageError::Io {
            path: self.path.clone(),
            operation,
            message: "refused, because an earlier write of this file failed or was abandoned".to_owned(),
        }
    }

    /// A failure may be due to a new owner.
    async fn why(&self, error: StorageError) -> StorageError {
        match self.shared.verify(&self.path).await {
            Err(fenced @ StorageError::Fenced { .. }) => fenced,
            _ => error,
        }
    }

    async fn append(&self, slices: &[Bytes]) -> Result<()> {
        debug_assert!(
            slices.iter().any(|slice| !slice.is_empty()),
            "an append to the stream has bytes"
        );
        let mut state = self.state.lock().await;
        let (number, mut stream) = match std::mem::replace(&mut *state, State::Broken) {
            State::Open { number, stream, .. } => (number, stream),
            State::Between { next } => match self.begin(next).await? {
                State::Open { number, stream, .. } => {
                    assert_eq!(number, next, "pieces are numbered consecutively");
                    (number, stream)
                }
                _ => return Err(self.refused("append")),
            },
            State::Broken => return Err(self.refused("append")),
        };
        let key = open_key(&self.path, number);
        if let Err(error) = self.shared.cluster.write(&key, &mut *stream, slices).await {
            return Err(self.why(error).await);
        }
        *state = State::Open {
            number,
            stream,
            used: true,
            dirty: true,
        };
        Ok(())
    }

    async fn sync(&self) -> Result<()> {
        let mut state = self.state.lock().await;
        match std::mem::replace(&mut *state, State::Broken) {
            State::Open {
                number,
                mut stream,
                used,
                dirty,
            } => {
                assert!(used || !dirty, "a piece with unsynced bytes has bytes");
                let key = open_key(&self.path, number);
                if dirty && let Err(error) = self.shared.cluster.sync(&key, &mut *stream).await {
                    return Err(self.why(error).await);
                }
                *state = State::Open {
                    number,
                    stream,
                    used,
                    dirty: false,
                };
                Ok(())
            }
            State::Between { next } => {
                *state = State::Between { next };
                Ok(())
            }
            State::Broken => Err(self.refused("sync")),
        }
    }

    /// Finishes the piece being written, if it has bytes. Returns the number of the first piece that is not finished.
    async fn cut(&self) -> Result<u32> {
        let mut state = self.state.lock().await;
        match std::mem::replace(&mut *state, State::Broken) {
            State::Open {
                number,
                mut stream,
                used: true,
                ..
            } => {
                assert!(number > 0, "piece 0 has no content");
                let open = open_key(&self.path, number);
                self.shared.cluster.close(&open, &mut *stream).await?;
                finish(&self.shared.cluster, &open, &piece_key(&self.path, number)).await?;
                let next = number.checked_add(1).ok_or_else(|| self.refused("cut"))?;
                *state = State::Between { next };
                Ok(next)
            }
            State::Open { number, stream, .. } => {
                *state = State::Open {
                    number,
                    stream,
                    used: false,
                    dirty: false,
                };
                Ok(number)
            }
            State::Between { next } => {
                *state = State::Between { next };
                Ok(next)
            }
            State::Broken => Err(self.refused("cut")),
        }
    }
}

pub(crate) struct GrowingAppend {
    writers: Arc<Writers>,
    writer: Arc<Writer>,
    len: u64,
}

#[async_trait]
impl AppendFile for GrowingAppend {
    async fn append(&mut self, slices: &[Bytes]) -> Result<()> {
        self.writer.shared.fence.check(&self.writer.path)?;
        let bytes: usize = slices.iter().map(Bytes::len).sum();
        if bytes > 0 {
            self.writer.append(slices).await?;
        }
        self.len += bytes as u64;
        Ok(())
    }

    async fn sync(&mut self) -> Result<()> {
        self.writer.shared.fence.check(&self.writer.path)?;
        self.writer.sync().await
    }

    fn len(&self) -> u64 {
        self.len
    }
}

impl Drop for GrowingAppend {
    /// Finishes the file, or seals it where that fails: this process may read it, and the next owner has less work.
    fn drop(&mut self) {
        let (writers, writer) = (Arc::clone(&self.writers), Arc::clone(&self.writer));
        let env = writer.shared.env.clone();
        env.spawn("hdfs finish", async move {
            if writer.shared.fence.by().is_none()
                && let Err(error) = writer.cut().await
            {
                tracing::debug!(path = writer.path, %error, "a file is sealed that cannot be finished");
                if let Err(error) = seal_own(&writer.shared, &writer.path).await {
                    tracing::warn!(path = writer.path, %error, "a file was left open, and cannot be read until the next start");
                }
            }
            writers.forget(&writer);
        });
    }
}

/// Finishes every growing file that this process writes, or seals it where that fails. The next owner seals those that are left.
pub(crate) async fn finish_all(writers: &Writers) {
    if writers.shared.fence.by().is_some() {
        return;
    }
    // Includes dropped ones that are being finished, and waits for them.
    let writing: Vec<Arc<Writer>> = {
        let by_path = writers.by_path.lock();
        by_path.values().filter_map(Weak::upgrade).collect()
    };
    futures::stream::iter(writing)
        .for_each_concurrent(SEALS_CONCURRENT, |writer| async move {
            if writer.cut().await.is_err()
                && let Err(error) = try_seal_own(&writer.shared, &writer.path).await
            {
                tracing::debug!(path = writer.path, %error, "a file was left open");
            }
        })
        .await;
}

/// The writers of this process, by the path of their files.
pub(crate) struct Writers {
    shared: Arc<Shared>,
    by_path: parking_lot::Mutex<BTreeMap<String, Weak<Writer>>>,
}

impl Writers {
    pub(crate) fn new(shared: Arc<Shared>) -> Arc<Writers> {
        Arc::new(Writers {
            shared,
            by_path: parking_lot::Mutex::default(),
        })
    }

    /// Forgets a writer, but not a later writer of a file with the same path.
    fn forget(&self, writer: &Arc<Writer>) {
        let mut by_path = self.by_path.lock();
        let known = by_path.get(&writer.path);
        if known.is_some_and(|known| known.as_ptr() == Arc::as_ptr(writer)) {
            by_path.remove(&writer.path);
        }
    }
}

/// Opens a file in its present state.
pub(crate) async fn open(writers: &Writers, path: &str) -> Result<GrowingRead> {
    let shared = &writers.shared;
    let writer = writers.by_path.lock().get(path).and_then(Weak::upgrade);
    let end = match writer {
        None => None,
        Some(writer) => match writer.cut().await {
            Ok(end) => Some(end),
            // Nothing is written to it any more, and its appender may not notice for long: the archive reads an idle log, too.
            Err(error) => {
                tracing::debug!(path, %error, "a file is sealed for its reader");
                try_seal_own(shared, path).await?;
                None
            }
        },
    };
    let pieces = Pieces::list(&shared.cluster, path).await?;
    if !pieces.is_file() {
        return Err(StorageError::NotFound { path: path.to_owned() });
    }
    let mut located = Vec::new();
    let mut len = 0;
    for (number, bytes) in pieces.readable(path, end)? {
        if bytes > 0 {
            let piece = Located::open(&shared.cluster, &piece_key(path, number), bytes).await;
            len += bytes;
            located.push((len, piece.map_err(|error| error.of_whole(path))?));
        }
    }
    Ok(GrowingRead {
        shared: Arc::clone(shared),
        path: path.to_owned(),
        pieces: located,
    })
}

pub(crate) struct GrowingRead {
    shared: Arc<Shared>,
    path: String,
    /// Each piece that has bytes, and its end in the file.
    pieces: Vec<(u64, Located)>,
}

#[async_trait]
impl ReadFile for GrowingRead {
    async fn read_at(&self, offset: u64, len: usize) -> Result<Bytes> {
        self.shared.fence.check(&self.path)?;
        check_range(&self.path, offset, len, self.len())?;
        let end = offset + len as u64;
        let wanted = self.pieces.iter().filter_map(|(piece_end, piece)| {
            let piece_start = piece_end - piece.len();
            let (from, to) = (offset.max(piece_start), end.min(*piece_end));
            (from < to).then_some((
                piece,
                from.saturating_sub(piece_start),
                to.saturating_sub(from) as usize,
            ))
        });
        let reads: Vec<_> = wanted.map(|(piece, from, len)| piece.read(from, len)).collect();
        let mut parts: Vec<Bytes> = futures::stream::iter(reads)
            .buffered(PIECES_CONCURRENT)
            .try_collect()
            .await
            .map_err(|error| error.of_whole(&self.path))?;
        if parts.len() == 1 {
            return Ok(parts.pop().unwrap_or_default());
        }
        let mut content = BytesMut::with_capacity(len);
        parts.iter().for_each(|part| content.extend_from_slice(part));
        assert_eq!(content.len(), len, "the ranges of all pieces add up to the read");
        Ok(content.freeze())
    }

    fn try_read_at(&self, offset: u64, len: usize) -> Option<Result<Bytes>> {
        check_range(&self.path, offset, len, self.len()).err().map(Err)
    }

    fn len(&self) -> u64 {
        self.pieces.last().map_or(0, |(end, _)| *end)
    }

    fn path(&self) -> &str {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_have_one_spelling() {
        assert_eq!(parse_piece("log/1/@0000000a"), Some(("log/1", 10, false)));
        assert_eq!(parse_piece("log/1/@0000000a.open"), Some(("log/1", 10, true)));
        for other in [
            "log/1/@0000000A",
            "log/1/@a",
            "log/1/0000000a",
            "@0000000a",
            "log/1/@0000000a.opened",
        ] {
            assert_eq!(parse_piece(other), None, "{other}");
        }
    }

    fn pieces(found: &[(u32, bool, u64)]) -> Pieces {
        let mut pieces = Pieces::default();
        found
            .iter()
            .for_each(|(number, open, len)| pieces.add(*number, *open, *len));
        pieces
    }

    #[test]
    fn only_what_is_durable_is_readable() {
        let whole = pieces(&[(0, false, 0), (1, false, 5), (2, false, 7)]);
        assert_eq!(whole.readable("p", None).unwrap(), [(0, 0), (1, 5), (2, 7)]);
        assert_eq!((whole.is_file(), whole.len()), (true, 12));
        let open = pieces(&[(0, false, 0), (1, false, 5), (2, true, 7)]);
        assert_eq!(open.len(), 12);
        assert_eq!(open.readable("p", Some(2)).unwrap(), [(0, 0), (1, 5)]);
        for end in [None, Some(3)] {
            let error = open.readable("p", end).unwrap_err().to_string();
            assert!(error.contains("@00000002.open"), "{error}");
        }
        // Copied, and the original not deleted yet.
        let both = pieces(&[(0, false, 0), (1, false, 5), (1, true, 5)]);
        assert_eq!((both.readable("p", None).unwrap().len(), both.len()), (2, 5));
        // Begun by a process that then saw that it had been replaced.
        let void = pieces(&[(0, false, 0), (1, false, 5), (2, true, 0)]);
        assert_eq!(void.readable("p", None).unwrap(), [(0, 0), (1, 5)]);
        let hole = pieces(&[(0, false, 0), (2, false, 7)]);
        assert!(hole.readable("p", None).unwrap_err().to_string().contains("@00000001"));
        assert!(!pieces(&[(1, true, 3)]).is_file());
    }
}
