//! Serves `Multi`: reads and changes of many rows.
//!
//! Actions come by region. Those of one region are independent, unless they are atomic or have a condition: then they
//! are one operation on one row. Every action has its own result; only a region that is not here fails as a whole.
//!
//! Invariant: the cells of a read are encoded, within reserved memory, before the next read begins. They may be slices of blocks, and
//! a batch of small rows would hold the blocks of all of them otherwise.

mod results;

use crate::call::{Before, Call, Reply};
use crate::cells::{CellPlace, ResultRow};
use crate::condition::condition;
use crate::failure::{Failure, Outcome};
use crate::front_end::Shared;
use crate::get::{Found, Lookup, region_and_schema};
use crate::meta_table;
use crate::mutate::{PlainRows, converter, converter_at, is_plain, operate, other_row, write, written};
use crate::mutations::{self, Converter, RowChange};
use crate::pace::{CELL_UNITS, Pace, ROW_UNITS};
use crate::region_cache::Opened;
use crate::regions::{self, Region};
use crate::row_memory::{BATCH_BYTES, RowMemory};
use crate::selection::FamilySearch;
use crate::times;
use bytes::Bytes;
use results::Results;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use stele_client::{BatchReservation, Step};
use stele_types::{Durability, FamilyId, TableSchema};
use stele_wire::cell::CellReader;
use stele_wire::exception;
use stele_wire::messages::{
    Action, Condition, MultiResponse, MutationType, PackedMultiRequest, PackedRegionAction, RegionActionResult,
    ResultOrException, RowResult,
};

/// Memory of a read.
const READ_BYTES: usize = BATCH_BYTES / 2;

/// Reads for which a batch keeps that memory while others wait for some.
const READS_KEPT: u32 = 256;

/// Actions of a call at most: a client that sends more must split its batch.
const ACTIONS_MAX: usize = 1_000_000;

/// Serves a call.
pub(crate) async fn multi(shared: &Arc<Shared>, call: &Call) -> Outcome<Reply> {
    let request: PackedMultiRequest = call.message("MultiRequest")?;
    let actions: usize = request.region_action.iter().map(|region| region.action.len()).sum();
    if actions > ACTIONS_MAX {
        return Err(Failure::do_not_retry(format!(
            "a batch of {actions} actions; at most {ACTIONS_MAX} are served"
        )));
    }
    let mut cells = call.cells()?;
    let mut results = Results::default();
    let mut response = MultiResponse::default();
    let (of_request, nonce_group) = (request.condition.is_some(), request.nonce_group);
    let mut pace = Pace::new(&shared.env);
    for actions in with_condition(request)? {
        let is_atomic = actions.atomic() || actions.condition.is_some();
        let has_space = if is_atomic { results.check_space() } else { Ok(()) };
        let result = match has_space.and_then(|()| open_region(shared, call, &actions)) {
            Err(failure) => {
                skip_cells(&actions, &mut cells, &mut pace).await?;
                Err(failure)
            }
            Ok((region, schema)) if is_atomic => {
                let converter = converter(shared, call, &schema, nonce_group);
                let changes = convert_all(&converter, &actions, &mut cells, &mut pace).await?;
                let done = atomic(shared, (&region, &schema), actions.condition.as_ref(), changes).await;
                done.map(|(result, bytes)| {
                    results.count_written(call, bytes);
                    result
                })
            }
            Ok((region, schema)) => {
                let mut part = Part {
                    shared,
                    call,
                    region,
                    schema,
                    nonce_group,
                    results: &mut results,
                    search: FamilySearch::default(),
                    units: 0,
                    memory: None,
                    reads: 0,
                };
                Ok(part.independent(actions, &mut cells, &mut pace).await?)
            }
        };
        if is_atomic && let Ok(result) = &result {
            // A client that sends the condition with the request reads its outcome here.
            response.processed = if of_request { result.processed } else { Some(true) };
        }
        response
            .region_action_result
            .push(result.unwrap_or_else(|failure| RegionActionResult {
                exception: Some(failure.in_batch()),
                ..RegionActionResult::default()
            }));
    }
    results.reply(call, &response)
}

/// The actions by region, with a condition of the request among those of the only region.
fn with_condition(request: PackedMultiRequest) -> Outcome<Vec<PackedRegionAction>> {
    let mut actions = request.region_action;
    if let Some(condition) = request.condition {
        let [only] = &mut actions[..] else {
            return Err(Failure::do_not_retry("a condition on the actions of several regions"));
        };
        only.condition.get_or_insert(condition);
    }
    Ok(actions)
}

fn open_region(shared: &Shared, call: &Call, actions: &PackedRegionAction) -> Outcome<Opened> {
    if regions::is_meta(&actions.region) {
        let is_read = actions
            .actions()
            .all(|action| action.is_ok_and(|action| action.get.is_some()));
        return match is_read && !actions.atomic() && actions.condition.is_none() {
            true => Ok((Arc::new(meta_table::region()), Arc::clone(&meta_table::SCHEMA))),
            false => Err(meta_table::read_only()),
        };
    }
    region_and_schema(shared, call, &actions.region)
}

/// Passes over the cells of actions that are not carried out.
async fn skip_cells(actions: &PackedRegionAction, cells: &mut CellReader, pace: &mut Pace<'_>) -> Outcome<()> {
    for action in actions.actions() {
        let count = action?.mutation.and_then(|mutation| mutation.associated_cell_count);
        for _ in 0..count.unwrap_or(0) {
            cells.pass_over()?;
            pace.spend(1).await;
        }
        pace.spend(2 * CELL_UNITS).await;
    }
    Ok(())
}

/// Converts the mutations of a region, all before one may fail, since their cells must leave the block. Fails where the place of later
/// cells is not known: at bytes that are no action.
async fn convert_all(
    converter: &Converter<'_>,
    actions: &PackedRegionAction,
    cells: &mut CellReader,
    pace: &mut Pace<'_>,
) -> Outcome<Vec<Outcome<RowChange>>> {
    let mut changes = Vec::with_capacity(actions.action.len());
    let mut search = FamilySearch::default();
    for action in actions.actions() {
        changes.push(match action?.mutation {
            Some(mutation) => converter.convert(mutation, cells, &mut search, pace).await,
            None => Err(Failure::do_not_retry("Atomic put and/or delete only, not a Get")),
        });
        pace.spend(2 * CELL_UNITS).await;
    }
    Ok(changes)
}

/// Carries out changes of one row as one operation. The result, and the bytes of the cells in it.
async fn atomic(
    shared: &Arc<Shared>,
    (region, schema): (&Region, &Arc<TableSchema>),
    given: Option<&Condition>,
    changes: Vec<Outcome<RowChange>>,
) -> Outcome<(RegionActionResult, usize)> {
    let count = changes.len();
    let (changes, no_family) = with_families(changes, given.is_some())?;
    let of_condition = given.map(|given| &given.row);
    let row = of_condition.or(changes.first().map(|change| &change.row)).cloned();
    let row = row
        .filter(|_| count > 0)
        .ok_or_else(|| Failure::do_not_retry("an atomic batch without mutations"))?;
    region.check_row(&row, "mutation")?;
    for change in &changes {
        region.check_cells(schema, change)?;
    }
    if changes.iter().any(|change| change.row != row) {
        return Err(match given {
            Some(_) => other_row(),
            None => Failure::do_not_retry("the mutations of an atomic batch are of several rows"),
        });
    }
    let condition = match given {
        Some(given) => Some(condition(shared, schema, given)?),
        None => None,
    };
    if let Some(failure) = no_family {
        let tested = operate(shared, schema, row, condition, Vec::new(), None, None).await?;
        return match tested.matched {
            true => Err(failure),
            false => Ok((atomic_result(false, count), 0)),
        };
    }
    let durability = strongest(&changes, schema);
    let returned = returned_columns(schema, &changes);
    // The client repeats the batch as a whole, with the same nonces.
    let token = changes.iter().find_map(|change| change.token.clone());
    let steps = mutations::atomic(schema, changes.into_iter().map(|change| change.steps));
    let outcome = operate(shared, schema, row.clone(), condition, steps, durability, token).await?;
    let mut by_column = HashMap::new();
    for cell in &outcome.written {
        by_column.entry((cell.family, &cell.qualifier)).or_insert(cell);
    }
    let of_column = |(family, qualifier): &(FamilyId, Bytes)| by_column.get(&(*family, qualifier)).copied().cloned();
    let written = ResultRow {
        cells: returned.iter().filter_map(of_column).collect(),
        row,
    };
    let mut result = atomic_result(outcome.matched, count);
    // The cells of all increments and appends are in the first result, and always in its message.
    if let Some(first) = result
        .result_or_exception
        .first_mut()
        .filter(|_| !written.cells.is_empty())
    {
        first.result = Some(CellPlace::Message.result(schema, &written));
    }
    Ok((result, written.encoded_len(schema)))
}

/// The changes whose families are there, and the failure of the first other one: HBase checks families only when the condition
/// holds. Fails by any other failure, and without a condition.
fn with_families(changes: Vec<Outcome<RowChange>>, has_condition: bool) -> Outcome<(Vec<RowChange>, Option<Failure>)> {
    let (mut found, mut no_family) = (Vec::with_capacity(changes.len()), None);
    for change in changes {
        match change {
            Ok(change) => found.push(change),
            Err(failure) if has_condition && failure.class == exception::NO_SUCH_FAMILY => {
                no_family.get_or_insert(failure);
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok((found, no_family))
}

/// The result of an atomic batch without cells. A client counts the results, also where the condition did not hold.
fn atomic_result(processed: bool, count: usize) -> RegionActionResult {
    let of_action = |index| ResultOrException {
        index: u32::try_from(index).ok(),
        result: None,
        exception: None,
    };
    RegionActionResult {
        processed: Some(processed),
        result_or_exception: (0..count).map(of_action).collect(),
        ..RegionActionResult::default()
    }
}

/// The durability that satisfies all changes. The server's default is not known here, so where it is one of several wishes, the
/// strongest durability is taken.
fn strongest(changes: &[RowChange], schema: &TableSchema) -> Option<Durability> {
    let wishes: BTreeSet<Option<Durability>> = changes.iter().map(|change| change.durability).collect();
    if wishes.len() == 1 {
        return wishes.first().copied().flatten();
    }
    let known = |wish: Option<Durability>| wish.or(schema.durability).unwrap_or(Durability::Sync);
    wishes.into_iter().map(known).max()
}

/// The columns of increments and appends whose results the client wants, in the order of the batch. Those of one change are sorted, as in
/// HBase: clients look a column up by binary search.
fn returned_columns(schema: &TableSchema, changes: &[RowChange]) -> Vec<(FamilyId, Bytes)> {
    let wanted = changes.iter().filter(|change| change.returns);
    let name = |family: FamilyId| schema.families.get(&family).map(|family| &family.name);
    let column = |step: &Step| match step {
        Step::Modify(rule) => Some((rule.family, rule.qualifier.clone())),
        _ => None,
    };
    let sorted = wanted.map(|change| {
        let mut columns: Vec<(FamilyId, Bytes)> = change.steps.iter().filter_map(column).collect();
        columns.sort_by(|a, b| (name(a.0), &a.1).cmp(&(name(b.0), &b.1)));
        columns
    });
    sorted.flatten().collect()
}

/// The independent actions of one region.
struct Part<'a> {
    shared: &'a Arc<Shared>,
    call: &'a Call,
    region: Arc<Region>,
    schema: Arc<TableSchema>,
    nonce_group: Option<u64>,
    results: &'a mut Results,
    search: FamilySearch,
    /// Work of the filters of the last action ([`Pace`]).
    units: usize,
    /// Memory of the last read, for the next one: thousands of short reads would otherwise queue for it one by one.
    memory: Option<RowMemory>,
    /// Reads with it.
    reads: u32,
}

impl Part<'_> {
    /// Bytes that are no action fail the whole call: the place of later cells in the block is not known.
    async fn independent(
        &mut self,
        actions: PackedRegionAction,
        cells: &mut CellReader,
        pace: &mut Pace<'_>,
    ) -> Outcome<RegionActionResult> {
        let mut result = RegionActionResult::default();
        let mut writes = Writes::default();
        for action in actions.actions() {
            let action = action?;
            let index = action.index;
            let outcome = self.one(action, cells, (&mut writes, &mut result), pace).await;
            pace.spend(ROW_UNITS.saturating_add(std::mem::take(&mut self.units)))
                .await;
            let outcome = match outcome {
                Ok(None) => continue,
                Ok(Some(row)) => Ok(row),
                Err(failure) => Err(failure),
            };
            result.result_or_exception.push(of_action(index, outcome));
        }
        self.write_all(writes, &mut result).await;
        Ok(result)
    }

    /// Carries out one action, or adds it to the writes: then it has no result yet. The writes before an increment or append are
    /// carried out first, so that it starts from them. Those between see the row as it was before them: where several delete the
    /// newest version of a column, that is the same version.
    async fn one(
        &mut self,
        action: Action,
        cells: &mut CellReader,
        (writes, result): (&mut Writes, &mut RegionActionResult),
        pace: &mut Pace<'_>,
    ) -> Outcome<Option<RowResult>> {
        if let Some(get) = &action.get {
            return self.get(get).await.map(Some);
        }
        let Some(mutation) = action.mutation else {
            return Err(Failure::not_served("a coprocessor call within a batch"));
        };
        // Changes that are written together have one time. The first one's is later than those of increments and appends before.
        let now = writes.plain.last().and_then(|group| group.rows.now());
        let now = now.unwrap_or_else(|| times::now(&self.schema, self.shared.env.wall_micros()));
        let converter = converter_at(now, self.call, &self.schema, self.nonce_group);
        let change = converter.convert(mutation, cells, &mut self.search, pace).await?;
        self.region.check_row(&change.row, "batch")?;
        self.region.check_cells(&self.schema, &change)?;
        if is_plain(&change) {
            writes.add(action.index, change);
            return Ok(None);
        }
        if !matches!(change.kind, MutationType::Increment | MutationType::Append) {
            writes.add_reading(action.index, change);
            return Ok(None);
        }
        self.results.check_space()?;
        self.write_all(std::mem::take(writes), result).await;
        self.memory = None;
        let (row, returns) = (change.row.clone(), change.returns);
        let outcome = operate(
            self.shared,
            &self.schema,
            change.row,
            None,
            change.steps,
            change.durability,
            change.token,
        )
        .await?;
        let mut written = written(&self.schema, row, outcome);
        if !returns {
            written.cells.clear();
        }
        self.results.add_written(self.call, &self.schema, written).map(Some)
    }

    async fn get(&mut self, get: &stele_wire::messages::Get) -> Outcome<RowResult> {
        self.region.check_row(&get.row, "get")?;
        self.results.check_space()?;
        let mut lookup = Lookup::new(self.shared, Arc::clone(&self.schema), get)?;
        let found = self.found(&mut lookup).await;
        self.units += lookup.units();
        let (found, memory) = found?;
        let added = self.results.add(self.call, &self.schema, found);
        // A large row needed more, which others may wait for.
        if let Some(memory) = memory.filter(|memory| memory.bytes() <= READ_BYTES) {
            self.memory = Some(memory);
        }
        added
    }

    /// The result of a read, and the memory of its cells.
    async fn found(&mut self, lookup: &mut Lookup) -> Outcome<(Found, Option<RowMemory>)> {
        if self.region.table == meta_table::SCHEMA.name {
            return Ok((lookup.in_meta(self.shared).await?, None));
        }
        if let Some(found) = lookup.try_now(self.shared)? {
            return Ok((found, None));
        }
        let keeps = self.reads < READS_KEPT || self.shared.responses.waiting() == 0;
        let mut memory = match self.memory.take().filter(|_| keeps) {
            Some(memory) => memory,
            None => self.new_memory().await?,
        };
        self.reads = self.reads.saturating_add(1);
        Ok((lookup.wait(self.shared, &mut memory).await?, Some(memory)))
    }

    async fn new_memory(&mut self) -> Outcome<RowMemory> {
        let mut memory = RowMemory::new(&self.shared.responses, &self.shared.env);
        if let Err(error) = memory.reserve(READ_BYTES).await {
            // The next read would wait as long.
            self.results.lacks_memory = true;
            return Err(error.into());
        }
        self.reads = 0;
        Ok(memory)
    }

    /// Carries out changes of one row that read it, as one operation.
    async fn write_reading(&mut self, row: Bytes, changes: Vec<RowChange>) -> Outcome<()> {
        let durability = strongest(&changes, &self.schema);
        let token = changes.iter().find_map(|change| change.token.clone());
        let steps = mutations::atomic(&self.schema, changes.into_iter().map(|change| change.steps));
        let written = operate(self.shared, &self.schema, row, None, steps, durability, token).await;
        written.map(drop)
    }

    /// Carries out the writes of the region, one request for each group. Those that read the row come first, so that they see it without
    /// the others: a put of the batch into the same column stays. HBase hides one without a time behind the delete of an absent
    /// version.
    ///
    /// Rows that are read cost an operation each, one after another. A batch that deletes newest versions in a thousand rows so waits for
    /// a thousand commits, where one without such deletes waits for one.
    async fn write_all(&mut self, writes: Writes, result: &mut RegionActionResult) {
        self.memory = None;
        for (row, (indexes, changes)) in writes.reading {
            self.results.before = Before::Changes;
            let outcome = self.write_reading(row, changes).await;
            for index in indexes {
                let outcome = outcome.clone().map(|()| RowResult::default());
                result.result_or_exception.push(of_action(index, outcome));
            }
        }
        for WriteGroup {
            durability,
            indexes,
            rows,
        } in writes.plain
        {
            self.results.before = Before::Changes;
            let outcomes = match write(self.shared, &self.schema, rows.into(), durability).await {
                Ok(outcomes) => outcomes,
                Err(failure) => vec![Err(failure); indexes.len()],
            };
            for (index, outcome) in indexes.into_iter().zip(outcomes) {
                let outcome = outcome.map(|()| RowResult::default());
                result.result_or_exception.push(of_action(index, outcome));
            }
        }
    }
}

/// Changes that are carried out together, with the indexes of their actions.
#[derive(Default)]
struct Writes {
    /// Those that read nothing: groups of consecutive ones of one durability.
    plain: Vec<WriteGroup>,
    /// Those that delete newest versions, by row.
    reading: BTreeMap<Bytes, (Vec<Option<u32>>, Vec<RowChange>)>,
}

struct WriteGroup {
    durability: Option<Durability>,
    /// Of the rows' actions.
    indexes: Vec<Option<u32>>,
    rows: PlainRows,
}

impl Writes {
    fn add(&mut self, index: Option<u32>, change: RowChange) {
        let durability = change.durability;
        if self.plain.last().is_none_or(|group| group.durability != durability) {
            self.plain.push(WriteGroup {
                durability,
                indexes: Vec::new(),
                rows: PlainRows::default(),
            });
        }
        if let Some(group) = self.plain.last_mut() {
            group.indexes.push(index);
            group.rows.add(change);
        }
    }

    fn add_reading(&mut self, index: Option<u32>, change: RowChange) {
        let (indexes, changes) = self.reading.entry(change.row.clone()).or_default();
        indexes.push(index);
        changes.push(change);
    }
}

fn of_action(index: Option<u32>, outcome: Outcome<RowResult>) -> ResultOrException {
    match outcome {
        Ok(result) => ResultOrException {
            index,
            result: Some(result),
            exception: None,
        },
        Err(failure) => ResultOrException {
            index,
            result: None,
            exception: Some(failure.in_batch()),
        },
    }
}

#[cfg(test)]
mod tests;
