//! `/api/cluster`: servers, and the owners of tablets by table.

use super::{Answer, Json, Observed, Parameters};
use crate::text::escape_cut;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use stele_client::{ClusterCheck, ClusterStatus, ServerStatus, TabletStatus};
use stele_types::ServerId;

/// Tables of a page.
const LIMIT_MAX: usize = 100;
const LIMIT: usize = 30;
/// Cells in which the tablets of a table are shown.
const CELLS_MAX: usize = 120;
/// Tablets that wait are listed up to this number.
const WAITING_MAX: usize = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    offset: Option<usize>,
    limit: Option<usize>,
}

#[derive(Serialize)]
pub(super) struct Cluster {
    leader: u32,
    servers: Vec<Server>,
    /// Tablets of all tables.
    tablets: usize,
    /// Tablets that are not served, or move.
    unsettled: usize,
    /// The first of them.
    waiting: Vec<Waiting>,
    check: Check,
    /// Number of tables.
    total: usize,
    offset: usize,
    tables: Vec<Table>,
}

#[derive(Serialize)]
struct Server {
    server: u32,
    /// `leads`, `serves`, `drains`, `silent` or `ended`.
    state: &'static str,
    version: String,
    bigtable: String,
    hbase: String,
    http: String,
    tablets: usize,
    memtable_bytes: u64,
    log_bytes: u64,
}

/// The last comparison of the catalog, tablets and files.
#[derive(Serialize)]
struct Check {
    /// Seconds since it began; absent if there was none yet.
    ago: Option<u64>,
    tablets: u64,
    files: u64,
    bytes: u64,
    findings: Vec<String>,
    /// Further ones.
    more: u64,
    waits_for: String,
}

#[derive(Serialize)]
struct Waiting {
    table: String,
    tablet: String,
    start: String,
    owner: Option<u32>,
    to: Option<u32>,
    waits_for: String,
    /// Seconds.
    waited: u64,
}

#[derive(Serialize)]
struct Table {
    table: String,
    tablets: usize,
    bytes: u64,
    /// Groups of neighbours, in the order of their rows.
    cells: Vec<Group>,
}

#[derive(Serialize)]
struct Group {
    /// The owner of most of them; absent for none.
    server: Option<u32>,
    /// First row of the first.
    start: String,
    tablets: usize,
    unsettled: usize,
}

pub(super) async fn get(served: Observed, Parameters(wanted): Parameters<Wanted>) -> Answer<Cluster> {
    let status = served.parts.admin.cluster_status().await?;
    Ok(Json(show(&status, &wanted)))
}

fn show(status: &ClusterStatus, wanted: &Wanted) -> Cluster {
    let mut tables: BTreeMap<&str, Vec<&TabletStatus>> = BTreeMap::new();
    for tablet in &status.tablets {
        tables.entry(&tablet.table).or_default().push(tablet);
    }
    let (offset, limit) = (wanted.offset.unwrap_or(0), wanted.limit.unwrap_or(LIMIT).min(LIMIT_MAX));
    let unsettled = || status.tablets.iter().filter(|tablet| is_unsettled(tablet));
    Cluster {
        leader: status.leader.0,
        servers: status
            .servers
            .iter()
            .map(|server| show_server(server, status.leader))
            .collect(),
        tablets: status.tablets.len(),
        unsettled: unsettled().count(),
        waiting: unsettled().take(WAITING_MAX).map(show_waiting).collect(),
        check: show_check(&status.check),
        total: tables.len(),
        offset,
        tables: tables.into_iter().skip(offset).take(limit).map(show_table).collect(),
    }
}

fn show_check(check: &ClusterCheck) -> Check {
    Check {
        ago: check.began_millis_ago.map(|millis| millis / 1000),
        tablets: check.tablets,
        files: check.files,
        bytes: check.bytes,
        findings: check.findings.clone(),
        more: check.more,
        waits_for: check.waits_for.clone(),
    }
}

fn is_unsettled(tablet: &TabletStatus) -> bool {
    !tablet.serves || !tablet.waits_for.is_empty()
}

fn show_server(server: &ServerStatus, leader: ServerId) -> Server {
    let state = match server {
        ServerStatus {
            lives: false,
            sealed: true,
            ..
        } => "ended",
        ServerStatus { lives: false, .. } => "silent",
        ServerStatus { drains: true, .. } => "drains",
        _ if server.server == leader => "leads",
        _ => "serves",
    };
    let [_, bigtable, hbase, http] = server.addresses.clone();
    Server {
        server: server.server.0,
        state,
        version: server.version.clone(),
        bigtable,
        hbase,
        http,
        tablets: server.tablets,
        memtable_bytes: server.memtable_bytes,
        log_bytes: server.log_bytes,
    }
}

fn show_waiting(tablet: &TabletStatus) -> Waiting {
    Waiting {
        table: tablet.table.clone(),
        tablet: tablet.tablet.to_string(),
        start: escape_cut(&tablet.start),
        owner: tablet.owner.map(|owner| owner.0),
        to: tablet.moving_to.map(|to| to.0),
        waits_for: tablet.waits_for.clone(),
        waited: tablet.waited_millis / 1000,
    }
}

fn show_table((name, tablets): (&str, Vec<&TabletStatus>)) -> Table {
    let cells = tablets.len().min(CELLS_MAX);
    let group = |cell: usize| {
        let of = cell * tablets.len() / cells..(cell + 1) * tablets.len() / cells;
        show_group(tablets.get(of).unwrap_or_default())
    };
    Table {
        table: name.to_owned(),
        tablets: tablets.len(),
        bytes: tablets.iter().map(|tablet| tablet.bytes).sum(),
        cells: (0..cells).map(group).collect(),
    }
}

fn show_group(tablets: &[&TabletStatus]) -> Group {
    let mut owners: BTreeMap<Option<u32>, usize> = BTreeMap::new();
    for tablet in tablets {
        *owners.entry(tablet.owner.map(|owner| owner.0)).or_default() += 1;
    }
    let most = owners.into_iter().max_by_key(|(_, tablets)| *tablets);
    Group {
        server: most.and_then(|(owner, _)| owner),
        start: tablets
            .first()
            .map_or_else(String::new, |first| escape_cut(&first.start)),
        tablets: tablets.len(),
        unsettled: tablets.iter().filter(|tablet| is_unsettled(tablet)).count(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_types::{Epoch, TabletId};

    fn tablet(number: u64, table: &str, owner: Option<u32>) -> TabletStatus {
        TabletStatus {
            table: table.to_owned(),
            tablet: TabletId(number),
            start: number.to_be_bytes().to_vec(),
            owner: owner.map(ServerId),
            epoch: Epoch(1),
            moving_to: None,
            serves: owner.is_some(),
            logs: Vec::new(),
            bytes: 10,
            waits_for: if owner.is_some() { "" } else { "a server" }.to_owned(),
            waited_millis: if owner.is_some() { 0 } else { 2_500 },
        }
    }

    /// Tablets of a table are in cells of equal numbers, and none is left out.
    #[test]
    fn neighbours_share_a_cell() {
        let of_a = (0..1_000).map(|number| tablet(number, "n/a", Some(1 + u32::from(number >= 500))));
        let of_b = (1_000..1_002).map(|number| tablet(number, "n/b", (number == 1_000).then_some(3)));
        let status = ClusterStatus {
            leader: ServerId(1),
            servers: Vec::new(),
            tablets: of_a.chain(of_b).collect(),
            check: ClusterCheck {
                began_millis_ago: Some(61_900),
                ..ClusterCheck::default()
            },
        };
        let shown = show(
            &status,
            &Wanted {
                offset: None,
                limit: None,
            },
        );
        assert_eq!((shown.tablets, shown.unsettled, shown.total), (1_002, 1, 2));
        assert_eq!(
            (&shown.waiting[0].waits_for[..], shown.waiting[0].waited),
            ("a server", 2)
        );
        assert_eq!(shown.check.ago, Some(61));
        let (a, b) = (&shown.tables[0], &shown.tables[1]);
        assert_eq!((a.cells.len(), a.bytes), (CELLS_MAX, 10_000));
        assert_eq!(a.cells.iter().map(|cell| cell.tablets).sum::<usize>(), 1_000);
        assert_eq!((a.cells[0].server, a.cells[CELLS_MAX - 1].server), (Some(1), Some(2)));
        let owners: Vec<_> = b.cells.iter().map(|cell| (cell.server, cell.unsettled)).collect();
        assert_eq!(owners, [(Some(3), 0), (None, 1)]);
        let second = Wanted {
            offset: Some(1),
            limit: Some(1),
        };
        assert_eq!(show(&status, &second).tables[0].table, "n/b");
    }

    #[test]
    fn a_server_has_one_state() {
        let server = |number: u32, lives: bool, sealed: bool, drains: bool| ServerStatus {
            server: ServerId(number),
            lives,
            sealed,
            drains,
            addresses: Default::default(),
            version: String::new(),
            tablets: 0,
            memtable_bytes: 0,
            log_bytes: 0,
        };
        let states = [
            server(1, true, false, false),
            server(2, true, false, false),
            server(1, true, false, true),
            server(3, false, false, false),
            server(3, false, true, true),
        ];
        let shown = states.map(|server| show_server(&server, ServerId(1)).state);
        assert_eq!(shown, ["leads", "serves", "drains", "silent", "ended"]);
    }
}
