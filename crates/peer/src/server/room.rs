//! Memory and credit of one batch of rows.

use super::Shared;
use crate::credit::Credit;
use crate::limits::{BATCH_BYTES, CREDIT_WAIT, MEMORY_WAIT};
use async_trait::async_trait;
use std::sync::Arc;
use stele_client::{BatchReservation, ServiceError, ServiceResult};
use stele_memory::Reservation;
use stele_types::ErrorKind;

/// The reservation of one batch: no more than the caller takes, and held until the batch is sent.
pub(super) struct Room {
    shared: Arc<Shared>,
    credit: Arc<Credit>,
    takes_partial_rows: bool,
    bytes: usize,
    reserved: Option<Reservation>,
}

impl Room {
    /// Waits for credit and for memory.
    pub async fn wait(shared: &Arc<Shared>, credit: &Arc<Credit>, takes_partial_rows: bool) -> ServiceResult<Room> {
        let mut room = Room {
            shared: Arc::clone(shared),
            credit: Arc::clone(credit),
            takes_partial_rows,
            bytes: 0,
            reserved: None,
        };
        room.credited(1, false).await?;
        room.bytes = credit.left().min(BATCH_BYTES);
        room.reserve(room.bytes).await?;
        Ok(room)
    }

    /// The memory, for as long as the batch waits to be sent.
    pub fn into_reservation(self) -> Option<Reservation> {
        self.reserved
    }

    /// Waits until the caller takes this many bytes. `need`: the caller learns how many.
    pub async fn credited(&self, bytes: usize, need: bool) -> ServiceResult<()> {
        if self.credit.left() >= bytes {
            return Ok(());
        }
        let wait = self.credit.wait(bytes, need);
        self.shared.env.timeout(CREDIT_WAIT, wait).await.map_err(|_| {
            let message = "the caller of the read took no rows for a minute";
            ServiceError::new(ErrorKind::Unavailable, message)
        })
    }

    async fn reserve(&mut self, bytes: usize) -> ServiceResult<()> {
        let (env, batches) = (&self.shared.env, &self.shared.batches);
        let reserved = batches.reserve_large(env, bytes, MEMORY_WAIT).await;
        self.reserved = Some(reserved.map_err(|_| {
            let message = "too many rows wait to be sent to other servers";
            ServiceError::new(ErrorKind::Busy, message)
        })?);
        Ok(())
    }
}

#[async_trait]
impl BatchReservation for Room {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn takes_partial_rows(&self) -> bool {
        self.takes_partial_rows
    }

    async fn renew(&mut self, bytes: usize) -> ServiceResult<()> {
        self.reserved = None;
        // A read that meets a large row asks for several times the memory that it had, though the row may need less. The row is
        // refused once it does not fit into all memory that there is.
        let max = self.shared.batches.bytes_max();
        if self.bytes >= max {
            let message =
                format!("a row takes more than {max} bytes, all that this server spares for rows of other servers");
            return Err(ServiceError::new(ErrorKind::ResourceExhausted, message));
        }
        let bytes = bytes.min(max);
        // The caller first: it may wait for its own memory, and none is held here meanwhile.
        self.credited(bytes, true).await?;
        self.reserve(bytes).await?;
        self.bytes = bytes;
        Ok(())
    }
}
