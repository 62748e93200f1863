//! Tablets to be opened, as a leader sends them.
//!
//! The schema of a table is in a call once, however many of its tablets are. After a failure a server may get tens of thousands
//! of tablets, so they come in several calls of bounded size.

use crate::codec;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use stele_client::{Assignment, ServiceError, ServiceResult};
use stele_types::{Epoch, ErrorKind, ServerId, TableId, TableSchema, TabletId};

/// Bytes of schemas in one call, unless a single one has more.
const SCHEMA_BYTES_MAX: usize = 4 << 20;
/// Tablets in one call: about 200 KB.
const TABLETS_MAX: usize = 1_000;

/// Tablets of some tables.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Openings {
    schemas: Vec<Arc<TableSchema>>,
    tablets: Vec<Opening>,
}

/// A tablet; see [`Assignment`].
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Opening {
    tablet: TabletId,
    epoch: Epoch,
    /// The place of its schema in the call.
    schema: usize,
    logs: Vec<ServerId>,
    /// By the name `streams` versions before 0.1.0 had another division of tablets over streams.
    #[serde(default, rename = "divided")]
    streams: BTreeMap<ServerId, u32>,
}

impl Openings {
    /// The calls for these assignments.
    pub(crate) fn of(assignments: Vec<Assignment>) -> ServiceResult<Vec<Openings>> {
        let mut calls = vec![Openings::default()];
        let mut bytes = 0;
        // In the present call, and of the schemas of all.
        let mut places: HashMap<TableId, usize> = HashMap::new();
        let mut sizes: HashMap<TableId, usize> = HashMap::new();
        for assignment in assignments {
            let id = assignment.schema.id;
            let size = match sizes.get(&id) {
                Some(size) => *size,
                None => *sizes.entry(id).or_insert(codec::encode(&assignment.schema)?.len()),
            };
            let added = if places.contains_key(&id) { 0 } else { size };
            let is_full = |call: &Openings| call.tablets.len() >= TABLETS_MAX || bytes + added > SCHEMA_BYTES_MAX;
            if calls
                .last()
                .is_some_and(|call| !call.tablets.is_empty() && is_full(call))
            {
                calls.push(Openings::default());
                places.clear();
                bytes = 0;
            }
            let Some(call) = calls.last_mut() else {
                break;
            };
            let schema = *places.entry(id).or_insert_with(|| {
                bytes += size;
                call.schemas.push(assignment.schema.clone());
                call.schemas.len() - 1
            });
            call.tablets.push(Opening {
                tablet: assignment.tablet,
                epoch: assignment.epoch,
                schema,
                logs: assignment.logs,
                streams: assignment.streams,
            });
        }
        Ok(calls)
    }

    /// The tablets, in the order of the outcomes.
    pub(crate) fn tablets(&self) -> Vec<TabletId> {
        self.tablets.iter().map(|opening| opening.tablet).collect()
    }

    /// The assignments. Tablets of one table share its schema.
    pub(crate) fn into_assignments(self) -> ServiceResult<Vec<Assignment>> {
        let Openings { schemas, tablets } = self;
        let assignment = |opening: Opening| {
            let schema = schemas.get(opening.schema).cloned();
            let lacks = || ServiceError::new(ErrorKind::InvalidArgument, "a tablet without a schema");
            Ok(Assignment {
                tablet: opening.tablet,
                epoch: opening.epoch,
                schema: schema.ok_or_else(lacks)?,
                logs: opening.logs,
                streams: opening.streams,
            })
        };
        tablets.into_iter().map(assignment).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_types::TableName;

    fn schema(id: u64, bytes: usize) -> Arc<TableSchema> {
        Arc::new(TableSchema {
            front_end_data: vec![255; bytes],
            ..TableSchema::new(TableId(id), TableName::new("n", format!("t{id}")))
        })
    }

    fn assignments(schema: &Arc<TableSchema>, first: u64, count: u64) -> Vec<Assignment> {
        let assignment = |n| Assignment {
            tablet: TabletId(first + n),
            epoch: Epoch(7),
            schema: schema.clone(),
            logs: vec![ServerId(3)],
            streams: BTreeMap::from([(ServerId(3), 2)]),
        };
        (0..count).map(assignment).collect()
    }

    #[test]
    fn a_schema_is_sent_once_in_a_call() {
        let large = schema(1, 250_000);
        let mut wanted = assignments(&large, 0, 2_500);
        wanted.extend(assignments(&schema(2, 10), 5_000, 3));
        let calls = Openings::of(wanted).unwrap();
        assert_eq!(calls.len(), 3);
        let mut tablets = Vec::new();
        for call in calls {
            let bytes = codec::encode(&call).unwrap();
            assert!(bytes.len() < 2 << 20, "{} bytes", bytes.len());
            let got = codec::decode::<Openings>(&bytes).unwrap().into_assignments().unwrap();
            let of_large: Vec<_> = got.iter().filter(|got| got.schema.id == TableId(1)).collect();
            assert!(of_large.iter().all(|got| Arc::ptr_eq(&got.schema, &of_large[0].schema)));
            tablets.extend(got.into_iter().map(|got| (got.tablet.0, got.epoch, got.streams.len())));
        }
        let expected = (0..2_500).chain(5_000..5_003).map(|n| (n, Epoch(7), 1));
        assert_eq!(tablets, expected.collect::<Vec<_>>());
    }

    #[test]
    fn calls_of_many_tables_are_bounded_in_bytes() {
        let wanted = (0..10).flat_map(|n| assignments(&schema(n, 800_000), n * 10, 2));
        let calls = Openings::of(wanted.collect()).unwrap();
        assert!(calls.len() >= 5, "{} calls", calls.len());
        let tablets: usize = calls.iter().map(|call| call.tablets.len()).sum();
        assert_eq!(tablets, 20);
    }

    #[test]
    fn a_place_that_does_not_exist_is_refused() {
        let mut calls = Openings::of(assignments(&schema(1, 1), 0, 1)).unwrap();
        calls[0].schemas.clear();
        assert!(calls.remove(0).into_assignments().is_err());
        assert!(Openings::of(Vec::new()).unwrap()[0].tablets.is_empty());
    }
}
