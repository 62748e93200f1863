//! Batches of rows: the flush of a client's write buffer.
//!
//! Follows HBase's client. Rows are grouped by region and server, and a request is limited in bytes. A server gets at
//! most two requests of a batch at a time and a region at most one, so writes of a row stay in order. Only failed parts
//! are sent again: single rows, regions, or a whole request.

use crate::cluster::Cluster;
use crate::failure::{Failure, Remedy};
use crate::locations::Region;
use crate::socket::Method;
use bytes::{Bytes, BytesMut};
use futures::stream::{FuturesUnordered, StreamExt};
use std::collections::HashMap;
use std::sync::Arc;
use stele_wire::WireError;
use stele_wire::frame::CellBlock;
use stele_wire::messages::{
    Action, MultiRequest, MultiResponse, MutationProto, RegionAction, RegionActionResult, RegionSpecifier, decode,
};

/// Bytes of one request: HBase's write buffer. Its client permits twice that.
const REQUEST_BYTES: usize = 2 << 20;

/// Concurrent requests of a batch to a server: HBase's `hbase.client.max.perserver.tasks`.
const LANES: usize = 2;

/// Rows of one request: HBase logs a warning for each batch of more, and small rows would make such batches.
const REQUEST_ROWS_MAX: usize = 5000;

const MULTI: Method = Method::named("Multi");

/// A change of one row, whose cells travel in the cell block.
pub trait RowChange: Sync {
    /// The row.
    fn row(&self) -> &Bytes;

    /// Bytes of its cells on the wire.
    fn cell_bytes(&self) -> usize;

    /// Its message, with the number of its cells.
    fn proto(&self) -> MutationProto;

    /// Appends its cells to a block.
    ///
    /// # Errors
    /// A cell that cannot be encoded.
    fn encode_cells(&self, out: &mut BytesMut) -> Result<(), WireError>;
}

/// Rows of one region, by their place in the batch.
struct Group {
    region: Arc<Region>,
    rows: Vec<u32>,
    bytes: usize,
}

/// A row that was not written, and the reason.
struct Missed {
    row: u32,
    failure: Failure,
}

/// Writes all rows, or fails. After a failure some may have been written.
///
/// # Errors
/// The failure of the last attempt.
pub async fn write<R: RowChange>(cluster: &Cluster, table: &str, changes: &[R]) -> Result<(), Failure> {
    let mut left: Vec<u32> = (0..changes.len() as u32).collect();
    let mut back_off = cluster.new_back_off();
    while !left.is_empty() {
        let missed = match group(cluster, table, changes, &left).await {
            Ok(groups) => send(cluster, table, changes, groups).await,
            Err(failure) => left
                .iter()
                .map(|row| Missed {
                    row: *row,
                    failure: failure.clone(),
                })
                .collect(),
        };
        let fatal = missed.iter().position(|m| m.failure.remedy() == Remedy::GiveUp);
        let Some(worst) = missed.get(fatal.unwrap_or_default()) else {
            break;
        };
        cluster.back_off(&mut back_off, worst.failure.clone()).await?;
        left = missed.into_iter().map(|m| m.row).collect();
        // Requests end in any order, and writes of a row must stay in theirs.
        left.sort_unstable();
    }
    Ok(())
}

/// Groups rows by region, in order.
async fn group<R: RowChange>(
    cluster: &Cluster,
    table: &str,
    changes: &[R],
    rows: &[u32],
) -> Result<Vec<Group>, Failure> {
    let mut groups: Vec<Group> = Vec::new();
    let mut by_name: HashMap<Bytes, usize> = HashMap::new();
    let mut last: Option<usize> = None;
    for row in rows {
        let Some(change) = changes.get(*row as usize) else {
            continue;
        };
        let same = last.filter(|at| groups.get(*at).is_some_and(|g| g.region.contains(change.row())));
        let at = match same {
            Some(at) => at,
            None => {
                let region = cluster.locate(table, change.row()).await?;
                *by_name.entry(region.name.clone()).or_insert_with(|| {
                    groups.push(Group {
                        region,
                        rows: Vec::new(),
                        bytes: 0,
                    });
                    groups.len() - 1
                })
            }
        };
        last = Some(at);
        if let Some(group) = groups.get_mut(at) {
            group.rows.push(*row);
            group.bytes += change.cell_bytes();
        }
    }
    Ok(groups)
}

/// Sends all groups: to all servers concurrently, to each in its lanes. Returns the rows that were not written.
async fn send<R: RowChange>(cluster: &Cluster, table: &str, changes: &[R], groups: Vec<Group>) -> Vec<Missed> {
    let mut lanes: HashMap<String, [(usize, Vec<Group>); LANES]> = HashMap::new();
    for group in groups {
        let of_server = lanes.entry(group.region.server.address().to_owned()).or_default();
        if let Some((bytes, lane)) = of_server.iter_mut().min_by_key(|(bytes, _)| *bytes) {
            *bytes += group.bytes;
            lane.push(group);
        }
    }
    let lanes = lanes.into_values().flatten().filter(|(_, lane)| !lane.is_empty());
    let mut under_way: FuturesUnordered<_> = lanes
        .map(|(_, lane)| send_lane(cluster, table, changes, lane))
        .collect();
    let mut missed = Vec::new();
    while let Some(some) = under_way.next().await {
        missed.extend(some);
    }
    missed
}

/// Sends the groups of a lane, one request after another.
async fn send_lane<R: RowChange>(cluster: &Cluster, table: &str, changes: &[R], lane: Vec<Group>) -> Vec<Missed> {
    let mut missed = Vec::new();
    let mut pieces: Vec<Piece<'_>> = Vec::new();
    let (mut bytes, mut rows) = (0, 0);
    for group in &lane {
        let mut rest = &group.rows[..];
        while !rest.is_empty() {
            let fit = fitting(
                changes,
                rest,
                REQUEST_BYTES.saturating_sub(bytes),
                REQUEST_ROWS_MAX - rows,
            );
            // A row larger than a whole request travels alone.
            let fit = if fit == 0 && pieces.is_empty() { 1 } else { fit };
            let (now, later) = rest.split_at(fit.min(rest.len()));
            rest = later;
            if !now.is_empty() {
                let of = |row: &u32| changes.get(*row as usize).map_or(0, R::cell_bytes);
                bytes += now.iter().map(of).sum::<usize>();
                rows += now.len();
                pieces.push(Piece {
                    region: &group.region,
                    rows: now,
                });
            }
            if !rest.is_empty() {
                send_request(cluster, table, changes, &pieces, &mut missed).await;
                pieces.clear();
                (bytes, rows) = (0, 0);
            }
        }
    }
    if !pieces.is_empty() {
        send_request(cluster, table, changes, &pieces, &mut missed).await;
    }
    missed
}

/// Number of the first rows that fit into a request.
fn fitting<R: RowChange>(changes: &[R], rows: &[u32], mut room: usize, most: usize) -> usize {
    let fits = |row: &&u32| {
        let bytes = changes.get(**row as usize).map_or(0, R::cell_bytes);
        let fits = bytes <= room;
        room = room.saturating_sub(bytes);
        fits
    };
    rows.iter().take(most).take_while(fits).count()
}

/// Rows of one region in a request.
struct Piece<'a> {
    region: &'a Arc<Region>,
    rows: &'a [u32],
}

/// Cells of a request, in the order of its actions.
struct Cells<'a, R> {
    changes: &'a [R],
    pieces: &'a [Piece<'a>],
}

impl<'a, R: RowChange> Cells<'a, R> {
    fn changes(&self) -> impl Iterator<Item = &'a R> {
        let changes = self.changes;
        self.pieces
            .iter()
            .flat_map(|piece| piece.rows)
            .filter_map(move |row| changes.get(*row as usize))
    }
}

impl<R: RowChange> CellBlock for Cells<'_, R> {
    fn encoded_len(&self) -> usize {
        self.changes().map(R::cell_bytes).sum()
    }

    fn encode(&self, out: &mut BytesMut) -> Result<(), WireError> {
        self.changes().try_for_each(|change| change.encode_cells(out))
    }
}

async fn send_request<R: RowChange>(
    cluster: &Cluster,
    table: &str,
    changes: &[R],
    pieces: &[Piece<'_>],
    missed: &mut Vec<Missed>,
) {
    let Some(first) = pieces.first() else { return };
    let attempt = async {
        let socket = first.region.server.socket().await?;
        let call = socket.call(MULTI, &request(changes, pieces), &Cells { changes, pieces })?;
        let response: MultiResponse = decode("MultiResponse", call.await?.message)?;
        Ok::<_, Failure>(response)
    };
    let results = attempt.await.and_then(|response| aligned(response, pieces.len()));
    let mut base = 0;
    for (at, piece) in pieces.iter().enumerate() {
        let before = missed.len();
        match &results {
            Ok(results) => judge(results.get(at), piece.rows, base, missed),
            Err(failure) => miss(piece.rows, failure, missed),
        }
        base += piece.rows.len();
        if missed
            .get(before..)
            .is_some_and(|new| new.iter().any(|m| m.failure.forgets()))
        {
            cluster.forget(table, piece.region);
        }
    }
}

/// The results of regions, as many as requested.
fn aligned(response: MultiResponse, asked: usize) -> Result<Vec<RegionActionResult>, Failure> {
    let results = response.region_action_result;
    if results.len() == asked {
        Ok(results)
    } else {
        Err(Failure::Protocol(format!(
            "results of {} regions, {asked} expected",
            results.len()
        )))
    }
}

fn request<R: RowChange>(changes: &[R], pieces: &[Piece<'_>]) -> MultiRequest {
    let mut index = 0;
    let mut action = |row: &u32| {
        let change = changes.get(*row as usize)?;
        let this = index;
        index += 1;
        Some(Action {
            index: Some(this),
            mutation: Some(change.proto()),
            get: None,
        })
    };
    let region_action = pieces.iter().map(|piece| RegionAction {
        region: RegionSpecifier::named(piece.region.name.clone()),
        action: piece.rows.iter().filter_map(&mut action).collect(),
        ..RegionAction::default()
    });
    MultiRequest {
        region_action: region_action.collect(),
        nonce_group: None,
        condition: None,
    }
}

fn miss(rows: &[u32], failure: &Failure, missed: &mut Vec<Missed>) {
    missed.extend(rows.iter().map(|row| Missed {
        row: *row,
        failure: failure.clone(),
    }));
}

/// Finds the rows of a region that were not written. Every row must have a result.
fn judge(result: Option<&RegionActionResult>, rows: &[u32], base: usize, missed: &mut Vec<Missed>) {
    let Some(result) = result else { return };
    if let Some(e) = &result.exception {
        return miss(rows, &Failure::of_action(e), missed);
    }
    let mut spoken_of = vec![false; rows.len()];
    let before = missed.len();
    for one in &result.result_or_exception {
        let at = (one.index.unwrap_or_default() as usize).checked_sub(base);
        let Some((row, seen)) = at.and_then(|at| Some((*rows.get(at)?, spoken_of.get_mut(at)?))) else {
            missed.truncate(before);
            let failure = Failure::Protocol(format!("a result of no action: index {:?}", one.index));
            return miss(rows, &failure, missed);
        };
        *seen = true;
        if let Some(e) = &one.exception {
            missed.push(Missed {
                row,
                failure: Failure::of_action(e),
            });
        }
    }
    if spoken_of.contains(&false) {
        missed.truncate(before);
        let count = result.result_or_exception.len();
        let failure = Failure::Protocol(format!("{count} results of a region, {} expected", rows.len()));
        miss(rows, &failure, missed);
    }
}
