//! Serves `Mutate`: one change of one row, with or without a condition.

use crate::call::{Before, Call, Reply};
use crate::cells::{ResultRow, RowsBlock};
use crate::condition::condition;
use crate::failure::{Failure, Outcome};
use crate::front_end::Shared;
use crate::get::region_and_schema;
use crate::meta_table;
use crate::mutations::{Converter, RowChange};
use crate::pace::Pace;
use crate::regions;
use crate::selection::FamilySearch;
use crate::times;
use bytes::Bytes;
use std::sync::Arc;
use stele_client::{Condition, MutateRows, RowOperation, RowOutcome, Step};
use stele_types::{Durability, RequestToken, RowMutation, RowWrites, ServerTime, TableSchema, Timestamp};
use stele_wire::exception;
use stele_wire::messages::{MutateRequest, MutateResponse, MutationType};

/// Whether the change is a put or delete that reads nothing: then it need not latch its row.
pub(crate) fn is_plain(change: &RowChange) -> bool {
    let is_write = |step: &Step| matches!(step, Step::Mutate(_) | Step::MutateNow(_));
    !is_rule(change.kind) && change.steps.iter().all(is_write)
}

/// Whether a mutation of this type has a result.
fn is_rule(kind: MutationType) -> bool {
    matches!(kind, MutationType::Increment | MutationType::Append)
}

/// Plain changes that are written together.
#[derive(Default)]
pub(crate) struct PlainRows {
    rows: Vec<RowMutation>,
    /// The time of this server in mutations that were given none, and how many have it.
    now: Option<Timestamp>,
    at_now: usize,
    /// Changes have different times of this server.
    differs: bool,
}

impl PlainRows {
    /// The time of this server in the changes so far.
    pub(crate) fn now(&self) -> Option<Timestamp> {
        self.now
    }

    /// Adds a plain change.
    pub(crate) fn add(&mut self, change: RowChange) {
        let mut mutations = Vec::with_capacity(change.steps.len());
        for step in change.steps {
            match step {
                Step::Mutate(mutation) => mutations.push(mutation),
                Step::MutateNow(mutation) => {
                    let now = *self.now.get_or_insert(mutation.time());
                    self.differs |= now != mutation.time();
                    self.at_now += 1;
                    mutations.push(mutation);
                }
                _ => debug_assert!(false, "a plain change reads nothing"),
            }
        }
        self.rows.push(RowMutation {
            row: change.row,
            mutations,
        });
    }
}

/// With the note which time is this server's, unless a client has given the same one.
impl From<PlainRows> for RowWrites {
    fn from(plain: PlainRows) -> RowWrites {
        let all = || plain.rows.iter().flat_map(|row| &row.mutations);
        let is_clear = |now: &Timestamp| all().filter(|m| m.is_at(*now)).count() == plain.at_now;
        let at = plain.now.filter(|now| !plain.differs && is_clear(now));
        let server_time = at.map(|at| ServerTime { at, is_foreign: false });
        RowWrites::from(plain.rows).with_server_time(server_time)
    }
}

/// A converter whose time is now.
pub(crate) fn converter<'a>(
    shared: &Shared,
    call: &'a Call,
    schema: &'a TableSchema,
    nonce_group: Option<u64>,
) -> Converter<'a> {
    converter_at(times::now(schema, shared.env.wall_micros()), call, schema, nonce_group)
}

/// A converter with this time of the server.
pub(crate) fn converter_at<'a>(
    now: Timestamp,
    call: &'a Call,
    schema: &'a TableSchema,
    nonce_group: Option<u64>,
) -> Converter<'a> {
    Converter {
        schema,
        nonce_group,
        now,
        memory: Some(&call.memory),
    }
}

/// Applies steps to a row as one operation; once, if it has a token.
pub(crate) async fn operate(
    shared: &Shared,
    schema: &TableSchema,
    row: Bytes,
    condition: Option<Condition>,
    steps: Vec<Step>,
    durability: Option<Durability>,
    token: Option<RequestToken>,
) -> Outcome<RowOutcome> {
    let operation = RowOperation {
        table: schema.name.clone(),
        id: Some(schema.id),
        row,
        condition,
        steps,
        otherwise: Vec::new(),
        durability,
        token,
    };
    Ok(shared.service.row_operation(operation).await?)
}

/// Writes rows that nothing has to be read for. One result for each.
pub(crate) async fn write(
    shared: &Shared,
    schema: &TableSchema,
    rows: RowWrites,
    durability: Option<Durability>,
) -> Outcome<Vec<Outcome<()>>> {
    let request = MutateRows {
        table: schema.name.clone(),
        id: Some(schema.id),
        rows,
        durability,
    };
    let results = shared.service.mutate_rows(request).await?;
    Ok(results
        .into_iter()
        .map(|result| result.map_err(Failure::from))
        .collect())
}

/// Serves a call.
pub(crate) async fn mutate(shared: &Arc<Shared>, call: &Call) -> Outcome<Reply> {
    let request: MutateRequest = call.message("MutateRequest")?;
    if regions::is_meta(&request.region) {
        return Err(meta_table::read_only());
    }
    let (region, schema) = region_and_schema(shared, call, &request.region)?;
    let mut cells = call.cells()?;
    let row = request.mutation.row.clone().unwrap_or_default();
    let converter = converter(shared, call, &schema, request.nonce_group);
    let (mut search, mut pace) = (FamilySearch::default(), Pace::new(&shared.env));
    // Boxed: it would make the future of every call larger.
    let change = Box::pin(converter.convert(request.mutation, &mut cells, &mut search, &mut pace)).await;
    let condition = match &request.condition {
        Some(given) if given.row != row => return Err(other_row()),
        Some(given) => Some(condition(shared, &schema, given)?),
        None => None,
    };
    let change = match (change, condition.clone()) {
        // HBase checks the families only when the condition holds.
        (Err(failure), Some(condition)) if failure.class == exception::NO_SUCH_FAMILY => {
            region.check_row(&row, "mutation")?;
            let tested = operate(shared, &schema, row, Some(condition), Vec::new(), None, None).await?;
            return match tested.matched {
                true => Err(failure),
                false => call.reply(&processed(false)),
            };
        }
        (change, _) => change?,
    };
    region.check_row(&change.row, "mutation")?;
    region.check_cells(&schema, &change)?;
    let (kind, returns, row) = (change.kind, change.returns, change.row.clone());
    let has_result = is_rule(kind);
    if condition.is_none() && is_plain(&change) {
        let durability = change.durability;
        let mut rows = PlainRows::default();
        rows.add(change);
        let results = write(shared, &schema, rows.into(), durability).await?;
        results.into_iter().collect::<Outcome<Vec<()>>>()?;
        return call.reply(&processed(true));
    }
    let outcome = operate(
        shared,
        &schema,
        change.row,
        condition,
        change.steps,
        change.durability,
        change.token,
    )
    .await?;
    if !has_result || !outcome.matched {
        return call.reply(&processed(outcome.matched));
    }
    let mut written = written(&schema, row, outcome);
    if !returns {
        written.cells.clear();
    }
    let response = MutateResponse {
        result: Some(call.client.cells.result(&schema, &written)),
        processed: Some(true),
    };
    let rows = [written];
    let cells = RowsBlock {
        schema: &schema,
        rows: &rows,
    };
    call.reply_after(&response, &cells, Before::Changes)
}

/// The refusal of a condition on another row than that of its mutations.
pub(crate) fn other_row() -> Failure {
    Failure::do_not_retry("the condition is about another row than its mutations")
}

fn processed(processed: bool) -> MutateResponse {
    MutateResponse {
        result: None,
        processed: Some(processed),
    }
}

/// The cells that an operation wrote, in HBase's order.
pub(crate) fn written(schema: &TableSchema, row: Bytes, outcome: RowOutcome) -> ResultRow {
    let mut cells = outcome.written;
    crate::cells::sort(schema, &mut cells, false);
    ResultRow { row, cells }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_types::{FamilyId, Mutation};

    fn put(timestamp: i64) -> Mutation {
        Mutation::Put {
            family: FamilyId(1),
            qualifier: Bytes::from_static(b"q"),
            timestamp: Timestamp(timestamp),
            value: Bytes::new(),
        }
    }

    fn time_of(changes: &[&[Step]]) -> Option<i64> {
        let mut rows = PlainRows::default();
        for steps in changes {
            rows.add(RowChange {
                row: Bytes::from_static(b"r"),
                kind: MutationType::Put,
                steps: steps.to_vec(),
                durability: None,
                token: None,
                returns: false,
            });
        }
        RowWrites::from(rows).server_time().map(|time| time.at.0)
    }

    #[test]
    fn the_time_of_the_server_is_noted_unless_a_client_has_given_it() {
        let (now, given) = (|time| Step::MutateNow(put(time)), |time| Step::Mutate(put(time)));
        assert_eq!(time_of(&[&[given(5)]]), None);
        assert_eq!(time_of(&[&[now(7), given(5)], &[now(7)]]), Some(7));
        assert_eq!(time_of(&[&[given(7)], &[now(7)]]), None, "a client has given the same");
        assert_eq!(time_of(&[&[now(7)], &[now(8)]]), None);
    }
}
