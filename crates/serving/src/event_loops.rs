//! One event loop per core: a thread with a runtime of its own.
//!
//! A task of a loop never moves to another thread. So a connection and its requests stay in one core's caches, and a
//! task wakes its neighbour without a system call.
#![allow(
    clippy::disallowed_methods,
    reason = "this is where the seam meets threads and the real scheduler"
)]

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Tasks that a loop runs before it asks the system for events. A task may run for a millisecond while requests arrive
/// on other connections.
const TASKS_PER_EVENT_CHECK: u32 = 8;

/// The event loops of a process. Dropping this ends their threads, and drops all tasks.
pub struct EventLoops(Vec<EventLoop>);

struct EventLoop {
    handle: Handle,
    /// Connections that it owns.
    connections: Arc<AtomicUsize>,
    /// The thread ends when this is dropped.
    _stop: oneshot::Sender<()>,
}

/// The place of a connection on a loop. The loop counts it until this is dropped.
#[derive(Debug)]
pub struct Place {
    handle: Handle,
    connections: Arc<AtomicUsize>,
}

impl EventLoops {
    /// Starts this number of loops, at least one.
    pub fn start(count: usize) -> io::Result<Self> {
        let loops: io::Result<Vec<_>> = (0..count.max(1)).map(EventLoop::start).collect();
        Ok(EventLoops(loops?))
    }

    /// A place on the loop that owns the fewest connections; `None` if there is no loop.
    pub fn place(&self) -> Option<Place> {
        let least = self
            .0
            .iter()
            .min_by_key(|each| each.connections.load(Ordering::Relaxed))?;
        least.connections.fetch_add(1, Ordering::Relaxed);
        Some(Place {
            handle: least.handle.clone(),
            connections: Arc::clone(&least.connections),
        })
    }
}

impl EventLoop {
    fn start(index: usize) -> io::Result<Self> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .event_interval(TASKS_PER_EVENT_CHECK)
            .build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        std::thread::Builder::new()
            .name(format!("stele-loop-{index}"))
            .spawn(move || {
                let _ = runtime.block_on(stopped);
            })?;
        Ok(EventLoop {
            handle,
            connections: Arc::default(),
            _stop: stop,
        })
    }
}

impl Place {
    /// Runs a task on the loop of this place, which the task keeps. `task` is called on the loop.
    pub fn spawn<F>(self, task: impl FnOnce() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let handle = self.handle.clone();
        handle.spawn(async move {
            task().await;
            drop(self);
        });
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let before = self.connections.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "a connection leaves its loop once");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[tokio::test]
    async fn connections_are_spread_evenly_and_stay_on_their_loop() {
        let loops = EventLoops::start(3).unwrap();
        let mut places: Vec<Place> = (0..6).map(|_| loops.place().unwrap()).collect();
        let counts = |loops: &EventLoops| -> Vec<usize> {
            loops
                .0
                .iter()
                .map(|each| each.connections.load(Ordering::Relaxed))
                .collect()
        };
        assert_eq!(counts(&loops), [2, 2, 2]);
        // The loop that lost its connections gets the next ones.
        places.retain(|place| !Arc::ptr_eq(&place.connections, &loops.0[1].connections));
        assert_eq!(counts(&loops), [2, 0, 2]);
        places.extend([loops.place().unwrap(), loops.place().unwrap()]);
        assert_eq!(counts(&loops), [2, 2, 2]);
        let mut threads = HashSet::new();
        for place in places {
            let (tell, told) = oneshot::channel();
            place.spawn(|| async {
                let before = std::thread::current().id();
                tokio::task::yield_now().await;
                assert_eq!(std::thread::current().id(), before);
                let _ = tell.send(before);
            });
            threads.insert(told.await.unwrap());
        }
        assert_eq!(threads.len(), 3);
    }

    #[tokio::test]
    async fn dropping_the_loops_drops_their_tasks() {
        let loops = EventLoops::start(1).unwrap();
        let (held, dropped) = oneshot::channel::<()>();
        loops.place().unwrap().spawn(|| async {
            let _held = held;
            std::future::pending::<()>().await;
        });
        drop(loops);
        assert!(dropped.await.is_err());
    }
}
