//! Resolves a row: which of its stored entries exist, by deletes, overwrites and aggregates.
//!
//! Entries of a row arrive in key order (see `stele_types::key`): every tombstone that can hide a cell comes before it.
//! A *version* is all entries of one column at one timestamp. It is resolved as a whole, because under the by-timestamp
//! rule an older tombstone hides a newer put of the same timestamp. Besides, operands fold onto the put below them.
//!
//! The resolver is shared by reads and compactions, which differ in their [`Sink`]: a read turns versions into cells, a
//! compaction into the entries that are still needed. Bigtable §2 and §5.4; HBase's delete rules are documented in
//! `docs/data-model.md`. Pure: no I/O, no clock.

mod tombstones;

use bytes::Bytes;
use std::sync::Arc;
use stele_types::key::{self, CellKind, KeyParts};
use stele_types::{
    AggregateKind, DeleteRule, FamilyId, KeepDeleted, SeqNo, TableSchema, Timestamp, ValueType, lifetime,
};
pub use tombstones::{Tombstone, Tombstones};

/// The entries that may be skipped from here on: the caller may jump behind them or keep pushing, the outcome is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skip {
    /// Nothing.
    Nothing,
    /// The rest of this version.
    Version,
    /// The rest of this column.
    Column,
    /// The rest of this family.
    Family,
    /// The rest of this row.
    Row,
}

/// The result of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A value: a put, or operands on a put or on nothing that can still change.
    Value(Bytes),
    /// A put whose value is in a value file: the reference to it.
    Reference(Bytes),
    /// A put that expires by itself: its stored form (`stele_types::lifetime`).
    Expiring(Bytes),
    /// Operands without anything below them here; older entries elsewhere may still change the value.
    Operands(Bytes),
    /// A delete-version tombstone on top: no value.
    Deleted,
}

impl Outcome {
    fn of_put(kind: CellKind, value: Bytes) -> Outcome {
        match kind {
            CellKind::Reference => Outcome::Reference(value),
            CellKind::ExpiringPut => Outcome::Expiring(value),
            _ => Outcome::Value(value),
        }
    }
}

/// A resolved version.
#[derive(Debug)]
pub struct Version<'a> {
    /// Key of its newest entry; empty for a sink that does not want keys.
    pub key: &'a [u8],
    /// The parts of that key.
    pub parts: KeyParts,
    /// Its result.
    pub outcome: Outcome,
}

/// The value of a stored entry, which most uses want to look at and some to keep.
pub trait StoredValue {
    /// To keep: shares the memory it is in where that can be shared.
    fn into_bytes(self) -> Bytes;
    /// To look at: takes no reference, which is an atomic operation for each cell of a scan.
    fn look<R>(self, look: impl FnOnce(&[u8]) -> R) -> R;
}

impl<F: FnOnce() -> Bytes> StoredValue for F {
    #[inline]
    fn into_bytes(self) -> Bytes {
        self()
    }

    #[inline]
    fn look<R>(self, look: impl FnOnce(&[u8]) -> R) -> R {
        look(&self())
    }
}

/// Receives the results of the resolver.
pub trait Sink {
    /// Whether [`Version::key`] matters: a version that is not settled by its first entry costs a copy of its key then.
    const WANTS_KEYS: bool = true;

    /// A family begins; false skips it.
    fn wants_family(&mut self, family: FamilyId) -> bool;
    /// A column begins; its key and parts are those of its first entry. `Skip::Nothing` takes it.
    fn begin_column(&mut self, key: &[u8], parts: &KeyParts) -> Skip;
    /// A tombstone above version level, in key order.
    fn tombstone(&mut self, key: &[u8], parts: &KeyParts, value: &Bytes);
    /// A version comes that is hidden or deleted, before the older ones of its column. `by_older` says that all
    /// tombstones that do that were committed before it: by timestamp it shows when a major compaction drops them and
    /// does not meet it.
    #[inline]
    fn hidden(&mut self, by_older: bool) {
        let _ = by_older;
    }
    /// A version that no tombstone hides, in key order.
    fn version(&mut self, version: Version<'_>) -> Skip;
    /// A version that its first entry settles: its value is `value`, independent of the older entries. Comes in place of
    /// [`Sink::version`].
    #[inline]
    fn settled(&mut self, key: &[u8], parts: &KeyParts, value: impl StoredValue) -> Skip {
        let outcome = Outcome::of_put(parts.kind, value.into_bytes());
        let parts = *parts;
        self.version(Version { key, parts, outcome })
    }
}

/// Resolves one row after another.
pub struct Resolver {
    schema: Arc<TableSchema>,
    /// Entries newer than this do not exist.
    snapshot: SeqNo,
    /// In these families entries at this timestamp or later do not exist. Empty for most reads.
    families_before: Vec<(FamilyId, Timestamp)>,
    /// The rule for tombstones of rows.
    row_rule: DeleteRule,
    row: Tombstones,
    family_tombstones: Tombstones,
    column_tombstones: Tombstones,
    /// Family of the current entries; 0 before the first.
    family: FamilyId,
    /// The family that `aggregate` is of; outlives the row, because the next one mostly begins with the same.
    known_family: FamilyId,
    aggregate: Option<AggregateKind>,
    /// Of that family.
    rule: DeleteRule,
    /// Entries of that family at this timestamp or later do not exist for the read.
    acts_before: Option<Timestamp>,
    wants_family: bool,
    /// The key bytes between the row and the end of the qualifier that name the current column; empty when none.
    column: Vec<u8>,
    skip: Skip,
    version: Pending,
}

/// The version being gathered, or one that its first entry has settled.
#[derive(Default)]
struct Pending {
    active: bool,
    timestamp: Timestamp,
    key: Vec<u8>,
    /// Of the newest entry; absent when the sink has the version already.
    parts: Option<KeyParts>,
    /// Operands so far, folded.
    operands: Option<Bytes>,
    base: Option<Bytes>,
    /// `base` is a reference to the value.
    base_is_reference: bool,
    /// `base` is the stored form of a put that expires.
    base_expires: bool,
    /// The entry taken last: the same one again (from a file and from a replayed log) counts once.
    last: Option<SeqNo>,
    /// A delete-version tombstone was met.
    deleted: bool,
    /// Older entries of this version no longer matter.
    complete: bool,
}

impl Resolver {
    /// A resolver for a table as of a sequence number.
    pub fn new(schema: Arc<TableSchema>, snapshot: SeqNo) -> Self {
        Resolver {
            row_rule: schema.common_delete_rule(),
            rule: schema.delete_rule,
            schema,
            snapshot,
            families_before: Vec::new(),
            acts_before: None,
            row: Tombstones::default(),
            family_tombstones: Tombstones::default(),
            column_tombstones: Tombstones::default(),
            family: FamilyId(0),
            known_family: FamilyId(0),
            aggregate: None,
            wants_family: true,
            column: Vec::new(),
            skip: Skip::Nothing,
            version: Pending::default(),
        }
    }

    /// Later entries than `snapshot` do not exist from the next row on.
    pub fn set_snapshot(&mut self, snapshot: SeqNo) {
        self.snapshot = snapshot;
    }

    /// Neither cells nor deletes at this timestamp or later exist in these families, if they keep deleted cells. They ascend.
    pub fn set_families_before(&mut self, families: &[(FamilyId, Timestamp)]) {
        let keeps = |family: &FamilyId| {
            let family = self.schema.families.get(family);
            family.is_some_and(|family| family.deletes.keep != KeepDeleted::No)
        };
        let kept = families.iter().filter(|(family, _)| keeps(family));
        self.families_before = kept.copied().collect();
        debug_assert!(self.families_before.is_sorted(), "families are searched");
    }

    /// Forgets the row before; must be called between rows, after [`Resolver::end_row`].
    pub fn begin_row(&mut self) {
        debug_assert!(!self.version.active, "the row before was not ended");
        self.row.clear();
        self.family_tombstones.clear();
        self.family = FamilyId(0);
        self.column.clear();
        self.skip = Skip::Nothing;
    }

    /// Whether the row, of which all entries have been taken, came to a version in `column` that its first entry has
    /// settled, and nothing in the row could have hidden that version. Then the first put in the same column of the next
    /// row is settled as well.
    #[inline]
    pub fn is_settled_in(&self, column: &[u8]) -> bool {
        let version = &self.version;
        // A time before which the family's entries act is not looked at again.
        let settled = version.active && version.complete && version.parts.is_none() && self.acts_before.is_none();
        let tombstones = [&self.row, &self.family_tombstones, &self.column_tombstones];
        settled && tombstones.iter().all(|tombstones| tombstones.is_empty()) && key::is_same(&self.column, column)
    }

    /// Whether an entry of this sequence number exists.
    #[inline]
    pub fn sees(&self, seq: SeqNo) -> bool {
        seq <= self.snapshot
    }

    /// Called instead of [`Resolver::begin_row`] and [`Resolver::push`], after a row that was settled
    /// ([`Resolver::is_settled_in`]). The sink has got the first version of another row, a put in the same column, and
    /// has returned the entries that may be skipped.
    #[inline]
    pub fn settled_in_same_column(&mut self, timestamp: Timestamp, skip: Skip) {
        self.version.settled(timestamp);
        self.skip = skip;
    }

    /// Gives the row up, without an end.
    pub fn abandon_row(&mut self) {
        self.version.active = false;
    }

    /// Takes the next entry of the row. `value` is asked only when the value matters.
    pub fn push(&mut self, key: &[u8], parts: &KeyParts, value: impl StoredValue, sink: &mut impl Sink) -> Skip {
        if self.skip == Skip::Row {
            return self.skip;
        }
        if parts.seq > self.snapshot {
            // Not `self.skip`, which speaks of the column before when this is the first entry of another.
            return Skip::Nothing;
        }
        if parts.family.0 == 0 {
            self.row.add(Tombstone::new(parts, Timestamp::MIN), self.row_rule);
            sink.tombstone(key, parts, &Bytes::new());
            return Skip::Nothing;
        }
        if parts.family != self.family && self.begin_family(parts.family, sink) == Skip::Row {
            return self.skip;
        }
        if !self.wants_family {
            return Skip::Family;
        }
        if parts.qualifier_start == parts.qualifier_end {
            let tombstone = Tombstone::new(parts, family_tombstone_start(parts));
            if self.acts(parts) || tombstone.is_endless() {
                self.family_tombstones.add(tombstone, self.rule);
            }
            sink.tombstone(key, parts, &Bytes::new());
            return Skip::Nothing;
        }
        let column = key.get(parts.row_end..parts.qualifier_end).unwrap_or_default();
        debug_assert!(column >= &self.column[..], "columns of a row ascend");
        if column != self.column {
            let skip = self.end_version(sink);
            if skip == Skip::Row {
                self.skip = skip;
                return skip;
            }
            self.column.clear();
            self.column.extend_from_slice(column);
            self.column_tombstones.clear();
            self.skip = sink.begin_column(key, parts);
        }
        if self.skip != Skip::Nothing {
            return self.skip;
        }
        if parts.kind.is_delete() && parts.kind != CellKind::DeleteVersion {
            let value = value.into_bytes();
            let start = key::range_delete_start(&value).filter(|_| parts.kind == CellKind::DeleteRange);
            let tombstone = Tombstone::new(parts, start.unwrap_or(Timestamp::MIN));
            if self.acts(parts) || tombstone.is_endless() {
                self.column_tombstones.add(tombstone, self.rule);
            }
            sink.tombstone(key, parts, &value);
            return Skip::Nothing;
        }
        self.push_version(key, parts, value, sink)
    }

    fn begin_family(&mut self, family: FamilyId, sink: &mut impl Sink) -> Skip {
        debug_assert!(family > self.family, "families of a row ascend");
        self.skip = match self.end_version(sink) {
            Skip::Row => Skip::Row,
            _ => Skip::Nothing,
        };
        self.family = family;
        self.family_tombstones.clear();
        self.column.clear();
        if family != self.known_family {
            self.known_family = family;
            self.aggregate = match self.schema.families.get(&family).map(|f| f.value_type) {
                Some(ValueType::Aggregate(kind)) => Some(kind),
                _ => None,
            };
            self.rule = self.schema.delete_rule_of(family);
            let before = self.families_before.binary_search_by_key(&family, |(known, _)| *known);
            let before = before.ok().and_then(|at| self.families_before.get(at));
            self.acts_before = before.map(|(_, before)| *before);
        }
        self.wants_family = sink.wants_family(family);
        self.skip
    }

    /// Whether an entry of the current family is of the time that the read is about. A tombstone without an end is of no time:
    /// it was written when the family kept nothing, and acts on every read.
    #[inline]
    fn acts(&self, parts: &KeyParts) -> bool {
        self.acts_before.is_none_or(|before| parts.timestamp < before)
    }

    #[inline]
    fn push_version<S: Sink>(&mut self, key: &[u8], parts: &KeyParts, value: impl StoredValue, sink: &mut S) -> Skip {
        let same = self.version.active && self.version.timestamp == parts.timestamp;
        debug_assert!(
            !self.version.active || parts.timestamp <= self.version.timestamp,
            "versions of a column come newest first"
        );
        if same && self.version.complete {
            return Skip::Version;
        }
        if !same {
            self.skip = self.end_version(sink);
            if self.skip != Skip::Nothing {
                return self.skip;
            }
        }
        if !self.acts(parts) {
            return Skip::Nothing;
        }
        let rule = self.rule;
        let (timestamp, seq) = (parts.timestamp, parts.seq);
        // By timestamp a delete of the version hides later writes of it, also where a delete without an end came between.
        let is_delete = rule == DeleteRule::ByTimestamp && parts.kind == CellKind::DeleteVersion;
        let hidden = self.is_hidden(timestamp, if is_delete { SeqNo::MAX } else { seq }, rule);
        if !same && !hidden && parts.kind.is_put() && rule == DeleteRule::BySequence {
            // Nothing that is older can change it: the version as it stands.
            self.version.settled(timestamp);
            self.skip = sink.settled(key, parts, value);
            return self.skip;
        }
        if !same {
            self.version.begin(if S::WANTS_KEYS { key } else { &[] }, parts);
        }
        if hidden {
            // Everything below in this version is older still, hence hidden too. By timestamp, a tombstone with an end hides the
            // whole version; below one without an end a delete of the version may follow.
            let is_complete = rule == DeleteRule::BySequence || !same && self.is_hidden(timestamp, SeqNo::MAX, rule);
            self.version.hidden_below(is_complete);
            if !same {
                let by_older =
                    rule == DeleteRule::ByTimestamp && !self.is_hidden(timestamp, seq, DeleteRule::BySequence);
                sink.hidden(by_older);
            }
            return Skip::Nothing;
        }
        self.version.add(parts, value, self.aggregate, rule);
        Skip::Nothing
    }

    /// Whether a tombstone hides an entry by this rule.
    #[inline]
    fn is_hidden(&mut self, timestamp: Timestamp, seq: SeqNo, rule: DeleteRule) -> bool {
        self.row.hide(timestamp, seq, rule)
            || self.family_tombstones.hide(timestamp, seq, rule)
            || self.column_tombstones.hide(timestamp, seq, rule)
    }

    /// Ends the row: hands the last version to the sink.
    pub fn end_row(&mut self, sink: &mut impl Sink) {
        if self.skip == Skip::Nothing {
            self.end_version(sink);
        }
        self.version.active = false;
    }

    /// In place of [`Resolver::end_row`], of a row that [`Resolver::settled_in_same_column`] was all of.
    #[inline]
    pub fn end_settled_row(&mut self) {
        self.version.active = false;
    }

    #[inline]
    fn end_version(&mut self, sink: &mut impl Sink) -> Skip {
        if !std::mem::take(&mut self.version.active) || self.version.parts.is_none() {
            return Skip::Nothing;
        }
        self.hand_over(sink)
    }

    fn hand_over(&mut self, sink: &mut impl Sink) -> Skip {
        let pending = &mut self.version;
        if pending.deleted {
            // Only by timestamp a tombstone of the version hides entries that were committed after it.
            let by_older = self.rule == DeleteRule::ByTimestamp && pending.has_value();
            sink.hidden(by_older);
        }
        let (Some(parts), Some(outcome)) = (pending.parts.take(), pending.outcome(self.rule)) else {
            return Skip::Nothing;
        };
        sink.version(Version {
            key: &pending.key,
            parts,
            outcome,
        })
    }
}

/// The lowest timestamp a family tombstone hides.
pub fn family_tombstone_start(parts: &KeyParts) -> Timestamp {
    match parts.kind {
        CellKind::DeleteFamilyVersion => parts.timestamp,
        _ => Timestamp::MIN,
    }
}

impl Pending {
    /// The sink gets, or has got, the version from its first entry.
    #[inline]
    fn settled(&mut self, timestamp: Timestamp) {
        self.active = true;
        self.timestamp = timestamp;
        self.parts = None;
        self.complete = true;
    }

    fn begin(&mut self, key: &[u8], parts: &KeyParts) {
        self.active = true;
        self.timestamp = parts.timestamp;
        self.key.clear();
        self.key.extend_from_slice(key);
        self.parts = Some(*parts);
        self.operands = None;
        self.base = None;
        self.base_is_reference = false;
        self.base_expires = false;
        self.last = None;
        self.deleted = false;
        self.complete = false;
    }

    fn add(&mut self, parts: &KeyParts, value: impl StoredValue, aggregate: Option<AggregateKind>, rule: DeleteRule) {
        if self.last.replace(parts.seq) == Some(parts.seq) {
            return;
        }
        match (parts.kind, aggregate) {
            (CellKind::DeleteVersion, _) => {
                self.deleted = true;
                self.complete = true;
            }
            (CellKind::Merge, Some(kind)) if self.base.is_none() => {
                self.operands = Some(match self.operands.take() {
                    Some(newer) => value.look(|value| fold(kind, value, newer)),
                    None => value.into_bytes(),
                });
            }
            _ if self.base.is_none() => {
                let mut value = value.into_bytes();
                self.base_is_reference = parts.kind == CellKind::Reference;
                self.base_expires = parts.kind == CellKind::ExpiringPut;
                if self.base_expires && aggregate.is_some() {
                    // Nobody writes one there: an operand has no lifetime of its own.
                    value = lifetime::split(&value).map_or(value, |(_, content)| content);
                    self.base_expires = false;
                }
                self.base = Some(match (self.operands.take(), aggregate) {
                    (Some(newer), Some(kind)) => fold(kind, &value, newer),
                    _ => value,
                });
                // By timestamp, a tombstone further down still hides this.
                self.complete = rule == DeleteRule::BySequence;
            }
            _ => {}
        }
    }

    fn has_value(&self) -> bool {
        self.base.is_some() || self.operands.is_some()
    }

    /// A tombstone above hides the puts and operands that are left of this version.
    fn hidden_below(&mut self, is_complete: bool) {
        if self.base.is_none() {
            self.base = self.operands.take();
            self.base_is_reference = false;
            self.base_expires = false;
        }
        self.complete = is_complete;
    }

    /// `None` when nothing is left of it.
    fn outcome(&mut self, rule: DeleteRule) -> Option<Outcome> {
        let deleted_wholly = self.deleted && rule == DeleteRule::ByTimestamp;
        match (self.base.take(), self.operands.take()) {
            _ if deleted_wholly => Some(Outcome::Deleted),
            (Some(value), _) if self.base_is_reference => Some(Outcome::Reference(value)),
            (Some(value), _) if self.base_expires => Some(Outcome::Expiring(value)),
            (Some(value), _) => Some(Outcome::Value(value)),
            (None, Some(operands)) if self.deleted => Some(Outcome::Value(operands)),
            (None, Some(operands)) => Some(Outcome::Operands(operands)),
            (None, None) => self.deleted.then_some(Outcome::Deleted),
        }
    }
}

/// Operands of the wrong length cannot be written; should one turn up, the newer stands.
fn fold(kind: AggregateKind, older: &[u8], newer: Bytes) -> Bytes {
    match kind.combine(older, &newer) {
        Some(combined) => Bytes::copy_from_slice(&combined),
        None => newer,
    }
}

#[cfg(test)]
mod tests;
