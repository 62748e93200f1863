//! Builds one data block at a time.

use super::{
    COMMON_BYTES_MAX, ENDS_IN_TAIL, EXTENSION_BYTES, LAYOUT, SAME_SEQUENCE, SAME_TIMESTAMP, Trailer, WIDE, WORD_BYTES,
};
use crate::index::common_prefix;
use crate::limits::{RESTART_BYTES, RESTART_INTERVAL};
use stele_types::varint::zigzag;

/// Five varints and the kind.
const HEAD_BYTES_MAX: usize = 5 * 10 + 1;

/// The header of an entry, assembled in a fixed buffer so that no append checks for growth.
struct Head {
    bytes: [u8; HEAD_BYTES_MAX],
    len: usize,
}

impl Default for Head {
    fn default() -> Self {
        Head {
            bytes: [0; HEAD_BYTES_MAX],
            len: 0,
        }
    }
}

impl Head {
    #[inline]
    fn push(&mut self, byte: u8) {
        debug_assert!(
            self.len < HEAD_BYTES_MAX,
            "an entry's header has at most five varints and a kind"
        );
        if let Some(place) = self.bytes.get_mut(self.len) {
            *place = byte;
            self.len += 1;
        }
    }

    /// Appends a varint as `stele_types::varint` does.
    #[inline]
    fn put(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.push(value as u8);
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Appends the header. One of the usual length is copied by two moves of a word each, because a copy of variable
    /// length is a call.
    #[inline]
    fn append_to(&self, out: &mut Vec<u8>) {
        match self.bytes.first_chunk::<16>() {
            Some(usual) if self.len <= usual.len() => {
                let end = out.len() + self.len;
                out.extend_from_slice(usual);
                out.truncate(end);
            }
            _ => out.extend_from_slice(self.bytes()),
        }
    }
}

/// Collects the entries of one block. The common prefix of the restarts is known only at the end, so their bodies are
/// stored in full in `content` until then.
#[derive(Debug, Default)]
pub struct BlockBuilder {
    content: Vec<u8>,
    restarts: Vec<Restart>,
    /// The keys of the restarts, concatenated.
    keys: Vec<u8>,
    entries_in_interval: usize,
    /// The end of the first body, starting at its row's terminator.
    tail: Vec<u8>,
    timestamp_base: i64,
    timestamp: i64,
    seq_base: u64,
}

/// The first entry of an interval.
#[derive(Debug)]
struct Restart {
    at: usize,
    kind_at: usize,
    middle_at: usize,
    middle_len: usize,
    value_len: usize,
    key_at: usize,
    body_len: usize,
}

/// Length of a row's terminator, which is the same for all rows.
const TERMINATOR_BYTES: usize = 2;

impl BlockBuilder {
    /// Adds an entry. `common` is the length of the prefix that `body` shares with the previous entry's body (ignored
    /// for the first). The row with its terminator is the first `row_len` bytes of `body`.
    #[inline]
    pub fn add(&mut self, common: usize, row_len: usize, body: &[u8], trailer: Trailer, value: &[u8]) {
        let at = self.content.len();
        let restarts = self.interval_is_full(at);
        if restarts {
            if at == 0 {
                self.begin(row_len, body, trailer);
            }
            self.entries_in_interval = 0;
            self.timestamp = self.timestamp_base;
        }
        let shared = if restarts { 0 } else { common };
        assert!(
            shared <= body.len(),
            "an entry shares at most its whole body with the entry before it"
        );
        debug_assert!(row_len <= body.len(), "a row prefix lies within the body");
        let mut middle = body.get(shared..).unwrap_or(&[]);
        let mut kind = trailer.kind as u8;
        if !self.tail.is_empty()
            && let Some(before) = middle.strip_suffix(self.tail.as_slice())
        {
            middle = before;
            kind |= ENDS_IN_TAIL;
        }
        let timestamp = zigzag(trailer.timestamp.0.wrapping_sub(self.timestamp));
        let seq = zigzag(trailer.seq.wrapping_sub(self.seq_base) as i64);
        if timestamp == 0 {
            kind |= SAME_TIMESTAMP;
        }
        if seq == 0 {
            kind |= SAME_SEQUENCE;
        }
        let mut head = Head::default();
        head.put(shared as u64);
        head.put(middle.len() as u64);
        head.put(value.len() as u64);
        let kind_at = at + head.len;
        head.push(kind);
        if timestamp != 0 {
            head.put(timestamp);
        }
        if seq != 0 {
            head.put(seq);
        }
        let out = &mut self.content;
        out.reserve(HEAD_BYTES_MAX + middle.len() + value.len());
        head.append_to(out);
        let middle_at = out.len();
        out.extend_from_slice(middle);
        out.extend_from_slice(value);
        self.timestamp = trailer.timestamp.0;
        self.entries_in_interval += 1;
        debug_assert!(
            self.entries_in_interval <= RESTART_INTERVAL,
            "an interval has at most 16 entries"
        );
        debug_assert!(
            restarts || !self.restarts.is_empty(),
            "the first entry of a block begins an interval"
        );
        if restarts {
            self.restarts.push(Restart {
                at,
                kind_at,
                middle_at,
                middle_len: middle.len(),
                value_len: value.len(),
                key_at: self.keys.len(),
                body_len: body.len(),
            });
            self.keys.extend_from_slice(body);
            self.keys.extend_from_slice(&trailer.encode());
        }
    }

    /// Whether the entry that starts at `at` begins an interval.
    #[inline]
    fn interval_is_full(&self, at: usize) -> bool {
        let Some(restart) = self.restarts.last() else {
            return true;
        };
        self.entries_in_interval == RESTART_INTERVAL || at - restart.at >= RESTART_BYTES
    }

    /// Takes the column tail and the bases from the first entry, because the others are likely to share them.
    fn begin(&mut self, row_len: usize, body: &[u8], trailer: Trailer) {
        let tail = body.get(row_len.saturating_sub(TERMINATOR_BYTES)..).unwrap_or(&[]);
        if tail.len() <= COMMON_BYTES_MAX {
            self.tail.extend_from_slice(tail);
        }
        self.timestamp_base = trailer.timestamp.0;
        self.seq_base = trailer.seq;
    }

    /// Approximate size of the block if it were finished now: interval heads are not yet taken out of the entries.
    pub fn len(&self) -> usize {
        self.content.len() + 2 * self.restarts.len() + self.tail.len() + EXTENSION_BYTES + super::TAIL_BYTES
    }

    /// Whether it has no entry.
    pub fn is_empty(&self) -> bool {
        self.content.is_empty()
    }

    /// The block's content; the builder is empty afterwards.
    pub fn finish(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        self.finish_into(&mut out);
        out
    }

    /// Replaces the content of `out` by the block's content; the builder is empty afterwards.
    pub fn finish_into(&mut self, out: &mut Vec<u8>) {
        assert!(!self.restarts.is_empty(), "a finished block has at least one entry");
        out.clear();
        // Sealing appends the frame's tail.
        out.reserve(self.len() + 12 * self.restarts.len() + COMMON_BYTES_MAX + 256);
        let common = self.common().to_vec();
        let mut offsets = Vec::with_capacity(4 * self.restarts.len());
        let mut words = Vec::with_capacity(WORD_BYTES * self.restarts.len());
        let wide = self.restarts.last().is_some_and(|last| last.at > usize::from(u16::MAX));
        debug_assert!(
            self.bodies().all(|body| body.starts_with(&common)),
            "all restarts begin with the common bytes, because keys ascend"
        );
        for (n, restart) in self.restarts.iter().enumerate() {
            assert!(
                out.len() <= restart.at,
                "taking heads out of entries moves no entry back"
            );
            let offset = out.len() as u32;
            offsets.extend_from_slice(&offset.to_le_bytes()[..if wide { 4 } else { 2 }]);
            // A word exists: the trailer comes after `common` and is longer than a word.
            let word = self.keys.get(restart.key_at + common.len()..);
            debug_assert!(
                word.is_some_and(|rest| rest.len() >= WORD_BYTES),
                "a word lies within its key"
            );
            words.extend_from_slice(word.and_then(|rest| rest.get(..WORD_BYTES)).unwrap_or(&[0; WORD_BYTES]));
            let end = self.restarts.get(n + 1).map_or(self.content.len(), |next| next.at);
            let shared = restart.middle_len.min(common.len() + WORD_BYTES);
            let mut head = Head::default();
            head.put(shared as u64);
            head.put((restart.middle_len - shared) as u64);
            head.put(restart.value_len as u64);
            let piece = |start, end| self.content.get(start..end).unwrap_or(&[]);
            out.extend_from_slice(head.bytes());
            out.extend_from_slice(piece(restart.kind_at, restart.middle_at));
            out.extend_from_slice(piece(restart.middle_at + shared, end));
        }
        debug_assert_eq!(words.len(), WORD_BYTES * self.restarts.len(), "one word per restart");
        assert!(
            common.len() <= COMMON_BYTES_MAX && self.tail.len() <= COMMON_BYTES_MAX,
            "the lengths of common bytes and column tail fit into a byte each"
        );
        out.extend_from_slice(&offsets);
        out.extend_from_slice(&words);
        out.extend_from_slice(&common);
        out.extend_from_slice(&self.tail);
        out.extend_from_slice(&[common.len() as u8, self.tail.len() as u8]);
        out.extend_from_slice(&self.timestamp_base.to_le_bytes());
        out.extend_from_slice(&self.seq_base.to_le_bytes());
        let flags = if wide { LAYOUT | WIDE } else { LAYOUT };
        out.extend_from_slice(&(self.restarts.len() as u32 | flags).to_le_bytes());
        self.content.clear();
        self.restarts.clear();
        self.keys.clear();
        self.tail.clear();
        self.entries_in_interval = 0;
    }

    /// The common prefix of the bodies of all restarts, which is that of the first and the last one.
    fn common(&self) -> &[u8] {
        let (first, last) = (self.bodies().next(), self.bodies().next_back());
        let first = first.unwrap_or(&[]);
        let len = common_prefix(first, last.unwrap_or(&[])).min(COMMON_BYTES_MAX);
        first.get(..len).unwrap_or(&[])
    }

    /// The bodies of all restarts.
    fn bodies(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        let body = |restart: &Restart| self.keys.get(restart.key_at..restart.key_at + restart.body_len);
        self.restarts.iter().map(move |restart| body(restart).unwrap_or(&[]))
    }
}
