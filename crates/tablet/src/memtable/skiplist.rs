//! A skip list in an arena: one writer, lock-free readers, no removal.
//!
//! A node is one allocation of `[header | next pointers | key | value]` inside a chunk of the arena; chunks are never
//! moved or freed before the list. An insertion writes the whole node first and then links it bottom-up with release
//! stores; a reader follows links with acquire loads, so it sees either no node or a complete one.
//!
//! This is the one module of the crate with unsafe code; its tests run under Miri.
#![allow(
    unsafe_code,
    reason = "arena nodes of variable size cannot be expressed in safe Rust"
)]

use parking_lot::{Mutex, MutexGuard};
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cmp::Ordering as Order;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// Levels of the tallest node. With one node in four reaching the next level, 12 levels serve 4^12 = 16 M entries.
const HEIGHT_MAX: usize = 12;
/// First chunk; small, because most tablets of a server are idle.
const CHUNK_BYTES_MIN: usize = 4 << 10;
/// Chunks double up to this size.
const CHUNK_BYTES_MAX: usize = 1 << 20;
/// Alignment of nodes.
const ALIGN: usize = align_of::<Node>();

#[repr(C)]
struct Node {
    key_len: u32,
    value_len: u32,
    height: u32,
    // Followed by `height` links, the key, the value.
}

type Link = AtomicPtr<Node>;

/// Where a reader stands: a node of the list, or nowhere. Meaningful only with the list that gave it.
#[derive(Clone, Copy)]
pub struct Position(*const Node);

impl Position {
    /// Nowhere.
    pub fn none() -> Self {
        Position(ptr::null())
    }

    /// Whether it is on a node.
    pub fn is_some(self) -> bool {
        !self.0.is_null()
    }
}

// SAFETY: a position is only ever dereferenced through the list it came from, which owns the node, never frees it before
// itself and never changes it after publication.
unsafe impl Send for Position {}
// SAFETY: as above; a position has no interior mutability.
unsafe impl Sync for Position {}

/// The list.
pub struct SkipList {
    head: NonNull<Node>,
    /// Levels in use.
    height: AtomicUsize,
    arena: Mutex<Arena>,
    bytes: AtomicUsize,
    /// State of the height generator; only the writer touches it.
    random: AtomicU32,
}

// SAFETY: nodes are shared read-only after publication by release stores; the arena is behind a mutex; insertions are
// serialised by the guard `insert` demands.
unsafe impl Send for SkipList {}
// SAFETY: as above.
unsafe impl Sync for SkipList {}

impl Default for SkipList {
    fn default() -> Self {
        Self::new()
    }
}

impl SkipList {
    /// An empty list.
    pub fn new() -> Self {
        let mut arena = Arena::default();
        let head = arena.node(&[], &[], HEIGHT_MAX);
        let bytes = AtomicUsize::new(arena.allocated);
        SkipList {
            head,
            height: AtomicUsize::new(1),
            arena: Mutex::new(arena),
            bytes,
            random: AtomicU32::new(0x9e37_79b9),
        }
    }

    /// Bytes of the arena's chunks.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Inserts an entry unless the key is there already; whether it was inserted. The guard is the caller's proof that
    /// no other insertion runs; it must guard this list's writers and nothing else.
    pub fn insert(&self, _writer: &MutexGuard<'_, ()>, key: &[u8], value: &[u8]) -> bool {
        let mut before = [self.head.as_ptr().cast_const(); HEIGHT_MAX];
        let found = self.find(key, Some(&mut before));
        if found.is_some() && self.key(found) == key {
            return false;
        }
        let height = self.random_height();
        if height > self.height.load(Ordering::Relaxed) {
            self.height.store(height, Ordering::Relaxed);
        }
        let node = {
            let mut arena = self.arena.lock();
            let node = arena.node(key, value, height);
            self.bytes.store(arena.allocated, Ordering::Relaxed);
            node
        };
        for (level, &previous) in before.iter().enumerate().take(height) {
            // SAFETY: `previous` is the head or a node of this list of at least `level + 1` levels (`find` only records
            // a node at a level it has a link for), and `node` has `height > level` levels.
            unsafe {
                // Acquire, though the guard orders insertions: under a wrong guard entries would then be lost, but no
                // reader would be led to memory whose writing it does not see.
                let next = link(previous, level).load(Ordering::Acquire);
                link(node.as_ptr(), level).store(next, Ordering::Relaxed);
                link(previous, level).store(node.as_ptr(), Ordering::Release);
            }
        }
        true
    }

    /// The first entry at or after `target`.
    pub fn seek(&self, target: &[u8]) -> Position {
        self.find(target, None)
    }

    /// The last entry before `target`.
    pub fn seek_before(&self, target: &[u8]) -> Position {
        let mut before = [self.head.as_ptr().cast_const(); HEIGHT_MAX];
        self.find(target, Some(&mut before));
        if before[0] == self.head.as_ptr().cast_const() {
            Position::none()
        } else {
            Position(before[0])
        }
    }

    /// The entry after `at`; none after the last and after none.
    pub fn next(&self, at: Position) -> Position {
        if at.0.is_null() {
            return at;
        }
        // SAFETY: `at` came from this list; every node has level 0.
        Position(unsafe { link(at.0, 0).load(Ordering::Acquire) })
    }

    /// The key at a position; empty for none.
    pub fn key(&self, at: Position) -> &[u8] {
        if at.0.is_null() {
            return &[];
        }
        // SAFETY: `at` came from this list, whose nodes live as long as it does.
        unsafe { key_of(at.0) }
    }

    /// The value at a position; empty for none.
    pub fn value(&self, at: Position) -> &[u8] {
        if at.0.is_null() {
            return &[];
        }
        // SAFETY: as in `key`; the value follows the key in the same allocation.
        unsafe {
            let key = key_of(at.0);
            std::slice::from_raw_parts(key.as_ptr().add(key.len()), (*at.0).value_len as usize)
        }
    }

    /// The first node at or after `target`; records, per level, the last node before it.
    fn find(&self, target: &[u8], mut before: Option<&mut [*const Node; HEIGHT_MAX]>) -> Position {
        let mut node = self.head.as_ptr().cast_const();
        let mut level = self.height.load(Ordering::Relaxed) - 1;
        // A node known to be at or after the target, so that levels sharing a successor compare only once.
        let mut ceiling: *const Node = ptr::null();
        loop {
            // SAFETY: `node` is the head (HEIGHT_MAX levels) or was reached through a link of this level or above.
            let next = unsafe { link(node, level).load(Ordering::Acquire) }.cast_const();
            // SAFETY: a non-null link leads to a complete node.
            let goes_on = !next.is_null() && next != ceiling && unsafe { key_of(next) }.cmp(target) == Order::Less;
            if goes_on {
                node = next;
                continue;
            }
            ceiling = next;
            if let Some(before) = before.as_deref_mut() {
                before[level] = node;
            }
            if level == 0 {
                return Position(next);
            }
            level -= 1;
        }
    }

    /// 1 with probability 3/4, 2 with 3/16, and so on. Xorshift: the shape of the list depends on the order of
    /// insertions only, so that simulations repeat.
    fn random_height(&self) -> usize {
        let mut x = self.random.load(Ordering::Relaxed);
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        self.random.store(x, Ordering::Relaxed);
        ((x.leading_zeros() / 2) as usize + 1).min(HEIGHT_MAX)
    }
}

/// Bytes from a node's start to its key.
fn key_offset(height: usize) -> usize {
    Layout::new::<Node>().size().next_multiple_of(align_of::<Link>()) + height * size_of::<Link>()
}

/// # Safety
/// `node` points to a complete node with more than `level` levels that outlives `'a`.
unsafe fn link<'a>(node: *const Node, level: usize) -> &'a Link {
    let links = Layout::new::<Node>().size().next_multiple_of(align_of::<Link>());
    // SAFETY: the caller vouches for the node; links lie aligned behind its header (see `Arena::node`).
    unsafe { &*node.cast::<u8>().add(links).cast::<Link>().add(level) }
}

/// # Safety
/// `node` points to a complete node that outlives `'a`.
unsafe fn key_of<'a>(node: *const Node) -> &'a [u8] {
    // SAFETY: the caller vouches for the node; the key lies behind its links.
    unsafe {
        let start = node.cast::<u8>().add(key_offset((*node).height as usize));
        std::slice::from_raw_parts(start, (*node).key_len as usize)
    }
}

/// Chunks of memory handed out front to back.
#[derive(Default)]
struct Arena {
    chunks: Vec<(NonNull<u8>, Layout)>,
    /// Free rest of the newest chunk.
    free: Option<NonNull<u8>>,
    free_len: usize,
    allocated: usize,
}

impl Arena {
    /// A complete node with null links.
    fn node(&mut self, key: &[u8], value: &[u8], height: usize) -> NonNull<Node> {
        let offset = key_offset(height);
        let bytes = self.take((offset + key.len() + value.len()).next_multiple_of(ALIGN.max(align_of::<Link>())));
        let node = bytes.cast::<Node>();
        // SAFETY: `bytes` points to enough fresh memory, aligned for nodes and links; each field is written once.
        unsafe {
            node.write(Node {
                key_len: key.len() as u32,
                value_len: value.len() as u32,
                height: height as u32,
            });
            for level in 0..height {
                let links = bytes.add(offset - height * size_of::<Link>()).cast::<Link>();
                links.add(level).write(AtomicPtr::new(ptr::null_mut()));
            }
            ptr::copy_nonoverlapping(key.as_ptr(), bytes.add(offset).as_ptr(), key.len());
            ptr::copy_nonoverlapping(value.as_ptr(), bytes.add(offset + key.len()).as_ptr(), value.len());
        }
        node
    }

    /// `len` bytes (a multiple of the alignment) that nobody else has.
    fn take(&mut self, len: usize) -> NonNull<u8> {
        if let Some(free) = self.free
            && len <= self.free_len
        {
            // SAFETY: `len` bytes are left behind `free` in its chunk; one past the end is allowed.
            self.free = Some(unsafe { free.add(len) });
            self.free_len -= len;
            return free;
        }
        let chunk_len = (CHUNK_BYTES_MIN << self.chunks.len().min(16)).min(CHUNK_BYTES_MAX);
        // A large entry gets a chunk of its own and leaves the current one as it is.
        let own = len > chunk_len / 4;
        let chunk = self.chunk(if own { len } else { chunk_len });
        if !own {
            // SAFETY: `len <= chunk_len`.
            self.free = Some(unsafe { chunk.add(len) });
            self.free_len = chunk_len - len;
        }
        chunk
    }

    fn chunk(&mut self, len: usize) -> NonNull<u8> {
        let layout =
            Layout::from_size_align(len, ALIGN.max(align_of::<Link>())).expect("sizes are bounded by the format");
        // SAFETY: `len` is at least a node's header, hence not zero.
        let Some(chunk) = NonNull::new(unsafe { alloc(layout) }) else {
            handle_alloc_error(layout)
        };
        self.chunks.push((chunk, layout));
        self.allocated += len;
        chunk
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for (chunk, layout) in self.chunks.drain(..) {
            // SAFETY: each chunk was allocated with this layout and is freed once; nodes need no drop.
            unsafe { dealloc(chunk.as_ptr(), layout) };
        }
    }
}

// SAFETY: the arena owns its chunks.
unsafe impl Send for Arena {}
