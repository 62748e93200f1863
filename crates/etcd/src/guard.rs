//! The guard decides whether a write transaction of one coordinator object may still take effect. Pure.
//!
//! A request can arrive at etcd long after its client gave up. So each write transaction is conditioned on the revision of
//! the guard, a key of this object alone, and writes the guard itself. A number of transactions follows:
//!
//! 1. A transaction is sent, conditioned on revision `r` of the guard. The guard gets its identifier.
//! 2. If no answer comes, a *settling* transaction with the same condition is sent, and repeated until it is answered.
//!    Exactly one of both takes effect.
//! 3. The guard then names the one that did. If it was the settling one, the first never takes effect, because revisions
//!    are not used twice, and it can be sent again.
//!
//! A transaction that was answered by an error is on its way no more, but may have happened before. The guard is read then.
//!
//! The guard is bound to a lease of an hour, so that objects of dead processes leave nothing behind. A guard that vanished
//! is made again; no request is conditioned on its absence, except the making.

use crate::messages::KeyValue;

/// The known state of the guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    /// It was never made, or has vanished.
    Absent,
    /// It has this revision, and no request that is conditioned on it is on its way.
    Known { revision: i64 },
    /// A transaction with this identifier and this condition was sent. No answer was seen.
    Pending { revision: i64, id: String },
}

/// The fate of a transaction that got no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It happened, at this revision.
    Happened { revision: i64 },
    /// It did not, and never will.
    Prevented,
    /// It may have happened; it will not happen any more.
    Unknown,
}

/// The value of the guard after a transaction with this identifier was prevented.
pub(crate) fn settled(id: &str) -> String {
    format!("{id} prevented")
}

/// The state of a guard that was just read.
pub(crate) fn found(guard: Option<&KeyValue>) -> Guard {
    match guard {
        Some(guard) => Guard::Known {
            revision: guard.mod_revision,
        },
        None => Guard::Absent,
    }
}

/// The fate of transaction `id`, from the guard after it or its settling transaction took effect.
pub(crate) fn fate(id: &str, guard: Option<&KeyValue>) -> Fate {
    match guard {
        Some(guard) if guard.value == id => Fate::Happened {
            revision: guard.mod_revision,
        },
        Some(guard) if guard.value == settled(id) => Fate::Prevented,
        // The lease of the guard ended meanwhile.
        _ => Fate::Unknown,
    }
}

/// The fate of transaction `id`, conditioned on this revision, from the guard after the transaction was answered.
pub(crate) fn fate_of_answered(id: &str, revision: i64, guard: Option<&KeyValue>) -> Fate {
    match guard {
        Some(guard) if guard.mod_revision == revision => Fate::Prevented,
        guard => fate(id, guard),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn guard(value: &str, revision: i64) -> KeyValue {
        KeyValue {
            value: Bytes::copy_from_slice(value.as_bytes()),
            mod_revision: revision,
            ..KeyValue::default()
        }
    }

    #[test]
    fn the_guard_tells_the_fate() {
        assert_eq!(fate("7", Some(&guard("7", 40))), Fate::Happened { revision: 40 });
        assert_eq!(fate("7", Some(&guard("7 prevented", 40))), Fate::Prevented);
        assert_eq!(fate("7", Some(&guard("70", 40))), Fate::Unknown);
        assert_eq!(fate("7", None), Fate::Unknown);
        let answered = |guard: Option<KeyValue>| fate_of_answered("7", 40, guard.as_ref());
        assert_eq!(answered(Some(guard("6", 40))), Fate::Prevented);
        assert_eq!(answered(Some(guard("7", 41))), Fate::Happened { revision: 41 });
        assert_eq!(answered(Some(guard("begun", 42))), Fate::Unknown);
        assert_eq!(answered(None), Fate::Unknown);
        assert_eq!(found(Some(&guard("7", 40))), Guard::Known { revision: 40 });
        assert_eq!(found(None), Guard::Absent);
    }

    /// etcd's side of it: one key with conditional writes.
    #[derive(Default)]
    struct Store {
        revision: i64,
        guard: Option<KeyValue>,
    }

    impl Store {
        /// A conditional transaction arrives.
        fn arrive(&mut self, condition: i64, value: &str) -> bool {
            let holds = self.guard.as_ref().is_some_and(|guard| guard.mod_revision == condition);
            if holds {
                self.revision += 1;
                self.guard = Some(guard(value, self.revision));
            }
            holds
        }

        /// The lease of the guard ends, and the guard is made again.
        fn make_again(&mut self) {
            self.revision += 2;
            self.guard = Some(guard("begun", self.revision));
        }
    }

    /// All orders in which a transaction, its settling transaction (twice) and a loss of the guard can arrive.
    #[test]
    fn a_transaction_takes_effect_once_or_never() {
        for order in orders(vec!["7", "7 prevented", "7 prevented", "loss"]) {
            let mut store = Store::default();
            store.make_again();
            let condition = store.revision;
            let mut happened = false;
            let mut told = None;
            for arrival in order {
                match arrival {
                    "loss" => store.make_again(),
                    value => {
                        let took_effect = store.arrive(condition, value);
                        assert!(!took_effect || told.is_none(), "nothing happens after the fate is told");
                        happened |= took_effect && value == "7";
                        if value != "7" && told.is_none() {
                            told = Some(fate("7", store.guard.as_ref()));
                        }
                    }
                }
            }
            match told {
                Some(Fate::Happened { .. }) => assert!(happened),
                Some(Fate::Prevented) => assert!(!happened),
                Some(Fate::Unknown) | None => {}
            }
        }
    }

    fn orders(rest: Vec<&'static str>) -> Vec<Vec<&'static str>> {
        if rest.is_empty() {
            return vec![Vec::new()];
        }
        let mut all = Vec::new();
        for i in 0..rest.len() {
            let mut others = rest.clone();
            let first = others.remove(i);
            all.extend(orders(others).into_iter().map(|mut order| {
                order.insert(0, first);
                order
            }));
        }
        all
    }
}
