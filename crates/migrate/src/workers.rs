//! Runs a bounded number of tasks at a time.
//!
//! All end when one fails, or when the user interrupts the command.

use anyhow::{Result, bail};
use std::future::Future;
use std::pin::pin;
use std::time::Duration;
use stele_cli::interrupt::interrupted;
use tokio::task::JoinSet;

/// Between calls of `tick`: how much work an interruption costs at most, and how often numbers change.
const TICK: Duration = Duration::from_secs(1);

/// Runs all tasks, at most `parallel` at a time, and `tick` every second.
///
/// # Errors
/// That of the first task or tick that fails; no task runs any more then. An interruption by the user is one, too.
pub async fn run<F>(
    tasks: impl IntoIterator<Item = F>,
    parallel: usize,
    mut tick: impl FnMut() -> Result<()>,
) -> Result<()>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let (mut tasks, mut running) = (tasks.into_iter(), JoinSet::new());
    let mut stop = pin!(interrupted());
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let result = loop {
        while running.len() < parallel.max(1)
            && let Some(task) = tasks.next()
        {
            running.spawn(task);
        }
        tokio::select! {
            biased;
            () = &mut stop => break Err(anyhow::anyhow!("interrupted")),
            _ = ticks.tick() => if let Err(error) = tick() { break Err(error) },
            ended = running.join_next() => match ended {
                None => break Ok(()),
                Some(Ok(Ok(()))) => {}
                Some(Ok(Err(error))) => break Err(error),
                Some(Err(error)) => break Err(error.into()),
            },
        }
    };
    running.shutdown().await;
    if result.is_ok() && tasks.next().is_some() {
        bail!("tasks are left");
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test]
    async fn no_more_than_allowed_run_at_a_time() {
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let tasks = (0..20).map(|_| {
            let (now, most) = (now.clone(), most.clone());
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                now.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            }
        });
        run(tasks, 3, || Ok(())).await.unwrap();
        assert_eq!((now.load(Ordering::SeqCst), most.load(Ordering::SeqCst)), (0, 3));
    }

    #[tokio::test]
    async fn a_failure_ends_all() {
        let tasks = [true, false].map(|hangs| async move {
            match hangs {
                true => std::future::pending().await,
                false => bail!("broken"),
            }
        });
        let error = run(tasks, 2, || Ok(())).await.unwrap_err();
        assert_eq!(error.to_string(), "broken");
        let failing_tick = run([std::future::pending()], 2, || bail!("full")).await.unwrap_err();
        assert_eq!(failing_tick.to_string(), "full");
    }
}
