//! Requests and responses of the calls.

mod conditions;
mod figures;
pub(crate) mod samples;
mod together;

pub(crate) use figures::{decode_figures, decode_figures_request, encode_figures};
pub(crate) use together::{decode_held, decode_rows_operation, encode_held, encode_rows_operation};

use crate::cells;
use crate::cursor::{Cursor, Decoded};
use crate::filter_tree;
use crate::handshake::{TRACES_SINCE, WORK_SINCE};
use crate::limits::MESSAGE_BYTES_MAX;
use crate::segments::Segments;
use crate::steps;
use crate::writes;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use stele_client::{
    Condition, ConditionTest, RowOutcome, ServiceError, ServiceResult, TabletRead, TabletRowOperation, TabletSample,
};
use stele_types::{Durability, ErrorKind, RequestToken, RowRange, RowSet, RowWrites, ServerTime, TabletId, Timestamp};

/// The kinds of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum CallKind {
    Read = 1,
    Mutate = 2,
    RowOperation = 3,
    Sample = 4,
    TestedRowOperation = 5,
    RowsOperation = 6,
    TimedMutate = 7,
    Figures = 8,
    Control = 256,
}

impl CallKind {
    /// Of a number; the number itself if it is unknown.
    pub fn from_number(number: u16) -> Result<CallKind, u16> {
        [
            CallKind::Read,
            CallKind::Mutate,
            CallKind::RowOperation,
            CallKind::Sample,
            CallKind::TestedRowOperation,
            CallKind::RowsOperation,
            CallKind::TimedMutate,
            CallKind::Figures,
            CallKind::Control,
        ]
        .into_iter()
        .find(|kind| *kind as u16 == number)
        .ok_or(number)
    }

    /// Whether the call may change something, so that a lost answer leaves its outcome unknown.
    pub fn writes(self) -> bool {
        match self {
            CallKind::Mutate
            | CallKind::TimedMutate
            | CallKind::RowOperation
            | CallKind::TestedRowOperation
            | CallKind::RowsOperation
            | CallKind::Control => true,
            CallKind::Read | CallKind::Sample | CallKind::Figures => false,
        }
    }
}

/// Flags of a request.
const PARTIAL_ROWS: u16 = 1;
const CALLER: u16 = 2;
const TRACE: u16 = 4;
const TELLS_WORK: u16 = 8;

/// The header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallHeader {
    /// The number, if it is unknown.
    pub kind: Result<CallKind, u16>,
    /// Large rows may come in pieces.
    pub takes_partial_rows: bool,
    /// The body begins with the caller whose call is forwarded.
    pub has_caller: bool,
    /// The body begins with the trace that the call belongs to. From version 2 on.
    pub has_trace: bool,
    /// A read tells its work at its end. From version 3 on.
    pub tells_work: bool,
    /// Time until the deadline.
    pub left: Option<Duration>,
    pub tablet: TabletId,
    /// Of a read.
    pub credit: u64,
}

impl CallHeader {
    /// The version of the protocol that it needs beyond the first; 0 for none.
    pub fn version(&self) -> u16 {
        match (self.tells_work, self.has_trace) {
            (true, _) => WORK_SINCE,
            (false, true) => TRACES_SINCE,
            (false, false) => 0,
        }
    }

    pub fn encode(&self) -> [u8; 24] {
        let kind = self.kind.map_or_else(|number| number, |kind| kind as u16);
        // Less than a millisecond is not "none".
        let left = |left: Duration| u32::try_from(left.as_millis()).unwrap_or(u32::MAX).max(1);
        let mut out = [0; 24];
        out[0..2].copy_from_slice(&kind.to_le_bytes());
        let partial = if self.takes_partial_rows { PARTIAL_ROWS } else { 0 };
        let caller = if self.has_caller { CALLER } else { 0 };
        let trace = if self.has_trace { TRACE } else { 0 };
        let work = if self.tells_work { TELLS_WORK } else { 0 };
        out[2..4].copy_from_slice(&(partial | caller | trace | work).to_le_bytes());
        out[4..8].copy_from_slice(&self.left.map_or(0, left).to_le_bytes());
        out[8..16].copy_from_slice(&self.tablet.0.to_le_bytes());
        out[16..24].copy_from_slice(&self.credit.to_le_bytes());
        out
    }

    pub fn decode(header: Bytes) -> Decoded<CallHeader> {
        let mut fields = Cursor::new("header of a request", header);
        let kind = CallKind::from_number(fields.u16()?);
        let flags = fields.u16()?;
        if flags & !(PARTIAL_ROWS | CALLER | TRACE | TELLS_WORK) != 0 {
            return Err(fields.malformed("it has unknown flags"));
        }
        let left = fields.u32()?;
        let header = CallHeader {
            kind,
            takes_partial_rows: flags & PARTIAL_ROWS != 0,
            has_caller: flags & CALLER != 0,
            has_trace: flags & TRACE != 0,
            tells_work: flags & TELLS_WORK != 0,
            left: (left > 0).then(|| Duration::from_millis(u64::from(left))),
            tablet: TabletId(fields.u64()?),
            credit: fields.u64()?,
        };
        fields.finish()?;
        Ok(header)
    }
}

const REVERSED: u8 = 1;
const RAW: u8 = 2;
const WAITS: u8 = 4;
const LIMITED: u8 = 8;
const FILTERED: u8 = 16;

/// The request of a read.
pub(crate) fn encode_read(read: &TabletRead) -> ServiceResult<Segments> {
    let mut out = Segments::default();
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    out.u8(flag(read.reversed, REVERSED)
        | flag(read.raw, RAW)
        | flag(read.waits, WAITS)
        | flag(read.rows_limit.is_some(), LIMITED)
        | flag(read.filter.is_some(), FILTERED));
    if let Some(limit) = read.rows_limit {
        out.u64(limit);
    }
    if let Some(filter) = &read.filter {
        filter_tree::encode(filter, &mut out)?;
    }
    let ranges = read.rows.ranges();
    out.size(ranges.len());
    for range in ranges {
        out.u8(u8::from(range.end.is_some()));
        out.bytes(&range.start);
        if let Some(end) = &range.end {
            out.bytes(end);
        }
    }
    Ok(out)
}

pub(crate) fn decode_read(body: Bytes) -> Decoded<TabletRead> {
    let mut fields = Cursor::new("read", body);
    let flags = fields.flags(REVERSED | RAW | WAITS | LIMITED | FILTERED)?;
    let rows_limit = match flags & LIMITED {
        0 => None,
        _ => Some(fields.u64()?),
    };
    let filter = match flags & FILTERED {
        0 => None,
        _ => Some(Arc::new(filter_tree::decode(&mut fields)?)),
    };
    let mut ranges = Vec::with_capacity(fields.count(5)?);
    for _ in 0..ranges.capacity() {
        let has_end = fields.flags(1)? != 0;
        let start = fields.bytes()?;
        let end = has_end.then(|| fields.bytes()).transpose()?;
        ranges.push(RowRange { start, end });
    }
    fields.finish()?;
    Ok(TabletRead {
        rows: RowSet::new(ranges),
        filter,
        reversed: flags & REVERSED != 0,
        raw: flags & RAW != 0,
        rows_limit,
        waits: flags & WAITS != 0,
    })
}

fn encode_durability(durability: Option<Durability>, out: &mut Segments) {
    out.u8(match durability {
        None => 0,
        Some(Durability::None) => 1,
        Some(Durability::Flush) => 2,
        Some(Durability::Sync) => 3,
    });
}

fn decode_durability(fields: &mut Cursor) -> Decoded<Option<Durability>> {
    Ok(match fields.u8()? {
        0 => None,
        1 => Some(Durability::None),
        2 => Some(Durability::Flush),
        3 => Some(Durability::Sync),
        _ => return Err(fields.malformed("an unknown durability")),
    })
}

/// The request of a mutate.
pub(crate) fn encode_mutate(rows: &RowWrites, durability: Option<Durability>) -> Segments {
    encode_mutate_behind(Segments::default(), rows, durability)
}

fn encode_mutate_behind(mut out: Segments, rows: &RowWrites, durability: Option<Durability>) -> Segments {
    encode_durability(durability, &mut out);
    writes::encode(rows, &mut out);
    out
}

pub(crate) fn decode_mutate(body: Bytes) -> Decoded<(RowWrites, Option<Durability>)> {
    decode_mutate_of(Cursor::new("mutate", body))
}

fn decode_mutate_of(mut fields: Cursor) -> Decoded<(RowWrites, Option<Durability>)> {
    let durability = decode_durability(&mut fields)?;
    Ok((writes::decode(&mut fields)?, durability))
}

/// The request of a mutate whose mutations have the time of the caller's clock.
pub(crate) fn encode_timed_mutate(rows: &RowWrites, durability: Option<Durability>, at: Timestamp) -> Segments {
    let mut out = Segments::default();
    out.i64(at.0);
    encode_mutate_behind(out, rows, durability)
}

pub(crate) fn decode_timed_mutate(body: Bytes) -> Decoded<(RowWrites, Option<Durability>)> {
    let mut fields = Cursor::new("timed mutate", body);
    let at = Timestamp(fields.i64()?);
    let (rows, durability) = decode_mutate_of(fields)?;
    let foreign = ServerTime { at, is_foreign: true };
    Ok((rows.with_server_time(Some(foreign)), durability))
}

const CONDITIONAL: u8 = 1;
const CONDITION_FILTERED: u8 = 2;
const NONCE: u8 = 4;
const DATED: u8 = 8;

/// The request of a row operation and its kind, which depends on its condition. A condition of which the test cannot travel is
/// `Unimplemented`.
pub(crate) fn encode_row_operation(request: &TabletRowOperation) -> ServiceResult<(CallKind, Segments)> {
    let mut out = Segments::default();
    let test = match &request.condition {
        Some(condition) => conditions::test_of(condition)?,
        None => None,
    };
    let kind = match &test {
        None => CallKind::RowOperation,
        Some(test) => {
            conditions::encode_test(test, &mut out);
            CallKind::TestedRowOperation
        }
    };
    encode_operation(request, &mut out)?;
    Ok((kind, out))
}

/// Appends a row operation without the test of its condition.
fn encode_operation(request: &TabletRowOperation, out: &mut Segments) -> ServiceResult<()> {
    encode_durability(request.durability, out);
    let reads = request
        .condition
        .as_ref()
        .and_then(|condition| condition.reads.as_deref());
    let conditional = if request.condition.is_some() { CONDITIONAL } else { 0 };
    let token = match &request.token {
        None => 0,
        Some(RequestToken::Nonce { .. }) => NONCE,
        Some(RequestToken::Dated { .. }) => DATED,
    };
    out.u8(conditional | if reads.is_some() { CONDITION_FILTERED } else { 0 } | token);
    out.bytes(&request.row);
    match &request.token {
        None => {}
        Some(RequestToken::Nonce { group, nonce }) => {
            out.u64(*group);
            out.u64(*nonce);
        }
        Some(RequestToken::Dated { token, start_micros }) => {
            out.bytes(token);
            out.i64(*start_micros);
        }
    }
    if let Some(filter) = reads {
        filter_tree::encode(filter, out)?;
    }
    steps::encode(&request.steps, out);
    steps::encode(&request.otherwise, out);
    Ok(())
}

pub(crate) fn decode_row_operation(body: Bytes) -> Decoded<TabletRowOperation> {
    decode_operation(Cursor::new("row operation", body))
}

/// The same of one whose condition has a test.
pub(crate) fn decode_tested_row_operation(body: Bytes) -> Decoded<TabletRowOperation> {
    let mut fields = Cursor::new("row operation with a test", body);
    let test = conditions::decode_test(&mut fields)?;
    let without = fields.malformed("a test without a condition");
    let mut request = decode_operation(fields)?;
    let condition = request.condition.as_mut().ok_or(without)?;
    condition.test = ConditionTest::Encoded(test);
    Ok(request)
}

fn decode_operation(mut fields: Cursor) -> Decoded<TabletRowOperation> {
    let durability = decode_durability(&mut fields)?;
    let flags = fields.flags(CONDITIONAL | CONDITION_FILTERED | NONCE | DATED)?;
    let row = fields.bytes()?;
    let token = match flags & (NONCE | DATED) {
        0 => None,
        NONCE => Some(RequestToken::Nonce {
            group: fields.u64()?,
            nonce: fields.u64()?,
        }),
        DATED => Some(RequestToken::Dated {
            token: fields.bytes()?,
            start_micros: fields.i64()?,
        }),
        _ => return Err(fields.malformed("two tokens")),
    };
    let reads = match flags & CONDITION_FILTERED {
        0 => None,
        _ => Some(Arc::new(filter_tree::decode(&mut fields)?)),
    };
    let condition = match (flags & CONDITIONAL, &reads) {
        (0, Some(_)) => return Err(fields.malformed("a filter without a condition")),
        (0, None) => None,
        _ => Some(Condition::any_cell(reads)),
    };
    let request = TabletRowOperation {
        row,
        condition,
        steps: steps::decode(&mut fields)?,
        otherwise: steps::decode(&mut fields)?,
        durability,
        token,
    };
    fields.finish()?;
    Ok(request)
}

/// The request or the response of a control call.
pub(crate) fn encode_control(body: &Bytes) -> Segments {
    let mut out = Segments::default();
    out.slice(body);
    out
}

/// The response of a row operation.
pub(crate) fn encode_outcome(outcome: &RowOutcome) -> Segments {
    let mut out = Segments::default();
    out.u8(u8::from(outcome.matched));
    cells::encode_list(&outcome.written, &mut out);
    out
}

pub(crate) fn decode_outcome(body: Bytes) -> Decoded<RowOutcome> {
    let mut fields = Cursor::new("outcome", body);
    let matched = fields.flags(1)? != 0;
    let written = cells::decode_list(&mut fields)?;
    fields.finish()?;
    Ok(RowOutcome { matched, written })
}

/// The request of a sample.
pub(crate) fn encode_sample_request(every: u64) -> Segments {
    let mut out = Segments::default();
    out.u64(every);
    out
}

pub(crate) fn decode_sample_request(body: Bytes) -> Decoded<u64> {
    let mut fields = Cursor::new("sample request", body);
    let every = fields.u64()?;
    fields.finish()?;
    Ok(every)
}

/// The response of a sample.
pub(crate) fn encode_sample(sample: &TabletSample) -> Segments {
    let mut out = Segments::default();
    out.u64(sample.bytes);
    out.size(sample.rows.len());
    for (row, before) in &sample.rows {
        out.u64(*before);
        out.bytes(row);
    }
    out
}

pub(crate) fn decode_sample(body: Bytes) -> Decoded<TabletSample> {
    let mut fields = Cursor::new("sample", body);
    let bytes = fields.u64()?;
    let count = fields.count(12)?;
    let mut rows = Vec::with_capacity(count);
    for _ in 0..count {
        let before = fields.u64()?;
        rows.push((fields.bytes()?, before));
    }
    fields.finish()?;
    Ok(TabletSample { bytes, rows })
}

/// Header and body of an error.
pub(crate) fn encode_error(error: &ServiceError) -> ([u8; 2], Segments) {
    let mut out = Segments::default();
    let end = error.message.floor_char_boundary(MESSAGE_BYTES_MAX);
    out.slice(&error.message.as_bytes()[..end]);
    (error.kind.number().to_le_bytes(), out)
}

pub(crate) fn decode_error(header: Bytes, body: Bytes) -> Decoded<ServiceError> {
    let number = Cursor::new("error", header).u16()?;
    let mut fields = Cursor::new("error", body);
    if fields.left() > MESSAGE_BYTES_MAX {
        return Err(fields.malformed("its message is too long"));
    }
    let message = fields.text(fields.left())?;
    Ok(ServiceError::new(ErrorKind::of_number(number), message))
}

#[cfg(test)]
mod tests;
