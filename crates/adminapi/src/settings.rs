//! `stele.admin.v1.TableSettings`: `docs/table-settings.md`.

use prost::Message;

/// Path of the call that tells the settings of a table.
pub const GET_SETTINGS_PATH: &str = "/stele.admin.v1.TableSettings/GetTableSettings";
/// Path of the call that changes them.
pub const UPDATE_SETTINGS_PATH: &str = "/stele.admin.v1.TableSettings/UpdateTableSettings";

/// Asks for the settings of a table.
#[derive(Clone, PartialEq, Message)]
pub struct GetTableSettingsRequest {
    /// `projects/P/instances/I/tables/T`.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// Changes settings of a table.
#[derive(Clone, PartialEq, Message)]
pub struct UpdateTableSettingsRequest {
    /// `projects/P/instances/I/tables/T`.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Those that are present change, all or none.
    #[prost(message, optional, tag = "2")]
    pub settings: Option<Settings>,
}

/// Settings of a table; in a response all are present.
#[derive(Clone, PartialEq, Message)]
pub struct Settings {
    /// The failure that an acknowledged write survives: `none`, `flush`, `sync`, or `default` for the server's.
    #[prost(string, optional, tag = "1")]
    pub durability: Option<String>,
    /// Whether the row cache retains results of reads of single rows.
    #[prost(bool, optional, tag = "2")]
    pub row_cache: Option<bool>,
    /// Bytes of files at which a tablet is split; 0 for the server's.
    #[prost(uint64, optional, tag = "3")]
    pub tablet_bytes: Option<u64>,
}
