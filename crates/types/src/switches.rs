//! Work that servers do by themselves, and that an administrator may switch off.

use serde::{Deserialize, Serialize};

/// Which of this work is done. HBase has the same switches. A server of an earlier version sends fewer: the others are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Switches {
    /// Tablets move to servers with less load. Moves that an administrator asks for, and those of a server that drains, go on
    /// without it.
    pub balance: bool,
    /// Tablets are split. Without it, requests for a split are refused, too.
    pub split: bool,
    /// Tablets are merged. Without it, requests for a merge are refused, too.
    pub merge: bool,
    /// Snapshots that clients have taken are deleted when they have expired. Automated backups and tables that are kept after
    /// accidents are deleted in any case.
    pub snapshot_cleanup: bool,
}

impl Default for Switches {
    fn default() -> Self {
        Switches {
            balance: true,
            split: true,
            merge: true,
            snapshot_cleanup: true,
        }
    }
}

/// A change of the switches; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchesChange {
    /// Of [`Switches::balance`].
    pub balance: Option<bool>,
    /// Of [`Switches::split`].
    pub split: Option<bool>,
    /// Of [`Switches::merge`].
    pub merge: Option<bool>,
    /// Of [`Switches::snapshot_cleanup`].
    pub snapshot_cleanup: Option<bool>,
}

impl SwitchesChange {
    /// The switches after this change.
    pub fn of(self, former: Switches) -> Switches {
        Switches {
            balance: self.balance.unwrap_or(former.balance),
            split: self.split.unwrap_or(former.split),
            merge: self.merge.unwrap_or(former.merge),
            snapshot_cleanup: self.snapshot_cleanup.unwrap_or(former.snapshot_cleanup),
        }
    }
}
