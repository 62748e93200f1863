//! Conditions of mutations: CheckAndMutate.

use crate::failure::{Failure, Outcome};
use crate::filtering::RowFilter;
use crate::filters::Comparator;
use crate::front_end::Shared;
use crate::selection::{Selection, Wanted};
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use stele_client::{Condition, ConditionTest, ServiceError, ServiceResult};
use stele_types::{Cell, ErrorKind, TableSchema};
use stele_wire::messages::{self, Column, CompareType};

/// The condition of a row operation for one of the protocol.
pub(crate) fn condition(
    shared: &Arc<Shared>,
    schema: &Arc<TableSchema>,
    given: &messages::Condition,
) -> Outcome<Condition> {
    match &given.filter {
        Some(filter) => by_filter(shared, schema, given, filter),
        None => by_value(shared, schema, given),
    }
}

/// Holds when the filter lets any cell of the row through.
fn by_filter(
    shared: &Arc<Shared>,
    schema: &Arc<TableSchema>,
    given: &messages::Condition,
    filter: &messages::Filter,
) -> Outcome<Condition> {
    let mut selection = Selection::new(
        schema,
        &Wanted {
            times: given.time_range.as_ref(),
            ..Wanted::whole_row()
        },
    )?;
    selection.is_filtered = true;
    let shape = selection.shape(schema, false, false);
    // Refused here if it cannot be decoded. It has a state, so each test begins with a new one; nearly all operations have
    // one test, and that uses this one.
    let decoded = Mutex::new(Some(RowFilter::decode(filter, schema, &shape, shared)?));
    let memory = shared.responses.clone();
    let (env, row, filter) = (shared.env.clone(), given.row.clone(), filter.clone());
    let (reads, schema) = (selection.pushdown(schema), Arc::clone(schema));
    let test = move |cells: &[Cell]| {
        let mut cells = cells.to_vec();
        selection.apply(&schema, &mut cells);
        let ready = decoded.lock().take();
        let again = || RowFilter::decode_within(&filter, &schema, &shape, &env, &memory);
        let passes = ready.map_or_else(again, Ok).and_then(|mut filter| {
            filter.apply(&schema, &row, &mut cells)?;
            Ok(!cells.is_empty())
        });
        passes.map_err(|failure| match failure.is_overload() {
            true => ServiceError::new(ErrorKind::Busy, failure.message),
            false => ServiceError::invalid(failure.message),
        })
    };
    Ok(Condition {
        reads,
        test: ConditionTest::Cells(Arc::new(test)),
    })
}

/// Compares the newest value of a column.
fn by_value(shared: &Shared, schema: &Arc<TableSchema>, given: &messages::Condition) -> Outcome<Condition> {
    let missing = || Failure::do_not_retry("a condition without a column, a comparator or a filter");
    let family = given.family.clone().ok_or_else(missing)?;
    let column = [Column {
        family,
        // The column without a qualifier, and not the family.
        qualifier: vec![given.qualifier.clone().unwrap_or_default()],
    }];
    let selection = Selection::new(
        schema,
        &Wanted {
            columns: &column,
            times: given.time_range.as_ref(),
            ..Wanted::whole_row()
        },
    )?;
    let memory = shared.responses.empty();
    let mut charge = |bytes| memory.try_grow(bytes).is_ok();
    let comparator = Comparator::decode(given.comparator.as_ref().ok_or_else(missing)?, &mut charge)?;
    let operator = given.compare_type.and_then(|number| CompareType::try_from(number).ok());
    let operator = operator.ok_or_else(missing)?;
    let test = move |cells: &[Cell]| {
        let _held = &memory;
        holds(operator, &comparator, cells.first().map(|cell| &cell.value))
    };
    Ok(Condition {
        reads: selection.pushdown(schema),
        test: ConditionTest::Cells(Arc::new(test)),
    })
}

/// Whether `given value <operator> stored value`. An empty given value stands for "no value".
fn holds(operator: CompareType, comparator: &Comparator, stored: Option<&Bytes>) -> ServiceResult<bool> {
    let wants_none = comparator.is_empty();
    Ok(match stored {
        None => wants_none && operator != CompareType::NotEqual,
        Some(stored) if wants_none => stored.is_empty() == (operator != CompareType::NotEqual),
        Some(stored) => {
            let order = comparator
                .compare(stored)
                .map_err(|error| ServiceError::invalid(error.to_string()))?;
            match operator {
                CompareType::Less => order.is_lt(),
                CompareType::LessOrEqual => order.is_le(),
                CompareType::Equal => order.is_eq(),
                CompareType::NotEqual => order.is_ne(),
                CompareType::GreaterOrEqual => order.is_ge(),
                CompareType::Greater => order.is_gt(),
                CompareType::NoOp => false,
            }
        }
    })
}
