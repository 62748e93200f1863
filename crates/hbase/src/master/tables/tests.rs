//! Repeated creations of a table, and changes of unknown outcome.

use super::*;
use crate::test_service::{Client, Model, failure as thrown, message};
use stele_memory::Pool;
use stele_types::{Family, GroupId, LocalityGroup};
use stele_wire::frame::Response;
use stele_wire::messages::{
    BytesBytesPair, ColumnFamilySchema, ConnectionHeader, MASTER_SERVICE, ProcedureResponse, TableSchema as Described,
};

/// A request for the table of a model, read only.
fn creation(nonce: Nonce) -> CreateTableRequest {
    creation_of("t", nonce)
}

fn creation_of(name: &'static str, nonce: Nonce) -> CreateTableRequest {
    let family = |name: &'static str| ColumnFamilySchema {
        name: name.into(),
        ..ColumnFamilySchema::default()
    };
    let table_schema = Described {
        table_name: Some(TableName {
            namespace: "default".into(),
            qualifier: name.into(),
        }),
        attributes: vec![BytesBytesPair {
            first: "READONLY".into(),
            second: "true".into(),
        }],
        column_families: vec![family("info"), family("table")],
        ..Described::default()
    };
    CreateTableRequest {
        table_schema,
        nonce_group: nonce.0,
        nonce: nonce.1,
        ..CreateTableRequest::default()
    }
}

fn of_master() -> ConnectionHeader {
    ConnectionHeader {
        service_name: Some(MASTER_SERVICE.to_owned()),
        ..ConnectionHeader::default()
    }
}

/// Calls a server that knows no nonce, where a call with the nonce (7, 9) has made the table `t` and nothing more. Also the updates
/// of the table.
async fn repeated(nonce: Nonce) -> (Response, usize) {
    let mut model = Model::new(&[""]);
    let schema = Arc::make_mut(&mut Arc::get_mut(&mut model).expect("no one else has it").schema);
    schema.front_end_data = descriptors::stored_by(&creation(nonce).table_schema, (Some(7), Some(9)));
    let (mut client, _served) = Client::open(&model.front_end(&Pool::default()), 1 << 16, &of_master()).await;
    let response = client.call("CreateTable", &creation(nonce)).await;
    (response, model.updates.lock().len())
}

#[tokio::test]
async fn a_creation_that_another_server_began_is_finished() {
    let (response, updates) = repeated((Some(7), Some(9))).await;
    let done: ProcedureResponse = message(&response);
    assert_eq!((done.proc_id, updates), (Some(1), 1));
    for other in [(Some(7), Some(8)), (Some(8), Some(9)), (Some(0), Some(0)), (None, None)] {
        let (response, updates) = repeated(other).await;
        assert_eq!((thrown(&response), updates), (exception::TABLE_EXISTS.to_owned(), 0));
    }
}

/// A client that repeated a deletion would get the exception that there is no such table.
#[tokio::test]
async fn clients_do_not_repeat_changes_that_may_have_been_made() {
    let mut model = Model::new(&[""]);
    let schema = Arc::make_mut(&mut Arc::get_mut(&mut model).expect("no one else has it").schema);
    schema.enabled = false;
    let (mut client, _served) = Client::open(&model.front_end(&Pool::default()), 1 << 16, &of_master()).await;
    let name = TableName {
        namespace: "default".into(),
        qualifier: "t".into(),
    };
    let deletion = TableRequest {
        table_name: name.clone(),
        ..TableRequest::default()
    };
    let truncation = TruncateTableRequest {
        table_name: name,
        ..TruncateTableRequest::default()
    };
    let (unknown, not_yet) = (Some(ErrorKind::Aborted), Some(ErrorKind::Unavailable));
    let next = |kinds: &[Option<ErrorKind>]| {
        *model.outcomes.lock() = kinds.iter().map(|kind| (*kind, None)).collect();
    };
    next(&[unknown]);
    let response = client.call("DeleteTable", &deletion).await;
    assert_eq!(thrown(&response), exception::DO_NOT_RETRY);
    next(&[not_yet]);
    let response = client.call("DeleteTable", &deletion).await;
    assert_eq!(thrown(&response), exception::NOT_SERVING_REGION);
    for kinds in [&[unknown][..], &[None, not_yet]] {
        next(kinds);
        let response = client.call("truncateTable", &truncation).await;
        assert_eq!(thrown(&response), exception::DO_NOT_RETRY, "{kinds:?}");
    }
    // Of a creation the repetition is recognised, if it has a nonce.
    for (nonce, class) in [
        ((Some(7), Some(9)), exception::HBASE_IO),
        ((None, None), exception::DO_NOT_RETRY),
    ] {
        next(&[unknown]);
        let response = client.call("CreateTable", &creation_of("u", nonce)).await;
        assert_eq!(thrown(&response), class);
    }
}

/// The families of the request, of which `table` has a compression of its own: it gets a group.
fn creation_with_groups(name: &'static str, nonce: Nonce) -> CreateTableRequest {
    let mut creation = creation_of(name, nonce);
    creation.table_schema.attributes.clear();
    creation.table_schema.column_families[1]
        .attributes
        .push(BytesBytesPair {
            first: "COMPRESSION".into(),
            second: "ZSTD".into(),
        });
    creation
}

/// The table of a model as that creation leaves it, with or without the group.
fn made_by(nonce: Nonce, has_group: bool) -> TableSchema {
    let mut schema = TableSchema::clone(&Model::new(&[""]).schema);
    let creation = creation_with_groups("t", nonce);
    schema.front_end_data = descriptors::stored_by(&creation.table_schema, nonce);
    let group = &mut schema.groups[0];
    group.options.compression = Compression::None;
    if has_group {
        schema.version += 1;
        let own = LocalityGroup::new(GroupId(1), "table", Compression::Zstd);
        schema.groups.push(own);
        let is_moved = |family: &&mut Family| family.name == "table";
        schema.families.values_mut().find(is_moved).expect("it is there").group = GroupId(1);
    }
    schema
}

/// Both have begun with the table as the creation left it.
#[tokio::test]
async fn a_creation_that_another_server_finishes_meanwhile_succeeds() {
    let nonce = (Some(7), Some(9));
    for refused in [ErrorKind::AlreadyExists, ErrorKind::Aborted] {
        let mut model = Model::new(&[""]);
        Arc::get_mut(&mut model).expect("no one else has it").schema = Arc::new(made_by(nonce, false));
        let (mut client, _served) = Client::open(&model.front_end(&Pool::default()), 1 << 16, &of_master()).await;
        let finished = (Some(refused), Some(Arc::new(made_by(nonce, true))));
        model.outcomes.lock().push_back(finished);
        let response = client.call("CreateTable", &creation_with_groups("t", nonce)).await;
        message::<ProcedureResponse>(&response);
        assert_eq!(*model.changes.lock(), ["create group table, move table to table"]);
    }
}

/// Only the same creation is finished, and only while there is something new to see.
#[tokio::test]
async fn a_creation_is_finished_only_as_long_as_its_table_is_as_it_was_made() {
    let nonce = (Some(7), Some(9));
    let made = TableSchema {
        front_end_data: descriptors::stored_by(&creation(nonce).table_schema, nonce),
        ..TableSchema::clone(&Model::new(&[""]).schema)
    };
    let next = TableSchema {
        version: made.version + 1,
        ..made.clone()
    };
    let made_again = TableSchema {
        id: stele_types::TableId(made.id.0 + 1),
        ..next.clone()
    };
    let modified = TableSchema {
        front_end_data: descriptors::stored_after(&descriptors::shown(&made), &made),
        ..next.clone()
    };
    let done = TableSchema {
        read_only: true,
        ..next.clone()
    };
    // Nothing new, since the change is not followed; other tables; a change of another API, after which this one is made; and the
    // change itself.
    for (seen, updates, succeeds) in [
        (None, 1, false),
        (Some(made_again), 1, false),
        (Some(modified), 1, false),
        (Some(next.clone()), 2, true),
        (Some(done), 1, true),
    ] {
        let mut model = Model::new(&[""]);
        Arc::get_mut(&mut model).expect("no one else has it").schema = Arc::new(made.clone());
        let (mut client, _served) = Client::open(&model.front_end(&Pool::default()), 1 << 16, &of_master()).await;
        let refused = (Some(ErrorKind::Aborted), seen.map(Arc::new));
        model.outcomes.lock().push_back(refused);
        let response = client.call("CreateTable", &creation(nonce)).await;
        match succeeds {
            true => drop(message::<ProcedureResponse>(&response)),
            false => assert_eq!(thrown(&response), exception::HBASE_IO),
        }
        let former: Vec<_> = model.updates.lock().iter().map(|update| update.former).collect();
        let read = [&made, &next].map(|schema| Some((schema.id, schema.version)));
        assert_eq!(former, read[..updates]);
    }
}

#[tokio::test]
async fn a_creation_that_another_server_makes_meanwhile_is_the_same_only_with_its_nonce() {
    for (nonce, succeeds) in [((Some(7), Some(9)), true), ((Some(7), Some(8)), false)] {
        let mut model = Model::new(&[""]);
        let made = TableSchema {
            name: stele_types::TableName::new("default", "u"),
            ..made_by((Some(7), Some(9)), true)
        };
        let schema = &mut Arc::get_mut(&mut model).expect("no one else has it").schema;
        Arc::make_mut(schema).name = stele_types::TableName::new("default", "t");
        let (mut client, _served) = Client::open(&model.front_end(&Pool::default()), 1 << 16, &of_master()).await;
        model
            .outcomes
            .lock()
            .push_back((Some(ErrorKind::AlreadyExists), Some(Arc::new(made))));
        let response = client.call("CreateTable", &creation_with_groups("u", nonce)).await;
        match succeeds {
            true => drop(message::<ProcedureResponse>(&response)),
            false => assert_eq!(thrown(&response), exception::TABLE_EXISTS),
        }
        assert_eq!(*model.changes.lock(), ["create default/u"]);
    }
}

#[test]
fn a_modified_table_is_no_longer_that_of_its_creation() {
    let mut schema = TableSchema::clone(&Model::new(&[""]).schema);
    let (nonce, table) = ((Some(7), Some(9)), creation((None, None)).table_schema);
    schema.front_end_data = descriptors::stored_by(&table, nonce);
    assert!(descriptors::is_made_by(&schema, nonce));
    let shown = descriptors::shown(&schema);
    schema.front_end_data = descriptors::stored_after(&shown, &schema);
    assert!(!descriptors::is_made_by(&schema, nonce));
}

/// The Bigtable API has there of which backup the table was made.
#[test]
fn a_modification_keeps_the_fields_of_other_front_ends() {
    let mut schema = TableSchema::clone(&Model::new(&[""]).schema);
    let table = creation((None, None)).table_schema;
    let restored: &[u8] = b"\xc2\x3e\x03abc";
    schema.front_end_data = descriptors::stored_by(&table, (Some(7), Some(9)));
    schema.front_end_data.extend(restored);
    for _ in 0..2 {
        let shown = descriptors::shown(&schema);
        schema.front_end_data = descriptors::stored_after(&shown, &schema);
        let own = descriptors::stored(&shown);
        assert_eq!(schema.front_end_data, [&own[..], restored].concat());
    }
    schema.front_end_data = b"\xff\xffno message".to_vec();
    let shown = descriptors::shown(&schema);
    assert_eq!(descriptors::stored_after(&shown, &schema), descriptors::stored(&shown));
}
