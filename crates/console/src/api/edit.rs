//! `/api/cell`: a person writes or deletes one cell.
//!
//! Each change is in the audit log, also where other changes of rows are not.

use super::{Answer, Body, Browsed, Failure, Json, show_time, table_name};
use crate::text;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use stele_client::request::server_timestamp;
use stele_client::{MutateRows, ServiceError, ServiceResult};
use stele_types::limits::{QUALIFIER_BYTES_MAX, ROW_KEY_BYTES_MAX};
use stele_types::{ErrorKind, FamilyId, Mutation, RowMutation, TableSchema, Timestamp, ValueType};

/// Bytes of a value that a person writes.
pub(super) const VALUE_BYTES_MAX: usize = 256 << 10;

/// Bytes of a request: the value in base64, and the names around it.
pub(super) const BODY_BYTES_MAX: usize = 2 * VALUE_BYTES_MAX + (128 << 10);

/// A cell, or with a value its new content.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Place {
    table: String,
    row: String,
    family: String,
    column: String,
    /// In the table's unit; without it a write takes the server's time.
    time: Option<Time>,
    /// In base64.
    value: Option<String>,
}

/// A time in a request. A page sends digits, as it has got them; a number is exact only where the client has 64 bits.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum Time {
    Number(i64),
    Digits(String),
}

#[derive(Serialize)]
pub(super) struct Written {
    /// The timestamp of the cell, in the table's unit.
    time: String,
}

/// Writes a cell.
pub(super) async fn put(served: Browsed, Body(place): Body<Place>) -> Answer<Written> {
    let schema = schema(&served, &place)?;
    let value = place
        .value
        .as_deref()
        .ok_or_else(|| Failure::invalid("a write needs a value"))?;
    let value = STANDARD
        .decode(value)
        .map_err(|_| Failure::invalid("the value is not in base64"))?;
    if value.len() > VALUE_BYTES_MAX {
        let message = format!(
            "a value of {} bytes; {VALUE_BYTES_MAX} can be written here",
            value.len()
        );
        return Err(Failure::invalid(message));
    }
    let family = family(&schema, &place.family)?;
    let step = schema.granularity.max(1);
    let timestamp = match place.time()? {
        Some(Timestamp(time)) if time % step != 0 => {
            return Err(Failure::invalid(format!(
                "the time must be a multiple of {step}, as the table has it"
            )));
        }
        Some(time) => time,
        None => server_timestamp(schema.time_unit, schema.granularity, served.shared().env.wall_micros()),
    };
    let mutation = Mutation::Put {
        family,
        qualifier: place.qualifier()?,
        timestamp,
        value: value.into(),
    };
    change(&served, "console_put", &schema, place.row()?, mutation).await?;
    Ok(Json(Written {
        time: show_time(timestamp),
    }))
}

/// Deletes one version of a cell.
pub(super) async fn delete(served: Browsed, Body(place): Body<Place>) -> Answer<Written> {
    let schema = schema(&served, &place)?;
    let timestamp = place
        .time()?
        .ok_or_else(|| Failure::invalid("a delete needs the time of the cell"))?;
    if place.value.is_some() {
        return Err(Failure::invalid("a delete has no value"));
    }
    let mutation = Mutation::DeleteVersion {
        family: family(&schema, &place.family)?,
        qualifier: place.qualifier()?,
        timestamp,
    };
    change(&served, "console_delete", &schema, place.row()?, mutation).await?;
    Ok(Json(Written {
        time: show_time(timestamp),
    }))
}

impl Place {
    fn time(&self) -> Result<Option<Timestamp>, Failure> {
        let digits = match &self.time {
            None => return Ok(None),
            Some(Time::Number(number)) => return Ok(Some(Timestamp(*number))),
            Some(Time::Digits(digits)) => digits,
        };
        let number = digits
            .parse()
            .map_err(|_| Failure::invalid("a time is a number of 64 bits"))?;
        Ok(Some(Timestamp(number)))
    }

    fn row(&self) -> Result<Bytes, Failure> {
        let row = text::unescape(&self.row).map_err(Failure::invalid)?;
        match row.is_empty() || row.len() > ROW_KEY_BYTES_MAX {
            true => Err(Failure::invalid(format!(
                "a row key has 1 to {ROW_KEY_BYTES_MAX} bytes"
            ))),
            false => Ok(row.into()),
        }
    }

    fn qualifier(&self) -> Result<Bytes, Failure> {
        let qualifier = text::unescape(&self.column).map_err(Failure::invalid)?;
        match qualifier.len() > QUALIFIER_BYTES_MAX {
            true => Err(Failure::invalid(format!(
                "a column has at most {QUALIFIER_BYTES_MAX} bytes"
            ))),
            false => Ok(qualifier.into()),
        }
    }
}

fn schema(served: &Browsed, place: &Place) -> Result<Arc<TableSchema>, Failure> {
    Ok(served.parts.service.schema(&table_name(&place.table)?)?)
}

/// A family whose cells have values that a person can write.
fn family(schema: &TableSchema, name: &str) -> Result<FamilyId, Failure> {
    let found = schema.families.iter().find(|(_, family)| family.name == name);
    let (id, family) =
        found.ok_or_else(|| Failure::not_found(format!("table {} has no family {name:?}", schema.name)))?;
    match family.value_type {
        ValueType::Bytes => Ok(*id),
        _ => Err(Failure::invalid(format!(
            "the cells of family {name:?} are sums, which are not changed here"
        ))),
    }
}

/// Carries a change out, and writes it to the audit log.
async fn change(
    served: &Browsed,
    operation: &'static str,
    schema: &TableSchema,
    row: Bytes,
    mutation: Mutation,
) -> Result<(), Failure> {
    let request = MutateRows {
        table: schema.name.clone(),
        id: Some(schema.id),
        rows: vec![RowMutation {
            row,
            mutations: vec![mutation],
        }]
        .into(),
        durability: None,
    };
    let _permit = served.shared().browsing.acquire().await;
    // Before the write: a person who leaves the page meanwhile gives the call up, and the write may be made all the same.
    let note = served
        .guard
        .as_ref()
        .map(|guard| guard.note_change(operation, &schema.name));
    let outcome = served.parts.service.mutate_rows(request).await.and_then(only);
    match (note, &outcome) {
        (None, _) => {}
        (Some(note), Err(error)) if error.kind == ErrorKind::PermissionDenied => note.leave_out(),
        (Some(note), _) => note.write(outcome.as_ref().err()),
    }
    Ok(outcome?)
}

/// The outcome of the only row.
fn only(outcomes: Vec<ServiceResult<()>>) -> ServiceResult<()> {
    let missing = || ServiceError::new(ErrorKind::Internal, "the write has no outcome");
    outcomes.into_iter().next().ok_or_else(missing)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_exact_as_digits_and_as_numbers() {
        let time = |text: &str| {
            let place = format!(r#"{{"table":"n/t","row":"r","family":"f","column":"q","time":{text}}}"#);
            serde_json::from_str::<Place>(&place).unwrap().time()
        };
        for number in [9_007_199_254_740_993, i64::MAX, -1] {
            let digits = serde_json::to_string(&show_time(Timestamp(number))).unwrap();
            assert_eq!(digits, format!("\"{number}\""));
            for text in [digits, number.to_string()] {
                assert_eq!(time(&text).ok().flatten(), Some(Timestamp(number)), "{text}");
            }
        }
        assert!(time(r#""1e3""#).is_err() && time(r#""""#).is_err());
    }
}
