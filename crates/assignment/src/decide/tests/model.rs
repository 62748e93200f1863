//! A cluster with faults. It knows in which log each acknowledged write is, and panics when one would be lost.

use crate::decide::decide;
use crate::order::Order;
use crate::suspicion::Suspicions;
use crate::view::{
    Assignment, Attempted, FailedClosing, LogState, Owner, Report, ServedState, ServerView, Session, TableView,
    TabletView, View,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use stele_types::{Epoch, ServerId, TableId, TabletId};

const TABLETS: u64 = 6;
const SERVERS_MAX: usize = 5;

/// The truth about a server, as opposed to its records and reports.
struct Process {
    /// It runs, perhaps without a session.
    runs: bool,
    sealed: bool,
    tablets: BTreeMap<TabletId, (Epoch, ServedState)>,
    /// The logs that it was told to replay, by tablet, until their records are in files.
    replayed: BTreeMap<TabletId, Vec<ServerId>>,
}

pub(super) struct Model {
    random: u64,
    view: View,
    processes: BTreeMap<ServerId, Process>,
    next_server: u32,
    /// Logs that hold acknowledged writes which no file has, by tablet.
    unflushed: BTreeMap<TabletId, BTreeSet<ServerId>>,
    deleted_logs: BTreeSet<ServerId>,
    /// Orders that are still on their way.
    late: Vec<Order>,
}

impl Model {
    pub(super) fn new(seed: u64) -> Self {
        let tablet = |id| TabletView {
            id: TabletId(id),
            bytes: 1 << 20,
            requests: 10 * id,
            unchanged_for: Duration::from_secs(3600),
            assignment: Assignment::default(),
            attempts: Attempted::default(),
        };
        let mut model = Model {
            random: seed,
            view: View {
                servers: BTreeMap::new(),
                tables: vec![TableView {
                    id: TableId(1),
                    tablets: (1..=TABLETS).map(tablet).collect(),
                }],
                no_balance: false,
            },
            processes: BTreeMap::new(),
            next_server: 1,
            unflushed: BTreeMap::new(),
            deleted_logs: BTreeSet::new(),
            late: Vec::new(),
        };
        (0..3).for_each(|_| model.start_server());
        model
    }

    /// Any number below `below` (SplitMix64).
    fn below(&mut self, below: usize) -> usize {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % below.max(1) as u64).expect("it is below a usize")
    }

    fn start_server(&mut self) {
        let id = ServerId(self.next_server);
        self.next_server += 1;
        let record = ServerView {
            session: Session::Alive,
            log: LogState::Open,
            log_streams: 0,
            draining: false,
            answers: true,
            report: BTreeMap::new(),
        };
        self.view.servers.insert(id, record);
        let process = Process {
            runs: true,
            sealed: false,
            tablets: BTreeMap::new(),
            replayed: BTreeMap::new(),
        };
        self.processes.insert(id, process);
    }

    fn any_server(&mut self) -> ServerId {
        let ids: Vec<ServerId> = self.processes.keys().copied().collect();
        ids[self.below(ids.len())]
    }

    fn any_tablet(&mut self) -> TabletId {
        TabletId(1 + self.below(TABLETS as usize) as u64)
    }

    fn process(&mut self, id: ServerId) -> &mut Process {
        self.processes.get_mut(&id).expect("it is known")
    }

    fn living(&self) -> usize {
        let servers = self.view.servers.values();
        servers.filter(|server| server.session == Session::Alive).count()
    }

    /// One event: of the load, of a fault, or of the leader.
    pub(super) fn step(&mut self) {
        match self.below(23) {
            0 if self.living() < SERVERS_MAX => self.start_server(),
            // It ends without a word, or runs on as a zombie.
            1 if self.living() > 2 => {
                let (id, runs) = (self.any_server(), self.below(2) == 0);
                self.end(id, runs);
            }
            2 => {
                let id = self.any_server();
                if let Some(server) = self.view.servers.get_mut(&id) {
                    server.draining = !server.draining;
                }
            }
            3..=6 => self.write(),
            7..=10 => self.progress(),
            11..=13 => {
                let id = self.any_server();
                self.report(id);
            }
            14 => {
                let index = self.below(self.late.len());
                if index < self.late.len() {
                    let order = self.late.swap_remove(index);
                    self.carry_out(&order);
                }
            }
            15 => self.fail_to_open(),
            // A link to it is cut, or heals.
            16 => {
                let id = self.any_server();
                if let Some(server) = self.view.servers.get_mut(&id) {
                    server.answers = !server.answers;
                }
            }
            17 => self.fail_to_close(),
            _ => self.lead(3),
        }
    }

    /// A server has failed to close a tablet several times, or has closed it.
    fn fail_to_close(&mut self) {
        let closings = [FailedClosing::None, FailedClosing::Due, FailedClosing::Waits];
        let (tablet, closing) = (self.any_tablet(), closings[self.below(closings.len())]);
        self.tablet(tablet).attempts.closing = closing;
    }

    /// A server is opening a tablet, and does not succeed.
    fn fail_to_open(&mut self) {
        let (id, tablet) = (self.any_server(), self.any_tablet());
        let process = self.process(id);
        let is_opening = |(_, state): &(Epoch, ServedState)| *state == ServedState::Opening;
        if process.tablets.get(&tablet).is_some_and(is_opening) {
            process.tablets.remove(&tablet);
            let waits = self.below(2) == 0;
            let attempts = &mut self.tablet(tablet).attempts;
            attempts.waits = waits;
            attempts.unable.insert(id);
        }
    }

    /// No more faults: all tablets get served, all files get everything, no log is left but those of the living, and no order follows.
    pub(super) fn settle(&mut self) {
        let servers = self.view.servers.values_mut();
        servers.for_each(|server| (server.draining, server.answers) = (false, true));
        let tablets = self.view.tables[0].tablets.iter_mut();
        tablets.for_each(|tablet| {
            tablet.attempts.waits = false;
            tablet.attempts.closing = FailedClosing::Due;
        });
        for _ in 0..300 {
            let ids: Vec<ServerId> = self.processes.keys().copied().collect();
            ids.into_iter().for_each(|id| self.report(id));
            self.lead(1);
            (0..20).for_each(|_| self.progress());
        }
        let condemned = Suspicions::default().condemned(&self.view, Duration::ZERO);
        assert_eq!(decide(&self.view, &condemned.dead), vec![], "it comes to rest");
        for tablet in self.view.tablets() {
            let owner = tablet.assignment.owner.expect("it has an owner");
            let state = self.processes[&owner.server].tablets.get(&tablet.id);
            assert_eq!(state, Some(&(owner.epoch, ServedState::Serving)), "{tablet:?}");
            assert_eq!(tablet.assignment.logs, vec![]);
            assert_eq!(tablet.assignment.moving_to, None);
        }
        let mut left = self.view.servers.values();
        assert!(
            left.all(|server| server.session == Session::Alive),
            "the log of a dead server is left over"
        );
    }

    fn end(&mut self, id: ServerId, runs: bool) {
        if let Some(record) = self.view.servers.get_mut(&id) {
            record.session = Session::Ended(Duration::from_secs(3600));
        }
        self.process(id).runs = runs;
    }

    /// A client writes to each server that thinks it serves the tablet.
    fn write(&mut self) {
        let tablet = self.any_tablet();
        let serves = |process: &Process| {
            let state = process.tablets.get(&tablet).map(|(_, state)| *state);
            let is_served = matches!(state, Some(ServedState::Serving | ServedState::Replayed));
            process.runs && !process.sealed && is_served
        };
        let servers = self.processes.iter().filter(|(_, process)| serves(process));
        let acknowledged: Vec<ServerId> = servers.map(|(id, _)| *id).collect();
        assert!(acknowledged.len() < 2, "{tablet:?} takes writes on {acknowledged:?}");
        self.unflushed.entry(tablet).or_default().extend(acknowledged);
    }

    /// A server gets on with one of its tablets.
    fn progress(&mut self) {
        let (id, tablet) = (self.any_server(), self.any_tablet());
        // Storage refuses the next manifest of a stale owner, so only the flush of a current owner counts.
        let newest = self.assignment(tablet).owner;
        let unflushed = self.unflushed.entry(tablet).or_default();
        let process = self.processes.get_mut(&id).expect("it is known");
        let Some((epoch, state)) = process.tablets.get_mut(&tablet).filter(|_| process.runs) else {
            return;
        };
        if newest.is_none_or(|owner| owner.epoch != *epoch) {
            return;
        }
        match state {
            ServedState::Opening => {
                let logs = process.replayed.get(&tablet).cloned().unwrap_or_default();
                let lost: Vec<_> = unflushed.iter().filter(|log| !logs.contains(log)).collect();
                assert!(lost.is_empty(), "{tablet:?} is served without the writes in {lost:?}");
                *state = ServedState::Replayed;
                self.tablet(tablet).attempts.unable.remove(&id);
            }
            ServedState::Replayed => {
                // A flush: files have everything that was in memtables.
                unflushed.clear();
                process.replayed.remove(&tablet);
                *state = ServedState::Serving;
            }
            ServedState::Serving => unflushed.clear(),
            ServedState::Closed | ServedState::Unopened => {}
        }
    }

    fn report(&mut self, id: ServerId) {
        let process = &self.processes[&id];
        let report = |(tablet, (epoch, state)): (&TabletId, &(Epoch, ServedState))| {
            let (epoch, state) = (*epoch, *state);
            (*tablet, Report { epoch, state })
        };
        if let Some(record) = self.view.servers.get_mut(&id).filter(|_| process.runs) {
            record.report = process.tablets.iter().map(report).collect();
        }
    }

    /// The leader decides. One order in `of` is carried out now; others are lost or late.
    fn lead(&mut self, of: usize) {
        let condemned = Suspicions::default().condemned(&self.view, Duration::ZERO);
        for order in decide(&self.view, &condemned.dead) {
            match self.below(of) {
                0 => self.carry_out(&order),
                1 => self.late.push(order),
                _ => {}
            }
        }
    }

    fn tablet(&mut self, tablet: TabletId) -> &mut TabletView {
        let tablets = &mut self.view.tables[0].tablets;
        let found = tablets.iter_mut().find(|view| view.id == tablet);
        found.expect("it is there")
    }

    fn assignment(&mut self, tablet: TabletId) -> &mut Assignment {
        &mut self.tablet(tablet).assignment
    }

    /// The assignment, if it is the one that a decision saw: a conditional transaction.
    fn unchanged(&mut self, tablet: TabletId, seen: &Assignment) -> Option<&mut Assignment> {
        Some(self.assignment(tablet)).filter(|assignment| *assignment == seen)
    }

    fn carry_out(&mut self, order: &Order) {
        match order.clone() {
            Order::Seal(id) => {
                self.process(id).sealed = true;
                if let Some(record) = self.view.servers.get_mut(&id) {
                    record.log = LogState::Sealed;
                }
            }
            Order::Assign { tablet, seen, to, logs } => {
                let epoch = Epoch(seen.owner.map_or(1, |owner| owner.epoch.0 + 1));
                if let Some(assignment) = self.unchanged(tablet, &seen) {
                    *assignment = Assignment {
                        owner: Some(Owner { server: to, epoch }),
                        moving_to: None,
                        logs,
                    };
                    // Failures to close it were those of its former owner.
                    self.tablet(tablet).attempts.closing = FailedClosing::None;
                }
            }
            Order::Move { tablet, seen, to } => {
                if let Some(assignment) = self.unchanged(tablet, &seen) {
                    assignment.moving_to = Some(to);
                }
            }
            Order::Stay { tablet, seen } => {
                if let Some(assignment) = self.unchanged(tablet, &seen) {
                    assignment.moving_to = None;
                }
            }
            Order::Forget { tablet, seen } => {
                if let Some(assignment) = self.unchanged(tablet, &seen) {
                    assignment.logs.clear();
                }
            }
            // The leader asks the newest catalog: a late order may have given a tablet to the dead server since the decision.
            Order::DeleteLog(id) if self.view.tablets().any(|tablet| tablet.assignment.needs_log_of(id)) => {}
            Order::DeleteLog(id) => {
                let needed = self.unflushed.values().any(|logs| logs.contains(&id));
                assert!(!needed, "the log of {id} is deleted, and has writes that no file has");
                self.view.servers.remove(&id);
                self.deleted_logs.insert(id);
            }
            Order::Open { tablet, owner, logs } => self.open(tablet, owner, logs),
            Order::Close { tablet, owner } => self.close(tablet, owner),
            Order::Abandon { tablet, server } => self.abandon(tablet, server),
        }
    }

    /// A server opens a tablet under an epoch that is newer than any it has had, and the newest that the manifest knows.
    fn open(&mut self, tablet: TabletId, owner: Owner, logs: Vec<ServerId>) {
        let newest = self.assignment(tablet).owner;
        let process = self.processes.get_mut(&owner.server).expect("it is known");
        let is_newer = process
            .tablets
            .get(&tablet)
            .is_none_or(|(epoch, _)| *epoch < owner.epoch);
        if process.runs && is_newer && newest == Some(owner) {
            let missing: Vec<_> = logs.iter().filter(|log| self.deleted_logs.contains(log)).collect();
            assert!(
                missing.is_empty(),
                "{tablet:?} needs the logs {missing:?}, which are deleted"
            );
            process.replayed.insert(tablet, logs);
            process.tablets.insert(tablet, (owner.epoch, ServedState::Opening));
        }
    }

    fn close(&mut self, tablet: TabletId, owner: Owner) {
        let is_newest = self.assignment(tablet).owner == Some(owner);
        let unflushed = self.unflushed.entry(tablet).or_default();
        let process = self.processes.get_mut(&owner.server).expect("it is known");
        let can_flush = process.runs && !process.sealed && is_newest;
        if let Some((epoch, state)) = process.tablets.get_mut(&tablet).filter(|_| can_flush)
            && *epoch == owner.epoch
            && *state == ServedState::Serving
        {
            unflushed.clear();
            *state = ServedState::Closed;
        }
        // The order may be late: another epoch than the newest may be refused, too.
        let has_left = |state| matches!(state, ServedState::Closed | ServedState::Unopened);
        let is_unopened = process
            .tablets
            .get(&tablet)
            .is_none_or(|(epoch, state)| *epoch < owner.epoch && has_left(*state));
        if process.runs && is_unopened {
            let unopened = (owner.epoch, ServedState::Unopened);
            process.tablets.insert(tablet, unopened);
        }
    }

    /// The order may be late, so the server compares with the catalog.
    fn abandon(&mut self, tablet: TabletId, server: ServerId) {
        let owner = self.assignment(tablet).owner;
        let process = self.process(server);
        let is_stale = |epoch: Epoch| owner != Some(Owner { server, epoch });
        if process.tablets.get(&tablet).is_some_and(|(epoch, _)| is_stale(*epoch)) {
            process.tablets.remove(&tablet);
        }
    }
}
