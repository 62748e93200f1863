//! The part of a write that an echo server decodes: number and kind of actions.
//!
//! These messages leave out nearly every field of the real ones. Decoders skip unknown fields, which is cheaper than
//! decoding them.

use bytes::Bytes;
use stele_wire::WireError;
use stele_wire::messages::{MultiResponse, MutationType, RegionActionResult, ResultOrException, RowResult, decode};

#[derive(Clone, PartialEq, prost::Message)]
struct Multi {
    #[prost(message, repeated, tag = "1")]
    regions: Vec<Region>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Region {
    #[prost(message, repeated, tag = "3")]
    actions: Vec<Action>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct Action {
    #[prost(uint32, optional, tag = "1")]
    index: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct Mutate {
    #[prost(message, optional, tag = "2")]
    mutation: Option<Mutation>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct Mutation {
    #[prost(enumeration = "MutationType", optional, tag = "2")]
    mutate_type: Option<i32>,
}

/// The kind of a Mutate.
pub fn mutate_type(message: Bytes) -> Result<MutationType, WireError> {
    let request: Mutate = decode("MutateRequest", message)?;
    Ok(request.mutation.unwrap_or_default().mutate_type())
}

/// The response to a Multi whose actions all succeeded.
pub fn all_done(message: Bytes) -> Result<MultiResponse, WireError> {
    let request: Multi = decode("MultiRequest", message)?;
    let done = |action: Action| ResultOrException {
        index: action.index,
        result: Some(RowResult::default()),
        exception: None,
    };
    let region_action_result = request.regions.into_iter().map(|region| RegionActionResult {
        result_or_exception: region.actions.into_iter().map(done).collect(),
        ..RegionActionResult::default()
    });
    Ok(MultiResponse {
        region_action_result: region_action_result.collect(),
        processed: None,
    })
}
