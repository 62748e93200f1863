//! Prints the coordinator's files for people.

use super::{FormatError, LOG_MAGIC, SNAPSHOT_MAGIC, decode_log, decode_log_header, decode_snapshot};
use crate::txn::Write;
use bytes::Bytes;
use std::fmt::Write as _;

/// Most bytes of a value shown.
const SHOWN_BYTES_MAX: usize = 64;

/// The content of a log or a snapshot, one entry a line.
pub fn inspect(bytes: &Bytes) -> Result<String, FormatError> {
    if bytes.starts_with(&LOG_MAGIC) {
        inspect_log(bytes)
    } else if bytes.starts_with(&SNAPSHOT_MAGIC) {
        inspect_snapshot(bytes)
    } else {
        let head = bytes.get(..8).unwrap_or(bytes).escape_ascii();
        Err(FormatError::new(
            0,
            "a coordination log or snapshot",
            format!("\"{head}\""),
        ))
    }
}

fn inspect_log(bytes: &Bytes) -> Result<String, FormatError> {
    let generation = decode_log_header(bytes).map_err(|damage| damage.error)?;
    let log = decode_log(bytes, generation)?;
    let mut out = format!("coordination log, generation {generation}\n");
    for record in &log.records {
        let _ = writeln!(out, "{:>8}  revision {}", record.offset, record.revision);
        for write in &record.writes {
            let _ = match write {
                Write::Put { key, value } => writeln!(out, "          put {key} = {}", show(value)),
                Write::Delete { key } => writeln!(out, "          delete {key}"),
                Write::PutBound { key, value, session } => {
                    writeln!(out, "          put {key} = {} while session {session}", show(value))
                }
            };
        }
    }
    if let Some(at) = log.torn_at {
        let _ = writeln!(out, "{at:>8}  torn end, never acknowledged");
    }
    Ok(out)
}

fn inspect_snapshot(bytes: &Bytes) -> Result<String, FormatError> {
    let snapshot = decode_snapshot(bytes)?;
    let mut out = format!(
        "coordination snapshot, generation {}, revision {}, {} keys\n",
        snapshot.generation,
        snapshot.revision,
        snapshot.entries.len()
    );
    for entry in &snapshot.entries {
        let _ = writeln!(out, "{:>8}  {} = {}", entry.version, entry.key, show(&entry.value));
    }
    Ok(out)
}

fn show(value: &[u8]) -> String {
    match value.get(..SHOWN_BYTES_MAX) {
        Some(head) if value.len() > SHOWN_BYTES_MAX => {
            format!("\"{}\"… ({} bytes)", head.escape_ascii(), value.len())
        }
        _ => format!("\"{}\"", value.escape_ascii()),
    }
}
