//! Limits of one filter.
//!
//! Bigtable's limits of a client's filter (data.proto, comment of `RowFilter`) are checked by its front end: 20,480 bytes, 20 composites
//! within each other. Those here leave space for filters that the server puts in front: rights, views, columns of HBase.

use crate::re2::PATTERN_WEIGHT_MAX;

/// Bytes of one filter. A client's has 20 KB, and so has the pattern of a caller's families. The columns of the largest view have
/// 163 KB: each name twice, and its family. The rest is a reserve.
pub(crate) const FILTER_BYTES_MAX: usize = 256 << 10;

/// Chains, interleaves and conditions within each other: those of a client, and one each for a view, the rights of the caller, and a
/// read without values.
pub(crate) const NESTING_MAX: usize = 24;

/// Weight of all patterns of one filter: about 10 MB of automata, including their fixed parts.
pub(crate) const WEIGHT_MAX: usize = 4 * PATTERN_WEIGHT_MAX;

/// Bytes of a label.
pub(crate) const LABEL_BYTES_MAX: usize = 15;
