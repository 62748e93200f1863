//! The size of a tablet and the operations on it, as its owner tells them.

/// The size of a tablet, and the operations on it. An owner of an earlier version tells only `bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TabletFigures {
    /// Bytes of files and memtables, roughly.
    pub bytes: u64,
    /// Where these bytes are.
    pub storage: Option<TabletStorage>,
    /// `None` also where the owner counts no operations.
    pub operations: Option<TabletOperations>,
}

/// The files and memtables of a tablet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TabletStorage {
    /// Bytes of sstables and of their large values.
    pub file_bytes: u64,
    /// Sstables.
    pub files: u64,
    /// Bytes of memtables.
    pub memtable_bytes: u64,
}

/// Operations on the rows of a tablet since its owner opened it. The owner counts samples, so the numbers are estimates and may be
/// some thousand operations behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TabletOperations {
    /// Rows read.
    pub reads: u64,
    /// Rows written.
    pub writes: u64,
}

impl TabletFigures {
    /// Of a tablet of which only its size is known.
    pub fn of_bytes(bytes: u64) -> Self {
        TabletFigures {
            bytes,
            storage: None,
            operations: None,
        }
    }
}
