//! Switches of the cluster that administrators set.
//!
//! Those of work that does not exist here: there is no normalizer, and no chore cleans the catalog or removes files. They are
//! of this process, and are on when it starts. The switches of work that servers do are in the catalog
//! ([`stele_types::Switches`]).

use std::sync::atomic::{AtomicBool, Ordering};

/// One switch.
#[derive(Debug)]
pub(crate) struct Switch(AtomicBool);

impl Default for Switch {
    fn default() -> Self {
        Switch(AtomicBool::new(true))
    }
}

impl Switch {
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets it, and returns its position before.
    pub fn set(&self, on: bool) -> bool {
        self.0.swap(on, Ordering::Relaxed)
    }
}

/// All switches.
#[derive(Debug, Default)]
pub(crate) struct Switches {
    pub normalizer: Switch,
    pub catalog_janitor: Switch,
    pub cleaner: Switch,
}
