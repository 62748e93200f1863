//! Reads the cells that the condition of a row operation checks, and tests them.

use crate::memory::RowMemory;
use crate::read_for_write::{Begun, NeedsReservation, Wanted, compile, read_row, read_small_row};
use bytes::Bytes;
use std::sync::Arc;
use stele_client::{Condition, ConditionTest, ServiceError, ServiceResult};
use stele_filter::{CompiledFilter, Filter};
use stele_tablet::Tablet;
use stele_types::{Cell, ErrorKind, TableSchema, Timestamp};

/// The result of a condition.
#[derive(Clone, Copy)]
pub(super) struct Tested {
    pub(super) holds: bool,
    /// The time of the first cell that its test was about.
    pub(super) first: Option<Timestamp>,
}

/// Tests a condition. Returns also the memory with which the next read of the row begins.
pub(super) async fn test(
    tablet: &Arc<Tablet>,
    schema: &Arc<TableSchema>,
    row: &Bytes,
    condition: &Condition,
    memory: &RowMemory,
    begun: Begun,
) -> ServiceResult<Result<(Tested, Begun), NeedsReservation>> {
    let filter = compile(condition.reads.as_ref(), schema)?;
    if let Some(read) = read_small_row(tablet, row, filter.as_ref())? {
        return Ok(Ok((tested(&condition.test, &read.cells)?, begun.for_next_read())));
    }
    let wanted = match condition.test {
        ConditionTest::AnyCell => Wanted {
            filter: without_values(condition.reads.as_deref(), schema).or(filter),
            keeps: &|_, last| last.is_none(),
            any: true,
        },
        ConditionTest::Cells(_) | ConditionTest::Encoded(_) => Wanted {
            filter,
            keeps: &|_, _| true,
            any: false,
        },
    };
    Ok(match read_row(tablet, row, &wanted, memory, begun).await? {
        Ok(read) => {
            assert!(
                !wanted.any || read.cells.len() <= 1,
                "where any cell will do, no second one is kept"
            );
            Ok((tested(&condition.test, &read.cells)?, read.into_begun()))
        }
        Err(lacks) => Err(lacks),
    })
}

fn tested(test: &ConditionTest, cells: &[Cell]) -> ServiceResult<Tested> {
    Ok(match test {
        ConditionTest::AnyCell => Tested {
            holds: !cells.is_empty(),
            first: None,
        },
        ConditionTest::Cells(test) => {
            let (holds, first) = test.decide(cells)?;
            Tested { holds, first }
        }
        ConditionTest::Encoded(_) => {
            let message = "this server does not decode conditions of other servers";
            return Err(ServiceError::new(ErrorKind::Unimplemented, message));
        }
    })
}

/// The filter, with which no value is fetched that it does not look at. `None` where that would be too much of a filter.
fn without_values(reads: Option<&Filter>, schema: &Arc<TableSchema>) -> Option<Arc<CompiledFilter>> {
    let filter = match reads {
        None | Some(Filter::PassAll) => Filter::StripValue,
        Some(reads) => Filter::Chain(vec![reads.clone(), Filter::StripValue]),
    };
    Arc::new(filter).compile_shared(schema).ok()
}
