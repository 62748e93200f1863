use super::*;
use crate::pb::longrunning;
use admin::modify_column_families_request::{Modification, modification::Mod};
use prost_types::FieldMask;

fn get(name: &str, view: admin::table::View) -> admin::GetTableRequest {
    admin::GetTableRequest {
        name: name.into(),
        view: view as i32,
    }
}

#[tokio::test]
async fn a_deleted_table_is_undeleted_by_an_operation() {
    let harness = Harness::new();
    let mut tables = harness.tables();
    let made = tables.create_table(table_request("t")).await.unwrap().into_inner();
    let undelete = || admin::UndeleteTableRequest { name: TABLE.into() };
    assert_eq!(code(tables.undelete_table(undelete()).await), Code::AlreadyExists);
    tables
        .delete_table(admin::DeleteTableRequest { name: TABLE.into() })
        .await
        .unwrap();
    let operation = tables.undelete_table(undelete()).await.unwrap().into_inner();
    assert!(operation.done && operation.name.contains("/tables/t/operations/"));
    let table: admin::Table = unpack(&operation, "Table", "UndeleteTableMetadata");
    assert_eq!(table, made);
    let metadata = operation.metadata.unwrap();
    let metadata = <admin::UndeleteTableMetadata as prost::Message>::decode(&metadata.value[..]).unwrap();
    assert_eq!(metadata.name, TABLE);
    assert!(metadata.start_time.is_some() && metadata.end_time.is_some());
    let other = admin::UndeleteTableRequest {
        name: format!("{INSTANCE}/tables/u"),
    };
    assert_eq!(code(tables.undelete_table(other).await), Code::NotFound);
    let malformed = admin::UndeleteTableRequest { name: "t".into() };
    assert_eq!(code(tables.undelete_table(malformed).await), Code::InvalidArgument);
}

#[tokio::test]
async fn tables_are_made_shown_and_dropped() {
    use admin::table::View;
    let harness = Harness::new();
    let made = harness
        .tables()
        .create_table(table_request("t"))
        .await
        .unwrap()
        .into_inner();
    assert_eq!((made.name.as_str(), made.granularity), (TABLE, 1));
    assert_eq!(made.column_families.len(), 3);
    assert!(made.column_families["sum"].value_type.is_some());
    assert_eq!(
        code(harness.tables().create_table(table_request("t")).await),
        Code::AlreadyExists
    );
    let shown = harness
        .tables()
        .get_table(get(TABLE, View::Unspecified))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(shown, made);
    let other_project = get("projects/other/instances/i/tables/t", View::NameOnly);
    let named = harness.tables().get_table(other_project).await.unwrap().into_inner();
    assert_eq!(
        named,
        admin::Table {
            name: "projects/other/instances/i/tables/t".into(),
            ..Default::default()
        }
    );
    let replicated = harness
        .tables()
        .get_table(get(TABLE, View::ReplicationView))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(replicated.cluster_states["stele"].replication_state, 4);
    harness
        .tables()
        .delete_table(admin::DeleteTableRequest { name: TABLE.into() })
        .await
        .unwrap();
    assert_eq!(
        code(harness.tables().get_table(get(TABLE, View::Full)).await),
        Code::NotFound
    );
    assert_eq!(
        code(
            harness
                .tables()
                .delete_table(admin::DeleteTableRequest { name: TABLE.into() })
                .await
        ),
        Code::NotFound
    );
}

#[tokio::test]
async fn bad_tables_are_refused() {
    let harness = Harness::new();
    let with = |change: fn(&mut admin::Table)| {
        let mut request = table_request("t");
        change(request.table.as_mut().unwrap());
        request
    };
    let cases = [
        (with(|t| t.granularity = 7), Code::InvalidArgument),
        (
            with(|t| t.change_stream_config = Some(Default::default())),
            Code::Unimplemented,
        ),
        (
            with(|t| t.column_families = [("a:b".to_owned(), Default::default())].into()),
            Code::InvalidArgument,
        ),
        (table_request("-t"), Code::InvalidArgument),
        (
            admin::CreateTableRequest {
                parent: "p".into(),
                ..table_request("t")
            },
            Code::InvalidArgument,
        ),
        (with(|t| t.granularity = 2), Code::Ok),
    ];
    for (request, expected) in cases {
        assert_eq!(
            code(harness.tables().create_table(request.clone()).await),
            expected,
            "{request:?}"
        );
    }
    let micros = harness
        .tables()
        .get_table(get(TABLE, admin::table::View::SchemaView))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(micros.granularity, 2);
}

#[tokio::test]
async fn lists_come_in_pages() {
    let harness = Harness::new();
    for id in ["c", "a", "b"] {
        harness.tables().create_table(table_request(id)).await.unwrap();
    }
    let mut request = admin::ListTablesRequest {
        parent: INSTANCE.into(),
        page_size: 2,
        ..Default::default()
    };
    let page = harness
        .tables()
        .list_tables(request.clone())
        .await
        .unwrap()
        .into_inner();
    assert_eq!((page.tables.len(), page.next_page_token.as_str()), (2, "b"));
    assert!(page.tables[0].column_families.is_empty(), "names only");
    request.page_token = page.next_page_token;
    let page = harness.tables().list_tables(request).await.unwrap().into_inner();
    assert_eq!(
        (page.tables[0].name.as_str(), page.next_page_token.as_str()),
        ("projects/p/instances/i/tables/c", "")
    );
}

#[tokio::test]
async fn families_change_all_or_nothing() {
    let harness = Harness::with_table().await;
    let modify = |modifications: Vec<(&str, Option<FieldMask>, Mod)>| {
        let modifications = modifications
            .into_iter()
            .map(|(id, update_mask, change)| Modification {
                id: id.into(),
                update_mask,
                r#mod: Some(change),
            })
            .collect();
        let request = admin::ModifyColumnFamiliesRequest {
            name: TABLE.into(),
            modifications,
            ..Default::default()
        };
        let mut client = harness.tables();
        async move {
            client
                .modify_column_families(request)
                .await
                .map(tonic::Response::into_inner)
        }
    };
    let versions = || admin::ColumnFamily {
        gc_rule: Some(admin::GcRule {
            rule: Some(admin::gc_rule::Rule::MaxNumVersions(2)),
        }),
        value_type: None,
    };
    let table = modify(vec![
        ("h", None, Mod::Create(Default::default())),
        ("f", None, Mod::Update(versions())),
    ])
    .await
    .unwrap();
    assert!(table.column_families.contains_key("h") && table.column_families["f"].gc_rule.is_some());
    let text = || admin::ColumnFamily {
        value_type: Some(admin::Type {
            kind: Some(admin::r#type::Kind::StringType(Default::default())),
        }),
        gc_rule: None,
    };
    let table = modify(vec![("f", mask(&["value_type"]), Mod::Update(text()))])
        .await
        .unwrap();
    assert_eq!(
        table.column_families["f"].gc_rule,
        versions().gc_rule,
        "not in the mask"
    );
    assert_eq!(table.column_families["f"].value_type, text().value_type);
    for (change, expected) in [
        (("h", None, Mod::Create(Default::default())), Code::AlreadyExists),
        (("x", None, Mod::Update(versions())), Code::NotFound),
        (("x", None, Mod::Drop(true)), Code::NotFound),
        (("h", None, Mod::Drop(false)), Code::InvalidArgument),
        (
            ("h", mask(&["nonsense"]), Mod::Update(versions())),
            Code::InvalidArgument,
        ),
    ] {
        let both = vec![("k", None, Mod::Create(Default::default())), change];
        assert_eq!(code(modify(both).await), expected);
    }
    let immutable = modify(vec![("sum", mask(&["value_type"]), Mod::Update(text()))])
        .await
        .unwrap_err();
    assert_eq!(
        immutable.message(),
        "Immutable fields 'value_type.aggregate_type' cannot be updated"
    );
    let table = modify(vec![("h", None, Mod::Drop(true))]).await.unwrap();
    assert!(!table.column_families.contains_key("h") && !table.column_families.contains_key("k"));
}

#[tokio::test]
async fn protection_is_an_operation_and_protects() {
    let harness = Harness::with_table().await;
    let update = |protect, paths: &[&str]| admin::UpdateTableRequest {
        table: Some(admin::Table {
            name: TABLE.into(),
            deletion_protection: protect,
            ..Default::default()
        }),
        update_mask: mask(paths),
        ignore_warnings: false,
    };
    let operation = harness
        .tables()
        .update_table(update(true, &["deletion_protection"]))
        .await
        .unwrap()
        .into_inner();
    let table: admin::Table = unpack(&operation, "Table", "UpdateTableMetadata");
    assert!(table.deletion_protection);
    let get = longrunning::GetOperationRequest {
        name: operation.name.clone(),
    };
    let again = harness.operations().get_operation(get).await.unwrap().into_inner();
    assert_eq!(again, operation);
    let unknown = longrunning::GetOperationRequest {
        name: "operations/x".into(),
    };
    assert_eq!(code(harness.operations().get_operation(unknown).await), Code::NotFound);
    let listed = longrunning::ListOperationsRequest {
        name: "operations/projects/p".into(),
        ..Default::default()
    };
    assert_eq!(
        harness
            .operations()
            .list_operations(listed)
            .await
            .unwrap()
            .into_inner()
            .operations
            .len(),
        1
    );
    let delete = admin::DeleteTableRequest { name: TABLE.into() };
    assert_eq!(
        code(harness.tables().delete_table(delete).await),
        Code::FailedPrecondition
    );
    for (paths, expected) in [
        (&[][..], Code::InvalidArgument),
        (&["nonsense"], Code::InvalidArgument),
        (&["*"], Code::InvalidArgument),
        (&["column_families"], Code::Unimplemented),
        (&["change_stream_config.retention_period"], Code::Unimplemented),
    ] {
        assert_eq!(
            code(harness.tables().update_table(update(false, paths)).await),
            expected,
            "{paths:?}"
        );
    }
}

/// Days from a backup to its expiry, as a table shows them.
fn retention_days(table: &admin::Table) -> Option<i64> {
    use admin::table::AutomatedBackupConfig::AutomatedBackupPolicy;
    let AutomatedBackupPolicy(policy) = table.automated_backup_config.as_ref()?;
    Some(policy.retention_period.as_ref()?.seconds / 86_400)
}

#[tokio::test]
async fn automated_backups_are_asked_for_and_ended() {
    use admin::table::{AutomatedBackupConfig, AutomatedBackupPolicy, View};
    let harness = Harness::new();
    let with_policy = |days: i64| {
        let policy = AutomatedBackupPolicy {
            retention_period: Some(prost_types::Duration {
                seconds: days * 86_400,
                nanos: 0,
            }),
            ..AutomatedBackupPolicy::default()
        };
        admin::Table {
            name: TABLE.into(),
            automated_backup_config: Some(AutomatedBackupConfig::AutomatedBackupPolicy(policy)),
            ..Default::default()
        }
    };
    let create = |days| {
        let mut request = table_request("t");
        let table = request.table.get_or_insert_default();
        table.automated_backup_config = with_policy(days).automated_backup_config;
        request
    };
    assert_eq!(
        code(harness.tables().create_table(create(2)).await),
        Code::InvalidArgument
    );
    let made = harness.tables().create_table(create(7)).await.unwrap().into_inner();
    assert_eq!(retention_days(&made), Some(7));
    for (table, path, expected) in [
        (with_policy(30), "automated_backup_policy", Some(30)),
        (with_policy(9), "automated_backup_policy.retention_period", Some(9)),
        (
            admin::Table {
                name: TABLE.into(),
                ..Default::default()
            },
            "automated_backup_policy",
            None,
        ),
    ] {
        let request = admin::UpdateTableRequest {
            table: Some(table),
            update_mask: Some(FieldMask {
                paths: vec![path.to_owned()],
            }),
            ignore_warnings: false,
        };
        harness.tables().update_table(request).await.unwrap();
        let shown = harness
            .tables()
            .get_table(get(TABLE, View::Full))
            .await
            .unwrap()
            .into_inner();
        assert_eq!(retention_days(&shown), expected, "{path}");
    }
}

#[tokio::test]
async fn row_ranges_drop_and_tokens_are_checked() {
    use admin::drop_row_range_request::Target;
    let harness = Harness::with_table().await;
    let drop = |target| admin::DropRowRangeRequest {
        name: TABLE.into(),
        target,
    };
    for (target, expected) in [
        (Some(Target::RowKeyPrefix(Bytes::new())), Code::InvalidArgument),
        (Some(Target::DeleteAllDataFromTable(false)), Code::InvalidArgument),
        (None, Code::InvalidArgument),
        (Some(Target::RowKeyPrefix(Bytes::from_static(b"\xff"))), Code::Ok),
        (Some(Target::RowKeyPrefix(vec![b'x'; 4 << 10].into())), Code::Ok),
        (
            Some(Target::RowKeyPrefix(vec![b'x'; (4 << 10) + 1].into())),
            Code::InvalidArgument,
        ),
    ] {
        assert_eq!(code(harness.tables().drop_row_range(drop(target)).await), expected);
    }
    let generate = |name: &str| admin::GenerateConsistencyTokenRequest { name: name.into() };
    let token = harness
        .tables()
        .generate_consistency_token(generate(TABLE))
        .await
        .unwrap()
        .into_inner()
        .consistency_token;
    let check = |token: &str| admin::CheckConsistencyRequest {
        name: TABLE.into(),
        consistency_token: token.into(),
        mode: None,
    };
    assert!(
        harness
            .tables()
            .check_consistency(check(&token))
            .await
            .unwrap()
            .into_inner()
            .consistent
    );
    assert_eq!(
        code(harness.tables().check_consistency(check("forged")).await),
        Code::InvalidArgument
    );
    let missing = generate(&format!("{INSTANCE}/tables/none"));
    assert_eq!(
        code(harness.tables().generate_consistency_token(missing).await),
        Code::NotFound
    );
}
