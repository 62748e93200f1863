//! The call that made a table, so that its repetition is recognised.
//!
//! Its nonce is kept with the descriptor, in fields of numbers that no descriptor has. A modification of the table stores
//! its new descriptor without them.

use crate::procedures::{self, Nonce};
use prost::Message;
use stele_types::TableSchema;
use stele_wire::messages;

/// The nonce, next to the fields of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
struct Maker {
    #[prost(uint64, optional, tag = "1001")]
    nonce_group: Option<u64>,
    #[prost(uint64, optional, tag = "1002")]
    nonce: Option<u64>,
}

/// The bytes that the service keeps of the descriptor of a table that a call makes.
pub(crate) fn stored_by(table: &messages::TableSchema, (nonce_group, nonce): Nonce) -> Vec<u8> {
    let mut bytes = super::stored(table);
    if procedures::is_set((nonce_group, nonce)) {
        bytes.extend(Maker { nonce_group, nonce }.encode_to_vec());
    }
    bytes
}

/// Whether a call with this nonce has made a table that HBase's clients have not modified since.
pub(crate) fn is_made_by(schema: &TableSchema, nonce: Nonce) -> bool {
    let maker = Maker::decode(&schema.front_end_data[..]).unwrap_or_default();
    procedures::is_set(nonce) && (maker.nonce_group, maker.nonce) == nonce
}
