//! Regions: a tablet is a region, and its number is part of the region's name.
//!
//! A client sends the name of the region that it believes to hold a row. Splits and merges make tablets with new
//! numbers, so a name that is out of date names a tablet that is gone. The client then reads `hbase:meta` again.

use crate::failure::{Failure, Outcome};
use crate::mutations::RowChange;
use crate::names;
use bytes::Bytes;
use stele_client::{RmwOperation, ServerPlace, Step, TableService, TabletPlace};
use stele_types::{ErrorKind, Mutation, RowRange, TableName, TableSchema, TabletId};
use stele_wire::messages::{RegionInfo, RegionSpecifier, RegionSpecifierType};
use stele_wire::{exception, region};

/// Region ids are times in ms in HBase, and this many digits long. Ids of equal length sort as numbers do.
const FIRST_ID: u64 = 1_000_000_000_000;

/// Numbers of places in a cluster begin here ([`place_number`]): above all start codes, which are times in ms.
const FIRST_IN_CLUSTER: u64 = 1 << 48;

/// Bytes of a cell without its row, family, qualifier and value: lengths, timestamp and type.
const CELL_OVERHEAD_BYTES: usize = 24;

/// A region that a call is for.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    pub table: TableName,
    pub tablet: TabletId,
    /// Its rows.
    pub range: RowRange,
    /// Bytes of a cell at most, as HBase counts them, if the table has a limit of its own.
    pub cell_bytes_max: Option<usize>,
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

/// The sequence number of a region's place, of which clients keep the place with the highest. It grows when the region moves, also to a
/// server that began earlier, and when the only server becomes one of a cluster. `start_code` is that of the region's server.
pub(crate) fn place_number(place: &TabletPlace, start_code: u64) -> u64 {
    match place.generation {
        0 => start_code,
        generation => FIRST_IN_CLUSTER + u64::from(generation),
    }
}

/// Whether a call is for `hbase:meta`.
pub(crate) fn is_meta(region: &RegionSpecifier) -> bool {
    let names = [region::META_REGION.as_bytes(), region::META_REGION_ENCODED.as_bytes()];
    names.contains(&&region.value[..])
}

/// The region that a call names, if it is still on this server.
pub(crate) fn find(service: &dyn TableService, specifier: &RegionSpecifier) -> Outcome<Region> {
    let (region, place) = locate(service, specifier)?;
    match &place.server {
        Some(server) => Err(moved(server, place_number(&place, server.start_code))),
        None => Ok(region),
    }
}

/// The region that an administrative call names, on any server: such calls go to the leader of a cluster.
pub(crate) fn find_anywhere(service: &dyn TableService, specifier: &RegionSpecifier) -> Outcome<Region> {
    locate(service, specifier).map(|(region, _)| region)
}

fn locate(service: &dyn TableService, specifier: &RegionSpecifier) -> Outcome<(Region, TabletPlace)> {
    if specifier.r#type == RegionSpecifierType::EncodedRegionName as i32 {
        return Err(not_serving(&specifier.value));
    }
    let parsed = RegionName::parse(&specifier.value).ok_or_else(|| not_serving(&specifier.value))?;
    if parsed.table == names::ACL_TABLE.as_bytes() {
        // The client would look for the region again after another error.
        let message = "hbase:acl has no rows here: ask for the rights of users instead";
        return Err(Failure::do_not_retry(message));
    }
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
    let region = Region {
        table,
        tablet: place.id,
        range: place.range.clone(),
        cell_bytes_max: None,
    };
    Ok((region, place))
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

/// The region is on another server. Clients read the place from the message.
fn moved(server: &ServerPlace, number: u64) -> Failure {
    let ServerPlace { host, port, start_code } = server;
    let message =
        format!("Region moved to: hostname={host} port={port} startCode={start_code}. As of locationSeqNum={number}.");
    Failure::new(exception::REGION_MOVED, message)
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

    /// Fails if a put or an increment has a larger cell than the table allows, or an append one that is too large already.
    pub fn check_cells(&self, schema: &TableSchema, change: &RowChange) -> Outcome<()> {
        let Some(most) = self.cell_bytes_max else {
            return Ok(());
        };
        for step in &change.steps {
            let (family, qualifier, value_bytes) = match step {
                Step::Mutate(Mutation::Put {
                    family,
                    qualifier,
                    value,
                    ..
                })
                | Step::MutateNow(Mutation::Put {
                    family,
                    qualifier,
                    value,
                    ..
                }) => (family, qualifier, value.len()),
                Step::Mutate(Mutation::ExpiringPut {
                    family,
                    qualifier,
                    stored,
                    ..
                })
                | Step::MutateNow(Mutation::ExpiringPut {
                    family,
                    qualifier,
                    stored,
                    ..
                }) => (family, qualifier, stored.len()),
                Step::Modify(rule) => match &rule.operation {
                    RmwOperation::Append(suffix) => (&rule.family, &rule.qualifier, suffix.len()),
                    RmwOperation::Increment(_) => (&rule.family, &rule.qualifier, size_of::<i64>()),
                },
                Step::Mutate(_) | Step::MutateNow(_) | Step::DeleteNewest { .. } => continue,
            };
            let family_bytes = schema.families.get(family).map_or(0, |family| family.name.len());
            let bytes = CELL_OVERHEAD_BYTES + change.row.len() + family_bytes + qualifier.len() + value_bytes;
            if bytes > most {
                let message = format!(
                    "Cell {}/{} with size {bytes} exceeds limit of {most} bytes",
                    change.row.escape_ascii(),
                    qualifier.escape_ascii()
                );
                return Err(Failure::do_not_retry(message));
            }
        }
        Ok(())
    }

    /// Its whole name.
    pub fn name(&self) -> Bytes {
        let place = TabletPlace::here(self.tablet, self.range.clone());
        region::name(&info(&self.table, &place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_service::Model;
    use std::sync::Arc;
    use stele_memory::Pool;
    use stele_types::{FamilyId, Timestamp};
    use stele_wire::messages::MutationType;
    use stele_wire::meta;

    #[test]
    fn a_name_is_taken_apart_as_it_was_made() {
        let table = TableName::new("n", "t");
        for start in [&b""[..], b"a,b", b"\x00.,\xff."] {
            let range = RowRange {
                start: Bytes::copy_from_slice(start),
                end: None,
            };
            let place = TabletPlace::here(TabletId(7), range);
            let name = region::name(&info(&table, &place));
            let parsed = RegionName::parse(&name).unwrap();
            assert_eq!((parsed.table, parsed.start), (&b"n:t"[..], start));
            assert_eq!(parsed.id, region_id(TabletId(7)));
        }
        for broken in [&b""[..], b".", b"t,a,b.", b"t,,x.0123.", b"hbase:meta,,1"] {
            assert!(RegionName::parse(broken).is_none(), "{}", broken.escape_ascii());
        }
    }

    /// The number of the place in `hbase:meta`, and in the failure of a call to a server that does not have the region.
    fn numbers(generation: u32, server: Option<ServerPlace>) -> (u64, Option<u64>) {
        let mut model = Model::new(&[""]);
        let place = &mut Arc::get_mut(&mut model).expect("no one else has it").places[0];
        (place.generation, place.server) = (generation, server.map(Arc::new));
        let front_end = model.front_end(&Pool::default());
        let row =
            crate::meta_table::region_row(&front_end.shared.context, &model.schema, &model.places[0], Bytes::new());
        let cell = row.cells.iter().find(|cell| cell.qualifier == meta::SEQUENCE_NUMBER);
        let of_meta = cell.expect("it is there").value[..].try_into().map(u64::from_be_bytes);
        let of_failure = find(&*model, &model.region("")).err().map(|failure| {
            let (_, number) = failure.message.split_once("locationSeqNum=").expect("it has moved");
            number.trim_end_matches('.').parse().expect("a number")
        });
        (of_meta.expect("8 bytes"), of_failure)
    }

    /// Clients keep the place with the highest number.
    #[tokio::test]
    async fn a_place_in_a_cluster_is_newer_than_one_at_a_single_server() {
        let server = |start_code| ServerPlace {
            host: "other".to_owned(),
            port: 1,
            start_code,
        };
        let (single, none) = numbers(0, None);
        assert!(single > 0 && none.is_none());
        let at_year_3000 = server(32_503_680_000_000);
        let (alone, _) = numbers(0, Some(at_year_3000.clone()));
        let (first, moved) = numbers(1, Some(at_year_3000));
        assert_eq!(moved, Some(first));
        assert!(first > alone, "{first} {alone}");
        let (second, moved) = numbers(2, Some(server(1)));
        assert_eq!(moved, Some(second));
        assert!(second > first);
        assert!(
            i64::try_from(numbers(u32::MAX, None).0).is_ok(),
            "clients have signed numbers"
        );
    }

    #[test]
    fn a_table_may_limit_its_cells() {
        let schema = Model::new(&[""]).schema.clone();
        let mut region = crate::meta_table::region();
        let change = |value: &'static [u8]| RowChange {
            row: Bytes::from_static(b"row"),
            kind: MutationType::Put,
            steps: vec![Step::Mutate(Mutation::Put {
                family: FamilyId(1),
                qualifier: Bytes::from_static(b"q"),
                timestamp: Timestamp(1),
                value: Bytes::from_static(value),
            })],
            returns: true,
            durability: None,
            token: None,
        };
        assert!(region.check_cells(&schema, &change(&[0; 1000])).is_ok());
        // 24 bytes, and those of `row`, `info`, `q` and the value.
        region.cell_bytes_max = Some(24 + 3 + 4 + 1 + 10);
        assert!(region.check_cells(&schema, &change(&[0; 10])).is_ok());
        assert!(region.check_cells(&schema, &change(&[0; 11])).is_err());
    }
}
