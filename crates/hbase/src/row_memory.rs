//! Memory of rows, reserved before they are read.

use async_trait::async_trait;
use std::time::Duration;
use stele_client::{BatchReservation, ServiceError, ServiceResult};
use stele_env::Env;
use stele_memory::{Consumer, Reservation};
use stele_types::ErrorKind;

/// Reservation for a batch of rows: rows up to about a megabyte, and as much again for one more row.
pub(crate) const BATCH_BYTES: usize = 2 << 20;

/// How long a read waits for its reservation.
const WAIT: Duration = Duration::from_secs(10);

/// The reservation of one read.
pub(crate) struct RowMemory {
    consumer: Consumer,
    env: Env,
    reserved: Option<Reservation>,
    /// Memory of the response.
    aside: Option<Reservation>,
    /// The reservation covers rows that must stay. Then it is not replaced by a larger one: no one may wait for memory
    /// and hold some.
    pub keeps_rows: bool,
    /// A row did not fit because rows had to stay.
    pub was_too_small: bool,
}

impl RowMemory {
    /// No memory yet.
    pub fn new(consumer: &Consumer, env: &Env) -> Self {
        RowMemory {
            consumer: consumer.clone(),
            env: env.clone(),
            reserved: None,
            aside: None,
            keeps_rows: false,
            was_too_small: false,
        }
    }

    /// Waits for this many bytes.
    pub async fn reserve(&mut self, bytes: usize) -> ServiceResult<()> {
        self.reserved = None;
        let reserved = self.consumer.reserve_large(&self.env, bytes, WAIT).await;
        self.reserved = Some(reserved.map_err(|_| {
            ServiceError::new(
                ErrorKind::Busy,
                "Too many responses wait for memory; retry after backing off",
            )
        })?);
        Ok(())
    }

    /// Takes over the reservation of rows that must stay, and that of the response.
    pub fn hold(&mut self, rows: Reservation, response: Reservation) {
        self.aside = Some(response);
        self.reserved = Some(rows);
        self.keeps_rows = true;
    }

    /// Sets a part of the reservation aside for the response; batches are read within the rest.
    pub fn set_aside(&mut self, bytes: usize) {
        let half = self.bytes() / 2;
        self.aside = self.reserved.as_ref().map(|reserved| reserved.split(bytes.min(half)));
    }

    /// The part for the response, and the rest.
    pub fn into_parts(self) -> (Option<Reservation>, Option<Reservation>) {
        (self.aside, self.reserved)
    }

    /// The reservation, for the response.
    pub fn into_reserved(self) -> Option<Reservation> {
        self.reserved
    }
}

#[async_trait]
impl BatchReservation for RowMemory {
    fn bytes(&self) -> usize {
        self.reserved.as_ref().map_or(0, Reservation::bytes)
    }

    async fn renew(&mut self, bytes: usize) -> ServiceResult<()> {
        if self.keeps_rows {
            self.was_too_small = true;
            return Err(ServiceError::new(ErrorKind::Busy, "the next row needs more memory"));
        }
        // A request gets at most as much as one reservation may have. A row that needs more would be read again and again.
        let held = self.bytes() + self.aside.as_ref().map_or(0, Reservation::counted);
        if held >= self.consumer.bytes_max() {
            let message = format!(
                "A row needs more than {held} bytes of memory, the limit for one response on this server: read fewer of its \
                 cells at a time or raise the server's memory budget"
            );
            return Err(ServiceError::new(ErrorKind::ResourceExhausted, message));
        }
        // Nothing may be held during the wait.
        match self.aside.take().map(|aside| aside.counted()) {
            None => self.reserve(bytes).await,
            Some(aside) => {
                self.reserve(bytes.saturating_add(aside)).await?;
                self.set_aside(aside);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_env::tokio_env::TokioRuntime;
    use stele_memory::{OVERDRAFT_BYTES, Part, Pool};

    const MIB: usize = 1 << 20;

    /// Asks for four times the memory until that is refused, as a read does of a row that never fits. Returns the error and
    /// the bytes of all reservations before it.
    async fn ask_for_more(memory: &mut RowMemory) -> (ServiceError, Vec<usize>) {
        let mut bytes = vec![memory.bytes()];
        for _ in 0..20 {
            if let Err(error) = memory.renew(memory.bytes() * 4).await {
                return (error, bytes);
            }
            bytes.push(memory.bytes());
        }
        unreachable!("a row that never fits is read again for ever: {bytes:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_row_that_never_fits_is_refused() {
        let env = TokioRuntime::current();
        // With and without the overdraft.
        for (limit, most) in [(8 * MIB, OVERDRAFT_BYTES), (128 * MIB, 128 * MIB)] {
            for aside in [0, MIB] {
                let pool = Pool::default().limited(Part::Responses, limit);
                let consumer = pool.of(Part::Responses);
                let mut memory = RowMemory::new(&consumer, &env);
                memory.reserve(BATCH_BYTES).await.unwrap();
                if aside > 0 {
                    memory.set_aside(aside);
                }
                let (error, bytes) = ask_for_more(&mut memory).await;
                assert_eq!(error.kind, ErrorKind::ResourceExhausted);
                assert!(bytes.is_sorted_by(|before, after| before < after), "{bytes:?}");
                let last = bytes.last().copied().unwrap_or_default();
                assert!(last == most || last == most - aside, "all memory was tried: {bytes:?}");
                drop(memory);
                assert_eq!((consumer.used(), pool.is_overdrawn()), (0, false));
            }
        }
    }
}
