//! The dispatcher's judgement of workers that it does not hear.

use super::super::{Colleague, Hiring};
use super::*;
use std::net::{Ipv4Addr, SocketAddr};

/// A dispatcher of one worker, which was heard before the longest silence.
async fn with_silent_worker() -> Dispatcher {
    let hiring = Hiring {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        local: 0,
        remote: 1,
        threads: 1,
        token: String::new(),
    };
    let mut dispatcher = Dispatcher::listen(hiring).await.unwrap();
    let silence = SILENCE_MAX + Duration::from_secs(1);
    let worker = Colleague {
        pid: 0,
        to: mpsc::channel(1).0,
        heard: Instant::now().checked_sub(silence).unwrap(),
    };
    dispatcher.workers.insert(0, worker);
    dispatcher
}

/// The outcome of checks that each follow a time in which the dispatcher was suspended.
async fn judged(suspended: &[Duration]) -> Result<(), String> {
    let (run, mut dispatcher) = (Run::default(), with_silent_worker().await);
    let order = Order {
        run: &run,
        target: "null://hbase",
        written: &[],
    };
    let mut under_way = UnderWay::new(1, &order);
    under_way.assign(&dispatcher);
    under_way.began = Some(Instant::now());
    for &suspended in suspended {
        under_way.check_progress(&mut dispatcher, suspended).await?;
    }
    Ok(())
}

#[tokio::test]
async fn workers_are_not_silent_while_the_dispatcher_was_suspended() {
    let suspended = LATE_MAX + Duration::from_secs(1);
    // At the second check its message is not read yet.
    assert_eq!(judged(&[suspended, Duration::ZERO]).await, Ok(()));
}

#[tokio::test]
async fn a_silent_worker_is_dead() {
    let judged = judged(&[Duration::ZERO]).await;
    assert_eq!(judged, Err("the last worker died".to_owned()));
}
