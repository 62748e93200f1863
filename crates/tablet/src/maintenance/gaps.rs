//! Cuts the references of a group at rows, for use in a manifest.
//!
//! The keys of a file that cannot be opened are known from its neighbours in the run only, if its header does not say them.
//! Readers find such files next to each other: each is held cut down to the rest of the gap that those before it leave, which
//! may be nothing. A manifest must not say that: when the files can be read again, or are restored, they would have no rows.
//! Known of each of them is that its keys are between the nearest neighbours with known keys, and within the bounds that the
//! manifest has for it and its unreadable neighbours. So such a file is written unchanged, where the new references cover all
//! of that; it is left out, where they cover none of it; and a cut through it fails.

use crate::error::Result;
use crate::held::HeldFile;
use crate::manifest::FileRef;
use bytes::Bytes;

/// A file of a group, and where its keys may lie.
pub(super) struct Placed<'a> {
    held: &'a HeldFile,
    stored: &'a FileRef,
    /// Of one that does not say which keys it has: none is below this, nor at the end of the held part or behind it.
    begin: Option<Bytes>,
}

/// The files of a group, of which the manifest has these references.
pub(super) fn placed<'a>(held: &'a [HeldFile], stored: &'a [FileRef]) -> Vec<Placed<'a>> {
    debug_assert_eq!(held.len(), stored.len(), "the state is not that of the manifest");
    let mut all: Vec<Placed<'a>> = Vec::with_capacity(held.len());
    for (at, held) in held.iter().enumerate() {
        let stored = stored.get(at).unwrap_or(&held.reference);
        let begin = (!held.knows_keys()).then(|| {
            let before = all.last().filter(|before| before.stored.continues_in(stored));
            match before.and_then(|before| before.begin.clone()) {
                // The held reference is the part of the gap that the previous one leaves; keys of this one may be in the
                // part that it takes.
                Some(begin) => begin.max(stored.lower.clone().unwrap_or_default()),
                None => Bytes::copy_from_slice(held.first_key()),
            }
        });
        all.push(Placed { held, stored, begin });
    }
    debug_assert_eq!(all.len(), held.len(), "each file has a place");
    all
}

impl Placed<'_> {
    /// As the manifest has it.
    pub(super) fn stored(&self) -> &FileRef {
        self.stored
    }

    /// Whether the referenced part may have keys in `[lower, upper)`.
    pub(super) fn may_contain(&self, lower: &[u8], upper: Option<&[u8]>) -> bool {
        match &self.begin {
            None => self.held.may_contain(lower, upper),
            Some(begin) => {
                let begins_below = upper.is_none_or(|upper| begin[..] < *upper);
                begins_below && self.end().is_none_or(|end| lower < end)
            }
        }
    }

    /// The reference cut down to keys in `[lower, upper)`; `None` when the file has no key there.
    pub(super) async fn narrowed(&self, lower: Option<&Bytes>, upper: Option<&Bytes>) -> Result<Option<FileRef>> {
        let Some(begin) = &self.begin else {
            return self.held.narrowed(lower, upper).await;
        };
        if !self.may_contain(lower.map_or(&[], |lower| &lower[..]), upper.map(|upper| &upper[..])) {
            return Ok(None);
        }
        let begins_within = lower.is_none_or(|lower| lower <= begin);
        let ends_within = upper.is_none_or(|upper| self.end().is_some_and(|end| *end <= upper[..]));
        match begins_within && ends_within {
            true => Ok(self.stored.narrowed(lower.cloned(), upper.cloned())),
            // Says why it cannot be opened.
            false => Err(self.held.sstable.corruption("its keys are unknown").into()),
        }
    }

    /// Of one that does not say which keys it has: none is this one or above it.
    fn end(&self) -> Option<&[u8]> {
        self.held.reference.upper.as_deref()
    }
}
