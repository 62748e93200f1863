//! Prints a segment for people.

use super::reader::SegmentReader;
use crate::error::LogError;
use crate::format::{Record, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::mark::Mark;
use std::fmt::Write;
use std::sync::Arc;
use stele_storage::ReadFile;

/// Prints a segment: its header and, per group, its records. `describe` renders a payload.
pub async fn inspect(file: Arc<dyn ReadFile>, describe: impl Fn(&Record) -> String) -> Result<String, LogError> {
    let corruption = |detail: &str| LogError::Corruption {
        path: Arc::from(file.path()),
        offset: 0,
        detail: detail.to_owned(),
    };
    if file.len() < SEGMENT_HEADER_BYTES as u64 {
        return Err(corruption("shorter than a segment header"));
    }
    let header = SegmentHeader::decode(&file.read_at(0, SEGMENT_HEADER_BYTES).await?)
        .ok_or_else(|| corruption("the segment header does not check"))?;
    let mut out = String::new();
    let _ = writeln!(
        out,
        "commit log segment {:016x}, stream {}, version {}",
        header.number, header.stream, header.version
    );
    let _ = writeln!(
        out,
        "previous segment {:016x}, {} bytes acknowledged",
        header.previous, header.previous_len
    );
    let mut reader = SegmentReader::new(file, header.number, None);
    while let Some(records) = {
        let at = reader.at;
        let group = reader.next_group().await?;
        if let Some(records) = &group {
            let _ = writeln!(
                out,
                "group at {at}: {} records, {} bytes",
                records.len(),
                reader.at - at
            );
        }
        group
    } {
        for record in &records {
            if let Some(mark) = Mark::of(record) {
                let _ = writeln!(out, "  {mark:?}");
                continue;
            }
            let Record {
                tablet,
                first,
                last,
                payload,
            } = record;
            let _ = writeln!(
                out,
                "  tablet {tablet} seq {first}..={last} {} bytes",
                payload.bytes().len()
            );
            out.push_str(&describe(record));
        }
    }
    let _ = writeln!(out, "ends at {}, {} bytes behind it", reader.at, reader.torn_bytes());
    Ok(out)
}
