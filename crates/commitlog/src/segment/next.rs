//! The files of the segments to come, made before they are needed.
//!
//! To make one is to wait for the device twice, and each time behind what it is busy with: where it is told to discard what is
//! deleted (the mount option `discard`), the freeing of 32 MiB occupies it for some 55 ms. The fastest writers need a file every
//! 80 ms. So some are kept in reserve, and made at the same time: one after the other they would come no faster than
//! the device answers.

use super::Segments;
use crate::format;
use std::collections::VecDeque;
use stele_storage::{AppendFile, StorageError};
use tokio::sync::oneshot;

/// Files in reserve, or being made, once a stream fills segments without a sync. When a segment begins, the file is asked for that
/// comes after these; until that one is needed so many segments are filled, and the last may grow to twice its size
/// ([`super::OVERSIZE`]). That is 128 MiB with segments of 32, a third of a second at 400 MB/s. Each is an empty file that a
/// crash leaves behind.
pub(super) const RESERVE: usize = 3;

/// A segment in which nothing is yet.
pub(super) struct Empty {
    pub(super) number: u64,
    pub(super) path: String,
    pub(super) file: Box<dyn AppendFile>,
    /// Its name survives power loss.
    pub(super) named: bool,
}

/// Files for the next segments.
#[derive(Default)]
pub(crate) struct Next {
    /// Made, in the order of their numbers.
    pub(super) ready: VecDeque<Empty>,
    /// Being made, with higher numbers and in their order. Together at most [`RESERVE`].
    coming: VecDeque<oneshot::Receiver<Result<Empty, StorageError>>>,
}

impl Next {
    /// Whether there is one, or will be.
    pub(super) fn is_asked_for(&self) -> bool {
        !self.ready.is_empty() || !self.coming.is_empty()
    }

    fn is_enough(&self) -> bool {
        self.ready.len() + self.coming.len() >= RESERVE
    }

    /// Learns which of those that are being made are there; `false` when one could not be made.
    pub(super) fn look(&mut self) -> bool {
        let mut all_made = true;
        while let Some(coming) = self.coming.front_mut() {
            let made = match coming.try_recv() {
                Err(oneshot::error::TryRecvError::Empty) => break,
                Ok(made) => made.ok(),
                Err(oneshot::error::TryRecvError::Closed) => None,
            };
            self.coming.pop_front();
            all_made &= made.is_some();
            self.ready.extend(made);
        }
        all_made
    }

    /// Waits for the next of those that are being made; `false` when there is none.
    async fn arrive(&mut self) -> bool {
        let Some(coming) = self.coming.front_mut() else {
            return false;
        };
        let made = coming.await;
        self.coming.pop_front();
        self.ready.extend(made.ok().and_then(Result::ok));
        true
    }

    /// Waits for one, if any are being made.
    pub(super) async fn be_ready(&mut self) {
        while self.ready.is_empty() && self.arrive().await {}
    }

    /// The first, which is waited for if none is there.
    pub(super) async fn take(&mut self) -> Option<Empty> {
        self.be_ready().await;
        self.ready.pop_front()
    }
}

impl Segments {
    /// Has a file made for a next segment, and the open one known to the medium by name, since a reader takes a segment that is not
    /// there for one that was flushed. At first when half the open one is full, and not of syncs anyway; when one has relieved
    /// another, at once.
    pub(super) fn prepare(&mut self) {
        let Some(open) = self.open.as_ref() else { return };
        let begins = if open.relieves { 0 } else { self.segment_bytes / 2 };
        let due = open.acknowledged >= begins && open.acknowledged > open.synced;
        if !due || open.ends_reserve || self.next.is_enough() {
            return;
        }
        if !open.is_named() {
            self.begin_ahead();
        }
        let number = (self.next_segment)();
        let path = format::segment_path(self.stream, number);
        let (done, made) = oneshot::channel();
        self.next.coming.push_back(made);
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
            let named = true;
            let _ = done.send(made.map(|file| Empty {
                number,
                path,
                file,
                named,
            }));
        });
    }

    /// Deletes the files that were made for next segments, for there will be none.
    pub(crate) async fn discard_next(&mut self) {
        while self.next.arrive().await {}
        for empty in self.next.ready.drain(..) {
            let _ = self.shared.storage.delete(&empty.path).await;
        }
    }
}
