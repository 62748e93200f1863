//! Administration that the Bigtable API has no word for: locality groups, and settings of tables.
//!
//! gRPC services of its own beside Google's, on the same port. The messages are written out here for both sides; the documents
//! named in each module describe them for clients in other languages. Numbers are never reused.
#![forbid(unsafe_code)]

mod groups;
mod settings;

pub use groups::{
    Change, GET_GROUPS_PATH, GetLocalityGroupsRequest, LocalityGroup, LocalityGroupsResponse, MODIFY_GROUPS_PATH,
    Modification, ModifyLocalityGroupsRequest, Options,
};
pub use settings::{
    GET_SETTINGS_PATH, GetTableSettingsRequest, Settings, UPDATE_SETTINGS_PATH, UpdateTableSettingsRequest,
};
