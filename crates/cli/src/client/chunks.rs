//! Rows out of the chunks of a ReadRows stream.
//!
//! The protocol (bigtable.proto, `ReadRowsResponse.CellChunk`): a chunk carries a cell or a piece of one. Row key, family
//! and qualifier are sent when they change; a new family implies a new qualifier. `value_size > 0` announces that more
//! pieces of the value follow. `commit_row` makes everything since the row began valid, `reset_row` voids it.
//!
//! Invariants, checked against the server: rows arrive in strictly increasing key order; nothing but a reset or a commit
//! ends a row; a stream does not end inside one. A violation is an error, for rows assembled wrongly are worse than none.

use crate::escape::escape;
use crate::records::{CellValue, RowCells};
use bytes::{Bytes, BytesMut};
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::read_rows_response::CellChunk;
use googleapis_tonic_google_bigtable_v2::google::bigtable::v2::read_rows_response::cell_chunk::RowStatus;

/// Assembles the rows of one stream, and of the streams that continue it.
#[derive(Debug, Default)]
pub struct RowAssembler {
    /// Everything up to and including this key is done; empty before the first.
    last_key: Bytes,
    /// The row that has begun and is not committed.
    row: Option<RowCells>,
    family: Option<String>,
    qualifier: Option<Bytes>,
    /// The value whose parts are arriving, with its timestamp.
    partial: Option<(i64, BytesMut)>,
}

impl RowAssembler {
    /// The last key that is certainly done: of a returned row, or one the server has scanned past.
    pub fn last_key(&self) -> &Bytes {
        &self.last_key
    }

    /// Forgets a row that was cut off, before a new stream continues after [`last_key`](Self::last_key).
    pub fn restart(&mut self) {
        self.row = None;
        self.family = None;
        self.qualifier = None;
        self.partial = None;
    }

    /// The server has scanned up to this key without a match.
    pub fn scanned(&mut self, key: Bytes) -> Result<(), String> {
        if key.is_empty() {
            return Ok(());
        }
        if self.row.is_some() || key < self.last_key {
            return Err(format!("the server reports scanned key {} out of order", escape(&key)));
        }
        self.last_key = key;
        Ok(())
    }

    /// Takes one chunk; returns a row when it completes one.
    pub fn push(&mut self, chunk: CellChunk) -> Result<Option<RowCells>, String> {
        if let Some(RowStatus::ResetRow(true)) = chunk.row_status {
            if self.row.is_none() || !chunk.row_key.is_empty() || !chunk.value.is_empty() {
                return Err("a reset without a row, or with data".to_owned());
            }
            self.restart();
            return Ok(None);
        }
        self.begin_or_continue_row(&chunk)?;
        let commit = matches!(chunk.row_status, Some(RowStatus::CommitRow(true)));
        if commit && chunk.value_size > 0 {
            return Err(self.complain("is committed in the middle of a value"));
        }
        self.take_cell(chunk)?;
        if !commit {
            return Ok(None);
        }
        let row = self.row.take();
        if let Some(row) = &row {
            self.last_key = row.key.clone();
        }
        self.restart();
        Ok(row)
    }

    /// The stream ended; an error if it did so inside a row.
    pub fn end(&self) -> Result<(), String> {
        match self.row {
            None => Ok(()),
            Some(_) => Err(self.complain("is not committed at the end of the stream")),
        }
    }

    fn begin_or_continue_row(&mut self, chunk: &CellChunk) -> Result<(), String> {
        match &self.row {
            None if chunk.row_key.is_empty() => Err("a row begins without a key".to_owned()),
            None if !self.last_key.is_empty() && chunk.row_key <= self.last_key => Err(format!(
                "row {} arrives after row {}",
                escape(&chunk.row_key),
                escape(&self.last_key)
            )),
            None => {
                self.row = Some(RowCells {
                    key: chunk.row_key.clone(),
                    cells: Vec::new(),
                });
                Ok(())
            }
            Some(row) if !chunk.row_key.is_empty() && chunk.row_key != row.key => {
                Err(self.complain("is followed by another without a commit"))
            }
            Some(_) => Ok(()),
        }
    }

    fn take_cell(&mut self, chunk: CellChunk) -> Result<(), String> {
        let more = chunk.value_size > 0;
        let (timestamp, value) = match self.partial.take() {
            Some(_) if chunk.family_name.is_some() || chunk.qualifier.is_some() => {
                return Err(self.complain("changes column in the middle of a value"));
            }
            Some((timestamp, mut value)) => {
                value.extend_from_slice(&chunk.value);
                if more {
                    self.partial = Some((timestamp, value));
                    return Ok(());
                }
                (timestamp, value.freeze())
            }
            None => {
                self.set_column(&chunk)?;
                if more {
                    self.partial = Some((chunk.timestamp_micros, BytesMut::from(&chunk.value[..])));
                    return Ok(());
                }
                (chunk.timestamp_micros, chunk.value)
            }
        };
        let (Some(family), Some(qualifier)) = (self.family.clone(), self.qualifier.clone()) else {
            return Err(self.complain("has a cell without family or qualifier"));
        };
        if let Some(row) = &mut self.row {
            row.cells.push(CellValue {
                family,
                qualifier,
                timestamp,
                value,
            });
        }
        Ok(())
    }

    fn set_column(&mut self, chunk: &CellChunk) -> Result<(), String> {
        if let Some(family) = &chunk.family_name {
            if chunk.qualifier.is_none() {
                return Err(self.complain("has a family without a qualifier"));
            }
            self.family = Some(family.clone());
        }
        if let Some(qualifier) = &chunk.qualifier {
            self.qualifier = Some(Bytes::copy_from_slice(qualifier));
        }
        Ok(())
    }

    fn complain(&self, what: &str) -> String {
        let key = self.row.as_ref().map(|row| escape(&row.key)).unwrap_or_default();
        format!("row {key} {what}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One line per chunk: `key family:qualifier@timestamp value flags`. `.` stands for a part that is not sent, `~`
    /// for a qualifier sent alone. The flags are `commit`, `reset` and `more`.
    fn chunk(line: &str) -> CellChunk {
        let words: Vec<&str> = line.split(' ').collect();
        let sent = |at: usize| words.get(at).copied().filter(|word| *word != ".");
        let column = sent(1).map(|column| column.split_once(':').unwrap());
        let flag = |name: &str| words.get(3..).unwrap_or_default().contains(&name);
        CellChunk {
            row_key: sent(0).unwrap_or_default().to_owned().into(),
            family_name: column
                .map(|(family, _)| family.to_owned())
                .filter(|family| family != "~"),
            qualifier: column.map(|(_, qualifier)| qualifier.as_bytes().to_vec()),
            timestamp_micros: 7,
            value: sent(2).unwrap_or_default().to_owned().into(),
            value_size: if flag("more") { 99 } else { 0 },
            row_status: match (flag("reset"), flag("commit")) {
                (true, _) => Some(RowStatus::ResetRow(true)),
                (_, true) => Some(RowStatus::CommitRow(true)),
                _ => None,
            },
            ..CellChunk::default()
        }
    }

    fn check(stream: &[&str], expected: Result<&str, &str>) {
        let mut assembler = RowAssembler::default();
        let mut out = Vec::new();
        let mut run = || -> Result<(), String> {
            for line in stream {
                if let Some(row) = assembler.push(chunk(line))? {
                    let cells = row
                        .cells
                        .iter()
                        .map(|cell| format!(" {}:{}={}", cell.family, escape(&cell.qualifier), escape(&cell.value)));
                    out.push(escape(&row.key) + &cells.collect::<String>());
                }
            }
            assembler.end()
        };
        match (run(), expected) {
            (Ok(()), Ok(expected)) => assert_eq!(out.join("; "), expected),
            (Err(why), Err(expected)) => assert!(why.contains(expected), "{why}"),
            (got, expected) => unreachable!("{stream:?}: {got:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn rows_are_assembled() {
        check(&["a f:q v commit", "b f:q v commit"], Ok("a f:q=v; b f:q=v"));
        check(
            &["a f:q 1", ". . 2", ". ~:r 3", ". g:q 4 commit"],
            Ok("a f:q=1 f:q=2 f:r=3 g:q=4"),
        );
        check(&["a f:q 1 more", ". . 2 more", ". . 3 commit"], Ok("a f:q=123"));
        check(&["a f:q 1", ". . . reset", "a f:q 2 commit"], Ok("a f:q=2"));
        check(&["a f:q . commit"], Ok("a f:q="));
        check(&["a f: v commit"], Ok("a f:=v"));
    }

    #[test]
    fn violations_are_errors() {
        check(&[". f:q v commit"], Err("without a key"));
        check(&["a ~:q v commit"], Err("without family"));
        check(&["a . v commit"], Err("without family"));
        check(&["b f:q v commit", "a f:q v commit"], Err("row a arrives after row b"));
        check(&["a f:q v commit", "a f:q v commit"], Err("arrives after"));
        check(&["a f:q v", "b f:q v commit"], Err("without a commit"));
        check(&["a f:q v"], Err("not committed"));
        check(&["a f:q v more commit"], Err("middle of a value"));
        check(&["a f:q v more", ". f:r v commit"], Err("changes column"));
        check(&[". . . reset"], Err("reset without a row"));
    }

    #[test]
    fn a_cut_off_row_is_read_again() {
        let mut assembler = RowAssembler::default();
        assembler.push(chunk("a f:q v commit")).unwrap();
        assembler.push(chunk("b f:q half more")).unwrap();
        assembler.restart();
        assert_eq!(assembler.last_key(), "a");
        let row = assembler.push(chunk("b f:q whole commit")).unwrap().unwrap();
        assert_eq!(row.cells[0].value, "whole");
    }

    #[test]
    fn scanned_keys_move_the_resumption_point() {
        let mut assembler = RowAssembler::default();
        assembler.scanned(Bytes::from_static(b"m")).unwrap();
        assembler.scanned(Bytes::new()).unwrap();
        assert_eq!(assembler.last_key(), "m");
        assert!(assembler.scanned(Bytes::from_static(b"a")).is_err());
        assert!(assembler.push(chunk("a f:q v commit")).is_err());
    }
}
