//! Counts the work behind one call, for somebody who asks why it takes its time.
//!
//! [`counted`] wraps a future; code that it runs calls [`note`], from any layer below and without an argument handed down.
//! Counts belong to the thread for as long as the future is polled there, so they follow it from thread to thread and are
//! never mixed with those of other calls. Tasks that the future spawns are not counted.
//!
//! Without a counted future on its thread, [`note`] is one load and one branch, and it is called for blocks and files, never
//! for cells.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Files that are told apart; of more, the number is this.
const FILES_MAX: usize = 65_536;

/// The work of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Rows that were complete in a cache of rows.
    pub row_cache_hits: u64,
    /// Memtables with entries in the tablet, as the call began.
    pub memtables: u64,
    /// Sorted runs in the tablet, likewise.
    pub runs: u64,
    /// Files in the tablet, likewise.
    pub files: u64,
    /// Questions to bloom filters in memory.
    pub filters_asked: u64,
    /// Those that ruled a file out.
    pub filters_excluded: u64,
    /// Blocks found in the block cache, index blocks and values of value files among them.
    pub blocks_cached: u64,
    /// Blocks read from storage.
    pub blocks_read: u64,
    /// Bytes of them, as stored; bytes that were read ahead are among them.
    pub block_bytes_read: u64,
    /// Values read from files of their own.
    pub values_read: u64,
    /// Bytes of them, as stored.
    pub value_bytes_read: u64,
    /// Files of which another server used a block.
    pub files_used_elsewhere: u64,
    files_used: BTreeSet<u64>,
}

impl Work {
    /// Files of which a block was used.
    pub fn files_used(&self) -> u64 {
        self.files_used.len() as u64 + self.files_used_elsewhere
    }

    /// Adds the work that another server did for the call, on a tablet of its own.
    pub fn add_elsewhere(&mut self, work: &Work) {
        self.row_cache_hits += work.row_cache_hits;
        self.memtables += work.memtables;
        self.runs += work.runs;
        self.files += work.files;
        self.filters_asked += work.filters_asked;
        self.filters_excluded += work.filters_excluded;
        self.blocks_cached += work.blocks_cached;
        self.blocks_read += work.blocks_read;
        self.block_bytes_read += work.block_bytes_read;
        self.values_read += work.values_read;
        self.value_bytes_read += work.value_bytes_read;
        self.files_used_elsewhere += work.files_used();
    }

    /// Notes the use of a block of a file.
    pub fn use_file(&mut self, file: u64) {
        if self.files_used.len() < FILES_MAX {
            self.files_used.insert(file);
        }
    }
}

thread_local! {
    static IS_COUNTED: Cell<bool> = const { Cell::new(false) };
    static CURRENT: RefCell<Work> = RefCell::new(Work::default());
}

/// Changes the counts of the call that runs on this thread, if it is counted.
#[inline]
pub fn note(change: impl FnOnce(&mut Work)) {
    if IS_COUNTED.get() {
        note_counted(change);
    }
}

#[cold]
fn note_counted(change: impl FnOnce(&mut Work)) {
    CURRENT.with_borrow_mut(change);
}

/// Whether the call that runs on this thread is counted.
pub fn is_counted() -> bool {
    IS_COUNTED.get()
}

/// Runs a future, and returns its result together with the work that it did.
pub fn counted<F: Future>(future: F) -> impl Future<Output = (F::Output, Work)> {
    counted_on(Work::default(), future)
}

/// The same for a part of a call, whose earlier parts have done this work.
pub fn counted_on<F: Future>(work: Work, future: F) -> impl Future<Output = (F::Output, Work)> {
    Counted {
        future: Box::pin(future),
        work,
    }
}

/// Puts counts on the thread. Returns whether others were there, which are then in `work`.
pub(crate) fn attach(work: &mut Work) -> bool {
    CURRENT.with_borrow_mut(|current| std::mem::swap(current, work));
    IS_COUNTED.replace(true)
}

/// Takes them off again; `work` and `was_counted` are of [`attach`].
pub(crate) fn detach(work: &mut Work, was_counted: bool) {
    CURRENT.with_borrow_mut(|current| std::mem::swap(current, work));
    IS_COUNTED.set(was_counted);
}

struct Counted<F> {
    future: Pin<Box<F>>,
    work: Work,
}

/// Takes the counts off the thread again, also when the future panics.
struct OnThread<'a> {
    work: &'a mut Work,
    was_counted: bool,
}

impl<'a> OnThread<'a> {
    fn new(work: &'a mut Work) -> Self {
        OnThread {
            was_counted: attach(work),
            work,
        }
    }
}

impl Drop for OnThread<'_> {
    fn drop(&mut self) {
        detach(self.work, self.was_counted);
    }
}

impl<F: Future> Future for Counted<F> {
    type Output = (F::Output, Work);

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let polled = {
            let _on_thread = OnThread::new(&mut this.work);
            this.future.as_mut().poll(context)
        };
        polled.map(|output| (output, std::mem::take(&mut this.work)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_block(file: u64) {
        note(|work| {
            work.blocks_read += 1;
            work.use_file(file);
        });
    }

    async fn pause() {
        let mut is_first = true;
        std::future::poll_fn(|context| match std::mem::take(&mut is_first) {
            true => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
            false => Poll::Ready(()),
        })
        .await;
    }

    #[test]
    fn calls_that_run_in_turn_are_counted_apart() {
        let call = |blocks: u64| {
            counted(async move {
                for block in 0..blocks {
                    read_block(block / 2);
                    pause().await;
                }
            })
        };
        read_block(9);
        let ((((), one), ((), three)), outer) = futures::executor::block_on(counted(async {
            read_block(7);
            let both = futures::future::join(call(1), call(3)).await;
            read_block(7);
            both
        }));
        read_block(9);
        assert_eq!((one.blocks_read, one.files_used()), (1, 1));
        assert_eq!((three.blocks_read, three.files_used()), (3, 2));
        assert_eq!((outer.blocks_read, outer.files_used()), (2, 1));
    }

    #[test]
    fn a_panic_ends_the_count() {
        let caught = std::panic::catch_unwind(|| {
            futures::executor::block_on(counted(async { assert!(!IS_COUNTED.get(), "planted") }))
                .1
                .blocks_read
        });
        assert!(caught.is_err() && !IS_COUNTED.get());
        let ((), work) = futures::executor::block_on(counted(async {}));
        assert_eq!(work, Work::default());
    }
}
