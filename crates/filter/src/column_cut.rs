//! The columns of a row that matter to a filter.
//!
//! A table may have 20,000 families, and a filter thousands of parts that each cut to some of them. So the families that are looked
//! at while the cuts of a filter are put together are counted ([`CutWork`]). Past a bound the columns are not cut.

use crate::qualifier_range::QualifierRange;
use std::collections::BTreeMap;
use stele_types::FamilyId;

/// Families that are looked at for the cuts of one filter: some milliseconds. It is enough for six lists of all families that a table may
/// have. In an interleave each list counts twice.
const FAMILIES_LOOKED_AT_MAX: usize = 1 << 18;

/// For every family, the qualifiers that matter; `None` is no column of the family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnCut {
    /// For families not in `families`.
    pub others: Option<QualifierRange>,
    /// For these families.
    pub families: BTreeMap<FamilyId, Option<QualifierRange>>,
}

/// The work on the cuts of one filter.
pub(crate) struct CutWork {
    /// Families that may still be looked at.
    left: usize,
    is_over: bool,
}

impl CutWork {
    pub(crate) fn new() -> Self {
        CutWork {
            left: FAMILIES_LOOKED_AT_MAX,
            is_over: false,
        }
    }

    /// Whether it was too much. All cuts that were made since are of every column, and so must the result be.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Counts families; whether they may be looked at.
    fn spend(&mut self, families: usize) -> bool {
        match self.left.checked_sub(families) {
            Some(left) => self.left = left,
            None => (self.left, self.is_over) = (0, true),
        }
        !self.is_over
    }
}

impl ColumnCut {
    /// Every column.
    pub fn all() -> Self {
        ColumnCut {
            others: Some(QualifierRange::all()),
            families: BTreeMap::new(),
        }
    }

    /// No column.
    pub(crate) fn none() -> Self {
        ColumnCut {
            others: None,
            families: BTreeMap::new(),
        }
    }

    /// All columns of these families.
    pub(crate) fn of_families(families: &[FamilyId], work: &mut CutWork) -> Self {
        if !work.spend(families.len()) {
            return ColumnCut::all();
        }
        ColumnCut {
            others: None,
            families: families.iter().map(|f| (*f, Some(QualifierRange::all()))).collect(),
        }
    }

    /// The qualifiers of `family` that matter; `None` is none of them.
    pub fn qualifiers(&self, family: FamilyId) -> Option<&QualifierRange> {
        self.families.get(&family).unwrap_or(&self.others).as_ref()
    }

    /// Whether a column matters.
    pub fn contains(&self, family: FamilyId, qualifier: &[u8]) -> bool {
        self.qualifiers(family).is_some_and(|range| range.contains(qualifier))
    }

    /// Whether every column matters.
    pub fn is_all(&self) -> bool {
        self.families.is_empty()
            && self
                .others
                .as_ref()
                .is_some_and(|range| *range == QualifierRange::all())
    }

    /// Whether no column matters.
    pub fn is_none(&self) -> bool {
        self.others.is_none() && self.families.values().all(Option::is_none)
    }

    /// The families that are listed with some qualifiers.
    pub(crate) fn named(&self) -> impl Iterator<Item = FamilyId> {
        self.families
            .iter()
            .filter(|(_, range)| range.is_some())
            .map(|(family, _)| *family)
    }

    /// The columns in both.
    pub(crate) fn intersect(self, other: ColumnCut, work: &mut CutWork) -> ColumnCut {
        match (&self.others, &other.others) {
            _ if other.is_all() => self,
            _ if self.is_all() => other,
            (None, _) => self.narrowed(&other, work),
            (_, None) => other.narrowed(&self, work),
            _ => self.merged(&other, work, |a, b| a?.intersect(b?)),
        }
    }

    /// The smallest ranges around both.
    pub(crate) fn hull(self, other: ColumnCut, work: &mut CutWork) -> ColumnCut {
        match (&self.others, &other.others) {
            (_, None) => self.widened(other, work),
            (None, _) => other.widened(self, work),
            _ => self.merged(&other, work, |a, b| match (a, b) {
                (Some(a), Some(b)) => Some(a.hull(b)),
                (a, b) => a.or(b).cloned(),
            }),
        }
    }

    /// A cut of listed families alone, to the columns of another.
    fn narrowed(mut self, other: &ColumnCut, work: &mut CutWork) -> ColumnCut {
        debug_assert!(self.others.is_none(), "only listed families matter");
        if !work.spend(self.families.len()) {
            return ColumnCut::all();
        }
        self.families.retain(|family, range| {
            let both = range.as_ref().zip(other.qualifiers(*family));
            *range = both.and_then(|(a, b)| a.intersect(b));
            range.is_some()
        });
        self
    }

    /// A cut with the columns of another, which is of listed families alone: those of this one are not looked at, which may have
    /// become many.
    fn widened(mut self, other: ColumnCut, work: &mut CutWork) -> ColumnCut {
        debug_assert!(other.others.is_none(), "only listed families are added");
        if !work.spend(other.families.len()) {
            return ColumnCut::all();
        }
        for (family, range) in other.families {
            let Some(range) = range else {
                continue;
            };
            let hull = match self.qualifiers(family) {
                Some(own) => own.hull(&range),
                None => range,
            };
            if self.others.as_ref() == Some(&hull) {
                self.families.remove(&family);
            } else {
                self.families.insert(family, Some(hull));
            }
        }
        self
    }

    fn merged(
        &self,
        other: &ColumnCut,
        work: &mut CutWork,
        op: impl Fn(Option<&QualifierRange>, Option<&QualifierRange>) -> Option<QualifierRange>,
    ) -> ColumnCut {
        if !work.spend(self.families.len() + other.families.len()) {
            return ColumnCut::all();
        }
        let others = op(self.others.as_ref(), other.others.as_ref());
        let families = self.families.keys().chain(other.families.keys());
        let families: BTreeMap<_, _> = families
            .map(|f| (*f, op(self.qualifiers(*f), other.qualifiers(*f))))
            .collect();
        let families = families.into_iter().filter(|(_, range)| *range != others).collect();
        ColumnCut { others, families }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use proptest::prelude::*;

    fn range() -> impl Strategy<Value = Option<QualifierRange>> {
        let exact = |key: &'static str| Some(QualifierRange::exact(Bytes::from_static(key.as_bytes())));
        prop_oneof![
            Just(None),
            Just(Some(QualifierRange::all())),
            Just(exact("a")),
            Just(exact("b"))
        ]
    }

    prop_compose! {
        fn cut()(others in range(), families in prop::collection::btree_map(1u32..5, range(), 0..4)) -> ColumnCut {
            let families = families.into_iter().map(|(id, range)| (FamilyId(id), range)).collect();
            ColumnCut { others, families }
        }
    }

    proptest! {
        #[test]
        fn cuts_meet_and_join(a in cut(), b in cut()) {
            let mut work = CutWork::new();
            let both = a.clone().intersect(b.clone(), &mut work);
            let hull = a.clone().hull(b.clone(), &mut work);
            for family in (1..6).map(FamilyId) {
                let (of_a, of_b) = (a.qualifiers(family), b.qualifiers(family));
                let expected = of_a.zip(of_b).and_then(|(a, b)| a.intersect(b));
                prop_assert_eq!(both.qualifiers(family), expected.as_ref());
                let expected = match (of_a, of_b) {
                    (Some(a), Some(b)) => Some(a.hull(b)),
                    (a, b) => a.or(b).cloned(),
                };
                prop_assert_eq!(hull.qualifiers(family), expected.as_ref());
            }
        }
    }

    #[test]
    fn too_much_work_cuts_nothing() {
        let mut work = CutWork::new();
        let families: Vec<FamilyId> = (1..=20_000).map(FamilyId).collect();
        let mut cut = ColumnCut::none();
        for _ in 0..3_000 {
            let next = ColumnCut::of_families(&families, &mut work);
            cut = cut.hull(next, &mut work);
        }
        assert!(work.is_over() && cut.is_all());
        assert!(ColumnCut::of_families(&[FamilyId(1)], &mut work).is_all());
    }
}
