//! `/api/rows`: rows of a table, a page at a time, and `/api/cell`: one cell.
//!
//! An answer is bounded in rows, cells and bytes, and a page that finds little ends after some seconds and says where to go on.
//! The memory of a batch is reserved from that of responses; large rows come in parts, of which the first cells are shown.

use super::{Answer, Browsed, Failure, Json, Parameters, table_name};
use crate::text;
use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;
use stele_client::{BatchReservation, ReadRows, ServiceError, ServiceResult};
use stele_env::Env;
use stele_filter::Filter;
use stele_memory::{Consumer, Part, Reservation};
use stele_types::{Cell, ErrorKind, RowRange, RowSet, TableSchema, TimeUnit};

/// Rows of a page.
const LIMIT_MAX: usize = 200;
const LIMIT: usize = 50;
/// Cells of a row that are shown.
const CELLS_MAX: usize = 200;
/// Versions of a column that are shown.
const VERSIONS_MAX: i32 = 100;
/// Bytes of a value in a page.
const SHOWN_BYTES_MAX: usize = 1_024;
/// Bytes of keys, names and values from which on a page is full.
const PAGE_BYTES: usize = 512 << 10;
/// Time after which a page ends, so that a filter that lets little through keeps nobody waiting.
const PAGE_TIME: Duration = Duration::from_secs(4);
/// A page without any row ends with an error after this time. It cannot say where to go on: the rows that it passed are hidden.
const FRUITLESS_TIME: Duration = Duration::from_secs(30);
/// Memory of a batch of rows; a larger row comes in parts.
const BATCH_BYTES: usize = 2 << 20;
/// How long a read waits for its memory.
const MEMORY_WAIT: Duration = Duration::from_secs(5);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    table: String,
    /// The beginning of the keys.
    prefix: Option<String>,
    /// Only rows behind this one.
    after: Option<String>,
    /// Patterns for the family, the column and the value.
    family: Option<String>,
    column: Option<String>,
    value: Option<String>,
    versions: Option<i32>,
    limit: Option<usize>,
}

#[derive(Serialize)]
pub(super) struct Page {
    /// The unit of times.
    unit: &'static str,
    /// The families, for new cells.
    families: Vec<String>,
    rows: Vec<Row>,
    /// Rows behind this one may follow.
    next: Option<String>,
}

#[derive(Serialize)]
struct Row {
    row: String,
    cells: Vec<Shown>,
    /// The row has more cells than are shown.
    has_more: bool,
    #[serde(skip)]
    key: Bytes,
}

#[derive(Serialize)]
struct Shown {
    family: String,
    column: String,
    /// As [`super::show_time`] writes it.
    time: String,
    /// Its beginning, in base64.
    value: String,
    /// Of the whole value.
    bytes: usize,
}

pub(super) async fn get(served: Browsed, Parameters(wanted): Parameters<Wanted>) -> Answer<Page> {
    let schema = served.parts.service.schema(&table_name(&wanted.table)?)?;
    let limit = wanted.limit.unwrap_or(LIMIT).clamp(1, LIMIT_MAX);
    let mut read = ReadRows::new(schema.name.clone(), RowSet::new(vec![range(&wanted)?]));
    read.id = Some(schema.id);
    read.filter = Some(Arc::new(filter(&wanted)));
    read.rows_limit = limit as u64;
    let _permit = served.shared().browsing.acquire().await;
    let (rows, next) = page(&served, &schema, read, limit).await?;
    let families = schema.families.values().map(|family| family.name.clone());
    Ok(Json(Page {
        unit: match schema.time_unit {
            TimeUnit::Micros => "micros",
            TimeUnit::Millis => "millis",
        },
        families: families.take(LIMIT_MAX).collect(),
        rows,
        next: next.map(|key| text::escape(&key)),
    }))
}

/// The rows of a page, and the row behind which the next one begins.
async fn page(
    served: &Browsed,
    schema: &TableSchema,
    read: ReadRows,
    limit: usize,
) -> Result<(Vec<Row>, Option<Bytes>), Failure> {
    let env = &served.shared().env;
    let end = env.now() + PAGE_TIME;
    let mut room = Room::new(served.parts.server.pool().of(Part::Responses), env.clone()).await?;
    let mut stream = served.parts.service.read_rows(read).await?;
    let (mut rows, mut bytes, mut is_open) = (Vec::<Row>::new(), 0, false);
    // The last row that a batch was known to end behind.
    let mut through = None;
    while let Some(batch) = stream.next_within(&mut room).await? {
        if is_open && !batch.continues && !batch.is_empty() {
            // The row begins again.
            rows.pop();
        }
        for (at, (key, cells)) in batch.rows().enumerate() {
            let continues = at == 0 && batch.continues && is_open;
            if !continues {
                if bytes >= PAGE_BYTES {
                    let last = rows.last().map(|row| row.key.clone());
                    return Ok((rows, last));
                }
                bytes += key.len();
                rows.push(Row::of(key));
            }
            if let Some(row) = rows.last_mut() {
                bytes += row.add(cells, schema);
            }
        }
        is_open = match batch.is_empty() {
            true => is_open,
            false => batch.unfinished,
        };
        through = batch.scanned_through.clone().or(through);
        if !is_open && env.now() >= end && rows.len() < limit {
            let place = next_from(through.as_ref(), &rows);
            if place.is_some() {
                return Ok((rows, place));
            }
            // The first row is not scanned yet, or the caller may not know how far the read has come.
            if env.now() >= end + FRUITLESS_TIME {
                let message = "no row was found for half a minute: give a longer prefix";
                return Err(ServiceError::new(ErrorKind::Busy, message).into());
            }
        }
    }
    let last = rows.last().map(|row| row.key.clone());
    let is_full = rows.len() >= limit;
    Ok((rows, last.filter(|_| is_full)))
}

/// The row behind which a page goes on that ends by time. A batch within a large row without cells names no row.
fn next_from(through: Option<&Bytes>, rows: &[Row]) -> Option<Bytes> {
    through.max(rows.last().map(|row| &row.key)).cloned()
}

impl Row {
    fn of(key: &[u8]) -> Row {
        Row {
            row: text::escape(key),
            cells: Vec::new(),
            has_more: false,
            key: Bytes::copy_from_slice(key),
        }
    }

    /// Adds cells as far as they are shown; returns their bytes.
    fn add(&mut self, cells: &[Cell], schema: &TableSchema) -> usize {
        let mut bytes = 0;
        for cell in cells {
            if self.cells.len() >= CELLS_MAX {
                self.has_more = true;
                break;
            }
            let shown = show(cell, schema, SHOWN_BYTES_MAX);
            bytes += shown.column.len() + shown.value.len() + 64;
            self.cells.push(shown);
        }
        bytes
    }
}

fn show(cell: &Cell, schema: &TableSchema, bytes_max: usize) -> Shown {
    let family = schema.families.get(&cell.family);
    Shown {
        family: family.map_or_else(String::new, |family| family.name.clone()),
        column: text::escape(&cell.qualifier),
        time: super::show_time(cell.timestamp),
        value: STANDARD.encode(cell.value.get(..bytes_max).unwrap_or(&cell.value)),
        bytes: cell.value.len(),
    }
}

fn key(text: Option<&String>) -> Result<Bytes, Failure> {
    let key = text.map(|text| text::unescape(text)).transpose();
    Ok(key.map_err(Failure::invalid)?.unwrap_or_default().into())
}

/// The rows of a page: those with the prefix, behind a row.
fn range(wanted: &Wanted) -> Result<RowRange, Failure> {
    let mut range = RowRange::prefix(&key(wanted.prefix.as_ref())?);
    if wanted.after.is_some() {
        let after = key(wanted.after.as_ref())?;
        let behind = RowRange::from_bounds(Bound::Excluded(after), Bound::Unbounded);
        range.start = range.start.max(behind.start);
    }
    Ok(range)
}

fn filter(wanted: &Wanted) -> Filter {
    let pattern = |text: &Option<String>| {
        let given = text.as_ref().filter(|text| !text.is_empty());
        given.map(|text| Bytes::from(text.clone()))
    };
    let versions = wanted.versions.unwrap_or(1).clamp(1, VERSIONS_MAX);
    let parts = [
        pattern(&wanted.family).map(Filter::FamilyRegex),
        pattern(&wanted.column).map(Filter::QualifierRegex),
        // Before the value: an older version is not shown instead of the newest.
        Some(Filter::CellsPerColumn(versions)),
        pattern(&wanted.value).map(Filter::ValueRegex),
        // One more, which says that there are more.
        i32::try_from(CELLS_MAX + 1).ok().map(Filter::CellsPerRow),
    ];
    Filter::Chain(parts.into_iter().flatten().collect())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WantedCell {
    table: String,
    row: String,
    family: String,
    /// Pages leave out parameters that are empty, as this one may be.
    #[serde(default)]
    column: String,
    time: i64,
}

#[derive(Serialize)]
pub(super) struct OneCell {
    /// In base64.
    value: String,
    bytes: usize,
}

/// The whole value of a cell, if a person can edit it.
pub(super) async fn cell(served: Browsed, Parameters(wanted): Parameters<WantedCell>) -> Answer<OneCell> {
    let schema = served.parts.service.schema(&table_name(&wanted.table)?)?;
    let (row, column) = (key(Some(&wanted.row))?, key(Some(&wanted.column))?);
    let mut read = ReadRows::new(schema.name.clone(), RowSet::new(vec![RowRange::single(&row)]));
    read.id = Some(schema.id);
    read.filter = Some(Arc::new(Filter::Chain(vec![
        Filter::ColumnRange {
            family: wanted.family.clone(),
            start: Bound::Included(column.clone()),
            end: Bound::Included(column),
        },
        Filter::TimestampRange {
            start: wanted.time,
            end: wanted.time.checked_add(1),
        },
        Filter::CellsPerRow(1),
    ])));
    let env = &served.shared().env;
    let _permit = served.shared().browsing.acquire().await;
    let mut room = Room::new(served.parts.server.pool().of(Part::Responses), env.clone()).await?;
    let mut stream = served.parts.service.read_rows(read).await?;
    while let Some(batch) = stream.next_within(&mut room).await? {
        let found = batch.rows().find_map(|(_, cells)| cells.first().cloned());
        if let Some(cell) = found {
            let most = super::edit::VALUE_BYTES_MAX;
            let shown = show(&cell, &schema, most);
            return Ok(Json(OneCell {
                value: shown.value,
                bytes: shown.bytes,
            }));
        }
    }
    Err(Failure::not_found("there is no such cell, or no longer"))
}

/// The memory of a batch.
struct Room {
    consumer: Consumer,
    env: Env,
    reserved: Option<Reservation>,
}

impl Room {
    async fn new(consumer: Consumer, env: Env) -> ServiceResult<Room> {
        let mut room = Room {
            consumer,
            env,
            reserved: None,
        };
        room.renew(BATCH_BYTES).await?;
        Ok(room)
    }
}

#[async_trait]
impl BatchReservation for Room {
    fn bytes(&self) -> usize {
        self.reserved.as_ref().map_or(0, Reservation::bytes)
    }

    fn takes_partial_rows(&self) -> bool {
        true
    }

    async fn renew(&mut self, bytes: usize) -> ServiceResult<()> {
        self.reserved = None;
        let reserved = self.consumer.reserve_large(&self.env, bytes, MEMORY_WAIT).await;
        let busy = |_| ServiceError::new(ErrorKind::Busy, "too many responses wait for memory: try again");
        self.reserved = Some(reserved.map_err(busy)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_types::FamilyId;

    fn wanted(prefix: &str, after: Option<&str>) -> Wanted {
        Wanted {
            table: "n/t".to_owned(),
            prefix: Some(prefix.to_owned()),
            after: after.map(str::to_owned),
            family: Some("f".to_owned()),
            column: Some(String::new()),
            value: None,
            versions: Some(0),
            limit: None,
        }
    }

    /// Otherwise a page says that the server does not answer, and not that no row was found.
    #[test]
    fn pages_wait_for_the_end_of_a_fruitless_read() {
        let script = include_str!("../../web/api.js");
        let wait = script
            .split("ROWS_WAIT_MS = ")
            .nth(1)
            .and_then(|rest| rest.split(';').next());
        let wait = wait
            .and_then(|digits| digits.replace('_', "").parse().ok())
            .map(Duration::from_millis);
        assert!(wait.unwrap() > MEMORY_WAIT + PAGE_TIME + FRUITLESS_TIME);
        assert!(include_str!("../../web/rows.js").contains("get(\"rows\", wanted, ROWS_WAIT_MS)"));
    }

    #[test]
    fn a_page_begins_behind_the_last_one() {
        let of = |prefix, after| range(&wanted(prefix, after)).unwrap();
        let all = |start: &'static [u8], end: Option<&'static [u8]>| RowRange {
            start: Bytes::from_static(start),
            end: end.map(Bytes::from_static),
        };
        assert_eq!(of("", None), all(b"", None));
        assert_eq!(of("a", None), all(b"a", Some(b"b")));
        assert_eq!(of("a", Some("ab")), all(b"ab\0", Some(b"b")));
        assert_eq!(of("b", Some(r"a\xff")), all(b"b", Some(b"c")));
        assert!(range(&wanted(r"\q", None)).is_err());
    }

    #[test]
    fn a_page_that_ends_within_a_row_goes_on_behind_the_one_before() {
        let (a, c) = (Bytes::from_static(b"a"), Bytes::from_static(b"c"));
        assert_eq!(next_from(None, &[]), None, "the first row is not scanned");
        assert_eq!(next_from(Some(&a), &[]), Some(a.clone()));
        assert_eq!(next_from(Some(&a), &[Row::of(&c)]), Some(c.clone()));
        assert_eq!(next_from(Some(&c), &[Row::of(&a)]), Some(c));
        assert_eq!(next_from(None, &[Row::of(&a)]), Some(a));
    }

    #[test]
    fn only_given_patterns_filter() {
        let expected = Filter::Chain(vec![
            Filter::FamilyRegex("f".into()),
            Filter::CellsPerColumn(1),
            Filter::CellsPerRow(201),
        ]);
        assert_eq!(filter(&wanted("", None)), expected);
    }

    #[test]
    fn a_row_shows_its_first_cells_and_the_beginning_of_values() {
        let schema = crate::api::tests::schema();
        let cell = |n: usize| {
            let value = vec![b'v'; SHOWN_BYTES_MAX + n];
            Cell::put(
                FamilyId(1),
                Bytes::from(format!("q{n}")),
                stele_types::Timestamp(7),
                value.into(),
            )
        };
        let cells: Vec<Cell> = (0..CELLS_MAX + 1).map(cell).collect();
        let mut row = Row::of(b"r\x00");
        assert!(row.add(&cells, &schema) > CELLS_MAX * SHOWN_BYTES_MAX);
        assert!(row.has_more && row.cells.len() == CELLS_MAX && row.row == r"r\x00");
        let shown = &row.cells[5];
        assert_eq!(
            (shown.family.as_str(), shown.column.as_str(), shown.bytes),
            ("f", "q5", SHOWN_BYTES_MAX + 5)
        );
        assert_eq!(STANDARD.decode(&shown.value).unwrap().len(), SHOWN_BYTES_MAX);
    }
}
