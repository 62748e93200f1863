//! Changes of a descriptor while others change the table.

use super::*;
use crate::test_service::{Client, Model, Served, failure as thrown, message};
use prost::Message;
use stele_memory::Pool;
use stele_types::{FamilyId, GcRule};
use stele_wire::messages::{BytesBytesPair, ColumnFamilySchema, ConnectionHeader, MASTER_SERVICE, ProcedureResponse};

async fn client(model: &Arc<Model>) -> (Client, Served) {
    let header = ConnectionHeader {
        service_name: Some(MASTER_SERVICE.to_owned()),
        ..ConnectionHeader::default()
    };
    Client::open(&model.front_end(&Pool::default()), 1 << 16, &header).await
}

/// A request about a family of the table of a model.
fn request(family: &'static str) -> FamilyRequest {
    FamilyRequest {
        table_name: messages::TableName {
            namespace: "default".into(),
            qualifier: "t".into(),
        },
        column_families: ColumnFamilySchema {
            name: family.into(),
            ..ColumnFamilySchema::default()
        },
        nonce_group: Some(7),
        nonce: Some(9),
    }
}

/// The schema of a model after a number of changes, with one more family.
fn with_family(model: &Model, changes: u64, family: &str) -> TableSchema {
    let mut schema = TableSchema::clone(&model.schema);
    schema.version += changes;
    let first = schema.families.values().next().expect("it has some").clone();
    let added = Family {
        name: family.to_owned(),
        gc_rule: Some(GcRule::MaxVersions(1)),
        ..first
    };
    schema.families.insert(FamilyId(100), added);
    schema
}

#[tokio::test]
async fn a_descriptor_that_another_server_stored_is_not_lost() {
    let model = Model::new(&[""]);
    // The family is there, and then another server has changed an attribute.
    let added = with_family(&model, 1, "x");
    let mut other = descriptors::shown(&with_family(&model, 1, "y"));
    other.attributes.push(BytesBytesPair {
        first: "other".into(),
        second: "1".into(),
    });
    let overtaken = TableSchema {
        version: added.version + 1,
        front_end_data: descriptors::stored(&other),
        ..added.clone()
    };
    let (added, overtaken) = (Arc::new(added), Arc::new(overtaken));
    *model.outcomes.lock() = [
        (None, Some(Arc::clone(&added))),
        (Some(ErrorKind::Aborted), Some(Arc::clone(&overtaken))),
    ]
    .into();
    let (mut client, _served) = client(&model).await;
    message::<ProcedureResponse>(&client.call("AddColumn", &request("x")).await);
    assert_eq!(*model.changes.lock(), ["create x"]);
    let updates = model.updates.lock();
    let former: Vec<_> = updates.iter().map(|update| update.former).collect();
    let read = [&added, &overtaken].map(|schema| Some((schema.id, schema.version)));
    assert_eq!(former, read);
    let stored = updates[1].front_end_data.as_deref().expect("a descriptor");
    let stored = messages::TableSchema::decode(stored).expect("a descriptor");
    assert!(stored.attributes.iter().any(|pair| pair.first == "other"));
    assert!(stored.column_families.iter().any(|family| family.name == "x"));
}

/// A change is made, and a server has not followed it; or another server has made the same. A newer version alone says neither.
#[tokio::test]
async fn a_change_that_is_made_and_not_followed_succeeds() {
    let model = Model::new(&[""]);
    let (mut client, _served) = client(&model).await;
    let mut wanted = descriptors::shown(&model.schema);
    wanted.attributes.retain(|pair| pair.first != "READONLY");
    wanted.attributes.push(BytesBytesPair {
        first: "READONLY".into(),
        second: "true".into(),
    });
    descriptors::complete(&mut wanted, model.schema.delete_rule);
    let made = TableSchema {
        version: model.schema.version + 1,
        read_only: true,
        front_end_data: descriptors::stored(&wanted),
        ..TableSchema::clone(&model.schema)
    };
    let equal_descriptor = TableSchema {
        read_only: false,
        ..made.clone()
    };
    let modification = ModifyTableRequest {
        table_name: request("x").table_name,
        table_schema: wanted,
        ..ModifyTableRequest::default()
    };
    for (newer, updates) in [(made, 1), (equal_descriptor, 2)] {
        *model.newer.lock() = None;
        model.updates.lock().clear();
        *model.outcomes.lock() = [(Some(ErrorKind::Aborted), Some(Arc::new(newer)))].into();
        let response = client.call("ModifyTable", &modification).await;
        message::<ProcedureResponse>(&response);
        assert_eq!(model.updates.lock().len(), updates);
    }
}

/// A client that repeated the call would get the exception that the family is there, or is not.
#[tokio::test]
async fn clients_do_not_repeat_a_change_whose_families_are_changed() {
    for (outcomes, class) in [
        (&[Some(ErrorKind::Unavailable)][..], exception::NOT_SERVING_REGION),
        (&[Some(ErrorKind::Busy)][..], exception::REGION_TOO_BUSY),
        (&[None, Some(ErrorKind::Unavailable)][..], exception::DO_NOT_RETRY),
        (&[None, Some(ErrorKind::Busy)][..], exception::DO_NOT_RETRY),
    ] {
        let model = Model::new(&[""]);
        let (mut client, _served) = client(&model).await;
        let next = || *model.outcomes.lock() = outcomes.iter().map(|kind| (*kind, None)).collect();
        next();
        let response = client.call("AddColumn", &request("x")).await;
        assert_eq!(thrown(&response), class, "{outcomes:?}");
        next();
        let deletion = DeleteColumnRequest {
            table_name: request("x").table_name,
            column_name: "info".into(),
            ..DeleteColumnRequest::default()
        };
        let response = client.call("DeleteColumn", &deletion).await;
        assert_eq!(thrown(&response), class, "{outcomes:?}");
        assert_eq!(*model.changes.lock(), ["create x", "drop info"]);
    }
}

/// The error is about the family, and not about the table.
#[tokio::test]
async fn a_family_that_another_server_adds_or_drops_meanwhile_is_seen() {
    let model = Model::new(&[""]);
    let (mut client, _served) = client(&model).await;
    let (without, with) = (Arc::clone(&model.schema), Arc::new(with_family(&model, 1, "x")));
    model
        .outcomes
        .lock()
        .push_back((Some(ErrorKind::AlreadyExists), Some(Arc::clone(&with))));
    let response = client.call("AddColumn", &request("x")).await;
    assert_eq!(thrown(&response), exception::INVALID_FAMILY_OPERATION);
    model
        .outcomes
        .lock()
        .push_back((Some(ErrorKind::NotFound), Some(without)));
    let mut modification = request("x");
    modification.column_families.attributes.push(BytesBytesPair {
        first: "VERSIONS".into(),
        second: "5".into(),
    });
    let response = client.call("ModifyColumn", &modification).await;
    assert_eq!(thrown(&response), exception::INVALID_FAMILY_OPERATION);
    assert!(model.updates.lock().is_empty());
}

/// A client that replaces all families has not seen one that came meanwhile.
#[tokio::test]
async fn a_modification_drops_and_makes_no_family_that_its_client_has_not_seen() {
    let model = Model::new(&[""]);
    let (mut client, _served) = client(&model).await;
    let first = Arc::clone(&model.schema);
    let at = |changes, families: &[&str]| {
        let mut schema = with_family(&model, changes, "x");
        schema
            .families
            .retain(|_, family| families.contains(&family.name.as_str()));
        Arc::new(schema)
    };
    let overtaken = |schema| (Some(ErrorKind::Aborted), Some(schema));
    let (own, with_x) = (&["info", "table"][..], &["info", "table", "x"][..]);
    // The wanted families, the outcomes, and the changes of families.
    let cases = [
        // Others add `x`, before or after the families are changed.
        (own, vec![overtaken(at(1, with_x))], &[][..], false),
        (
            &["info"][..],
            vec![(None, Some(at(1, &["info"]))), overtaken(at(2, &["info", "x"]))],
            &["drop table"][..],
            false,
        ),
        // Others drop `table`.
        (own, vec![overtaken(at(1, &["info"]))], &[][..], false),
        // Others change something else.
        (own, vec![overtaken(at(1, own))], &[][..], true),
        (
            with_x,
            vec![(None, Some(at(1, with_x))), overtaken(at(2, with_x))],
            &["create x"][..],
            true,
        ),
        // The same call, through another server.
        (
            with_x,
            vec![(Some(ErrorKind::AlreadyExists), Some(at(1, with_x)))],
            &["create x"][..],
            true,
        ),
    ];
    for (wanted, outcomes, changes, succeeds) in cases {
        *model.newer.lock() = None;
        model.changes.lock().clear();
        *model.outcomes.lock() = outcomes.into();
        let mut table_schema = descriptors::shown(&first);
        let family = |name: &&str| ColumnFamilySchema {
            name: Bytes::copy_from_slice(name.as_bytes()),
            ..ColumnFamilySchema::default()
        };
        let is_kept = |family: &ColumnFamilySchema| wanted.iter().any(|name| name.as_bytes() == family.name);
        table_schema.column_families.retain(is_kept);
        let added = wanted.iter().filter(|name| !own.contains(name)).map(family);
        table_schema.column_families.extend(added);
        let modification = ModifyTableRequest {
            table_name: request("x").table_name,
            table_schema,
            ..ModifyTableRequest::default()
        };
        let response = client.call("ModifyTable", &modification).await;
        match succeeds {
            true => drop(message::<ProcedureResponse>(&response)),
            false => assert_eq!(thrown(&response), exception::DO_NOT_RETRY, "{wanted:?}"),
        }
        assert_eq!(*model.changes.lock(), changes, "{wanted:?}");
    }
}
