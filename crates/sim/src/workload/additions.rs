//! Counters: read-modify-writes add one in a family of values, and aggregates add one in another.
//!
//! Half of the additions have a token. Clients repeat these, those of unknown outcome as well as acknowledged ones, some
//! operations or lives of the server later. An addition counts once however often it is asked for, and each repetition of an
//! acknowledged one gets the sum of the first response.

use super::{COUNTS, SUMS, Workload, number, outcome, table};
use crate::cluster::Node;
use crate::history::Outcome;
use bytes::Bytes;
use stele_client::{RmwOperation, RmwRule, RowOperation, Step, TableService as _};
use stele_types::{ErrorKind, Mutation, RequestToken, Timestamp};

/// Additions that clients may still repeat: enough to reach over several lives of the server.
const REMEMBERED_MAX: usize = 64;

/// How an addition is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Increment,
    Merge,
}

/// An addition that may be repeated.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    row: Bytes,
    kind: Kind,
    token: RequestToken,
    /// Its number in the history of the counter.
    addition: usize,
    /// The sum in the response, once it is acknowledged; only increments have one.
    acknowledged: Option<Option<i64>>,
}

impl Kind {
    /// The counter in a row.
    fn counter(self, row: &[u8]) -> Vec<u8> {
        let suffix: &[u8] = match self {
            Kind::Increment => b"/c",
            Kind::Merge => b"/s",
        };
        [row, suffix].concat()
    }

    fn step(self) -> Step {
        match self {
            Kind::Increment => Step::Modify(RmwRule::new(COUNTS, Bytes::new(), RmwOperation::Increment(1))),
            Kind::Merge => Step::Mutate(Mutation::Merge {
                family: SUMS,
                qualifier: Bytes::new(),
                timestamp: Timestamp(1),
                operand: Bytes::copy_from_slice(&1i64.to_be_bytes()),
            }),
        }
    }
}

/// The outcome of an attempt.
struct Attempt {
    outcome: Outcome,
    told: Option<i64>,
    /// Whether the token is too old, or too young after the clock was set back.
    is_refused_by_date: bool,
}

impl Workload {
    pub(super) async fn increment(&self, node: &Node) {
        self.begin_addition(node, Kind::Increment).await;
    }

    pub(super) async fn add(&self, node: &Node) {
        self.begin_addition(node, Kind::Merge).await;
    }

    async fn begin_addition(&self, node: &Node, kind: Kind) {
        let row = self.row('n');
        let (name, never) = (kind.counter(&row), node.is_outlived());
        let token = (self.below(2) == 0).then(|| RequestToken::Dated {
            token: Bytes::copy_from_slice(&self.next_value().to_be_bytes()),
            start_micros: self.cluster.env().wall_micros(),
        });
        let addition = self.histories.lock().begin_addition(&name, never);
        let Attempt { outcome, told, .. } = self.attempt(node, kind, &row, token.clone()).await;
        self.end_addition(&name, addition, (outcome, told), never);
        let is_worth_repeating = !never && outcome != Outcome::Refused;
        if let Some(token) = token.filter(|_| is_worth_repeating) {
            self.remember(Sent {
                row,
                kind,
                token,
                addition,
                acknowledged: (outcome == Outcome::Acknowledged).then_some(told),
            });
        }
    }

    async fn attempt(&self, node: &Node, kind: Kind, row: &Bytes, token: Option<RequestToken>) -> Attempt {
        let request = RowOperation {
            id: None,
            table: table(),
            row: row.clone(),
            condition: None,
            steps: vec![kind.step()],
            otherwise: Vec::new(),
            durability: self.durability(),
            token,
        };
        let router = node.router.clone();
        let answer = self.ask(node, async move { router.row_operation(request).await }).await;
        let Ok(answer) = answer else {
            return Attempt {
                outcome: Outcome::Unknown,
                told: None,
                is_refused_by_date: false,
            };
        };
        let done = answer.as_ref().ok();
        Attempt {
            outcome: outcome(&answer),
            told: done.and_then(|done| number(&done.written.first()?.value)),
            is_refused_by_date: answer.is_err_and(|error| error.kind == ErrorKind::FailedPrecondition),
        }
    }

    fn remember(&self, sent: Sent) {
        let mut remembered = self.sent.lock();
        if remembered.len() == REMEMBERED_MAX {
            remembered.pop_front();
        }
        remembered.push_back(sent);
    }

    /// Repeats an addition that has a token.
    pub(super) async fn repeat(&self, node: &Node) {
        let sent = {
            let mut remembered = self.sent.lock();
            let count = remembered.len() as u64;
            let index = (count > 0).then(|| self.below(count) as usize);
            index.and_then(|index| remembered.remove(index))
        };
        let Some(sent) = sent else {
            return;
        };
        if node.is_outlived() {
            self.remember(sent);
            return;
        }
        match sent.acknowledged {
            Some(told) => self.repeat_acknowledged(node, sent, told).await,
            None => self.repeat_in_doubt(node, sent).await,
        }
    }

    /// The first attempt has taken effect, so this one has none of its own.
    async fn repeat_acknowledged(&self, node: &Node, sent: Sent, told: Option<i64>) {
        let again = self.attempt(node, sent.kind, &sent.row, Some(sent.token.clone())).await;
        let what = format!("repeat {:?} of {}", sent.kind, sent.row.escape_ascii());
        self.cluster.sim().note(&format!("{what}: {:?}", again.outcome));
        if again.outcome == Outcome::Acknowledged && again.told != told {
            self.violate(format!("{what}: told {:?} after {told:?}", again.told));
        }
        if !again.is_refused_by_date {
            self.remember(sent);
        }
    }

    /// The first attempt may have taken effect. So a refusal of this one says nothing about the addition.
    async fn repeat_in_doubt(&self, node: &Node, mut sent: Sent) {
        let name = sent.kind.counter(&sent.row);
        self.histories.lock().reopen_addition(&name, sent.addition);
        let again = self.attempt(node, sent.kind, &sent.row, Some(sent.token.clone())).await;
        let outcome = match again.outcome {
            Outcome::Refused | Outcome::Failed => Outcome::Unknown,
            outcome => outcome,
        };
        self.end_addition(&name, sent.addition, (outcome, again.told), false);
        if outcome == Outcome::Acknowledged {
            sent.acknowledged = Some(again.told);
        }
        if !again.is_refused_by_date {
            self.remember(sent);
        }
    }

    fn end_addition(&self, name: &[u8], addition: usize, (outcome, told): (Outcome, Option<i64>), never: bool) {
        let checked = self.histories.lock().end_addition(name, addition, outcome, told);
        self.note_write(&format!("add to {} told {told:?}", name.escape_ascii()), outcome, never);
        if let Err(why) = checked {
            self.violate(format!("{}: {why}", name.escape_ascii()));
        }
    }
}
