//! Decides for each entry of a job whether it is written.
//!
//! Most entries are puts of plain families in rows without tombstones. For these a comparison with the previous entry
//! decides: a put that begins its column, or its version, is kept; an older put of the same version is dropped. Such a
//! row never meets the resolver. The first entry of any other kind hands the rest of the row to the resolver. Nothing is
//! lost by that: every tombstone that could hide an earlier entry of the row would have come before it.
//!
//! Under the by-timestamp rule a tombstone of the same version may still follow a put and hide it, so a put is held back
//! until the next entry is seen.

mod retained;

use super::output::Output;
use crate::error::{Result, TabletError};
use crate::merging::MergingIterator;
use crate::resolve::{Outcome, Resolver, Sink, Skip, Tombstone, Version};
use bytes::Bytes;
use retained::Retained;
use std::sync::Arc;
use stele_env::PlantedBug;
use stele_sstable::index::common_prefix;
use stele_types::key::{CellKind, KeyParts, TRAILER_BYTES, row_prefix_len};
use stele_types::{
    DeleteRule, FamilyId, GcRule, GcView, KeepDeleted, SeqNo, TableSchema, Timestamp, ValueType, lifetime,
};

/// Bytes of a timestamp behind the column.
const TIMESTAMP_BYTES: usize = 8;

/// Where the entries go.
pub struct Stream<'a> {
    keep: Keep<'a>,
    resolver: Resolver,
    /// Takes the place of the resolver for families that keep deleted cells.
    retained: Retained,
    /// Key of the entry before; empty at the start.
    last: Vec<u8>,
    /// Length of its row's encoded prefix; 0 at the start.
    row_len: usize,
    /// The rest of the row goes through the resolver.
    is_general: bool,
    /// The row's current family.
    family: PlainFamily,
    /// The put at `last` waits for the next entry; its value.
    is_held: bool,
    held: Vec<u8>,
    /// The same when it is large, instead of a copy.
    held_large: Option<Bytes>,
}

/// A family whose puts need no resolver.
#[derive(Default)]
struct PlainFamily {
    /// The bytes between the row and the qualifier; empty when none is known.
    prefix: Vec<u8>,
    /// It is in the schema.
    exists: bool,
    by_sequence: bool,
    rule: Option<GcRule>,
}

impl<'a> Stream<'a> {
    /// A stream into `output`; `(bottom, older_until)` as in [`Job`](super::Job).
    pub fn new(
        schema: Arc<TableSchema>,
        now_micros: i64,
        (bottom, older_until): (bool, Timestamp),
        major: bool,
        output: Output<'a>,
    ) -> Self {
        Stream {
            resolver: Resolver::new(schema.clone(), SeqNo::MAX),
            retained: Retained::new(&schema),
            keep: Keep {
                drops_row_tombstones: drops_row_tombstones(&schema, bottom, major),
                major,
                schema,
                now_micros,
                bottom,
                older_until,
                drops_tombstones: false,
                miscounts: output.env().planted(PlantedBug::DropVersion),
                widens: output.env().planted(PlantedBug::WidenDelete),
                version_index: 0,
                goes_on: false,
                family: FamilyId(0),
                row_len: 0,
                output,
                scratch: Vec::new(),
                failure: None,
            },
            last: Vec::new(),
            row_len: 0,
            is_general: false,
            family: PlainFamily::default(),
            is_held: false,
            held: Vec::new(),
            held_large: None,
        }
    }

    /// The files.
    pub fn output(&mut self) -> &mut Output<'a> {
        &mut self.keep.output
    }

    /// How many bytes `key` has in common with the entry before.
    #[inline]
    pub fn common(&self, key: &[u8]) -> usize {
        common_prefix(&self.last, key)
    }

    /// Whether an entry that shares this many bytes with the previous entry begins a row.
    #[inline]
    pub fn is_new_row(&self, common: usize) -> bool {
        common < self.row_len || self.row_len == 0
    }

    /// The row is complete.
    pub fn end_row(&mut self) -> Result<()> {
        self.release()?;
        if std::mem::take(&mut self.is_general) {
            self.resolver.end_row(&mut self.keep);
            self.retained.end_version(&mut self.keep);
        }
        debug_assert!(!self.is_held, "a row ends with all of its entries written");
        self.row_len = 0;
        self.keep.failure.take().map_or(Ok(()), Err)
    }

    /// Takes the entry under the merge, which has `common` bytes in common with the one before. After `end_row` when it
    /// begins a row.
    pub fn push(&mut self, merge: &MergingIterator, common: usize) -> Result<()> {
        let key = merge.key();
        let Some(body_len) = key.len().checked_sub(TRAILER_BYTES) else {
            return Err(malformed());
        };
        debug_assert!(self.last.as_slice() <= key, "entries come in key order");
        if common == key.len() && self.last.len() == common {
            // One entry in two runs: each group of a tablet gets a row's tombstone, and a moved family brings those of its former
            // group with it. Files have no key twice.
            return Ok(());
        }
        let begins_row = self.row_len == 0;
        debug_assert!(!begins_row || !self.is_general, "the resolver has ended the row before");
        if begins_row {
            self.row_len = row_prefix_len(key).ok_or_else(malformed)?;
            self.keep.row_len = self.row_len;
        }
        if !self.is_general {
            let same_column = !begins_row && common >= body_len && self.last.len() == key.len();
            let same_version = same_column && common >= body_len + TIMESTAMP_BYTES;
            if self.push_plain(merge, key, body_len, same_column, same_version)? {
                self.last.truncate(common);
                self.last.extend_from_slice(key.get(common..).unwrap_or_default());
                return Ok(());
            }
            self.begin_general(same_column, same_version)?;
        }
        self.last.truncate(common);
        self.last.extend_from_slice(key.get(common..).unwrap_or_default());
        let parts = KeyParts::parse_after_row(key, self.row_len).ok_or_else(malformed)?;
        if !self.retained.any() || !self.push_retained(key, &parts, merge) {
            self.resolver.push(key, &parts, || merge.value(), &mut self.keep);
        }
        self.keep.failure.take().map_or(Ok(()), Err)
    }

    /// Takes an entry of a family that keeps deleted cells; whether it is one.
    #[cold]
    fn push_retained(&mut self, key: &[u8], parts: &KeyParts, merge: &MergingIterator) -> bool {
        if parts.family.0 == 0 {
            self.retained.note_row_tombstone(parts);
            return false;
        }
        let schema = self.keep.schema.clone();
        if !self.retained.enter(parts.family, &schema, &mut self.keep) {
            return false;
        }
        // The version before is of another family, if there is one.
        self.resolver.end_row(&mut self.keep);
        self.keep.wants_family(parts.family);
        self.retained.push(key, parts, merge.value(), &mut self.keep);
        true
    }

    /// Takes an entry if it needs no resolver; whether it was taken.
    #[inline]
    fn push_plain(
        &mut self,
        merge: &MergingIterator,
        key: &[u8],
        body_len: usize,
        same_column: bool,
        same_version: bool,
    ) -> Result<bool> {
        if same_version && self.family.by_sequence {
            // The newest of the version stands, and hides all other entries of it.
            return Ok(true);
        }
        let kind = key.last().and_then(|kind| CellKind::from_byte(*kind));
        if same_version || !kind.is_some_and(CellKind::is_put) || !self.family_is_plain(key) {
            return Ok(false);
        }
        self.release()?;
        if !same_column {
            self.keep.version_index = 0;
        }
        if !self.family.exists
            || self
                .keep
                .counts_as_garbage(self.family.rule.as_ref(), timestamp_of(key, body_len))
        {
            return Ok(true);
        }
        let value = merge.value_slice();
        let is_apart = self.keep.output.keeps_apart(kind == Some(CellKind::Put), value);
        if self.family.by_sequence {
            if is_apart {
                self.keep.output.add_apart(key, self.row_len, merge.value());
            } else {
                self.keep.output.add(key, self.row_len, value)?;
            }
            return Ok(true);
        }
        debug_assert!(!self.is_held, "one put is held at a time");
        self.held.clear();
        self.held_large = is_apart.then(|| merge.value());
        if !is_apart {
            self.held.extend_from_slice(value);
        }
        self.is_held = true;
        Ok(true)
    }

    /// Writes the put that waited.
    fn release(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.is_held) {
            return Ok(());
        }
        debug_assert!(!self.last.is_empty(), "a put that is held has a key");
        match self.held_large.take() {
            Some(value) => self.keep.output.add_apart(&self.last, self.row_len, value),
            None => self.keep.output.add(&self.last, self.row_len, &self.held)?,
        }
        Ok(())
    }

    /// From here on the row is the resolver's. Of the entry before it must know when it is of the same version; of the
    /// same column, how many versions there were.
    fn begin_general(&mut self, same_column: bool, same_version: bool) -> Result<()> {
        debug_assert!(!self.is_general, "a row is handed to the resolver once");
        self.is_general = true;
        self.resolver.begin_row();
        self.retained.begin_row();
        // Of a family that is no more the resolver begins no column.
        self.keep.goes_on = same_column && self.family.exists;
        if !(same_version && self.is_held) {
            return self.release();
        }
        self.is_held = false;
        self.keep.version_index = self.keep.version_index.saturating_sub(1);
        let parts = KeyParts::parse_after_row(&self.last, self.row_len).ok_or_else(malformed)?;
        let held = self.held_large.take();
        let value = held.unwrap_or_else(|| Bytes::copy_from_slice(&self.held));
        self.resolver.push(&self.last, &parts, || value, &mut self.keep);
        Ok(())
    }

    /// Whether the entry's family, which becomes the current one, is plain.
    #[inline]
    fn family_is_plain(&mut self, key: &[u8]) -> bool {
        let rest = key.get(self.row_len..).unwrap_or_default();
        if !self.family.prefix.is_empty() && rest.starts_with(&self.family.prefix) {
            return true;
        }
        self.family.prefix.clear();
        let Some(parts) = KeyParts::parse_after_row(key, self.row_len) else {
            return false;
        };
        let family = self.keep.schema.families.get(&parts.family);
        let is_plain = |family: &stele_types::Family| {
            family.value_type == ValueType::Bytes && family.deletes.keep == KeepDeleted::No
        };
        if !family.is_none_or(is_plain) {
            return false;
        }
        let prefix = key.get(self.row_len..parts.qualifier_start).unwrap_or_default();
        self.family.prefix.extend_from_slice(prefix);
        self.family.exists = family.is_some();
        self.family.by_sequence = self.keep.schema.delete_rule_of(parts.family) == DeleteRule::BySequence;
        self.family.rule = family.and_then(|family| family.gc_rule.clone());
        true
    }
}

/// The timestamp behind a column of that length.
fn timestamp_of(key: &[u8], body_len: usize) -> Timestamp {
    let bytes = key.get(body_len..).and_then(<[u8]>::first_chunk::<TIMESTAMP_BYTES>);
    bytes.map_or(Timestamp::MIN, |bytes| {
        stele_types::key::timestamp_from_descending(*bytes)
    })
}

#[cold]
fn malformed() -> TabletError {
    TabletError::Corruption {
        path: Arc::from("compaction"),
        detail: "a stored key is not a cell key".to_owned(),
    }
}

/// Writes the entries that the resolver finds to be still needed.
struct Keep<'a> {
    schema: Arc<TableSchema>,
    now_micros: i64,
    bottom: bool,
    older_until: Timestamp,
    major: bool,
    drops_row_tombstones: bool,
    /// Those of the current family.
    drops_tombstones: bool,
    /// By a planted bug.
    miscounts: bool,
    /// By a planted bug.
    widens: bool,
    /// Versions of the current column so far.
    version_index: u64,
    /// The column that begins next has begun before: its versions are counted on.
    goes_on: bool,
    family: FamilyId,
    row_len: usize,
    output: Output<'a>,
    scratch: Vec<u8>,
    /// The first error since the caller looked.
    failure: Option<TabletError>,
}

/// Whether tombstones are dropped that hide by this rule.
pub fn drops_tombstones(rule: DeleteRule, bottom: bool, major: bool) -> bool {
    bottom && (major || rule == DeleteRule::BySequence)
}

/// Whether tombstones of rows are. A family that keeps deleted cells may still have cells that they hide.
pub fn drops_row_tombstones(schema: &TableSchema, bottom: bool, major: bool) -> bool {
    let rule = match schema.deletes_only(DeleteRule::BySequence) {
        true => DeleteRule::BySequence,
        false => DeleteRule::ByTimestamp,
    };
    drops_tombstones(rule, bottom, major) && !schema.keeps_deleted()
}

impl Keep<'_> {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        if self.failure.is_none() {
            self.failure = self.output.add(key, self.row_len, value).err();
        }
    }

    /// Whether the values of the current family may be kept apart: those of aggregates are read by compactions.
    fn is_plain_family(&self) -> bool {
        let family = self.schema.families.get(&self.family);
        family.is_some_and(|family| family.value_type == ValueType::Bytes)
    }

    /// Counts a version of the current column; whether the rule calls it garbage.
    #[inline]
    fn counts_as_garbage(&mut self, rule: Option<&GcRule>, timestamp: Timestamp) -> bool {
        let index = self.version_index;
        self.version_index += 1;
        let place = match self.bottom {
            true => index + u64::from(self.miscounts),
            false => 0,
        };
        rule.is_some_and(|rule| self.decides(timestamp) && self.is_garbage(rule, place, timestamp))
    }

    /// Whether a version of this timestamp may be dropped: all other entries of it go with it.
    #[inline]
    fn decides(&self, timestamp: Timestamp) -> bool {
        self.bottom || timestamp > self.older_until
    }

    #[inline]
    fn is_garbage(&self, rule: &GcRule, version_index: u64, timestamp: Timestamp) -> bool {
        rule.is_garbage(&GcView {
            version_index,
            timestamp,
            unit: self.schema.time_unit,
            now_micros: self.now_micros,
        })
    }

    /// Writes the entry of a version.
    fn write(&mut self, key: &[u8], kind: CellKind, value: Bytes) {
        let is_new = kind == CellKind::Put && self.is_plain_family();
        if (is_new || kind == CellKind::Reference) && self.output.keeps_apart(is_new, &value) {
            self.output.add_apart(key, self.row_len, value);
        } else {
            self.add(key, &value);
        }
    }
}

impl Sink for Keep<'_> {
    fn wants_family(&mut self, family: FamilyId) -> bool {
        self.family = family;
        self.drops_tombstones = drops_tombstones(self.schema.delete_rule_of(family), self.bottom, self.major);
        self.schema.families.contains_key(&family)
    }

    fn begin_column(&mut self, _: &[u8], _: &KeyParts) -> Skip {
        if !std::mem::take(&mut self.goes_on) {
            self.version_index = 0;
        }
        Skip::Nothing
    }

    fn tombstone(&mut self, key: &[u8], parts: &KeyParts, value: &Bytes) {
        let drops = match parts.family.0 {
            // One without an end hides only older cells, under every rule, and those have been dropped.
            0 => self.drops_row_tombstones || self.bottom && Tombstone::new(parts, Timestamp::MIN).is_endless(),
            _ => self.drops_tombstones,
        };
        if !drops {
            self.add(key, if self.widens { &[] } else { value });
        }
    }

    fn version(&mut self, version: Version<'_>) -> Skip {
        let (kind, value) = match version.outcome {
            Outcome::Deleted if self.drops_tombstones => return Skip::Nothing,
            Outcome::Deleted => (CellKind::DeleteVersion, Bytes::new()),
            Outcome::Value(value) => (CellKind::Put, value),
            Outcome::Reference(value) => (CellKind::Reference, value),
            Outcome::Expiring(stored) => (CellKind::ExpiringPut, stored),
            Outcome::Operands(value) => (CellKind::Merge, value),
        };
        let timestamp = version.parts.timestamp;
        if kind == CellKind::ExpiringPut && lifetime::is_over(&value, timestamp, self.schema.time_unit, self.now_micros)
        {
            // Readers do not count it either.
            if self.decides(timestamp) {
                return Skip::Nothing;
            }
        } else if kind != CellKind::DeleteVersion {
            let schema = self.schema.clone();
            let rule = schema.families.get(&self.family).and_then(|f| f.gc_rule.as_ref());
            if self.counts_as_garbage(rule, timestamp) {
                return Skip::Nothing;
            }
        }
        let mut key = std::mem::take(&mut self.scratch);
        key.clear();
        key.extend_from_slice(version.key);
        *key.last_mut()
            .expect("this sink wants keys, and a cell key ends in its kind") = kind as u8;
        self.write(&key, kind, value);
        self.scratch = key;
        Skip::Nothing
    }
}
