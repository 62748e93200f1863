//! The record of switched-off work.

use super::{decode, encode};
use bytes::Bytes;
use prost::Message;
use stele_types::Switches;

/// Its key. Without a record everything is on.
pub const SWITCHES: &str = "catalog/switches";

/// The other way round, so that work that comes later is on.
#[derive(Clone, PartialEq, Message)]
struct SwitchesRecord {
    #[prost(bool, tag = "1")]
    no_balance: bool,
    #[prost(bool, tag = "2")]
    no_split: bool,
    #[prost(bool, tag = "3")]
    no_merge: bool,
    #[prost(bool, tag = "4")]
    no_snapshot_cleanup: bool,
}

/// Decodes the record; the error says why not.
pub fn decode_switches(bytes: &[u8]) -> Result<Switches, String> {
    let record: SwitchesRecord = decode(bytes)?;
    Ok(Switches {
        balance: !record.no_balance,
        split: !record.no_split,
        merge: !record.no_merge,
        snapshot_cleanup: !record.no_snapshot_cleanup,
    })
}

/// Encodes it.
pub fn encode_switches(switches: Switches) -> Bytes {
    encode(&SwitchesRecord {
        no_balance: !switches.balance,
        no_split: !switches.split,
        no_merge: !switches.merge,
        no_snapshot_cleanup: !switches.snapshot_cleanup,
    })
}
