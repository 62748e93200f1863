//! Entries of families that keep deleted cells (HBase's KEEP_DELETED_CELLS).
//!
//! Such a family does not go through the resolver, which hands over visible versions only. A version has two entries at
//! most: its newest put and its newest delete-version tombstone. Older entries of either kind are dropped.
//!
//! A visible version is garbage by its place among the visible ones, as for a reader. So a compaction never changes a read
//! of the present. A hidden version is garbage by its place among all. With a rule of `n` versions, a column thus keeps `n`
//! visible ones and at most `n` hidden ones.
//!
//! Invariants:
//! * A tombstone is dropped only where every version that it hides is dropped, and every later write that it would hide is
//!   garbage for readers.
//! * Under [`KeepDeleted::For`] a tombstone that is old enough drops the versions that it hides. So does one without an end:
//!   it was written when the family kept nothing.

use super::Keep;
use crate::resolve::{Tombstone, Tombstones, family_tombstone_start};
use bytes::Bytes;
use stele_types::key::{self, CellKind, KeyParts};
use stele_types::{DeleteRule, FamilyId, GcRule, KeepDeleted, SeqNo, TableSchema, Timestamp, lifetime};

/// The state of a row, as far as its families keep deleted cells.
pub struct Retained {
    /// Whether any family of the table does.
    any: bool,
    row_rule: DeleteRule,
    row: Level,
    /// The family of the current entries; 0 before the first.
    family: FamilyId,
    /// Its setting; `No` for a family that goes through the resolver.
    keep: KeepDeleted,
    rule: DeleteRule,
    gc_rule: Option<GcRule>,
    of_family: Level,
    of_column: Level,
    /// The key bytes between the row and the end of the qualifier; empty when there is no column.
    column: Vec<u8>,
    /// Versions of the column so far: all, and those that nothing hides.
    all: u64,
    visible: u64,
    version: Version,
}

/// Tombstones of a level.
#[derive(Default)]
struct Level {
    /// All of them.
    hiding: Tombstones,
    /// Those of which compactions drop the versions that they hide.
    dropping: Tombstones,
}

/// The version that is being gathered.
#[derive(Default)]
struct Version {
    /// `None` when there is none.
    timestamp: Option<Timestamp>,
    put: Option<Entry>,
    delete: Option<Entry>,
}

struct Entry {
    key: Vec<u8>,
    seq: SeqNo,
    kind: CellKind,
    value: Bytes,
}

impl Level {
    fn add(&mut self, tombstone: Tombstone, rule: DeleteRule, is_old: bool) {
        if is_old || tombstone.is_endless() {
            self.dropping.add(tombstone, rule);
        }
        self.hiding.add(tombstone, rule);
    }

    fn clear(&mut self) {
        self.hiding.clear();
        self.dropping.clear();
    }
}

impl Retained {
    pub fn new(schema: &TableSchema) -> Self {
        Retained {
            any: schema.keeps_deleted(),
            row_rule: schema.common_delete_rule(),
            row: Level::default(),
            family: FamilyId(0),
            keep: KeepDeleted::No,
            rule: schema.delete_rule,
            gc_rule: None,
            of_family: Level::default(),
            of_column: Level::default(),
            column: Vec::new(),
            all: 0,
            visible: 0,
            version: Version::default(),
        }
    }

    /// Whether any family of the table keeps deleted cells.
    #[inline]
    pub fn any(&self) -> bool {
        self.any
    }

    pub fn begin_row(&mut self) {
        debug_assert!(self.version.timestamp.is_none(), "the row before was ended");
        debug_assert!(
            self.version.put.is_none() && self.version.delete.is_none(),
            "no entry of the row before is left"
        );
        self.row.clear();
        self.family = FamilyId(0);
        self.keep = KeepDeleted::No;
    }

    /// Takes note of a tombstone of the row, which the resolver writes.
    pub fn note_row_tombstone(&mut self, parts: &KeyParts) {
        self.row
            .add(Tombstone::new(parts, Timestamp::MIN), self.row_rule, false);
    }

    /// Goes to the family of the next entry; whether it keeps deleted cells.
    pub fn enter(&mut self, family: FamilyId, schema: &TableSchema, keep: &mut Keep<'_>) -> bool {
        if family != self.family {
            self.end_version(keep);
            debug_assert!(family > self.family, "families of a row ascend");
            self.family = family;
            self.of_family.clear();
            self.column.clear();
            let found = schema.families.get(&family);
            self.keep = found.map_or(KeepDeleted::No, |family| family.deletes.keep);
            self.gc_rule = found.and_then(|family| family.gc_rule.clone());
            self.rule = schema.delete_rule_of(family);
        }
        self.keep != KeepDeleted::No
    }

    /// Takes an entry of the family that was entered last.
    pub fn push(&mut self, key: &[u8], parts: &KeyParts, value: Bytes, keep: &mut Keep<'_>) {
        debug_assert_eq!(parts.family, self.family, "the family was entered");
        if parts.qualifier_start == parts.qualifier_end {
            let tombstone = Tombstone::new(parts, family_tombstone_start(parts));
            let is_old = self.is_old(parts.timestamp, keep);
            self.of_family.add(tombstone, self.rule, is_old);
            self.write_tombstone(key, parts.timestamp, tombstone, &value, keep);
            return;
        }
        let column = key.get(parts.row_end..parts.qualifier_end).unwrap_or_default();
        if column != self.column {
            self.end_version(keep);
            self.column.clear();
            self.column.extend_from_slice(column);
            self.of_column.clear();
            (self.all, self.visible) = (0, 0);
        }
        if parts.kind.is_delete() && parts.kind != CellKind::DeleteVersion {
            let start = key::range_delete_start(&value).filter(|_| parts.kind == CellKind::DeleteRange);
            let tombstone = Tombstone::new(parts, start.unwrap_or(Timestamp::MIN));
            let is_old = self.is_old(parts.timestamp, keep);
            self.of_column.add(tombstone, self.rule, is_old);
            self.write_tombstone(key, parts.timestamp, tombstone, &value, keep);
            return;
        }
        if self.version.timestamp != Some(parts.timestamp) {
            self.end_version(keep);
            self.version.timestamp = Some(parts.timestamp);
        }
        let place = match parts.kind {
            CellKind::DeleteVersion => &mut self.version.delete,
            _ => &mut self.version.put,
        };
        if place.is_none() {
            *place = Some(Entry {
                key: key.to_vec(),
                seq: parts.seq,
                kind: parts.kind,
                value,
            });
        }
    }

    /// Whether a tombstone of this timestamp no longer keeps the versions that it hides.
    fn is_old(&self, timestamp: Timestamp, keep: &Keep<'_>) -> bool {
        match self.keep {
            KeepDeleted::For(micros) => keep.is_garbage(&GcRule::MaxAgeMicros(micros), 0, timestamp),
            KeepDeleted::No | KeepDeleted::Yes => false,
        }
    }

    fn write_tombstone(
        &mut self,
        key: &[u8],
        timestamp: Timestamp,
        tombstone: Tombstone,
        value: &Bytes,
        keep: &mut Keep<'_>,
    ) {
        // A version that is garbage as the newest of its column is garbage in every place.
        let hides_garbage = |rule: &GcRule| keep.is_garbage(rule, 0, timestamp);
        let is_spent = self.is_old(timestamp, keep) || self.gc_rule.as_ref().is_some_and(hides_garbage);
        let drops = match tombstone.is_endless() {
            // All that it hides is in this compaction, and has been dropped.
            true => keep.bottom,
            false => keep.drops_tombstones && is_spent,
        };
        if !drops {
            keep.add(key, value);
        }
    }

    /// Writes the version that has been gathered, as far as it is needed.
    pub fn end_version(&mut self, keep: &mut Keep<'_>) {
        let Some(timestamp) = self.version.timestamp.take() else {
            return;
        };
        let (mut put, mut delete) = (self.version.put.take(), self.version.delete.take());
        let before = self.all;
        assert!(
            put.is_some() || delete.is_some(),
            "a version that has been gathered has an entry"
        );
        assert!(self.visible <= self.all, "visible versions are some of all");
        let is_old = self.is_old(timestamp, keep);
        if let Some(entry) = &put
            && self.drops_put(entry, timestamp, delete.as_ref(), is_old, keep)
        {
            put = None;
        }
        let is_spent = |rule: &GcRule| keep.is_garbage(rule, before, timestamp);
        if keep.drops_tombstones && (is_old || self.gc_rule.as_ref().is_some_and(is_spent)) {
            delete = None;
        }
        let mut entries = [put, delete];
        entries.sort_by(|a, b| {
            let key = |entry: &Option<Entry>| entry.as_ref().map(|entry| std::cmp::Reverse(entry.seq));
            key(a).cmp(&key(b))
        });
        for Entry { key, kind, value, .. } in entries.into_iter().flatten() {
            keep.write(&key, kind, value);
        }
    }

    /// Counts the put of a version; whether it is dropped.
    fn drops_put(
        &mut self,
        put: &Entry,
        timestamp: Timestamp,
        delete: Option<&Entry>,
        is_old: bool,
        keep: &Keep<'_>,
    ) -> bool {
        let rule = self.rule;
        let by_version = delete.is_some_and(|delete| rule == DeleteRule::ByTimestamp || delete.seq > put.seq);
        let hides = |tombstones: &mut Tombstones| tombstones.hide(timestamp, put.seq, rule);
        let is_hidden = by_version
            || hides(&mut self.row.hiding)
            || hides(&mut self.of_family.hiding)
            || hides(&mut self.of_column.hiding);
        let is_dropped = by_version && is_old
            || hides(&mut self.row.dropping)
            || hides(&mut self.of_family.dropping)
            || hides(&mut self.of_column.dropping);
        let is_over = put.kind == CellKind::ExpiringPut
            && lifetime::is_over(&put.value, timestamp, keep.schema.time_unit, keep.now_micros);
        let place = if is_hidden { self.all } else { self.visible };
        if !is_over {
            self.all += 1;
            self.visible += u64::from(!is_hidden);
        }
        let is_garbage = |rule: &GcRule| keep.is_garbage(rule, if keep.bottom { place } else { 0 }, timestamp);
        is_dropped || keep.decides(timestamp) && (is_over || self.gc_rule.as_ref().is_some_and(is_garbage))
    }
}
