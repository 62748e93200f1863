//! Frees flushed memtables on a background task.
//!
//! Readers share a memtable, and the last one frees it. A memtable has a hundred megabytes, and giving them back to the
//! system takes milliseconds: as long as a thousand point reads. So the flush keeps a share of its own until
//! readers have dropped theirs, and background work frees the memory. The flush waits for [`KEPT_MAX`] at most: a reader that
//! takes longer is a scan, or is stopped for another reason, and does not notice.

use crate::state::Frozen;
use std::sync::Arc;
use std::time::Duration;
use stele_env::Env;

/// How often it is checked whether there are readers left; a point read takes microseconds, but its thread may be
/// without a core for as long.
const POLL_EVERY: Duration = Duration::from_millis(5);
/// How long memory is kept for the sake of readers.
const KEPT_MAX: Duration = Duration::from_secs(1);

/// Frees flushed memtables: immediately if nobody reads them, or when their readers have let go.
pub(super) fn free_when_unread(env: &Env, flushed: Vec<Arc<Frozen>>) {
    if is_unread(&flushed) {
        return;
    }
    let freed = {
        let env = env.clone();
        async move {
            let until = env.now() + KEPT_MAX;
            while !is_unread(&flushed) && env.now() < until {
                env.sleep(POLL_EVERY).await;
            }
            drop(flushed);
        }
    };
    env.spawn_background("free memtables", freed);
}

/// Nobody else has a share, so nobody can take one.
fn is_unread(flushed: &[Arc<Frozen>]) -> bool {
    flushed.iter().all(|frozen| {
        let mut memtables = frozen.memtables.iter();
        Arc::strong_count(frozen) == 1 && memtables.all(|(_, table)| Arc::strong_count(table) == 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{put, schema, tablet, write};
    use stele_types::DeleteRule;

    #[tokio::test]
    async fn a_reader_does_not_free_what_was_flushed() {
        let tablet = tablet(schema(DeleteRule::BySequence, None)).await;
        write(&tablet, vec![put(1, "v")]);
        let reader = tablet.state();
        tablet.flush().await.unwrap();
        let memory = &tablet.context.memory;
        assert!(memory.bytes() > 0);
        drop(reader);
        assert!(memory.bytes() > 0, "the reader has freed it");
        while memory.bytes() > 0 {
            tablet.env().sleep(POLL_EVERY).await;
        }
        // Without readers the memory is freed immediately.
        write(&tablet, vec![put(2, "v")]);
        tablet.flush().await.unwrap();
        assert_eq!(memory.bytes(), 0);
    }
}
