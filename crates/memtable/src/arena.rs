//! Memory that only grows: the cells and nodes of one memtable, at 32-bit addresses.
//!
//! A *chunk* is one allocation; it never moves and lives until the arena is dropped and no share of it is left. An *address* is
//! a chunk's number and an offset in units of four bytes, so that a slot of a node has 32 bits for it and 32 for four bytes of
//! the key. A *cell* is `key length (varint) | value length (varint) | key | value`, padded to a unit.
//!
//! Cells and nodes come from different chunks, because cells never change after they were written and nodes do. A full chunk of
//! cells (*sealed*) can therefore be shared as [`Bytes`].
//!
//! Invariants:
//! * An address handed out names a complete cell or node, and readers get addresses through release stores only.
//! * Memory of a cell is written once, before its address is published.
//! * One writer at a time: [`Arena::writer`] is the only way to add anything.
//! * Every chunk is in the memory account for as long as it is in use.
//! * Memory that comes back from a chunk (`spare`) has no share left.
#![allow(
    unsafe_code,
    reason = "things of variable size at 32-bit addresses cannot be expressed in safe Rust"
)]

use super::MemoryAccount;
use super::memory::{LINE, Memory, USUAL_BYTES};
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// First chunk; small, because most tablets of a server are idle.
const CHUNK_BYTES_MIN: usize = 2 << 10;
/// Chunks grow up to this size, the most that offsets can tell apart.
const CHUNK_BYTES_MAX: usize = USUAL_BYTES;
/// Bytes that an address counts in, and the alignment of cells.
const UNIT: usize = 4;
const OFFSET_BITS: u32 = 19;
const _: () = assert!(CHUNK_BYTES_MAX == UNIT << OFFSET_BITS);
/// Chunks of a segment of the directory: 3 KB, which a memtable with one entry takes too.
const SEGMENT_CHUNKS: usize = 64;
/// Segments of a directory. 2^13 chunks of 2 MiB hold 16 GiB.
const SEGMENTS: usize = (1 << (32 - OFFSET_BITS)) / SEGMENT_CHUNKS;
/// Chunks after which the arena says it is full. The remaining chunks hold one more batch, at worst 1 GiB of large values
/// that take a chunk of 512 KiB each.
const CHUNKS_FULL: u32 = 3 << 11;
/// A cell of at least this size gets a chunk of its own, or too much of the chunk before it might stay empty.
const OWN_CHUNK_BYTES_MIN: usize = CHUNK_BYTES_MAX / 4;

/// Where a cell or node is; never zero.
pub type Address = u32;

/// The memory of one memtable.
pub struct Arena {
    directory: [AtomicPtr<Segment>; SEGMENTS],
    /// Bytes of all chunks.
    bytes: AtomicUsize,
    /// Chunks in the directory, number 0 included, which is never used.
    chunks: AtomicU32,
    tail: Mutex<Tail>,
    account: MemoryAccount,
}

/// A part of the directory.
struct Segment {
    /// Starts of chunks.
    starts: [AtomicPtr<u8>; SEGMENT_CHUNKS],
    /// Sealed chunks of cells. Owns them.
    sealed: [OnceLock<Bytes>; SEGMENT_CHUNKS],
}

/// Where the next cell and the next node go; owns the chunks that are not sealed.
#[derive(Default)]
struct Tail {
    cells: Option<Filling>,
    nodes: Option<Filling>,
    full_of_nodes: Vec<Chunk>,
    /// Chunks of cells so far, not counting those of one cell; the next one's size follows from it.
    cell_chunks: u32,
}

/// A chunk that is being filled.
struct Filling {
    chunk: Chunk,
    number: u32,
}

struct Chunk {
    memory: Memory,
    /// Bytes handed out; for a chunk of cells, all of them are written.
    used: usize,
    account: MemoryAccount,
}

/// The cell at an address. Meaningful as long as the arena it came from.
#[derive(Clone, Copy)]
pub struct RawCell {
    key: *const u8,
    key_len: u32,
    value_len: u32,
}

/// The right to add to an arena.
pub struct Writer<'a> {
    arena: &'a Arena,
    tail: MutexGuard<'a, Tail>,
}

impl Arena {
    /// An arena without memory.
    pub fn new(account: MemoryAccount) -> Self {
        Arena {
            directory: [const { AtomicPtr::new(ptr::null_mut()) }; SEGMENTS],
            bytes: AtomicUsize::new(0),
            chunks: AtomicU32::new(1),
            tail: Mutex::default(),
            account,
        }
    }

    /// Bytes of all chunks.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether no further batch should be added: addresses run out.
    pub fn is_full(&self) -> bool {
        self.chunks.load(Ordering::Relaxed) >= CHUNKS_FULL
    }

    /// Waits for other writers.
    pub fn writer(&self) -> Writer<'_> {
        Writer {
            arena: self,
            tail: self.tail.lock(),
        }
    }

    /// The cell at an address.
    ///
    /// # Safety
    /// A writer of this arena made `at` with [`Writer::add_cell`], and this thread got it from that call or by an acquire
    /// load from where it was published.
    pub unsafe fn cell(&self, at: Address) -> RawCell {
        // SAFETY: a complete cell starts there.
        unsafe {
            let start = self.start(at);
            let (key_len, start) = read_varint(start);
            let (value_len, key) = read_varint(start);
            RawCell {
                key,
                key_len,
                value_len,
            }
        }
    }

    /// The key of the cell at an address.
    ///
    /// # Safety
    /// As [`Arena::cell`].
    pub unsafe fn key(&self, at: Address) -> &[u8] {
        // SAFETY: the caller vouches for the address; the cell lives and stays as it is while `self` is borrowed.
        unsafe { self.cell(at).key() }
    }

    /// The node at an address.
    ///
    /// # Safety
    /// As [`Arena::cell`], with [`Writer::add_node`] of the same type.
    pub unsafe fn node<T: Sync>(&self, at: Address) -> &T {
        // SAFETY: a node was written there, and is only ever shared from then on.
        unsafe { &*self.start(at).cast::<T>() }
    }

    /// The value of a cell as a share of its chunk; `None` while the chunk is still being filled, and where it has more than
    /// `bytes_max`.
    ///
    /// # Safety As [`Arena::cell`]; `cell` is the cell that it returned for `at`.
    pub unsafe fn shared_value(&self, at: Address, cell: &RawCell, bytes_max: usize) -> Option<Bytes> {
        let (segment, slot) = split(at);
        // SAFETY: the segment of an address that was handed out exists, and lives as long as the arena.
        let segment = unsafe { self.directory[segment].load(Ordering::Acquire).as_ref() }?;
        let chunk = segment.sealed[slot].get().filter(|chunk| chunk.len() <= bytes_max)?;
        let start = (cell.key as usize + cell.key_len as usize).checked_sub(chunk.as_ptr() as usize)?;
        debug_assert!(
            start + cell.value_len as usize <= chunk.len(),
            "a cell lies in one chunk"
        );
        Some(chunk.slice(start..start + cell.value_len as usize))
    }

    /// Prefetches cache lines at an address, counted from the one in which it begins.
    ///
    /// # Safety
    /// As [`Arena::cell`] or [`Arena::node`].
    pub unsafe fn prefetch(&self, at: Address, lines: Range<usize>) {
        // SAFETY: the caller vouches for the address.
        let start = unsafe { self.start(at) };
        for line in lines {
            prefetch(start.wrapping_add(line * LINE));
        }
    }

    /// # Safety
    /// As [`Arena::cell`] or [`Arena::node`].
    unsafe fn start(&self, at: Address) -> *const u8 {
        debug_assert_ne!(at >> OFFSET_BITS, 0, "chunk 0 is never used");
        let (segment, slot) = split(at);
        let offset = (at as usize & ((1 << OFFSET_BITS) - 1)) * UNIT;
        // SAFETY: the chunk was entered before any of its addresses was handed out. The caller got the address by an
        // acquire load or made it itself. So both pointers are seen (hence no order of their own) and the offset is
        // inside.
        unsafe {
            let segment = self.directory[segment].load(Ordering::Relaxed);
            (*segment).starts[slot].load(Ordering::Relaxed).add(offset)
        }
    }
}

/// Segment, and chunk within it.
fn split(at: Address) -> (usize, usize) {
    let number = (at >> OFFSET_BITS) as usize;
    (number / SEGMENT_CHUNKS, number % SEGMENT_CHUNKS)
}

impl Drop for Arena {
    fn drop(&mut self) {
        for segment in &mut self.directory {
            let segment = *segment.get_mut();
            if !segment.is_null() {
                // SAFETY: made by `Box::into_raw` in `Writer::enter`, and nobody else frees it.
                drop(unsafe { Box::from_raw(segment) });
            }
        }
    }
}

impl<'a> Writer<'a> {
    /// Writes a cell.
    pub fn add_cell(&mut self, key: &[u8], value: &[u8]) -> Address {
        assert!(
            u32::try_from(key.len()).is_ok() && u32::try_from(value.len()).is_ok(),
            "lengths fit into the header of a cell"
        );
        let mut header = [0; 2 * VARINT_BYTES_MAX];
        let header_len = write_varint(&mut header, 0, key.len() as u32);
        let header_len = write_varint(&mut header, header_len, value.len() as u32);
        let used = header_len + key.len() + value.len();
        let len = used.next_multiple_of(UNIT);
        let (at, start, own) = self.place_for_cell(len);
        // SAFETY: `len` fresh bytes are at `start`, and the parts and the padding are that long together.
        unsafe {
            // The usual header and the padding in one store each: a copy of unknown length is a call.
            match header_len {
                2 => start.cast::<[u8; 2]>().write([header[0], header[1]]),
                _ => ptr::copy_nonoverlapping(header.as_ptr(), start, header_len),
            }
            ptr::copy_nonoverlapping(key.as_ptr(), start.add(header_len), key.len());
            ptr::copy_nonoverlapping(value.as_ptr(), start.add(header_len + key.len()), value.len());
            let padding = start.add(used);
            match len - used {
                0 => {}
                1 => padding.write(0),
                2 => padding.cast::<[u8; 2]>().write([0; 2]),
                _ => padding.cast::<[u8; UNIT - 1]>().write([0; UNIT - 1]),
            }
        }
        if let Some(own) = own {
            self.seal(own);
        }
        at
    }

    /// Writes a node. It is not dropped with the arena.
    pub fn add_node<T: Sync>(&mut self, node: T) -> Address {
        const { assert!(!std::mem::needs_drop::<T>() && align_of::<T>() <= LINE && size_of::<T>() <= CHUNK_BYTES_MIN) }
        let (len, align) = (size_of::<T>(), align_of::<T>());
        let (at, start) = match self.tail.nodes.as_mut().and_then(|filling| filling.take(len, align)) {
            Some(place) => place,
            None => {
                let mut fresh = self.chunk(chunk_bytes(self.tail.full_of_nodes.len()));
                let place = fresh.take(len, align).expect("the smallest chunk holds a node");
                let full = self.tail.nodes.replace(fresh);
                self.tail.full_of_nodes.extend(full.map(|filling| filling.chunk));
                place
            }
        };
        // SAFETY: `len` fresh bytes, so aligned, are at `start`.
        unsafe { start.cast::<T>().write(node) };
        at
    }

    /// Fresh memory for a cell, and its chunk when that is for this cell only: to be sealed when the cell is written.
    fn place_for_cell(&mut self, len: usize) -> (Address, *mut u8, Option<Filling>) {
        debug_assert!(len.is_multiple_of(UNIT), "cells are padded to whole units");
        if let Some((at, start)) = self.tail.cells.as_mut().and_then(|filling| filling.take(len, UNIT)) {
            return (at, start, None);
        }
        let own = len >= OWN_CHUNK_BYTES_MIN;
        let usual = chunk_bytes(self.tail.cell_chunks as usize);
        let mut fresh = self.chunk(if own { len } else { usual.max(len) });
        let (at, start) = fresh.take(len, UNIT).expect("the chunk was made for this cell");
        if own {
            return (at, start, Some(fresh));
        }
        self.tail.cell_chunks += 1;
        if let Some(full) = self.tail.cells.replace(fresh) {
            self.seal(full);
        }
        (at, start, None)
    }

    /// A new chunk, entered in the directory.
    fn chunk(&mut self, len: usize) -> Filling {
        let chunk = Chunk::new(len, self.arena.account.clone());
        self.arena.bytes.fetch_add(len, Ordering::Relaxed);
        let number = self.arena.chunks.fetch_add(1, Ordering::Relaxed);
        // `is_full` was true for thousands of chunks.
        assert!(
            (number as usize) < SEGMENTS * SEGMENT_CHUNKS,
            "a memtable has run out of addresses"
        );
        let (segment, slot) = split(number << OFFSET_BITS);
        let entry = &self.arena.directory[segment];
        let mut segment = entry.load(Ordering::Relaxed);
        if segment.is_null() {
            segment = Box::into_raw(Box::new(Segment::empty()));
            entry.store(segment, Ordering::Release);
        }
        // SAFETY: segments live as long as the arena.
        unsafe { (*segment).starts[slot].store(chunk.memory.start().as_ptr(), Ordering::Release) };
        Filling { chunk, number }
    }

    /// Nothing will be written to this chunk of cells any more.
    fn seal(&mut self, full: Filling) {
        let (segment, slot) = split(full.number << OFFSET_BITS);
        // SAFETY: the chunk is in the directory, and segments live as long as the arena.
        let segment = unsafe { &*self.arena.directory[segment].load(Ordering::Relaxed) };
        let before = segment.sealed[slot].set(Bytes::from_owner(full.chunk));
        debug_assert!(before.is_ok(), "a chunk is sealed once");
    }
}

/// Bytes of the chunk after `before` others of its sort: two of each size, so that at most a third is not filled yet.
fn chunk_bytes(before: usize) -> usize {
    (CHUNK_BYTES_MIN << (before / 2).min(16)).min(CHUNK_BYTES_MAX)
}

impl Filling {
    /// Fresh memory, unless the chunk has too little left.
    fn take(&mut self, len: usize, align: usize) -> Option<(Address, *mut u8)> {
        let offset = self.chunk.used.next_multiple_of(align);
        debug_assert!(offset.is_multiple_of(UNIT), "addresses count in units");
        if offset + len > self.chunk.memory.len() {
            return None;
        }
        self.chunk.used = offset + len;
        // SAFETY: `offset + len` bytes are in the chunk.
        let start = unsafe { self.chunk.memory.start().add(offset) };
        Some(((self.number << OFFSET_BITS) | (offset / UNIT) as u32, start.as_ptr()))
    }
}

impl Segment {
    fn empty() -> Self {
        Segment {
            starts: [const { AtomicPtr::new(ptr::null_mut()) }; SEGMENT_CHUNKS],
            sealed: [const { OnceLock::new() }; SEGMENT_CHUNKS],
        }
    }
}

impl Chunk {
    fn new(len: usize, account: MemoryAccount) -> Self {
        let spare = match len.cmp(&CHUNK_BYTES_MAX) {
            std::cmp::Ordering::Less => None,
            std::cmp::Ordering::Equal => account.spare.take(),
            std::cmp::Ordering::Greater => {
                account.spare.give_way(len);
                None
            }
        };
        let memory = spare.unwrap_or_else(|| Memory::new(len));
        account.add(len as i64);
        Chunk {
            memory,
            used: 0,
            account,
        }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        let memory = std::mem::replace(&mut self.memory, Memory::NONE);
        let len = memory.len();
        self.account.add(-(len as i64));
        if len == CHUNK_BYTES_MAX {
            self.account.spare.give(memory, self.account.bytes());
        }
    }
}

// For sealed chunks of cells only: all bytes in use were written, and none changes any more.
impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: see above; the memory lives as long as the chunk.
        unsafe { std::slice::from_raw_parts(self.memory.start().as_ptr(), self.used) }
    }
}

// SAFETY: a chunk owns its memory; the header says which thread may access which part.
unsafe impl Send for Chunk {}
// SAFETY: as above.
unsafe impl Sync for Chunk {}

impl RawCell {
    /// No cell: an empty key and an empty value.
    pub const NONE: RawCell = RawCell {
        key: NonNull::<u8>::dangling().as_ptr(),
        key_len: 0,
        value_len: 0,
    };

    /// Bytes of key and value.
    pub fn len(&self) -> usize {
        self.key_len as usize + self.value_len as usize
    }

    /// The key.
    ///
    /// # Safety
    /// The arena lives for `'a`, if the cell came from one.
    pub unsafe fn key<'a>(&self) -> &'a [u8] {
        // SAFETY: the cell's memory is written and does not change; the caller vouches that it lives.
        unsafe { std::slice::from_raw_parts(self.key, self.key_len as usize) }
    }

    /// The value.
    ///
    /// # Safety
    /// As [`RawCell::key`].
    pub unsafe fn value<'a>(&self) -> &'a [u8] {
        // SAFETY: as in `key`; the value is behind the key.
        unsafe { std::slice::from_raw_parts(self.key.add(self.key_len as usize), self.value_len as usize) }
    }
}

// SAFETY: only dereferenced by callers who vouch for the arena; the cell never changes.
unsafe impl Send for RawCell {}
// SAFETY: as above.
unsafe impl Sync for RawCell {}

/// Five bytes of seven bits hold 32.
const VARINT_BYTES_MAX: usize = 5;

/// Writes `value` at `at`; the position behind it.
fn write_varint(out: &mut [u8; 2 * VARINT_BYTES_MAX], mut at: usize, mut value: u32) -> usize {
    while value >= 0x80 {
        out[at] = value as u8 | 0x80;
        value >>= 7;
        at += 1;
    }
    out[at] = value as u8;
    at + 1
}

/// # Safety
/// A varint that `write_varint` wrote is at `at`.
unsafe fn read_varint(mut at: *const u8) -> (u32, *const u8) {
    let (mut value, mut shift) = (0, 0);
    loop {
        // SAFETY: the caller vouches for as many bytes as the varint has.
        let byte = unsafe { *at };
        // SAFETY: as above; one past the end is allowed.
        at = unsafe { at.add(1) };
        value |= u32::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return (value, at);
        }
        shift += 7;
    }
}

/// Has the processor fetch all of something.
pub fn prefetch_all<T>(what: &T) {
    for line in 0..size_of::<T>().div_ceil(LINE) {
        prefetch(ptr::from_ref(what).cast::<u8>().wrapping_add(line * LINE));
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn prefetch(at: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a hint, which may name any address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn prefetch(_at: *const u8) {}
