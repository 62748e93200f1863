//! Errors for moments that cannot be restored. Each says why, and which moments can be.

use super::{Moment, restorable};
use crate::archive::history::End;
use crate::archive::orphans::Orphan;
use crate::destination::Destination;
use crate::error::{BackupError, Result};
use stele_types::TableName;

/// No backup and range have the moment; the error names the times of those that can be restored.
pub(super) async fn out_of_reach(
    destination: &Destination,
    moment: &Moment<'_>,
    name: Option<&str>,
) -> Result<BackupError> {
    let times = restorable(destination, moment.archive).await?;
    let times: Vec<String> = times.iter().map(|(from, to)| format!("{from} to {}", to - 1)).collect();
    let by = name.map(|name| format!(" with backup {name}")).unwrap_or_default();
    let what = match times.is_empty() {
        true => "no moment can: the archive must have the log from before a complete backup on".to_owned(),
        false => format!("these can, in microseconds since 1970: {}", times.join(", ")),
    };
    Ok(BackupError::Moment(format!(
        "the moment {} cannot be restored{by}; {what}",
        moment.at
    )))
}

/// Something happened to a table that the log does not describe.
pub(super) fn unknown(table: &TableName, end: &End, completed: i64) -> BackupError {
    let (micros, why) = (end.micros, &end.why);
    let latest = latest(micros, completed);
    BackupError::Moment(format!(
        "table {table} cannot be restored to the moment: at {micros}, {why}, which the log does not describe; {latest}"
    ))
}

/// There are writes of a tablet of which nobody knows the table.
pub(super) fn ownerless(orphan: Orphan, completed: i64) -> BackupError {
    let Orphan { micros, tablet } = orphan;
    let latest = latest(micros, completed);
    BackupError::Moment(format!(
        "the moment cannot be restored: from {micros} on, the archive has writes of tablet {tablet}, and the server ended before it had archived of which table that is; {latest}"
    ))
}

/// The moment before the first one that cannot be restored.
fn latest(micros: i64, completed: i64) -> String {
    match micros > completed {
        true => format!(
            "the latest moment to which this backup can be followed is {}; a later backup leads further",
            micros - 1
        ),
        false => "with this backup no later moment can be restored".to_owned(),
    }
}
