//! The call that made a table, so that its repetition is recognised.
//!
//! Its nonce is kept with the descriptor, in fields of numbers that no descriptor has. A modification of the table stores
//! its new descriptor without them, and with the fields of other front ends.

use crate::procedures::{self, Nonce};
use crate::shared_fields;
use bytes::Bytes;
use prost::Message;
use stele_types::TableSchema;
use stele_wire::messages;

/// The fields of descriptors in HBase, also of later versions, have numbers up to this.
const OWN_FIELDS_MAX: u32 = 99;

/// The fields of [`Maker`].
const MAKER_FIELDS: [u32; 2] = [1001, 1002];

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

/// The bytes that the service keeps of the descriptor that replaces that of a table.
pub(crate) fn stored_after(table: &messages::TableSchema, before: &TableSchema) -> Vec<u8> {
    let mut bytes = super::stored(table);
    let kept = Bytes::copy_from_slice(&before.front_end_data);
    // Data that is no message is of a front end that keeps it for itself. It ends with the first descriptor.
    let others = shared_fields::others(&kept, |number| {
        number <= OWN_FIELDS_MAX || MAKER_FIELDS.contains(&number)
    });
    bytes.extend(others.unwrap_or_default());
    bytes
}

/// Whether a call with this nonce has made a table that HBase's clients have not modified since.
pub(crate) fn is_made_by(schema: &TableSchema, nonce: Nonce) -> bool {
    let maker = Maker::decode(&schema.front_end_data[..]).unwrap_or_default();
    procedures::is_set(nonce) && (maker.nonce_group, maker.nonce) == nonce
}
