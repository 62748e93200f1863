//! Loads the network: operation `i` inserts user `i` with profile, image, friends and resources.
//!
//! Two calls for each user, one after the other: the user's row, then all resource rows in one batch. BG's HBase client
//! makes one call for the profile, one for each friendship on each side with two for its counters, and three for each
//! resource. Comparisons of load times must take that into account.

use super::network::{Network, RESOURCES_TABLE, USERS_TABLE};
use super::stage::Stage;
use crate::activity::{Actor, Step};
use crate::target::{Connection, Put, Result, TargetError};
use async_trait::async_trait;
use std::ops::Range;
use std::sync::Arc;

pub(super) struct Loader {
    stage: Arc<Stage>,
    connection: Arc<dyn Connection>,
    ring: Vec<u64>,
}

impl Loader {
    pub(super) fn new(stage: Arc<Stage>, connection: Arc<dyn Connection>) -> Self {
        Self {
            stage,
            connection,
            ring: Vec::new(),
        }
    }
}

#[async_trait]
impl Actor for Loader {
    fn begin(&mut self, _range: Range<u64>) {}

    async fn step(&mut self, index: u64) -> Result<Step> {
        let network: &Network = &self.stage.network;
        if index >= network.users {
            return Err(TargetError::Refused(format!(
                "user {index}: the network has {} only",
                network.users
            )));
        }
        let user = network.user_row(index, &mut self.ring);
        let resources: Vec<Put> = (0..network.resources).map(|r| network.resource_row(index, r)).collect();
        let bytes = user.volume() + resources.iter().map(Put::volume).sum::<u64>();
        self.connection.put(USERS_TABLE, user).await?;
        self.connection.put_many(RESOURCES_TABLE, resources).await?;
        Ok(Step {
            kind: 0,
            operations: 1,
            rows: 1 + network.resources,
            bytes,
            ..Step::default()
        })
    }

    async fn finish(&mut self) -> Result<Step> {
        Ok(Step::default())
    }
}
