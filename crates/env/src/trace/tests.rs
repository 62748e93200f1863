use super::*;
use crate::metrics::Metrics;
use crate::tokio_env::TokioRuntime;
use std::pin::pin;

fn traced(part: f64) -> (Env, Arc<Tracer>) {
    let tracer = Arc::new(Tracer::new(part, &Metrics::new()));
    (TokioRuntime::current().with_tracer(Arc::clone(&tracer)), tracer)
}

fn begun(env: &Env) -> Option<Trace> {
    env.trace("grpc", "ReadRows", || None)
}

fn sampled(is_sampled: bool) -> Option<Parent> {
    Some(Parent {
        is_sampled,
        ..Parent::sampled(Carried { trace: 7, span: 8 })
    })
}

/// The one request that was queued.
async fn only(env: &Env, tracer: &Tracer) -> Finished {
    tracer.close();
    let batch = tracer.next_batch(env).await.unwrap();
    let [finished] = batch.try_into().unwrap();
    assert!(tracer.next_batch(env).await.is_none());
    finished
}

#[tokio::test]
async fn stages_belong_to_the_request_whose_future_runs() {
    let (env, tracer) = traced(1.0);
    let trace = begun(&env).unwrap();
    let _before = stage("before");
    let work = async {
        let mut read = stage("read");
        read.note(|facts| facts.tablet = Some(3));
        env.yield_now().await;
        note(|facts| facts.visit(3));
        note(|facts| facts.visit(3));
        work::note(|work| work.blocks_read += 1);
    };
    let other = async {
        env.yield_now().await;
        let _stage = stage("of nobody");
        work::note(|work| work.blocks_read += 10);
    };
    futures::future::join(within(Some(&trace), pin!(work)), other).await;
    trace.note(|facts| facts.outcome = "OK");
    drop(trace);
    let finished = only(&env, &tracer).await;
    assert_eq!(finished.name, ("grpc", "ReadRows"));
    assert_eq!(finished.parent, None);
    assert_eq!((finished.facts.tablet, finished.facts.tablets), (Some(3), 1));
    assert_eq!((finished.facts.outcome, finished.work.blocks_read), ("OK", 1));
    let [read] = &finished.stages[..] else {
        unreachable!("{:?}", finished.stages)
    };
    assert_eq!((read.name, read.facts.tablet), ("read", Some(3)));
    assert!(finished.started_nanos <= read.started_nanos && read.started_nanos <= read.ended_nanos);
    assert!(read.ended_nanos <= finished.ended_nanos);
    assert!(!IS_TRACED.get());
}

#[tokio::test]
async fn the_parent_decides_and_otherwise_the_ratio() {
    for (part, roots) in [(0.0, 0), (1.0, 100)] {
        let (env, tracer) = traced(part);
        assert_eq!((0..100).filter_map(|_| begun(&env)).count(), roots);
        assert!(env.trace("grpc", "m", || sampled(false)).is_none());
        let below = env.trace("grpc", "m", || sampled(true)).unwrap();
        assert_eq!(below.0.own.trace, 7);
        drop(below);
        tracer.close();
        let last = tracer.next_batch(&env).await.unwrap().pop().unwrap();
        assert_eq!(last.parent, Some(8));
    }
    let (env, _) = traced(0.25);
    let some = (0..4_000).filter_map(|_| begun(&env)).count();
    assert!((700..1_300).contains(&some), "{some}");
}

#[test]
fn without_a_tracer_nothing_is_asked() {
    struct Nothing;
    impl crate::Runtime for Nothing {
        fn now(&self) -> Duration {
            unreachable!("the clock was read")
        }
        fn wall_micros(&self) -> i64 {
            unreachable!("the clock was read")
        }
        fn random_u64(&self) -> u64 {
            unreachable!("a random number was taken")
        }
        fn sleep(&self, _: Duration) -> futures::future::BoxFuture<'static, ()> {
            unreachable!("nothing waits")
        }
        fn spawn(&self, _: crate::Priority, _: &'static str, _: futures::future::BoxFuture<'static, ()>) {}
        fn run_blocking(&self, _: crate::BlockingWork) {}
    }
    let env = Env::new(Arc::new(Nothing));
    let trace = env.trace("grpc", "m", || unreachable!("the parent was asked for"));
    let _entered = enter(trace.as_ref());
    let stage = stage("s");
    note(|_| unreachable!("no request is traced"));
    ended("wait", Duration::from_secs(1));
    assert!(trace.is_none() && stage.carried().is_none());
}

#[tokio::test]
async fn stages_and_the_queue_are_bounded() {
    let (env, tracer) = traced(1.0);
    for _ in 0..QUEUE_SPANS_MAX / (STAGES_MAX + 1) + 3 {
        let trace = begun(&env).unwrap();
        let _entered = enter(Some(&trace));
        (0..STAGES_MAX + 5).for_each(|_| drop(stage("s")));
    }
    let of_one = STAGES_MAX + 1;
    let kept = QUEUE_SPANS_MAX / of_one * of_one;
    assert_eq!(tracer.dropped(), 3 * of_one as u64);
    tracer.close();
    let mut seen = 0;
    while let Some(batch) = tracer.next_batch(&env).await {
        let spans: usize = batch.iter().map(Finished::spans).sum();
        assert!(spans < BATCH_SPANS + of_one, "{spans}");
        assert!(batch.iter().all(|finished| finished.left_out == 5));
        seen += spans;
    }
    assert_eq!(seen, kept);
}

#[tokio::test]
async fn short_waits_are_no_stages() {
    let (env, tracer) = traced(1.0);
    let trace = begun(&env).unwrap();
    env.sleep(Duration::from_millis(5)).await;
    {
        let _entered = enter(Some(&trace));
        ended("short", Duration::from_micros(1));
        ended("long", Duration::from_millis(3));
    }
    drop(trace);
    let finished = only(&env, &tracer).await;
    let [long] = &finished.stages[..] else {
        unreachable!("{:?}", finished.stages)
    };
    let took = Duration::from_nanos(long.ended_nanos - long.started_nanos);
    assert!(long.name == "long" && took >= Duration::from_millis(3), "{long:?}");
}
