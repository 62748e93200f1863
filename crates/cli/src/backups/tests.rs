//! Tests of backups: the orders of a work, and texts.

use super::*;
use crate::client::fake::{answer, serve};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{self, Poll};
use stele_adminapi::{BEGIN_BACKUP_WORK_PATH, CANCEL_BACKUP_WORK_PATH, GET_BACKUP_WORK_PATH};
use tokio::sync::Notify;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Service, http};

/// A server whose work is in one state after the other, and is not known after them.
#[derive(Clone, Default)]
struct Works {
    /// `None` is a start of the server.
    states: Arc<Mutex<VecDeque<Option<BackupWork>>>>,
    orders: Arc<AtomicUsize>,
    cancellations: Arc<AtomicUsize>,
    /// Orders are not answered.
    takes_no_orders: bool,
    /// Questions for the state are not answered.
    is_silent: bool,
    /// A call arrived, by its kind.
    ordered: Arc<Notify>,
    asked: Arc<Notify>,
    cancelled: Arc<Notify>,
}

impl Works {
    fn new(states: impl IntoIterator<Item = Option<BackupWork>>) -> Works {
        let works = Works::default();
        works.states.lock().unwrap().extend(states);
        works
    }

    fn orders(&self) -> usize {
        self.orders.load(Ordering::Relaxed)
    }

    async fn respond(&self, request: http::Request<Body>) -> http::Response<Body> {
        match request.uri().path() {
            BEGIN_BACKUP_WORK_PATH => {
                self.orders.fetch_add(1, Ordering::Relaxed);
                self.ordered.notify_one();
                if self.takes_no_orders {
                    std::future::pending::<()>().await;
                }
                answer(request, Ok(BackupWork::default())).await
            }
            CANCEL_BACKUP_WORK_PATH => {
                self.cancellations.fetch_add(1, Ordering::Relaxed);
                self.cancelled.notify_one();
                answer(request, Ok(())).await
            }
            GET_BACKUP_WORK_PATH => {
                self.asked.notify_one();
                if self.is_silent {
                    std::future::pending::<()>().await;
                }
                let state = self.states.lock().unwrap().pop_front().flatten();
                answer(request, state.ok_or_else(|| Status::not_found("no such work"))).await
            }
            _ => Status::unimplemented("not here").into_http(),
        }
    }
}

impl Service<http::Request<Body>> for Works {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let works = self.clone();
        Box::pin(async move { Ok(works.respond(request).await) })
    }
}

fn create_order() -> BeginBackupWorkRequest {
    BeginBackupWorkRequest {
        task: CREATE,
        ..BeginBackupWorkRequest::default()
    }
}

fn copying() -> BackupWork {
    BackupWork {
        files: 3,
        ..BackupWork::default()
    }
}

fn done(code: Code) -> BackupWork {
    BackupWork {
        is_done: true,
        code: code as u32,
        error: "as it ended".to_owned(),
        ..BackupWork::default()
    }
}

#[tokio::test]
async fn a_work_that_is_called_off_is_not_ordered_again() {
    let works = Works::new([Some(copying()), None]);
    let client = serve(works.clone()).await;
    let interrupts = AtomicUsize::new(0);
    let once = || {
        let is_first = interrupts.fetch_add(1, Ordering::Relaxed) == 0;
        let works = works.clone();
        async move {
            match is_first {
                true => works.asked.notified().await,
                false => std::future::pending().await,
            }
        }
    };
    let ended = carry_out_until(&client, create_order(), "copied", once).await;
    let why = ended.unwrap_err().to_string();
    assert!(why.starts_with("called off"), "{why}");
    assert_eq!((works.orders(), works.cancellations.load(Ordering::Relaxed)), (1, 1));
}

#[tokio::test]
async fn a_second_interrupt_ends_the_command_though_the_server_is_silent() {
    let works = Works {
        is_silent: true,
        ..Works::default()
    };
    let client = serve(works.clone()).await;
    let signal = Notify::new();
    let run = carry_out_until(&client, create_order(), "copied", || signal.notified());
    let signals = async {
        works.asked.notified().await;
        signal.notify_one();
        // The work is called off, though the question is not answered.
        works.cancelled.notified().await;
        signal.notify_one();
        std::future::pending::<()>().await;
    };
    let ended = tokio::time::timeout(Duration::from_secs(10), async {
        tokio::select! {
            ended = run => ended,
            () = signals => unreachable!("it waits for ever"),
        }
    });
    let why = ended.await.unwrap().unwrap_err().to_string();
    assert!(why.starts_with("interrupted again"), "{why}");
}

#[tokio::test]
async fn an_interrupt_before_the_server_takes_the_order_ends_the_command() {
    let works = Works {
        takes_no_orders: true,
        ..Works::default()
    };
    let client = serve(works.clone()).await;
    let signal = Notify::new();
    let run = carry_out_until(&client, create_order(), "copied", || signal.notified());
    let signals = async {
        works.ordered.notified().await;
        signal.notify_one();
        std::future::pending::<()>().await;
    };
    let ended = tokio::time::timeout(Duration::from_secs(10), async {
        tokio::select! {
            ended = run => ended,
            () = signals => unreachable!("it waits for ever"),
        }
    });
    let why = ended.await.unwrap().unwrap_err().to_string();
    assert!(why.starts_with("interrupted; if the server"), "{why}");
    assert_eq!((works.orders(), works.cancellations.load(Ordering::Relaxed)), (1, 0));
}

#[tokio::test]
async fn a_backup_of_the_name_is_the_own_one_only_if_it_was_begun() {
    for (before, is_own) in [(copying(), true), (BackupWork::default(), false)] {
        let works = Works::new([Some(before), None, Some(done(Code::AlreadyExists))]);
        let client = serve(works.clone()).await;
        let never = || std::future::pending::<()>();
        let ended = carry_out_until(&client, create_order(), "copied", never).await;
        assert_eq!(ended.is_ok(), is_own, "{ended:?}");
        assert_eq!(works.orders(), 2);
    }
}

#[test]
fn backups_read_as_text() {
    let backup = DestinationBackup {
        name: "b".to_owned(),
        begun_micros: 1_600_000_000_000_000,
        completed_micros: Some(1_600_000_060_000_000),
        tables: vec!["i/t".to_owned(), "i/u".to_owned()],
        files: 3,
        bytes: 2048,
        copied_bytes: 1024,
    };
    let unfinished = DestinationBackup {
        completed_micros: None,
        ..backup.clone()
    };
    assert_eq!(
        show(&[backup, unfinished]),
        "b  at 1600000000 s since 1970, 3 files of 2.0KiB, 1.0KiB of them not in earlier ones; i/t, i/u\n\
         b  begun at 1600000000 s since 1970, not complete\n"
    );
}

#[test]
fn restorable_moments_are_shown_to_the_microsecond() {
    let times = [RestorableTime {
        from_micros: 1_600_000_000_000_000,
        to_micros: 1_600_000_000_000_001,
    }];
    assert_eq!(
        show_times(&times),
        "any moment from 2020-09-13T12:26:40Z to 2020-09-13T12:26:40.000001Z\n"
    );
}

#[test]
fn options_are_pairs() {
    let args = |option: &str| DestinationArgs {
        destination: "s3://b/p".to_owned(),
        options: vec![option.to_owned()],
    };
    let good = destination(&args("endpoint=http://h:1?a=b")).unwrap();
    assert_eq!(good.options[0].value, "http://h:1?a=b");
    assert!(destination(&args("endpoint")).is_err());
}

/// As of a cluster with many tablets, whose status is one answer.
#[tokio::test]
async fn an_answer_may_have_many_mebibytes() {
    let large = BackupWork {
        error: "x".repeat(5 << 20),
        ..BackupWork::default()
    };
    let client = serve(Works::new([Some(large)])).await;
    let work = client.backup_work(1).await.unwrap();
    assert_eq!(work.unwrap().error.len(), 5 << 20);
}
