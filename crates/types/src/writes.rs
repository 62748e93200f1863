//! The rows of one write request, in the form of the request.
//!
//! A front end that holds a request's bytes represents its rows *flat*: as a list of rows and a list of mutations for
//! all rows. Their keys, qualifiers and values are spans of those bytes. A batch of any size then takes three
//! allocations. Its values are copied for the first time into the commit log, a large one not even there. A caller with
//! separate rows gives them *owned*.
//!
//! Both forms have the same reader interface and are cheap to share. Each layer down to the tablets passes on the same
//! rows, or a selection of them.
//!
//! Invariant: every [`Span`] of flat rows lies within their bytes.

use crate::ids::Timestamp;
use crate::mutation::{Mutation, RowMutation};
use bytes::Bytes;
use std::sync::Arc;

/// A range of a request's bytes. Requests are bounded far below 4 GiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// The range from `start` to `end`; `None` when that is not a range of a request.
    #[inline]
    pub fn new(start: usize, end: usize) -> Option<Span> {
        let (start, end) = (u32::try_from(start).ok()?, u32::try_from(end).ok()?);
        (start <= end).then_some(Span { start, end })
    }

    /// Length in bytes.
    #[inline]
    pub fn len(self) -> usize {
        (self.end - self.start) as usize
    }

    /// Whether it has no bytes.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// The bytes of the range; `None` when `bytes` are shorter.
    #[inline]
    pub fn of(self, bytes: &[u8]) -> Option<&[u8]> {
        bytes.get(self.start as usize..self.end as usize)
    }
}

/// Rows to be changed, in the order of the request. Cloning shares them.
#[derive(Clone, Debug)]
pub struct RowWrites {
    rows: Arc<Rows>,
    /// Indexes into `rows`, each within it; all rows when absent.
    chosen: Option<Arc<[u32]>>,
    server_time: Option<ServerTime>,
}

/// The time of a server in mutations that were given none. Clocks of servers differ, so the server that has the rows replaces
/// it by its own: of two writes one after the other, the second has the later time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerTime {
    /// Every mutation of this time was given none.
    pub at: Timestamp,
    /// Another server has read its clock.
    pub is_foreign: bool,
}

#[derive(Debug)]
enum Rows {
    Owned(Vec<RowMutation>),
    Flat(Flat),
}

#[derive(Debug)]
struct Flat {
    bytes: Bytes,
    rows: Vec<FlatRow>,
    /// Of all rows, in order.
    mutations: Vec<Mutation<Span>>,
}

#[derive(Clone, Copy, Debug)]
struct FlatRow {
    key: Span,
    /// The end of its mutations, which begin at the end of the previous row's.
    mutations_end: u32,
}

/// One of the rows.
#[derive(Clone, Copy, Debug)]
pub struct RowWrite<'a> {
    /// Its key.
    pub row: &'a [u8],
    mutations: Mutations<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Mutations<'a> {
    Owned(&'a [Mutation]),
    Flat(&'a [Mutation<Span>], &'a [u8]),
}

impl From<Vec<RowMutation>> for RowWrites {
    fn from(rows: Vec<RowMutation>) -> Self {
        RowWrites {
            rows: Arc::new(Rows::Owned(rows)),
            chosen: None,
            server_time: None,
        }
    }
}

impl RowWrites {
    /// Number of rows.
    pub fn len(&self) -> usize {
        match (&self.chosen, &*self.rows) {
            (Some(chosen), _) => chosen.len(),
            (None, Rows::Owned(rows)) => rows.len(),
            (None, Rows::Flat(flat)) => flat.rows.len(),
        }
    }

    /// Number of mutations, of all rows that were laid out together.
    pub fn mutations(&self) -> usize {
        match &*self.rows {
            Rows::Owned(rows) => rows.iter().map(|row| row.mutations.len()).sum(),
            Rows::Flat(flat) => flat.mutations.len(),
        }
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The row with this number.
    #[inline]
    pub fn get(&self, index: usize) -> Option<RowWrite<'_>> {
        match &self.chosen {
            Some(chosen) => self.rows.get(*chosen.get(index)? as usize),
            None => self.rows.get(index),
        }
    }

    /// All rows, in order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = RowWrite<'_>> + Clone {
        (0..self.len()).map_while(|index| self.get(index))
    }

    /// The named rows, in this order; names of absent rows are ignored.
    pub fn choose(&self, rows: impl IntoIterator<Item = usize>) -> RowWrites {
        let index = |row: usize| match &self.chosen {
            Some(chosen) => chosen.get(row).copied(),
            None => u32::try_from(row).ok().filter(|_| row < self.len()),
        };
        RowWrites {
            rows: self.rows.clone(),
            chosen: Some(rows.into_iter().filter_map(index).collect()),
            server_time: self.server_time,
        }
    }

    /// The time of a server that mutations have.
    pub fn server_time(&self) -> Option<ServerTime> {
        self.server_time
    }

    /// The same rows with this note about their times.
    #[must_use]
    pub fn with_server_time(self, server_time: Option<ServerTime>) -> RowWrites {
        RowWrites { server_time, ..self }
    }

    /// The same rows with this time in place of that of another server.
    #[must_use]
    pub fn at_server_time(&self, now: Timestamp) -> RowWrites {
        let Some(former) = self.server_time else {
            return self.clone();
        };
        let rows = match &*self.rows {
            Rows::Owned(rows) => {
                let at = |row: &RowMutation| RowMutation {
                    row: row.row.clone(),
                    mutations: row.mutations.iter().map(|m| later(m, former.at, now)).collect(),
                };
                Rows::Owned(rows.iter().map(at).collect())
            }
            Rows::Flat(flat) => Rows::Flat(Flat {
                bytes: flat.bytes.clone(),
                rows: flat.rows.clone(),
                mutations: flat.mutations.iter().map(|m| later(m, former.at, now)).collect(),
            }),
        };
        RowWrites {
            rows: Arc::new(rows),
            chosen: self.chosen.clone(),
            server_time: Some(ServerTime {
                at: now,
                is_foreign: false,
            }),
        }
    }
}

/// The mutation, at `now` if it is at `former`.
fn later<B: Clone>(mutation: &Mutation<B>, former: Timestamp, now: Timestamp) -> Mutation<B> {
    match mutation.is_at(former) {
        true => mutation.clone().at(now),
        false => mutation.clone(),
    }
}

impl Rows {
    #[inline]
    fn get(&self, index: usize) -> Option<RowWrite<'_>> {
        match self {
            Rows::Owned(rows) => rows.get(index).map(|row| RowWrite {
                row: &row.row,
                mutations: Mutations::Owned(&row.mutations),
            }),
            Rows::Flat(flat) => {
                let row = flat.rows.get(index)?;
                let start = match index.checked_sub(1) {
                    Some(before) => flat.rows.get(before)?.mutations_end,
                    None => 0,
                };
                Some(RowWrite {
                    row: row.key.of(&flat.bytes)?,
                    mutations: Mutations::Flat(
                        flat.mutations.get(start as usize..row.mutations_end as usize)?,
                        &flat.bytes,
                    ),
                })
            }
        }
    }
}

impl<'a> RowWrite<'a> {
    /// Calls `visit` with each of its mutations, in order.
    #[inline]
    pub fn for_each(self, mut visit: impl FnMut(Mutation<&'a [u8]>)) {
        match self.mutations {
            Mutations::Owned(mutations) => mutations.iter().for_each(|m| visit(m.map(|bytes| &bytes[..]))),
            Mutations::Flat(mutations, bytes) => mutations
                .iter()
                .for_each(|m| visit(m.map(|span| span.of(bytes).unwrap_or_default()))),
        }
    }

    /// Number of its mutations.
    pub fn mutations(self) -> usize {
        match self.mutations {
            Mutations::Owned(mutations) => mutations.len(),
            Mutations::Flat(mutations, _) => mutations.len(),
        }
    }

    /// The value that the mutation with this number puts, as a slice of the request.
    pub fn shared_value(self, number: usize, rows: &RowWrites) -> Option<Bytes> {
        match (self.mutations, &*rows.rows) {
            (Mutations::Owned(mutations), _) => match mutations.get(number)? {
                Mutation::Put { value, .. } => Some(value.clone()),
                _ => None,
            },
            (Mutations::Flat(mutations, _), Rows::Flat(flat)) => match mutations.get(number)? {
                Mutation::Put { value, .. } => {
                    value.of(&flat.bytes)?;
                    Some(flat.bytes.slice(value.start as usize..value.end as usize))
                }
                _ => None,
            },
            (Mutations::Flat(..), Rows::Owned(_)) => None,
        }
    }

    /// A copy of the row with owned bytes.
    pub fn to_owned(self) -> RowMutation {
        let mut mutations = Vec::new();
        self.for_each(|m| mutations.push(m.map(|bytes| Bytes::copy_from_slice(bytes))));
        RowMutation {
            row: Bytes::copy_from_slice(self.row),
            mutations,
        }
    }
}

/// Builds flat rows over the bytes of a request: the mutations of a row, then its key.
#[derive(Debug)]
pub struct RowWritesBuilder {
    flat: Flat,
}

impl RowWritesBuilder {
    /// An empty builder with capacity for `rows` rows of one mutation each.
    pub fn over(bytes: Bytes, rows: usize) -> Self {
        RowWritesBuilder {
            flat: Flat {
                bytes,
                rows: Vec::with_capacity(rows),
                mutations: Vec::with_capacity(rows),
            },
        }
    }

    /// The bytes that the spans refer to.
    pub fn bytes(&self) -> &Bytes {
        &self.flat.bytes
    }

    /// Number of mutations so far.
    pub fn mutations(&self) -> usize {
        self.flat.mutations.len()
    }

    /// Adds a mutation to the row that ends next. Adds nothing and returns `None` when a span is outside the bytes.
    #[inline]
    #[must_use = "nothing is added when this is None"]
    pub fn push(&mut self, mutation: Mutation<Span>) -> Option<()> {
        let within = |span: &Span| span.of(&self.flat.bytes).is_some();
        let fits = match &mutation {
            Mutation::Put { qualifier, value, .. } => within(qualifier) && within(value),
            Mutation::ExpiringPut { qualifier, stored, .. } => within(qualifier) && within(stored),
            Mutation::Merge { qualifier, operand, .. } => within(qualifier) && within(operand),
            Mutation::DeleteColumn { qualifier, .. } | Mutation::DeleteVersion { qualifier, .. } => within(qualifier),
            Mutation::DeleteRow { .. } | Mutation::DeleteFamily { .. } | Mutation::DeleteFamilyVersion { .. } => true,
        };
        fits.then(|| self.flat.mutations.push(mutation))
    }

    /// Ends a row. Adds no row and returns `None` when the key is outside the bytes.
    #[inline]
    #[must_use = "there is no row when this is None"]
    pub fn end_row(&mut self, key: Span) -> Option<()> {
        key.of(&self.flat.bytes)?;
        let mutations_end = u32::try_from(self.flat.mutations.len()).ok()?;
        self.flat.rows.push(FlatRow { key, mutations_end });
        Some(())
    }

    /// The rows.
    pub fn finish(self) -> RowWrites {
        RowWrites {
            rows: Arc::new(Rows::Flat(self.flat)),
            chosen: None,
            server_time: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{FamilyId, Timestamp};

    fn put<B>(qualifier: B, value: B) -> Mutation<B> {
        Mutation::Put {
            family: FamilyId(1),
            qualifier,
            timestamp: Timestamp(7),
            value,
        }
    }

    fn span(start: usize, end: usize) -> Span {
        Span::new(start, end).unwrap()
    }

    fn owned(writes: &RowWrites) -> Vec<RowMutation> {
        writes.iter().map(RowWrite::to_owned).collect()
    }

    #[test]
    fn only_times_of_the_other_server_are_replaced() {
        let mutations = vec![
            put(Bytes::from_static(b"q"), Bytes::new()),
            put(Bytes::from_static(b"q"), Bytes::new()).at(Timestamp(8)),
            Mutation::DeleteRow { up_to: Timestamp(7) },
        ];
        let row = RowMutation {
            row: Bytes::from_static(b"a"),
            mutations,
        };
        let foreign = ServerTime {
            at: Timestamp(7),
            is_foreign: true,
        };
        let writes = RowWrites::from(vec![row.clone(), row]).with_server_time(Some(foreign));
        let times = |writes: &RowWrites| {
            let mut times = Vec::new();
            writes.iter().for_each(|row| row.for_each(|m| times.push(m.time().0)));
            times
        };
        let later = writes.choose([1]).at_server_time(Timestamp(9));
        assert_eq!(times(&later), [9, 8, 9]);
        assert!(later.server_time().is_some_and(|time| !time.is_foreign));
        assert_eq!(times(&writes), [7, 8, 7, 7, 8, 7]);
        let mut builder = RowWritesBuilder::over(Bytes::from_static(b"aq"), 1);
        builder.push(put(span(1, 2), span(2, 2))).unwrap();
        builder.end_row(span(0, 1)).unwrap();
        let flat = builder.finish();
        assert_eq!(times(&flat.at_server_time(Timestamp(9))), [7], "a client has given it");
        let flat = flat.with_server_time(Some(foreign));
        assert_eq!(times(&flat.at_server_time(Timestamp(9))), [9]);
    }

    #[test]
    fn flat_rows_read_like_owned_ones() {
        let mut builder = RowWritesBuilder::over(Bytes::from_static(b"abqvw"), 2);
        builder.push(put(span(2, 3), span(3, 5))).unwrap();
        builder.push(Mutation::DeleteRow { up_to: Timestamp::MAX }).unwrap();
        builder.end_row(span(0, 1)).unwrap();
        builder.push(put(span(2, 3), span(4, 4))).unwrap();
        builder.end_row(span(0, 2)).unwrap();
        assert_eq!(builder.push(put(span(2, 3), span(4, 6))), None);
        assert_eq!(builder.end_row(span(5, 6)), None);
        assert_eq!(builder.mutations(), 3);
        let flat = builder.finish();
        let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
        let expected = vec![
            RowMutation {
                row: bytes("a"),
                mutations: vec![
                    put(bytes("q"), bytes("vw")),
                    Mutation::DeleteRow { up_to: Timestamp::MAX },
                ],
            },
            RowMutation {
                row: bytes("ab"),
                mutations: vec![put(bytes("q"), bytes(""))],
            },
        ];
        assert_eq!(owned(&flat), expected);
        for writes in [flat, RowWrites::from(expected.clone())] {
            for (row, owned) in writes.iter().zip(&expected) {
                for (number, mutation) in owned.mutations.iter().enumerate() {
                    let value = match mutation {
                        Mutation::Put { value, .. } => Some(value.clone()),
                        _ => None,
                    };
                    assert_eq!(row.shared_value(number, &writes), value);
                }
                assert_eq!(row.shared_value(owned.mutations.len(), &writes), None);
            }
            assert_eq!((writes.len(), writes.get(2).is_none()), (2, true));
            let swapped = writes.choose([1, 0, 5]);
            assert_eq!(owned(&swapped), [expected[1].clone(), expected[0].clone()]);
            assert_eq!(owned(&swapped.choose([1])), [expected[0].clone()]);
            assert!(swapped.choose([2]).is_empty());
        }
    }

    #[test]
    fn spans_are_places() {
        assert_eq!(Span::new(2, 1), None);
        assert_eq!(Span::new(0, usize::MAX), None);
        assert_eq!(
            (span(1, 3).len(), span(1, 1).is_empty(), span(1, 3).is_empty()),
            (2, true, false)
        );
        assert_eq!(span(1, 3).of(b"abc"), Some(&b"bc"[..]));
        assert_eq!(span(1, 3).of(b"ab"), None);
    }
}
