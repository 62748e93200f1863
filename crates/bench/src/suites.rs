//! The documents' experiments as suites, and the figures they published.

use crate::plan::Suite;

/// What a suite is built from.
#[derive(Debug, Clone, Default)]
pub struct SuiteOptions {
    /// 1.0 is the document's own size; quick mode has its own sizes.
    pub scale: f64,
    /// Sizes and times such that the whole suite takes about 5 minutes for two targets on two cores.
    pub quick: bool,
    /// Text file that values are cut from, where the document used real text; incompressible values when absent.
    pub corpus: Option<String>,
    /// Seed of everything random.
    pub seed: u64,
    /// Command that pulls a server, for the experiments that do so.
    pub kill_command: Option<String>,
}

/// Names of all suites.
pub fn names() -> Vec<&'static str> {
    Vec::new()
}

/// Builds a suite; `None` if there is none of that name.
pub fn build(_name: &str, _options: &SuiteOptions) -> Option<Suite> {
    None
}
