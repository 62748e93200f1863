//! A row whose first server is cut off. It is written through the others, and read through its first server.

use super::super::Fleet;
use super::super::large::table_of;
use super::super::node::Node;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use stele_client::{MutateRows, ReadRows, ServiceError, ServiceResult};
use stele_types::{ErrorKind, FamilyId, Mutation, RowMutation, RowRange, RowSet, Timestamp};

/// Longest wait for a call: most of them go to a server that is cut off.
const CALL_WAIT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(50);
/// The only family of the table.
const FAMILY: FamilyId = FamilyId(1);

/// Writes and reads a row until the future is dropped. A read that begins after a write was acknowledged must find it.
pub(super) async fn watch(fleet: &Fleet, first: &Node, others: &[Arc<Node>], row: Bytes) {
    let mut acknowledged = 0_u64;
    for (number, other) in (1..).zip(others.iter().cycle()) {
        if write(fleet, other, &row, number).await.is_ok() {
            acknowledged = number;
            fleet.verdict.lock().acknowledged += 1;
        }
        if let Ok(found) = read(fleet, first, &row).await
            && found < acknowledged
        {
            fleet.violate(format!(
                "the former server reads {found} after {acknowledged} was written through another one"
            ));
        }
        fleet.env.sleep(PAUSE).await;
    }
}

async fn write(fleet: &Fleet, node: &Node, row: &Bytes, number: u64) -> ServiceResult<()> {
    let put = Mutation::Put {
        family: FAMILY,
        qualifier: Bytes::new(),
        timestamp: Timestamp(i64::try_from(number).unwrap_or(i64::MAX)),
        value: Bytes::copy_from_slice(&number.to_be_bytes()),
    };
    let request = MutateRows {
        id: None,
        table: table_of(0),
        rows: vec![RowMutation {
            row: row.clone(),
            mutations: vec![put],
        }]
        .into(),
        durability: None,
    };
    let service = node.service.clone();
    let written = node.call(&fleet.env, async move { service.mutate_rows(request).await });
    let results = fleet.env.timeout(CALL_WAIT, written).await.map_err(|_| late())???;
    results.into_iter().collect()
}

/// The number in the row; 0 if it has none.
async fn read(fleet: &Fleet, node: &Node, row: &Bytes) -> ServiceResult<u64> {
    let request = ReadRows::new(table_of(0), RowSet::new(vec![RowRange::single(row)]));
    let service = node.service.clone();
    let found = async {
        let begun = node.stream(&fleet.env, async move { service.read_rows(request).await });
        let batch = begun.await?.next().await?;
        Ok(batch.and_then(|batch| batch.into_cells().into_iter().next()))
    };
    let found: ServiceResult<_> = fleet.env.timeout(CALL_WAIT, found).await.map_err(|_| late())?;
    let value = found?.map(|cell| cell.value.as_ref().to_vec());
    let number = value.and_then(|value| <[u8; 8]>::try_from(value).ok());
    Ok(number.map_or(0, u64::from_be_bytes))
}

fn late() -> ServiceError {
    ServiceError::new(ErrorKind::Unavailable, "no answer")
}
