//! Encodes the steps of row operations.

use crate::cursor::{Cursor, Decoded};
use crate::segments::Segments;
use crate::writes::{Fields, fields, mutation};
use bytes::Bytes;
use stele_client::{RmwOperation, RmwRule, Step};
use stele_types::{FamilyId, Timestamp};

const DELETE_NEWEST: u8 = 8;
const APPEND: u8 = 9;
const INCREMENT: u8 = 10;

/// Added to the number of a mutation: it takes the time of the operation.
const NOW: u8 = 128;

const TIMES: u8 = 1;
const TIMESTAMP: u8 = 2;
const NEW_VERSION: u8 = 4;
const EXPIRES: u8 = 8;

/// Bytes of the shortest step.
const STEP_BYTES_MIN: usize = 9;

/// Appends a number of steps, and the steps.
pub(crate) fn encode(steps: &[Step], out: &mut Segments) {
    out.size(steps.len());
    steps.iter().for_each(|step| encode_step(step, out));
}

/// Reads steps that were appended with their number.
pub(crate) fn decode(body: &mut Cursor) -> Decoded<Vec<Step>> {
    let count = body.count(STEP_BYTES_MIN)?;
    (0..count).map(|_| decode_step(body)).collect()
}

fn encode_step(step: &Step, out: &mut Segments) {
    match step {
        Step::Mutate(mutation) | Step::MutateNow(mutation) => {
            let fields = fields(mutation);
            let now = if matches!(step, Step::MutateNow(_)) { NOW } else { 0 };
            out.u8(fields.number | now);
            out.u32(fields.family.0);
            out.i64(fields.times.0);
            out.i64(fields.times.1);
            out.bytes(&fields.qualifier);
            out.size(fields.value.len());
            out.shared(&fields.value);
        }
        Step::DeleteNewest { family, qualifier } => {
            out.u8(DELETE_NEWEST);
            out.u32(family.0);
            out.bytes(qualifier);
        }
        Step::Modify(rule) => encode_rule(rule, out),
    }
}

fn encode_rule(rule: &RmwRule, out: &mut Segments) {
    out.u8(match rule.operation {
        RmwOperation::Append(_) => APPEND,
        RmwOperation::Increment(_) => INCREMENT,
    });
    out.u32(rule.family.0);
    out.bytes(&rule.qualifier);
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    out.u8(flag(rule.times.is_some(), TIMES)
        | flag(rule.timestamp.is_some(), TIMESTAMP)
        | flag(rule.is_new_version, NEW_VERSION)
        | flag(rule.lifetime_ms.is_some(), EXPIRES));
    if let Some((first, end)) = rule.times {
        out.i64(first);
        out.i64(end);
    }
    if let Some(timestamp) = rule.timestamp {
        out.i64(timestamp.0);
    }
    if let Some(lifetime_ms) = rule.lifetime_ms {
        out.i64(lifetime_ms);
    }
    match &rule.operation {
        RmwOperation::Append(bytes) => {
            out.size(bytes.len());
            out.shared(bytes);
        }
        RmwOperation::Increment(amount) => out.i64(*amount),
    }
}

fn decode_step(body: &mut Cursor) -> Decoded<Step> {
    let number = body.u8()?;
    let family = FamilyId(body.u32()?);
    match number {
        DELETE_NEWEST => Ok(Step::DeleteNewest {
            family,
            qualifier: body.bytes()?,
        }),
        APPEND | INCREMENT => decode_rule(number, family, body).map(Step::Modify),
        number => {
            let step = if number & NOW == 0 {
                Step::Mutate
            } else {
                Step::MutateNow
            };
            let fields: Fields<Bytes> = Fields {
                number: number & !NOW,
                family,
                times: (body.i64()?, body.i64()?),
                qualifier: body.bytes()?,
                value: body.bytes()?,
            };
            mutation(fields)
                .map(step)
                .ok_or_else(|| body.malformed("an unknown kind of step"))
        }
    }
}

fn decode_rule(number: u8, family: FamilyId, body: &mut Cursor) -> Decoded<RmwRule> {
    let qualifier = body.bytes()?;
    let flags = body.flags(TIMES | TIMESTAMP | NEW_VERSION | EXPIRES)?;
    let times = match flags & TIMES {
        0 => None,
        _ => Some((body.i64()?, body.i64()?)),
    };
    let timestamp = match flags & TIMESTAMP {
        0 => None,
        _ => Some(Timestamp(body.i64()?)),
    };
    let lifetime_ms = match flags & EXPIRES {
        0 => None,
        _ => Some(body.i64()?),
    };
    let operation = match number {
        APPEND => RmwOperation::Append(body.bytes()?),
        _ => RmwOperation::Increment(body.i64()?),
    };
    Ok(RmwRule {
        family,
        qualifier,
        operation,
        times,
        timestamp,
        is_new_version: flags & NEW_VERSION != 0,
        lifetime_ms,
    })
}
