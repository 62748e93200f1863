//! Reads one row for a row operation that holds its latch.
//!
//! A small row is read on the calling thread. A larger one is read in partial rows, and only the cells that the write must know
//! are kept, in a reservation of [`RowMemory`]. The read never waits for memory while the latch is held. Where memory is short
//! it is given up ([`NeedsReservation`]); its caller releases the latch, waits, and reads again with the memory reserved ([`Begun`]).

use crate::error::from_tablet;
use crate::memory::RowMemory;
use bytes::Bytes;
use std::sync::Arc;
use stele_client::{ServiceError, ServiceResult};
use stele_filter::{CompiledFilter, Filter};
use stele_memory::Reservation;
use stele_tablet::{Sampled, ScanSpec, Tablet, TabletError, TabletScanner};
use stele_types::{Cell, RowRange, RowSet, TableSchema};

/// The size of a partial row: that of a batch of rows.
pub(crate) const PARTIAL_ROW_BYTES: usize = 1 << 20;

/// Cells of one row, for a write that holds its latch.
pub(crate) struct RowCells {
    pub(crate) cells: Vec<Cell>,
    reservation: Option<Reservation>,
}

impl RowCells {
    /// Whether the row was not small, so that its kept cells are in a reservation.
    pub(crate) fn has_reservation(&self) -> bool {
        self.reservation.is_some()
    }

    /// Keeps the reservation only.
    pub(crate) fn without_cells(self) -> Self {
        RowCells {
            cells: Vec::new(),
            reservation: self.reservation,
        }
    }

    /// The reservation, for the next read of the row.
    pub(crate) fn into_begun(self) -> Begun {
        Begun {
            reservation: self.reservation,
            sampled: Sampled::default(),
        }
    }
}

/// A read that was given up for want of reserved memory.
pub(crate) struct NeedsReservation {
    bytes: usize,
    sampled: Sampled,
}

/// The state with which such a read is begun again; empty for a first read.
#[derive(Default)]
pub(crate) struct Begun {
    reservation: Option<Reservation>,
    sampled: Sampled,
}

impl Begun {
    /// The same for a read with another filter.
    pub(crate) fn for_next_read(self) -> Self {
        Begun {
            reservation: self.reservation,
            sampled: Sampled::default(),
        }
    }
}

impl From<Reservation> for Begun {
    /// A read that begins with this memory.
    fn from(reservation: Reservation) -> Self {
        Begun {
            reservation: Some(reservation),
            sampled: Sampled::default(),
        }
    }
}

impl NeedsReservation {
    /// The memory that it needs.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Forgets the sampling decisions of the read, so that they are not taken for those of another filter.
    pub(crate) fn without_samples(self) -> Self {
        NeedsReservation {
            bytes: self.bytes,
            sampled: Sampled::default(),
        }
    }

    /// Waits for the memory. Never called by a writer that holds a latch.
    pub(crate) async fn wait(self, reservation: &RowMemory) -> ServiceResult<Begun> {
        Ok(Begun {
            reservation: Some(reservation.take(self.bytes).await?),
            sampled: self.sampled,
        })
    }
}

/// The cells that a write must know of a row that is not small.
pub(crate) struct Wanted<'a> {
    /// Lets nothing through that the write does not look at; the row is read as a whole where it must see it so.
    pub(crate) filter: Option<Arc<CompiledFilter>>,
    /// Whether a cell is kept, behind the one that was kept last.
    pub(crate) keeps: &'a (dyn Fn(&Cell, Option<&Cell>) -> bool + Sync),
    /// Whether the rest of the row makes no difference once a cell is kept.
    pub(crate) any: bool,
}

/// A row for a write that holds its latch, when it is small and can be read without waiting; all that `filter` lets through.
pub(crate) fn read_small_row(
    tablet: &Tablet,
    row: &Bytes,
    filter: Option<&Arc<CompiledFilter>>,
) -> ServiceResult<Option<RowCells>> {
    let batch = tablet.get_row(row, filter).map_err(from_tablet)?;
    Ok(batch.map(|batch| RowCells {
        cells: batch.into_cells(),
        reservation: None,
    }))
}

/// Reads one row of any size for a write that holds its latch. The kept cells are in a reservation; their values are
/// copied or the row's own, so that no block is retained because of a small one. It does not wait for memory.
pub(crate) async fn read_row(
    tablet: &Arc<Tablet>,
    row: &Bytes,
    wanted: &Wanted<'_>,
    reservation: &RowMemory,
    begun: Begun,
) -> ServiceResult<Result<RowCells, NeedsReservation>> {
    let mut sampled = begun.sampled;
    let mut got = begun.reservation.map_or_else(|| reservation.try_first(), Ok);
    loop {
        let held = match got {
            Ok(held) => held,
            Err(bytes) => return Ok(Err(NeedsReservation { bytes, sampled })),
        };
        let (mut cells, mut kept) = (Vec::new(), 0);
        let spec = ScanSpec {
            rows: RowSet::new(vec![RowRange::single(row)]),
            filter: wanted.filter.clone(),
            reversed: false,
            raw: false,
            rows_limit: None,
        };
        let mut scanner = TabletScanner::new(tablet.clone(), spec);
        scanner.set_sampled(sampled);
        match read_within(&mut scanner, wanted, held.bytes(), &mut cells, &mut kept).await {
            Ok(()) => {
                let reservation = Some(held);
                return Ok(Ok(RowCells { cells, reservation }));
            }
            // It is begun again in more, and nobody holds anything while he waits for that.
            Err(TabletError::NeedsMemory { bytes }) => {
                drop(cells);
                sampled = scanner.into_sampled();
                got = reservation.try_more(held, bytes.saturating_add(kept))?;
            }
            Err(error) => return Err(from_tablet(error)),
        }
    }
}

/// The same within `reservation` bytes.
async fn read_within(
    scanner: &mut TabletScanner,
    wanted: &Wanted<'_>,
    reservation: usize,
    cells: &mut Vec<Cell>,
    kept: &mut usize,
) -> Result<(), TabletError> {
    scanner.set_partial_rows(Some(PARTIAL_ROW_BYTES));
    // From the first value on: readers that take nothing may have all memory for values, and the latch is held here. The values
    // are in the reservation of this write.
    scanner.set_reader_holds(true);
    loop {
        scanner.set_reservation(reservation.saturating_sub(*kept));
        let Some(batch) = scanner.next_batch().await? else {
            return Ok(());
        };
        if !batch.continues {
            // It begins, perhaps again: also behind a piece that gave nothing and so did not say that more was to come.
            cells.clear();
            *kept = 0;
        }
        for mut cell in batch.into_cells() {
            if (wanted.keeps)(&cell, cells.last()) {
                if cell.value.len() < PARTIAL_ROW_BYTES {
                    cell.value = Bytes::copy_from_slice(&cell.value);
                }
                cell.qualifier = Bytes::copy_from_slice(&cell.qualifier);
                *kept += kept_bytes(&cell);
                cells.push(cell);
            }
        }
        debug_assert_eq!(
            cells.is_empty(),
            *kept == 0,
            "bytes are counted with the cells that are kept"
        );
        if wanted.any && !cells.is_empty() {
            return Ok(());
        }
        if scanner.is_within_row() && reservation.saturating_sub(*kept) < PARTIAL_ROW_BYTES {
            // There is no memory for the next partial row in addition to them.
            return Err(TabletError::NeedsMemory { bytes: *kept });
        }
    }
}

/// Memory of a kept cell, in a list that may just have doubled.
fn kept_bytes(cell: &Cell) -> usize {
    let label_bytes = |label: &String| size_of::<String>() + label.capacity();
    let labels: usize = cell.labels.iter().map(label_bytes).sum();
    2 * size_of::<Cell>() + cell.qualifier.len() + cell.value.len() + labels
}

/// Compiles a filter against a schema.
pub(crate) fn compile(
    filter: Option<&Arc<Filter>>,
    schema: &Arc<TableSchema>,
) -> ServiceResult<Option<Arc<CompiledFilter>>> {
    let compiled = filter.map(|f| f.compile_shared(schema)).transpose();
    compiled.map_err(|e| ServiceError::new(e.kind(), e.to_string()))
}
