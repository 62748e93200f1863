//! Joined parts: small parts are put once more, many in one object, and then deleted. A new owner lists and reads few
//! objects.
//!
//! A reader may have listed parts that are deleted meanwhile. It lists again, and finds the object that holds them.

use super::parts::{Object, part_key};
use crate::shared::Shared;
use bytes::{Bytes, BytesMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Length from which a part takes as long to transfer as to request. It is not copied.
const SMALL_BYTES_MAX: usize = 32 << 10;
/// Parts that one object joins.
const PARTS_MAX: u32 = 64;
/// Fewer parts are not joined: the put would cost more than it saves.
const PARTS_MIN: u32 = 8;
/// Bytes that one object joins. As many are copied, and once more while a put is under way.
const BYTES_MAX: usize = 1 << 20;

/// The last parts of a file that is being written.
pub(super) struct Joiner {
    shared: Arc<Shared>,
    path: String,
    /// Number of the first copied part.
    first: u32,
    parts: u32,
    bytes: BytesMut,
    progress: Arc<Progress>,
}

#[derive(Default)]
struct Progress {
    /// One put is under way at most. Parts that are complete meanwhile are not joined.
    is_busy: AtomicBool,
    /// Requests that a reader saves.
    replaced: AtomicU64,
}

impl Joiner {
    pub(super) fn new(shared: &Arc<Shared>, path: &str) -> Joiner {
        Joiner {
            shared: Arc::clone(shared),
            path: path.to_owned(),
            first: 1,
            parts: 0,
            bytes: BytesMut::new(),
            progress: Arc::default(),
        }
    }

    /// Requests that a reader saves by now.
    pub(super) fn replaced(&self) -> u64 {
        self.progress.replaced.load(Ordering::Relaxed)
    }

    /// Copies a part that was put.
    pub(super) fn add(&mut self, number: u32, content: &[Bytes], len: usize) {
        assert_eq!(number, self.first + self.parts, "parts are put one after the other");
        if len > SMALL_BYTES_MAX {
            self.put();
            self.first = number + 1;
            return;
        }
        if self.bytes.len() + len > BYTES_MAX {
            self.put();
        }
        content.iter().for_each(|slice| self.bytes.extend_from_slice(slice));
        self.parts += 1;
        if self.parts == PARTS_MAX {
            self.put();
        }
        assert!(self.bytes.len() <= BYTES_MAX, "copies are bounded");
    }

    /// Puts the copied parts as one object, without waiting for it, and begins a new copy.
    fn put(&mut self) {
        let (first, parts) = (self.first, self.parts);
        self.first += parts;
        self.parts = 0;
        let content = self.bytes.split().freeze();
        assert!(parts <= PARTS_MAX, "an object joins a bounded number of parts");
        debug_assert!(parts == 0 || !content.is_empty(), "no part is empty");
        if parts < PARTS_MIN || self.progress.is_busy.swap(true, Ordering::Relaxed) {
            return;
        }
        let last = first + parts - 1;
        let path = self.path.clone();
        let key = Object::Joined { first, last }.key(&path);
        let (shared, progress) = (Arc::clone(&self.shared), Arc::clone(&self.progress));
        let env = shared.env.clone();
        env.spawn_background("joined parts of a log", async move {
            // After a failure the object may exist or not. The parts stay, which costs a reader some requests.
            if shared.store.put_new(&key, &[content]).await.is_ok() {
                let joined: Vec<String> = (first..=last).map(|number| part_key(&path, number)).collect();
                if shared.store.delete_many(&joined).await.is_ok() {
                    progress.replaced.fetch_add(u64::from(parts) - 1, Ordering::Relaxed);
                }
            }
            progress.is_busy.store(false, Ordering::Relaxed);
        });
    }
}
