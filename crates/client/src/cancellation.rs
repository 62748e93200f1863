//! Cancellation of changes that wait for their turn.
//!
//! A caller may give a call up and make it again, and then make other changes. A copy that waited meanwhile must not be carried out behind
//! those: it would delete a table that was made after the answered copy, say. So a change whose caller is gone does not begin; one that has
//! begun goes on.
//!
//! Within a process a caller that goes away drops the future of its call, and with it the wait. A call of another server is a task, which
//! outlives its caller and asks here.

use crate::error::{ServiceError, ServiceResult};
use std::future::Future;
use stele_types::ErrorKind;
use tokio::sync::watch;

tokio::task_local! {
    /// Of the call that the task carries out.
    static CANCELLATION: Cancellation;
}

/// The end of a caller. Dropped, it cancels the call, as far as that has not begun a change.
#[derive(Debug)]
pub struct CancelOnDrop {
    _open: watch::Sender<()>,
}

/// The end of a task that carries out a call.
#[derive(Clone, Debug)]
pub struct Cancellation(watch::Receiver<()>);

impl Cancellation {
    /// Both ends of a call.
    pub fn pair() -> (CancelOnDrop, Cancellation) {
        let (open, closes) = watch::channel(());
        (CancelOnDrop { _open: open }, Cancellation(closes))
    }

    /// Carries out a call: its changes begin only while the other end is there.
    pub async fn scope<F: Future>(self, call: F) -> F::Output {
        CANCELLATION.scope(self, call).await
    }

    /// Completes when the caller is gone.
    async fn cancelled(&mut self) {
        while self.0.changed().await.is_ok() {}
    }
}

/// Waits for the turn of a change. `Cancelled` if the caller of the present call is gone, also if it goes at the moment of the turn.
pub async fn turn<T>(turn: impl Future<Output = T>) -> ServiceResult<T> {
    let Ok(mut cancellation) = CANCELLATION.try_with(Cancellation::clone) else {
        return Ok(turn.await);
    };
    tokio::select! {
        biased;
        () = cancellation.cancelled() => {
            let message = "the caller gave the change up before it began: it is not made";
            Err(ServiceError::new(ErrorKind::Cancelled, message))
        }
        turn = turn => Ok(turn),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use std::future::{pending, ready};

    #[tokio::test]
    async fn a_turn_does_not_come_when_the_caller_is_gone() {
        let (caller, cancellation) = Cancellation::pair();
        assert_eq!(cancellation.clone().scope(turn(ready(7))).await, Ok(7));
        let mut waiting = Box::pin(cancellation.clone().scope(turn(pending::<()>())));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(caller);
        assert_eq!(waiting.await.unwrap_err().kind, ErrorKind::Cancelled);
        let late = cancellation.scope(turn(ready(7))).await;
        assert_eq!(late.unwrap_err().kind, ErrorKind::Cancelled);
        assert_eq!(turn(ready(7)).await, Ok(7), "nobody else is waited for");
    }
}
