//! Regions by any of their names.
//!
//! Calls of administrators name regions in full or by the hash at the end. A hash says nothing about the table, so all
//! tables are searched for it. That makes the name and the hash of each region, of which there may be very many, so the search
//! pauses for the other calls of its event loop.

use crate::failure::{Failure, Outcome};
use crate::front_end::Shared;
use crate::meta_table;
use crate::pace::Pace;
use crate::regions::{self, Region};
use stele_wire::messages::{RegionSpecifier, RegionSpecifierType};
use stele_wire::{exception, region};

/// Work for the name of a region and its hash: some allocations, an MD5 of few blocks, and its digits.
const REGION_UNITS: usize = 40;
/// Bytes of a name that count as one more: MD5 takes them in about the time of a unit.
const BYTES_OF_UNIT: usize = 16;

/// The region of a call, by its full name or its hash. Clients do not always say which of them it is.
pub(crate) async fn find(shared: &Shared, specifier: &RegionSpecifier) -> Outcome<Region> {
    let full = RegionSpecifier {
        r#type: RegionSpecifierType::RegionName as i32,
        value: specifier.value.clone(),
    };
    if let Ok(found) = regions::find_anywhere(&*shared.service, &full) {
        return Ok(found);
    }
    let is_hash = specifier.value.len() == 32 && specifier.value.iter().all(u8::is_ascii_hexdigit);
    if !is_hash {
        return Err(regions::not_serving(&specifier.value));
    }
    let mut pace = Pace::new(&shared.env);
    for schema in meta_table::all_tables(shared).await? {
        for place in shared.service.places(&schema.name).unwrap_or_default() {
            let name = region::name(&regions::info(&schema.name, &place));
            if region::encoded(&name) == Some(&specifier.value[..]) {
                return Ok(Region {
                    table: schema.name.clone(),
                    tablet: place.id,
                    range: place.range,
                    cell_bytes_max: None,
                });
            }
            pace.spend(REGION_UNITS + name.len() / BYTES_OF_UNIT).await;
        }
    }
    Err(regions::not_serving(&specifier.value))
}

/// The same for calls of the master, which has another name for the same error.
pub(crate) async fn find_known(shared: &Shared, specifier: &RegionSpecifier) -> Outcome<Region> {
    find(shared, specifier).await.map_err(|failure| match failure.class {
        exception::NOT_SERVING_REGION => unknown(&specifier.value),
        _ => failure,
    })
}

/// There is no such region.
pub(crate) fn unknown(name: &[u8]) -> Failure {
    Failure::new(exception::UNKNOWN_REGION, name.escape_ascii().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_service::{Model, count_turns};
    use stele_memory::Pool;

    /// A table may have a hundred thousand regions.
    #[tokio::test]
    async fn a_search_by_hash_lets_other_calls_run() {
        let starts: Vec<String> = (0..20_000).map(|n| format!("{n:06}")).collect();
        let model = Model::new(&starts.iter().map(String::as_str).collect::<Vec<_>>());
        let front_end = model.front_end(&Pool::default());
        let name = model.region("019998").value;
        let hash = region::encoded(&name).expect("it has a hash");
        let specifier = RegionSpecifier {
            r#type: RegionSpecifierType::EncodedRegionName as i32,
            value: bytes::Bytes::copy_from_slice(hash),
        };
        let turns = count_turns();
        let found = find(&front_end.shared, &specifier).await.unwrap();
        assert_eq!(&found.range.start[..], b"019998");
        assert!(
            turns.get() >= 50,
            "a pause every few hundred regions; {} turns",
            turns.get()
        );
    }
}
