//! Open files of the local disk.

use super::blocking;
use super::root::{Root, fail, unreadable};
use crate::writer::WriterLife;
use crate::{AppendFile, ReadFile, Result, check_range, grows};
use async_trait::async_trait;
use bytes::Bytes;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use stele_env::Env;

/// Appends up to this size are written by the calling task. Copying 256 KiB into the page cache takes some 50 µs, about
/// the cost of handing it to another thread and back.
const INLINE_APPEND_BYTES_MAX: usize = 256 << 10;

/// Appends up to this size are written by the calling task if it asks for that. These are log appends, and their writer
/// fills a memtable with the same bytes on the same thread, which takes longer.
const TRIED_APPEND_BYTES_MAX: usize = 2 << 20;

/// Reads up to this size are tried on the calling task, for the same reason.
const INLINE_READ_BYTES_MAX: usize = 256 << 10;

/// A file being written. Keeps the data root locked.
pub(super) struct LocalAppend {
    file: Arc<File>,
    path: String,
    len: u64,
    life: WriterLife,
    /// Bytes were appended since the last sync, or there was none yet.
    dirty: bool,
    /// The directory entry is durable.
    linked: bool,
    root: Arc<Root>,
    env: Env,
}

impl LocalAppend {
    pub(super) fn new(file: File, path: &str, root: Arc<Root>, env: Env) -> Self {
        LocalAppend {
            file: Arc::new(file),
            path: path.to_owned(),
            len: 0,
            life: WriterLife::new(),
            dirty: true,
            linked: false,
            root,
            env,
        }
    }

    fn append_inline(&mut self, slices: &[&[u8]]) -> Result<()> {
        self.life.begin_append(&self.path)?;
        self.dirty = true;
        let written = match slices {
            [only] => write_all(&self.file, self.len, only),
            _ => write_all_of(&self.file, self.len, slices.iter().copied()),
        };
        let written = or_cut(&self.file, self.len, written).map_err(|e| fail(&self.path, "append", &e))?;
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        assert_eq!(written, total as u64, "an append that succeeds writes all bytes");
        self.len += written;
        self.life.succeeded();
        Ok(())
    }
}

#[async_trait]
impl AppendFile for LocalAppend {
    async fn append(&mut self, slices: &[Bytes]) -> Result<()> {
        self.life.begin_append(&self.path)?;
        self.dirty = true;
        let total: usize = slices.iter().map(Bytes::len).sum();
        if total <= INLINE_APPEND_BYTES_MAX {
            let written = write_all_of(&self.file, self.len, slices.iter().map(|slice| &slice[..]));
            let written = or_cut(&self.file, self.len, written).map_err(|e| fail(&self.path, "append", &e))?;
            assert_eq!(written, total as u64, "an append that succeeds writes all bytes");
        } else {
            let (file, slices) = (Arc::clone(&self.file), slices.to_vec());
            let (path, root) = (self.path.clone(), Arc::clone(&self.root));
            let (offset, is_log) = (self.len, grows(&self.path));
            blocking(&self.env, &self.path, "append", move || {
                let _locked = root;
                let written = write_all_of(&file, offset, slices.iter().map(|slice| &slice[..]));
                let written = or_cut(&file, offset, written).map_err(|e| fail(&path, "append", &e))?;
                assert_eq!(written, total as u64, "an append that succeeds writes all bytes");
                // The writer of a log says when it must be durable, and much of a log is deleted before.
                if !is_log {
                    begin_writeback(&file, offset, total);
                }
                Ok(())
            })
            .await?;
        }
        self.len += total as u64;
        self.life.succeeded();
        Ok(())
    }

    fn try_append(&mut self, slices: &[&[u8]]) -> Option<Result<()>> {
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        (total <= TRIED_APPEND_BYTES_MAX).then(|| self.append_inline(slices))
    }

    async fn sync(&mut self) -> Result<()> {
        self.life.begin_sync(&self.path)?;
        if self.dirty {
            let (file, linked) = (Arc::clone(&self.file), self.linked);
            let (path, root) = (self.path.clone(), Arc::clone(&self.root));
            blocking(&self.env, &self.path, "sync", move || {
                root.sync_written(&path, &file).map_err(|e| fail(&path, "sync", &e))?;
                if linked {
                    return Ok(());
                }
                root.sync_parent(&path).map_err(|e| fail(&path, "sync directory", &e))
            })
            .await?;
            self.dirty = false;
            self.linked = true;
        }
        self.life.succeeded();
        Ok(())
    }

    fn len(&self) -> u64 {
        self.len
    }
}

/// Writes all bytes at `offset`, through interruptions and short writes. Returns their number. Using the file's own
/// position would take another lock per write.
fn write_all(file: &File, offset: u64, bytes: &[u8]) -> io::Result<u64> {
    let mut rest = bytes;
    let mut at = offset;
    while !rest.is_empty() {
        match rustix::io::pwrite(file, rest, at) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                debug_assert!(
                    written <= rest.len(),
                    "the system writes at most the bytes it was given"
                );
                rest = rest.get(written..).unwrap_or_default();
                at += written as u64;
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(at - offset)
}

/// The same for slices, one after the other.
fn write_all_of<'a>(file: &File, offset: u64, slices: impl Iterator<Item = &'a [u8]>) -> io::Result<u64> {
    let mut slices: Vec<IoSlice<'_>> = slices.filter(|s| !s.is_empty()).map(IoSlice::new).collect();
    let mut rest = slices.as_mut_slice();
    let mut at = offset;
    while !rest.is_empty() {
        // The system ignores slices beyond its limit per call.
        match rustix::io::pwritev(file, rest, at) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                IoSlice::advance_slices(&mut rest, written);
                at += written as u64;
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(at - offset)
}

/// Cuts off the bytes of a failed append. They are not counted, and on a full disk they may be the last space there
/// was. A file of the log may stay for as long as nothing can be flushed, because flushes need space. Errors are
/// ignored.
fn or_cut(file: &File, offset: u64, written: io::Result<u64>) -> io::Result<u64> {
    written.inspect_err(|_| {
        let _ = file.set_len(offset);
    })
}

/// Starts writeback of the bytes just appended, so that the sync at the end of a large file does not find all of it
/// dirty. A burst of a hundred megabytes delays the commit log's syncs for as long as it lasts. `DONTNEED` begins
/// writeback of a range's dirty pages without waiting. It drops only clean pages, and a range just written has none. It
/// is only a hint: errors show in the sync.
#[cfg(target_os = "linux")]
fn begin_writeback(file: &File, offset: u64, len: usize) {
    let len = std::num::NonZeroU64::new(len as u64);
    let _ = rustix::fs::fadvise(file, offset, len, rustix::fs::Advice::DontNeed);
}

#[cfg(not(target_os = "linux"))]
fn begin_writeback(_: &File, _: u64, _: usize) {}

/// A file being read. It does not hold the lock: the file never changes, and an unlinked one stays readable.
pub(super) struct LocalRead {
    file: Arc<File>,
    len: u64,
    path: String,
    env: Env,
}

impl LocalRead {
    pub(super) fn new(file: File, len: u64, path: &str, env: Env) -> Self {
        LocalRead {
            file: Arc::new(file),
            len,
            path: path.to_owned(),
            env,
        }
    }
}

#[async_trait]
impl ReadFile for LocalRead {
    async fn read_at(&self, offset: u64, len: usize) -> Result<Bytes> {
        if let Some(cached) = self.try_read_at(offset, len) {
            return cached;
        }
        let (file, path) = (Arc::clone(&self.file), self.path.clone());
        blocking(&self.env, &self.path, "read", move || {
            read_exact_at(&file, &path, offset, len)
        })
        .await
    }

    fn try_read_at(&self, offset: u64, len: usize) -> Option<Result<Bytes>> {
        if let Err(error) = check_range(&self.path, offset, len, self.len) {
            return Some(Err(error));
        }
        if len > INLINE_READ_BYTES_MAX {
            return None;
        }
        let mut bytes = vec![0; len];
        read_cached(&self.file, offset, &mut bytes).then(|| Ok(Bytes::from(bytes)))
    }

    fn try_read_into(&self, offset: u64, bytes: &mut [u8]) -> Option<Result<()>> {
        if let Err(error) = check_range(&self.path, offset, bytes.len(), self.len) {
            return Some(Err(error));
        }
        (bytes.len() <= INLINE_READ_BYTES_MAX && read_cached(&self.file, offset, bytes)).then_some(Ok(()))
    }

    fn reads_from_memory(&self) -> bool {
        true
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn path(&self) -> &str {
        &self.path
    }
}

/// Fills `bytes` when the page cache holds all of them. All other cases (not cached, half cached, interrupted, not
/// supported by the file system, a real error) are left to the read that may wait.
#[cfg(target_os = "linux")]
fn read_cached(file: &File, offset: u64, bytes: &mut [u8]) -> bool {
    let wanted = bytes.len();
    let mut slices = [IoSliceMut::new(bytes)];
    let flags = rustix::io::ReadWriteFlags::NOWAIT;
    wanted == 0 || rustix::io::preadv2(file, &mut slices, offset, flags) == Ok(wanted)
}

#[cfg(not(target_os = "linux"))]
fn read_cached(_: &File, _: u64, bytes: &mut [u8]) -> bool {
    bytes.is_empty()
}

/// Reads exactly `len` bytes into uninitialized memory. The caller has checked the range, so `len` is at most the
/// file's length at open.
fn read_exact_at(file: &File, path: &str, offset: u64, len: usize) -> Result<Bytes> {
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        let at = offset + bytes.len() as u64;
        match rustix::io::pread(file, rustix::buffer::spare_capacity(&mut bytes), at) {
            // Shorter than at open: the file was cut.
            Ok(0) => check_range(path, offset, len, at)?,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            // Readable bytes come first, so the bad sector is known.
            Err(e @ rustix::io::Errno::IO) => return Err(unreadable(path, at, &e.into())),
            Err(e) => return Err(fail(path, "read", &e.into())),
        }
    }
    bytes.truncate(len);
    assert_eq!(bytes.len(), len, "a read that succeeds gives all bytes");
    Ok(Bytes::from(bytes))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    use stele_env::tokio_env::TokioRuntime;
    use stele_types::ErrorKind;

    /// Files that do not grow beyond their first page simulate a disk that becomes full within an append.
    #[tokio::test]
    async fn what_a_failed_append_has_written_is_given_back() {
        let directory = tempfile::TempDir::new().unwrap();
        let root = Arc::new(Root::open(directory.path()).unwrap());
        for len in [8 << 10, INLINE_APPEND_BYTES_MAX + 1] {
            for tried in [false, true] {
                let file = File::from(memfd_create("f", MemfdFlags::ALLOW_SEALING).unwrap());
                let mut append = LocalAppend::new(file, "log/f", root.clone(), TokioRuntime::current());
                append.append(&[Bytes::from_static(b"kept")]).await.unwrap();
                append.file.set_len(4 << 10).unwrap();
                fcntl_add_seals(&*append.file, SealFlags::GROW).unwrap();
                let bytes = vec![1; len];
                let outcome = if tried {
                    append.try_append(&[&bytes]).unwrap()
                } else {
                    append.append(&[Bytes::from(bytes)]).await
                };
                outcome.unwrap_err();
                assert_eq!(append.file.metadata().unwrap().len(), 4, "{len} bytes");
                assert_eq!(append.len(), 4);
            }
        }
    }

    /// The kernel answers EIO for unmapped memory: no device with a bad sector is needed.
    #[test]
    fn what_the_device_cannot_read_is_said_to_be_lost() {
        let file = File::open("/proc/self/mem").unwrap();
        let error = read_exact_at(&file, "log/f", 0, 8).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        assert!(
            error
                .to_string()
                .starts_with("log/f: the device cannot read the bytes at offset 0"),
            "{error}"
        );
    }
}
