//! The file of the next segment, made before it is needed.
//!
//! Making a file waits for the device twice: once to create it, once to make its name durable. The name must be durable
//! before the segment is used, because a reader takes a missing segment for a flushed one. So the file is made in the
//! background while the open segment fills, and a full segment is replaced without waiting.

use super::Segments;
use crate::format;
use stele_storage::{AppendFile, StorageError};
use tokio::sync::oneshot;

/// A file for a segment, without content.
pub(super) struct Empty {
    pub(super) number: u64,
    pub(super) path: String,
    pub(super) file: Box<dyn AppendFile>,
}

/// The file for the next segment.
#[derive(Default)]
pub(super) enum Next {
    #[default]
    Absent,
    /// It is being made in the background.
    Coming(oneshot::Receiver<Result<Empty, StorageError>>),
    Ready(Empty),
    /// It could not be made. No other is asked for while the same segment is open, or each group would ask again.
    Failed,
}

impl Next {
    /// Whether it is being made. Notices that it has been.
    pub(super) fn is_coming(&mut self) -> bool {
        let Next::Coming(coming) = self else { return false };
        match coming.try_recv() {
            Err(oneshot::error::TryRecvError::Empty) => true,
            Err(oneshot::error::TryRecvError::Closed) => {
                *self = Next::Failed;
                false
            }
            Ok(made) => {
                *self = Next::made(made.ok());
                false
            }
        }
    }

    fn made(made: Option<Empty>) -> Next {
        made.map_or(Next::Failed, Next::Ready)
    }

    /// Waits until it is made, or has failed, if it is being made.
    pub(super) async fn arrive(&mut self) {
        if let Next::Coming(coming) = self {
            let made = coming.await;
            *self = Next::made(made.ok().and_then(Result::ok));
        }
    }

    /// Takes the file if it is ready. Forgets a failure.
    pub(super) fn take_ready(&mut self) -> Option<Empty> {
        if self.is_coming() {
            return None;
        }
        match std::mem::take(self) {
            Next::Ready(empty) => Some(empty),
            Next::Absent | Next::Failed | Next::Coming(_) => None,
        }
    }

    /// Puts back a file that was taken and not used.
    pub(super) fn put_back(&mut self, empty: Empty) {
        assert!(matches!(self, Next::Absent), "a stream has at most one next file");
        *self = Next::Ready(empty);
    }
}

impl Segments {
    /// Has the next segment's file made in the background once the open segment is half full and has unsynced bytes. Where each
    /// group is synced, a full segment needs no sync when it is closed, so making the next one on demand costs little.
    pub(super) fn prepare(&mut self) {
        let Some(open) = self.open.as_ref() else { return };
        let is_due = open.acknowledged >= self.segment_bytes / 2 && open.acknowledged > open.synced;
        if !is_due || !matches!(self.next, Next::Absent) {
            return;
        }
        let number = (self.next_segment)();
        assert!(number > open.number, "segment numbers grow along a stream");
        let path = format::segment_path(self.stream, number);
        let (done, coming) = oneshot::channel();
        self.next = Next::Coming(coming);
        let storage = self.shared.storage.clone();
        self.env.spawn("commit-log-create", async move {
            let made = async {
                let mut file = storage.create(&path).await?;
                file.sync().await?;
                Ok(file)
            };
            let made = made.await;
            if made.is_err() {
                let _ = storage.delete(&path).await;
            }
            let _ = done.send(made.map(|file| Empty { number, path, file }));
        });
    }

    /// Deletes the file that was made for a next segment: the stream ends.
    pub(crate) async fn discard_next(&mut self) {
        self.next.arrive().await;
        if let Some(empty) = self.next.take_ready() {
            let _ = self.shared.storage.delete(&empty.path).await;
        }
    }
}
