//! Merges of neighbouring tablets.

use crate::error::from_catalog;
use crate::files::no_tablet;
use crate::master::Master;
use crate::replacement::Replacement;
use crate::switches::switched_off;
use stele_catalog::TabletEntry;
use stele_client::{ServiceError, ServiceResult};
use stele_types::{RowRange, TableName, TabletId};

/// Tablets that one merge joins. Writes to all of them wait, and one transaction of the catalog replaces them.
const TABLETS_MAX: usize = 16;

/// The tablets to be merged in row order, if they are neighbours.
fn neighbours<'a>(table: &TableName, all: &'a [TabletEntry], wanted: &[TabletId]) -> ServiceResult<&'a [TabletEntry]> {
    if !(2..=TABLETS_MAX).contains(&wanted.len()) {
        let message = format!("2 to {TABLETS_MAX} tablets are merged at once, not {}", wanted.len());
        return Err(ServiceError::invalid(message));
    }
    let mut places = Vec::with_capacity(wanted.len());
    for tablet in wanted {
        let place = all.iter().position(|entry| entry.id == *tablet);
        places.push(place.ok_or_else(|| no_tablet(table, *tablet))?);
    }
    places.sort_unstable();
    let first = places.first().copied().unwrap_or_default();
    let is_row = places.iter().copied().eq(first..first + places.len());
    match all.get(first..first + places.len()) {
        Some(neighbours) if is_row => Ok(neighbours),
        _ => Err(ServiceError::invalid("the tablets to be merged are not neighbours")),
    }
}

impl Master {
    /// Makes one tablet of neighbours.
    pub(crate) async fn merge_locked(&self, table: &TableName, tablets: &[TabletId]) -> ServiceResult<TabletId> {
        if !self.catalog.view().switches.merge {
            return Err(switched_off("merged"));
        }
        self.replacements.decide_former().await?;
        let entry = self.entry(table)?;
        let old = neighbours(table, entry.tablets(), tablets)?;
        let range = RowRange {
            start: old.first().map(|tablet| tablet.range.start.clone()).unwrap_or_default(),
            end: old.last().and_then(|tablet| tablet.range.end.clone()),
        };
        let old: Vec<TabletId> = old.iter().map(|tablet| tablet.id).collect();
        let ids = self.catalog.allocate_ids(1).await.map_err(from_catalog)?;
        let &[merged] = &ids[..] else {
            unreachable!("the catalog allocates as many identifiers as it was asked for: {ids:?}");
        };
        let merged = TabletId(merged);
        self.tablets.prepare_merge(old.clone(), merged).await?;
        let replacement = Replacement {
            table: table.clone(),
            old,
            new: vec![(merged, range)],
            set: None,
            restored: None,
        };
        self.replacements.carry_out(replacement).await?;
        Ok(merged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use stele_types::ErrorKind;

    #[test]
    fn only_neighbours_are_merged() {
        let row = |n: u64| Bytes::from(format!("{n:02}"));
        let entry = |n: u64| TabletEntry {
            id: TabletId(100 - n),
            range: RowRange {
                start: row(n),
                end: Some(row(n + 1)),
            },
            assignment: Default::default(),
            version: 1,
        };
        let all: Vec<TabletEntry> = (0..20).map(entry).collect();
        let found = |wanted: &[u64]| {
            let wanted: Vec<TabletId> = wanted.iter().map(|n| TabletId(100 - n)).collect();
            let found = neighbours(&TableName::new("n", "t"), &all, &wanted);
            found
                .map(|found| found.iter().map(|entry| 100 - entry.id.0).collect::<Vec<_>>())
                .map_err(|error| error.kind)
        };
        assert_eq!(found(&[3, 2]), Ok(vec![2, 3]));
        assert_eq!(found(&[19, 17, 18]), Ok(vec![17, 18, 19]));
        let most: Vec<u64> = (0..16).collect();
        assert_eq!(found(&most), Ok(most));
        let too_many: Vec<u64> = (0..17).collect();
        for wanted in [&[1, 3][..], &[1, 1], &[1], &[], &too_many] {
            assert_eq!(found(wanted), Err(ErrorKind::InvalidArgument), "{wanted:?}");
        }
        assert_eq!(found(&[19, 20]), Err(ErrorKind::NotFound));
    }
}
