//! Memory for blocks.
//!
//! A file is read in thousands of blocks, and each takes memory of a pool that other work fills for moments. One block that
//! finds none must not discard all that was read, so a reader may try again for a while. It has no place in the queue of the
//! pool: requests are refused while somebody waits there. Its time is limited, as it holds the memory of other blocks.

use crate::error::{HFileError, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use stele_env::Env;
use stele_memory::{Consumer, Reservation};

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(20);
/// Pauses of all readers of one load: thirty seconds, half of the time that a client gives a call.
const PAUSES: u32 = 1_500;

/// The memory that the blocks of files are read into.
#[derive(Clone)]
pub struct BlockMemory {
    consumer: Consumer,
    /// `None` if nobody waits.
    waits: Option<Arc<Waits>>,
}

/// The waits of one load.
struct Waits {
    env: Env,
    /// Pauses that are left.
    left: AtomicU32,
}

impl BlockMemory {
    /// Memory of a consumer. A block that finds none is an error.
    pub fn now(consumer: &Consumer) -> Self {
        BlockMemory {
            consumer: consumer.clone(),
            waits: None,
        }
    }

    /// Memory of a consumer. A block that finds none waits for it. All that is read with clones of this waits half a minute at
    /// most.
    pub fn waiting(consumer: &Consumer, env: &Env) -> Self {
        let waits = Waits {
            env: env.clone(),
            left: AtomicU32::new(PAUSES),
        };
        BlockMemory {
            consumer: consumer.clone(),
            waits: Some(Arc::new(waits)),
        }
    }

    /// A reservation of nothing.
    pub(crate) fn empty(&self) -> Reservation {
        self.consumer.empty()
    }

    /// Takes memory for a block of a file.
    pub(crate) async fn grow(&self, reservation: &mut Reservation, path: &str, bytes: usize) -> Result<()> {
        loop {
            if reservation.try_grow(bytes).is_ok() {
                return Ok(());
            }
            // It has some of the memory itself, so it would wait for most of it in vain.
            let waits = self.waits.as_ref().filter(|_| bytes <= self.consumer.limit() / 2);
            let Some(waits) = waits.filter(|waits| waits.take_pause()) else {
                return Err(HFileError::NoMemory {
                    path: path.to_owned(),
                    bytes,
                });
            };
            waits.env.sleep(PAUSE).await;
        }
    }
}

impl Waits {
    /// Takes a pause; false if none is left.
    fn take_pause(&self) -> bool {
        let less = |left: u32| left.checked_sub(1);
        self.left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
            .is_ok()
    }
}
