//! Tables that the server keeps for a while, so that an accident can be undone.

use serde::{Deserialize, Serialize};

/// The reason why the server has taken a snapshot of a table by itself. The numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kept {
    /// The table is deleted.
    DeletedTable = 1,
    /// A range of its rows is dropped.
    DroppedRows = 2,
    /// Families of it are dropped.
    DroppedFamilies = 3,
    /// All of its rows are dropped.
    Truncated = 4,
}

impl Kept {
    /// All of them.
    pub const ALL: [Kept; 4] = [
        Kept::DeletedTable,
        Kept::DroppedRows,
        Kept::DroppedFamilies,
        Kept::Truncated,
    ];

    /// The reason of a stored number.
    pub fn from_number(number: u32) -> Option<Kept> {
        Kept::ALL.into_iter().find(|kept| *kept as u32 == number)
    }

    /// The event, in words.
    pub fn event(self) -> &'static str {
        match self {
            Kept::DeletedTable => "deleted",
            Kept::DroppedRows => "rows dropped",
            Kept::DroppedFamilies => "families dropped",
            Kept::Truncated => "truncated",
        }
    }
}
