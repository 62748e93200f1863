//! Cuts the references of a group at rows, for who writes them to a manifest.
//!
//! Where the keys of a file lie that cannot be opened only its neighbours in the run tell, and the tablet holds it cut down to
//! the gap between them. Of several in a row the first stands for all, and nothing of the gap is left for those behind it. A
//! manifest must not say that: when they can be read again, or are restored, they would have no rows. So a file for which
//! another stands is written as it was, where what is written has all of their gap; it is left out, where that has nothing of
//! it; and what would cut the gap fails.

use crate::error::Result;
use crate::manifest::FileRef;
use crate::state::HeldFile;
use bytes::Bytes;

/// A file of a group, and where its keys may lie.
pub(super) struct Placed<'a> {
    held: &'a HeldFile,
    stored: &'a FileRef,
    /// The one that stands for it: the first of those in a row that cannot be opened.
    first: Option<&'a HeldFile>,
}

/// The files of a group, of which the manifest has these references.
pub(super) fn placed<'a>(held: &'a [HeldFile], stored: &'a [FileRef]) -> Vec<Placed<'a>> {
    debug_assert_eq!(held.len(), stored.len(), "the state is not that of the manifest");
    let mut all: Vec<Placed<'a>> = Vec::with_capacity(held.len());
    for (at, file) in held.iter().enumerate() {
        let stored = stored.get(at).unwrap_or(&file.reference);
        let before = all.last().filter(|before| !before.held.is_open() && !file.is_open());
        let before = before.filter(|before| before.stored.continues_in(stored));
        let first = before.map(|before| before.first.unwrap_or(before.held));
        all.push(Placed {
            held: file,
            stored,
            first,
        });
    }
    all
}

impl Placed<'_> {
    /// As the manifest has it.
    pub(super) fn stored(&self) -> &FileRef {
        self.stored
    }

    /// Whether the referenced part may have keys in `[lower, upper)`.
    pub(super) fn may_contain(&self, lower: &[u8], upper: Option<&[u8]>) -> bool {
        let Some(first) = self.first else {
            return self.held.may_contain(lower, upper);
        };
        let begins_below = upper.is_none_or(|upper| first.first_key() < upper);
        begins_below && first.reference.upper.as_deref().is_none_or(|end| lower < end)
    }

    /// The reference cut down to keys in `[lower, upper)`; `None` when the file has no key there.
    pub(super) async fn narrowed(&self, lower: Option<&Bytes>, upper: Option<&Bytes>) -> Result<Option<FileRef>> {
        let Some(first) = self.first else {
            return self.held.narrowed(lower, upper).await;
        };
        if !self.may_contain(lower.map_or(&[], |lower| &lower[..]), upper.map(|upper| &upper[..])) {
            return Ok(None);
        }
        let end = first.reference.upper.as_deref();
        let begins_within = lower.is_none_or(|lower| lower[..] <= *first.first_key());
        let ends_within = upper.is_none_or(|upper| end.is_some_and(|end| *end <= upper[..]));
        match begins_within && ends_within {
            true => Ok(self.stored.narrowed(lower.cloned(), upper.cloned())),
            // Says why it cannot be opened.
            false => Err(self.held.sstable.corruption("its keys are unknown").into()),
        }
    }
}
