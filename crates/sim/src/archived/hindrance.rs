//! Storage whose new files are written slowly, or never.

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use stele_env::Env;
use stele_storage::{Result, Storage};

/// How long each new file takes, in addition; zero at first.
#[derive(Clone, Default)]
pub(super) struct Hindrance(Arc<Mutex<Duration>>);

impl Hindrance {
    pub(super) fn set(&self, takes: Duration) {
        *self.0.lock() = takes;
    }

    /// A storage behind it.
    pub(super) fn before(&self, storage: Arc<dyn Storage>, env: Env) -> Arc<dyn Storage> {
        Arc::new(Hindered {
            storage,
            env,
            hindrance: self.clone(),
        })
    }
}

struct Hindered {
    storage: Arc<dyn Storage>,
    env: Env,
    hindrance: Hindrance,
}

#[async_trait]
impl stele_storage::Layer for Hindered {
    fn below(&self) -> &dyn Storage {
        &*self.storage
    }

    async fn put_if_absent(&self, path: &str, content: Bytes) -> Result<()> {
        let takes = *self.hindrance.0.lock();
        if !takes.is_zero() {
            self.env.sleep(takes).await;
        }
        self.storage.put_if_absent(path, content).await
    }
}
