//! Batches of version 1, which repeat the whole key for each entry: read, no longer written.

use stele_types::key::{self, CellKind, KeyParts};
use stele_types::{FamilyId, SeqNo, limits, varint};

pub const VERSION: u8 = 1;

/// Whether the entries are as the byte table says.
pub fn is_sound(mut input: &[u8], entries: u32) -> bool {
    (0..entries).all(|_| take_sound(&mut input, entries).is_some()) && input.is_empty()
}

fn take_sound(input: &mut &[u8], entries: u32) -> Option<()> {
    let key = varint::take_bytes(input)?;
    let value = varint::take_bytes(input)?;
    let parts = KeyParts::parse(key)?;
    let value_ok = if parts.kind == CellKind::Merge || parts.kind == CellKind::DeleteRange {
        value.len() == 8
    } else {
        value.len() <= limits::VALUE_BYTES_MAX
    };
    let sound = value_ok && parts.kind != CellKind::Reference;
    (parts.seq.0 < u64::from(entries) && sound).then_some(())
}

/// Visits sound entries, see [`super::Batch::entries_of`].
pub fn entries(mut input: &[u8], first: SeqNo, wanted: impl Fn(FamilyId) -> bool, mut visit: impl FnMut(&[u8], &[u8])) {
    let mut key = Vec::new();
    while let (Some(relative), Some(value)) = (varint::take_bytes(&mut input), varint::take_bytes(&mut input)) {
        let Some(parts) = KeyParts::parse(relative) else { return };
        if !wanted(parts.family) {
            continue;
        }
        key.clear();
        key.extend_from_slice(relative);
        key::set_seq(&mut key, first.plus(parts.seq.0));
        visit(&key, value);
    }
}
