//! The gate runs under a model checker. The checker tries all interleavings of a read and a write, and all values that
//! the memory model lets a load see. The cache's steps around the gate are repeated here in small, step for step.

#[path = "../gate.rs"]
#[allow(clippy::duplicate_mod, reason = "once for each kind of atomics")]
mod gate;
mod sync {
    pub(super) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
}

use gate::{Holds, Stripe};
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};

/// One stripe, one shard with place for one row, and the tablet: a value that a write makes visible.
#[derive(Default)]
struct Small {
    stripe: Stripe,
    holds: Holds,
    row: Mutex<Option<u64>>,
    visible: AtomicU64,
}

impl Small {
    /// As `RowCache::lookup`, `Tablet::get` and `RowCache::install`.
    fn read(&self) -> u64 {
        if self.holds.any()
            && let Some(value) = *self.row.lock().expect("no panics")
        {
            return value;
        }
        let begun = self.stripe.quiet();
        let value = self.visible.load(Ordering::Acquire);
        if let Some(begun) = begun {
            let mut row = self.row.lock().expect("no panics");
            self.holds.set(true);
            if self.stripe.is_still(begun) {
                *row = Some(value);
            }
            self.holds.set(row.is_some());
        }
        value
    }

    /// As `RowCache::writing`, `Tablet::apply`, and the guard's end.
    fn write(&self, value: u64) {
        self.stripe.begin();
        if self.holds.any() {
            let mut row = self.row.lock().expect("no panics");
            *row = None;
            self.holds.set(false);
        }
        self.visible.fetch_max(value, Ordering::AcqRel);
        self.stripe.end();
    }
}

fn check(threads: impl Fn(Arc<Small>) + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    // Switches away from a thread that could go on: more find nothing more here, and take minutes.
    model.preemption_bound = Some(2);
    model.check(move || threads(Arc::default()));
}

#[test]
fn a_read_after_a_write_sees_it() {
    check(|small| {
        let reader = small.clone();
        let reading = loom::thread::spawn(move || reader.read());
        small.write(1);
        assert_eq!(small.read(), 1, "by the writer");
        assert!(reading.join().expect("no panics") <= 1);
        assert_eq!(small.read(), 1, "after both");
    });
}

#[test]
fn a_reader_never_goes_back_in_time() {
    check(|small| {
        let reader = small.clone();
        let reading = loom::thread::spawn(move || {
            let first = reader.read();
            assert!(reader.read() >= first, "back in time");
        });
        small.write(1);
        small.write(2);
        reading.join().expect("no panics");
        assert_eq!(small.read(), 2, "after all");
    });
}

#[test]
fn two_writers_leave_nothing_old_behind() {
    check(|small| {
        let (reader, other) = (small.clone(), small.clone());
        let reading = loom::thread::spawn(move || reader.read());
        let writing = loom::thread::spawn(move || other.write(1));
        small.write(2);
        reading.join().expect("no panics");
        writing.join().expect("no panics");
        assert_eq!(small.read(), 2, "after all");
    });
}
