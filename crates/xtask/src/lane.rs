//! The two lanes of the pipeline.

/// How much is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// All that must hold before a commit, in minutes.
    Everyday,
    /// Everything there is, for nights and releases: more stores, more seeds, long loads, benchmarks.
    All,
}
