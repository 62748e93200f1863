//! Lines of a byte stream, counted and bounded: the base of the line-oriented formats.

use crate::records::{Parsed, RECORD_BYTES_MAX, Record, RecordReader, too_long};
use std::io::{self, BufRead};

/// Reads lines without their line break (`\n` or `\r\n`) and knows their numbers.
pub struct Lines<R> {
    input: R,
    /// Number of the line last read, from 1; 0 before the first.
    number: u64,
    line: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    /// Starts before the first line.
    pub fn new(input: R) -> Self {
        Lines {
            input,
            number: 0,
            line: Vec::new(),
        }
    }

    /// Moves to the next line; false at the end of the input. A byte order mark before the first line is dropped.
    pub fn advance(&mut self) -> io::Result<bool> {
        self.line.clear();
        let mut limited = io::Read::take(&mut self.input, RECORD_BYTES_MAX as u64 + 1);
        if limited.read_until(b'\n', &mut self.line)? == 0 {
            return Ok(false);
        }
        self.number += 1;
        if self.line.len() > RECORD_BYTES_MAX {
            return Err(too_long(self.number));
        }
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
            if self.line.last() == Some(&b'\r') {
                self.line.pop();
            }
        }
        if self.number == 1 && self.line.starts_with(b"\xef\xbb\xbf") {
            self.line.drain(..3);
        }
        Ok(true)
    }

    /// The current line.
    pub fn line(&self) -> &[u8] {
        &self.line
    }

    /// The number of the current line, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// Reads a record from every line that is not blank.
pub struct RecordLines<R> {
    lines: Lines<R>,
    parse: fn(&[u8]) -> Result<Record, String>,
}

impl<R: BufRead> RecordLines<R> {
    /// Starts before the first line; `parse` makes a record of a line, or returns the reason why it is bad.
    pub fn new(input: R, parse: fn(&[u8]) -> Result<Record, String>) -> Self {
        RecordLines {
            lines: Lines::new(input),
            parse,
        }
    }
}

impl<R: BufRead + Send> RecordReader for RecordLines<R> {
    fn read(&mut self) -> io::Result<Option<Parsed>> {
        while self.lines.advance()? {
            if !self.lines.line().trim_ascii().is_empty() {
                let record = (self.parse)(self.lines.line());
                return Ok(Some(Parsed {
                    line: self.lines.number(),
                    record,
                }));
            }
        }
        Ok(None)
    }

    fn raw(&self) -> &[u8] {
        self.lines.line()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_numbers() {
        let mut lines = Lines::new(&b"\xef\xbb\xbfone\r\n\ntwo\r\r\nlast"[..]);
        let mut seen = Vec::new();
        while lines.advance().unwrap() {
            seen.push((lines.number(), lines.line().to_vec()));
        }
        let expected: [(u64, &[u8]); 4] = [(1, b"one"), (2, b""), (3, b"two\r"), (4, b"last")];
        assert_eq!(seen, expected.map(|(number, line)| (number, line.to_vec())));
    }
}
