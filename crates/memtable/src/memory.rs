//! Memory of an arena's chunks: small ones from the allocator, large ones from the system.
//!
//! A chunk of the usual size is a huge page where the system has them. An insertion goes to places all over a memtable, and
//! with pages of 4 KiB the processor misses its translation caches at nearly every address. Random reads of 512 MiB took
//! 290 ns each, 190 with huge pages (in a virtual machine, whose addresses are translated twice). Huge pages waste nothing,
//! because a memtable fills its chunks.
//!
//! Memory from the system goes back to it when it is freed, on the thread that frees it. The allocator would retain it for
//! a while and then give back many chunks together, on any thread that frees something next: a point read waited up to 100 ms.
#![allow(unsafe_code, reason = "memory that is not initialised, and mappings")]

use parking_lot::Mutex;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Size of most chunks, and of a huge page on the processors that servers have.
pub const USUAL_BYTES: usize = 2 << 20;
/// All memory begins at a cache line.
pub const LINE: usize = 64;
/// One byte in this many may be spare. While one memtable is written to a file, about as much memory is freed together as
/// is filled until the next one is written: a quarter of the memtables' budget.
const SPARE_PART: u64 = 4;

/// Memory of a chunk. This value owns it alone, and its content means nothing until it is written.
pub struct Memory {
    start: NonNull<u8>,
    len: usize,
}

impl Memory {
    /// No bytes.
    pub const NONE: Memory = Memory {
        start: NonNull::dangling(),
        len: 0,
    };

    /// Allocates `len` bytes, at least one.
    pub fn new(len: usize) -> Self {
        assert!(len > 0, "an allocation has at least one byte");
        let start = if is_mapped(len) {
            system::map(len)
        } else {
            // SAFETY: the size is not zero.
            NonNull::new(unsafe { alloc(layout(len)) })
        };
        match start {
            Some(start) => Memory { start, len },
            None => handle_alloc_error(layout(len)),
        }
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Where it begins: at a cache line.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if is_mapped(self.len) {
            // SAFETY: mapped with this length in `new`, and nobody else has it.
            unsafe { system::unmap(self.start, system::mapped(self.len)) };
        } else if self.len > 0 {
            // SAFETY: allocated with this layout in `new`, and freed once; its content needs no drop.
            unsafe { dealloc(self.start.as_ptr(), layout(self.len)) };
        }
    }
}

// SAFETY: memory that its owner has alone.
unsafe impl Send for Memory {}

fn layout(len: usize) -> Layout {
    Layout::from_size_align(len, LINE).expect("sizes are bounded by the format")
}

/// Whether memory of this size comes from the system.
fn is_mapped(len: usize) -> bool {
    cfg!(not(miri)) && len >= USUAL_BYTES
}

mod system {
    use super::USUAL_BYTES;
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
    use std::ptr::{self, NonNull};

    /// Fresh memory that begins where a huge page may; `None` when the system has none left.
    pub fn map(len: usize) -> Option<NonNull<u8>> {
        let len = mapped(len);
        let start = map_anywhere(len)?;
        let start = if start.addr().get().is_multiple_of(USUAL_BYTES) {
            start
        } else {
            // Systems before Linux 6.7 do not align by themselves.
            // SAFETY: mapped above, and nobody has it.
            unsafe { unmap(start, len) };
            map_aligned(len)?
        };
        debug_assert!(
            start.addr().get().is_multiple_of(USUAL_BYTES),
            "a mapping begins at a huge page"
        );
        // Refused where there are no huge pages: then small ones it is.
        // SAFETY: changes nothing that can be read in memory which is all ours.
        let _ = unsafe { madvise(start.as_ptr().cast(), len, Advice::LinuxHugepage) };
        Some(start)
    }

    /// Maps more than is needed, and unmaps the excess before and behind.
    pub(super) fn map_aligned(len: usize) -> Option<NonNull<u8>> {
        let len = mapped(len);
        let around = map_anywhere(len.checked_add(USUAL_BYTES)?)?;
        let before = around.addr().get().next_multiple_of(USUAL_BYTES) - around.addr().get();
        let behind = USUAL_BYTES - before;
        // SAFETY: `before + len + behind` bytes are mapped, and nobody has them.
        unsafe {
            let start = around.add(before);
            if before > 0 {
                unmap(around, before);
            }
            if behind > 0 {
                unmap(start.add(len), behind);
            }
            Some(start)
        }
    }

    /// The largest page of any system this runs on, apart from huge ones.
    const PAGE_BYTES_MAX: usize = 64 << 10;

    /// Bytes that are mapped for an allocation of this size: whole pages.
    pub fn mapped(len: usize) -> usize {
        len.next_multiple_of(PAGE_BYTES_MAX)
    }

    pub(super) fn map_anywhere(len: usize) -> Option<NonNull<u8>> {
        // SAFETY: a new mapping, at any free address.
        let start = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        NonNull::new(start.ok()?.cast())
    }

    /// # Safety
    /// The caller alone has these bytes: whole pages, mapped here.
    pub unsafe fn unmap(start: NonNull<u8>, len: usize) {
        // It fails only when a mapping would fall into two and there are too many; the memory is then lost until the process ends.
        // SAFETY: the caller's.
        let _ = unsafe { munmap(start.as_ptr().cast(), len) };
    }
}

/// Chunks of the usual size that memtables have freed, retained for memtables that fill. The system clears memory when it
/// is first touched, and reclaims it when it is freed. In a load of values of a kilobyte that was 4 % of the server's time,
/// and 10 to 19 % on a virtual machine whose host has to find the memory, too.
///
/// Bounded by a part of the memory in use or, while something is written, of the memtables' budget, so that nothing is
/// retained where nothing is written. Memory in use and spare memory together do not exceed the budget.
#[derive(Default)]
pub struct Spare {
    chunks: Mutex<Vec<Memory>>,
    /// Bytes that memtables may take while something is written, or none.
    share: AtomicU64,
}

impl std::fmt::Debug for Spare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spare").finish_non_exhaustive()
    }
}

impl Spare {
    /// Memory of the usual size that nobody has any more, if there is some.
    pub fn take(&self) -> Option<Memory> {
        self.chunks.lock().pop()
    }

    /// Retains a chunk of the usual size, if not too much is spare already for `in_use` bytes.
    pub fn give(&self, memory: Memory, in_use: u64) {
        assert_eq!(memory.len(), USUAL_BYTES, "spare chunks have the usual size");
        let most = self.most(in_use);
        self.keep(most, Some(memory));
    }

    /// Bounds the spare memory by a budget, from now on.
    pub fn set_share(&self, bytes: u64, in_use: u64) {
        self.share.store(bytes, Ordering::Relaxed);
        self.keep(self.most(in_use), None);
    }

    /// Frees this many bytes: a caller allocates memory of another size.
    pub fn give_way(&self, bytes: usize) {
        let kept = self.chunks.lock().len();
        self.keep(kept.saturating_sub(bytes.div_ceil(USUAL_BYTES)), None);
    }

    /// Chunks that may be retained in addition to this many bytes in use.
    fn most(&self, in_use: u64) -> usize {
        let share = self.share.load(Ordering::Relaxed);
        let within = (share / SPARE_PART).min(share.saturating_sub(in_use));
        usize::try_from(within.max(in_use / SPARE_PART)).unwrap_or(usize::MAX) / USUAL_BYTES
    }

    fn keep(&self, most: usize, given: Option<Memory>) {
        let mut chunks = self.chunks.lock();
        chunks.extend(given);
        let beyond = most.min(chunks.len());
        let freed = chunks.split_off(beyond);
        drop(chunks);
        drop(freed);
    }

    /// Bytes kept.
    pub fn bytes(&self) -> usize {
        self.chunks.lock().len() * USUAL_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All of it can be written, from the first byte to the last, and it begins where its kind must.
    #[test]
    fn memory_of_any_size_is_whole() {
        for len in [1, 63, 4096, USUAL_BYTES - 1, USUAL_BYTES, USUAL_BYTES + 1, 10_000_001] {
            let memory = Memory::new(len);
            let start = memory.start().as_ptr();
            assert_eq!(start as usize % LINE, 0);
            assert!(!is_mapped(len) || (start as usize).is_multiple_of(USUAL_BYTES));
            // SAFETY: `len` bytes that this test has alone.
            unsafe {
                start.write_bytes(7, len);
                assert_eq!((*start, *start.add(len - 1)), (7, 7));
            }
        }
    }

    /// As on systems that do not align mappings.
    #[test]
    #[cfg(not(miri))]
    fn what_is_not_aligned_by_the_system_is_aligned_here() {
        for len in [USUAL_BYTES, USUAL_BYTES + 1, 3 * USUAL_BYTES - 1] {
            // Something in between, so that the system's next place is not aligned by luck alone.
            let between = system::map_anywhere(64 << 10).unwrap();
            let start = system::map_aligned(len).unwrap();
            assert!(start.addr().get().is_multiple_of(USUAL_BYTES));
            // SAFETY: both were mapped above.
            unsafe {
                start.as_ptr().write_bytes(7, len);
                system::unmap(start, system::mapped(len));
                system::unmap(between, 64 << 10);
            }
        }
    }
}
