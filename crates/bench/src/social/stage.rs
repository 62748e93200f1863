//! State that the clients of a worker share: the network and its `Ledger`.
//!
//! A load makes both new. Runs of actions continue with them. They must have the same worker as the same part of the
//! same number of workers, because only then does the `Ledger` know of every change of its users. Otherwise the run is
//! refused, and the network has to be loaded again.

use super::dzipfian::Dzipfian;
use super::ledger::Ledger;
use super::network::Network;
use crate::plan::{SocialMode, SocialSpec};
use anyhow::Context;
use parking_lot::Mutex;
use std::sync::Arc;

/// The state of a worker process, which outlives its runs.
#[derive(Debug, Default)]
pub struct State {
    stage: Mutex<Option<Arc<Stage>>>,
}

/// State for the clients of one run.
#[derive(Debug)]
pub struct Stage {
    /// The network as loaded.
    pub network: Arc<Network>,
    /// This worker's part; absent in a load.
    pub cast: Option<Cast>,
}

/// One worker's part in the actions.
#[derive(Debug, Clone)]
pub struct Cast {
    worker: u32,
    workers: u32,
    mean: f64,
    /// Expected contents of the users' lists.
    pub ledger: Arc<Ledger>,
    /// Distribution of the acting and viewed users of the worker.
    pub popularity: Arc<Dzipfian>,
}

impl State {
    /// Prepares a run, before its clients are made.
    ///
    /// # Errors
    /// An invalid specification, or actions on a network that this worker has not seen loaded, or that other workers
    /// may have changed since.
    pub fn prepare(&self, spec: &SocialSpec, worker: u32, workers: u32) -> anyhow::Result<()> {
        let next = match &spec.mode {
            SocialMode::Load => Stage {
                network: Arc::new(Network::new(spec)?),
                cast: None,
            },
            SocialMode::Actions(_) => {
                let before = self.stage.lock().clone().filter(|stage| stage.network.is_of(spec));
                before
                    .context("this worker has not seen this social network loaded")?
                    .next(spec, worker, workers)?
            }
        };
        *self.stage.lock() = Some(Arc::new(next));
        Ok(())
    }

    /// The state for the clients of the prepared run.
    pub(super) fn stage(&self, spec: &SocialSpec) -> anyhow::Result<Arc<Stage>> {
        let stage = self.stage.lock().clone().filter(|stage| stage.network.is_of(spec));
        let stage = stage.context("this worker has not been prepared for the social network")?;
        anyhow::ensure!(
            stage.cast.is_some() == (spec.mode != SocialMode::Load),
            "this worker has been prepared for another run of the social network"
        );
        Ok(stage)
    }
}

impl Stage {
    fn next(&self, spec: &SocialSpec, worker: u32, workers: u32) -> anyhow::Result<Self> {
        anyhow::ensure!(worker < workers, "worker {worker} of {workers}");
        let before = self.cast.as_ref();
        if let Some(cast) = before {
            anyhow::ensure!(
                (cast.worker, cast.workers) == (worker, workers),
                "the social network was changed by {} workers, this one being number {}; it must be loaded again for \
                 number {worker} of {workers}",
                cast.workers,
                cast.worker
            );
        }
        let ledger = match before {
            Some(cast) => cast.ledger.clone(),
            None => Arc::new(Ledger::new(self.network.clone(), worker, workers)),
        };
        let block = ledger.block();
        let popularity = match before.filter(|cast| cast.mean == spec.zipf_mean) {
            Some(cast) => cast.popularity.clone(),
            None => Arc::new(Dzipfian::new(block.end - block.start, spec.zipf_mean, worker, workers)?),
        };
        let cast = Cast {
            worker,
            workers,
            mean: spec.zipf_mean,
            ledger,
            popularity,
        };
        Ok(Self {
            network: self.network.clone(),
            cast: Some(cast),
        })
    }
}
