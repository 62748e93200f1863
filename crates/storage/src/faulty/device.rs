//! The model of a device: written bytes, synced bytes, and their fate in a crash.

use super::{FaultPlan, OpCounts};
use crate::memory::Content;
use crate::{FileInfo, Result, StorageError};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use stele_env::Env;

/// Discarded files that power loss may bring back. More than a tablet discards while a journal waits for its next commit.
const DISCARDED_MAX: usize = 64;

/// The unit that a device writes whole or not at all, and the most sectors of a gap: a page has eight.
const SECTOR: usize = 512;
const HOLE_SECTORS_MAX: u64 = 8;

/// A file; handles share it and keep it when its name is deleted. Locked after the device, never before.
pub(super) type SharedFile = Arc<Mutex<FileState>>;

#[derive(Debug)]
pub(super) struct FileState {
    /// Everything written.
    pub(super) content: Content,
    /// Number of its bytes that survive power loss.
    pub(super) synced: usize,
    /// The name survives power loss.
    pub(super) linked: bool,
}

/// Whether an operation fails, and whether it has its effect nevertheless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    Before,
    After,
}

#[derive(Debug, Default)]
pub(super) struct Device {
    files: BTreeMap<String, SharedFile>,
    /// Files that were deleted but not durably: power loss may bring them back.
    deleted: BTreeMap<String, SharedFile>,
    /// Recently discarded files, oldest first. The journal makes a discard durable some time later, without a sync.
    discarded: VecDeque<String>,
    /// Bytes of files that the device cannot read at present.
    pub(super) unreadable: BTreeMap<String, Range<u64>>,
    pub(super) generation: u64,
    pub(super) plan: FaultPlan,
    pub(super) counts: OpCounts,
}

impl Device {
    /// True with the given probability; takes no random number when that is 0.
    pub(super) fn draw_fault(&mut self, env: &Env, probability: f64) -> bool {
        let fault = chance(env, probability);
        self.counts.faults += u64::from(fault);
        fault
    }

    pub(super) fn fault_on_name(&mut self, env: &Env) -> Fault {
        if !self.draw_fault(env, self.plan.put_error) {
            Fault::None
        } else if chance(env, 0.5) {
            Fault::Before
        } else {
            Fault::After
        }
    }

    pub(super) fn file(&self, path: &str) -> Result<SharedFile> {
        let not_found = || StorageError::NotFound { path: path.to_owned() };
        self.files.get(path).cloned().ok_or_else(not_found)
    }

    /// Fails when the device cannot read all of these bytes.
    pub(super) fn check_readable(&self, path: &str, offset: u64, len: usize) -> Result<()> {
        let end = offset.saturating_add(len as u64);
        let bad = self.unreadable.get(path);
        match bad.filter(|bad| bad.start < end && offset < bad.end) {
            Some(bad) => Err(StorageError::Unreadable {
                path: path.to_owned(),
                offset: bad.start.max(offset),
                message: "made unreadable".to_owned(),
            }),
            None => Ok(()),
        }
    }

    fn insert(&mut self, path: &str, state: FileState) -> Result<SharedFile> {
        if self.files.contains_key(path) {
            return Err(StorageError::AlreadyExists { path: path.to_owned() });
        }
        let file = Arc::new(Mutex::new(state));
        self.files.insert(path.to_owned(), Arc::clone(&file));
        self.deleted.remove(path);
        Ok(file)
    }

    pub(super) fn create(&mut self, path: &str) -> Result<SharedFile> {
        self.counts.creates += 1;
        let content = Content::Growing(Vec::new());
        self.insert(
            path,
            FileState {
                content,
                synced: 0,
                linked: false,
            },
        )
    }

    pub(super) fn put(&mut self, path: &str, content: Bytes) -> Result<()> {
        self.counts.puts += 1;
        self.counts.written_bytes += content.len() as u64;
        if self.free_bytes().is_some_and(|free| free < content.len() as u64) && !self.files.contains_key(path) {
            self.counts.faults += 1;
            return Err(StorageError::NoSpace { path: path.to_owned() });
        }
        let synced = content.len();
        self.insert(
            path,
            FileState {
                content: Content::Shared(content),
                synced,
                linked: false,
            },
        )
        .map(drop)
    }

    /// Records that a put or a deletion has succeeded: its directory was synced.
    pub(super) fn settle_name(&mut self, path: &str) {
        self.deleted.remove(path);
        if let Some(file) = self.files.get(path) {
            file.lock().linked = true;
        }
    }

    /// Decides after a put whether its name is durable.
    pub(super) fn fail_to_link(&mut self, env: &Env, path: &str) -> Result<()> {
        if !self.draw_fault(env, self.plan.put_unlinked) {
            return Ok(());
        }
        if let Some(file) = self.files.get(path) {
            file.lock().linked = false;
        }
        Err(super::injected(path, "put: sync directory"))
    }

    pub(super) fn list(&mut self, prefix: &str) -> Vec<FileInfo> {
        self.counts.lists += 1;
        let from = self.files.range(prefix.to_owned()..);
        let matching = from.take_while(|(path, _)| path.starts_with(prefix));
        let info = |(path, file): (&String, &SharedFile)| FileInfo {
            path: path.clone(),
            len: file.lock().content.len() as u64,
        };
        matching.map(info).collect()
    }

    pub(super) fn delete(&mut self, path: &str) {
        self.counts.deletes += 1;
        if let Some(file) = self.files.remove(path) {
            self.deleted.insert(path.to_owned(), file);
        }
    }

    pub(super) fn discard(&mut self, path: &str) {
        self.delete(path);
        self.discarded.push_back(path.to_owned());
        if self.discarded.len() > DISCARDED_MAX
            && let Some(oldest) = self.discarded.pop_front()
        {
            self.deleted.remove(&oldest);
        }
    }

    pub(super) fn free_bytes(&self) -> Option<u64> {
        let used = || self.files.values().map(|f| f.lock().content.len() as u64).sum();
        self.plan.space_limit.map(|limit| limit.saturating_sub(used()))
    }

    /// Appends all bytes, or some of them with an error.
    pub(super) fn append(&mut self, env: &Env, path: &str, file: &SharedFile, slices: &[Bytes]) -> Result<()> {
        let total: usize = slices.iter().map(Bytes::len).sum();
        self.counts.appends += 1;
        self.counts.written_bytes += total as u64;
        let space = self.free_bytes().unwrap_or(u64::MAX);
        let (most, error) = if self.draw_fault(env, self.plan.append_error) {
            (total.min(space as usize), Some(super::injected(path, "append")))
        } else if total as u64 > space {
            self.counts.faults += 1;
            (space as usize, Some(StorageError::NoSpace { path: path.to_owned() }))
        } else {
            (total, None)
        };
        let mut rest = match error {
            Some(_) => between(env, 0, most),
            None => total,
        };
        let mut file = file.lock();
        for slice in slices {
            let (head, _) = slice.split_at(rest.min(slice.len()));
            file.content.growing().extend_from_slice(head);
            rest -= head.len();
        }
        debug_assert_eq!(rest, 0, "an append has the effect that was decided for it");
        error.map_or(Ok(()), Err)
    }

    pub(super) fn sync(&mut self, env: &Env, path: &str, file: &SharedFile) -> Result<()> {
        self.counts.syncs += 1;
        if self.draw_fault(env, self.plan.sync_error) {
            file.lock().fail_sync(env);
            return Err(super::injected(path, "sync"));
        }
        file.lock().sync();
        Ok(())
    }

    /// A failure loses no bytes: it would be unknown of which file, and the caller of a failed call ends.
    pub(super) fn sync_all(&mut self, env: &Env) -> Result<()> {
        self.counts.syncs += 1;
        if self.draw_fault(env, self.plan.sync_error) {
            return Err(super::injected("", "sync all"));
        }
        self.files.values().for_each(|file| file.lock().sync());
        self.deleted.clear();
        Ok(())
    }

    pub(super) fn crash(&mut self, env: &Env) {
        self.counts.crashes += 1;
        self.generation += 1;
        self.files.retain(|_, file| {
            let mut file = file.lock();
            let stays = file.linked || chance(env, 0.5);
            if stays {
                file.lose_power(env);
            }
            stays
        });
        for (path, file) in std::mem::take(&mut self.deleted) {
            if chance(env, 0.5) && !self.files.contains_key(&path) {
                file.lock().lose_power(env);
                self.files.insert(path, file);
            }
        }
    }

    pub(super) fn kill(&mut self) {
        self.counts.kills += 1;
        self.generation += 1;
    }
}

impl FileState {
    fn sync(&mut self) {
        self.synced = self.content.len();
        self.linked = true;
    }

    /// Simulates a failed sync. The bytes may have reached the device anyway, may still be in the page cache, or may be
    /// gone from there as well. In the last case readers find the file cut or with garbage.
    fn fail_sync(&mut self, env: &Env) {
        match env.random_below(4) {
            0 => self.sync(),
            1 => {}
            2 => self.cut(between(env, self.synced, self.content.len())),
            _ => self.tear(env),
        }
    }

    fn lose_power(&mut self, env: &Env) {
        let written = self.content.len();
        assert!(self.synced <= written, "only written bytes are synced");
        // The ends of the range are the likely cases: no writeback, or all of it.
        let stays = match env.random_below(3) {
            0 => self.synced,
            1 => written,
            _ => between(env, self.synced, written),
        };
        self.cut(stays);
        if chance(env, 0.5) {
            self.tear(env);
        }
        self.sync();
    }

    fn cut(&mut self, len: usize) {
        assert!(len >= self.synced, "synced bytes survive");
        if len < self.content.len() {
            self.content.growing().truncate(len);
        }
    }

    /// Overwrites a suffix of the unsynced bytes, or a gap in them, with garbage or with the zeros of an unwritten
    /// block. Pages and sectors reach the device in any order, so bytes after a lost one may be present.
    fn tear(&mut self, env: &Env) {
        let len = self.content.len();
        let from = between(env, self.synced, len);
        // The first sector of a file reaches the device whole or not at all.
        let from = if from < SECTOR { self.synced } else { from };
        let (from, to) = if chance(env, 0.5) {
            (from, len)
        } else {
            self.hole_at(from, 1 + env.random_below(HOLE_SECTORS_MAX) as usize)
        };
        assert!(from >= self.synced && to <= len, "only unsynced bytes are torn");
        let zeros = chance(env, 0.5);
        if from < to {
            for byte in self.content.growing().iter_mut().take(to).skip(from) {
                *byte = if zeros { 0 } else { env.random_u64() as u8 };
            }
        }
    }

    /// The range of whole sectors that starts at the sector of `place`, without synced bytes.
    fn hole_at(&self, place: usize, sectors: usize) -> (usize, usize) {
        let first = place / SECTOR;
        let from = (first * SECTOR).max(self.synced);
        (from, ((first + sectors) * SECTOR).min(self.content.len()))
    }
}

pub(super) fn chance(env: &Env, probability: f64) -> bool {
    // 53 random bits are a uniform number in [0, 1).
    probability > 0.0 && ((env.random_u64() >> 11) as f64) < probability * (1u64 << 53) as f64
}

/// A random number, both ends included.
fn between(env: &Env, from: usize, to: usize) -> usize {
    from + env.random_below(to.saturating_sub(from) as u64 + 1) as usize
}
