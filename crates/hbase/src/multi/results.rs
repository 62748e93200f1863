//! The results of a batch, within reserved memory.

use crate::call::{Before, Call, Reply};
use crate::cells::{CellPlace, ResultRow, RowsBlock};
use crate::failure::{Failure, Outcome};
use crate::get::Found;
use bytes::BytesMut;
use stele_types::TableSchema;
use stele_wire::exception;
use stele_wire::frame::CellBlock;
use stele_wire::messages::{MultiResponse, RowResult};

/// Bytes of the results of a call. A client repeats the actions that have none immediately.
const RESULT_BYTES_MAX: usize = 16 << 20;

/// Copies of a result that exist at the same time: its own, and that of the response's frame.
const COPIES: usize = 2;

/// The results of a call so far.
#[derive(Default)]
pub(super) struct Results {
    /// Encoded cells of the cell block, in the order in which the response mentions them.
    cells: BytesMut,
    /// Bytes of one copy of the results; both are reserved.
    bytes: usize,
    /// A result found no memory.
    pub lacks_memory: bool,
    pub before: Before,
}

impl Results {
    /// Fails if the call reads no more rows. A client repeats the other actions of a batch that is too large immediately, so it must get
    /// some results.
    pub fn check_space(&self) -> Outcome<()> {
        match self.lacks_memory {
            true if self.bytes == 0 => Err(Failure::overloaded(
                "no memory for the results of the batch; send fewer actions at once, or retry later",
            )),
            false if self.bytes < RESULT_BYTES_MAX => Ok(()),
            _ => Err(too_large()),
        }
    }

    /// No memory was found for a result.
    fn refuse(&mut self) -> Failure {
        self.lacks_memory = true;
        self.check_space().err().unwrap_or_else(too_large)
    }

    /// Counts the cells of a committed change, which are in its message.
    pub fn count_written(&mut self, call: &Call, bytes: usize) {
        call.grow_after_commit(COPIES * bytes);
        self.before = Before::Changes;
        self.bytes += bytes;
    }

    /// Adds the result of a read.
    pub fn add(&mut self, call: &Call, schema: &TableSchema, mut found: Found) -> Outcome<RowResult> {
        let bytes = call.client.cells.result_bytes(schema, &found.row);
        if call.memory.try_grow(COPIES * bytes).is_err() {
            // A client repeats a batch without results. So the first one needs less, as the answer of a single Get does.
            if self.bytes > 0 || call.memory.try_grow(bytes).is_err() {
                return Err(self.refuse());
            }
            let _ = call.memory.grow((COPIES - 1) * bytes);
            self.lacks_memory = true;
        }
        self.bytes += bytes;
        let result = found.result(call, schema);
        self.encode(call, schema, &found.row)?;
        Ok(result)
    }

    /// Adds the cells that a change wrote. The change is committed, and a client would repeat it after an error. So the cells are
    /// added also if no memory can be reserved for them: they were in the memory of the write.
    pub fn add_written(&mut self, call: &Call, schema: &TableSchema, mut row: ResultRow) -> Outcome<RowResult> {
        self.count_written(call, call.client.cells.result_bytes(schema, &row));
        let result = call.client.cells.take_result(schema, &mut row);
        self.encode(call, schema, &row)?;
        Ok(result)
    }

    /// Adds cells that go to the cell block.
    fn encode(&mut self, call: &Call, schema: &TableSchema, row: &ResultRow) -> Outcome<()> {
        if call.client.cells == CellPlace::Message {
            return Ok(());
        }
        let (start, rows) = (self.cells.len(), std::slice::from_ref(row));
        let encoded = RowsBlock { schema, rows }.encode(&mut self.cells);
        if encoded.is_err() {
            self.cells.truncate(start);
        }
        encoded.map_err(Failure::from)
    }

    /// The response of the call.
    pub fn reply(self, call: &Call, response: &MultiResponse) -> Outcome<Reply> {
        // The copy of the cells that are compressed is the second of those that are reserved, so the results do not fail for want of it.
        let before = if self.bytes > 0 { Before::Changes } else { self.before };
        let reply = call.reply_after(response, &self.cells.freeze(), before)?;
        // One copy is left.
        let others = (COPIES - 1) * self.bytes;
        call.memory.shrink_to(call.memory.counted().saturating_sub(others));
        Ok(reply)
    }
}

fn too_large() -> Failure {
    Failure::new(
        exception::MULTI_TOO_LARGE,
        "the results of the batch are too large for one response",
    )
}
