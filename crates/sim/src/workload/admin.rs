//! A client that creates and drops tables, families and rows concurrently with the others.
//!
//! It has its tables for itself and goes on only when it knows that a step has taken effect, so each of its reads has
//! one right result. Steps are repeated until they are acknowledged or turn out to have taken effect.

use super::Workload;
use crate::cluster::Node;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use stele_client::{
    FamilyChange, GroupChange, GroupUpdate, MutateRows, NewFamily, NewTable, ReadRows, ServiceError, ServiceResult,
    TableAdmin, TableService, TableUpdate,
};
use stele_master::Master;
use stele_types::{
    Durability, ErrorKind, FamilyId, Mutation, RowMutation, RowRange, RowSet, TableName, TabletId, Timestamp, ValueType,
};

/// Attempts at one step. With a pause of some milliseconds each, this is longer than any fault lasts.
const ATTEMPTS_MAX: u32 = 2_000;

impl Workload {
    /// Creates a table, uses it and drops it, `rounds` times.
    pub async fn administrate(self: Arc<Self>, rounds: u64) {
        for round in 0..rounds {
            self.move_under_load().await;
            self.set_under_load().await;
            let taken = self.snapshot_under_load(round).await;
            let name = TableName::new("sim", format!("t{round}"));
            if let Err(why) = self.life_of_a_table(&name).await {
                self.violate(format!("table {name}: {why}"));
            }
            let checked = match &taken {
                Ok(taken) => self.check_snapshot(taken).await,
                Err(why) => Err(why.clone()),
            };
            if let Err(why) = checked {
                self.violate(format!("snapshot {round} of the shared table: {why}"));
            }
        }
    }

    /// Moves a family of the shared table to another locality group, and perhaps back, if possible: a family whose move
    /// is not complete is not moved again.
    async fn move_under_load(&self) {
        let create = GroupChange::Create {
            name: "other".to_owned(),
            options: GroupUpdate::default(),
        };
        let moves = (0..self.below(3)).map(|_| GroupChange::MoveFamily {
            family: ["v", "c", "s", "all", "two"][self.below(5) as usize].to_owned(),
            group: ["other", "default"][self.below(2) as usize].to_owned(),
        });
        let changes: Vec<GroupChange> = std::iter::once(create).chain(moves).collect();
        for change in changes {
            let node = self.node_after_a_pause().await;
            let master = node.master.clone();
            let asked = change.clone();
            let change_it = async move { master.modify_groups(&super::table(), vec![asked]).await.map(drop) };
            let answer = self.ask(&node, change_it).await;
            self.cluster.sim().note(&format!("{change:?}: {answer:?}"));
            if let Ok(Err(error)) = answer
                && error.kind == ErrorKind::Corruption
            {
                self.violate(format!("{change:?}: {error}"));
            }
        }
    }

    /// Changes settings of the shared table, if possible. No change may affect reads or weaken the server's default
    /// durability.
    async fn set_under_load(&self) {
        let update = TableUpdate {
            durability: Some([None, Some(Durability::Sync)][self.below(2) as usize]),
            row_cache: Some(self.below(2) == 0),
            ..TableUpdate::default()
        };
        let node = self.node_after_a_pause().await;
        let master = node.master.clone();
        let asked = update.clone();
        let change_it = async move { master.update_table(&super::table(), asked).await.map(drop) };
        let answer = self.ask(&node, change_it).await;
        self.cluster.sim().note(&format!("{update:?}: {answer:?}"));
        if let Ok(Err(error)) = answer
            && error.kind == ErrorKind::Corruption
        {
            self.violate(format!("{update:?}: {error}"));
        }
    }

    async fn life_of_a_table(&self, name: &TableName) -> Result<(), String> {
        let new = NewTable {
            name: name.clone(),
            ..super::new_table()
        };
        let make = |master: Arc<Master>| {
            let new = new.clone();
            async move { master.create_table(new).await.map(drop) }
        };
        self.until_done("create", Some(ErrorKind::AlreadyExists), make).await?;
        for row in ["a", "z"] {
            self.put_until_done(name, row).await?;
        }
        self.expect(name, Some(&["a", "z"])).await?;
        match self.below(6) {
            0 => self.replace_family(name).await?,
            1 => self.drop_rows(name).await?,
            2 => self.move_family(name).await?,
            3 => self.replace_tablets(name).await?,
            4 => self.snapshot_table(name).await?,
            _ => {}
        }
        let drop_table = |master: Arc<Master>| {
            let name = name.clone();
            async move { master.delete_table(&name).await }
        };
        self.until_done("delete", Some(ErrorKind::NotFound), drop_table).await?;
        self.expect(name, None).await
    }

    /// A new family with the name of a dropped one is another family and empty.
    async fn replace_family(&self, name: &TableName) -> Result<(), String> {
        let drop_it = |master: Arc<Master>| {
            let name = name.clone();
            let change = FamilyChange::Drop { name: "v".to_owned() };
            async move { master.modify_families(&name, vec![change]).await.map(drop) }
        };
        self.until_done("drop family", Some(ErrorKind::NotFound), drop_it)
            .await?;
        self.expect(name, Some(&[])).await?;
        let make_it = |master: Arc<Master>| {
            let name = name.clone();
            let family = NewFamily {
                name: "v".to_owned(),
                gc_rule: None,
                value_type: ValueType::Bytes,
                deletes: Default::default(),
                front_end_data: Vec::new(),
            };
            async move {
                master
                    .modify_families(&name, vec![FamilyChange::Create(family)])
                    .await
                    .map(drop)
            }
        };
        self.until_done("make family", Some(ErrorKind::AlreadyExists), make_it)
            .await?;
        self.expect(name, Some(&[])).await
    }

    /// A family keeps its cells and accepts writes while it moves to another locality group.
    async fn move_family(&self, name: &TableName) -> Result<(), String> {
        let change = |name: &TableName, change: GroupChange| {
            let name = name.clone();
            move |master: Arc<Master>| {
                let (name, change) = (name.clone(), change.clone());
                async move { master.modify_groups(&name, vec![change]).await.map(drop) }
            }
        };
        let group = || "g".to_owned();
        let create = GroupChange::Create {
            name: group(),
            options: GroupUpdate::default(),
        };
        self.until_done("make group", Some(ErrorKind::AlreadyExists), change(name, create))
            .await?;
        let move_it = GroupChange::MoveFamily {
            family: "v".to_owned(),
            group: group(),
        };
        self.until_done("move family", None, change(name, move_it)).await?;
        self.expect(name, Some(&["a", "z"])).await?;
        self.put_until_done(name, "m").await?;
        self.expect(name, Some(&["a", "m", "z"])).await
    }

    /// Tablets are merged and divided, and keep their rows; then empty ones replace them.
    async fn replace_tablets(&self, name: &TableName) -> Result<(), String> {
        let merge = |master: Arc<Master>| {
            let name = name.clone();
            async move {
                match tablets_of(&master, &name).await?.as_slice() {
                    // Merged by a former attempt.
                    [_] => Ok(()),
                    tablets => master.merge(&name, tablets.to_vec()).await.map(drop),
                }
            }
        };
        self.until_done("merge", None, merge).await?;
        self.expect(name, Some(&["a", "z"])).await?;
        self.put_until_done(name, "m").await?;
        let split = |master: Arc<Master>| {
            let name = name.clone();
            async move {
                match tablets_of(&master, &name).await?.as_slice() {
                    [tablet] => {
                        let at = Some(Bytes::from_static(b"c"));
                        master.split(&name, *tablet, at).await.map(drop)
                    }
                    _ => Ok(()),
                }
            }
        };
        self.until_done("split", None, split).await?;
        self.expect(name, Some(&["a", "m", "z"])).await?;
        let keep_tablets = self.below(2) == 0;
        let truncate = |master: Arc<Master>| {
            let name = name.clone();
            async move { master.truncate(&name, keep_tablets).await }
        };
        self.until_done("truncate", None, truncate).await?;
        self.expect(name, Some(&[])).await?;
        self.put_until_done(name, "b").await?;
        self.expect(name, Some(&["b"])).await
    }

    async fn drop_rows(&self, name: &TableName) -> Result<(), String> {
        let range = RowRange::prefix(&Bytes::from_static(b"a"));
        let drop_them = |master: Arc<Master>| {
            let (name, range) = (name.clone(), range.clone());
            async move { master.drop_row_range(&name, range).await }
        };
        self.until_done("drop rows", None, drop_them).await?;
        self.expect(name, Some(&["z"])).await
    }

    /// Repeats a change until it is acknowledged, or refused because it has taken effect.
    pub(super) async fn until_done<F: Future<Output = ServiceResult<()>> + Send + 'static>(
        &self,
        what: &str,
        happened: Option<ErrorKind>,
        change: impl Fn(Arc<Master>) -> F,
    ) -> Result<(), String> {
        let mut last = String::new();
        for attempt in 0..ATTEMPTS_MAX {
            let node = self.node_after_a_pause().await;
            let answer = self.ask(&node, change(node.master.clone())).await;
            self.cluster.sim().note(&format!("{what}: {answer:?}"));
            match answer {
                Ok(Ok(())) => return Ok(()),
                // Not at the first attempt: then another client would have done it, and there is none.
                Ok(Err(error)) if Some(error.kind) == happened && attempt > 0 => return Ok(()),
                Ok(Err(error)) if error.kind == ErrorKind::Corruption => {
                    return Err(format!("{what}: {error}"));
                }
                Ok(Err(error)) => last = error.to_string(),
                Err(_) => {}
            }
        }
        Err(format!("{what}: still not done after {ATTEMPTS_MAX} attempts: {last}"))
    }

    pub(super) async fn put_until_done(&self, name: &TableName, row: &'static str) -> Result<(), String> {
        let put = Mutation::Put {
            family: FamilyId(1),
            qualifier: Bytes::new(),
            timestamp: Timestamp(1),
            value: Bytes::from_static(b"x"),
        };
        let rows = vec![RowMutation {
            row: Bytes::from_static(row.as_bytes()),
            mutations: vec![put],
        }];
        for _ in 0..ATTEMPTS_MAX {
            let node = self.node_after_a_pause().await;
            let request = MutateRows {
                id: None,
                table: name.clone(),
                rows: rows.clone().into(),
                durability: None,
            };
            let router = node.router.clone();
            let answer = self.ask(&node, async move { router.mutate_rows(request).await }).await;
            match answer {
                Ok(Ok(results)) if results.iter().all(Result::is_ok) => return Ok(()),
                Ok(Err(error)) if error.kind == ErrorKind::NotFound => {
                    return Err(format!("put: {error}"));
                }
                _ => {}
            }
        }
        Err("put: still not done".to_owned())
    }

    /// Reads the table until the server responds. `None` expects that there is no such table.
    pub(super) async fn expect(&self, name: &TableName, expected: Option<&[&str]>) -> Result<(), String> {
        for _ in 0..ATTEMPTS_MAX {
            let node = self.node_after_a_pause().await;
            match (read_keys(self, &node, name).await, expected) {
                (Some(Ok(rows)), Some(expected)) if rows == expected => return Ok(()),
                (Some(Ok(rows)), _) => {
                    return Err(format!("holds rows {rows:?}, expected {expected:?}"));
                }
                (Some(Err(error)), None) if error.kind == ErrorKind::NotFound => return Ok(()),
                (Some(Err(error)), Some(_)) if error.kind == ErrorKind::NotFound => {
                    return Err(error.to_string());
                }
                (Some(Err(error)), _) if error.kind == ErrorKind::Corruption => {
                    return Err(error.to_string());
                }
                _ => {}
            }
        }
        Err("does not respond to reads".to_owned())
    }

    pub(super) async fn node_after_a_pause(&self) -> Arc<Node> {
        let pause = self.cluster.pace() * Duration::from_micros(500 + self.below(8_000));
        self.cluster.env().sleep(pause).await;
        self.rested().await;
        self.running_node().await
    }
}

pub(super) async fn tablets_of(master: &Master, name: &TableName) -> ServiceResult<Vec<TabletId>> {
    let states = master.compactions(name).await?;
    Ok(states.into_iter().map(|(tablet, _)| tablet).collect())
}

async fn read_keys(workload: &Workload, node: &Node, name: &TableName) -> Option<ServiceResult<Vec<String>>> {
    let router = node.router.clone();
    let request = ReadRows::new(name.clone(), RowSet::all());
    let read = async move {
        let mut stream = router.read_rows(request).await?;
        let mut keys = Vec::new();
        while let Some(batch) = stream.next().await? {
            keys.extend(batch.rows().map(|(row, _)| row.escape_ascii().to_string()));
        }
        Ok::<_, ServiceError>(keys)
    };
    workload.ask(node, read).await.ok()
}
