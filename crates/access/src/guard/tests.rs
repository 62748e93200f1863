//! Every method of the service interface, as callers with different rights.

mod fake;
mod given_up;
mod hidden;
mod tokens_of_reads;

use super::*;
use crate::Rules;
use crate::access::{AccessOptions, Shown};
use crate::audit::Audit;
use crate::testing::MemoryRules;
use bytes::Bytes;
use fake::{Fake, REACHED};
use std::collections::BTreeMap;
use std::collections::HashSet;
use std::pin::Pin;
use stele_client::{
    AccessAdmin, BackupDestination, BackupOrder, BackupTask, BulkLoad, Condition, LoadTarget, MutateRows, NewSnapshot,
    NewTable, ReadRows, RmwOperation, RmwRule, RowOperation, RowsOperation, SnapshotCopy, SnapshotName, Step,
};
use stele_env::Env;
use stele_env::metrics::Metrics;
use stele_env::tokio_env::TokioRuntime;
use stele_filter::Filter;
use stele_storage::Storage;
use stele_storage::memory::MemoryStorage;
use stele_types::{
    AccessRule, FamilyId, Member, Mutation, RowMutation, RowRange, RowSet, ServerId, SwitchesChange, TabletId,
    Timestamp,
};

fn table() -> TableName {
    TableName::new("n", "t")
}

struct Setting {
    access: Arc<Access>,
    rules: Arc<MemoryRules>,
    fake: Arc<Fake>,
    log: Arc<dyn Storage>,
    audit: Audit,
}

impl Setting {
    async fn new() -> Self {
        Self::with(false, TokioRuntime::current()).await
    }

    async fn with(audits_rows: bool, env: Env) -> Self {
        let rules = Arc::new(MemoryRules::default());
        let log: Arc<dyn Storage> = MemoryStorage::new();
        let audit = Audit::start(Arc::clone(&log), env.clone(), &Metrics::new())
            .await
            .unwrap();
        let options = AccessOptions {
            superusers: HashSet::from(["root".to_owned()]),
            audits_rows,
            ..AccessOptions::default()
        };
        let access = Access::new(rules.clone(), options, Some(audit.clone()), env);
        Setting {
            access,
            rules,
            fake: Arc::default(),
            log,
            audit,
        }
    }

    fn guard(&self, name: &str) -> Arc<Guard> {
        let shown = Shown {
            certificate: Some(name),
            ..Shown::default()
        };
        let caller = self.access.identify(shown).unwrap();
        Guard::new(Arc::clone(&self.access), caller, self.fake.clone(), self.fake.clone())
    }

    async fn give(&self, name: &str, resource: Resource, rights: Rights) {
        let rule = AccessRule::whole(Member::User(name.into()), rights);
        self.add(resource, rule).await;
    }

    async fn add(&self, resource: Resource, rule: AccessRule) {
        let before = self
            .rules
            .rules()
            .get(&resource)
            .map_or_else(Vec::new, |found| found.rules.to_vec());
        let all = before.into_iter().chain([rule]).collect();
        self.rules.set_rules(&resource, all, None).await.unwrap();
    }

    async fn log(&self) -> String {
        self.audit.flush().await;
        let mut text = String::new();
        for file in self.log.list("log/").await.unwrap() {
            let bytes = self.log.read_all(&file.path).await.unwrap();
            text.push_str(std::str::from_utf8(&bytes).unwrap());
        }
        text
    }
}

/// The outcome of a call: whether it reached the service.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Met {
    Denied,
    Reached,
    /// The rules are not known.
    Unknown,
}

fn met<T>(outcome: ServiceResult<T>) -> Met {
    match outcome {
        Err(error) if error.kind == ErrorKind::PermissionDenied => Met::Denied,
        Err(error) if error.kind == ErrorKind::Unavailable => Met::Unknown,
        Err(error) => {
            let defaults = [
                "this server is not one of a cluster",
                "no table n/t was deleted that is still kept",
                "this server makes no backups at destinations",
            ];
            assert!(
                defaults.contains(&&*error.message) || error.message == REACHED,
                "{error}"
            );
            Met::Reached
        }
        Ok(_) => Met::Reached,
    }
}

type Call = for<'g> fn(&'g Guard) -> Pin<Box<dyn Future<Output = Met> + 'g>>;

macro_rules! call {
    ($name:literal, $needs:expr, |$guard:ident| $call:expr) => {
        ($name, $needs, {
            fn call(guard: &Guard) -> Pin<Box<dyn Future<Output = Met> + '_>> {
                Box::pin(async move {
                    let $guard = guard;
                    met($call)
                })
            }
            call as Call
        })
    };
}

/// The right that each method needs on the table, the namespace or the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    OnTable(Rights),
    OnNamespace(Rights),
    OnCluster(Rights),
    /// Lists are empty without rights.
    Nothing,
}

fn all_rows() -> ReadRows {
    ReadRows::new(table(), RowSet::all())
}

fn put(row: &'static str, family: u32) -> RowMutation {
    RowMutation {
        row: Bytes::from_static(row.as_bytes()),
        mutations: vec![Mutation::Put {
            family: FamilyId(family),
            qualifier: Bytes::new(),
            timestamp: Timestamp(1),
            value: Bytes::new(),
        }],
    }
}

fn write(rows: Vec<RowMutation>) -> MutateRows {
    MutateRows {
        table: table(),
        id: None,
        rows: rows.into(),
        durability: None,
    }
}

fn operation(steps: Vec<Step>, condition: Option<Condition>) -> RowOperation {
    RowOperation {
        table: table(),
        id: None,
        row: Bytes::from_static(b"r"),
        condition,
        steps,
        otherwise: Vec::new(),
        durability: None,
        token: None,
    }
}

fn increment(family: u32) -> Step {
    Step::Modify(RmwRule::new(FamilyId(family), Bytes::new(), RmwOperation::Increment(1)))
}

fn name() -> SnapshotName {
    SnapshotName::new("n", "s")
}

fn new_table() -> NewTable {
    NewTable::new(table())
}

fn backup_order() -> BackupOrder {
    BackupOrder {
        destination: BackupDestination {
            address: "/backups".to_owned(),
            options: Vec::new(),
        },
        backup: "b".to_owned(),
        task: BackupTask::Verify,
        bytes_per_second: None,
        parallel: 0,
        digests: false,
        at: None,
        archive: None,
    }
}

fn new_snapshot() -> NewSnapshot {
    NewSnapshot {
        name: name(),
        table: table(),
        flush: false,
        only_of_name: false,
        expires_micros: None,
        front_end_data: Vec::new(),
    }
}

fn copy() -> SnapshotCopy {
    SnapshotCopy {
        source: name(),
        name: SnapshotName::new("n", "copy"),
        expires_micros: None,
        front_end_data: Vec::new(),
    }
}

/// All methods of both traits. [`every_method_is_in_the_list`] compares them with the source text.
fn calls() -> Vec<(&'static str, Needs, Call)> {
    row_calls().into_iter().chain(admin_calls()).collect()
}

fn row_calls() -> Vec<(&'static str, Needs, Call)> {
    use Needs::{Nothing, OnCluster, OnTable};
    use Rights as R;
    let both = R::READ.and(R::WRITE);
    vec![
        call!("version", Nothing, |guard| Ok(guard.version())),
        call!("schema", OnTable(R::VIEW), |guard| guard.schema(&table())),
        call!("read_rows", OnTable(R::READ), |guard| guard.read_rows(all_rows()).await),
        call!("try_read_row", OnTable(R::READ), |guard| guard
            .try_read_row(&all_rows())),
        call!("mutate_rows", OnTable(R::WRITE), |guard| guard
            .mutate_rows(write(vec![put("r", 1)]))
            .await),
        call!("mutate_rows_together", OnTable(R::WRITE), |guard| {
            guard.mutate_rows_together(write(vec![put("r", 1)])).await
        }),
        call!("check_load", OnTable(R::WRITE), |guard| guard.check_load(&LoadTarget {
            table: table(),
            range: RowRange::all(),
            families: Vec::new(),
        })),
        call!("bulk_load", OnTable(R::WRITE), |guard| guard
            .bulk_load(BulkLoad {
                table: table(),
                id: None,
                tablet: (TabletId(1), RowRange::all()),
                sources: Vec::new(),
            })
            .await),
        call!("row_operation", OnTable(both), |guard| guard
            .row_operation(operation(vec![increment(1)], None))
            .await),
        call!("rows_operation", OnTable(both), |guard| guard
            .rows_operation(RowsOperation {
                table: table(),
                id: None,
                conditions: Vec::new(),
                rows: vec![(Bytes::from_static(b"r"), vec![increment(1)])],
                durability: None,
            })
            .await),
        call!("other_servers", Nothing, |guard| Ok(guard.other_servers())),
        call!("cluster_status", OnCluster(R::VIEW), |guard| guard
            .cluster_status()
            .await),
        call!("move_tablet", OnCluster(R::ADMIN), |guard| guard
            .move_tablet(TabletId(1), ServerId(1))
            .await),
        call!("drain_server", OnCluster(R::ADMIN), |guard| guard
            .drain_server(ServerId(1), true)
            .await),
        call!("switches", Nothing, |guard| guard.switches().await),
        call!("set_switches", OnCluster(R::ADMIN), |guard| guard
            .set_switches(SwitchesChange::default())
            .await),
        call!("sample_row_keys", OnTable(R::READ), |guard| {
            guard.sample_row_keys(&table(), RowRange::all()).await
        }),
        call!("place_of", OnTable(R::VIEW), |guard| guard.place_of(&table(), b"r")),
        call!("places", OnTable(R::VIEW), |guard| guard.places(&table())),
        call!("tablets", OnTable(R::VIEW), |guard| guard.tablets(&table()).await),
    ]
}

fn admin_calls() -> Vec<(&'static str, Needs, Call)> {
    use Needs::{Nothing, OnCluster, OnNamespace, OnTable};
    use Rights as R;
    vec![
        call!("create_table", OnNamespace(R::ADMIN), |guard| {
            guard.create_table(new_table()).await
        }),
        call!("delete_table", OnTable(R::ADMIN), |guard| guard
            .delete_table(&table())
            .await),
        call!("update_table", OnTable(R::ADMIN), |guard| guard
            .update_table(&table(), Default::default())
            .await),
        call!("modify_families", OnTable(R::ADMIN), |guard| guard
            .modify_families(&table(), vec![])
            .await),
        call!("groups", OnTable(R::VIEW), |guard| guard.groups(&table()).await),
        call!("modify_groups", OnTable(R::ADMIN), |guard| guard
            .modify_groups(&table(), vec![])
            .await),
        call!("drop_row_range", OnTable(R::WRITE), |guard| {
            guard.drop_row_range(&table(), RowRange::all()).await
        }),
        call!("flush", OnTable(R::ADMIN), |guard| guard.flush(&table(), None).await),
        call!("compact", OnTable(R::ADMIN), |guard| guard
            .compact(&table(), None, true)
            .await),
        call!("compactions", OnTable(R::VIEW), |guard| guard
            .compactions(&table())
            .await),
        call!("split", OnTable(R::ADMIN), |guard| guard
            .split(&table(), TabletId(1), None)
            .await),
        call!("merge", OnTable(R::ADMIN), |guard| guard.merge(&table(), vec![]).await),
        call!("truncate", OnTable(R::ADMIN), |guard| guard
            .truncate(&table(), false)
            .await),
        call!("create_snapshot", OnNamespace(R::ADMIN), |guard| guard
            .create_snapshot(new_snapshot())
            .await),
        call!("copy_snapshot", OnNamespace(R::ADMIN), |guard| guard
            .copy_snapshot(copy())
            .await),
        call!("list_snapshots", Nothing, |guard| guard.list_snapshots(None).await),
        call!("snapshot", OnNamespace(R::VIEW), |guard| guard.snapshot(&name()).await),
        call!("update_snapshot", OnNamespace(R::ADMIN), |guard| {
            guard.update_snapshot(&name(), Default::default()).await
        }),
        call!("delete_snapshot", OnNamespace(R::ADMIN), |guard| guard
            .delete_snapshot(&name())
            .await),
        call!("clone_snapshot", OnNamespace(R::ADMIN), |guard| {
            guard.clone_snapshot(&name(), &table(), None).await
        }),
        call!("restore_snapshot", OnNamespace(R::ADMIN), |guard| guard
            .restore_snapshot(&name(), &table())
            .await),
        call!("kept_tables", Nothing, |guard| guard.kept_tables(None).await),
        call!("undelete_table", OnNamespace(R::ADMIN), |guard| guard
            .undelete_table(&table())
            .await),
        call!("begin_backup_work", OnCluster(R::ADMIN), |guard| guard
            .begin_backup_work(backup_order())
            .await),
        call!("backup_work", OnCluster(R::ADMIN), |guard| guard.backup_work(1).await),
        call!("backup_works", OnCluster(R::ADMIN), |guard| guard.backup_works().await),
        call!("cancel_backup_work", OnCluster(R::ADMIN), |guard| guard
            .cancel_backup_work(1)
            .await),
        call!("list_backups", OnCluster(R::ADMIN), |guard| guard
            .list_backups(backup_order().destination)
            .await),
        call!("restorable_times", OnCluster(R::ADMIN), |guard| guard
            .restorable_times(backup_order().destination, None)
            .await),
        call!("list_tables", Nothing, |guard| guard.list_tables("n").await),
        call!("create_namespace", OnCluster(R::ADMIN), |guard| guard
            .create_namespace("n", vec![])
            .await),
        call!("update_namespace", OnNamespace(R::ADMIN), |guard| guard
            .update_namespace("n", Bytes::new(), vec![])
            .await),
        call!("delete_namespace", OnNamespace(R::ADMIN), |guard| guard
            .delete_namespace("n", false)
            .await),
        call!("namespace", OnNamespace(R::VIEW), |guard| guard.namespace("n").await),
        call!("list_namespaces", Nothing, |guard| guard.list_namespaces().await),
    ]
}

#[test]
fn every_method_is_in_the_list() {
    let traits = include_str!("../../../client/src/service.rs");
    let traits = traits.split("pub trait ").filter(|text| text.starts_with("Table"));
    let declared = traits.flat_map(|text| text.split("fn ").skip(1));
    let declared: HashSet<&str> = declared.filter_map(|text| text.split(['(', '<']).next()).collect();
    // Streams and reservations share the file with the trait before them.
    let others = HashSet::from([
        "no_cluster",
        "next",
        "next_within",
        "bytes",
        "takes_partial_rows",
        "renew",
    ]);
    let listed: HashSet<&str> = calls().iter().map(|(name, ..)| *name).collect();
    let declared: HashSet<&str> = declared.difference(&others).copied().collect();
    assert_eq!(listed, declared);
    // Each is in the guard, too: a default of the trait would go around it.
    let guard = [include_str!("rows.rs"), include_str!("admin.rs")].concat();
    for name in declared {
        assert!(
            guard.contains(&format!("fn {name}(&self")) || guard.contains(&format!("fn {name}(\n")),
            "{name}"
        );
    }
}

#[tokio::test]
async fn each_right_allows_what_it_names() {
    let sets = [
        Rights::NONE,
        Rights::VIEW,
        Rights::READ,
        Rights::WRITE,
        Rights::ADMIN,
        Rights::READ.and(Rights::WRITE),
        Rights::ALL,
    ];
    for rights in sets {
        for place in [
            Resource::Table(table()),
            Resource::Namespace("n".into()),
            Resource::Cluster,
        ] {
            let setting = Setting::new().await;
            if !rights.is_none() {
                setting.give("alice", place.clone(), rights).await;
            }
            let guard = setting.guard("alice");
            for (name, needs, call) in calls() {
                let is_allowed = match needs {
                    Needs::OnTable(right) => rights.has(right),
                    Needs::OnNamespace(right) => {
                        // A caller that sees a table sees its namespace.
                        let sees = name == "namespace" && !rights.is_none();
                        sees || (!matches!(place, Resource::Table(_)) && rights.has(right))
                    }
                    Needs::OnCluster(right) => place == Resource::Cluster && rights.has(right),
                    Needs::Nothing => true,
                };
                let expected = if is_allowed { Met::Reached } else { Met::Denied };
                assert_eq!(call(&guard).await, expected, "{name} with {rights} on {place}");
            }
        }
    }
}

#[tokio::test]
async fn others_and_superusers() {
    let setting = Setting::new().await;
    setting.give("alice", Resource::Cluster, Rights::ALL).await;
    for (name, needs, call) in calls() {
        let denied = needs != Needs::Nothing;
        let expected = if denied { Met::Denied } else { Met::Reached };
        assert_eq!(call(&setting.guard("bob")).await, expected, "{name}");
        assert_eq!(call(&setting.guard("root")).await, Met::Reached, "{name}");
    }
    let other = TableName::new("m", "t");
    setting.give("carol", Resource::Table(table()), Rights::ALL).await;
    assert_eq!(met(setting.guard("carol").schema(&other)), Met::Denied);
}

#[tokio::test]
async fn nobody_has_a_right_while_the_rules_are_not_known() {
    let setting = Setting::new().await;
    setting.give("alice", Resource::Cluster, Rights::ALL).await;
    setting.fake.serve_streams();
    let guard = setting.guard("alice");
    let mut stream = guard.read_rows(all_rows()).await.unwrap();
    assert!(stream.next().await.unwrap().is_some());
    setting.rules.set_known(false);
    assert_eq!(met(stream.next().await), Met::Unknown);
    for (name, _, call) in calls() {
        let expected = match name {
            "version" | "other_servers" => Met::Reached,
            _ => Met::Unknown,
        };
        assert_eq!(call(&guard).await, expected, "{name}");
        assert_eq!(call(&setting.guard("root")).await, Met::Reached, "{name}");
    }
    let rules = Rules::open(setting.rules.clone()).of(guard.clone());
    assert_eq!(met(rules.list()), Met::Unknown);
    assert_eq!(met(rules.rights(&Resource::Cluster)), Met::Unknown);
    let log = setting.log().await;
    assert!(!log.contains("denied"), "not knowing is no denial: {log}");
    setting.rules.set_known(true);
    assert_eq!(met(guard.schema(&table())), Met::Reached);
}

/// Alice may read family `f` of all rows, and write family `g` of rows with the prefix `a`.
async fn narrowed() -> Setting {
    let setting = Setting::new().await;
    let rule = |rights, family: &str, prefix: &'static str| AccessRule {
        families: vec![family.to_owned()],
        row_prefix: Bytes::from_static(prefix.as_bytes()),
        ..AccessRule::whole(Member::User("alice".into()), rights)
    };
    setting.add(Resource::Table(table()), rule(Rights::READ, "f", "")).await;
    setting
        .add(Resource::Table(table()), rule(Rights::WRITE, "g", "a"))
        .await;
    setting
}

#[tokio::test]
async fn narrowed_reads_see_their_families_only() {
    let setting = narrowed().await;
    let guard = setting.guard("alice");
    let of_f = Filter::FamilyRegex(Bytes::from_static(b"f"));
    assert_eq!(met(guard.read_rows(all_rows()).await), Met::Reached);
    assert_eq!(setting.fake.last_filter(), Some(of_f.clone()));
    let mut request = all_rows();
    request.filter = Some(Arc::new(Filter::Sink));
    assert_eq!(met(guard.try_read_row(&request)), Met::Reached);
    assert_eq!(
        setting.fake.last_filter(),
        Some(Filter::Chain(vec![of_f.clone(), Filter::Sink]))
    );
    // A condition is narrowed, too: it would tell the content of other families.
    let steps = vec![Step::Mutate(put("r", 2).mutations.remove(0))];
    let mut conditional = operation(steps, Some(Condition::any_cell(None)));
    conditional.row = Bytes::from_static(b"a1");
    assert_eq!(met(guard.row_operation(conditional.clone()).await), Met::Reached);
    assert_eq!(setting.fake.last_filter(), Some(of_f));
    conditional.row = Bytes::from_static(b"b1");
    assert_eq!(met(guard.row_operation(conditional).await), Met::Denied);
}

#[tokio::test]
async fn narrowed_writes_stay_in_their_rows_and_families() {
    let setting = narrowed().await;
    let guard = setting.guard("alice");
    let whole_row = |row: &'static str| RowMutation {
        row: Bytes::from_static(row.as_bytes()),
        mutations: vec![Mutation::DeleteRow { up_to: Timestamp::MAX }],
    };
    let cases = [
        (vec![put("a1", 2)], Met::Reached),
        (vec![put("a", 2), put("a2", 2)], Met::Reached),
        (vec![put("b", 2)], Met::Denied),
        (vec![put("a1", 1)], Met::Denied),
        (vec![put("a1", 2), put("b", 2)], Met::Denied),
        (vec![put("a1", 9)], Met::Denied),
        (vec![whole_row("a1")], Met::Denied),
    ];
    for (rows, expected) in cases {
        assert_eq!(met(guard.mutate_rows(write(rows.clone())).await), expected, "{rows:?}");
        assert_eq!(
            met(guard.mutate_rows_together(write(rows.clone())).await),
            expected,
            "{rows:?}"
        );
    }
    // An increment tells the value, which she may not read.
    let mut request = operation(vec![increment(2)], None);
    request.row = Bytes::from_static(b"a1");
    assert_eq!(met(guard.row_operation(request).await), Met::Denied);
    assert_eq!(
        met(guard
            .drop_row_range(&table(), RowRange::prefix(&Bytes::from_static(b"a")))
            .await),
        Met::Denied
    );
    assert_eq!(met(guard.delete_table(&table()).await), Met::Denied);
    // Ids of families are those of the table that was checked.
    assert!(setting.fake.last_write_was_bound());
}

#[tokio::test]
async fn reads_of_other_rows_are_denied() {
    let setting = Setting::new().await;
    let rule = AccessRule {
        row_prefix: Bytes::from_static(b"a"),
        ..AccessRule::whole(Member::User("alice".into()), Rights::READ)
    };
    setting.add(Resource::Table(table()), rule).await;
    let guard = setting.guard("alice");
    let read = |rows: RowSet| ReadRows::new(table(), rows);
    let of = |prefix: &'static str| RowRange::prefix(&Bytes::from_static(prefix.as_bytes()));
    let cases = [
        (RowSet::new(vec![of("a")]), Met::Reached),
        (
            RowSet::new(vec![of("ab"), RowRange::single(&Bytes::from_static(b"ac"))]),
            Met::Reached,
        ),
        (RowSet::all(), Met::Denied),
        (RowSet::new(vec![of("ab"), of("b")]), Met::Denied),
    ];
    for (rows, expected) in cases {
        assert_eq!(met(guard.read_rows(read(rows.clone())).await), expected, "{rows:?}");
        assert_eq!(met(guard.try_read_row(&read(rows.clone()))), expected, "{rows:?}");
    }
    assert_eq!(met(guard.sample_row_keys(&table(), RowRange::all()).await), Met::Denied);
    assert_eq!(met(guard.sample_row_keys(&table(), of("ab")).await), Met::Reached);
}

#[tokio::test]
async fn a_read_ends_when_its_right_is_withdrawn() {
    let setting = Setting::new().await;
    setting.give("alice", Resource::Table(table()), Rights::READ).await;
    setting.fake.serve_streams();
    let mut stream = setting.guard("alice").read_rows(all_rows()).await.unwrap();
    assert!(stream.next().await.unwrap().is_some());
    setting.give("bob", Resource::Cluster, Rights::READ).await;
    assert!(
        stream.next().await.unwrap().is_some(),
        "a change of other rules is none"
    );
    setting
        .rules
        .set_rules(&Resource::Table(table()), Vec::new(), None)
        .await
        .unwrap();
    assert_eq!(met(stream.next().await), Met::Denied);
}

#[tokio::test]
async fn lists_have_what_is_seen() {
    let setting = Setting::new().await;
    setting.give("alice", Resource::Table(table()), Rights::READ).await;
    let guard = setting.guard("alice");
    let tables = |guard: Arc<Guard>| async move {
        let all = guard.list_tables("n").await.unwrap();
        all.iter().map(|schema| schema.name.table.clone()).collect::<Vec<_>>()
    };
    assert_eq!(tables(guard.clone()).await, ["t"]);
    assert_eq!(tables(setting.guard("root")).await, ["t", "u"]);
    let spaces = guard.list_namespaces().await.unwrap();
    assert_eq!(spaces.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["n"]);
    assert!(setting.guard("bob").list_namespaces().await.unwrap().is_empty());
}

#[tokio::test]
async fn rules_are_read_and_changed_by_administrators() {
    let setting = Setting::new().await;
    setting
        .give("alice", Resource::Namespace("n".into()), Rights::ADMIN)
        .await;
    setting
        .give("bob", Resource::Cluster, Rights::READ.and(Rights::WRITE))
        .await;
    let open = Rules::open(setting.rules.clone());
    let alice = open.of(setting.guard("alice"));
    let bob = open.of(setting.guard("bob"));
    let resource = Resource::Table(table());
    let rule = AccessRule::whole(Member::User("bob".into()), Rights::ADMIN);
    assert_eq!(met(bob.set(&resource, vec![rule.clone()], None).await), Met::Denied);
    assert_eq!(met(bob.get(&resource)), Met::Denied);
    alice.set(&resource, vec![rule.clone()], Some(0)).await.unwrap();
    assert_eq!(
        &*bob.get(&resource).unwrap().unwrap().rules,
        std::slice::from_ref(&rule)
    );
    assert_eq!(met(alice.set(&Resource::Cluster, vec![rule], None).await), Met::Denied);
    assert_eq!(alice.list().unwrap().len(), 2);
    assert_eq!(bob.list().unwrap().len(), 1);
    let log = setting.log().await;
    let lines: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let found: BTreeMap<(&str, &str), usize> = lines.iter().fold(BTreeMap::new(), |mut all, line| {
        let key = (line["who"].as_str().unwrap(), line["outcome"].as_str().unwrap());
        *all.entry(key).or_default() += 1;
        all
    });
    let expected = BTreeMap::from([(("alice", "denied"), 1), (("alice", "done"), 1), (("bob", "denied"), 2)]);
    assert_eq!(found, expected, "{log}");
}

#[tokio::test]
async fn the_audit_log_has_changes_and_denials_and_no_rows() {
    let setting = Setting::new().await;
    setting
        .give("alice", Resource::Table(table()), Rights::READ.and(Rights::WRITE))
        .await;
    let guard = setting.guard("alice");
    let secret = "the-secret-row";
    let mut rows = vec![put("the-secret-row", 1)];
    rows[0].row = Bytes::from_static(secret.as_bytes());
    let _ = guard.mutate_rows(write(rows.clone())).await;
    let _ = guard.delete_table(&table()).await;
    let _ = setting.guard("bob").mutate_rows(write(rows)).await;
    let _ = setting.guard("root").delete_table(&table()).await;
    let log = setting.log().await;
    assert!(!log.contains(secret), "{log}");
    let outcomes: Vec<String> = log
        .lines()
        .map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let field = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
            format!(
                "{} {} {} {}",
                field("who"),
                field("operation"),
                field("on"),
                field("outcome")
            )
        })
        .collect();
    let expected = [
        "alice delete_table table n/t denied",
        "bob mutate_rows table n/t denied",
        "root delete_table table n/t failed",
    ];
    assert_eq!(outcomes, expected);
}
