//! Regions: a tablet is a region, and its number is part of the region's name.
//!
//! A client sends the name of the region that it believes to hold a row. Splits and merges make tablets with new
//! numbers, so a name that is out of date names a tablet that is gone. The client then reads `hbase:meta` again.

use crate::failure::{Failure, Outcome};
use crate::names;
use bytes::Bytes;
use stele_client::{TableService, TabletPlace};
use stele_types::{ErrorKind, RowRange, TableName, TabletId};
use stele_wire::messages::{RegionInfo, RegionSpecifier, RegionSpecifierType};
use stele_wire::{exception, region};

/// Region ids are times in ms in HBase, and this many digits long. Ids of equal length sort as numbers do.
const FIRST_ID: u64 = 1_000_000_000_000;

/// A region that a call is for.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    pub table: TableName,
    pub tablet: TabletId,
    /// Its rows.
    pub range: RowRange,
}

/// The name of a region as clients send it, taken apart.
struct RegionName<'a> {
    table: &'a [u8],
    start: &'a [u8],
    id: u64,
}

impl<'a> RegionName<'a> {
    /// Takes `table,start,id.hash.` apart; the first row may hold commas.
    fn parse(name: &'a [u8]) -> Option<Self> {
        let body = name.strip_suffix(b".")?;
        let hash = body.iter().rposition(|b| *b == b'.')?;
        let body = body.get(..hash)?;
        let first = body.iter().position(|b| *b == b',')?;
        let last = body.iter().rposition(|b| *b == b',')?;
        Some(RegionName {
            table: body.get(..first)?,
            start: body.get(first + 1..last)?,
            id: std::str::from_utf8(body.get(last + 1..)?).ok()?.parse().ok()?,
        })
    }
}

/// The region id of a tablet.
pub(crate) fn region_id(tablet: TabletId) -> u64 {
    FIRST_ID.saturating_add(tablet.0)
}

/// A tablet as HBase describes regions.
pub(crate) fn info(table: &TableName, place: &TabletPlace) -> RegionInfo {
    RegionInfo {
        region_id: region_id(place.id),
        table_name: names::to_message(table),
        start_key: Some(place.range.start.clone()),
        end_key: Some(place.range.end.clone().unwrap_or_default()),
        offline: Some(false),
        split: Some(false),
        replica_id: Some(0),
    }
}

/// Whether a call is for `hbase:meta`.
pub(crate) fn is_meta(region: &RegionSpecifier) -> bool {
    let names = [region::META_REGION.as_bytes(), region::META_REGION_ENCODED.as_bytes()];
    names.contains(&&region.value[..])
}

/// The region that a call names, if it is still there.
pub(crate) fn find(service: &dyn TableService, specifier: &RegionSpecifier) -> Outcome<Region> {
    if specifier.r#type == RegionSpecifierType::EncodedRegionName as i32 {
        return Err(not_serving(&specifier.value));
    }
    let parsed = RegionName::parse(&specifier.value).ok_or_else(|| not_serving(&specifier.value))?;
    let table = names::from_text(parsed.table)?;
    let place = service
        .place_of(&table, parsed.start)
        .map_err(|error| match error.kind {
            // The client would look for the region again.
            ErrorKind::PermissionDenied => Failure::from(error),
            _ => not_serving(&specifier.value),
        })?;
    if region_id(place.id) != parsed.id || place.range.start != parsed.start {
        return Err(not_serving(&specifier.value));
    }
    Ok(Region {
        table,
        tablet: place.id,
        range: place.range,
    })
}

/// The region is not there, or no longer.
pub(crate) fn not_serving(name: &[u8]) -> Failure {
    let name = match RegionName::parse(name) {
        Some(_) => String::from_utf8_lossy(name).into_owned(),
        None => name.escape_ascii().to_string(),
    };
    Failure::new(
        exception::NOT_SERVING_REGION,
        format!("{name} is not online on this server"),
    )
}

impl Region {
    /// Fails unless the region holds the row.
    pub fn check_row(&self, row: &[u8], operation: &str) -> Outcome<()> {
        if self.range.contains(row) {
            return Ok(());
        }
        let show = |key: &[u8]| key.escape_ascii().to_string();
        let message = format!(
            "Requested row out of range for {operation} on HRegion {}, startKey='{}', getEndKey()='{}', row='{}'",
            String::from_utf8_lossy(&self.name()),
            show(&self.range.start),
            show(self.range.end.as_deref().unwrap_or_default()),
            show(row)
        );
        Err(Failure::new(exception::WRONG_REGION, message))
    }

    /// Its whole name.
    pub fn name(&self) -> Bytes {
        let place = TabletPlace {
            id: self.tablet,
            range: self.range.clone(),
        };
        region::name(&info(&self.table, &place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_taken_apart_as_it_was_made() {
        let table = TableName::new("n", "t");
        for start in [&b""[..], b"a,b", b"\x00.,\xff."] {
            let place = TabletPlace {
                id: TabletId(7),
                range: RowRange {
                    start: Bytes::copy_from_slice(start),
                    end: None,
                },
            };
            let name = region::name(&info(&table, &place));
            let parsed = RegionName::parse(&name).unwrap();
            assert_eq!((parsed.table, parsed.start), (&b"n:t"[..], start));
            assert_eq!(parsed.id, region_id(TabletId(7)));
        }
        for broken in [&b""[..], b".", b"t,a,b.", b"t,,x.0123.", b"hbase:meta,,1"] {
            assert!(RegionName::parse(broken).is_none(), "{}", broken.escape_ascii());
        }
    }
}
