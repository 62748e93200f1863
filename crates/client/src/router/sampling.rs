//! Samples of a range, put together from those of its tablets.

use crate::request::RowSample;
use crate::tablets::TabletSample;
use bytes::Bytes;
use stele_types::RowRange;

/// The sample so far; tablets come in order.
pub(super) struct Sampling {
    range: RowRange,
    /// The row with which the tablets begin that are not sampled yet.
    next: Option<Bytes>,
    samples: Vec<RowSample>,
    /// Of all tablets so far.
    bytes: u64,
    /// Those before the range's first row, as far as samples tell.
    before: u64,
    /// From there to the last row that a number of bytes is known for.
    reached: u64,
}

impl Sampling {
    pub fn new(range: RowRange) -> Self {
        Sampling {
            next: (!range.is_empty()).then(|| range.start.clone()),
            range,
            samples: Vec::new(),
            bytes: 0,
            before: 0,
            reached: 0,
        }
    }

    /// A row of the next tablet; `None` after the last one.
    pub fn next_row(&self) -> Option<Bytes> {
        self.next.clone()
    }

    /// Adds the samples of the tablet that has the next row. It begins before that if other tablets have replaced all of the table's.
    pub fn tablet(&mut self, tablet: &RowRange, sample: TabletSample) {
        let begun = self.next.take().filter(|next| *next > self.range.start);
        let is_behind = |row: &Bytes| begun.as_ref().is_some_and(|begun| row <= begun);
        for (row, bytes) in sample.rows {
            if !tablet.contains(&row) || is_behind(&row) {
                continue;
            }
            if row <= self.range.start {
                self.before = self.bytes + bytes;
            } else if self.range.contains(&row) {
                self.push(row, self.bytes + bytes);
            }
        }
        self.bytes += sample.bytes;
        match &tablet.end {
            Some(end) if self.range.contains(end) => {
                self.push(end.clone(), self.bytes);
                self.next = Some(end.clone());
            }
            // Of a tablet that goes on beyond the range, nobody knows how much does.
            end if *end == self.range.end => self.reached = self.bytes.saturating_sub(self.before),
            _ => {}
        }
    }

    fn push(&mut self, row: Bytes, bytes: u64) {
        self.reached = bytes.saturating_sub(self.before);
        self.samples.push(RowSample {
            row,
            offset_bytes: self.reached,
        });
    }

    /// All samples, with that of the range's end.
    pub fn finish(mut self) -> Vec<RowSample> {
        self.samples.push(RowSample {
            row: Bytes::new(),
            offset_bytes: self.reached,
        });
        self.samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: &'static str, end: &'static str) -> RowRange {
        RowRange {
            start: Bytes::from_static(start.as_bytes()),
            end: (!end.is_empty()).then(|| Bytes::from_static(end.as_bytes())),
        }
    }

    /// Two tablets of 100 bytes, up to `m` and to the end, with samples in their middles.
    fn samples(start: &'static str, end: &'static str) -> Vec<(String, u64)> {
        let mut sampling = Sampling::new(range(start, end));
        let tablets = [(range("", "m"), "f"), (range("m", ""), "t")];
        while let Some(row) = sampling.next_row() {
            let (tablet, middle) = tablets.iter().find(|(tablet, _)| tablet.contains(&row)).unwrap();
            let rows = vec![(Bytes::from_static(middle.as_bytes()), 50)];
            sampling.tablet(tablet, TabletSample { rows, bytes: 100 });
        }
        text_of(sampling)
    }

    fn text_of(sampling: Sampling) -> Vec<(String, u64)> {
        let text = |sample: RowSample| (sample.row.escape_ascii().to_string(), sample.offset_bytes);
        sampling.finish().into_iter().map(text).collect()
    }

    fn expected(samples: &[(&str, u64)]) -> Vec<(String, u64)> {
        samples.iter().map(|(row, bytes)| ((*row).to_owned(), *bytes)).collect()
    }

    #[test]
    fn a_whole_table_ends_with_its_bytes() {
        assert_eq!(
            samples("", ""),
            expected(&[("f", 50), ("m", 100), ("t", 150), ("", 200)])
        );
    }

    #[test]
    fn ranges_end_where_they_end() {
        assert_eq!(samples("", "m"), expected(&[("f", 50), ("", 100)]));
        assert_eq!(samples("a", "c"), expected(&[("", 0)]));
        assert_eq!(samples("a", "g"), expected(&[("f", 50), ("", 50)]));
        assert_eq!(samples("a", "p"), expected(&[("f", 50), ("m", 100), ("", 100)]));
        assert_eq!(samples("u", "v"), expected(&[("", 0)]));
        assert_eq!(samples("v", "u"), expected(&[("", 0)]));
    }

    #[test]
    fn a_tablet_that_begins_before_its_turn_adds_no_rows_that_have_passed() {
        let mut sampling = Sampling::new(range("", ""));
        let middle = |row: &'static str| vec![(Bytes::from_static(row.as_bytes()), 50)];
        for (tablet, rows) in [(range("", "m"), middle("f")), (range("c", ""), middle("g"))] {
            sampling.tablet(&tablet, TabletSample { rows, bytes: 100 });
        }
        assert_eq!(text_of(sampling), expected(&[("f", 50), ("m", 100), ("", 200)]));
    }

    #[test]
    fn bytes_count_from_the_beginning_of_the_range() {
        assert_eq!(samples("f", ""), expected(&[("m", 50), ("t", 100), ("", 150)]));
        assert_eq!(samples("g", "u"), expected(&[("m", 50), ("t", 100), ("", 100)]));
        assert_eq!(samples("m", ""), expected(&[("t", 50), ("", 100)]));
    }
}
