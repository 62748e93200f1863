//! Encodes writes of rows. Decoded rows are flat: spans of the received frame.

use crate::cursor::{Cursor, Decoded};
use crate::segments::Segments;
use bytes::Bytes;
use stele_client::{ServiceError, ServiceResult};
use stele_types::limits::MUTATIONS_PER_REQUEST_MAX;
use stele_types::writes::{RowWritesBuilder, Span};
use stele_types::{ErrorKind, FamilyId, Mutation, RowWrites, Timestamp};

/// Bytes of one entry of the table of mutations.
const MUTATION_BYTES: usize = 32;

/// Bytes of one entry of the table of rows.
const ROW_BYTES: usize = 8;

/// Steps of row operations, which share the numbers, have 8 to 10.
const EXPIRING_PUT: u8 = 11;

/// The fields of a mutation, by the table of the format.
pub(crate) struct Fields<B> {
    pub number: u8,
    pub family: FamilyId,
    pub times: (i64, i64),
    pub qualifier: B,
    pub value: B,
}

/// Takes a mutation apart.
pub(crate) fn fields<B: Default + Clone>(mutation: &Mutation<B>) -> Fields<B> {
    let none = B::default;
    let (number, family, times, qualifier, value) = match mutation {
        Mutation::Put {
            family,
            qualifier,
            timestamp,
            value,
        } => (1, *family, (timestamp.0, 0), qualifier.clone(), value.clone()),
        Mutation::ExpiringPut {
            family,
            qualifier,
            timestamp,
            stored,
        } => (
            EXPIRING_PUT,
            *family,
            (timestamp.0, 0),
            qualifier.clone(),
            stored.clone(),
        ),
        Mutation::Merge {
            family,
            qualifier,
            timestamp,
            operand,
        } => (2, *family, (timestamp.0, 0), qualifier.clone(), operand.clone()),
        Mutation::DeleteRow { up_to } => (3, FamilyId(0), (up_to.0, 0), none(), none()),
        Mutation::DeleteFamily { family, up_to } => (4, *family, (up_to.0, 0), none(), none()),
        Mutation::DeleteFamilyVersion { family, timestamp } => (5, *family, (timestamp.0, 0), none(), none()),
        Mutation::DeleteColumn {
            family,
            qualifier,
            from,
            to,
        } => (6, *family, (from.0, to.0), qualifier.clone(), none()),
        Mutation::DeleteVersion {
            family,
            qualifier,
            timestamp,
        } => (7, *family, (timestamp.0, 0), qualifier.clone(), none()),
    };
    Fields {
        number,
        family,
        times,
        qualifier,
        value,
    }
}

/// Puts a mutation together; `None` for an unknown number.
pub(crate) fn mutation<B>(fields: Fields<B>) -> Option<Mutation<B>> {
    let Fields {
        number,
        family,
        times: (first, second),
        qualifier,
        value,
    } = fields;
    let timestamp = Timestamp(first);
    Some(match number {
        1 => Mutation::Put {
            family,
            qualifier,
            timestamp,
            value,
        },
        EXPIRING_PUT => Mutation::ExpiringPut {
            family,
            qualifier,
            timestamp,
            stored: value,
        },
        2 => Mutation::Merge {
            family,
            qualifier,
            timestamp,
            operand: value,
        },
        3 => Mutation::DeleteRow { up_to: timestamp },
        4 => Mutation::DeleteFamily {
            family,
            up_to: timestamp,
        },
        5 => Mutation::DeleteFamilyVersion { family, timestamp },
        6 => Mutation::DeleteColumn {
            family,
            qualifier,
            from: timestamp,
            to: Timestamp(second),
        },
        7 => Mutation::DeleteVersion {
            family,
            qualifier,
            timestamp,
        },
        _ => return None,
    })
}

/// Refuses rows that the other server would not take for a request: it would end the connection, and all calls on it.
pub(crate) fn check(rows: &RowWrites) -> ServiceResult<()> {
    let mutations: usize = rows.iter().map(|row| row.mutations()).sum();
    if mutations <= MUTATIONS_MAX {
        return Ok(());
    }
    let message =
        format!("a write of {mutations} mutations, {MUTATIONS_MAX} are served by another server: write less at once");
    Err(ServiceError::new(ErrorKind::ResourceExhausted, message))
}

/// Appends rows.
pub(crate) fn encode(rows: &RowWrites, out: &mut Segments) {
    let mutations: usize = rows.iter().map(|row| row.mutations()).sum();
    out.size(rows.len());
    out.size(mutations);
    for row in rows.iter() {
        out.size(row.row.len());
        out.size(row.mutations());
    }
    for row in rows.iter() {
        row.for_each(|mutation| {
            let fields = fields(&mutation);
            out.u32(u32::from(fields.number));
            out.u32(fields.family.0);
            out.size(fields.qualifier.len());
            out.size(fields.value.len());
            out.i64(fields.times.0);
            out.i64(fields.times.1);
        });
    }
    rows.iter().for_each(|row| out.slice(row.row));
    for row in rows.iter() {
        let mut number = 0;
        row.for_each(|mutation| {
            let fields = fields(&mutation);
            out.slice(fields.qualifier);
            match row.shared_value(number, rows) {
                Some(value) => out.shared(&value),
                None => out.slice(fields.value),
            }
            number += 1;
        });
    }
}

/// Reads rows to the end of a body.
pub(crate) fn decode(body: &mut Cursor) -> Decoded<RowWrites> {
    let (rows, mutations) = (body.u32()? as usize, body.u32()? as usize);
    let tables = rows
        .checked_mul(ROW_BYTES)
        .zip(mutations.checked_mul(MUTATION_BYTES))
        .and_then(|(rows, mutations)| rows.checked_add(mutations));
    if tables.is_none_or(|bytes| bytes > body.left()) {
        return Err(body.malformed("it has more rows and mutations than bytes"));
    }
    if mutations > MUTATIONS_MAX {
        return Err(body.malformed("it has too many mutations"));
    }
    let row_table = body.slice(rows * ROW_BYTES)?;
    let mut table = Cursor::new("table of mutations", body.slice(mutations * MUTATION_BYTES)?);
    let (mut key_at, mut data_at) = (body.at(), data_offset(body, &row_table, (rows, mutations))?);
    let mut row_table = Cursor::new("table of rows", row_table);
    let whole: Bytes = body.whole().clone();
    let mut builder = RowWritesBuilder::over(whole, rows);
    let outside = |body: &Cursor| body.malformed("a row or value is outside of the body");
    for _ in 0..rows {
        let (key, count) = (row_table.u32()? as usize, row_table.u32()? as usize);
        for _ in 0..count {
            let mutation = read_mutation(&mut table, &mut data_at)?;
            builder.push(mutation).ok_or_else(|| outside(body))?;
        }
        let span = span(&mut key_at, key).ok_or_else(|| outside(body))?;
        builder.end_row(span).ok_or_else(|| outside(body))?;
    }
    body.slice(data_at.saturating_sub(body.at()))?;
    body.finish()?;
    Ok(builder.finish())
}

/// Mutations of one request. Deletes of rows that become one of each family may be more.
const MUTATIONS_MAX: usize = 40 * MUTATIONS_PER_REQUEST_MAX;

/// The offset of the first qualifier, behind all keys.
fn data_offset(body: &Cursor, row_table: &Bytes, (rows, mutations): (usize, usize)) -> Decoded<usize> {
    let mut table = Cursor::new("table of rows", row_table.clone());
    let (mut end, mut sum) = (body.at(), 0usize);
    for _ in 0..rows {
        end = end.saturating_add(table.u32()? as usize);
        let count = table.u32()? as usize;
        if count == 0 {
            return Err(table.malformed("a row has no mutations"));
        }
        sum = sum.saturating_add(count);
    }
    match sum == mutations {
        true => Ok(end),
        false => Err(table.malformed("the rows have another number of mutations")),
    }
}

fn read_mutation(table: &mut Cursor, data_at: &mut usize) -> Decoded<Mutation<Span>> {
    let number = u8::try_from(table.u32()?).map_err(|_| table.malformed("a reserved field is not zero"))?;
    let family = FamilyId(table.u32()?);
    let (qualifier, value) = (table.u32()? as usize, table.u32()? as usize);
    let times = (table.i64()?, table.i64()?);
    let too_long = || table.malformed("a value is outside of the body");
    let qualifier = span(data_at, qualifier).ok_or_else(too_long)?;
    let value = span(data_at, value).ok_or_else(too_long)?;
    let fields = Fields {
        number,
        family,
        times,
        qualifier,
        value,
    };
    mutation(fields).ok_or_else(|| table.malformed("an unknown kind of mutation"))
}

/// The next `len` bytes.
fn span(at: &mut usize, len: usize) -> Option<Span> {
    let start = *at;
    *at = start.checked_add(len)?;
    Span::new(start, *at)
}

#[cfg(test)]
mod tests;
