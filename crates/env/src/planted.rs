//! Bugs planted on purpose prove that the simulator finds such bugs. They exist only under the `planted-bugs` feature;
//! without it every check is constantly false and compiles away.

/// One deliberate bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedBug {
    /// The commit log acknowledges one group in a hundred without syncing it.
    SkipFsync,
    /// A flush forgets one memtable in ten but advances the log position.
    DropMemtable,
    /// A tablet hands out a sequence number twice.
    ReuseSequence,
    /// The row cache retains the result of a read although the row was written during the read.
    StaleRow,
    /// Flushes and compactions drop one version more than a rule that counts versions allows.
    DropVersion,
    /// Flushes and compactions that retain a deleted range of timestamps lose its start.
    WidenDelete,
    /// A takeover of a bucket seals only some of the growing files.
    SkipSeal,
    /// A process that has created a growing file in a bucket does not check whether it is still the owner.
    SkipVerify,
    /// A put to a bucket that finds its name taken claims the existing object as its own.
    TakeForOwn,
    /// A put to a bucket whose first response was lost does not recognise its own object.
    ForgetOwn,
    /// A flush does not store the tokens of the requests that it writes.
    ForgetFlushedTokens,
    /// A replay does not restore the tokens of requests.
    ForgetReplayedTokens,
    /// Files that no tablet refers to are deleted although a snapshot names them.
    ForgetSnapshots,
    /// A server of a cluster answers reads after its session has ended, without a confirmation by storage.
    SkipLease,
    /// The leader of a cluster gives a tablet to another server under the epoch of the former one.
    ReuseEpochs,
    /// The leader of a cluster records that a log is sealed, and does not seal it.
    SealNothing,
    /// The leader of a cluster deletes files that no tablet needs although a snapshot names them.
    SweepSnapshots,
    /// A server that takes up tablets leaves out all but the first stream of their logs.
    LeaveStreamsOut,
    /// The leader seals the log of a server before it records that the server is given up.
    SealFirst,
    /// The router leaves out the rest of a tablet that moves during a scan.
    SkipRest,
    /// A flush leaves tombstones out although older files have the cells that they hide.
    ForgetDeletions,
    /// The archiver of a log lets segments go before it has written the part that has them.
    ArchiveEarly,
    /// The leader of a cluster ends the archive of a server that has ended, without the rest of its log.
    ForgetRest,
    /// A leader that does not reach the other servers goes on to lead.
    LeadAlone,
    /// The new owner of a log in HDFS takes a file for durable whose writer has not synced its end.
    SkipCopy,
}

impl PlantedBug {
    /// Those that a single server has, with their names on the command line.
    pub const ALL: [(&'static str, PlantedBug); 13] = [
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
        ("forget-flushed-tokens", PlantedBug::ForgetFlushedTokens),
        ("forget-replayed-tokens", PlantedBug::ForgetReplayedTokens),
        ("forget-snapshots", PlantedBug::ForgetSnapshots),
    ];

    /// Those that a single server has, and that runs on HDFS find.
    pub const OF_HDFS: [(&'static str, PlantedBug); 1] = [("skip-copy", PlantedBug::SkipCopy)];

    /// Those that only a cluster has.
    pub const OF_CLUSTERS: [(&'static str, PlantedBug); 8] = [
        ("skip-lease", PlantedBug::SkipLease),
        ("reuse-epochs", PlantedBug::ReuseEpochs),
        ("seal-nothing", PlantedBug::SealNothing),
        ("sweep-snapshots", PlantedBug::SweepSnapshots),
        ("leave-streams-out", PlantedBug::LeaveStreamsOut),
        ("seal-first", PlantedBug::SealFirst),
        ("skip-rest", PlantedBug::SkipRest),
        ("forget-deletions", PlantedBug::ForgetDeletions),
    ];

    /// Those that only a server has that archives its log.
    pub const OF_ARCHIVES: [(&'static str, PlantedBug); 1] = [("archive-early", PlantedBug::ArchiveEarly)];

    /// Those that only a cluster has that archives its logs.
    pub const OF_ARCHIVED_CLUSTERS: [(&'static str, PlantedBug); 1] = [("forget-rest", PlantedBug::ForgetRest)];

    /// Whether it has an effect only on a bucket.
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
