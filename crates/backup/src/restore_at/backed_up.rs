//! A table as its backup has it: where its history and its log begin.

use crate::archive::history::History;
use crate::destination::{Destination, damaged};
use crate::error::Result;
use crate::format::{Record, TableOf};
use crate::paths;
use bytes::Bytes;
use stele_types::{SeqNo, TableId, TableSchema};

/// Reads the parts of a table of a backup, each once: its history on the way to a moment, and where the backup ends. Barriers before
/// `barred_from` are in the backup.
pub(super) async fn read(
    destination: &Destination,
    record: &Record,
    (index, of): (u32, &TableOf),
    (barred_from, at): (i64, i64),
) -> Result<(History, Cuts)> {
    let decoded = decoded(record, of)?;
    let (mut tablets, mut cuts) = (Vec::new(), Vec::new());
    for part in 0..of.parts {
        for manifest in destination.part(record.attempt(), index, part).await?.tablets {
            tablets.push(manifest.tablet);
            cuts.push((manifest.start.clone(), manifest.flushed_through()));
        }
    }
    cuts.sort();
    let since = (of.created_micros, barred_from);
    Ok((History::new(decoded, since, tablets, at), Cuts(cuts)))
}

/// The schema of a table of a backup, and the number of its set of tablets.
pub(super) fn decoded(record: &Record, of: &TableOf) -> Result<(TableSchema, TableId)> {
    let decoded = stele_catalog::record::decode_table(&of.table);
    decoded.map_err(|why| damaged(&paths::record(record.attempt()), format!("a table: {why}")))
}

/// Where the backup of a table ends, by rows.
pub(super) struct Cuts(Vec<(Bytes, SeqNo)>);

impl Cuts {
    /// Whether the backup has the mutation of a row with this number.
    pub(super) fn has(&self, row: &[u8], seq: SeqNo) -> bool {
        let after = self.0.partition_point(|(start, _)| start[..] <= *row);
        let cut = after.checked_sub(1).and_then(|at| self.0.get(at));
        cut.is_some_and(|(_, through)| seq <= *through)
    }
}
