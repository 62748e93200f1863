//! Pauses in long computations, so that the other calls of an event loop go on.

use stele_env::Env;

/// Units of work between two pauses: about half a millisecond.
const UNITS_MAX: usize = 10_000;

/// Work of a single-row read or of a mutation that needs no I/O.
pub(crate) const ROW_UNITS: usize = 150;

/// Work of one cell of a request: it is taken out of its block, and its family is found.
pub(crate) const CELL_UNITS: usize = 5;

/// Counts the work of one call. A unit takes about 50 ns: one filter judges one cell, or 64 bytes are compressed.
pub(crate) struct Pace<'a> {
    env: &'a Env,
    units: usize,
}

impl<'a> Pace<'a> {
    pub fn new(env: &'a Env) -> Self {
        Pace { env, units: 0 }
    }

    /// Counts work that was done, and pauses if that is enough.
    #[inline]
    pub async fn spend(&mut self, units: usize) {
        self.units = self.units.saturating_add(units);
        if self.units >= UNITS_MAX {
            self.units = 0;
            self.env.yield_now().await;
        }
    }
}
