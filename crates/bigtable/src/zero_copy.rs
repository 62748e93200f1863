//! The zero-copy decoder of MutateRow and MutateRows requests.
//!
//! Most requests write and delete cells of existing families and have no mistakes. The decoder reads them in place,
//! without an allocation for each entry, mutation or name. It returns `None` for any other request: an entry to refuse,
//! an aggregate, a field that occurs twice, or damage. The caller then decodes the request with prost and
//! [`Resolver::row`], which also produces the error message.
//!
//! Invariants:
//! * A decoded request is equal to the result of prost and [`Resolver::row`] for the same bytes.
//! * It stops at the first mutation beyond the limit, so such a request needs no more memory than one within the limit.

use crate::mutations::{Resolver, check_mutation_count, check_qualifier, check_row_key, check_value};
use crate::protobuf::{Fields, WireType};
use crate::wire::TimestampOrigin;
use bytes::Bytes;
use stele_types::limits::MUTATIONS_PER_REQUEST_MAX;
use stele_types::{FamilyId, Mutation, RowWrites, RowWritesBuilder, Span, Timestamp, ValueType};

/// Bytes of an entry with a small cell, about: the size by which the list of rows is allocated.
const ENTRY_BYTES: usize = 64;

/// The fields of a request in addition to its mutations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head<'b> {
    /// Empty when absent.
    pub table_name: &'b str,
}

/// Numbers of the fields of one kind of request.
struct Numbers {
    table_name: u32,
    app_profile_id: u32,
    /// Of a MutateRowsRequest.
    entries: Option<u32>,
    /// Of the message that holds a row.
    row_key: u32,
    mutations: u32,
}

const MUTATE_ROWS: Numbers = Numbers {
    table_name: 1,
    app_profile_id: 3,
    entries: Some(2),
    row_key: 1,
    mutations: 2,
};

const MUTATE_ROW: Numbers = Numbers {
    table_name: 1,
    app_profile_id: 4,
    entries: None,
    row_key: 2,
    mutations: 3,
};

/// The head of a MutateRowsRequest.
pub(crate) fn mutate_rows_head(bytes: &[u8]) -> Option<Head<'_>> {
    head(bytes, &MUTATE_ROWS)
}

/// The head of a MutateRowRequest.
pub(crate) fn mutate_row_head(bytes: &[u8]) -> Option<Head<'_>> {
    head(bytes, &MUTATE_ROW)
}

/// The rows of a MutateRowsRequest whose head has been read: all of its entries, in order, if none is refused.
pub(crate) fn mutate_rows(bytes: &Bytes, resolver: &Resolver<'_>) -> Option<RowWrites> {
    let rows = (bytes.len() / ENTRY_BYTES).min(MUTATIONS_PER_REQUEST_MAX);
    let mut reader = RowReader::new(bytes, resolver, rows);
    let mut fields = Fields::of(bytes);
    while let Some((number, wire_type)) = fields.next()? {
        if Some(number) == MUTATE_ROWS.entries {
            reader.row(fields.message()?, &MUTATE_ROWS)?;
        } else {
            fields.skip(wire_type)?;
        }
    }
    reader.finish()
}

/// The row of a MutateRowRequest whose head has been read.
pub(crate) fn mutate_row(bytes: &Bytes, resolver: &Resolver<'_>) -> Option<RowWrites> {
    let mut reader = RowReader::new(bytes, resolver, 1);
    reader.row(Fields::of(bytes), &MUTATE_ROW)?;
    reader.finish()
}

fn head<'b>(bytes: &'b [u8], numbers: &Numbers) -> Option<Head<'b>> {
    let mut head = Head::default();
    let mut fields = Fields::of(bytes);
    while let Some((number, wire_type)) = fields.next()? {
        let is_known = [numbers.row_key, numbers.mutations].contains(&number) && numbers.entries.is_none();
        match wire_type {
            WireType::Bytes if number == numbers.table_name && head.table_name.is_empty() => {
                head.table_name = std::str::from_utf8(fields.slice()?).ok()?;
            }
            WireType::Bytes if number == numbers.app_profile_id => {
                std::str::from_utf8(fields.slice()?).ok()?;
            }
            WireType::Bytes if is_known || Some(number) == numbers.entries => fields.skip(wire_type)?,
            // Views, idempotency, and fields of later versions of the API.
            _ => return None,
        }
    }
    Some(head)
}

/// Collects rows.
struct RowReader<'r, 'b> {
    bytes: &'b [u8],
    resolver: &'r Resolver<'r>,
    writes: RowWritesBuilder,
    /// The last family that was looked up. Neighbouring mutations mostly have the same family.
    family: Option<(&'b [u8], FamilyId, ValueType)>,
}

/// A mutation before the origin of its timestamp is known.
enum Kind {
    SetCell {
        family: FamilyId,
        qualifier: Span,
        micros: i64,
        value: Span,
    },
    Other(Mutation<Span>),
}

impl<'r, 'b> RowReader<'r, 'b> {
    fn new(bytes: &'b Bytes, resolver: &'r Resolver<'r>, rows: usize) -> Self {
        RowReader {
            bytes,
            resolver,
            writes: RowWritesBuilder::over(bytes.clone(), rows),
            family: None,
        }
    }

    /// The rows, if there are any.
    fn finish(self) -> Option<RowWrites> {
        let server_time = self.resolver.server_time();
        (self.writes.mutations() > 0).then(|| self.writes.finish().with_server_time(server_time))
    }

    /// Reads the message that holds a row's key and mutations.
    fn row(&mut self, mut fields: Fields<'b>, numbers: &Numbers) -> Option<()> {
        let before = self.writes.mutations();
        let mut key = Span::default();
        while let Some((number, wire_type)) = fields.next()? {
            if number == numbers.mutations && wire_type == WireType::Bytes {
                let mutation = self.mutation(fields.message()?)?;
                self.writes.push(mutation)?;
                check_mutation_count(self.writes.mutations()).ok()?;
            } else if number == numbers.row_key && wire_type == WireType::Bytes {
                key = fields.span()?;
            } else if numbers.entries.is_none() {
                // The request itself, whose head has been read.
                fields.skip(wire_type)?;
            } else {
                return None;
            }
        }
        check_row_key(key.of(self.bytes)?).ok()?;
        if self.writes.mutations() == before {
            return None;
        }
        self.writes.end_row(key)
    }

    fn mutation(&mut self, mut fields: Fields<'b>) -> Option<Mutation<Span>> {
        let mut kind = None;
        let mut origin = TimestampOrigin::Unspecified;
        while let Some(field) = fields.next()? {
            if field == (7, WireType::Varint) {
                let number = i32::try_from(fields.varint()?).ok()?;
                origin = TimestampOrigin::try_from(number).ok()?;
                continue;
            }
            if kind.is_some() {
                return None;
            }
            kind = Some(match field {
                (1, WireType::Bytes) => self.set_cell(fields.message()?)?,
                (2, WireType::Bytes) => Kind::Other(self.delete_from_column(fields.message()?)?),
                (3, WireType::Bytes) => Kind::Other(self.delete_from_family(fields.message()?)?),
                // Several mutations in place of one are for the other decoder.
                (4, WireType::Bytes)
                    if fields.message()?.next()?.is_none() && !self.resolver.deletes_rows_by_family() =>
                {
                    Kind::Other(Mutation::DeleteRow { up_to: Timestamp::MAX })
                }
                _ => return None,
            });
        }
        Some(match kind? {
            Kind::Other(mutation) => mutation,
            Kind::SetCell {
                family,
                qualifier,
                micros,
                value,
            } => Mutation::Put {
                family,
                qualifier,
                timestamp: self.resolver.cell_timestamp(micros, origin).ok()?,
                value,
            },
        })
    }

    fn set_cell(&mut self, mut fields: Fields<'b>) -> Option<Kind> {
        let mut family = None;
        let (mut qualifier, mut value) = (Span::default(), Span::default());
        let mut micros = 0;
        while let Some(field) = fields.next()? {
            match field {
                (1, WireType::Bytes) if family.is_none() => family = Some(self.family(fields.slice()?)?),
                (2, WireType::Bytes) => qualifier = fields.span()?,
                (3, WireType::Varint) => micros = fields.varint()?.cast_signed(),
                (4, WireType::Bytes) => value = fields.span()?,
                _ => return None,
            }
        }
        let (family, value_type) = family?;
        check_qualifier(qualifier.of(self.bytes)?).ok()?;
        check_value(value.of(self.bytes)?).ok()?;
        (value_type == ValueType::Bytes).then_some(Kind::SetCell {
            family,
            qualifier,
            micros,
            value,
        })
    }

    fn delete_from_column(&mut self, mut fields: Fields<'b>) -> Option<Mutation<Span>> {
        let mut family = None;
        let mut qualifier = Span::default();
        let mut range = None;
        while let Some(field) = fields.next()? {
            match field {
                (1, WireType::Bytes) if family.is_none() => family = Some(self.family(fields.slice()?)?),
                (2, WireType::Bytes) => qualifier = fields.span()?,
                (3, WireType::Bytes) if range.is_none() => range = Some(timestamp_range(fields.message()?)?),
                _ => return None,
            }
        }
        let (family, _) = family?;
        check_qualifier(qualifier.of(self.bytes)?).ok()?;
        let (from, to) = self.resolver.deleted_range(family, range).ok()?;
        Some(Mutation::DeleteColumn {
            family,
            qualifier,
            from,
            to,
        })
    }

    fn delete_from_family(&mut self, mut fields: Fields<'b>) -> Option<Mutation<Span>> {
        let mut family = None;
        while let Some(field) = fields.next()? {
            match field {
                (1, WireType::Bytes) if family.is_none() => family = Some(self.family(fields.slice()?)?),
                _ => return None,
            }
        }
        let (family, _) = family?;
        Some(Mutation::DeleteFamily {
            family,
            up_to: self.resolver.deletes_up_to(family),
        })
    }

    fn family(&mut self, name: &'b [u8]) -> Option<(FamilyId, ValueType)> {
        if let Some((last, id, value_type)) = self.family
            && last == name
        {
            return Some((id, value_type));
        }
        let (id, value_type) = self.resolver.family(std::str::from_utf8(name).ok()?).ok()?;
        self.family = Some((name, id, value_type));
        Some((id, value_type))
    }
}

/// Start and end, in microseconds.
fn timestamp_range(mut fields: Fields<'_>) -> Option<(i64, i64)> {
    let (mut start, mut end) = (0, 0);
    while let Some(field) = fields.next()? {
        match field {
            (1, WireType::Varint) => start = fields.varint()?.cast_signed(),
            (2, WireType::Varint) => end = fields.varint()?.cast_signed(),
            _ => return None,
        }
    }
    Some((start, end))
}

#[cfg(test)]
mod tests;
