//! One call: its request, the properties of its connection, and the frame of its response.

use crate::cells::CellPlace;
use crate::failure::{Failure, Outcome};
use crate::mutations::CELL_BYTES;
use crate::region_cache::RegionCache;
use bytes::{Bytes, BytesMut};
use std::sync::Arc;
use stele_memory::Reservation;
use stele_wire::cell::CellReader;
use stele_wire::decoded_size;
use stele_wire::frame::{self, CellBlock, Request};
use stele_wire::messages::{self, Empty, ResponseHeader};

/// Properties that all calls of a connection share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Client {
    /// Where its cells are.
    pub cells: CellPlace,
    /// How cell blocks are compressed.
    pub compression: crate::compression::BlockCompression,
}

/// A call that was decoded as far as its header.
pub(crate) struct Call {
    pub client: Client,
    /// Of its connection.
    pub regions: Arc<RegionCache>,
    pub request: Request,
    /// Memory of the request; more is added for its response.
    pub memory: Reservation,
}

/// The response of a call, ready to be sent.
pub(crate) struct Reply {
    pub frame: BytesMut,
    /// Held until the frame has been sent.
    pub memory: Option<Reservation>,
    /// The frame is still empty: cells have to be compressed first ([`crate::packing`]).
    pub unpacked: Option<Unpacked>,
}

/// The work of a call before its response.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Before {
    /// It changed nothing, and may be repeated.
    #[default]
    Reads,
    /// Changes are committed.
    Changes,
}

/// A response whose cells are to be compressed.
pub(crate) struct Unpacked {
    /// Encoded.
    pub message: Bytes,
    pub cells: BytesMut,
}

impl Call {
    /// The call's message. Memory of its decoded form is reserved first.
    pub fn message<M: decoded_size::Request>(&self, what: &'static str) -> Outcome<M> {
        self.decode(what, self.request.message.clone())
    }

    /// A message within the call's message, as the same.
    pub fn decode<M: decoded_size::Request>(&self, what: &'static str, message: Bytes) -> Outcome<M> {
        let bytes = decoded_size::decoded_bytes::<M>(what, &message)?;
        self.reserve(bytes)?;
        Ok(messages::decode(what, message)?)
    }

    /// The cells of the request. Memory of the changes that they become is reserved first.
    pub fn cells(&self) -> Outcome<CellReader> {
        self.cells_in_parts(usize::MAX)
    }

    /// The cells of the request, of which at most `most` are changes at any moment: memory of as many is reserved first.
    pub fn cells_in_parts(&self, most: usize) -> Outcome<CellReader> {
        let cells = CellReader::new(self.request.cells.clone());
        self.reserve(cells.cells_left().min(most).saturating_mul(CELL_BYTES))?;
        Ok(cells)
    }

    /// Reserves memory of the decoded request.
    fn reserve(&self, bytes: usize) -> Outcome<()> {
        if bytes == 0 {
            return Ok(());
        }
        let reserved = self.memory.try_grow(bytes);
        reserved.map_err(|_| {
            Failure::overloaded(format!(
                "the parts of the request take {bytes} bytes of memory; send fewer at once, or retry later"
            ))
        })
    }

    /// Counts memory of the result of a committed change, also where that exceeds the limit.
    pub fn grow_after_commit(&self, bytes: usize) {
        if self.memory.grow(bytes).is_err() {
            tracing::debug!(bytes, "the result of a committed change is not reserved");
        }
    }

    /// A response without cells.
    pub fn reply(&self, message: &impl prost::Message) -> Outcome<Reply> {
        self.reply_with(message, &())
    }

    /// A response with cells, which are in `message` already unless the client takes cell blocks.
    pub fn reply_with(&self, message: &impl prost::Message, cells: &impl CellBlock) -> Outcome<Reply> {
        self.reply_after(message, cells, Before::Reads)
    }

    /// The same after reads, or after changes that are committed. A client repeats a call that got an error, and an increment without
    /// a nonce would count twice. So the response of changes is made also if no memory can be reserved for it.
    pub fn reply_after(&self, message: &impl prost::Message, cells: &impl CellBlock, before: Before) -> Outcome<Reply> {
        let header = ResponseHeader {
            call_id: self.request.header.call_id,
            ..ResponseHeader::default()
        };
        let (mut frame, mut unpacked) = (BytesMut::new(), None);
        let is_packed = !self.client.compression.is_none() && cells.encoded_len() > 0;
        match (self.client.cells, is_packed) {
            (CellPlace::Message, _) => frame::encode_response(&mut frame, header, Some(message), &())?,
            (CellPlace::Block, false) => frame::encode_response(&mut frame, header, Some(message), cells)?,
            (CellPlace::Block, true) => {
                let bytes = cells.encoded_len();
                let no_memory = |_| Failure::overloaded("no memory for the cells of a response");
                match before {
                    Before::Reads => self.memory.try_grow(bytes).map_err(no_memory)?,
                    Before::Changes => self.grow_after_commit(bytes),
                }
                let mut plain = BytesMut::with_capacity(bytes);
                cells.encode(&mut plain)?;
                unpacked = Some(Unpacked {
                    message: message.encode_to_vec().into(),
                    cells: plain,
                });
            }
        }
        Ok(Reply {
            frame,
            memory: None,
            unpacked,
        })
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
    Reply {
        frame,
        memory: None,
        unpacked: None,
    }
}
