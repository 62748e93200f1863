//! Encodings of data blocks. Each is decoded to [plain](crate::plain) cells as a whole.
//!
//! An encoded block begins with the number of its encoding in two bytes. `PREFIX`, `DIFF` and `FAST_DIFF` go on with the
//! bytes of all cells before they were encoded (4), and then have the cells, each as a difference to the one before
//! ([`delta`]). `ROW_INDEX_V1` has plain cells and behind them the places of rows, which only a search needs.

mod delta;

use crate::block::{BLOCK_BYTES_MAX, BlockKind};
use crate::error::{Decoded, Malformed};
use crate::input::Input;
use crate::plain::Layout;
use bytes::Bytes;
use delta::Decoder;

/// Encodings by their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    None,
    Prefix,
    Diff,
    FastDiff,
    RowIndex,
}

impl Encoding {
    fn from_number(number: u16) -> Decoded<Encoding> {
        match number {
            0 => Ok(Encoding::None),
            2 => Ok(Encoding::Prefix),
            3 => Ok(Encoding::Diff),
            4 => Ok(Encoding::FastDiff),
            7 => Ok(Encoding::RowIndex),
            _ => Malformed::new(format!("encoding {number} of data blocks is not read")),
        }
    }
}

/// How the data blocks of a file are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLayout {
    pub cells: Layout,
    /// Tags of blocks that are encoded by differences are compressed.
    pub compressed_tags: bool,
}

/// A data block that is ready to be decoded.
pub struct EncodedBlock<'a> {
    encoding: Encoding,
    content: &'a Bytes,
    /// Behind the numbers at the front.
    cells: Input<'a>,
    /// Bytes of the decoded cells at most; 0 where they are slices of the content.
    pub decoded_bytes: usize,
}

impl<'a> EncodedBlock<'a> {
    /// A data block of this kind with this content.
    pub fn new(kind: BlockKind, content: &'a Bytes) -> Decoded<EncodedBlock<'a>> {
        let mut cells = Input::new(content);
        let encoding = match kind {
            BlockKind::EncodedData => Encoding::from_number(cells.u16()?)?,
            _ => Encoding::None,
        };
        let decoded_bytes = match encoding {
            Encoding::None | Encoding::RowIndex => 0,
            Encoding::Prefix | Encoding::Diff | Encoding::FastDiff => cells.length()?,
        };
        if decoded_bytes > BLOCK_BYTES_MAX {
            return Malformed::new(format!("a block of {decoded_bytes} bytes of cells"));
        }
        Ok(EncodedBlock {
            encoding,
            content,
            cells,
            decoded_bytes,
        })
    }

    /// The plain cells, and their layout.
    pub fn decode(self, layout: BlockLayout) -> Decoded<(Bytes, Layout)> {
        let from = self.cells.position();
        match self.encoding {
            Encoding::None => Ok((self.content.slice(from..), layout.cells)),
            Encoding::RowIndex => {
                let bytes = self.cells.rest().last_chunk::<4>();
                let bytes = Input::new(bytes.map_or(&[], |bytes| bytes)).length()?;
                match from.checked_add(bytes).filter(|end| *end <= self.content.len()) {
                    Some(end) => Ok((self.content.slice(from..end), layout.cells)),
                    None => Malformed::new("an index of rows behind the end of its block"),
                }
            }
            Encoding::Prefix | Encoding::Diff | Encoding::FastDiff => {
                let cells = Decoder::new(self.cells, layout, self.decoded_bytes).decode(self.encoding)?;
                let decoded = Layout {
                    sequences: false,
                    ..layout.cells
                };
                Ok((cells.into(), decoded))
            }
        }
    }
}
