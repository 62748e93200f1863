//! The clients of a simulation and their reports to the checkers.
//!
//! One table, few rows and several concurrent clients make conflicts frequent:
//!
//! * `r*`: three *slots*, one for each of three timestamps. A write fills a slot, that is the cells of three columns at
//!   that timestamp, with the same unique number; now and then it deletes the whole row first. A read must find the
//!   same number in all three columns of a slot: rows are atomic.
//! * `n*`: counters. Read-modify-write adds one in family `c`, an aggregate adds one in family `s`; some are repeated with
//!   a token ([`additions`]).
//! * `k*`: claims. Check-and-mutate writes its number unless the row has any cell; one client at most may succeed.
//! * `p*`: contended. Several clients put one version and delete it again, as fast as they can ([`contended`]).
//! * `m*`: versions. Puts and deletes of all kinds, conditional or not, in a family without a rule and in one that
//!   keeps two versions ([`versions`]).
//!
//! Reads are of one row, or scans of the table in either direction. Concurrently one client creates and drops tables
//! ([`admin`]), takes snapshots of the shared table, and reads clones of them later ([`snapshots`]).
//!
//! Now and then an acknowledgement triggers the immediate end of the server: that shows acknowledgements that came too
//! early.

mod additions;
mod admin;
mod contended;
mod snapshots;
mod versions;

use crate::cluster::{Cluster, NoAnswer, Node, says_replaced};
use crate::contended::Contended;
use crate::history::{Histories, Moment, Outcome};
use crate::possible::Row;
use crate::possible::view::View;
use additions::Sent;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use stele_client::{
    Condition, MutateRows, NewFamily, NewTable, ReadRows, RowOperation, ServiceError, ServiceResult, Step, TableAdmin,
    TableService,
};
use stele_types::{
    AggregateKind, Cell, Durability, ErrorKind, FamilyId, GcRule, Mutation, RowMutation, RowRange, RowSet, TableName,
    Timestamp, ValueType,
};

/// Values and deletes.
const VALUES: FamilyId = FamilyId(1);
/// Counters by read-modify-write.
const COUNTS: FamilyId = FamilyId(2);
/// Counters by aggregation.
const SUMS: FamilyId = FamilyId(3);
/// Timestamps of the slots of a row.
const SLOTS: usize = 3;
/// Columns of a slot.
const COLUMNS: [&[u8]; 3] = [b"a", b"b\0", b"c"];
/// Acknowledgements between two ends of the server that clients trigger.
const ACKNOWLEDGED_PER_END: u64 = 40;
/// Rows of each kind.
const ROWS: u64 = 8;
/// Attempts of a server that has started without faults to respond, before it counts as dead.
const ANSWERS_MAX: u32 = 20;
/// Pause between two attempts: a split or a flush on a backend without latency takes less.
const ANSWER_PAUSE: Duration = Duration::from_millis(50);

/// The earliest known claim of a row, with its number if that is known.
type Taken = (Moment, Option<u64>);

/// The state that all clients share.
pub struct Workload {
    cluster: Arc<Cluster>,
    /// Until then no client begins an operation.
    rest_until: Mutex<Duration>,
    histories: Mutex<Histories>,
    /// The violations, first ones first.
    violations: Mutex<Vec<String>>,
    next_value: Mutex<u64>,
    claims: Mutex<BTreeMap<Vec<u8>, Vec<Claim>>>,
    /// The rows with a known claim.
    taken: Mutex<BTreeMap<Vec<u8>, Taken>>,
    /// The possible contents of rows of versions.
    versions: Mutex<BTreeMap<Bytes, Row>>,
    /// The same for the contended rows.
    contended: Mutex<BTreeMap<Bytes, Contended>>,
    /// Additions that may be repeated.
    sent: Mutex<VecDeque<Sent>>,
    acknowledged: Mutex<u64>,
    /// Triggers the server's end.
    end_wanted: tokio::sync::Notify,
}

#[derive(Clone, Debug)]
struct Claim {
    value: u64,
    /// It has not taken effect and never will.
    refused: bool,
    /// Its result said that the row was empty.
    won: bool,
    /// If it ever takes effect, then before this moment.
    latest: Option<Moment>,
}

/// The table under test.
pub fn table() -> TableName {
    TableName::new("sim", "table")
}

fn new_table() -> NewTable {
    let family = |name: &str, value_type| NewFamily {
        name: name.to_owned(),
        gc_rule: None,
        value_type,
        deletes: Default::default(),
        front_end_data: Vec::new(),
    };
    NewTable {
        families: vec![
            family("v", ValueType::Bytes),
            family("c", ValueType::Bytes),
            family("s", ValueType::Aggregate(AggregateKind::Sum)),
            family("all", ValueType::Bytes),
            NewFamily {
                gc_rule: Some(GcRule::MaxVersions(versions::KEPT as u32)),
                ..family("two", ValueType::Bytes)
            },
        ],
        initial_splits: vec![Bytes::from_static(b"n")],
        ..NewTable::new(table())
    }
}

impl Workload {
    /// A workload without operations yet.
    pub fn new(cluster: Arc<Cluster>) -> Arc<Workload> {
        Arc::new(Workload {
            histories: Mutex::new(Histories::new(cluster.has_several_streams())),
            cluster,
            rest_until: Mutex::default(),
            violations: Mutex::default(),
            next_value: Mutex::new(1),
            claims: Mutex::default(),
            taken: Mutex::default(),
            versions: Mutex::default(),
            contended: Mutex::default(),
            sent: Mutex::default(),
            acknowledged: Mutex::new(0),
            end_wanted: tokio::sync::Notify::new(),
        })
    }

    /// The violations.
    pub fn violations(&self) -> Vec<String> {
        self.violations.lock().clone()
    }

    /// Writes acknowledged.
    pub fn acknowledged(&self) -> u64 {
        *self.acknowledged.lock()
    }

    /// Completes when a client triggers the server's end.
    pub async fn end_wanted(&self) {
        self.end_wanted.notified().await;
    }

    /// Records a recovery.
    pub fn recovered(&self) {
        let settled = self.histories.lock().settled();
        self.versions.lock().values_mut().for_each(|row| row.recovered(settled));
        self.histories.lock().recovered();
        self.contended.lock().values_mut().for_each(Contended::recovered);
        let now = self.tick();
        for claim in self.claims.lock().values_mut().flatten() {
            claim.latest.get_or_insert(now);
        }
    }

    /// Creates the table on a healthy backend.
    pub async fn prepare(&self) -> Result<(), String> {
        let node = self.running_node().await;
        let master = node.master.clone();
        let made = self
            .ask(&node, async move { master.create_table(new_table()).await })
            .await;
        made.map_err(|_| "no answer".to_owned())?.map_err(|e| e.to_string())?;
        Ok(())
    }

    /// Stops clients from beginning operations for this time, while the server goes on.
    pub fn rest(&self, time: Duration) {
        *self.rest_until.lock() = self.cluster.env().now() + time;
    }

    async fn rested(&self) {
        let until = *self.rest_until.lock();
        if let Some(left) = until.checked_sub(self.cluster.env().now()) {
            self.cluster.env().sleep(left).await;
        }
    }

    /// One client: `operations` operations with pauses.
    pub async fn client(self: Arc<Self>, operations: u64) {
        for _ in 0..operations {
            self.rested().await;
            let operation = self.below(30);
            let node = match operation {
                0..=12 => self.some_owner().await,
                _ => self.running_node().await,
            };
            match operation {
                0..8 => self.write_rows(&node).await,
                8..10 => self.increment(&node).await,
                10..12 => self.add(&node).await,
                12 => self.claim(&node).await,
                13..18 => self.read_row(&node).await,
                18..20 => self.scan(&node).await,
                20..23 => self.change_versions(&node).await,
                25..27 => self.contend(&node).await,
                27.. => self.repeat(&node).await,
                _ => self.read_versions(&node).await,
            }
            let pause = self.cluster.pace() * Duration::from_micros(self.below(3_000));
            self.cluster.env().sleep(pause).await;
        }
    }

    /// The node that a client takes for the owner of the data. In one case of four, and whenever the successor does not
    /// serve yet, this is a replaced one that still runs. Until the successor serves, writes that it acknowledges have
    /// taken effect like any others. After that no request to it ever takes effect. Its reads may be stale, so clients
    /// do not read from it.
    async fn some_owner(&self) -> Arc<Node> {
        if self.cluster.is_shared()
            && (self.cluster.node().is_none() || self.below(4) == 0)
            && let Some(replaced) = self.cluster.replaced_node()
        {
            return replaced;
        }
        self.running_node().await
    }

    /// Reads everything at the end, when no client writes. Rows that are not read are not checked.
    pub async fn check_everything(&self) {
        let node = self.running_node().await;
        for reversed in [false, true] {
            self.scan_as(&node, reversed).await;
        }
    }

    /// The same for a server that started on a healthy backend: it must accept a write and respond. Otherwise a server
    /// that hangs forever would pass, because none of its results is wrong.
    pub async fn check_everything_is_answered(&self) {
        let node = self.running_node().await;
        let before = self.acknowledged();
        for _ in 0..ANSWERS_MAX {
            self.write_rows(&node).await;
            if self.acknowledged() > before {
                break;
            }
            self.cluster.env().sleep(ANSWER_PAUSE).await;
        }
        if self.acknowledged() == before {
            self.violate("a server that started on a healthy backend accepts no write".to_owned());
        }
        for reversed in [false, true] {
            let mut is_read = false;
            for _ in 0..ANSWERS_MAX {
                is_read = self.scan_as(&node, reversed).await;
                if is_read {
                    break;
                }
                self.cluster.env().sleep(ANSWER_PAUSE).await;
            }
            if !is_read {
                self.violate(format!(
                    "a server that started on a healthy backend responds to no scan (reversed: {reversed})"
                ));
            }
        }
    }

    /// The durability of a request. It is less than a sync only where nothing but the process ever ends, so that it
    /// must survive as well.
    fn durability(&self) -> Option<Durability> {
        if !self.cluster.power_is_steady() {
            return None;
        }
        [
            None,
            Some(Durability::Flush),
            Some(Durability::Flush),
            Some(Durability::Sync),
        ][self.below(4) as usize]
    }

    fn below(&self, bound: u64) -> u64 {
        self.cluster.env().random_below(bound)
    }

    async fn running_node(&self) -> Arc<Node> {
        loop {
            match self.cluster.node() {
                Some(node) => return node,
                None => {
                    self.cluster
                        .env()
                        .sleep(self.cluster.pace() * Duration::from_millis(1))
                        .await
                }
            }
        }
    }

    fn violate(&self, what: String) {
        self.cluster.sim().note(&format!("VIOLATION {what}"));
        self.violations.lock().push(what);
    }

    fn tick(&self) -> Moment {
        self.histories.lock().tick()
    }

    fn row(&self, kind: char) -> Bytes {
        Bytes::from(format!("{kind}{}", self.below(ROWS)))
    }

    fn next_value(&self) -> u64 {
        let mut next = self.next_value.lock();
        *next += 1;
        *next - 1
    }

    async fn write_rows(&self, node: &Node) {
        let count = if self.below(3) == 0 { 1 + self.below(4) } else { 1 };
        let mut rows: Vec<(Bytes, usize, u64, bool)> = (0..count)
            .map(|_| {
                (
                    self.row('r'),
                    self.below(SLOTS as u64) as usize,
                    self.next_value(),
                    self.below(6) == 0,
                )
            })
            .collect();
        // Of two changes to one row in one request the later wins; one is enough here.
        rows.sort();
        rows.dedup_by(|a, b| a.0 == b.0);
        let never = node.is_outlived();
        let mut begun = Vec::new();
        for (row, slot, value, deletes) in &rows {
            let mut histories = self.histories.lock();
            let slots = (0..SLOTS).filter(|s| s == slot || *deletes);
            let mut begin = |s| histories.begin_write(row, s, (s == *slot).then_some(*value), never);
            let writes: Vec<(usize, usize)> = slots.map(|s| (s, begin(s))).collect();
            begun.push(writes);
        }
        let answers = self.request_rows(node, rows.iter().map(change).collect()).await;
        for (((row, slot, value, _), writes), answer) in rows.iter().zip(begun).zip(answers) {
            for (slot, write) in writes {
                self.histories.lock().end_write(row, slot, write, answer);
            }
            let what = format!("write {} slot {slot} = {value}", row.escape_ascii());
            self.note_write(&what, answer, never);
        }
    }

    /// Ends a write; `never` holds for a write to a replaced server. Such a write may have begun before the successor
    /// began to serve, and be acknowledged after it. That is correct: the log had it when the successor took over.
    fn note_write(&self, what: &str, outcome: Outcome, never: bool) {
        if outcome == Outcome::Acknowledged && never {
            self.violate(format!(
                "{what}: acknowledged by a server that was asked for it after its successor had begun to serve"
            ));
        }
        if outcome == Outcome::Acknowledged {
            *self.acknowledged.lock() += 1;
            if self.below(ACKNOWLEDGED_PER_END) == 0 {
                self.end_wanted.notify_one();
            }
        }
        self.cluster.sim().note(&format!("{what}: {outcome:?}"));
    }

    /// Sends a request to a server and checks its refusals.
    async fn ask<T: Send + 'static>(
        &self,
        node: &Node,
        request: impl Future<Output = ServiceResult<T>> + Send + 'static,
    ) -> Result<ServiceResult<T>, NoAnswer> {
        let answer = node.call(self.cluster.env(), request).await;
        if let Ok(Err(error)) = &answer {
            self.check_refusal(node, error);
        }
        answer
    }

    /// Only a server that another process tried to replace may be fenced, and the log of a running server must stay
    /// open.
    fn check_refusal(&self, node: &Node, error: &ServiceError) {
        if says_replaced(&error.message) && !node.is_contested() {
            self.violate(format!("a server that was not replaced reports a replacement: {error}"));
        }
        let goes_on = || self.cluster.node().is_some_and(|running| std::ptr::eq(&*running, node));
        if error.message.contains("the commit log is closed") && goes_on() {
            self.violate(format!("a server that goes on has closed its log: {error}"));
        }
    }

    /// Writes to rows in one request, and handles the result of each.
    async fn request_rows(&self, node: &Node, rows: Vec<RowMutation>) -> Vec<Outcome> {
        let count = rows.len();
        let request = MutateRows {
            id: None,
            table: table(),
            rows: rows.into(),
            durability: self.durability(),
        };
        let router = node.router.clone();
        let answer = self.ask(node, async move { router.mutate_rows(request).await }).await;
        match answer {
            Ok(Ok(results)) => {
                let errors = results.iter().filter_map(|result| result.as_ref().err());
                errors.for_each(|error| self.check_refusal(node, error));
                results.iter().map(outcome).collect()
            }
            Ok(Err(error)) => vec![outcome::<()>(&Err(error)); count],
            Err(_) => vec![Outcome::Unknown; count],
        }
    }

    async fn write_row(&self, node: &Node, row: RowMutation) -> Outcome {
        let outcomes = self.request_rows(node, vec![row]).await;
        outcomes.into_iter().next().unwrap_or(Outcome::Unknown)
    }

    async fn claim(&self, node: &Node) {
        let (row, value, never) = (self.row('k'), self.next_value(), node.is_outlived());
        let began = self.tick();
        let index = {
            let mut claims = self.claims.lock();
            let of_row = claims.entry(row.to_vec()).or_default();
            of_row.push(Claim {
                value,
                refused: never,
                won: false,
                latest: None,
            });
            of_row.len() - 1
        };
        let put = Mutation::Put {
            family: VALUES,
            qualifier: Bytes::from_static(b"owner"),
            timestamp: Timestamp(1),
            value: Bytes::copy_from_slice(&value.to_be_bytes()),
        };
        let request = RowOperation {
            id: None,
            table: table(),
            row: row.clone(),
            condition: Some(Condition::any_cell(None)),
            steps: Vec::new(),
            otherwise: vec![Step::Mutate(put)],
            durability: self.durability(),
            token: None,
        };
        let router = node.router.clone();
        let answer = self
            .ask(node, async move { router.row_operation(request).await })
            .await
            .map(|answer| answer.map(|done| done.matched));
        let outcome = answer.as_ref().map_or(Outcome::Unknown, outcome);
        let won = matches!(answer, Ok(Ok(false)));
        if won && let Some((since, by)) = self.taken_before(&row, began) {
            self.violate(format!(
                "{} was claimed for {value} from {began} on, but was by {by:?} since {since}",
                row.escape_ascii()
            ));
        }
        if matches!(answer, Ok(Ok(_))) {
            self.note_taken(&row, won.then_some(value));
        }
        let winners = {
            let mut claims = self.claims.lock();
            let of_row = claims.entry(row.to_vec()).or_default();
            of_row[index].won = won;
            // A conditional write that found a cell has written nothing.
            of_row[index].refused |= outcome == Outcome::Refused || matches!(answer, Ok(Ok(true)));
            of_row.iter().filter(|claim| claim.won).count()
        };
        // A conditional write that finds a claim writes nothing and does not verify ownership.
        let what = format!("claim {} for {value} won {won}", row.escape_ascii());
        self.note_write(&what, outcome, never && won);
        if winners > 1 {
            self.violate(format!(
                "{} was claimed by {:?}",
                row.escape_ascii(),
                self.claims.lock().get(&row[..])
            ));
        }
    }

    /// Records that a client has learned of a claim of the row.
    fn note_taken(&self, row: &[u8], by: Option<u64>) {
        let now = self.tick();
        let mut taken = self.taken.lock();
        let known = taken.entry(row.to_vec()).or_insert((now, by));
        known.1 = known.1.or(by);
    }

    /// The claim of the row as known before this moment, if any.
    fn taken_before(&self, row: &[u8], moment: Moment) -> Option<Taken> {
        self.taken.lock().get(row).copied().filter(|(since, _)| *since < moment)
    }

    /// A read that began at this moment has found no claim: claims that could no longer take effect then never do.
    fn note_unclaimed(&self, row: &[u8], began: Moment) {
        let mut claims = self.claims.lock();
        let of_row = claims.get_mut(row).into_iter().flatten();
        for claim in of_row.filter(|claim| claim.latest.is_some_and(|latest| latest < began)) {
            claim.refused = true;
        }
    }

    async fn read_row(&self, node: &Node) {
        let kind = ['r', 'r', 'n', 'k'][self.below(4) as usize];
        let row = self.row(kind);
        let request = ReadRows::new(table(), RowSet::new(vec![RowRange::single(&row)]));
        let began = self.tick();
        let Some(rows) = self.read(node, request).await else {
            return;
        };
        let ended = self.tick();
        let cells = rows.into_iter().next().map(|(_, cells)| cells).unwrap_or_default();
        self.check_row(&row, &cells, began, ended);
    }

    async fn scan(&self, node: &Node) {
        self.scan_as(node, self.below(2) == 0).await;
    }

    /// Whether it got a response.
    async fn scan_as(&self, node: &Node, reversed: bool) -> bool {
        let request = ReadRows {
            reversed,
            ..ReadRows::new(table(), RowSet::all())
        };
        let (began, open, contended) = (self.tick(), self.begin_reads(), self.begin_contended_reads());
        let Some(rows) = self.read(node, request).await else {
            self.end_reads(open, &View::All, None);
            contended
                .into_iter()
                .for_each(|read| self.end_contended_read(read, None));
            return false;
        };
        let ended = self.tick();
        let in_order = |a: &Bytes, b: &Bytes| if reversed { a > b } else { a < b };
        if !rows.windows(2).all(|pair| in_order(&pair[0].0, &pair[1].0)) {
            let keys: Vec<_> = rows.iter().map(|(row, _)| row).collect();
            self.violate(format!(
                "a scan (reversed: {reversed}) gave rows out of order: {keys:?}"
            ));
        }
        let mut found: BTreeMap<Bytes, Vec<Cell>> = rows.into_iter().collect();
        for kind in ['r', 'n', 'k'] {
            for i in 0..ROWS {
                let row = Bytes::from(format!("{kind}{i}"));
                let cells = found.remove(&row).unwrap_or_default();
                self.check_row(&row, &cells, began, ended);
            }
        }
        for read in contended {
            let cells = found.remove(&read.0).unwrap_or_default();
            self.end_contended_read(read, Some(&cells));
        }
        // Rows with too much under way are skipped.
        (0..contended::CONTENDED_ROWS).for_each(|number| drop(found.remove(&contended::contended_row(number))));
        self.end_reads(open, &View::All, Some(&mut found));
        if let Some((row, _)) = found.pop_first() {
            self.violate(format!("a scan gave row {row:?}, which was never written"));
        }
        true
    }

    /// `None` when the read failed, which is allowed.
    async fn read(&self, node: &Node, mut request: ReadRows) -> Option<Vec<(Bytes, Vec<Cell>)>> {
        let router = node.router.clone();
        let read = async move {
            let mut rows: Vec<(Bytes, Vec<Cell>)> = Vec::new();
            // As front ends do. For every second row the stream is read, too.
            let is_even = |row: &Bytes| row.last().is_some_and(|digit| digit % 2 == 0);
            if request.one_row().is_some_and(is_even) {
                if let Some(batch) = router.try_read_row(&request)? {
                    rows.extend(batch.shared_rows().map(|(row, cells)| (row, cells.to_vec())));
                    return Ok(rows);
                }
                request.waits = true;
            }
            let mut stream = router.read_rows(request).await?;
            while let Some(batch) = stream.next().await? {
                rows.extend(batch.shared_rows().map(|(row, cells)| (row, cells.to_vec())));
            }
            Ok::<_, ServiceError>(rows)
        };
        match self.ask(node, read).await {
            Ok(Ok(rows)) => Some(rows),
            Ok(Err(error)) => {
                self.cluster.sim().note(&format!("read failed: {error}"));
                match error.kind {
                    ErrorKind::Corruption => self.violate(format!("a read met corruption: {error}")),
                    // Otherwise filters could be wrong without any check.
                    ErrorKind::InvalidArgument => self.violate(format!("a read was taken for a mistake: {error}")),
                    _ => {}
                }
                None
            }
            Err(_) => None,
        }
    }

    fn check_row(&self, row: &Bytes, cells: &[Cell], began: Moment, ended: Moment) {
        let checked = match row.first() {
            Some(b'r') => self.check_slots(row, cells, began, ended),
            Some(b'n') => self.check_counters(row, cells, began, ended),
            _ => self.check_claim(row, cells, began),
        };
        let shown: Vec<String> = cells.iter().map(show).collect();
        self.cluster.sim().note(&format!(
            "read {} in {began}..{ended}: {}",
            row.escape_ascii(),
            shown.join(" ")
        ));
        if let Err(why) = checked {
            self.violate(format!(
                "{}: {why}; the row reads {}",
                row.escape_ascii(),
                shown.join(" ")
            ));
        }
    }

    fn check_slots(&self, row: &[u8], cells: &[Cell], began: Moment, ended: Moment) -> Result<(), String> {
        let mut slots: [BTreeMap<&[u8], u64>; SLOTS] = Default::default();
        for cell in cells {
            let slot = usize::try_from(cell.timestamp.0 - 1).unwrap_or(SLOTS);
            let slot = slots.get_mut(slot).ok_or_else(|| format!("strange cell {cell:?}"))?;
            let value =
                parse_value(&cell.value, &cell.qualifier).ok_or_else(|| format!("strange value in {cell:?}"))?;
            slot.insert(&cell.qualifier, value);
        }
        let mut histories = self.histories.lock();
        for (index, slot) in slots.iter().enumerate() {
            let first = slot.values().next().copied();
            if !slot.is_empty() && (slot.len() != COLUMNS.len() || slot.values().any(|v| Some(*v) != first)) {
                return Err(format!("slot {index} holds parts of several writes"));
            }
            histories
                .register(row, index)
                .check(&first, began, ended)
                .map_err(|why| format!("slot {index}: {why}"))?;
        }
        Ok(())
    }

    fn check_counters(&self, row: &[u8], cells: &[Cell], began: Moment, ended: Moment) -> Result<(), String> {
        for (family, suffix) in [(COUNTS, b"/c"), (SUMS, b"/s")] {
            // Read-modify-writes leave older versions behind; the first is the newest.
            let cell = cells.iter().find(|cell| cell.family == family);
            let sum = cell
                .map_or(Some(0), |cell| number(&cell.value))
                .ok_or("a counter without eight bytes")?;
            let name = [row, suffix].concat();
            self.histories.lock().counter(&name).check(sum, began, ended)?;
        }
        Ok(())
    }

    /// A claim may be won between a read and its check; but a claim from before the read stays.
    fn check_claim(&self, row: &[u8], cells: &[Cell], began: Moment) -> Result<(), String> {
        let before = self.taken_before(row, began);
        if let ([], Some((since, by))) = (cells, before) {
            return Err(format!(
                "a read from {began} on finds no claim; {by:?} had it since {since}"
            ));
        }
        if let [cell] = cells {
            let value = number(&cell.value).map(|n| n as u64);
            if let Some((_, Some(by))) = before
                && value != Some(by)
            {
                return Err(format!("claimed by {value:?}, after it was by {by}"));
            }
            self.note_taken(row, value);
        }
        if cells.is_empty() {
            self.note_unclaimed(row, began);
        }
        let claims = self.claims.lock().get(row).cloned().unwrap_or_default();
        let winner = claims.iter().find(|claim| claim.won);
        match (cells, winner) {
            ([], _) => Ok(()),
            ([cell], _) => {
                let value = number(&cell.value).map(|n| n as u64);
                let claim = claims.iter().find(|claim| Some(claim.value) == value && !claim.refused);
                match (claim, winner) {
                    (None, _) => Err(format!("claimed by {value:?}, which did not win: {claims:?}")),
                    (Some(claim), Some(winner)) if claim.value != winner.value => {
                        Err(format!("claimed by {claim:?}, while {winner:?} was told to have won"))
                    }
                    _ => Ok(()),
                }
            }
            _ => Err("a claim of several cells".to_owned()),
        }
    }
}

/// The outcome of a write, by its result. `Unavailable` and `Busy` promise that it has not taken effect, and so do
/// errors of the request itself. `Aborted` means that the outcome is unknown. Any other error is a failure.
pub(crate) fn outcome<T>(answer: &ServiceResult<T>) -> Outcome {
    match answer {
        Ok(_) => Outcome::Acknowledged,
        Err(error) => match error.kind {
            ErrorKind::Unavailable | ErrorKind::Busy | ErrorKind::NotFound | ErrorKind::InvalidArgument => {
                Outcome::Refused
            }
            ErrorKind::Aborted => Outcome::Unknown,
            _ => Outcome::Failed,
        },
    }
}

fn change((row, slot, value, deletes): &(Bytes, usize, u64, bool)) -> RowMutation {
    let mut mutations = Vec::new();
    if *deletes {
        mutations.push(Mutation::DeleteRow { up_to: Timestamp::MAX });
    }
    mutations.extend(COLUMNS.iter().map(|column| Mutation::Put {
        family: VALUES,
        qualifier: Bytes::from_static(column),
        timestamp: Timestamp(*slot as i64 + 1),
        value: format_value(*value, column),
    }));
    RowMutation {
        row: row.clone(),
        mutations,
    }
}

/// A number with its column, and filler for memtables: a value cannot be taken for another column's.
fn format_value(value: u64, column: &[u8]) -> Bytes {
    let mut bytes = value.to_be_bytes().to_vec();
    bytes.extend_from_slice(column);
    bytes.resize(64 + (value % 7) as usize * 40, value as u8);
    bytes.into()
}

fn parse_value(bytes: &[u8], column: &[u8]) -> Option<u64> {
    let value = u64::from_be_bytes(bytes.get(..8)?.try_into().ok()?);
    (format_value(value, column) == bytes).then_some(value)
}

fn number(bytes: &[u8]) -> Option<i64> {
    Some(i64::from_be_bytes(bytes.try_into().ok()?))
}

fn show(cell: &Cell) -> String {
    let value = cell.value.get(..8).and_then(number).unwrap_or(-1);
    format!(
        "{}:{}@{}={value}",
        cell.family,
        cell.qualifier.escape_ascii(),
        cell.timestamp
    )
}
