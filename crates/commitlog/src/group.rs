//! Groups: the records of one group commit, and the part that waits for its sync.

use crate::error::LogError;
use crate::format::{GROUP_HEADER_BYTES, Payload, Record, RecordRef};
use std::collections::{BTreeSet, VecDeque};
use stele_types::Durability;

/// The receiver of a record's outcome, called once, in log order for each tablet, on the thread that commits. It applies the
/// record to its memtable and wakes the writer. It must be quick and must not block.
pub trait Completion: Send + Sync + 'static {
    /// The record is as durable as asked, or has been refused.
    fn complete(self, outcome: Result<(), LogError>);
}

/// A record on its way into the log.
pub struct Append<C> {
    /// The record to write.
    pub record: Record,
    /// How durable it must be when `done` is told.
    pub durability: Durability,
    /// Told the outcome.
    pub done: C,
}

/// The cost of a queued record in bytes of the queue, in addition to its payload: about its size in memory. Bounds the number
/// of small records that wait.
const RECORD_COST: usize = 256;

/// The share of a queue of `queue_bytes` that a payload takes.
pub(crate) fn queue_cost(payload_bytes: usize, queue_bytes: usize) -> usize {
    payload_bytes.saturating_add(RECORD_COST).min(queue_bytes)
}

/// A record is bound if it asks for a sync. A record behind such a one of the same tablet is bound, too, because a tablet's
/// records are applied in order. The parts are two groups in the file, so that the free one counts even if the sync fails.
/// Within a tablet the order of submission is preserved; between tablets there is none.
pub(crate) struct Group<C> {
    appends: Vec<Append<C>>,
    free: usize,
}

impl<C> Group<C> {
    /// Takes records off the front of the queue, at least one where there is any. Several take `bytes_max` in the file at
    /// most, the header of their group included.
    pub(crate) fn gather(queue: &mut VecDeque<Append<C>>, bytes_max: usize, records_max: usize) -> Group<C> {
        let mut bytes = GROUP_HEADER_BYTES;
        let mut count = 0;
        for append in queue.iter().take(records_max) {
            bytes = bytes.saturating_add(append.record.borrowed().frame_len());
            if count > 0 && bytes > bytes_max {
                break;
            }
            count += 1;
        }
        assert!(count <= records_max, "a group has a bounded number of records");
        Group::of(queue.drain(..count).collect())
    }

    fn of(appends: Vec<Append<C>>) -> Group<C> {
        let syncs = appends.iter().filter(|a| a.durability == Durability::Sync).count();
        if syncs == 0 || syncs == appends.len() {
            let free = appends.len() - syncs;
            return Group { appends, free };
        }
        let mut bound_tablets = BTreeSet::new();
        let (mut free, mut bound) = (Vec::with_capacity(appends.len()), Vec::with_capacity(syncs));
        for append in appends {
            let tablet = append.record.tablet;
            if append.durability == Durability::Sync || bound_tablets.contains(&tablet) {
                bound_tablets.insert(tablet);
                bound.push(append);
            } else {
                free.push(append);
            }
        }
        let count = free.len();
        assert!(bound.len() >= syncs, "each record that asks for a sync is bound to it");
        free.append(&mut bound);
        Group {
            appends: free,
            free: count,
        }
    }

    /// The records that need no sync.
    pub(crate) fn free(&self) -> Part<'_, C> {
        Part(self.appends.get(..self.free).unwrap_or_default())
    }

    /// The records that wait for the sync.
    pub(crate) fn bound(&self) -> Part<'_, C> {
        Part(self.appends.get(self.free..).unwrap_or_default())
    }

    /// The free and the bound records.
    pub(crate) fn into_parts(mut self) -> (Vec<Append<C>>, Vec<Append<C>>) {
        assert!(
            self.free <= self.appends.len(),
            "a group is split where its second part begins"
        );
        let bound = self.appends.split_off(self.free);
        (self.appends, bound)
    }

    /// Puts all records back to the front of the queue, in their order.
    pub(crate) fn put_back(self, queue: &mut VecDeque<Append<C>>) {
        self.appends
            .into_iter()
            .rev()
            .for_each(|append| queue.push_front(append));
    }
}

/// Some records of a group.
pub(crate) struct Part<'a, C>(pub(crate) &'a [Append<C>]);

impl<'a, C> Part<'a, C> {
    /// The records that go into the log.
    pub(crate) fn records(&self) -> impl Iterator<Item = RecordRef<'a>> + Clone + use<'a, C> {
        logged(self.0).map(|append| append.record.borrowed())
    }

    /// Their payloads.
    pub(crate) fn payloads(&self) -> impl Iterator<Item = &'a Payload> + use<'a, C> {
        logged(self.0).map(|append| &append.record.payload)
    }

    /// Whether nothing of it goes into the log.
    pub(crate) fn is_unlogged(&self) -> bool {
        logged(self.0).next().is_none()
    }
}

fn logged<C>(appends: &[Append<C>]) -> impl Iterator<Item = &Append<C>> + Clone {
    appends.iter().filter(|append| append.durability != Durability::None)
}

/// Tells every record its outcome. A record that needs no log succeeds even if the log fails.
pub(crate) fn complete<C: Completion>(appends: impl Iterator<Item = Append<C>>, outcome: &Result<(), LogError>) {
    for append in appends {
        append.done.complete(match append.durability {
            Durability::None => Ok(()),
            Durability::Flush | Durability::Sync => outcome.clone(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::RECORD_HEADER_BYTES;
    use bytes::Bytes;
    use stele_types::{SeqNo, TabletId};

    fn check(records: &[(u64, u64, Durability)], free: &[(u64, u64)], bound: &[(u64, u64)]) {
        let append = |&(tablet, n, durability)| Append {
            record: Record {
                tablet: TabletId(tablet),
                first: SeqNo(n),
                last: SeqNo(n),
                payload: Payload::new(Bytes::from_static(b"x")),
            },
            durability,
            done: (),
        };
        let mut queue: VecDeque<Append<()>> = records.iter().map(append).collect();
        let group = Group::gather(&mut queue, usize::MAX, usize::MAX);
        let names = |part: Part<'_, ()>| {
            part.0
                .iter()
                .map(|a| (a.record.tablet.0, a.record.first.0))
                .collect::<Vec<_>>()
        };
        assert_eq!(names(group.free()), free);
        assert_eq!(names(group.bound()), bound);
        group.put_back(&mut queue);
        assert_eq!(queue.len(), records.len());
    }

    #[test]
    fn only_what_must_waits_for_the_sync() {
        use Durability::{Flush, None, Sync};
        check(&[(1, 1, Flush), (2, 1, None)], &[(1, 1), (2, 1)], &[]);
        check(&[(1, 1, Sync), (1, 2, Sync)], &[], &[(1, 1), (1, 2)]);
        check(
            &[(1, 1, Flush), (1, 2, Sync), (2, 1, Flush), (1, 3, None), (2, 2, Flush)],
            &[(1, 1), (2, 1), (2, 2)],
            &[(1, 2), (1, 3)],
        );
    }

    #[test]
    fn a_group_ends_at_its_limits_but_is_never_empty() {
        let append = |n| Append {
            record: Record {
                tablet: TabletId(1),
                first: SeqNo(n),
                last: SeqNo(n),
                payload: Payload::new(Bytes::from_static(b"twelve bytes")),
            },
            durability: Durability::Flush,
            done: (),
        };
        let mut queue: VecDeque<Append<()>> = (0..10).map(append).collect();
        let [one, two] = [1, 2].map(|records| GROUP_HEADER_BYTES + records * (RECORD_HEADER_BYTES + 12));
        assert_eq!(Group::gather(&mut queue, 1, 10).free().0.len(), 1);
        assert_eq!(Group::gather(&mut queue, one, 10).free().0.len(), 1);
        assert_eq!(Group::gather(&mut queue, two, 10).free().0.len(), 2);
        assert_eq!(Group::gather(&mut queue, two - 1, 10).free().0.len(), 1);
        assert_eq!(Group::gather(&mut queue, 1000, 3).free().0.len(), 3);
        assert_eq!(Group::gather(&mut queue, 1000, 10).free().0.len(), 2);
    }
}
