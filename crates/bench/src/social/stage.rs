//! What the clients of a worker share from run to run: the network, and the ledger of what they have made of it.
//!
//! A load makes both anew. Runs of actions go on from there, and must have the same worker as the same part of the same
//! number of workers: only then does the ledger know of every change of its users. Otherwise the run is refused, and the
//! network has to be loaded again.

use super::dzipfian::Dzipfian;
use super::ledger::Ledger;
use super::network::Network;
use crate::plan::{SocialMode, SocialSpec};
use anyhow::Context;
use parking_lot::Mutex;
use std::sync::Arc;

/// Kept by a worker process from run to run.
#[derive(Debug, Default)]
pub struct State {
    stage: Mutex<Option<Arc<Stage>>>,
}

/// What the clients of one run need.
#[derive(Debug)]
pub struct Stage {
    /// What was loaded.
    pub network: Arc<Network>,
    /// Who acts; absent in a load.
    pub cast: Option<Cast>,
}

/// One worker's part in the actions.
#[derive(Debug, Clone)]
pub struct Cast {
    worker: u32,
    workers: u32,
    mean: f64,
    /// What the users' lists must show.
    pub ledger: Arc<Ledger>,
    /// Which of the worker's users act, and are looked at.
    pub popularity: Arc<Dzipfian>,
}

impl State {
    /// Told before the clients of a run are made.
    ///
    /// # Errors
    /// A specification that makes no sense, or actions on a network that this worker has not seen loaded, or that others may
    /// have changed since.
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

    /// What the clients of the prepared run need.
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
