//! A sorted map from keys to values: one writer, readers without locks, no removal.
//!
//! A B+ tree over an [`Arena`]. A *leaf* has slots for cells, an *inner node* slots for nodes of the level below. A
//! *slot* is one 64-bit atomic: four bytes of the key (its *prefix*) above the address of the cell or child, zero when
//! empty. Slots are in key order, the empty ones last. Where the prefix is taken from the key is for each node to say
//! (`skip`): behind the common prefix of all keys between the node's bounds. So nearly all comparisons of a search read
//! only the node's own cache lines. The key of a child's slot is its lower bound (`low`), which is the key of the first
//! cell below it.
//!
//! A node without a bound on one side (the root; a node at the edge) may get any key. It skips the common prefix of its
//! first keys all the same, and has one of them for its *anchor*. A key with another prefix has the least or the
//! greatest slot prefix, as it comes before or after all keys with that prefix. Slot prefixes thus never disagree with
//! the order of keys; equal ones say nothing.
//!
//! Four rules of the writer make reading safe while it changes a node (after FAST & FAIR B+ trees, Hwang et
//! al., and B-link trees, Lehman and Yao):
//!
//! * **Cells and nodes are complete before their slot is stored** (release), and neither they nor `low`, `skip` and `anchor`
//!   change afterwards. An address that a reader finds in a slot (acquire) is good, if perhaps no longer the right place.
//! * **An insertion shifts slots to the right, beginning with the last.** At any moment the slots are sorted with at
//!   most one of them twice, none is missing, and the content of a slot only gets smaller.
//! * **A split copies the upper half to a new right neighbour, links that (`next`), then clears the upper half,
//!   beginning with the last.** A reader that does not find its target in a node follows `next`.
//! * **An entry that left a slot by a split never comes back to that node**, because the node now ends below it.
//!
//! From these: if a reader saw a key below its target in slot i, then the slots up to i hold only keys below the target
//! from then on. So a search may err to the left only: of a node, which `next` mends, or within it, which going on
//! mends. And if a slot still holds the entry of a cursor, then the content of its right neighbour a moment earlier is the
//! next entry. If that was empty, the first entry of the next node is the next one, unless it is not behind the cursor: then
//! the cursor is where a split is clearing. In this case, and when its slot holds something else, the cursor seeks again.
//!
//! Common prefixes are trusted without a comparison: the writer's search is exact, so its key lies between the
//! bounds of the nodes it passes. A reader's target may lie beyond the upper bound of a node when it meets a split; it
//! compares the key it finds with its whole target before it uses it.
#![allow(
    unsafe_code,
    reason = "the arena's addresses are good as long as this module puts only its own into slots"
)]

use super::MemoryAccount;
use super::arena::{self, Address, Arena, RawCell};
use bytes::Bytes;
use std::cmp::Ordering::{Equal, Greater, Less};
use std::hint::select_unpredictable;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Slots of a node, which makes it 512 bytes. Half as many were as fast within the error of measurement, and take a
/// byte more for each cell. With twice as many, insertions took a fifth longer: a search reads more lines then, and an
/// insertion shifts more slots. Miri gets small nodes, to see many splits.
const SLOTS: usize = if cfg!(miri) { 4 } else { 61 };
/// Levels of the tallest tree. Inner nodes are at least half full, and addresses end at 2^32.
const LEVELS_MAX: usize = if cfg!(miri) { 16 } else { 8 };
/// Entries whose leaves are on their way from memory while one is put in place. An insertion takes some 100 ns of
/// computing. An access to memory takes several times that when others use it, too.
const PENDING_MAX: usize = 4;
/// How many entries ahead a cursor has the processor fetch the beginnings of cells.
const CELLS_AHEAD: usize = 8;
/// Cache lines of a cell's beginning: lengths, key, a short value.
const BEGINNING_LINES: usize = 2;
/// How many entries ahead a cursor has the rest of a cell fetched that is longer: one of a
/// kilobyte takes about as long to be compressed as another takes to arrive.
const VALUES_AHEAD: usize = 2;
/// Cache lines of a long cell that are prefetched. After as many lines in sequence the processor prefetches by itself.
const VALUE_LINES_MAX: usize = 18;

#[repr(C, align(64))]
struct Node {
    /// The right neighbour on the same level; zero for none.
    next: AtomicU32,
    /// Slots in use, exact for the writer. Readers take it for a hint.
    count: AtomicU32,
    /// The cell whose key is the lower bound; zero for none. Never changes.
    low: Address,
    /// Where in the key prefixes are taken from. Never changes.
    skip: u32,
    /// 0 for leaves. Never changes.
    level: u32,
    /// A cell whose key begins with the `skip` bytes that are skipped; zero where all keys between the bounds do. Never
    /// changes.
    anchor: Address,
    slots: [AtomicU64; SLOTS],
}

/// The map.
pub struct Tree {
    arena: Arena,
    /// Zero when nothing was inserted.
    root: AtomicU32,
    /// The cell put in place last. For the writer.
    last: AtomicU32,
}

/// Where a reader stands: on an entry, or nowhere. Meaningful only with the tree that gave it.
#[derive(Clone, Copy)]
pub struct Position {
    leaf: Address,
    /// Where in the leaf the entry was last seen.
    index: usize,
    /// Content of that slot; zero for nowhere.
    slot: u64,
    cell: RawCell,
}

impl Position {
    /// Nowhere.
    pub const NONE: Position = Position {
        leaf: 0,
        index: 0,
        slot: 0,
        cell: RawCell::NONE,
    };

    /// Whether it is on an entry.
    pub fn is_some(&self) -> bool {
        self.slot != 0
    }
}

/// The right to insert; others wait.
pub struct Writer<'a> {
    tree: &'a Tree,
    arena: arena::Writer<'a>,
    /// Nodes passed on the way to the last insertion, by level, and the slot taken in each.
    path: [(&'a Node, usize); LEVELS_MAX],
    /// The key that the path leads to; none when it leads nowhere.
    last: Option<&'a [u8]>,
    /// The cells that came last, not in their places yet, and the leaves they belong to: as many as `pending_len`, beginning at
    /// `pending_first` and going on at the front.
    pending: [(Address, &'a Node); PENDING_MAX],
    pending_first: usize,
    pending_len: usize,
    inserted: u64,
}

/// A placeholder for nodes that a path does not have yet.
static NOT_FOUND: Node = Node::empty(0, 0, Skip::NOTHING);

/// Where a node takes prefixes from.
#[derive(Clone, Copy)]
struct Skip {
    bytes: u32,
    anchor: Address,
}

impl Skip {
    const NOTHING: Skip = Skip { bytes: 0, anchor: 0 };
}

/// The content of a slot.
fn slot(prefix: u32, address: Address) -> u64 {
    u64::from(prefix) << 32 | u64::from(address)
}

fn prefix(slot: u64) -> u32 {
    (slot >> 32) as u32
}

fn address(slot: u64) -> Address {
    slot as u32
}

/// Four bytes of a key from `skip` on, zeros where it ends before: if they differ, keys that agree up to `skip` are in
/// the order of these numbers.
fn key_prefix(key: &[u8], skip: u32) -> u32 {
    let rest = key.get(skip as usize..).unwrap_or_default();
    if let Some(four) = rest.first_chunk::<4>() {
        return u32::from_be_bytes(*four);
    }
    rest.iter()
        .zip([24, 16, 8])
        .map(|(&byte, shift)| u32::from(byte) << shift)
        .sum()
}

fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl Node {
    const fn empty(level: u32, low: Address, skip: Skip) -> Node {
        Node {
            next: AtomicU32::new(0),
            count: AtomicU32::new(0),
            low,
            skip: skip.bytes,
            level,
            anchor: skip.anchor,
            slots: [const { AtomicU64::new(0) }; SLOTS],
        }
    }

    fn count(&self) -> usize {
        (self.count.load(Ordering::Relaxed) as usize).min(SLOTS)
    }

    fn slot(&self, index: usize) -> u64 {
        self.slots.get(index).map_or(0, |slot| slot.load(Ordering::Acquire))
    }

    /// The first slot from `from` on that is not before the target: whose prefix is greater, or equal with `before`
    /// false, or that is empty.
    fn partition(&self, from: usize, target: u32, before: impl Fn(Address) -> bool) -> usize {
        let count = self.count();
        let start = self.first_where(from, count, |slot| prefix(slot) >= target);
        if prefix(self.slot(start)) != target {
            return start;
        }
        let end = self.first_where(start, count, |slot| prefix(slot) > target);
        self.first_where(start, end, |slot| prefix(slot) != target || !before(address(slot)))
    }

    /// The first of the slots `from..to` that is empty or as wanted, by halving; `to` if none is. The result of a
    /// comparison cannot be predicted, so nothing branches on it.
    fn first_where(&self, from: usize, to: usize, wanted: impl Fn(u64) -> bool) -> usize {
        let (mut from, mut len) = (from, to.saturating_sub(from));
        let is_behind = |at: usize| {
            let content = self.slot(at);
            content != 0 && !wanted(content)
        };
        while len > 1 {
            let half = len / 2;
            from = select_unpredictable(is_behind(from + half - 1), from + half, from);
            len -= half;
        }
        from + usize::from(len == 1 && is_behind(from))
    }

    /// Puts a slot in front of the one at `index`. For the writer, when the node is not full.
    fn shift_in(&self, index: usize, content: u64) {
        let count = self.count();
        debug_assert!(
            count < SLOTS && index <= count,
            "a slot is put into a node that has room, at its end at most"
        );
        debug_assert!(
            index == 0 || prefix(self.slot(index - 1)) <= prefix(content),
            "slots ascend: the one before"
        );
        debug_assert!(
            index == count || prefix(content) <= prefix(self.slot(index)),
            "slots ascend: the one behind"
        );
        for at in (index..count).rev() {
            self.slots[at + 1].store(self.slots[at].load(Ordering::Relaxed), Ordering::Release);
        }
        self.slots[index].store(content, Ordering::Release);
        self.count.store(count as u32 + 1, Ordering::Relaxed);
    }
}

impl Tree {
    /// An empty map.
    pub fn new(account: MemoryAccount) -> Self {
        Tree {
            arena: Arena::new(account),
            root: AtomicU32::new(0),
            last: AtomicU32::new(0),
        }
    }

    /// The memory in use.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Waits for other writers.
    pub fn writer(&self) -> Writer<'_> {
        Writer {
            tree: self,
            arena: self.arena.writer(),
            path: [(&NOT_FOUND, 0); LEVELS_MAX],
            last: None,
            pending: [(0, &NOT_FOUND); PENDING_MAX],
            pending_first: 0,
            pending_len: 0,
            inserted: 0,
        }
    }

    /// The first entry at or after `target`.
    pub fn seek(&self, target: &[u8]) -> Position {
        let Some(leaf) = self.leaf(target, |low| low <= target) else {
            return Position::NONE;
        };
        self.seek_from(leaf, target)
    }

    /// The last entry before `target`.
    pub fn seek_before(&self, target: &[u8]) -> Position {
        let Some(mut leaf) = self.leaf(target, |low| low < target) else {
            return Position::NONE;
        };
        let mut found = Position::NONE;
        loop {
            let node = self.node(leaf);
            let wanted = self.prefix_in(node, target);
            let mut index = node.partition(0, wanted, |cell| self.key(cell) < target);
            let ended = loop {
                // In this order: if the second is not before the target, no entry was between them.
                let before = index.checked_sub(1).map_or(0, |before| node.slot(before));
                let here = node.slot(index);
                if here != 0 && self.key(address(here)) < target {
                    index += 1;
                } else if before == 0 && index > 0 {
                    index -= 1;
                } else {
                    if before != 0 {
                        found = self.position(leaf, index - 1, before);
                    }
                    break here == 0;
                }
            };
            let next = node.next.load(Ordering::Acquire);
            if !ended || next == 0 || self.low(next) >= target {
                return found;
            }
            leaf = next;
        }
    }

    /// The entry after `at`; none after the last and after none.
    pub fn next(&self, at: Position) -> Position {
        if !at.is_some() {
            return at;
        }
        let node = self.node(at.leaf);
        let mut index = at.index;
        loop {
            let found = node.slot(index + 1);
            let next = node.next.load(Ordering::Acquire);
            if node.slot(index) != at.slot || found == at.slot {
                // Shifted, or about to be: look for it to the right.
                index += 1;
                if index < SLOTS {
                    continue;
                }
                return self.after(at);
            }
            if found != 0 {
                self.prefetch_cell(node, index + 1 + CELLS_AHEAD);
                let position = self.position(at.leaf, index + 1, found);
                // Neighbours are mostly of a size.
                let lines = position.cell.len() / super::memory::LINE;
                if lines > BEGINNING_LINES {
                    self.prefetch_lines(
                        node,
                        index + 1 + VALUES_AHEAD,
                        BEGINNING_LINES..lines.min(VALUE_LINES_MAX) + 1,
                    );
                }
                return position;
            }
            if next == 0 {
                return Position::NONE;
            }
            self.prefetch_leaf(next);
            let first = self.position(next, 0, self.node(next).slot(0));
            let key = self.key_at(&at);
            if self.key_at(&first) > key {
                return first;
            }
            // A split is in progress: it has cleared the slots behind `at`, but not yet `at` itself.
            return self.behind(key, self.seek_from(next, key));
        }
    }

    /// The entry before `at`; none before the first and before none.
    pub fn previous(&self, at: Position) -> Position {
        if !at.is_some() {
            return at;
        }
        let node = self.node(at.leaf);
        let mut index = at.index;
        while index > 0 {
            // In this order, as in `next`.
            let before = node.slot(index - 1);
            if node.slot(index) != at.slot {
                break;
            }
            if before != at.slot {
                self.prefetch_cell(node, index.saturating_sub(1 + CELLS_AHEAD));
                return self.position(at.leaf, index - 1, before);
            }
            index -= 1;
        }
        self.seek_before(self.key_at(&at))
    }

    /// As `next`, for an entry that has left its leaf.
    fn after(&self, at: Position) -> Position {
        let key = self.key_at(&at);
        self.behind(key, self.seek(key))
    }

    /// The first entry behind `key`, where `found` is the first at or after it. It does not wait for the writer: an entry
    /// found to the right of where it was is where the split has put it for good.
    fn behind(&self, key: &[u8], found: Position) -> Position {
        debug_assert!(found.is_some(), "an entry disappeared");
        if found.is_some() && self.key_at(&found) == key {
            self.next(found)
        } else {
            found
        }
    }

    /// The key at a position; empty for none.
    pub fn key_at(&self, at: &Position) -> &[u8] {
        // SAFETY: the position is this tree's, whose cells live as long as it does.
        unsafe { at.cell.key() }
    }

    /// The value at a position; empty for none.
    pub fn value_at(&self, at: &Position) -> &[u8] {
        // SAFETY: as in `key_at`.
        unsafe { at.cell.value() }
    }

    /// The value at a position as a share of the arena, if it can be had so and keeps no more than `bytes_max` in memory.
    pub fn shared_value_at(&self, at: &Position, bytes_max: usize) -> Option<Bytes> {
        if !at.is_some() {
            return None;
        }
        // SAFETY: the position is this tree's, and was made from an acquire load of its slot.
        unsafe { self.arena.shared_value(address(at.slot), &at.cell, bytes_max) }
    }

    /// The first entry at or after `target`, which is in this leaf or to the right of it.
    fn seek_from(&self, mut leaf: Address, target: &[u8]) -> Position {
        loop {
            let node = self.node(leaf);
            let wanted = self.prefix_in(node, target);
            let mut index = node.partition(0, wanted, |cell| self.key(cell) < target);
            loop {
                let found = node.slot(index);
                if found == 0 {
                    break;
                }
                let found = self.position(leaf, index, found);
                if self.key_at(&found) >= target {
                    return found;
                }
                index += 1;
            }
            leaf = node.next.load(Ordering::Acquire);
            if leaf == 0 {
                return Position::NONE;
            }
            if self.low(leaf) >= target {
                return self.position(leaf, 0, self.node(leaf).slot(0));
            }
        }
    }

    /// The last leaf whose lower bound `goes` with the target, or one to the left of it when there was a split just now; none
    /// in an empty tree.
    fn leaf(&self, target: &[u8], goes: impl Fn(&[u8]) -> bool) -> Option<Address> {
        let mut at = self.root.load(Ordering::Acquire);
        if at == 0 {
            return None;
        }
        loop {
            let node = self.node(at);
            if node.level == 0 {
                return Some(at);
            }
            let mut index = self.child(node, target, &goes);
            let next = node.next.load(Ordering::Acquire);
            if node.slot(index + 1) == 0 && next != 0 && goes(self.low(next)) {
                at = next;
                continue;
            }
            // The item there now is the one found or one to the left of it; a split may have cleared it, but never the
            // first. One load decides and is followed: the next might find the slot cleared.
            at = loop {
                match node.slot(index) {
                    0 => index -= 1,
                    content => break address(content),
                }
            };
        }
    }

    /// The prefix that a key has in a node.
    #[inline]
    fn prefix_in(&self, node: &Node, key: &[u8]) -> u32 {
        if node.anchor != 0 {
            let common = self.key(node.anchor).get(..node.skip as usize).unwrap_or_default();
            match key.get(..common.len()).unwrap_or(key).cmp(common) {
                Less => return 0,
                Greater => return u32::MAX,
                Equal => {}
            }
        }
        key_prefix(key, node.skip)
    }

    /// Whether `key` is certain to lie between a node's bounds, as `last` does, which is before it or not.
    fn holds(&self, node: &Node, key: &[u8], last: &[u8], after_last: bool) -> bool {
        let (edge, index) = if after_last {
            (node.next.load(Ordering::Relaxed), node.count().saturating_sub(1))
        } else {
            (node.low, 0)
        };
        if edge == 0 {
            return true;
        }
        let key_prefix = self.prefix_in(node, key);
        let inside = if after_last {
            key_prefix < prefix(node.slot(index))
        } else {
            key_prefix > prefix(node.slot(index))
        };
        let skip = node.skip as usize;
        inside && (node.anchor != 0 || key.get(..skip) == last.get(..skip))
    }

    /// The slot of an inner node that leads to the target: the last one whose lower bound `goes`. The first always does.
    fn child(&self, node: &Node, target: &[u8], goes: impl Fn(&[u8]) -> bool) -> usize {
        let wanted = self.prefix_in(node, target);
        node.partition(1, wanted, |child| goes(self.low(child))) - 1
    }

    fn position(&self, leaf: Address, index: usize, slot: u64) -> Position {
        if slot == 0 {
            return Position::NONE;
        }
        Position {
            leaf,
            index,
            slot,
            // SAFETY: slots of leaves hold addresses of cells, and are loaded with acquire.
            cell: unsafe { self.arena.cell(address(slot)) },
        }
    }

    fn node(&self, at: Address) -> &Node {
        // SAFETY: slots of inner nodes, `root` and `next` hold addresses of nodes, and are loaded with acquire.
        unsafe { self.arena.node(at) }
    }

    /// The key of a cell.
    fn key(&self, cell: Address) -> &[u8] {
        // SAFETY: slots of leaves hold addresses of cells, and are loaded with acquire; `low` was written before its node
        // was published.
        unsafe { self.arena.key(cell) }
    }

    /// The lower bound of a node; empty for none.
    fn low(&self, node: Address) -> &[u8] {
        match self.node(node).low {
            0 => &[],
            cell => self.key(cell),
        }
    }

    fn prefetch_cell(&self, leaf: &Node, index: usize) {
        self.prefetch_lines(leaf, index, 0..BEGINNING_LINES);
    }

    fn prefetch_lines(&self, leaf: &Node, index: usize, lines: Range<usize>) {
        let content = leaf.slot(index);
        if content != 0 {
            // SAFETY: as in `position`.
            unsafe { self.arena.prefetch(address(content), lines) };
        }
    }

    /// A cursor arrives in this leaf: its neighbour and its first cells will be wanted.
    fn prefetch_leaf(&self, leaf: Address) {
        let node = self.node(leaf);
        for index in 1..=CELLS_AHEAD {
            self.prefetch_cell(node, index);
        }
        let next = node.next.load(Ordering::Acquire);
        if next != 0 {
            // SAFETY: as in `node`.
            unsafe { self.arena.prefetch(next, 0..size_of::<Node>() / super::memory::LINE) };
        }
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        self.finish();
    }
}

impl<'a> Writer<'a> {
    /// Inserts an entry unless the key is there already. It takes its place when a few more have come or the writer goes, so
    /// that its leaf can be on the way from memory while entries before are put in place. (A key that is there already
    /// therefore costs its memory: that is a log record applied twice.)
    pub fn insert(&mut self, key: &[u8], value: &[u8]) {
        let cell = self.arena.add_cell(key, value);
        if self.tree.root.load(Ordering::Relaxed) == 0 {
            return self.plant(cell);
        }
        let leaf = self.find_leaf(self.tree.key(cell));
        arena::prefetch_all(leaf);
        let oldest = self.pending[self.pending_first];
        if self.pending_len < PENDING_MAX {
            self.pending[(self.pending_first + self.pending_len) % PENDING_MAX] = (cell, leaf);
            self.pending_len += 1;
            return;
        }
        self.pending[self.pending_first] = (cell, leaf);
        self.pending_first = (self.pending_first + 1) % PENDING_MAX;
        self.place(oldest.0, oldest.1);
    }

    /// Puts the last entries in place; how many were inserted in all.
    pub fn finish(&mut self) -> u64 {
        while self.pending_len > 0 {
            let (cell, leaf) = self.pending[self.pending_first];
            self.pending_first = (self.pending_first + 1) % PENDING_MAX;
            self.pending_len -= 1;
            self.place(cell, leaf);
        }
        self.inserted
    }

    /// Searches for the leaves of pending cells again, after a split, in their order: the path leads to the last of
    /// them.
    fn find_pending(&mut self) {
        self.last = None;
        for at in self.pending_first..self.pending_first + self.pending_len {
            let cell = self.pending[at % PENDING_MAX].0;
            self.pending[at % PENDING_MAX].1 = self.find_leaf(self.tree.key(cell));
        }
    }

    /// The first entry: the root is a leaf.
    fn plant(&mut self, cell: Address) {
        let root = Node::empty(0, 0, Skip::NOTHING);
        root.shift_in(0, self.slot_in(&root, cell));
        let root = self.arena.add_node(root);
        self.tree.root.store(root, Ordering::Release);
        self.tree.last.store(cell, Ordering::Relaxed);
        self.inserted += 1;
    }

    /// Puts a cell in its place, which is in this leaf.
    fn place(&mut self, cell: Address, mut leaf: &'a Node) {
        let key = self.tree.key(cell);
        let full = leaf.count() == SLOTS;
        if full {
            // A split needs the path to this cell, not to a pending one.
            self.last = None;
            leaf = self.find_leaf(key);
        }
        let wanted = self.tree.prefix_in(leaf, key);
        let index = leaf.partition(0, wanted, |cell| self.tree.key(cell) < key);
        let here = leaf.slot(index);
        if here == 0 || prefix(here) != wanted || self.tree.key(address(here)) != key {
            // Not in one step: writers take turns, and an exchange would wait for all stores before it.
            let previous = self.tree.last.load(Ordering::Relaxed);
            self.tree.last.store(cell, Ordering::Relaxed);
            let appends = full && address(leaf.slot(SLOTS - 1)) == previous;
            if full {
                self.put(0, index, cell, appends);
            } else {
                leaf.shift_in(index, slot(wanted, cell));
            }
            self.inserted += 1;
        }
        if full {
            self.find_pending();
        }
    }

    /// Makes the path lead to the key's leaf, from as far down as the last path allows. Decides from above: a leaf that
    /// keys in no order have left again is still on its way from memory, and would be waited for.
    fn find_leaf(&mut self, key: &'a [u8]) -> &'a Node {
        let mut node = self.tree.node(self.tree.root.load(Ordering::Relaxed));
        let mut level = node.level as usize;
        if let Some(last) = self.last {
            let after_last = key >= last;
            while level > 0 && self.tree.holds(self.path[level - 1].0, key, last, after_last) {
                level -= 1;
                node = self.path[level].0;
            }
        }
        while level > 0 {
            let index = self.tree.child(node, key, |low| low <= key);
            self.path[level] = (node, index);
            node = self.tree.node(address(node.slot(index)));
            level -= 1;
            if level == 1 {
                // Prefetches all of it together: halving would wait for three or four of its lines one after the other.
                // Those further up are few, and stay in the cache.
                arena::prefetch_all(node);
            }
        }
        debug_assert_eq!(node.level, 0, "a path ends in a leaf");
        self.path[0] = (node, 0);
        self.last = Some(key);
        node
    }

    /// Puts the object at `item` (a cell, or a node of the level below) in front of slot `index` of the path's node.
    /// `appends` says that items come in order: then a full node is left full.
    fn put(&mut self, level: usize, index: usize, item: Address, appends: bool) {
        let node = self.path[level].0;
        if node.count() < SLOTS {
            return node.shift_in(index, self.slot_in(node, item));
        }
        debug_assert!(index <= SLOTS, "a place in a node is at most behind its last slot");
        let appends = appends && index == SLOTS;
        let at = if appends { SLOTS } else { SLOTS / 2 };
        let right = self.split(node, at, item);
        if appends {
            right.shift_in(0, self.slot_in(&right, item));
        }
        let right_at = self.arena.add_node(right);
        let right = self.tree.node(right_at);
        node.next.store(right_at, Ordering::Release);
        for cleared in (at..SLOTS).rev() {
            node.slots[cleared].store(0, Ordering::Release);
        }
        node.count.store(at as u32, Ordering::Relaxed);
        if node.level == self.tree.node(self.tree.root.load(Ordering::Relaxed)).level {
            self.grow(right_at);
        } else {
            self.put(level + 1, self.path[level + 1].1 + 1, right_at, appends);
        }
        if index <= at && !appends {
            node.shift_in(index, self.slot_in(node, item));
        } else if !appends {
            right.shift_in(index - at, self.slot_in(right, item));
        }
        // The path may lead to the wrong one of two.
        self.last = None;
    }

    /// A right neighbour for a full node with its slots from `at` on, or without any, to take `item`; linked to nothing yet.
    fn split(&self, node: &'a Node, at: usize, item: Address) -> Node {
        let first = if at == SLOTS { item } else { address(node.slot(at)) };
        let low = self.low_cell(node, first);
        let next = node.next.load(Ordering::Relaxed);
        let (skip, is_same) = self.skip_of_right(node, at, low);
        let right = Node::empty(node.level, low, skip);
        right.next.store(next, Ordering::Relaxed);
        right.count.store((SLOTS - at) as u32, Ordering::Relaxed);
        if !is_same && node.level == 0 {
            (at..SLOTS).for_each(|index| self.tree.prefetch_cell(node, index));
        }
        for (from, to) in node.slots.iter().skip(at).zip(&right.slots) {
            let content = from.load(Ordering::Relaxed);
            let content = if is_same {
                content
            } else {
                self.slot_in(&right, address(content))
            };
            to.store(content, Ordering::Relaxed);
        }
        right
    }

    /// The skip of a node's right neighbour that takes the node's slots from `at` on, the first of them with the key of
    /// `low`; and whether slots are the same there. They are if the node skips all it can; if not, the split reads all
    /// the keys. That is cheaper than prefixes that are often equal: to compare more of a key takes a wait for memory,
    /// of a child's lower bound two.
    fn skip_of_right(&self, node: &'a Node, at: usize, low: Address) -> (Skip, bool) {
        let same = |anchor| Skip {
            bytes: node.skip,
            anchor,
        };
        let skip = match node.next.load(Ordering::Relaxed) {
            // One item gives no information.
            0 if at == SLOTS => return (same(node.anchor), true),
            0 => {
                let last = self.last_cell(node);
                self.skip_between(low, last, last)
            }
            next => self.skip_between(low, self.tree.node(next).low, 0),
        };
        let shares_prefix = |anchor| {
            let skipped = |cell| self.tree.key(cell).get(..node.skip as usize);
            anchor == 0 || skipped(anchor) == skipped(low)
        };
        if skip.bytes == node.skip && shares_prefix(node.anchor) {
            // Between bounds that begin so, all keys do.
            return (same(if skip.anchor == 0 { 0 } else { node.anchor }), true);
        }
        (skip, false)
    }

    /// The tree gets a level: the root has the neighbour `right` now.
    fn grow(&mut self, right: Address) {
        let old = self.tree.root.load(Ordering::Relaxed);
        let level = self.tree.node(old).level + 1;
        assert!(
            (level as usize) < LEVELS_MAX,
            "half-full nodes of fewer levels hold 2^32 cells"
        );
        let (first, last) = (
            self.first_cell(self.tree.node(old)),
            self.last_cell(self.tree.node(right)),
        );
        debug_assert_eq!(
            self.tree.node(right).level + 1,
            level,
            "both children are of the level below"
        );
        let root = Node::empty(level, 0, self.skip_between(first, last, last));
        root.shift_in(0, slot(0, old));
        root.shift_in(1, self.slot_in(&root, right));
        let root = self.arena.add_node(root);
        self.tree.root.store(root, Ordering::Release);
    }

    /// Skips the common prefix of the keys of two cells, in a node with this anchor if it is to have one.
    fn skip_between(&self, first: Address, last: Address, anchor: Address) -> Skip {
        match common_prefix(self.tree.key(first), self.tree.key(last)) {
            0 => Skip::NOTHING,
            common => Skip {
                bytes: common as u32,
                anchor,
            },
        }
    }

    /// The first cell below a node, or in it.
    fn first_cell(&self, mut node: &'a Node) -> Address {
        while node.level > 0 {
            node = self.tree.node(address(node.slot(0)));
        }
        address(node.slot(0))
    }

    /// The last one.
    fn last_cell(&self, mut node: &'a Node) -> Address {
        let last = |node: &Node| address(node.slot(node.count().saturating_sub(1)));
        while node.level > 0 {
            node = self.tree.node(last(node));
        }
        last(node)
    }

    /// The slot of an item in this node.
    fn slot_in(&self, node: &Node, item: Address) -> u64 {
        let key = match self.low_cell(node, item) {
            0 => &[],
            cell => self.tree.key(cell),
        };
        slot(self.tree.prefix_in(node, key), item)
    }

    /// The cell whose key an item of this node has.
    fn low_cell(&self, node: &Node, item: Address) -> Address {
        if node.level == 0 {
            item
        } else {
            self.tree.node(item).low
        }
    }
}
