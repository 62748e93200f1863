//! Operations on several rows of a tablet.

use super::conditions;
use crate::cursor::{Cursor, Decoded};
use crate::messages::{decode_durability, encode_durability};
use crate::segments::Segments;
use crate::steps;
use stele_client::{ServiceResult, TabletRowsOperation};

/// Bytes of the shortest condition with its row, and of the shortest row with its steps.
const CONDITION_BYTES_MIN: usize = 5;
const ROW_BYTES_MIN: usize = 8;

/// The request of such an operation. A condition of which the test cannot travel is `Unimplemented`.
pub(crate) fn encode_rows_operation(request: &TabletRowsOperation) -> ServiceResult<Segments> {
    let mut out = Segments::default();
    encode_durability(request.durability, &mut out);
    out.size(request.conditions.len());
    for (row, condition) in &request.conditions {
        out.bytes(row);
        conditions::encode(condition, &mut out)?;
    }
    out.size(request.rows.len());
    for (row, steps) in &request.rows {
        out.bytes(row);
        steps::encode(steps, &mut out);
    }
    Ok(out)
}

/// The opposite.
pub(crate) fn decode_rows_operation(body: bytes::Bytes) -> Decoded<TabletRowsOperation> {
    let mut fields = Cursor::new("operation on rows", body);
    let durability = decode_durability(&mut fields)?;
    let count = fields.count(CONDITION_BYTES_MIN)?;
    let mut conditions = Vec::with_capacity(count);
    for _ in 0..count {
        conditions.push((fields.bytes()?, conditions::decode(&mut fields)?));
    }
    let count = fields.count(ROW_BYTES_MIN)?;
    let mut rows = Vec::with_capacity(count);
    for _ in 0..count {
        rows.push((fields.bytes()?, steps::decode(&mut fields)?));
    }
    fields.finish()?;
    Ok(TabletRowsOperation {
        conditions,
        rows,
        durability,
    })
}

/// The response: whether all conditions held.
pub(crate) fn encode_held(held: bool) -> Segments {
    let mut out = Segments::default();
    out.u8(u8::from(held));
    out
}

/// The opposite.
pub(crate) fn decode_held(body: bytes::Bytes) -> Decoded<bool> {
    let mut fields = Cursor::new("outcome of an operation on rows", body);
    let held = fields.flags(1)? != 0;
    fields.finish()?;
    Ok(held)
}
