//! The calls of [`TableAdmin`] as messages.

use crate::codec;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use stele_client::{
    AccessAdmin, FamilyChange, GroupChange, NewSnapshot, NewTable, ServiceResult, SnapshotCopy, SnapshotName,
    SnapshotUpdate, TableAdmin, TableUpdate,
};
use stele_master::Master;
use stele_types::{AccessRule, Resource, RowRange, SwitchesChange, TableName, TabletId};

/// One call; the answer is the result of the method.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the methods of `TableAdmin` and their parameters")]
pub enum AdminCall {
    CreateTable(Box<NewTable>),
    DeleteTable(TableName),
    UpdateTable(TableName, Box<TableUpdate>),
    ModifyFamilies(TableName, Vec<FamilyChange>),
    Groups(TableName),
    ModifyGroups(TableName, Vec<GroupChange>),
    DropRowRange(TableName, RowRange),
    Flush(TableName, Option<TabletId>),
    Compact(TableName, Option<TabletId>, bool),
    Compactions(TableName),
    Split(TableName, TabletId, Option<Bytes>),
    Merge(TableName, Vec<TabletId>),
    SetSwitches(SwitchesChange),
    Truncate(TableName, bool),
    CreateSnapshot(NewSnapshot),
    CopySnapshot(SnapshotCopy),
    Snapshot(SnapshotName),
    UpdateSnapshot(SnapshotName, SnapshotUpdate),
    DeleteSnapshot(SnapshotName),
    CloneSnapshot(SnapshotName, TableName, Option<Vec<u8>>),
    RestoreSnapshot(SnapshotName, TableName),
    UndeleteTable(TableName),
    ListTables(String),
    CreateNamespace(String, Vec<u8>),
    UpdateNamespace(String, Bytes, Vec<u8>),
    DeleteNamespace(String),
    /// The deletion of a namespace that has no table. A leader that does not know the call must not delete tables.
    DeleteEmptyNamespace(String),
    Namespace(String),
    ListNamespaces,
    SetRules {
        resource: Resource,
        rules: Vec<AccessRule>,
        former: Option<u64>,
    },
}

/// Carries a call out, and encodes its answer.
pub(crate) async fn answer(admin: &Master, call: AdminCall) -> ServiceResult<Bytes> {
    use AdminCall as Call;
    match call {
        Call::CreateTable(table) => codec::encode(&admin.create_table(*table).await?),
        Call::DeleteTable(table) => codec::encode(&admin.delete_table(&table).await?),
        Call::UpdateTable(table, update) => codec::encode(&admin.update_table(&table, *update).await?),
        Call::ModifyFamilies(table, changes) => codec::encode(&admin.modify_families(&table, changes).await?),
        Call::Groups(table) => codec::encode(&admin.groups(&table).await?),
        Call::ModifyGroups(table, changes) => codec::encode(&admin.modify_groups(&table, changes).await?),
        Call::DropRowRange(table, range) => codec::encode(&admin.drop_row_range(&table, range).await?),
        Call::Flush(table, tablet) => codec::encode(&admin.flush(&table, tablet).await?),
        Call::Compact(table, tablet, major) => codec::encode(&admin.compact(&table, tablet, major).await?),
        Call::Compactions(table) => codec::encode(&admin.compactions(&table).await?),
        Call::Split(table, tablet, at) => codec::encode(&admin.split(&table, tablet, at).await?),
        Call::Merge(table, tablets) => codec::encode(&admin.merge(&table, tablets).await?),
        Call::SetSwitches(change) => codec::encode(&admin.set_switches(change).await?),
        Call::Truncate(table, keep) => codec::encode(&admin.truncate(&table, keep).await?),
        Call::CreateSnapshot(new) => codec::encode(&admin.create_snapshot(new).await?),
        Call::CopySnapshot(copy) => codec::encode(&admin.copy_snapshot(copy).await?),
        Call::Snapshot(name) => codec::encode(&admin.snapshot(&name).await?),
        Call::UpdateSnapshot(name, update) => codec::encode(&admin.update_snapshot(&name, update).await?),
        Call::DeleteSnapshot(name) => codec::encode(&admin.delete_snapshot(&name).await?),
        Call::CloneSnapshot(name, table, data) => codec::encode(&admin.clone_snapshot(&name, &table, data).await?),
        Call::RestoreSnapshot(name, table) => codec::encode(&admin.restore_snapshot(&name, &table).await?),
        Call::UndeleteTable(table) => codec::encode(&admin.undelete_table(&table).await?),
        Call::ListTables(namespace) => codec::encode(&admin.list_tables(&namespace).await?),
        Call::CreateNamespace(namespace, data) => codec::encode(&admin.create_namespace(&namespace, data).await?),
        Call::UpdateNamespace(namespace, former, data) => {
            codec::encode(&admin.update_namespace(&namespace, former, data).await?)
        }
        Call::DeleteNamespace(namespace) => codec::encode(&admin.delete_namespace(&namespace, false).await?),
        Call::DeleteEmptyNamespace(namespace) => codec::encode(&admin.delete_namespace(&namespace, true).await?),
        Call::Namespace(namespace) => codec::encode(&admin.namespace(&namespace).await?),
        Call::ListNamespaces => codec::encode(&admin.list_namespaces().await?),
        Call::SetRules {
            resource,
            rules,
            former,
        } => codec::encode(&admin.set_rules(&resource, rules, former).await?),
    }
}

impl AdminCall {
    /// The operation and the resource for the audit log, as the server has them that the client has called; `None` for a call that
    /// changes nothing.
    pub(crate) fn audited(&self) -> Option<(&'static str, Resource)> {
        use AdminCall as Call;
        let table = |name: &TableName| Resource::Table(name.clone());
        let namespace = |name: &String| Resource::Namespace(name.clone());
        let snapshot = |name: &SnapshotName| Resource::Snapshot {
            namespace: name.namespace.clone(),
            name: name.name.clone(),
        };
        Some(match self {
            Call::CreateTable(new) => ("create_table", table(&new.name)),
            Call::DeleteTable(name) => ("delete_table", table(name)),
            Call::UpdateTable(name, _) => ("update_table", table(name)),
            Call::ModifyFamilies(name, _) => ("modify_families", table(name)),
            Call::ModifyGroups(name, _) => ("modify_groups", table(name)),
            Call::DropRowRange(name, _) => ("drop_row_range", table(name)),
            Call::Flush(name, _) => ("flush", table(name)),
            Call::Compact(name, ..) => ("compact", table(name)),
            Call::Split(name, ..) => ("split", table(name)),
            Call::Merge(name, _) => ("merge", table(name)),
            Call::SetSwitches(_) => ("set_switches", Resource::Cluster),
            Call::Truncate(name, _) => ("truncate", table(name)),
            Call::CreateSnapshot(new) => ("create_snapshot", snapshot(&new.name)),
            Call::CopySnapshot(copy) => ("copy_snapshot", snapshot(&copy.name)),
            Call::UpdateSnapshot(name, _) => ("update_snapshot", snapshot(name)),
            Call::DeleteSnapshot(name) => ("delete_snapshot", snapshot(name)),
            Call::CloneSnapshot(_, name, _) => ("clone_snapshot", table(name)),
            Call::RestoreSnapshot(_, name) => ("restore_snapshot", table(name)),
            Call::UndeleteTable(name) => ("undelete_table", table(name)),
            Call::CreateNamespace(name, _) => ("create_namespace", namespace(name)),
            Call::UpdateNamespace(name, _, _) => ("update_namespace", namespace(name)),
            Call::DeleteNamespace(name) | Call::DeleteEmptyNamespace(name) => ("delete_namespace", namespace(name)),
            Call::SetRules { resource, .. } => ("set_rules", resource.clone()),
            Call::Groups(_)
            | Call::Compactions(_)
            | Call::Snapshot(_)
            | Call::ListTables(_)
            | Call::Namespace(_)
            | Call::ListNamespaces => return None,
        })
    }

    /// Whether the call changes the catalog, so that other servers have to follow before it is answered.
    pub(crate) fn changes_catalog(&self) -> bool {
        use AdminCall as Call;
        !matches!(
            self,
            Call::Groups(_)
                | Call::Flush(..)
                | Call::Compact(..)
                | Call::Compactions(_)
                | Call::Snapshot(_)
                | Call::ListTables(_)
                | Call::Namespace(_)
                | Call::ListNamespaces
                | Call::DropRowRange(..)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_types::{Durability, Switches, TableId};

    #[test]
    fn absent_and_removed_are_told_apart() {
        let table = TableName::new("n", "t");
        let updates = [None, Some(None), Some(Some(Durability::Flush))];
        for durability in updates {
            let update = TableUpdate {
                durability,
                ..TableUpdate::default()
            };
            let call = AdminCall::UpdateTable(table.clone(), Box::new(update));
            let bytes = codec::encode(&call).expect("encoded");
            match codec::decode(&bytes).expect("decoded") {
                AdminCall::UpdateTable(_, update) => assert_eq!(update.durability, durability),
                other => unreachable!("another call: {other:?}"),
            }
        }
        let rule = |gc_rule| FamilyChange::Update {
            name: "f".to_owned(),
            gc_rule,
            value_type: None,
            deletes: None,
            front_end_data: None,
        };
        for gc_rule in [None, Some(None)] {
            let bytes = codec::encode(&rule(gc_rule.clone())).expect("encoded");
            match codec::decode(&bytes).expect("decoded") {
                FamilyChange::Update { gc_rule: found, .. } => assert_eq!(found, gc_rule),
                other => unreachable!("another change: {other:?}"),
            }
        }
    }

    /// A server of an earlier version sends calls without fields that it does not know.
    #[test]
    fn a_call_without_newer_fields_is_read() {
        let update = TableUpdate {
            former: Some((TableId(7), 3)),
            enabled: Some(false),
            ..TableUpdate::default()
        };
        let update = AdminCall::UpdateTable(TableName::new("n", "t"), Box::new(update));
        match without("/UpdateTable/1", "former", &update) {
            AdminCall::UpdateTable(_, update) => assert_eq!((update.former, update.enabled), (None, Some(false))),
            other => unreachable!("another call: {other:?}"),
        }
        let new = NewSnapshot {
            name: SnapshotName::new("n", "s"),
            table: TableName::new("n", "t"),
            flush: true,
            only_of_name: true,
            expires_micros: None,
            front_end_data: Vec::new(),
        };
        match without("/CreateSnapshot", "only_of_name", &AdminCall::CreateSnapshot(new)) {
            AdminCall::CreateSnapshot(new) => assert_eq!((new.flush, new.only_of_name), (true, false)),
            other => unreachable!("another call: {other:?}"),
        }
    }

    /// A leader of an earlier version has no switch of the cleanup of snapshots: it cleans.
    #[test]
    fn switches_without_newer_ones_are_read() {
        let answer = b"{\"balance\":false,\"split\":true,\"merge\":true}";
        let found: Switches = codec::decode(answer).expect("decoded");
        assert!(!found.balance && found.snapshot_cleanup);
        let change: SwitchesChange = codec::decode(b"{\"balance\":false}").expect("decoded");
        assert_eq!(change.snapshot_cleanup, None);
    }

    /// A call as a server sends it that does not know a field.
    fn without(place: &str, field: &str, call: &AdminCall) -> AdminCall {
        let mut message = serde_json::to_value(call).expect("encoded");
        let fields = message.pointer_mut(place).and_then(serde_json::Value::as_object_mut);
        let removed = fields.expect("an object").remove(field);
        assert!(removed.is_some_and(|value| !value.is_null()), "the field is sent");
        codec::decode(message.to_string().as_bytes()).expect("decoded")
    }

    #[test]
    fn a_call_of_a_later_version_is_refused() {
        let refused = codec::decode::<AdminCall>(b"{\"Reshuffle\":1}").unwrap_err();
        assert_eq!(refused.kind, stele_types::ErrorKind::Unimplemented);
    }
}
