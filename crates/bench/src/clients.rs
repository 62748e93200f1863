//! Clients of a run, which work on one table or on the social network.
//!
//! [`activity`](crate::activity) is the interface between clients and the engine. The engine makes clients here.

use crate::activity::{Actor, ActorContext};
use crate::load::{self, Written};
use crate::plan::{Activity, Run};
use crate::social;

/// State that the clients of one worker process share. It outlives a run.
#[derive(Default)]
pub struct Shared {
    tables: load::Tables,
    social: social::State,
}

impl Shared {
    /// Prepares a run, before its clients are made. `written` holds every run that wrote to its table since the table was
    /// created, in order.
    ///
    /// # Errors
    /// A run that cannot be carried out: see [`load::Tables::prepare`] and [`social::State::prepare`].
    pub fn prepare(&self, run: &Run, worker: u32, workers: u32, written: &[Written]) -> anyhow::Result<()> {
        match &run.activity {
            Activity::Table(workload) => self.tables.prepare(workload, run.seed, workers, written),
            Activity::Social(social) => self.social.prepare(social, worker, workers),
        }
    }

    /// Makes one client of a run that [`Self::prepare`] has prepared.
    ///
    /// # Errors
    /// A run that was not prepared, or a specification that makes no sense.
    pub fn actor(&self, run: &Run, context: ActorContext) -> anyhow::Result<Box<dyn Actor>> {
        match &run.activity {
            Activity::Table(workload) => load::table::actor(workload, &self.tables, context),
            Activity::Social(social) => social::actor(social, &self.social, context),
        }
    }
}

/// Names of a run's kinds of operation, in the order of [`Step::kind`](crate::activity::Step::kind).
pub fn kinds(run: &Run) -> Vec<String> {
    match &run.activity {
        Activity::Table(workload) => load::table::kinds(workload),
        Activity::Social(social) => social::kinds(social),
    }
}
