//! The recent request tokens of a tablet, with the answers of their requests.
//!
//! A request with a token is repeated by its client until it gets an answer. The first attempt that takes effect leaves a
//! [`TokenRecord`] in the log record of its batch. So the record is as durable as the write, and both are replayed together.
//! A flush stores the records of the mutations that it writes with the manifest, because log segments are deleted then.
//! Halves of a split get all records, and a merged tablet gets those of all its parts.
//!
//! Terms: a record is *forgotten* when it has expired, or earlier if there is no memory for it. The *oldest* record is that of
//! the earliest first attempt by its client's clock; without a date, the time at which the request took effect counts. In the
//! order in which they took effect, a client with a fast clock would have all others refused: once its record is forgotten, so
//! are all earlier dates.
//!
//! Invariants:
//! * A record is in the table before a flush can write any mutation of its batch.
//! * Stored records are of mutations in files: power loss cannot take a write and leave its record.
//! * A repeated request with the time of its first attempt is never taken for a new one. When its record has been forgotten,
//!   it is refused: [`Seen::TooOld`].
//! * The records of a tablet take at most [`STORED_BYTES_MAX`] in a manifest, and those of a server have one share of memory.
//!   A tablet that is opened or made keeps all of its manifest, and then only exchanges old records for new ones.

mod record;

pub use record::{Answer, TokenId, TokenRecord};

use crate::error::{Result, TabletError};
use parking_lot::Mutex;
use prost::Message;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use stele_memory::{Consumer, Part, Pool, Reservation};
use stele_types::{RequestToken, SeqNo, TabletId};

/// Most bytes of the records of one tablet: each commit of a manifest writes them all. Holds a hundred thousand increments
/// of one column.
const STORED_BYTES_MAX: usize = 4 << 20;

/// Memory of a record in addition to twice the cells of its answer. The map has 120 bytes, the order 75, and the manifest 50.
/// The rest is for a map that has just grown.
const RECORD_BYTES: usize = 256;

/// How far the clock of a client may be ahead of the server's.
const AHEAD_MICROS_MAX: i64 = 60 * 1_000_000;

/// Memory for the records of all tablets of a server.
#[derive(Clone, Debug)]
pub struct TokenMemory(Consumer);

impl TokenMemory {
    /// The part of a pool.
    pub fn of(pool: &Pool) -> TokenMemory {
        TokenMemory(pool.of(Part::RequestTokens))
    }

    /// When little is left, the equal part of each of this number of tablets.
    pub fn fair_part(&self, tablets: usize) -> Option<usize> {
        let limit = self.0.limit();
        let is_scarce = self.0.used() > limit / 4 * 3;
        is_scarce.then(|| limit / 4 * 3 / tablets.max(1))
    }
}

impl Default for TokenMemory {
    fn default() -> Self {
        TokenMemory::of(&Pool::default())
    }
}

/// The knowledge of a table about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It has not taken effect.
    New,
    /// It took effect, with this answer.
    Before(Answer),
    /// It may have taken effect: its first attempt is so old that its record may have been forgotten.
    TooOld,
    /// Its first attempt is in the future.
    TooEarly,
}

/// The records of a tablet as its manifest has them.
#[derive(Clone, PartialEq, Message)]
pub struct StoredTokens {
    /// Encoded records, oldest first.
    #[prost(bytes = "bytes", tag = "1")]
    pub records: bytes::Bytes,
    /// Of all dated requests whose records have been forgotten, the latest first attempt: wall-clock microseconds, or 0.
    #[prost(int64, tag = "2")]
    pub forgotten_micros: i64,
}

impl StoredTokens {
    /// The records, each with its encoded length; `None` when they are not as the byte table says.
    fn decode_records(&self) -> Option<Vec<(TokenRecord, usize)>> {
        let (mut input, mut records) = (&self.records[..], Vec::new());
        while !input.is_empty() {
            let before = input.len();
            let record = TokenRecord::take(&mut input)?;
            records.push((record, before - input.len()));
        }
        Some(records)
    }

    /// One line for each record.
    pub fn inspect(&self) -> String {
        let Some(records) = self.decode_records() else {
            return "request tokens: not decodable\n".to_owned();
        };
        let lines = records.iter().map(|(record, _)| format!("    {record:?}\n"));
        let head = format!(
            "request tokens: {}, forgotten through {} us\n",
            records.len(),
            self.forgotten_micros
        );
        std::iter::once(head).chain(lines).collect()
    }
}

/// The table of one tablet.
#[derive(Debug)]
pub struct TokenTable {
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    entries: HashMap<TokenId, Entry>,
    /// Of all entries, oldest first: when they began, and their identities.
    order: BTreeSet<(i64, TokenId)>,
    /// For all entries.
    memory: Reservation,
    /// Bytes of all records, encoded.
    encoded_bytes: usize,
    /// See [`StoredTokens::forgotten_micros`].
    forgotten_micros: i64,
}

#[derive(Debug)]
struct Entry {
    record: TokenRecord,
    encoded_len: usize,
    /// The first sequence number of the request's batch; 0 for one in files since before the tablet was opened.
    seq: SeqNo,
}

impl TokenTable {
    /// The table that a manifest describes.
    pub fn load(tablet: TabletId, stored: Option<&StoredTokens>, memory: &TokenMemory) -> Result<TokenTable> {
        let mut known = Known::empty(memory);
        if let Some(stored) = stored {
            known.add_stored(tablet, &[stored])?;
        }
        let known = Mutex::new(known);
        Ok(TokenTable { known })
    }

    /// Whether a request for this row has taken effect, at this wall-clock time. The caller has the row's latch, so that no
    /// other attempt is under way.
    pub fn seen(&self, token: &RequestToken, row: &[u8], now_micros: i64) -> Seen {
        let id = TokenId::of(token, row);
        let known = self.known.lock();
        if let Some(entry) = known.entries.get(&id) {
            return Seen::Before(entry.record.answer());
        }
        match token.start_micros() {
            None => Seen::New,
            Some(start) if start <= known.forgotten_micros => Seen::TooOld,
            Some(start) if start < now_micros.saturating_sub(record::DATED_MICROS) => Seen::TooOld,
            Some(start) if start > now_micros.saturating_add(AHEAD_MICROS_MAX) => Seen::TooEarly,
            Some(_) => Seen::New,
        }
    }

    /// Adds the record of a batch that takes effect. Returns how many records were forgotten for want of memory.
    pub(crate) fn add(&self, record: TokenRecord, seq: SeqNo) -> u64 {
        assert!(seq > SeqNo::ZERO, "a request with a token has changed something");
        let encoded_len = record.encoded_len();
        let entry = Entry {
            record,
            encoded_len,
            seq,
        };
        self.known.lock().add(entry)
    }

    /// Forgets the oldest records, as far as they have expired at this wall-clock time.
    pub fn forget_expired(&self, now_micros: i64) {
        self.known.lock().forget_expired(now_micros);
    }

    /// Forgets the oldest records until those that are left take this much memory. Returns how many it has forgotten.
    pub fn forget_beyond(&self, bytes: usize) -> u64 {
        let mut known = self.known.lock();
        let mut forgotten = 0;
        while known.memory.counted() > bytes && known.forget_oldest().is_some() {
            forgotten += 1;
        }
        forgotten
    }

    /// The records of all batches up to this sequence number, for a manifest.
    pub(crate) fn stored(&self, through: SeqNo, now_micros: i64) -> Option<StoredTokens> {
        let mut known = self.known.lock();
        known.forget_expired(now_micros);
        known.stored(through, &[])
    }

    /// The same with the records of requests that are about to take effect, and without the oldest if all are too many.
    pub(crate) fn stored_with(&self, more: &[TokenRecord], through: SeqNo, now_micros: i64) -> Option<StoredTokens> {
        let mut known = self.known.lock();
        known.forget_expired(now_micros);
        known.stored(through, more)
    }

    /// How many requests it knows.
    pub fn len(&self) -> usize {
        self.known.lock().entries.len()
    }

    /// Whether it knows none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Known {
    fn empty(memory: &TokenMemory) -> Known {
        Known {
            entries: HashMap::new(),
            order: BTreeSet::new(),
            memory: memory.0.empty(),
            encoded_bytes: 0,
            forgotten_micros: 0,
        }
    }

    /// Adds the records of manifests of this tablet, or of the tablets that it is made of.
    fn add_stored(&mut self, tablet: TabletId, parts: &[&StoredTokens]) -> Result<()> {
        let mut all = Vec::new();
        for part in parts {
            let records = part.decode_records().ok_or_else(|| TabletError::Corruption {
                path: Arc::from(format!("manifest of tablet {tablet}")),
                detail: "checksum right, request tokens not decodable".to_owned(),
            })?;
            all.extend(records);
            self.forgotten_micros = self.forgotten_micros.max(part.forgotten_micros);
        }
        if parts.len() > 1 {
            all.sort_by_key(|(record, _)| (record.begun_micros(), record.id));
        }
        for (record, encoded_len) in all {
            let entry = Entry {
                record,
                encoded_len,
                seq: SeqNo::ZERO,
            };
            // Halves of a split have the records of the whole.
            if self.entries.contains_key(&entry.record.id) {
                continue;
            }
            while !self.has_space(&entry) {
                self.forget_oldest();
            }
            // Tablets that are replaced return the memory of the same records when their successors are served.
            self.grow(&entry);
            self.insert(entry);
        }
        Ok(())
    }

    /// Returns how many records were forgotten for want of memory. The table exchanges its oldest ones for the new one. A dated
    /// one that is older than all others is forgotten itself: else later dates would be forgotten for it. One without a date
    /// is kept, because its repetition would not be refused.
    fn add(&mut self, entry: Entry) -> u64 {
        let id = entry.record.id;
        // A replayed batch may be replayed again.
        if self.entries.contains_key(&id) {
            return 0;
        }
        let mut forgotten = 0;
        if !self.has_space(&entry) || self.memory.try_grow(entry.memory()).is_err() {
            let mut freed = 0;
            while freed < entry.memory() || !self.has_space(&entry) {
                forgotten += 1;
                let is_older = |oldest: &(i64, TokenId)| entry.record.start_micros.is_none() || *oldest < entry.age();
                let exchanged = match self.order.first().is_some_and(is_older) {
                    true => self.forget_oldest(),
                    false => None,
                };
                let Some(bytes) = exchanged else {
                    self.note_forgotten(&entry);
                    return forgotten;
                };
                freed += bytes;
            }
            self.grow(&entry);
        }
        self.insert(entry);
        forgotten
    }

    /// Takes memory that this table had before.
    fn grow(&self, entry: &Entry) {
        // It counts in any case, and others may have more than their part now.
        let _ = self.memory.grow(entry.memory());
    }

    fn insert(&mut self, entry: Entry) {
        let id = entry.record.id;
        self.order.insert(entry.age());
        self.encoded_bytes += entry.encoded_len;
        assert!(
            self.encoded_bytes <= STORED_BYTES_MAX,
            "a manifest has space for all records"
        );
        let former = self.entries.insert(id, entry);
        assert!(former.is_none(), "a request takes effect once");
    }

    /// Whether a manifest has space for another entry.
    fn has_space(&self, entry: &Entry) -> bool {
        self.encoded_bytes + entry.encoded_len <= STORED_BYTES_MAX
    }

    /// The memory of the oldest entry, which is no more; `None` if there is none.
    fn forget_oldest(&mut self) -> Option<usize> {
        let (_, id) = self.order.pop_first()?;
        let entry = self.entries.remove(&id).expect("the order has the entries");
        self.encoded_bytes -= entry.encoded_len;
        let left = self.memory.counted().saturating_sub(entry.memory());
        self.memory.shrink_to(left);
        self.note_forgotten(&entry);
        debug_assert_eq!(self.entries.len(), self.order.len(), "the order has each entry once");
        debug_assert!(
            !self.entries.is_empty() || (self.encoded_bytes, self.memory.counted()) == (0, 0),
            "an empty table takes no memory"
        );
        Some(entry.memory())
    }

    fn note_forgotten(&mut self, entry: &Entry) {
        if let Some(start) = entry.record.start_micros {
            self.forgotten_micros = self.forgotten_micros.max(start);
        }
    }

    fn forget_expired(&mut self, now_micros: i64) {
        let before = self.forgotten_micros;
        let is_expired = |known: &Known| {
            let oldest = known.order.first().and_then(|(_, id)| known.entries.get(id));
            oldest.is_some_and(|entry| entry.record.expires_micros < now_micros)
        };
        while is_expired(self) {
            self.forget_oldest();
        }
        debug_assert!(self.forgotten_micros >= before, "a date that may be forgotten stays so");
    }

    /// The records of all batches up to this sequence number, and `more`, for a manifest. The oldest are left out if all are too many.
    fn stored(&self, through: SeqNo, more: &[TokenRecord]) -> Option<StoredTokens> {
        let entries = self.order.iter().filter_map(|(_, id)| self.entries.get(id));
        let known = entries.filter(|entry| entry.seq <= through).map(|entry| &entry.record);
        let all: Vec<&TokenRecord> = known.chain(more).collect();
        let mut bytes: usize = all.iter().map(|record| record.encoded_len()).sum();
        let mut forgotten_micros = self.forgotten_micros;
        let mut records = Vec::with_capacity(bytes.min(STORED_BYTES_MAX));
        for record in all {
            if bytes > STORED_BYTES_MAX {
                bytes -= record.encoded_len();
                forgotten_micros = record
                    .start_micros
                    .map_or(forgotten_micros, |at| at.max(forgotten_micros));
            } else {
                record.encode(&mut records);
            }
        }
        assert_eq!(records.len(), bytes, "a record takes the bytes that it says");
        assert!(
            records.len() <= STORED_BYTES_MAX,
            "the records of a tablet have a limit in manifests"
        );
        let has_any = !records.is_empty() || forgotten_micros > 0;
        has_any.then(|| StoredTokens {
            records: records.into(),
            forgotten_micros,
        })
    }
}

impl Entry {
    /// Its place in the order.
    fn age(&self) -> (i64, TokenId) {
        (self.record.begun_micros(), self.record.id)
    }

    fn memory(&self) -> usize {
        RECORD_BYTES + 2 * self.record.cells_len()
    }
}

/// The records of a tablet that is made of several, from their manifests: the newest, if all are too many.
pub(crate) fn joined<'m>(
    tablet: TabletId,
    parts: impl Iterator<Item = &'m StoredTokens>,
    memory: &TokenMemory,
) -> Result<Option<StoredTokens>> {
    let parts: Vec<_> = parts.collect();
    let mut known = Known::empty(memory);
    known.add_stored(tablet, &parts)?;
    Ok(known.stored(SeqNo::ZERO, &[]))
}

#[cfg(test)]
mod tests;
