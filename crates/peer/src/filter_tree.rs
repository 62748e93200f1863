//! Encodes filter trees. Depth and size are bounded both ways; validity of the filter itself is the filter crate's.

use crate::cursor::{Cursor, Decoded};
use crate::limits::{FILTER_BYTES_MAX, FILTER_DEPTH_MAX};
use crate::segments::Segments;
use bytes::Bytes;
use std::ops::Bound;
use stele_client::{ServiceError, ServiceResult};
use stele_filter::Filter;
use stele_types::{FamilyId, Timestamp};

/// Appends a tree as *bytes*. A tree beyond the limits is `InvalidArgument`, as it is when it is compiled.
pub(crate) fn encode(filter: &Filter, out: &mut Segments) -> ServiceResult<()> {
    let mut tree = Segments::default();
    node(filter, 0, &mut tree)?;
    out.bytes(&tree.into_bytes());
    Ok(())
}

/// Reads a tree that was appended as *bytes*.
pub(crate) fn decode(fields: &mut Cursor) -> Decoded<Filter> {
    let bytes = fields.bytes()?;
    if bytes.len() > FILTER_BYTES_MAX {
        return Err(fields.malformed("the filter is too long"));
    }
    // A filter lives as long as its scan, which must not keep the buffer of the frame.
    let mut tree = Cursor::new("filter", Bytes::copy_from_slice(&bytes));
    let filter = read(&mut tree, 0)?;
    tree.finish()?;
    Ok(filter)
}

fn node(filter: &Filter, depth: usize, out: &mut Segments) -> ServiceResult<()> {
    if depth >= FILTER_DEPTH_MAX || out.len() > FILTER_BYTES_MAX {
        return Err(ServiceError::invalid("the filter is too deep or too long"));
    }
    match filter {
        Filter::Chain(members) => list(1, members, depth, out)?,
        Filter::Interleave(members) => list(2, members, depth, out)?,
        Filter::Condition {
            predicate,
            on_true,
            on_false,
        } => {
            out.u8(3);
            out.u8(u8::from(on_true.is_some()) | u8::from(on_false.is_some()) << 1);
            node(predicate, depth + 1, out)?;
            for branch in [on_true, on_false].into_iter().flatten() {
                node(branch, depth + 1, out)?;
            }
        }
        leaf => leaf_node(leaf, out),
    }
    match out.len() > FILTER_BYTES_MAX {
        true => Err(ServiceError::invalid("the filter is too long")),
        false => Ok(()),
    }
}

fn list(number: u8, members: &[Filter], depth: usize, out: &mut Segments) -> ServiceResult<()> {
    out.u8(number);
    out.size(members.len());
    members.iter().try_for_each(|member| node(member, depth + 1, out))
}

fn leaf_node(leaf: &Filter, out: &mut Segments) {
    match leaf {
        Filter::Chain(_) | Filter::Interleave(_) | Filter::Condition { .. } => unreachable!("these have members"),
        Filter::Sink => out.u8(4),
        Filter::PassAll => out.u8(5),
        Filter::BlockAll => out.u8(6),
        Filter::RowKeyRegex(pattern) => string(7, pattern, out),
        Filter::RowSample(probability) => {
            out.u8(8);
            out.u64(probability.to_bits());
        }
        Filter::FamilyRegex(pattern) => string(9, pattern, out),
        Filter::QualifierRegex(pattern) => string(10, pattern, out),
        Filter::ColumnRange { family, start, end } => {
            string(11, family.as_bytes(), out);
            bound(start, out);
            bound(end, out);
        }
        Filter::TimestampRange { start, end } => {
            out.u8(12);
            out.i64(*start);
            out.u8(u8::from(end.is_some()));
            if let Some(end) = end {
                out.i64(*end);
            }
        }
        Filter::ValueRegex(pattern) => string(13, pattern, out),
        Filter::ValueRange { start, end } => {
            out.u8(14);
            bound(start, out);
            bound(end, out);
        }
        Filter::ValueBitmask(mask) => string(15, mask, out),
        Filter::CellsPerRowOffset(count) => number(16, *count, out),
        Filter::CellsPerRow(count) => number(17, *count, out),
        Filter::CellsPerColumn(count) => number(18, *count, out),
        Filter::StripValue => out.u8(19),
        Filter::ApplyLabel(label) => string(20, label.as_bytes(), out),
        Filter::FamiliesBefore(families) => {
            out.u8(21);
            out.size(families.len());
            for (family, before) in families {
                out.u32(family.0);
                out.i64(before.0);
            }
        }
        Filter::Families(families) => {
            out.u8(22);
            out.size(families.len());
            families.iter().for_each(|family| out.u32(family.0));
        }
    }
}

fn string(kind: u8, bytes: &[u8], out: &mut Segments) {
    out.u8(kind);
    out.bytes(bytes);
}

fn number(kind: u8, count: i32, out: &mut Segments) {
    out.u8(kind);
    out.slice(&count.to_le_bytes());
}

fn bound(bound: &Bound<Bytes>, out: &mut Segments) {
    let (kind, bytes) = match bound {
        Bound::Unbounded => return out.u8(0),
        Bound::Included(bytes) => (1, bytes),
        Bound::Excluded(bytes) => (2, bytes),
    };
    string(kind, bytes, out);
}

fn read(tree: &mut Cursor, depth: usize) -> Decoded<Filter> {
    if depth >= FILTER_DEPTH_MAX {
        return Err(tree.malformed("it is too deep"));
    }
    Ok(match tree.u8()? {
        1 => Filter::Chain(read_list(tree, depth)?),
        2 => Filter::Interleave(read_list(tree, depth)?),
        3 => {
            let branches = tree.flags(3)?;
            let predicate = Box::new(read(tree, depth + 1)?);
            let mut branch = |flag: u8| match branches & flag {
                0 => Ok(None),
                _ => read(tree, depth + 1).map(|filter| Some(Box::new(filter))),
            };
            Filter::Condition {
                predicate,
                on_true: branch(1)?,
                on_false: branch(2)?,
            }
        }
        4 => Filter::Sink,
        5 => Filter::PassAll,
        6 => Filter::BlockAll,
        7 => Filter::RowKeyRegex(tree.bytes()?),
        8 => Filter::RowSample(f64::from_bits(tree.u64()?)),
        9 => Filter::FamilyRegex(tree.bytes()?),
        10 => Filter::QualifierRegex(tree.bytes()?),
        11 => Filter::ColumnRange {
            family: read_text(tree)?,
            start: read_bound(tree)?,
            end: read_bound(tree)?,
        },
        12 => Filter::TimestampRange {
            start: tree.i64()?,
            end: match tree.flags(1)? {
                0 => None,
                _ => Some(tree.i64()?),
            },
        },
        13 => Filter::ValueRegex(tree.bytes()?),
        14 => Filter::ValueRange {
            start: read_bound(tree)?,
            end: read_bound(tree)?,
        },
        15 => Filter::ValueBitmask(tree.bytes()?),
        16 => Filter::CellsPerRowOffset(tree.i32()?),
        17 => Filter::CellsPerRow(tree.i32()?),
        18 => Filter::CellsPerColumn(tree.i32()?),
        19 => Filter::StripValue,
        20 => Filter::ApplyLabel(read_text(tree)?),
        21 => {
            let count = tree.count(12)?;
            let families = (0..count).map(|_| Ok((FamilyId(tree.u32()?), Timestamp(tree.i64()?))));
            Filter::FamiliesBefore(families.collect::<Decoded<_>>()?)
        }
        22 => {
            let count = tree.count(4)?;
            let families = (0..count).map(|_| tree.u32().map(FamilyId));
            Filter::Families(families.collect::<Decoded<_>>()?)
        }
        _ => return Err(tree.malformed("an unknown kind of filter")),
    })
}

fn read_list(tree: &mut Cursor, depth: usize) -> Decoded<Vec<Filter>> {
    let count = tree.count(1)?;
    (0..count).map(|_| read(tree, depth + 1)).collect()
}

fn read_text(tree: &mut Cursor) -> Decoded<String> {
    let len = tree.u32()? as usize;
    tree.text(len)
}

fn read_bound(tree: &mut Cursor) -> Decoded<Bound<Bytes>> {
    Ok(match tree.u8()? {
        0 => Bound::Unbounded,
        1 => Bound::Included(tree.bytes()?),
        2 => Bound::Excluded(tree.bytes()?),
        _ => return Err(tree.malformed("an unknown bound")),
    })
}

#[cfg(test)]
mod tests;
