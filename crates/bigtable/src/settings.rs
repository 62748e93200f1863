//! Handlers of `stele.admin.v1.TableSettings`, a service that the Bigtable API does not have.

use crate::accounting::Call;
use crate::context::{Context, table_status};
use crate::names::TableResource;
use crate::pb::own as pb;
use crate::status::invalid;
use stele_client::TableUpdate;
use stele_types::{Durability, TableSchema};
use tonic::Status;

/// Names of durabilities in requests and responses.
const DURABILITIES: [(&str, Option<Durability>); 4] = [
    ("default", None),
    ("none", Some(Durability::None)),
    ("flush", Some(Durability::Flush)),
    ("sync", Some(Durability::Sync)),
];

pub(crate) async fn get_table_settings(
    context: &Context,
    _: &Call,
    request: pb::GetTableSettingsRequest,
) -> Result<pb::Settings, Status> {
    let table = TableResource::parse(&request.name)?;
    Ok(settings(&*context.schema(&table)?))
}

pub(crate) async fn update_table_settings(
    context: &Context,
    _: &Call,
    request: pb::UpdateTableSettingsRequest,
) -> Result<pb::Settings, Status> {
    let table = TableResource::parse(&request.name)?;
    let update = update(request.settings.unwrap_or_default())?;
    let schema = context.admin.update_table(&table.name, update).await;
    Ok(settings(&*schema.map_err(|error| table_status(&table, error))?))
}

/// The change that a request describes. A request that changes nothing is refused.
pub(crate) fn update(settings: pb::Settings) -> Result<TableUpdate, Status> {
    if settings == pb::Settings::default() {
        return Err(invalid("The request has no settings to change"));
    }
    let durability = |name: String| {
        let known = DURABILITIES.iter().find(|(known, _)| *known == name);
        known
            .map(|(_, durability)| *durability)
            .ok_or_else(|| invalid(format!("{name:?} is not a durability: default, none, flush or sync")))
    };
    Ok(TableUpdate {
        durability: settings.durability.map(durability).transpose()?,
        row_cache: settings.row_cache,
        tablet_bytes_max: settings.tablet_bytes,
        ..TableUpdate::default()
    })
}

fn settings(schema: &TableSchema) -> pb::Settings {
    let name = DURABILITIES.iter().find(|(_, known)| *known == schema.durability);
    pb::Settings {
        durability: name.map(|(name, _)| (*name).to_owned()),
        row_cache: Some(schema.row_cache),
        tablet_bytes: Some(schema.tablet_bytes_max),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    fn durability(name: &str) -> pb::Settings {
        pb::Settings {
            durability: Some(name.to_owned()),
            ..pb::Settings::default()
        }
    }

    #[test]
    fn absent_settings_do_not_change() {
        let update = update(durability("flush")).unwrap();
        assert_eq!(update.durability, Some(Some(Durability::Flush)));
        assert_eq!((update.row_cache, update.tablet_bytes_max), (None, None));
        assert!(update.deletion_protection.is_none() && update.front_end_data.is_none());
    }

    #[test]
    fn empty_and_invalid_settings_are_refused() {
        for bad in [pb::Settings::default(), durability("SYNC"), durability("")] {
            let refused = update(bad.clone()).map(drop).map_err(|status| status.code());
            assert_eq!(refused, Err(Code::InvalidArgument), "{bad:?}");
        }
        assert_eq!(update(durability("default")).unwrap().durability, Some(None));
    }
}
