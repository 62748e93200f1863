//! Bugs planted on purpose, to prove that the simulator finds such bugs. They exist only under the `planted-bugs`
//! feature; without it every check is constantly false and compiles away.

/// One deliberate bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedBug {
    /// The commit log acknowledges one group in a hundred without syncing it.
    SkipFsync,
    /// A flush forgets one memtable in ten but advances the log position.
    DropMemtable,
    /// A tablet hands out a sequence number twice.
    ReuseSequence,
    /// The row cache keeps what a read found although the row was written meanwhile.
    StaleRow,
    /// Flushes and compactions drop one version more than a rule that counts versions says.
    DropVersion,
    /// Flushes and compactions that keep a deleted range of timestamps forget where it begins.
    WidenDelete,
    /// Who takes a bucket over seals only some of the files that grow.
    SkipSeal,
    /// Who has made a file that grows in a bucket does not look whether it is still the owner.
    SkipVerify,
    /// A put to a bucket that finds its name taken takes what is there for its own.
    TakeForOwn,
    /// A put to a bucket whose first answer was lost does not recognise what it made.
    ForgetOwn,
}

impl PlantedBug {
    /// All of them, with their names on the command line.
    pub const ALL: [(&'static str, PlantedBug); 10] = [
        ("skip-fsync", PlantedBug::SkipFsync),
        ("drop-memtable", PlantedBug::DropMemtable),
        ("reuse-sequence", PlantedBug::ReuseSequence),
        ("stale-row", PlantedBug::StaleRow),
        ("drop-version", PlantedBug::DropVersion),
        ("widen-delete", PlantedBug::WidenDelete),
        ("skip-seal", PlantedBug::SkipSeal),
        ("skip-verify", PlantedBug::SkipVerify),
        ("take-for-own", PlantedBug::TakeForOwn),
        ("forget-own", PlantedBug::ForgetOwn),
    ];

    /// Whether it does nothing but on a bucket.
    pub fn needs_bucket(self) -> bool {
        use PlantedBug::{ForgetOwn, SkipSeal, SkipVerify, TakeForOwn};
        matches!(self, SkipSeal | SkipVerify | TakeForOwn | ForgetOwn)
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Planted {
    #[cfg(feature = "planted-bugs")]
    active: Option<PlantedBug>,
}

impl Planted {
    #[cfg(feature = "planted-bugs")]
    pub(crate) fn only(bug: PlantedBug) -> Self {
        Planted { active: Some(bug) }
    }

    #[cfg(not(feature = "planted-bugs"))]
    pub(crate) fn only(_: PlantedBug) -> Self {
        Planted::default()
    }

    #[cfg(feature = "planted-bugs")]
    pub(crate) fn is(self, bug: PlantedBug) -> bool {
        self.active == Some(bug)
    }

    #[cfg(not(feature = "planted-bugs"))]
    pub(crate) fn is(self, _: PlantedBug) -> bool {
        false
    }
}
