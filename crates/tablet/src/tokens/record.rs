//! The record of one request token, in log records and manifests.
//!
//! It has the identity of the request, its answer, and the time until which it is remembered. Byte table:
//! `docs/formats/request-tokens.md`.
//!
//! Invariant: a decoded record is encoded to the same bytes.

use stele_types::varint;
use stele_types::{Cell, CellKind, FamilyId, Labels, RequestToken, Timestamp, limits};
use xxhash_rust::xxh3::Xxh3;

/// Bits of a record's first byte: the request has the time of its first attempt.
const DATED: u8 = 0x01;
/// The condition of the request held.
const MATCHED: u8 = 0x02;
/// The cells that it wrote are in the record.
const HAS_CELLS: u8 = 0x04;

/// Most bytes of the cells of an answer. Increments of some columns take 30 bytes each; a larger answer is read again.
const CELLS_BYTES_MAX: usize = 1 << 10;

/// Most bytes of a record: flags, identity, two times, the length of the cells, and these.
pub(super) const RECORD_BYTES_MAX: usize = 1 + size_of::<u128>() + 3 * varint::LEN_MAX + CELLS_BYTES_MAX;

/// How long a nonce is remembered. HBase's servers remember one for as long, and its clients repeat calls for at most 20
/// minutes unless they are told otherwise.
const NONCE_MICROS: i64 = 30 * 60 * 1_000_000;

/// How long after its first attempt a dated request is accepted: as in Bigtable.
pub(super) const DATED_MICROS: i64 = 15 * 60 * 1_000_000;

/// The identity of a request: a hash of its row and its token. Two of a billion requests collide with a probability of 10⁻²¹.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenId(pub u128);

impl TokenId {
    /// Of a request for this row.
    pub fn of(token: &RequestToken, row: &[u8]) -> TokenId {
        let mut hasher = Xxh3::new();
        match token {
            RequestToken::Nonce { group, nonce } => {
                hasher.update(&[0]);
                hasher.update(&group.to_le_bytes());
                hasher.update(&nonce.to_le_bytes());
            }
            RequestToken::Dated { token, .. } => {
                hasher.update(&[1]);
                hasher.update(&(token.len() as u64).to_le_bytes());
                hasher.update(token);
            }
        }
        hasher.update(row);
        TokenId(hasher.digest128())
    }
}

/// The answer of a request that took effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whether its condition held.
    pub matched: bool,
    /// The cells that it wrote for its caller; `None` if they were too many to be remembered.
    pub written: Option<Vec<Cell>>,
}

/// A request that took effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRecord {
    pub(super) id: TokenId,
    /// Wall-clock microseconds. Later repetitions may be taken for new requests, or are refused if they are dated.
    pub(super) expires_micros: i64,
    /// The time of the first attempt, for dated requests.
    pub(super) start_micros: Option<i64>,
    matched: bool,
    /// Encoded.
    cells: Option<Box<[u8]>>,
}

impl TokenRecord {
    /// Of a request for a row that takes effect at this wall-clock time, with its answer.
    pub fn new(token: &RequestToken, row: &[u8], now_micros: i64, matched: bool, written: &[Cell]) -> TokenRecord {
        let start_micros = token.start_micros();
        let mut cells = Vec::new();
        for cell in written {
            put_cell(&mut cells, cell);
            if cells.len() > CELLS_BYTES_MAX {
                break;
            }
        }
        TokenRecord {
            id: TokenId::of(token, row),
            expires_micros: match start_micros {
                None => now_micros.saturating_add(NONCE_MICROS),
                Some(start) => start.saturating_add(DATED_MICROS),
            },
            start_micros,
            matched,
            cells: (cells.len() <= CELLS_BYTES_MAX).then(|| cells.into()),
        }
    }

    /// The identity of the request.
    pub fn id(&self) -> TokenId {
        self.id
    }

    /// The age by which it is forgotten: the time of the first attempt, or the time at which a request without a date took effect.
    pub(super) fn begun_micros(&self) -> i64 {
        let took_effect = || self.expires_micros.saturating_sub(NONCE_MICROS);
        self.start_micros.unwrap_or_else(took_effect)
    }

    /// The answer of the request.
    pub fn answer(&self) -> Answer {
        let decode = |cells: &[u8]| take_cells(cells).expect("cells are checked when a record is decoded");
        Answer {
            matched: self.matched,
            written: self.cells.as_deref().map(decode),
        }
    }

    /// Bytes of the cells in its answer.
    pub(super) fn cells_len(&self) -> usize {
        self.cells.as_ref().map_or(0, |cells| cells.len())
    }

    /// How many bytes it is encoded to.
    pub(super) fn encoded_len(&self) -> usize {
        let mut bytes = Vec::with_capacity(RECORD_BYTES_MAX.min(64 + self.cells_len()));
        self.encode(&mut bytes);
        bytes.len()
    }

    /// Appends the encoded record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        let before = out.len();
        out.push(
            bit(self.start_micros.is_some(), DATED) | bit(self.matched, MATCHED) | bit(self.cells.is_some(), HAS_CELLS),
        );
        out.extend_from_slice(&self.id.0.to_le_bytes());
        varint::put_u64(out, varint::zigzag(self.expires_micros));
        if let Some(start) = self.start_micros {
            varint::put_u64(out, varint::zigzag(start));
        }
        if let Some(cells) = &self.cells {
            varint::put_bytes(out, cells);
        }
        debug_assert!(
            out.len() - before <= RECORD_BYTES_MAX,
            "a record that is encoded can be decoded"
        );
    }

    /// Reads a record from the front of `input` and advances past it; `None` when it is not as the byte table says.
    pub fn take(input: &mut &[u8]) -> Option<TokenRecord> {
        let (&flags, rest) = input.split_first()?;
        let (id, rest) = rest.split_first_chunk::<{ size_of::<u128>() }>()?;
        *input = rest;
        let has = |bit: u8| flags & bit != 0;
        if flags & !(DATED | MATCHED | HAS_CELLS) != 0 {
            return None;
        }
        let expires_micros = varint::unzigzag(take_shortest(input)?);
        let start_micros = match has(DATED) {
            true => Some(varint::unzigzag(take_shortest(input)?)),
            false => None,
        };
        let cells = match has(HAS_CELLS) {
            true => Some(take_cell_bytes(input)?),
            false => None,
        };
        Some(TokenRecord {
            id: TokenId(u128::from_le_bytes(*id)),
            expires_micros,
            start_micros,
            matched: has(MATCHED),
            cells: cells.map(Box::from),
        })
    }
}

/// An integer in its shortest form, the only one that is written.
fn take_shortest(input: &mut &[u8]) -> Option<u64> {
    let before = *input;
    let value = varint::take_u64(input)?;
    let len = before.len() - input.len();
    let is_shortest = len == 1 || before.get(len - 1) != Some(&0);
    is_shortest.then_some(value)
}

/// The encoded cells of an answer, checked.
fn take_cell_bytes<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(take_shortest(input)?).ok()?;
    let (cells, rest) = input.split_at_checked(len)?;
    *input = rest;
    take_cells(cells).filter(|_| len <= CELLS_BYTES_MAX).map(|_| cells)
}

fn put_cell(out: &mut Vec<u8>, cell: &Cell) {
    debug_assert!(
        cell.family.0 != 0 && cell.labels == Labels::none(),
        "a rule writes cells of families, without labels"
    );
    varint::put_u32(out, cell.family.0);
    varint::put_bytes(out, &cell.qualifier);
    varint::put_u64(out, varint::zigzag(cell.timestamp.0));
    varint::put_bytes(out, &cell.value);
}

/// All cells of an answer.
fn take_cells(mut input: &[u8]) -> Option<Vec<Cell>> {
    let mut cells = Vec::new();
    while !input.is_empty() {
        cells.push(take_cell(&mut input)?);
    }
    Some(cells)
}

fn take_cell(input: &mut &[u8]) -> Option<Cell> {
    let family = FamilyId(varint::take_u32(input)?);
    let qualifier = varint::take_bytes(input)?;
    let timestamp = Timestamp(varint::unzigzag(varint::take_u64(input)?));
    let value = varint::take_bytes(input)?;
    if family.0 == 0 || qualifier.len() > limits::QUALIFIER_BYTES_MAX {
        return None;
    }
    Some(Cell {
        family,
        kind: CellKind::Put,
        qualifier: qualifier.to_vec().into(),
        timestamp,
        value: value.to_vec().into(),
        labels: Labels::none(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use proptest::prelude::*;

    fn cell(qualifier: &[u8], value: usize) -> Cell {
        Cell {
            family: FamilyId(3),
            kind: CellKind::Put,
            qualifier: Bytes::copy_from_slice(qualifier),
            timestamp: Timestamp(-5),
            value: vec![7; value].into(),
            labels: Labels::none(),
        }
    }

    fn nonce(nonce: u64) -> RequestToken {
        RequestToken::Nonce { group: 1, nonce }
    }

    fn dated(token: &'static [u8], start_micros: i64) -> RequestToken {
        let token = Bytes::from_static(token);
        RequestToken::Dated { token, start_micros }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        for (token, matched, written) in [
            (nonce(1), true, vec![cell(b"q", 8), cell(b"", 0)]),
            (dated(b"token", i64::MAX), false, vec![]),
            (dated(b"", i64::MIN), true, vec![]),
        ] {
            let record = TokenRecord::new(&token, b"row", 1_000, matched, &written);
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            assert_eq!(bytes.len(), record.encoded_len());
            let answer = Answer {
                matched,
                written: Some(written),
            };
            assert_eq!(record.answer(), answer);
            for cut in 0..bytes.len() {
                assert_eq!(TokenRecord::take(&mut &bytes[..cut]), None, "{cut}");
            }
            bytes.push(9);
            let mut input = &bytes[..];
            assert_eq!(TokenRecord::take(&mut input), Some(record));
            assert_eq!(input, [9]);
        }
    }

    #[test]
    fn a_large_answer_is_not_remembered() {
        let record = |value| TokenRecord::new(&nonce(1), b"row", 0, true, &[cell(b"q", value)]);
        assert!(record(1_000).answer().written.is_some());
        assert_eq!(record(1_024).answer().written, None);
        assert!(record(1_000).encoded_len() <= RECORD_BYTES_MAX);
    }

    #[test]
    fn a_request_is_of_one_row_and_one_token() {
        let ids = [
            TokenId::of(&nonce(1), b"row"),
            TokenId::of(&nonce(2), b"row"),
            TokenId::of(&nonce(1), b"other"),
            TokenId::of(&RequestToken::Nonce { group: 2, nonce: 1 }, b"row"),
            TokenId::of(&dated(b"tokenrow", 1), b""),
            TokenId::of(&dated(b"token", 1), b"row"),
        ];
        for (at, id) in ids.iter().enumerate() {
            assert!(!ids[..at].contains(id), "{at}");
        }
        // A client may not remember exactly when it began.
        assert_eq!(
            TokenId::of(&dated(b"token", 1), b"row"),
            TokenId::of(&dated(b"token", 2), b"row")
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_written_again(bytes in prop::collection::vec(any::<u8>(), 0..80), flags in 0u8..8) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = flags;
            }
            let mut input = &bytes[..];
            if let Some(record) = TokenRecord::take(&mut input) {
                let mut again = Vec::new();
                record.encode(&mut again);
                prop_assert_eq!(&again[..], &bytes[..bytes.len() - input.len()]);
            }
        }
    }
}
