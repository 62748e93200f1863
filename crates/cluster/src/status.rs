//! The status of a cluster, as its leader knows it.

use crate::leader::Leader;
use crate::messages::TabletState;
use std::collections::{BTreeMap, HashMap};
use stele_client::{ClusterStatus, ServerStatus, TabletStatus};
use stele_types::ServerId;

/// The status now.
pub(crate) fn status(leader: &Leader) -> ClusterStatus {
    let (members, catalog) = (leader.local.members.view(), leader.local.catalog.view());
    let reports = leader.reports();
    let listed = reports.iter().flat_map(|(server, report)| {
        let tablets = report.tablets.iter().flatten();
        tablets.map(|tablet| ((*server, tablet.tablet, tablet.epoch), tablet))
    });
    let listed: HashMap<_, _> = listed.collect();
    let (errors, closing_errors) = (leader.errors(), leader.closing_errors());
    let now = leader.local.env.now();
    let mut counts: BTreeMap<ServerId, usize> = BTreeMap::new();
    let mut tablets = Vec::new();
    for (name, table) in &catalog.tables {
        for tablet in table.tablets() {
            let assignment = &tablet.assignment;
            let owner = assignment.owner;
            let report = owner.and_then(|owner| listed.get(&(owner.server, tablet.id, owner.epoch)));
            if let Some(owner) = owner {
                *counts.entry(owner.server).or_default() += 1;
            }
            let is_sealed = |server: ServerId| members.logs.get(&server).is_none_or(|log| log.sealed);
            let waits_for = match (owner, report.map(|report| report.state), assignment.moving_to) {
                (None, _, _) => "a server".to_owned(),
                (Some(owner), None, _) if members.unreadable.contains(&owner.server) => {
                    format!(
                        "a program that can read the record of the log of server {}",
                        owner.server
                    )
                }
                (Some(owner), None, _) if !members.servers.contains_key(&owner.server) => {
                    match is_sealed(owner.server) {
                        true => "another server".to_owned(),
                        false => format!("the log of server {} to be sealed", owner.server),
                    }
                }
                (Some(owner), None, _) => match errors.get(&tablet.id) {
                    Some(error) => format!("server {} to open it, which failed: {error}", owner.server),
                    None => format!("server {} to open it", owner.server),
                },
                (_, Some(TabletState::Opening), _) => "the replay of logs".to_owned(),
                (_, Some(TabletState::Closed | TabletState::Unopened), _) => "its next server".to_owned(),
                (_, _, Some(to)) => match closing_errors.get(&tablet.id) {
                    Some(error) => format!("flushes before it moves to server {to}, which failed: {error}"),
                    None => format!("flushes before it moves to server {to}"),
                },
                (_, Some(TabletState::Serving | TabletState::Replayed), None) => String::new(),
            };
            tablets.push(TabletStatus {
                table: name.to_string(),
                tablet: tablet.id,
                start: tablet.range.start.to_vec(),
                owner: owner.map(|owner| owner.server),
                epoch: owner.map(|owner| owner.epoch).unwrap_or_default(),
                moving_to: assignment.moving_to,
                serves: report
                    .is_some_and(|report| matches!(report.state, TabletState::Serving | TabletState::Replayed)),
                logs: assignment.logs.clone(),
                bytes: report.map_or(0, |report| report.bytes),
                waited_millis: leader.waiting.waited(tablet.id, now).as_millis() as u64,
                waits_for,
            });
        }
    }
    let servers = members.logs.iter().map(|(server, log)| {
        let record = members.servers.get(server);
        let report = reports.get(server);
        let record_of = record.cloned().unwrap_or_default();
        ServerStatus {
            server: *server,
            lives: record.is_some(),
            sealed: log.sealed,
            drains: members.draining.contains(server),
            addresses: [record_of.peer, record_of.bigtable, record_of.hbase, record_of.http],
            version: record_of.version,
            tablets: counts.get(server).copied().unwrap_or(0),
            memtable_bytes: report.map_or(0, |report| report.memtable_bytes),
            log_bytes: report.map_or(log.bytes, |report| report.log_bytes),
        }
    });
    ClusterStatus {
        leader: leader.local.peers.own(),
        servers: servers.collect(),
        tablets,
        check: leader.checks.status(now),
    }
}
