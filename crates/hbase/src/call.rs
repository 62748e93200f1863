//! One call: its request, the properties of its connection, and the frame of its response.

use crate::cells::CellPlace;
use crate::failure::{Failure, Outcome};
use bytes::{Bytes, BytesMut};
use stele_memory::Reservation;
use stele_wire::frame::{self, CellBlock, REQUEST_BYTES_MAX, Request};
use stele_wire::messages::{self, Empty, ResponseHeader};

/// Properties that all calls of a connection share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Client {
    /// Where its cells are.
    pub cells: CellPlace,
    /// Cells of its requests end with tags.
    pub sends_tags: bool,
    /// How cell blocks are compressed.
    pub compression: crate::compression::BlockCompression,
}

/// A call that was decoded as far as its header.
pub(crate) struct Call {
    pub client: Client,
    pub request: Request,
    /// Memory of the request; more is added for its response.
    pub memory: Reservation,
}

/// The response of a call, ready to be sent.
pub(crate) struct Reply {
    pub frame: BytesMut,
    /// Held until the frame has been sent.
    pub memory: Option<Reservation>,
}

impl Call {
    /// The call's message.
    pub fn message<M: prost::Message + Default>(&self, what: &'static str) -> Outcome<M> {
        Ok(messages::decode(what, self.request.message.clone())?)
    }

    /// Decompresses the cells of the request. Their memory is added to the request's.
    pub fn unpack_cells(&mut self) -> Outcome<()> {
        if self.client.compression.is_none() || self.request.cells.is_empty() {
            return Ok(());
        }
        let plain = self
            .client
            .compression
            .decompress(&self.request.cells, REQUEST_BYTES_MAX)?;
        self.memory
            .grow(plain.len())
            .map_err(|_| Failure::overloaded("no memory for a decompressed cell block"))?;
        self.request.cells = plain;
        Ok(())
    }

    /// The cells of the request.
    pub fn cells(&self) -> Bytes {
        self.request.cells.clone()
    }

    /// A response without cells.
    pub fn reply(&self, message: &impl prost::Message) -> Outcome<Reply> {
        self.reply_with(message, &())
    }

    /// A response with cells, which are in `message` already unless the client takes cell blocks.
    pub fn reply_with(&self, message: &impl prost::Message, cells: &impl CellBlock) -> Outcome<Reply> {
        let header = ResponseHeader {
            call_id: self.request.header.call_id,
            ..ResponseHeader::default()
        };
        let mut frame = BytesMut::new();
        match (self.client.cells, self.client.compression.is_none()) {
            (CellPlace::Message, _) => frame::encode_response(&mut frame, header, Some(message), &())?,
            (CellPlace::Block, true) => frame::encode_response(&mut frame, header, Some(message), cells)?,
            (CellPlace::Block, false) => {
                let mut plain = BytesMut::with_capacity(cells.encoded_len());
                cells.encode(&mut plain)?;
                let packed = self.client.compression.compress(&plain)?;
                frame::encode_response(&mut frame, header, Some(message), &packed)?;
            }
        }
        Ok(Reply { frame, memory: None })
    }
}

/// The response of a call that failed.
pub(crate) fn failed(call_id: Option<u32>, failure: &Failure) -> Reply {
    let header = ResponseHeader {
        call_id,
        exception: Some(failure.in_header()),
        cell_block_meta: None,
    };
    let mut frame = BytesMut::new();
    // A header is far below the longest frame.
    let _ = frame::encode_response(&mut frame, header, None::<&Empty>, &());
    Reply { frame, memory: None }
}
