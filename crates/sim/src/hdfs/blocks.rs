//! The bytes of one file on the DataNodes.

use bytes::Bytes;
use stele_hdfs::client::{Fault, Result};

/// The blocks of a file.
#[derive(Default)]
pub(super) struct Blocks {
    /// Received by the DataNodes.
    content: Vec<u8>,
    /// Bytes at the front that survive a power loss.
    synced: usize,
    /// The lease whose writer may still send bytes.
    pipeline: Option<u64>,
}

impl Blocks {
    /// Without bytes, for the writer with this lease.
    pub(super) fn new(lease: u64) -> Blocks {
        Blocks {
            pipeline: Some(lease),
            ..Blocks::default()
        }
    }

    pub(super) fn len(&self) -> usize {
        self.content.len()
    }

    /// Bytes of a writer. Some may have been received before, if its connection was lost then.
    pub(super) fn receive(&mut self, lease: u64, offset: usize, bytes: &[u8], is_sync: bool) -> Result<()> {
        if self.pipeline != Some(lease) || offset != self.content.len() {
            return Err(Fault::Unknown("the pipeline is broken".to_owned()));
        }
        self.content.extend_from_slice(bytes);
        if is_sync {
            self.synced = self.content.len();
        }
        Ok(())
    }

    pub(super) fn read(&self, offset: usize, len: usize) -> Result<Bytes> {
        match self.content.get(offset..offset + len) {
            Some(bytes) => Ok(Bytes::copy_from_slice(bytes)),
            None => Err(Fault::Unknown("no DataNode has the block".to_owned())),
        }
    }

    /// Loses a synced byte.
    pub(super) fn lose_synced(&mut self) {
        self.synced = self.synced.saturating_sub(1);
        self.content.truncate(self.synced);
    }

    /// Nothing is received any more.
    pub(super) fn close(&mut self) {
        self.pipeline = None;
    }

    /// Loses the pipeline, and ends anywhere behind the last sync, by the choice of a number up to another one: by a recovery of the
    /// lease, or by a power loss.
    pub(super) fn cut(&mut self, choose: impl Fn(usize) -> usize) {
        self.close();
        assert!(self.synced <= self.content.len(), "synced bytes were received");
        let kept = self.synced + choose(self.content.len() - self.synced);
        self.content.truncate(kept);
    }
}
