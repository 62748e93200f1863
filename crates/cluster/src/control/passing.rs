//! Repeats calls about a tablet that moves until it is served again.

use super::PAUSE;
use std::future::Future;
use std::time::Duration;
use stele_client::{ServiceError, ServiceResult};
use stele_env::Env;
use stele_types::{ErrorKind, TabletId};

/// Longest time until a tablet that moves, or whose server has failed, is served again.
const OWNER_WAIT: Duration = Duration::from_secs(60);

/// Makes a call about a tablet again while it fails by a change of owners. It may be carried out twice.
pub(super) async fn until_served<T, F: Future<Output = ServiceResult<T>>>(
    env: &Env,
    tablet: TabletId,
    call: impl Fn() -> F,
) -> ServiceResult<T> {
    let deadline = env.now() + OWNER_WAIT;
    loop {
        match call().await {
            Err(error) if is_passing(&error) && env.now() < deadline => {
                tracing::debug!(%tablet, %error, "a tablet is called again");
                env.sleep(PAUSE).await;
            }
            outcome => return outcome,
        }
    }
}

/// The tablet may be served again soon.
fn is_passing(error: &ServiceError) -> bool {
    error.is_retryable() || error.kind == ErrorKind::Aborted
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_env::tokio_env::TokioRuntime;

    /// Makes a call that fails in these ways, the last first; its outcome, and how often it was made.
    async fn called(failures: &[ErrorKind]) -> (ServiceResult<()>, usize) {
        let left = parking_lot::Mutex::new((failures.to_vec(), 0));
        let call = || async {
            let (failures, calls) = &mut *left.lock();
            *calls += 1;
            let failure = failures.pop();
            failure.map_or(Ok(()), |kind| Err(ServiceError::new(kind, "planted")))
        };
        let outcome = until_served(&TokioRuntime::current(), TabletId(1), call).await;
        (outcome, left.into_inner().1)
    }

    #[tokio::test(start_paused = true)]
    async fn a_tablet_that_moves_is_called_again() {
        let passing = [ErrorKind::Unavailable, ErrorKind::Aborted, ErrorKind::Busy];
        assert_eq!(called(&passing).await, (Ok(()), 4));
        let (outcome, calls) = called(&[ErrorKind::Corruption]).await;
        assert_eq!((outcome.unwrap_err().kind, calls), (ErrorKind::Corruption, 1));
    }
}
