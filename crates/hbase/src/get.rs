//! Reads of single rows: Get, alone and in batches.

use crate::call::{Call, Reply};
use crate::cells::{ResultRow, RowsBlock};
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::filtering::RowFilter;
use crate::meta_rows;
use crate::meta_table::SCHEMA;
use crate::region_cache::Opened;
use crate::regions;
use crate::row_memory::RowMemory;
use crate::selection::{self, Selection, Wanted};
use bytes::Bytes;
use std::sync::Arc;
use stele_client::ReadRows;
use stele_filter::Filter;
use stele_types::{Cell, RowRange, RowSet, TableSchema};
use stele_wire::cell::ROW_BYTES_MAX;
use stele_wire::exception;
use stele_wire::messages::{Get, GetRequest, GetResponse, RegionSpecifier, RowResult};

/// Reservation for a row that must be read from storage.
const ROW_BYTES: usize = 1 << 20;

/// A Get, checked.
pub(crate) struct Lookup {
    pub schema: Arc<TableSchema>,
    row: Bytes,
    selection: Selection,
    filter: Option<RowFilter>,
    existence_only: bool,
}

/// The result of a Get.
pub(crate) struct Found {
    pub row: ResultRow,
    /// Of an existence check, whose row has no cells here.
    exists: Option<bool>,
}

impl Lookup {
    /// Checks a Get against its table.
    pub fn new(shared: &Context, schema: Arc<TableSchema>, get: &Get) -> Outcome<Self> {
        if get.closest_row_before() {
            let message = "Is this a pre HBase-1.0.0 or asynchbase client? Client is invoking getClosestRowBefore removed in 2.0.0";
            return Err(Failure::new(exception::UNKNOWN_PROTOCOL, message));
        }
        if get.row.is_empty() || get.row.len() > ROW_BYTES_MAX {
            return Err(Failure::do_not_retry(format!("a row key of {} bytes", get.row.len())));
        }
        let mut selection = Selection::new(
            &schema,
            &Wanted {
                columns: &get.column,
                times: get.time_range.as_ref(),
                family_times: &get.cf_time_range,
                versions: selection::versions(get.max_versions)?,
                store_limit: get.store_limit,
                store_offset: get.store_offset.unwrap_or(0),
                raw: false,
            },
        )?;
        selection.is_filtered = get.filter.is_some();
        let filter = match &get.filter {
            Some(filter) => {
                let on_demand = selection::on_demand(get.load_column_families_on_demand);
                let shape = selection.shape(&schema, false, on_demand);
                Some(RowFilter::decode(filter, &schema, &shape, shared)?)
            }
            None => None,
        };
        Ok(Lookup {
            schema,
            row: get.row.clone(),
            selection,
            filter,
            existence_only: get.existence_only(),
        })
    }

    fn read(&self) -> ReadRows {
        let mut read = ReadRows::new(self.schema.name.clone(), RowSet::new(vec![RowRange::single(&self.row)]));
        read.id = Some(self.schema.id);
        read.filter = self.selection.pushdown(&self.schema);
        if self.existence_only && self.selection.is_pushed_down() {
            let first = vec![Filter::CellsPerRow(1), Filter::StripValue];
            read.filter = Some(Arc::new(match read.filter.take() {
                Some(filter) => Filter::Chain([vec![Filter::clone(&filter)], first].concat()),
                None => Filter::Chain(first),
            }));
        }
        read
    }

    /// The result, if the row is in memory.
    pub fn try_now(&mut self, shared: &Context) -> Outcome<Option<Found>> {
        let batch = shared.service.try_read_row(&self.read())?;
        batch.map(|batch| self.found(batch.into_cells())).transpose()
    }

    /// The result, from wherever the row is.
    pub async fn wait(&mut self, shared: &Context, memory: &mut RowMemory) -> Outcome<Found> {
        let mut read = self.read();
        read.waits = true;
        let mut rows = shared.service.read_rows(read).await?;
        let mut cells: Vec<Cell> = Vec::new();
        while let Some(batch) = rows.next_within(memory).await? {
            cells.extend(batch.into_cells());
        }
        self.found(cells)
    }

    /// The result, if the row is one of `hbase:meta`.
    pub async fn in_meta(&mut self, shared: &Context) -> Outcome<Found> {
        self.selection = std::mem::take(&mut self.selection).without_pushdown();
        let row = meta_rows::row(shared, &self.row).await?;
        self.found(row.map(|row| row.cells).unwrap_or_default())
    }

    /// Units of work of its filter ([`crate::pace::Pace`]), also where that has failed.
    pub fn units(&self) -> usize {
        self.filter.as_ref().map_or(0, RowFilter::spent)
    }

    fn found(&mut self, mut cells: Vec<Cell>) -> Outcome<Found> {
        self.selection.apply(&self.schema, &mut cells);
        if let Some(filter) = &mut self.filter {
            filter.apply(&self.schema, &self.row, &mut cells)?;
        }
        let exists = self.existence_only.then_some(!cells.is_empty());
        if self.existence_only {
            cells.clear();
        }
        Ok(Found {
            row: ResultRow {
                row: self.row.clone(),
                cells,
            },
            exists,
        })
    }
}

impl Found {
    /// The result's message. It takes the cells if they go there.
    pub fn result(&mut self, call: &Call, schema: &TableSchema) -> RowResult {
        if self.exists.is_some() {
            return RowResult {
                associated_cell_count: Some(0),
                exists: self.exists,
                ..RowResult::default()
            };
        }
        RowResult {
            stale: Some(false),
            ..call.client.cells.take_result(schema, &mut self.row)
        }
    }
}

/// The result of a Get of `hbase:meta`.
async fn of_meta(shared: &Context, get: &Get) -> Outcome<Found> {
    Lookup::new(shared, Arc::clone(&SCHEMA), get)?.in_meta(shared).await
}

/// The region of a request, and the schema of its table.
pub(crate) fn region_and_schema(shared: &Context, call: &Call, specifier: &RegionSpecifier) -> Outcome<Opened> {
    call.regions.open(shared, specifier)
}

/// A Get that was tried without waiting.
pub(crate) enum Tried {
    Found(Reply),
    /// The row is not in memory.
    Waits(Box<Lookup>),
    OfMeta(Get),
}

/// Serves `Get` as far as that is possible without waiting.
pub(crate) fn try_now(shared: &Context, call: &Call) -> Outcome<Tried> {
    let request: GetRequest = call.message("GetRequest")?;
    if regions::is_meta(&request.region) {
        return Ok(Tried::OfMeta(request.get));
    }
    let (region, schema) = region_and_schema(shared, call, &request.region)?;
    region.check_row(&request.get.row, "get")?;
    let mut lookup = Lookup::new(shared, schema, &request.get)?;
    Ok(match lookup.try_now(shared)? {
        Some(found) => Tried::Found(reply(call, &lookup.schema, found)?),
        None => Tried::Waits(Box::new(lookup)),
    })
}

/// Serves the rest of a Get.
pub(crate) async fn finish(shared: &Context, call: &Call, tried: Tried) -> Outcome<Reply> {
    let mut lookup = match tried {
        Tried::Found(reply) => return Ok(reply),
        Tried::OfMeta(get) => return reply(call, &SCHEMA, of_meta(shared, &get).await?),
        Tried::Waits(lookup) => lookup,
    };
    let mut memory = RowMemory::new(&shared.responses, &shared.env);
    memory.reserve(ROW_BYTES).await?;
    let found = lookup.wait(shared, &mut memory).await?;
    let mut reply = reply(call, &lookup.schema, found)?;
    reply.memory = memory.into_reserved();
    Ok(reply)
}

/// The response of a Get.
pub(crate) fn reply(call: &Call, schema: &TableSchema, mut found: Found) -> Outcome<Reply> {
    let response = GetResponse {
        result: Some(found.result(call, schema)),
    };
    let rows = std::slice::from_ref(&found.row);
    call.reply_with(&response, &RowsBlock { schema, rows })
}
