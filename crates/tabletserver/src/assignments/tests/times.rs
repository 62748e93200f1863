//! Records of a tablet get later times, also where clocks are behind.

use super::*;
use stele_commitlog::{LogClock, LogError};

/// The clock of the first server; the wall clock, which the others have, is behind it.
const AHEAD: i64 = 4_000_000_000_000_000;

/// The newest moment that a server has noted.
#[derive(Default)]
struct Noted(Mutex<i64>);

#[async_trait]
impl Moments for Noted {
    async fn noted(&self) -> ServiceResult<i64> {
        Ok(*self.0.lock())
    }

    async fn note(&self, micros: i64) -> ServiceResult<()> {
        let mut noted = self.0.lock();
        *noted = micros.max(*noted);
        Ok(())
    }
}

async fn join(shared: &Shared, server: u32, clock: i64) -> Arc<TabletServer> {
    let options = ServerOptions {
        log_clock: Some(LogClock::new(TokioRuntime::current(), clock)),
        ..crate::recovery::tests::options()
    };
    shared.join_with(server, options).await
}

/// Two servers, the first with the tablets of a table and a clock that is ahead.
async fn two() -> (Shared, Arc<Noted>, Arc<TabletServer>, Arc<TabletServer>) {
    let noted = Arc::new(Noted::default());
    let shared = Shared {
        moments: Some(noted.clone()),
        ..Shared::new()
    };
    let (first, second) = (join(&shared, 1, AHEAD).await, join(&shared, 2, 0).await);
    first.create_tablets(Arc::new(schema(None)), ranges()).await.unwrap();
    write(&first, TABLETS[0], "a", "first").await;
    (shared, noted, first, second)
}

/// The newest time in the log of a server.
async fn newest(shared: &Shared, server: u32) -> i64 {
    let report = stele_commitlog::replay::<LogError>(&*shared.log(server).await, |_| Ok(())).await;
    report.unwrap().last_micros
}

#[tokio::test]
async fn times_ascend_where_a_tablet_is_handed_over() {
    let (shared, noted, first, second) = two().await;
    hand_over(&first, TABLETS[0], 1).await.unwrap();
    assert_eq!(*noted.0.lock(), AHEAD);
    open(&second, TABLETS[0], 3, &[]).await.unwrap();
    write(&second, TABLETS[0], "a", "second").await;
    assert_eq!(newest(&shared, 2).await, AHEAD);
}

/// Nobody has noted anything, and the log has the time.
#[tokio::test]
async fn times_ascend_where_the_log_of_a_dead_server_is_replayed() {
    let (shared, noted, first, second) = two().await;
    drop(first);
    open(&second, TABLETS[0], 3, &[1]).await.unwrap();
    assert_eq!(*noted.0.lock(), 0);
    write(&second, TABLETS[0], "a", "second").await;
    assert_eq!(newest(&shared, 2).await, AHEAD);
}

/// The halves have no record yet, and those of their parent may be in another stream, which is not replayed.
#[tokio::test]
async fn times_ascend_where_a_tablet_is_replaced_and_its_server_dies() {
    let (_, noted, first, _) = two().await;
    write(&first, TABLETS[0], "b", "first").await;
    let halves = (TabletId(11), TabletId(12));
    let at = Some(Bytes::from_static(b"b"));
    first.prepare_split(TABLETS[0], halves, at).await.unwrap().unwrap();
    assert_eq!(std::mem::take(&mut *noted.0.lock()), AHEAD);
    first.finish_replacement(TABLETS[0], false).await;
    let neighbours = TABLETS.to_vec();
    first.prepare_merge(neighbours, TabletId(13)).await.unwrap();
    assert_eq!(*noted.0.lock(), AHEAD);
}
