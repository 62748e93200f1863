//! Sealing: how a growing file ends that its writer has not finished.
//!
//! To seal a file the new owner recovers the leases of its open pieces ([`seal`]). From that call on no sync of the old
//! owner succeeds, and its acknowledged bytes are below the end that the DataNodes agree on. Bytes after the last sync
//! may be included, in page caches only. Readers act on them, so the piece is copied. Nothing here opens a finished
//! piece for appending: a sealed file stays sealed.
//!
//! A power loss of the DataNodes before the copy is closed may take those bytes, and the file cannot be read to its end then. So the new
//! owner notes where the last sync ended, in the name of an empty file, as soon as it has the lease ([`note_synced`]). If the rest cannot be
//! read, the copy ends there: it has all acknowledged bytes, and nobody has read others. Without a note the piece is not sealed, and the
//! error tells an operator which note gives its end up.
//!
//! A writer whose operation failed cannot finish its piece. Its own process seals the file then, because it reads the
//! file later: the archive needs all acknowledged bytes of the log.

use super::pieces::{DIRECTORIES, Pieces, open_key, parse_piece, piece_key, synced_key, synced_prefix};
use crate::cluster::{Cluster, Lease};
use crate::fault::Fault;
use crate::located::{self, Located};
use crate::shared::Shared;
use futures::{StreamExt, TryStreamExt};
use std::time::Duration;
use stele_env::PlantedBug;
use stele_storage::remote::owner;
use stele_storage::{Result, StorageError, grows};

/// Pieces sealed concurrently.
pub(super) const SEALS_CONCURRENT: usize = 16;

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

/// Limit of the search for the bytes of a piece that can be read.
const SEARCH_LIMIT: Duration = Duration::from_secs(60);

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
pub(super) async fn seal_own(shared: &Shared, path: &str) -> Result<()> {
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

pub(super) async fn try_seal_own(shared: &Shared, path: &str) -> Result<()> {
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
    let Err(mut error) = copy_file(cluster, &open, (len, len), &copy).await else {
        return Ok(copy);
    };
    if let Some(acknowledged) = stated.filter(|acknowledged| *acknowledged < len) {
        tracing::warn!(
            path,
            number,
            acknowledged,
            len,
            %error,
            "the end of a log file cannot be read; it was not acknowledged, and is left out"
        );
        let copy = cluster.unfinished();
        match copy_file(cluster, &open, (len, acknowledged), &copy).await {
            Ok(()) => return Ok(copy),
            Err(shorter) => error = shorter,
        }
    }
    Err(with_remedy(cluster, (path, number), (len, stated), error).await)
}

/// Adds to an error of reading an open piece the name by which an operator gives its end up, if a part of it can be read. Which bytes
/// were acknowledged is not known then, or some of them cannot be read: nothing is left out by itself.
async fn with_remedy(
    cluster: &Cluster,
    (path, number): (&str, u32),
    (len, stated): (u64, Option<u64>),
    error: StorageError,
) -> StorageError {
    let open = open_key(path, number);
    let readable = match readable(cluster, &open, len).await {
        Ok(Some(readable)) => readable,
        _ => return error,
    };
    if stated.is_some_and(|stated| stated <= readable) {
        // The bytes of the note can be read: something else failed.
        return error;
    }
    assert!(readable > 0, "the last readable byte was read");
    let acknowledged = match stated {
        Some(stated) => format!("at most {stated} of them were acknowledged"),
        None => "how many of them were acknowledged is not known".to_owned(),
    };
    let remedy = cluster.absolute(&synced_key(path, number, readable));
    StorageError::Io {
        path: open,
        operation: "seal",
        message: format!(
            "{error}. The first {readable} of its {len} bytes can be read; {acknowledged}. If all its DataNodes run, and two attempts in a row find \
             the same number, an empty file with the name {remedy} gives up the others"
        ),
    }
}

/// The number of bytes at the front of a file that can be read, if some can and some cannot. Absent also after a search that takes too
/// long, or that met an outage: then a shorter front would seem to be all.
async fn readable(cluster: &Cluster, key: &str, len: u64) -> Result<Option<u64>> {
    let deadline = cluster.env.now() + SEARCH_LIMIT;
    let (mut readable, mut step) = (0, COPY_BYTES);
    while readable < len && step > 0 {
        if cluster.env.now() >= deadline {
            return Ok(None);
        }
        let count = step.min(len - readable);
        match located::is_readable(cluster, key, len, (readable, count as usize)).await? {
            true => readable += count,
            false => step = count / 2,
        }
    }
    assert!(readable <= len, "the search stays within the file");
    if readable == 0 || readable == len {
        return Ok(None);
    }
    // With all attempts of a read. A byte before it shows that the DataNodes are in reach.
    let source = Located::open(cluster, key, len).await?;
    let is_end = source.read(readable, 1).await.is_err() && source.read(readable - 1, 1).await.is_ok();
    Ok(is_end.then_some(readable))
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
pub(super) async fn finish(cluster: &Cluster, from: &str, to: &str) -> Result<()> {
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
