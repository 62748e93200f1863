//! A timer with the precision that an open loop needs.
//!
//! The runtime's own timer counts whole milliseconds, and the rounding would be added to every latency. This timer is a
//! `timerfd` for each generator thread, armed for the earliest waiter.

use parking_lot::Mutex;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};
use tokio::io::unix::AsyncFd;

/// Waits for moments, for all clients of one thread.
#[derive(Debug, Clone)]
pub struct Timer {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    fd: AsyncFd<OwnedFd>,
    waiters: Mutex<Waiters>,
}

#[derive(Debug, Default)]
struct Waiters {
    by_time: BTreeMap<(Instant, u64), Waker>,
    next_id: u64,
    armed: Option<Instant>,
}

impl Timer {
    /// A timer for the runtime of this thread. [`Timer::run`] must be polled concurrently with the waiters.
    ///
    /// # Errors
    /// Of the system call.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        #[expect(
            deprecated,
            reason = "its successor is unsafe; an owned descriptor fulfils its contract"
        )]
        let fd = AsyncFd::new(fd)?;
        let waiters = Mutex::default();
        Ok(Self {
            shared: Arc::new(Shared { fd, waiters }),
        })
    }

    /// Wakes the waiters whose time has come. Returns only with an error.
    ///
    /// # Errors
    /// Of the system calls.
    pub async fn run(&self) -> io::Result<()> {
        loop {
            let mut ready = self.shared.fd.readable().await?;
            let mut expirations = [0; 8];
            // The count does not matter. Reading it makes the descriptor wait again.
            match rustix::io::read(self.shared.fd.get_ref(), &mut expirations) {
                Ok(_) => {}
                Err(rustix::io::Errno::AGAIN) => {
                    ready.clear_ready();
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            ready.clear_ready();
            self.wake_due()?;
        }
    }

    /// Returns at `at`, or immediately if that is over.
    pub async fn until(&self, at: Instant) {
        let mut id = None;
        poll_fn(|context| {
            let now = Instant::now();
            let mut waiters = self.shared.waiters.lock();
            if let Some(id) = id.take() {
                waiters.by_time.remove(&(at, id));
            }
            if now >= at {
                return Poll::Ready(());
            }
            let own = waiters.next_id;
            waiters.next_id += 1;
            waiters.by_time.insert((at, own), context.waker().clone());
            id = Some(own);
            if waiters.armed.is_none_or(|armed| at < armed) {
                waiters.armed = Some(at);
                // If arming fails, the next caller arms the timer for this waiter too. Descriptors that cannot be armed
                // do not occur.
                let _ = self.arm(at - now);
            }
            Poll::Pending
        })
        .await;
    }

    fn wake_due(&self) -> io::Result<()> {
        let mut waiters = self.shared.waiters.lock();
        waiters.armed = None;
        let now = Instant::now();
        while let Some(first) = waiters.by_time.first_entry() {
            if first.key().0 > now {
                break;
            }
            first.remove().wake();
        }
        if let Some(((at, _), _)) = waiters.by_time.first_key_value() {
            let at = *at;
            waiters.armed = Some(at);
            self.arm(at - now)?;
        }
        Ok(())
    }

    fn arm(&self, after: Duration) -> io::Result<()> {
        // Zero would disarm.
        let after = after.max(Duration::from_nanos(1));
        let value = Timespec {
            tv_sec: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: after.subsec_nanos().into(),
        };
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let spec = Itimerspec {
            it_interval: zero,
            it_value: value,
        };
        rustix::time::timerfd_settime(self.shared.fd.get_ref(), TimerfdTimerFlags::empty(), &spec)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Six tasks of one timer: the order in which they woke, and whether all waited before the first was due.
    fn woken() -> (Vec<u64>, bool) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .unwrap();
        let local = tokio::task::LocalSet::new();
        let woken = Arc::new(Mutex::new(Vec::new()));
        let all_waited = local.block_on(&runtime, async {
            let timer = Timer::new().unwrap();
            let driver = timer.clone();
            tokio::task::spawn_local(async move { driver.run().await });
            let start = Instant::now() + Duration::from_millis(50);
            let mut tasks = Vec::new();
            for millis in [9_u64, 3, 1, 7, 5, 0] {
                let (timer, woken) = (timer.clone(), woken.clone());
                tasks.push(tokio::task::spawn_local(async move {
                    let waits = Instant::now() < start;
                    let at = start + Duration::from_millis(millis);
                    timer.until(at).await;
                    assert!(Instant::now() >= at);
                    woken.lock().push(millis);
                    waits
                }));
            }
            let mut all_waited = true;
            for task in tasks {
                all_waited &= task.await.unwrap();
            }
            all_waited
        });
        (std::mem::take(&mut woken.lock()), all_waited)
    }

    #[test]
    fn many_wait_and_all_wake_in_order_and_not_before_their_time() {
        // A task that comes late is not made to wait, so on a busy machine it takes some attempts until none does.
        let order = std::iter::repeat_with(woken).find_map(|(order, all_waited)| all_waited.then_some(order));
        assert_eq!(order.unwrap(), [0, 1, 3, 5, 7, 9]);
    }
}
