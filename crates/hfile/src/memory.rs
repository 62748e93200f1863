//! Memory for blocks.
//!
//! A file is read in thousands of blocks, and each takes memory of a pool that other work fills for moments. One block that
//! finds none must not discard all that was read. So a reader may wait for it, in the order of arrival and for a limited
//! time: it holds the memory of other blocks meanwhile, and so may those that it waits for.

use crate::error::{HFileError, Result};
use std::time::Duration;
use stele_env::Env;
use stele_memory::{Consumer, Reservation};

/// How long a reader waits for the memory of one block: far longer than the calls of which others' memory is, and a part of
/// the minute that a client gives a call.
const WAIT: Duration = Duration::from_secs(10);

/// The memory that the blocks of files are read into.
#[derive(Clone)]
pub struct BlockMemory {
    consumer: Consumer,
    /// Whose time passes while a reader waits; `None` if it does not.
    env: Option<Env>,
}

impl BlockMemory {
    /// Memory of a consumer. A block that finds none is an error.
    pub fn now(consumer: &Consumer) -> Self {
        BlockMemory {
            consumer: consumer.clone(),
            env: None,
        }
    }

    /// Memory of a consumer. A block that finds none waits for it, some seconds at most.
    pub fn waiting(consumer: &Consumer, env: &Env) -> Self {
        BlockMemory {
            consumer: consumer.clone(),
            env: Some(env.clone()),
        }
    }

    /// A reservation of nothing.
    pub(crate) fn empty(&self) -> Reservation {
        self.consumer.empty()
    }

    /// Takes memory for a block of a file.
    pub(crate) async fn grow(&self, reservation: &mut Reservation, path: &str, bytes: usize) -> Result<()> {
        if reservation.try_grow(bytes).is_ok() {
            return Ok(());
        }
        // Others wait behind a waiter. For most of the memory it would wait in vain, since it has some of it.
        let waits = self.env.as_ref().filter(|_| bytes <= self.consumer.limit() / 2);
        let granted = match waits {
            Some(env) => self.consumer.reserve(env, bytes, WAIT).await.ok(),
            None => None,
        };
        let Some(granted) = granted else {
            return Err(HFileError::NoMemory {
                path: path.to_owned(),
                bytes,
            });
        };
        reservation.absorb(granted);
        Ok(())
    }
}
