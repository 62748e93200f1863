//! Deletes cells that only the target has.
//!
//! Such a cell remains if the source deleted it and the target dropped the tombstone, by a compaction, before an older copy
//! of the cell arrived. Each is deleted by a tombstone of exactly its version.

use crate::changes::Converter;
use crate::ends::Ends;
use anyhow::{Result, bail};
use bytes::Bytes;
use std::collections::HashSet;
use std::sync::Arc;
use stele_cli::escape::escape;
use stele_hbaseclient::scan::{Rows, Scanner, View};
use stele_hbaseclient::{Cluster, batch};
use stele_wire::cell::{Cell, CellType};

/// Largest row of which cells are deleted: it is held in memory twice.
const ROW_BYTES_MAX: u64 = 64 << 20;

/// Deletes the cells of a row that the source does not have. Returns their number.
///
/// # Errors
/// A failure of either side, or a row that is too large.
pub async fn delete(ends: &Ends, table: &str, row: &Bytes) -> Result<u64> {
    // The target first: a cell that it had before the source was read, and that the source lacks, came from nowhere else.
    let target = cells(&ends.target, table, row).await?;
    let source = cells(&ends.source, table, row).await?;
    let tombstones = tombstones(target, &source);
    let count = tombstones.len() as u64;
    let (changes, _) = Converter::new(false).convert(tombstones)?;
    batch::write(&ends.target, table, &changes).await?;
    Ok(count)
}

async fn cells(cluster: &Arc<Cluster>, table: &str, row: &Bytes) -> Result<Vec<Cell>> {
    let mut scanner = Scanner::new(Arc::clone(cluster), table, Rows::one(row.clone()), View::Visible);
    let (mut all, mut bytes) = (Vec::new(), 0);
    while let Some(cells) = scanner.next().await? {
        if cells.again {
            all.clear();
        }
        bytes += cells.bytes;
        if bytes > ROW_BYTES_MAX {
            bail!(
                "row {} has more than {ROW_BYTES_MAX} bytes; its cells are not deleted one by one",
                escape(row)
            );
        }
        all.extend(cells.cells.into_iter().map(|(cell, _)| cell));
    }
    Ok(all)
}

/// A tombstone for each cell of the target that the source has not, with no tags.
fn tombstones(target: Vec<Cell>, source: &[Cell]) -> Vec<(Cell, Bytes)> {
    let place = |cell: &Cell| (cell.family.clone(), cell.qualifier.clone(), cell.timestamp);
    let known: HashSet<_> = source.iter().map(place).collect();
    let tombstone = |cell: Cell| Cell {
        kind: CellType::Delete,
        value: Bytes::new(),
        ..cell
    };
    let extra = target.into_iter().filter(|cell| !known.contains(&place(cell)));
    extra.map(|cell| (tombstone(cell), Bytes::new())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cells_without_a_counterpart_get_markers() {
        let cell = |qualifier: &'static str, timestamp, value: &'static str| Cell {
            row: "r".into(),
            family: "f".into(),
            qualifier: qualifier.into(),
            timestamp,
            kind: CellType::Put,
            value: value.into(),
        };
        let target = vec![cell("a", 1, "x"), cell("a", 2, "y"), cell("b", 1, "z")];
        let source = [cell("a", 2, "other"), cell("c", 1, "w")];
        let tombstones = tombstones(target, &source);
        let shown: Vec<_> = tombstones
            .iter()
            .map(|(cell, _)| (&cell.qualifier[..], cell.timestamp, cell.kind))
            .collect();
        assert_eq!(shown, [(&b"a"[..], 1, CellType::Delete), (b"b", 1, CellType::Delete)]);
    }
}
