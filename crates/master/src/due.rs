//! The times at which automated backups are due.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use stele_types::TableId;

/// When the next backup of each table is due, in wall-clock microseconds, as far as that is known.
#[derive(Default)]
pub(crate) struct DueBackups(pub(crate) Mutex<BTreeMap<TableId, i64>>);
