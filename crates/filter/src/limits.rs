//! Limits of one filter. They are those of Bigtable (data.proto, comment of `RowFilter`), except for patterns.

use crate::re2::PATTERN_WEIGHT_MAX;

/// Serialized bytes of one filter.
pub(crate) const FILTER_BYTES_MAX: usize = 20_480;

/// Chains, interleaves and conditions within each other.
pub(crate) const NESTING_MAX: usize = 20;

/// Weight of all patterns of one filter: about 10 MB of automata, including their fixed parts.
pub(crate) const WEIGHT_MAX: usize = 4 * PATTERN_WEIGHT_MAX;

/// Bytes of a label.
pub(crate) const LABEL_BYTES_MAX: usize = 15;
