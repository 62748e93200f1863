//! Compressed tags of encoded blocks.
//!
//! Each tag is either `FF`, a varint length and its bytes (type and value), or the number of an earlier one in two bytes.
//! Earlier ones are in a dictionary of 127 places. When it is full, a new tag takes the place of the one that was used least
//! recently. Each block begins with an empty dictionary.

use crate::error::{Decoded, Malformed};
use crate::input::Input;

/// Places of the dictionary.
const PLACES: usize = 127;
const NEW: u8 = 0xff;

/// The tags that a block has had.
#[derive(Debug, Default)]
pub struct Dictionary<'a> {
    entries: Vec<&'a [u8]>,
    /// Numbers of all entries, the one used least recently first.
    order: Vec<u8>,
}

impl<'a> Dictionary<'a> {
    /// Reads tags that take `len` bytes, and appends them as they are without compression.
    pub fn read(&mut self, input: &mut Input<'a>, len: usize, out: &mut Vec<u8>) -> Decoded<()> {
        let end = out.len() + len;
        while out.len() < end {
            let first = input.u8()?;
            let tag = match first {
                NEW => {
                    let bytes = input.compressed_int()?;
                    let tag = input.take(bytes)?;
                    self.add(tag);
                    tag
                }
                high => self.used(u16::from_be_bytes([high, input.u8()?]))?,
            };
            let Ok(bytes) = u16::try_from(tag.len()) else {
                return Malformed::new("a tag of more than 65,535 bytes");
            };
            out.extend(bytes.to_be_bytes());
            out.extend(tag);
        }
        match out.len() == end {
            true => Ok(()),
            false => Malformed::new("tags of another length than the cell says"),
        }
    }

    fn add(&mut self, tag: &'a [u8]) {
        if tag.is_empty() {
            return;
        }
        if self.entries.len() < PLACES {
            self.order.push(self.entries.len() as u8);
            self.entries.push(tag);
            return;
        }
        let oldest = self.order.remove(0);
        if let Some(place) = self.entries.get_mut(usize::from(oldest)) {
            *place = tag;
        }
        self.order.push(oldest);
    }

    fn used(&mut self, number: u16) -> Decoded<&'a [u8]> {
        let Some(tag) = self.entries.get(usize::from(number)) else {
            return Malformed::new(format!("tag {number} of a dictionary of {}", self.entries.len()));
        };
        if let Some(at) = self.order.iter().position(|other| u16::from(*other) == number) {
            let used = self.order.remove(at);
            self.order.push(used);
        }
        Ok(tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(dictionary: &mut Dictionary<'static>, bytes: &'static [u8], len: usize) -> Decoded<Vec<u8>> {
        let mut out = Vec::new();
        dictionary.read(&mut Input::new(bytes), len, &mut out)?;
        Ok(out)
    }

    #[test]
    fn a_repeated_tag_is_a_number() {
        let mut dictionary = Dictionary::default();
        let tags = read(&mut dictionary, &[NEW, 2, 8, 1, NEW, 1, 7], 7);
        assert_eq!(tags, Ok(vec![0, 2, 8, 1, 0, 1, 7]));
        assert_eq!(read(&mut dictionary, &[0, 1, 0, 0], 7), Ok(vec![0, 1, 7, 0, 2, 8, 1]));
        assert!(read(&mut dictionary, &[0, 2], 3).is_err());
        assert!(read(&mut dictionary, &[0, 0], 3).is_err(), "longer than said");
        assert!(read(&mut dictionary, &[NEW, 9], 3).is_err());
    }

    #[test]
    fn the_tag_used_least_recently_makes_space() {
        let mut dictionary = Dictionary::default();
        let tags: Vec<[u8; 1]> = (0..=PLACES as u8).map(|n| [n]).collect();
        let (last, first) = tags.split_last().unwrap();
        first.iter().for_each(|tag| dictionary.add(tag));
        assert_eq!(dictionary.used(0), Ok(&[0][..]));
        dictionary.add(last);
        assert_eq!(dictionary.used(1), Ok(&last[..]), "its place was the oldest's");
        assert_eq!(dictionary.used(0), Ok(&[0][..]));
    }
}
