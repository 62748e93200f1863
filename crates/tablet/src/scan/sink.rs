//! Turns resolved versions into the cells a read returns.

use super::output::{Filtering, Output, RowName};
use crate::resolve::{Outcome, Sink, Skip, StoredValue, Version};
use crate::values::ValueRef;
use bytes::{Bytes, BytesMut};
use std::sync::Arc;
use stele_filter::{ColumnCut, CompiledFilter, FilterError, QualifierRange, TimestampBounds};
use stele_types::key::{self, CellKind, KeyParts};
use stele_types::{Cell, FamilyId, GcRule, GcView, Labels, TableSchema, Timestamp, lifetime};

/// Qualifiers remembered for sharing: more columns than most rows have, and few enough to stay in the first-level cache.
const QUALIFIERS: usize = 64;
/// Bytes of qualifiers that are copied into one allocation; each that is remembered keeps all of it.
const COPIES_BYTES: usize = 1 << 10;

/// Adds the cells of one row after the other to a batch: visible, not expired, and not cut by the filter's pushdown; or
/// all that is stored.
pub(super) struct ReadSink {
    schema: Arc<TableSchema>,
    cut: Cut,
    now_micros: i64,
    /// The family of the cells that come now; outlives the row, because the next one mostly begins with the same.
    family: Family,
    qualifier: Bytes,
    qualifiers: Qualifiers,
    /// Visible versions of the column so far, for the rule.
    version_index: u64,
    /// Cells of the column so far, for the pushdown.
    taken: usize,
    /// A version of the column is hidden that the rule counts where nothing hides it.
    hides: bool,
    /// Cells of the row so far.
    cells: usize,
    /// Bytes of those cells.
    bytes: usize,
    /// Those whose values are in value files, of the row and since the batch began.
    references: (usize, usize),
    /// A version was met that expires by itself.
    meets_lifetimes: bool,
    /// Being read, or read last.
    pub(super) row: RowName,
    pub(super) output: Output,
}

/// The cells that the filter's pushdown leaves out.
struct Cut {
    /// Absent when every column matters.
    columns: Option<ColumnCut>,
    timestamps: TimestampBounds,
    versions: usize,
    /// Of the row, or of the rest of it behind the partial rows that have ended.
    cells: usize,
    /// Of a row.
    cells_of_row: usize,
}

/// The schema's and the pushdown's settings of a family.
struct Family {
    id: FamilyId,
    is_wanted: bool,
    /// The qualifiers that matter, if not all do.
    qualifiers: Option<QualifierRange>,
    rule: Option<GcRule>,
}

impl ReadSink {
    pub(super) fn new(schema: Arc<TableSchema>, filter: Option<&CompiledFilter>) -> Self {
        let pushdown = filter.map(CompiledFilter::pushdown);
        let cut = Cut {
            columns: pushdown.map(|p| &p.columns).filter(|c| !c.is_all()).cloned(),
            timestamps: pushdown.map_or(TimestampBounds::ALL, |p| p.timestamps),
            versions: pushdown.and_then(|p| p.versions).unwrap_or(usize::MAX),
            cells: pushdown.and_then(|p| p.cells).unwrap_or(usize::MAX),
            cells_of_row: pushdown.and_then(|p| p.cells).unwrap_or(usize::MAX),
        };
        ReadSink {
            schema,
            cut,
            now_micros: 0,
            // No cell has family 0.
            family: Family {
                id: FamilyId(0),
                is_wanted: false,
                qualifiers: None,
                rule: None,
            },
            qualifier: Bytes::new(),
            qualifiers: Qualifiers::default(),
            version_index: 0,
            taken: 0,
            hides: false,
            cells: 0,
            bytes: 0,
            references: (0, 0),
            meets_lifetimes: false,
            row: RowName::default(),
            output: Output::default(),
        }
    }

    pub(super) fn set_now(&mut self, now_micros: i64) {
        self.now_micros = now_micros;
    }

    /// The row that `row` has been made begins.
    #[inline]
    pub(super) fn begin_row(&mut self) {
        self.cells = 0;
        self.bytes = 0;
        self.references.0 = 0;
    }

    /// The row ends, of which there are cells. Returns its weight after filtering.
    #[inline]
    pub(super) fn end_row(&mut self, filter: Option<Filtering<'_>>) -> Result<usize, FilterError> {
        self.output.end_row(&self.row, self.cells, self.bytes, filter)
    }

    /// A partial row ends: later cells are counted from zero.
    pub(super) fn end_partial_row(&mut self) {
        self.cut.cells = self.cut.cells.saturating_sub(self.cells);
        (self.cells, self.bytes) = (0, 0);
    }

    /// A batch begins within the row, perhaps with a cell of this weight that was counted before the last partial row
    /// ended.
    pub(super) fn begin_partial_row(&mut self, weight: Option<usize>) {
        let cells = usize::from(weight.is_some());
        self.cut.cells = self.cut.cells.saturating_add(cells);
        (self.cells, self.bytes) = (cells, weight.unwrap_or(0));
        self.references.1 += self.references.0.min(1);
    }

    /// The row, of which partial rows have ended, has ended as well.
    pub(super) fn end_partial_rows(&mut self) {
        debug_assert!(
            self.cut.cells <= self.cut.cells_of_row.saturating_add(1),
            "pieces use up the row's cells"
        );
        self.cut.cells = self.cut.cells_of_row;
    }

    /// Whether a cell of the row has its value in a value file.
    #[inline]
    pub(super) fn row_refers(&self) -> bool {
        self.references.0 > 0
    }

    /// Whether a cell of the batch may have.
    #[inline]
    pub(super) fn batch_refers(&self) -> bool {
        self.references.1 > 0
    }

    /// The batch is taken.
    pub(super) fn batch_taken(&mut self) {
        self.references.1 = 0;
    }

    /// Cells of the row so far.
    #[inline]
    pub(super) fn cells(&self) -> usize {
        self.cells
    }

    /// Bytes of those cells.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a stored entry of any kind, unless its family is gone or the cell has expired.
    pub(super) fn push_raw(&mut self, key: &[u8], parts: &KeyParts, value: Bytes) {
        let qualifier = parts.qualifier(key);
        let column_level = !matches!(
            parts.kind,
            CellKind::DeleteRow | CellKind::DeleteFamily | CellKind::DeleteFamilyVersion
        );
        let is_cut = |columns: &ColumnCut| !columns.contains(parts.family, &qualifier);
        if column_level && self.cut.columns.as_ref().is_some_and(is_cut) {
            return;
        }
        if parts.family.0 != 0 && self.is_gone(parts, &value) {
            return;
        }
        let qualifier = self.qualifiers.share(&self.qualifier, &qualifier);
        self.qualifier = qualifier.clone();
        let (kind, value) = match (parts.kind, lifetime::split(&value)) {
            (CellKind::ExpiringPut, Some((_, content))) => (CellKind::Put, content),
            (kind, _) => (kind, value),
        };
        let cell = Cell {
            family: parts.family,
            kind,
            qualifier,
            timestamp: parts.timestamp,
            value,
            labels: Labels::none(),
        };
        self.note_kind(cell.kind);
        self.bytes += weight(&cell);
        self.cells += 1;
        self.output.cell(cell);
    }

    /// Whether the family of a stored entry is no more, or its cell has expired by age or by itself.
    fn is_gone(&mut self, parts: &KeyParts, value: &Bytes) -> bool {
        self.wants_family(parts.family);
        if !self.schema.families.contains_key(&parts.family) {
            return true;
        }
        if parts.kind.is_delete() {
            return false;
        }
        let (unit, now_micros) = (self.schema.time_unit, self.now_micros);
        // In the first place only the age decides.
        let view = GcView {
            version_index: 0,
            timestamp: parts.timestamp,
            unit,
            now_micros,
        };
        let is_too_old = self.family.rule.as_ref().is_some_and(|rule| rule.is_garbage(&view));
        let expires = parts.kind == CellKind::ExpiringPut;
        is_too_old || expires && lifetime::is_over(value, parts.timestamp, unit, now_micros)
    }

    /// Takes the first version of the row, in the column that the row before has ended in.
    #[inline]
    pub(super) fn take_in_same_column(&mut self, timestamp: Timestamp, value: impl StoredValue) -> Skip {
        self.version_index = 0;
        self.taken = 0;
        self.hides = false;
        self.take(timestamp, CellKind::Put, value)
    }

    /// Takes a visible version, unless it has expired or is cut off.
    #[inline]
    fn take(&mut self, timestamp: Timestamp, kind: CellKind, value: impl StoredValue) -> Skip {
        if let Some(rule) = &self.family.rule {
            let view = GcView {
                version_index: self.version_index,
                timestamp,
                unit: self.schema.time_unit,
                now_micros: self.now_micros,
            };
            if rule.is_garbage(&view) {
                // Rules only depend on age and position, and both grow from here on.
                return Skip::Column;
            }
            if self.hides {
                self.output.note_unstable();
            }
        }
        self.version_index += 1;
        if timestamp < self.cut.timestamps.start {
            return Skip::Column;
        }
        if !self.cut.timestamps.contains(timestamp) {
            return Skip::Nothing;
        }
        self.taken += 1;
        self.cells += 1;
        if kind == CellKind::Reference {
            self.bytes += self.take_reference(timestamp, value.into_bytes());
        } else {
            let family = self.family.id;
            self.bytes += self.output.put(family, &self.qualifier, timestamp, value);
        }
        if self.cells >= self.cut.cells {
            Skip::Row
        } else if self.taken >= self.cut.versions {
            Skip::Column
        } else {
            Skip::Nothing
        }
    }

    /// Takes a version of which there is a reference to the value. Returns its future weight.
    #[cold]
    fn take_reference(&mut self, timestamp: Timestamp, reference: Bytes) -> usize {
        let mut cell = Cell::put(self.family.id, self.qualifier.clone(), timestamp, reference);
        cell.kind = CellKind::Reference;
        self.note_kind(cell.kind);
        let weight = weight(&cell);
        self.output.cell(cell);
        weight
    }

    /// Takes a version that expires by itself, unless it has. One that has does not count as newer.
    #[cold]
    fn take_expiring(&mut self, timestamp: Timestamp, stored: &Bytes) -> Skip {
        self.meets_lifetimes = true;
        // Time alone changes the result, and the row cache knows the ages of rules only.
        self.output.note_unstable();
        if lifetime::is_over(stored, timestamp, self.schema.time_unit, self.now_micros) {
            return Skip::Nothing;
        }
        let value = lifetime::split(stored).map_or(Bytes::new(), |(_, value)| value);
        self.take(timestamp, CellKind::Put, || value)
    }

    /// Whether some version expires by itself, so that the result depends on the clock.
    #[inline]
    pub(super) fn meets_lifetimes(&self) -> bool {
        self.meets_lifetimes
    }

    fn note_kind(&mut self, kind: CellKind) {
        if kind == CellKind::Reference {
            self.references.0 += 1;
            self.references.1 += 1;
        }
    }

    fn find_family(&self, id: FamilyId) -> Family {
        let family = self.schema.families.get(&id);
        let qualifiers = match &self.cut.columns {
            None => Some(None),
            Some(columns) => columns.qualifiers(id).map(|range| Some(range.clone())),
        };
        Family {
            id,
            is_wanted: family.is_some() && qualifiers.is_some(),
            qualifiers: qualifiers.flatten(),
            rule: family.and_then(|f| f.gc_rule.clone()),
        }
    }
}

impl Sink for ReadSink {
    const WANTS_KEYS: bool = false;

    #[inline]
    fn wants_family(&mut self, family: FamilyId) -> bool {
        if family != self.family.id {
            self.family = self.find_family(family);
        }
        self.family.is_wanted
    }

    #[inline]
    fn begin_column(&mut self, key: &[u8], parts: &KeyParts) -> Skip {
        self.version_index = 0;
        self.taken = 0;
        self.hides = false;
        let qualifier = parts.qualifier(key);
        if self
            .family
            .qualifiers
            .as_ref()
            .is_some_and(|range| !range.contains(&qualifier))
        {
            return Skip::Column;
        }
        if !key::is_same(&qualifier, &self.qualifier) {
            self.qualifier = self.qualifiers.share(&self.qualifier, &qualifier);
        }
        Skip::Nothing
    }

    fn tombstone(&mut self, _: &[u8], _: &KeyParts, _: &Bytes) {}

    #[cold]
    fn hidden(&mut self, by_older: bool) {
        // A compaction that has the hidden version and not its tombstone counts it, and drops for it a version that now
        // shows below it.
        self.hides = self.family.rule.as_ref().is_some_and(GcRule::counts_versions);
        if by_older {
            self.output.note_unstable();
        }
    }

    #[inline]
    fn version(&mut self, version: Version<'_>) -> Skip {
        let (kind, value) = match version.outcome {
            Outcome::Deleted => return Skip::Nothing,
            Outcome::Reference(value) => (CellKind::Reference, value),
            Outcome::Expiring(stored) => return self.take_expiring(version.parts.timestamp, &stored),
            Outcome::Value(value) | Outcome::Operands(value) => (CellKind::Put, value),
        };
        self.take(version.parts.timestamp, kind, || value)
    }

    #[inline]
    fn settled(&mut self, _: &[u8], parts: &KeyParts, value: impl StoredValue) -> Skip {
        self.take(parts.timestamp, parts.kind, value)
    }
}

/// The weight of a cell when it has its value.
pub(super) fn weight(cell: &Cell) -> usize {
    match cell.kind {
        CellKind::Reference => cell.weight() + ValueRef::value_len_of(&cell.value),
        _ => cell.weight(),
    }
}

/// The qualifiers met last, so that the same columns in row after row share one copy. Empty until a second qualifier
/// comes: reads of one column need no table.
#[derive(Default)]
struct Qualifiers {
    /// By hash; a newer one replaces an older one.
    known: Vec<Bytes>,
    /// The buffer for the next copies: rows of very many columns would take an allocation for each cell.
    spare: BytesMut,
}

impl Qualifiers {
    /// `qualifier` as a slice of its own, or of the bytes that `last` or the table has.
    fn share(&mut self, last: &Bytes, qualifier: &[u8]) -> Bytes {
        if *last == qualifier {
            return last.clone();
        }
        if last.is_empty() && self.known.is_empty() {
            return Bytes::copy_from_slice(qualifier);
        }
        if self.known.is_empty() {
            self.known.resize(QUALIFIERS, Bytes::new());
            self.remember(last.clone());
        }
        match self.known.get(slot_of(qualifier)) {
            Some(known) if *known == qualifier => known.clone(),
            _ => {
                let copy = self.copy(qualifier);
                self.remember(copy.clone());
                copy
            }
        }
    }

    fn copy(&mut self, qualifier: &[u8]) -> Bytes {
        if qualifier.len() > COPIES_BYTES / 8 {
            return Bytes::copy_from_slice(qualifier);
        }
        if self.spare.capacity() < qualifier.len() {
            self.spare = BytesMut::with_capacity(COPIES_BYTES);
        }
        self.spare.extend_from_slice(qualifier);
        self.spare.split().freeze()
    }

    fn remember(&mut self, qualifier: Bytes) {
        if let Some(known) = self.known.get_mut(slot_of(&qualifier)) {
            *known = qualifier;
        }
    }
}

/// Names of columns differ mostly in their last bytes, and in their lengths.
fn slot_of(qualifier: &[u8]) -> usize {
    let tail = match qualifier.last_chunk() {
        Some(tail) => u64::from_le_bytes(*tail),
        None => qualifier.iter().fold(0, |word, &byte| word << 8 | u64::from(byte)),
    };
    let hash = (tail ^ qualifier.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // The uppermost bits, which all others decide about: the last bytes are in the upper ones of the factor.
    (hash >> (u64::BITS - QUALIFIERS.ilog2())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn very_many_columns_take_few_allocations() {
        let names: Vec<Vec<u8>> = (0..1000).map(|n| format!("column-{n}").into_bytes()).collect();
        let mut qualifiers = Qualifiers::default();
        let mut last = Bytes::new();
        let mut copies = Vec::new();
        for name in &names {
            last = qualifiers.share(&last, name);
            assert_eq!(last, name);
            copies.push(last.clone());
        }
        let behind = |pair: &[Bytes]| pair[0].as_ptr_range().end == pair[1].as_ptr();
        let alone = copies.windows(2).filter(|pair| !behind(pair)).count();
        assert!(alone < names.len() / 50, "{alone}");
        assert!(copies.iter().eq(&names));
        let long = vec![b'x'; COPIES_BYTES];
        assert_eq!(qualifiers.share(&last, &long), long);
    }

    #[test]
    fn repeated_columns_share_one_copy() {
        let names: Vec<Vec<u8>> = (0..40).map(|n| format!("column-{n}").into_bytes()).collect();
        let mut qualifiers = Qualifiers::default();
        let mut last = Bytes::new();
        let mut rounds: Vec<Vec<*const u8>> = Vec::new();
        for _ in 0..3 {
            let mut round = Vec::new();
            for name in &names {
                last = qualifiers.share(&last, name);
                assert_eq!(last, name);
                round.push(last.as_ptr());
            }
            rounds.push(round);
        }
        let shared = rounds[1].iter().zip(&rounds[2]).filter(|(a, b)| a == b).count();
        assert!(shared > names.len() / 3, "{shared} of {} shared", names.len());
    }
}
