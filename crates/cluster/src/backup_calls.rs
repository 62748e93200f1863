//! Backups at destinations, made by the leader, as calls to it.
//!
//! The leader alone changes the catalog, and knows which snapshots are being taken. So it makes and restores backups itself: it reads and
//! writes the shared data root. When its term ends, so does the work; the same order to the next leader continues it.

use crate::codec::{self, Outcome};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use stele_backup::Backups;
use stele_client::{
    BackupAdmin, BackupDestination, BackupOrder, BackupOutcome, BackupProgress, BackupWork, ServiceResult, WorkOrder,
};
use stele_types::Resource;

/// One call; the answer is the result of the method of [`BackupAdmin`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the methods of `BackupAdmin` and their parameters")]
pub(crate) enum BackupCall {
    Begin(Box<BackupOrder>),
    Work(u64),
    Cancel(u64),
    List(BackupDestination),
    Restorable(BackupDestination, Option<BackupDestination>),
    Works,
}

impl BackupCall {
    /// The operation and the resource for the audit log, as the server has them that the client has called; `None` for a call that
    /// changes nothing.
    pub(crate) fn audited(&self) -> Option<(&'static str, Resource)> {
        match self {
            BackupCall::Begin(_) => Some(("begin_backup_work", Resource::Cluster)),
            BackupCall::Cancel(_) => Some(("cancel_backup_work", Resource::Cluster)),
            BackupCall::Work(_) | BackupCall::Works | BackupCall::List(_) | BackupCall::Restorable(..) => None,
        }
    }
}

/// The number of a work that was begun, or the refusal of the leader: `Unavailable` is a work that runs, not a leader that is
/// looked for.
pub(crate) type Begun = Outcome<u64>;

/// A work, as it is sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SentWork {
    number: u64,
    progress: BackupProgress,
    outcome: Option<Outcome<BackupOutcome>>,
}

impl From<BackupWork> for SentWork {
    fn from(work: BackupWork) -> Self {
        SentWork {
            number: work.number,
            progress: work.progress,
            outcome: work.outcome.map(codec::outcome),
        }
    }
}

impl From<SentWork> for BackupWork {
    fn from(work: SentWork) -> Self {
        BackupWork {
            number: work.number,
            progress: work.progress,
            outcome: work.outcome.map(codec::result),
        }
    }
}

/// A work with its order, as they are sent.
pub(crate) type SentOrdered = (SentWork, WorkOrder);

/// Carries a call out, and encodes its answer.
pub(crate) async fn answer(backups: &Backups, call: BackupCall) -> ServiceResult<Bytes> {
    match call {
        BackupCall::Begin(order) => {
            let begun: Begun = codec::outcome(backups.begin(*order).await);
            codec::encode(&begun)
        }
        BackupCall::Work(number) => codec::encode(&SentWork::from(backups.work(number)?)),
        BackupCall::Works => {
            let works = backups.works().into_iter();
            let works: Vec<SentOrdered> = works.map(|ordered| (ordered.work.into(), ordered.order)).collect();
            codec::encode(&works)
        }
        BackupCall::Cancel(number) => {
            let outcome: Outcome = codec::outcome(backups.cancel(number));
            codec::encode(&outcome)
        }
        BackupCall::List(destination) => codec::encode(&backups.list(destination).await?),
        BackupCall::Restorable(destination, archive) => codec::encode(&backups.restorable(destination, archive).await?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_client::{BackupTask, OrderedWork, ServiceError};

    #[test]
    fn calls_and_works_are_sent_and_read() {
        let order = BackupOrder {
            destination: BackupDestination {
                address: "s3://bucket/b".to_owned(),
                options: vec![("secret_access_key".to_owned(), "hidden".to_owned())],
            },
            backup: "b".to_owned(),
            task: BackupTask::Create { tables: Vec::new() },
            bytes_per_second: Some(7),
            parallel: 2,
            digests: true,
            at: None,
            archive: None,
        };
        let call = BackupCall::Begin(Box::new(order.clone()));
        assert!(!format!("{call:?}").contains("hidden"), "logs do not show secrets");
        let bytes = codec::encode(&call).expect("encoded");
        let decoded: BackupCall = codec::decode(&bytes).expect("decoded");
        assert!(matches!(decoded, BackupCall::Begin(found) if *found == order));
        for outcome in [
            None,
            Some(Ok(BackupOutcome::default())),
            Some(Err(ServiceError::not_found("gone"))),
        ] {
            let work = BackupWork {
                number: 1 << 40,
                progress: BackupProgress::default(),
                outcome,
            };
            let bytes = codec::encode(&SentWork::from(work.clone())).expect("encoded");
            let sent: SentWork = codec::decode(&bytes).expect("decoded");
            assert_eq!(BackupWork::from(sent), work);
            let ordered = OrderedWork {
                work,
                order: WorkOrder {
                    task: "create".to_owned(),
                    backup: "b".to_owned(),
                    destination: "s3://bucket/b".to_owned(),
                    begun_micros: 1,
                    ended_micros: Some(2),
                },
            };
            let sent: SentOrdered = (ordered.work.clone().into(), ordered.order.clone());
            let (work, order) = codec::decode::<SentOrdered>(&codec::encode(&sent).expect("encoded")).expect("decoded");
            let sent = OrderedWork {
                work: work.into(),
                order,
            };
            assert_eq!(sent, ordered);
        }
    }
}
