//! Values whose content follows from key and version, so that a reader can tell whether it has the right one.

/// Fewest bytes of a value: its version and a check of its key.
pub const VALUE_BYTES_MIN: u32 = 8;
