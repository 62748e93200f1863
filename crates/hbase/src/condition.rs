//! Conditions of mutations: CheckAndMutate.
//!
//! A condition is decoded by the server that the client calls. If the row is on another server by then, the message of the client
//! travels there, and that server decodes it again ([`ConditionTests`]).

use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::filtering::RowFilter;
use crate::filters::Comparator;
use crate::selection::{Selection, Wanted};
use bytes::Bytes;
use parking_lot::Mutex;
use prost::Message;
use std::sync::Arc;
use stele_client::{CellsTest, Condition, ConditionTest, EncodedTest, ServiceError, ServiceResult, TestDecoder};
use stele_env::Env;
use stele_memory::{Consumer, Part, Pool, Reservation};
use stele_types::{Cell, ErrorKind, TableSchema, Timestamp};
use stele_wire::messages::{self, Column, CompareType};

/// The condition of a row operation for one of the protocol.
pub(crate) fn condition(
    shared: &Context,
    schema: &Arc<TableSchema>,
    given: &messages::Condition,
) -> Outcome<Condition> {
    decode((&shared.env, &shared.responses), schema, given)
}

fn decode(
    (env, memory): (&Env, &Consumer),
    schema: &Arc<TableSchema>,
    given: &messages::Condition,
) -> Outcome<Condition> {
    match &given.filter {
        Some(filter) => by_filter((env, memory), schema, given, filter),
        None => by_value(memory, schema, given),
    }
}

/// Decodes the tests of conditions of HBase clients that have called another server.
pub struct ConditionTests {
    env: Env,
    memory: Consumer,
}

impl ConditionTests {
    /// With the memory of a server.
    pub fn new(env: Env, pool: &Pool) -> Self {
        ConditionTests {
            env,
            memory: pool.of(Part::Responses),
        }
    }
}

impl TestDecoder for ConditionTests {
    fn decode(&self, schema: &Arc<TableSchema>, encoded: &EncodedTest) -> ServiceResult<Arc<dyn CellsTest>> {
        if encoded.language != EncodedTest::HBASE {
            let message = format!("conditions in language {} are unknown here", encoded.language);
            return Err(ServiceError::new(ErrorKind::Unimplemented, message));
        }
        let given = messages::Condition::decode(encoded.test.clone());
        let given = given.map_err(|error| ServiceError::invalid(format!("a condition: {error}")))?;
        let decoded = decode((&self.env, &self.memory), schema, &given).map_err(refused)?;
        match decoded.test {
            ConditionTest::Cells(test) => Ok(test),
            _ => Err(ServiceError::invalid("a condition without a test")),
        }
    }
}

fn refused(failure: Failure) -> ServiceError {
    match failure.is_overload() {
        true => ServiceError::new(ErrorKind::Busy, failure.message),
        false => ServiceError::invalid(failure.message),
    }
}

/// A test with the message that it was made of.
struct Test<F> {
    decide: F,
    given: messages::Condition,
}

impl<F: Fn(&[Cell]) -> ServiceResult<(bool, Option<Timestamp>)> + Send + Sync> CellsTest for Test<F> {
    fn decide(&self, cells: &[Cell]) -> ServiceResult<(bool, Option<Timestamp>)> {
        (self.decide)(cells)
    }

    fn encoded(&self) -> Option<EncodedTest> {
        Some(EncodedTest {
            language: EncodedTest::HBASE,
            test: self.given.encode_to_vec().into(),
        })
    }
}

/// Holds when the filter lets any cell of the row through.
fn by_filter(
    (env, memory): (&Env, &Consumer),
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
    // HBase reads all families for a condition: the default of its servers is for reads of clients.
    let shape = selection.shape(schema, false, false);
    // Refused here if it cannot be decoded. It has a state, so each test begins with a new one; nearly all operations have
    // one test, and that uses this one.
    let first = RowFilter::decode_within(filter, schema, &shape, env, memory)?;
    let decoded = Mutex::new(Some(first));
    let memory = memory.clone();
    let (env, row, filter) = (env.clone(), given.row.clone(), filter.clone());
    let (reads, schema) = (selection.pushdown(schema), Arc::clone(schema));
    let test = move |cells: &[Cell]| {
        let mut cells = cells.to_vec();
        selection.apply(&schema, &mut cells);
        let ready = decoded.lock().take();
        let again = || RowFilter::decode_within(&filter, &schema, &shape, &env, &memory);
        let passes = ready.map_or_else(again, Ok).and_then(|mut filter| {
            filter.apply(&schema, &row, &mut cells)?;
            Ok((!cells.is_empty(), cells.first().map(|cell| cell.timestamp)))
        });
        passes.map_err(refused)
    };
    Ok(Condition {
        reads,
        test: ConditionTest::Cells(Arc::new(Test {
            decide: test,
            given: given.clone(),
        })),
    })
}

/// Compares the newest value of a column.
fn by_value(memory: &Consumer, schema: &Arc<TableSchema>, given: &messages::Condition) -> Outcome<Condition> {
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
    let texts = memory.clone();
    let memory = memory.empty();
    let mut charge = |bytes| memory.try_grow(bytes).is_ok();
    let comparator = Comparator::decode(given.comparator.as_ref().ok_or_else(missing)?, &mut charge)?;
    let operator = given.compare_type.and_then(|number| CompareType::try_from(number).ok());
    let operator = operator.ok_or_else(missing)?;
    let reads = selection.pushdown(schema);
    let test = move |cells: &[Cell]| {
        // A qualifier that is too long for a filter is not pushed down.
        let found = cells.iter().find(|cell| selection.has_column(cell));
        let (stored, time) = (found.map(|cell| &cell.value), found.map(|cell| cell.timestamp));
        let text = match stored {
            Some(stored) => text_memory(&texts, &comparator, stored)?,
            None => None,
        };
        let holds = holds(operator, &comparator, stored);
        // Those of the comparator are held as long as it.
        let _held = (&memory, text);
        holds.map(|holds| (holds, time))
    };
    Ok(Condition {
        reads,
        test: ConditionTest::Cells(Arc::new(Test {
            decide: test,
            given: given.clone(),
        })),
    })
}

/// Memory for the text that a pattern makes of a value, if it makes any.
fn text_memory(memory: &Consumer, comparator: &Comparator, stored: &[u8]) -> ServiceResult<Option<Reservation>> {
    let bytes = comparator.copied_bytes(stored);
    if bytes == 0 {
        return Ok(None);
    }
    if bytes > memory.limit() {
        return Err(ServiceError::invalid("the value is too large for a pattern"));
    }
    let text = memory.empty();
    let grown = text.try_grow(bytes);
    grown.map_err(|_| ServiceError::new(ErrorKind::Busy, "no memory to decode a value"))?;
    Ok(Some(text))
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

#[cfg(test)]
mod tests;
