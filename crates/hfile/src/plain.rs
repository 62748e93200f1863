//! Cells as blocks without an encoding have them, one behind the other. Encoded blocks are decoded to this form.
//!
//! | bytes | field, big-endian |
//! |---|---|
//! | 4 | bytes of the key |
//! | 4 | bytes of the value |
//! | n | [key](crate::key) |
//! | n | value |
//! | 2, n | tags, if the file has tags |
//! | vlong | number in the order of commits, if the file has them |

use crate::error::{Decoded, Malformed};
use crate::input::Input;
use crate::key::KeyParts;
use bytes::Bytes;
use std::ops::Range;
use stele_wire::cell::Cell;

/// The fields that cells have behind their value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub tags: bool,
    pub sequences: bool,
}

/// Where a cell is in its block.
struct Place {
    key: Range<usize>,
    value: Range<usize>,
    tags: Range<usize>,
    end: usize,
}

/// Reads the cells of a block; each is a slice of it. Ends after an error.
#[derive(Clone, Debug)]
pub struct PlainCells {
    block: Bytes,
    layout: Layout,
    at: usize,
}

impl PlainCells {
    pub fn new(block: Bytes, layout: Layout) -> Self {
        PlainCells { block, layout, at: 0 }
    }

    /// The next cell with its tags; `None` at the end of the block.
    pub fn next(&mut self) -> Option<Decoded<(Cell, Bytes)>> {
        if self.at >= self.block.len() {
            return None;
        }
        let read = self.read();
        if read.is_err() {
            self.at = self.block.len();
        }
        Some(read)
    }

    fn read(&mut self) -> Decoded<(Cell, Bytes)> {
        let from = self.at;
        let Place { key, value, tags, end } = self.place()?;
        let part = |range: Range<usize>| self.block.slice(from + range.start..from + range.end);
        let (key, value, tags) = (part(key), part(value), part(tags));
        let parts = KeyParts::parse(&key)?;
        self.at = from + end;
        let cell = Cell {
            row: key.slice(parts.row),
            family: key.slice(parts.family),
            qualifier: key.slice(parts.qualifier),
            timestamp: parts.timestamp,
            kind: parts.kind,
            value,
        };
        Ok((cell, tags))
    }

    /// The place of the next cell, relative to where it begins.
    fn place(&self) -> Decoded<Place> {
        let mut input = Input::new(self.block.get(self.at..).unwrap_or_default());
        let (key_len, value_len) = (input.length()?, input.length()?);
        let part = |input: &mut Input<'_>, len: usize| {
            let start = input.position();
            input.take(len).map(|_| start..start + len)
        };
        let (key, value) = (part(&mut input, key_len)?, part(&mut input, value_len)?);
        let tags = match self.layout.tags {
            false => 0..0,
            true => {
                let len = usize::from(input.u16()?);
                part(&mut input, len)?
            }
        };
        if self.layout.sequences && input.vlong()? < 0 {
            return Malformed::new("a negative number in the order of commits");
        }
        Ok(Place {
            key,
            value,
            tags,
            end: input.position(),
        })
    }
}
