//! The response of the call for the figures of a tablet. Its request is empty.

use crate::cursor::{Cursor, Decoded};
use crate::segments::Segments;
use bytes::Bytes;
use stele_client::{TabletFigures, TabletOperations, TabletStorage};

/// Flags: the parts that follow.
const STORAGE: u8 = 1;
const OPERATIONS: u8 = 2;

pub(crate) fn decode_figures_request(body: Bytes) -> Decoded<()> {
    Cursor::new("figures request", body).finish()
}

pub(crate) fn encode_figures(figures: &TabletFigures) -> Segments {
    let flag = |is_there: bool, flag: u8| if is_there { flag } else { 0 };
    let mut out = Segments::default();
    out.u8(flag(figures.storage.is_some(), STORAGE) | flag(figures.operations.is_some(), OPERATIONS));
    out.u64(figures.bytes);
    if let Some(storage) = &figures.storage {
        out.u64(storage.file_bytes);
        out.u64(storage.files);
        out.u64(storage.memtable_bytes);
    }
    if let Some(operations) = &figures.operations {
        out.u64(operations.reads);
        out.u64(operations.writes);
    }
    out
}

pub(crate) fn decode_figures(body: Bytes) -> Decoded<TabletFigures> {
    let mut fields = Cursor::new("figures", body);
    let flags = fields.flags(STORAGE | OPERATIONS)?;
    let mut figures = TabletFigures::of_bytes(fields.u64()?);
    if flags & STORAGE != 0 {
        figures.storage = Some(TabletStorage {
            file_bytes: fields.u64()?,
            files: fields.u64()?,
            memtable_bytes: fields.u64()?,
        });
    }
    if flags & OPERATIONS != 0 {
        figures.operations = Some(TabletOperations {
            reads: fields.u64()?,
            writes: fields.u64()?,
        });
    }
    fields.finish()?;
    Ok(figures)
}
