//! Regions by any of their names.
//!
//! Calls of administrators name regions in full or by the hash at the end. A hash says nothing about the table, so all
//! tables are searched for it.

use crate::failure::{Failure, Outcome};
use crate::front_end::Shared;
use crate::meta_table;
use crate::regions::{self, Region};
use stele_wire::messages::{RegionSpecifier, RegionSpecifierType};
use stele_wire::{exception, region};

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
