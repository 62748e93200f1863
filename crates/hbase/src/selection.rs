//! The cells that a Get or Scan selects.
//!
//! As much as possible is pushed down as a filter of the service interface ([`Selection::pushdown`]): columns, times,
//! versions. The rest is done on each row that comes back ([`Selection::apply`]), in the order in which HBase does it:
//! times of single families, the HBase filter, versions, offset and limit per family.

mod families;

use crate::cells;
use crate::failure::{Failure, Outcome};
use crate::filters::{FamilyVersions, ScanShape};
use crate::names;
use bytes::Bytes;
pub(crate) use families::FamilySearch;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use stele_filter::Filter;
use stele_types::{Cell, CellKind, DeleteRule, FamilyId, GcRule, KeepDeleted, TableSchema, Timestamp, limits};
use stele_wire::exception;
use stele_wire::messages::{Column, FamilyTimeRange, TimeRange};

/// Columns that are pushed down one by one; of more, only a list of their families is.
const COLUMNS_PUSHED_MAX: usize = 64;

/// Bytes of a filter of such columns: half of a filter's limit. Each has its family, and its qualifier twice.
const COLUMNS_PUSHED_BYTES_MAX: usize = 128 << 10;

/// A request's description of the cells of a row.
pub(crate) struct Wanted<'a> {
    pub columns: &'a [Column],
    pub times: Option<&'a TimeRange>,
    pub family_times: &'a [FamilyTimeRange],
    /// Versions of each column; all when absent.
    pub versions: Option<u32>,
    pub store_limit: Option<u32>,
    pub store_offset: u32,
    pub raw: bool,
}

impl Wanted<'_> {
    /// The newest version of every column.
    pub fn whole_row() -> Self {
        Wanted {
            columns: &[],
            times: None,
            family_times: &[],
            versions: Some(1),
            store_limit: None,
            store_offset: 0,
            raw: false,
        }
    }
}

/// Times from the first inclusive to the second exclusive; without a second one there is no end.
type Times = (i64, Option<i64>);

/// Times without a bound.
const ALL_TIMES: Times = (i64::MIN, None);

/// Selects cells of rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    /// Families, each with its qualifiers; all qualifiers when there are none. All families when absent.
    columns: Option<BTreeMap<FamilyId, BTreeSet<Bytes>>>,
    times: Option<Times>,
    family_times: BTreeMap<FamilyId, Times>,
    /// Versions of each column; 0 for all.
    versions: u32,
    store_limit: Option<u32>,
    store_offset: u32,
    pub raw: bool,
    /// There is an HBase filter, which must see cells before versions are counted.
    pub is_filtered: bool,
    /// Rows come from nothing that filters them.
    is_all_here: bool,
}

/// The family of a request that names few.
pub(crate) fn family(schema: &TableSchema, name: &[u8]) -> Outcome<FamilyId> {
    FamilySearch::default().find(schema, name, None)
}

fn no_family(schema: &TableSchema, name: &[u8]) -> Failure {
    let message = format!(
        "Column family {} does not exist in table {}",
        name.escape_ascii(),
        names::to_text(&schema.name)
    );
    Failure::new(exception::NO_SUCH_FAMILY, message)
}

/// The versions that a message asks for. Clients send a signed number; HBase refuses those of a Get in these words.
pub(crate) fn versions(given: Option<u32>) -> Outcome<Option<u32>> {
    let versions = given.unwrap_or(1);
    match (1..=i32::MAX as u32).contains(&versions) {
        true => Ok(Some(versions)),
        false => Err(Failure::do_not_retry("versions must be positive")),
    }
}

/// Whether a Get or Scan reads families that its filter does not need only for rows that pass: HBase's servers do it by default. A
/// row without a cell in the other families is not there for such a filter.
pub(crate) fn on_demand(given: Option<bool>) -> bool {
    given.unwrap_or(true)
}

/// Times of a message in the table's unit; `None` for all.
pub(crate) fn times(schema: &TableSchema, range: &TimeRange) -> Option<Times> {
    let from = range.from.map_or(0, |from| from as i64);
    let to = range.to.map(|to| to as i64).filter(|to| *to != i64::MAX);
    let bound = |time| crate::times::bound(schema, time);
    (from > 0 || to.is_some()).then(|| (bound(from), to.map(bound)))
}

fn is_within(times: Times, cell: &Cell) -> bool {
    cell.timestamp.0 >= times.0 && times.1.is_none_or(|end| cell.timestamp.0 < end)
}

impl Selection {
    /// Checks a request.
    pub fn new(schema: &TableSchema, wanted: &Wanted<'_>) -> Outcome<Self> {
        let mut columns: BTreeMap<FamilyId, BTreeSet<Bytes>> = BTreeMap::new();
        let mut whole = BTreeSet::new();
        let mut search = FamilySearch::default();
        for column in wanted.columns {
            let id = search.find(schema, &column.family, None)?;
            if column.qualifier.is_empty() {
                whole.insert(id);
            }
            // Copies: a filter of them may outlive the request in the row cache, and would keep the buffer of the connection.
            let qualifiers = column.qualifier.iter().map(|name| Bytes::copy_from_slice(name));
            columns.entry(id).or_default().extend(qualifiers);
        }
        // Families come first, as in HBase.
        if wanted.raw && wanted.columns.iter().any(|column| !column.qualifier.is_empty()) {
            return Err(Failure::do_not_retry("Cannot specify any column for a raw scan"));
        }
        for id in whole {
            columns.insert(id, BTreeSet::new());
        }
        let mut family_times = BTreeMap::new();
        for of in wanted.family_times {
            // It counts instead of the general range, also if it is of all times. A family that does not exist has no cells.
            if let Ok(family) = search.find(schema, &of.column_family, None) {
                family_times.insert(family, times(schema, &of.time_range).unwrap_or(ALL_TIMES));
            }
        }
        Ok(Selection {
            columns: (!columns.is_empty()).then_some(columns),
            times: wanted.times.and_then(|range| times(schema, range)),
            family_times,
            versions: wanted.versions.filter(|n| *n < i32::MAX as u32).unwrap_or(0),
            // HBase checks the limit after the first cell.
            store_limit: wanted.store_limit.filter(|n| *n < i32::MAX as u32).map(|n| n.max(1)),
            store_offset: wanted.store_offset,
            raw: wanted.raw,
            is_filtered: false,
            is_all_here: false,
        })
    }

    /// The same for rows that were not read with [`Selection::pushdown`].
    pub fn without_pushdown(self) -> Self {
        Selection {
            is_all_here: true,
            ..self
        }
    }

    /// Whether versions are counted after the cells have been read.
    fn counts_versions_late(&self) -> bool {
        self.versions > 0 && (self.is_filtered || self.raw || !self.family_times.is_empty())
    }

    /// The part of the selection that is pushed down. `None` passes everything.
    pub fn pushdown(&self, schema: &TableSchema) -> Option<Arc<Filter>> {
        let mut chain = Vec::new();
        chain.extend(self.column_filter(schema));
        if schema.keeps_deleted() {
            chain.extend(self.families_before(schema));
        }
        // Times of single families replace those of the read.
        if let (Some((start, end)), true) = (self.times, self.family_times.is_empty()) {
            chain.push(Filter::TimestampRange { start, end });
        }
        if self.versions > 0 && !self.counts_versions_late() && !keeps_at_most(schema, self.versions) {
            chain.push(Filter::CellsPerColumn(i32::try_from(self.versions).unwrap_or(i32::MAX)));
        }
        match chain.len() {
            0 => None,
            1 => chain.pop().map(Arc::new),
            _ => Some(Arc::new(Filter::Chain(chain))),
        }
    }

    /// Deletes after the end of a time range do not act in families that keep deleted cells. Only those that are read are listed:
    /// a table may have thousands.
    fn families_before(&self, schema: &TableSchema) -> Option<Filter> {
        if self.times.is_none() && self.family_times.is_empty() {
            return None;
        }
        let keeping = schema
            .families
            .iter()
            .filter(|(_, family)| family.deletes.keep != KeepDeleted::No);
        let read = keeping.filter(|(id, _)| self.has_family(**id));
        let ends = read.filter_map(|(id, _)| {
            let times = self.family_times.get(id).copied().or(self.times)?;
            Some((*id, Timestamp(times.1?)))
        });
        let ends: Vec<(FamilyId, Timestamp)> = ends.collect();
        (!ends.is_empty() && !self.raw).then_some(Filter::FamiliesBefore(ends))
    }

    fn column_filter(&self, schema: &TableSchema) -> Option<Filter> {
        let columns = self.columns.as_ref()?;
        // In a raw read, tombstones of whole families belong to the result.
        let by_qualifier = self.pushes_columns() && !self.raw;
        if !by_qualifier && columns.len() == schema.families.len() {
            return None;
        }
        if !by_qualifier && columns.len() > 1 {
            return Some(Filter::Families(columns.keys().copied().collect()));
        }
        let range = |family: &str, start, end| Filter::ColumnRange {
            family: family.to_owned(),
            start,
            end,
        };
        let mut parts = Vec::new();
        for (id, qualifiers) in columns {
            let family = &schema.families.get(id)?.name;
            if qualifiers.is_empty() || !by_qualifier {
                parts.push(range(family, Bound::Unbounded, Bound::Unbounded));
            } else {
                let exactly = |q: &Bytes| range(family, Bound::Included(q.clone()), Bound::Included(q.clone()));
                parts.extend(qualifiers.iter().map(exactly));
            }
        }
        match parts.len() {
            1 => parts.pop(),
            _ => Some(Filter::Interleave(parts)),
        }
    }

    /// Whether [`Selection::apply`] has nothing to do but sort.
    pub fn is_pushed_down(&self) -> bool {
        self.selects_below() && !self.is_filtered
    }

    /// Whether [`Selection::pushdown`] leaves only cells that [`Selection::apply`] keeps for a filter, but for their number.
    pub fn selects_below(&self) -> bool {
        !self.raw
            && self.family_times.is_empty()
            && self.store_limit.is_none()
            && self.store_offset == 0
            && !self.is_all_here
            && self.pushes_columns()
    }

    /// Whether columns are few and short enough to push them down, and not only their families.
    fn pushes_columns(&self) -> bool {
        let Some(columns) = &self.columns else {
            return true;
        };
        let bytes = |qualifier: &Bytes| limits::FAMILY_NAME_BYTES_MAX + 2 * qualifier.len();
        let count: usize = columns.values().map(|qualifiers| qualifiers.len().max(1)).sum();
        let bytes: usize = columns.values().flatten().map(bytes).sum();
        count <= COLUMNS_PUSHED_MAX && bytes <= COLUMNS_PUSHED_BYTES_MAX
    }

    /// The selected cells of a row that was read with [`Selection::pushdown`], in HBase's order. With an HBase filter,
    /// the cells for it: it counts versions and cells of families by itself.
    pub fn apply(&self, schema: &TableSchema, cells: &mut Vec<Cell>) {
        if self.raw {
            self.expand_row_tombstones(schema, cells);
        }
        cells::sort(schema, cells, self.raw);
        if self.raw {
            cells.dedup_by(|later, first| is_same_entry(first, later));
        }
        if self.is_pushed_down() {
            return;
        }
        cells.retain(|cell| self.has_column(cell) && self.has_time(cell));
        if self.is_filtered {
            self.count_before_filter(schema, cells);
            return;
        }
        if self.counts_versions_late() {
            keep_newest(cells, self.versions, |_| true);
        }
        if self.store_limit.is_some() || self.store_offset > 0 {
            self.cut_families(cells);
        }
    }

    /// In families whose deletes act by sequence, HBase counts the versions of the scan before its filter sees them.
    fn count_before_filter(&self, schema: &TableSchema, cells: &mut Vec<Cell>) {
        let is_by_sequence = |family| schema.delete_rule_of(family) == DeleteRule::BySequence;
        if self.versions > 0 && !self.raw {
            keep_newest(cells, self.versions, is_by_sequence);
        }
    }

    /// HBase has no tombstones of whole rows: a delete of a row is one of each family. Only those are made that are returned: a
    /// table may have thousands of families, and a row as many deletes at one time.
    fn expand_row_tombstones(&self, schema: &TableSchema, cells: &mut Vec<Cell>) {
        let rows = cells.extract_if(.., |cell| cell.kind == CellKind::DeleteRow);
        // Of equal ones the first is the newest.
        let mut by_time: BTreeMap<Timestamp, Cell> = BTreeMap::new();
        for tombstone in rows {
            by_time.entry(tombstone.timestamp).or_insert(tombstone);
        }
        for tombstone in by_time.into_values() {
            let of_families = schema.families.keys().map(|family| Cell {
                family: *family,
                kind: CellKind::DeleteFamily,
                ..tombstone.clone()
            });
            cells.extend(of_families.filter(|cell| self.has_column(cell) && self.has_time(cell)));
        }
    }

    /// The properties of the read that an HBase filter must know.
    pub fn shape(&self, schema: &TableSchema, reversed: bool, load_on_demand: bool) -> ScanShape {
        let all = if self.versions == 0 { u32::MAX } else { self.versions };
        let mut families: Vec<FamilyVersions> = schema
            .families
            .iter()
            .filter(|(id, _)| self.has_family(**id))
            .map(|(_, family)| FamilyVersions {
                family: Bytes::copy_from_slice(family.name.as_bytes()),
                versions_max: match self.raw {
                    true => all,
                    false => all.min(versions_kept(family.gc_rule.as_ref())),
                },
            })
            .collect();
        families.sort_by(|a, b| a.family.cmp(&b.family));
        ScanShape {
            families,
            reversed,
            load_on_demand,
            store_limit: self.store_limit,
            store_offset: self.store_offset,
        }
    }

    /// Whether columns of a family are selected.
    fn has_family(&self, family: FamilyId) -> bool {
        self.columns
            .as_ref()
            .is_none_or(|columns| columns.contains_key(&family))
    }

    /// Whether a cell is of a selected column.
    pub fn has_column(&self, cell: &Cell) -> bool {
        let Some(columns) = &self.columns else {
            return true;
        };
        let of_family = columns.get(&cell.family);
        of_family.is_some_and(|q| q.is_empty() || !cell.kind.has_qualifier() || q.contains(&cell.qualifier))
    }

    fn has_time(&self, cell: &Cell) -> bool {
        let times = self.family_times.get(&cell.family).copied().or(self.times);
        times.is_none_or(|times| is_within(times, cell))
    }

    /// Offset and limit count the cells of each family.
    fn cut_families(&self, cells: &mut Vec<Cell>) {
        let (mut family, mut seen) = (None, 0u64);
        let offset = u64::from(self.store_offset);
        let end = self.store_limit.map_or(u64::MAX, |limit| offset + u64::from(limit));
        cells.retain(|cell| {
            if family.replace(cell.family) != Some(cell.family) {
                seen = 0;
            }
            seen += 1;
            seen > offset && seen <= end
        });
    }
}

/// Versions that a GC rule keeps at most.
fn versions_kept(rule: Option<&GcRule>) -> u32 {
    match rule {
        Some(GcRule::MaxVersions(n)) => *n,
        Some(GcRule::Union(rules)) => rules
            .iter()
            .map(|rule| versions_kept(Some(rule)))
            .min()
            .unwrap_or(u32::MAX),
        Some(GcRule::MaxAgeMicros(_) | GcRule::Intersection(_)) | None => u32::MAX,
    }
}

/// Whether the GC rule of every family keeps no more versions than these, so that counting them removes nothing.
fn keeps_at_most(schema: &TableSchema, versions: u32) -> bool {
    schema
        .families
        .values()
        .all(|family| versions_kept(family.gc_rule.as_ref()) <= versions)
}

/// Whether two entries differ at most in their values and in when they were written. Then only the newest is returned.
fn is_same_entry(a: &Cell, b: &Cell) -> bool {
    let key = |cell: &Cell| (cell.family, cell.timestamp, cells::cell_type(cell.kind) as u8);
    key(a) == key(b) && (!a.kind.has_qualifier() || a.qualifier == b.qualifier)
}

/// Keeps the newest versions of each column of these families, and the tombstones up to the last of them. Tombstones do not count. HBase goes on to
/// the next column at the first version too many, so older tombstones are left out, too.
fn keep_newest(cells: &mut Vec<Cell>, versions: u32, is_counted: impl Fn(FamilyId) -> bool) {
    let mut last: Option<(FamilyId, Bytes)> = None;
    let mut seen = 0;
    cells.retain(|cell| {
        if !is_counted(cell.family) {
            return true;
        }
        let qualifier = match cell.kind.has_qualifier() {
            true => cell.qualifier.clone(),
            false => Bytes::new(),
        };
        let column = Some((cell.family, qualifier));
        if column != last {
            last = column;
            seen = 0;
        }
        seen += u32::from(!cell.kind.is_delete());
        seen <= versions
    });
}

#[cfg(test)]
mod tests;
