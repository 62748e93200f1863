//! `ClientService.Multi`: many reads and changes in one request. Cells of changes travel in the request's cell block.

use super::basic::{NameBytesPair, RegionSpecifier};
use super::client::{Condition, Get, MutationProto, RowResult};
use crate::WireError;
use bytes::Bytes;

/// One read or change among many.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Action {
    /// Repeated in its result.
    #[prost(uint32, optional, tag = "1")]
    pub index: Option<u32>,
    /// A change.
    #[prost(message, optional, tag = "2")]
    pub mutation: Option<MutationProto>,
    /// A read.
    #[prost(message, optional, tag = "3")]
    pub get: Option<Get>,
}

/// Actions on one region.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RegionAction {
    /// The region.
    #[prost(message, required, tag = "1")]
    pub region: RegionSpecifier,
    /// Whether all actions or none are carried out. They are all of one row.
    #[prost(bool, optional, tag = "2")]
    pub atomic: Option<bool>,
    /// The actions.
    #[prost(message, repeated, tag = "3")]
    pub action: Vec<Action>,
    /// Condition of the actions.
    #[prost(message, optional, tag = "4")]
    pub condition: Option<Condition>,
}

/// Argument of `Multi`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct MultiRequest {
    /// Actions by region.
    #[prost(message, repeated, tag = "1")]
    pub region_action: Vec<RegionAction>,
    /// Names the client, for its nonces.
    #[prost(uint64, optional, tag = "2")]
    pub nonce_group: Option<u64>,
    /// Condition of the only region's actions, as clients before 2.4 send it; later ones use [`RegionAction::condition`].
    #[prost(message, optional, tag = "3")]
    pub condition: Option<Condition>,
}

/// A [`RegionAction`] whose actions are still encoded: a decoded one is many times as large, and a server needs one at a time.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PackedRegionAction {
    /// The region.
    #[prost(message, required, tag = "1")]
    pub region: RegionSpecifier,
    /// Whether all actions or none are carried out.
    #[prost(bool, optional, tag = "2")]
    pub atomic: Option<bool>,
    /// An [`Action`] each.
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub action: Vec<Bytes>,
    /// Condition of the actions.
    #[prost(message, optional, tag = "4")]
    pub condition: Option<Condition>,
}

impl PackedRegionAction {
    /// Decodes the actions one by one.
    ///
    /// # Errors
    /// Bytes that are no action.
    pub fn actions(&self) -> impl Iterator<Item = Result<Action, WireError>> + '_ {
        self.action.iter().map(|action| super::decode("Action", action.clone()))
    }
}

/// A [`MultiRequest`] whose actions are still encoded.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PackedMultiRequest {
    /// Actions by region.
    #[prost(message, repeated, tag = "1")]
    pub region_action: Vec<PackedRegionAction>,
    /// Names the client, for its nonces.
    #[prost(uint64, optional, tag = "2")]
    pub nonce_group: Option<u64>,
    /// Condition of the only region's actions.
    #[prost(message, optional, tag = "3")]
    pub condition: Option<Condition>,
}

/// Outcome of one action: a result, or an exception.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ResultOrException {
    /// The action's index.
    #[prost(uint32, optional, tag = "1")]
    pub index: Option<u32>,
    /// Cells of a read; empty for a change that was carried out.
    #[prost(message, optional, tag = "2")]
    pub result: Option<RowResult>,
    /// Class and text of the exception.
    #[prost(message, optional, tag = "3")]
    pub exception: Option<NameBytesPair>,
}

/// Outcome of a [`RegionAction`], in the order of the request.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RegionActionResult {
    /// One for each action, in any order, unless `exception` is set.
    #[prost(message, repeated, tag = "1")]
    pub result_or_exception: Vec<ResultOrException>,
    /// The reason why none of the actions was carried out.
    #[prost(message, optional, tag = "2")]
    pub exception: Option<NameBytesPair>,
    /// Of an atomic or conditional action: whether it was carried out.
    #[prost(bool, optional, tag = "3")]
    pub processed: Option<bool>,
}

/// Response of `Multi`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct MultiResponse {
    /// In the order of the request.
    #[prost(message, repeated, tag = "1")]
    pub region_action_result: Vec<RegionActionResult>,
    /// For old clients.
    #[prost(bool, optional, tag = "2")]
    pub processed: Option<bool>,
}
