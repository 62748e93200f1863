//! Immutable sorted files of cells.
