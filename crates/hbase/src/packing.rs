//! Compressed cell blocks of requests and responses.
//!
//! Both directions run in pieces. Between pieces other calls of the event loop go on, and a block that is unpacked gets
//! memory for each piece before the piece is made.

use crate::call::{Call, Reply, Unpacked};
use crate::compression::BlockCompression;
use crate::failure::{Failure, Outcome};
use crate::pace::Pace;
use bytes::{Buf, BufMut, Bytes};
use prost::encoding::{DecodeContext, WireType};
use std::io::{Read, Write};
use stele_env::Env;
use stele_memory::Reservation;
use stele_wire::exception;
use stele_wire::frame::{self, REQUEST_BYTES_MAX};
use stele_wire::messages::ResponseHeader;

/// Bytes of a piece: 0.1 to 1 ms of work.
const PIECE_BYTES: usize = 64 << 10;

/// Bytes that are compressed within one unit of work.
const UNIT_BYTES: usize = 64;

/// A message that is encoded already.
#[derive(Debug, Default)]
struct Encoded(Bytes);

impl prost::Message for Encoded {
    fn encode_raw(&self, out: &mut impl BufMut) {
        out.put_slice(&self.0);
    }

    fn merge_field(
        &mut self,
        field: u32,
        wire_type: WireType,
        from: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), prost::DecodeError> {
        prost::encoding::skip_field(wire_type, field, from, context)
    }

    fn encoded_len(&self) -> usize {
        self.0.len()
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

/// The cells of a block, at most `bytes_max`. Their memory is added to `memory` before they are unpacked.
pub(crate) async fn unpack(
    compression: BlockCompression,
    block: &Bytes,
    bytes_max: usize,
    memory: &Reservation,
    env: &Env,
) -> Outcome<Bytes> {
    let mut pace = Pace::new(env);
    let mut plain: Vec<u8> = Vec::new();
    let mut decoder = compression.decoder(block);
    loop {
        if plain.len() == plain.capacity() {
            // One byte more than is allowed tells a block that is too long.
            let more = plain.len().max(PIECE_BYTES).min(bytes_max + 1 - plain.len());
            let no_memory = |_| Failure::overloaded("no memory for a compressed cell block");
            memory.try_grow(more).map_err(no_memory)?;
            plain.reserve_exact(more);
        }
        let room = (plain.capacity() - plain.len()).min(PIECE_BYTES);
        let read = (&mut decoder).take(room as u64).read_to_end(&mut plain);
        let read =
            read.map_err(|error| Failure::do_not_retry(format!("a compressed cell block is damaged: {error}")))?;
        if plain.len() > bytes_max {
            let message = format!("a compressed cell block has more than {bytes_max} bytes");
            return Err(Failure::new(exception::REQUEST_TOO_BIG, message));
        }
        if read < room {
            return Ok(plain.into());
        }
        pace.spend(read / UNIT_BYTES).await;
    }
}

impl Call {
    /// Whether the cells of the request are compressed.
    pub fn has_packed_cells(&self) -> bool {
        !self.client.compression.is_none() && !self.request.cells.is_empty()
    }

    /// Unpacks the cells of the request.
    pub async fn unpack_cells(&mut self, env: &Env) -> Outcome<()> {
        let compression = self.client.compression;
        self.request.cells = unpack(compression, &self.request.cells, REQUEST_BYTES_MAX, &self.memory, env).await?;
        Ok(())
    }

    /// Makes the frame of a response whose cells are to be compressed.
    pub async fn pack_cells(&self, reply: &mut Reply, env: &Env) -> Outcome<()> {
        let Some(Unpacked { message, cells }) = reply.unpacked.take() else {
            return Ok(());
        };
        let mut pace = Pace::new(env);
        let mut encoder = self.client.compression.encoder();
        for piece in cells.chunks(PIECE_BYTES) {
            encoder.write_all(piece).map_err(not_packed)?;
            pace.spend(piece.len() / UNIT_BYTES * 4).await;
        }
        let packed = Bytes::from(encoder.finish().map_err(not_packed)?);
        let header = ResponseHeader {
            call_id: self.request.header.call_id,
            ..ResponseHeader::default()
        };
        frame::encode_response(&mut reply.frame, header, Some(&Encoded(message)), &packed)?;
        // The cells are gone, and their memory is the frame's now.
        let before = self.memory.counted();
        self.memory.shrink_to(before.saturating_sub(cells.len()));
        Ok(())
    }
}

fn not_packed(error: std::io::Error) -> Failure {
    Failure::new(
        exception::HBASE_IO,
        format!("compression of a cell block failed: {error}"),
    )
}

#[cfg(test)]
mod tests;
