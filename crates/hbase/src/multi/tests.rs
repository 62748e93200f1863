//! Batches over a table in memory.

use crate::mutations::RowChange;
use crate::test_service::{Client, Model, count_turns, failure, message};
use bytes::{Bytes, BytesMut};
use prost::Message;
use std::sync::Arc;
use stele_client::{RmwOperation, RmwRule, Step};
use stele_memory::{Part, Pool};
use stele_types::schema::Family;
use stele_types::{Deletes, FamilyId, GroupId, Mutation, TableId, TableName, TableSchema, ValueType, limits};
use stele_wire::cell::{CellRef, CellType};
use stele_wire::exception;
use stele_wire::messages::{
    Action, BINARY_COMPARATOR, ByteArrayComparable, ColumnValue, Comparator, CompareType, Condition, DeleteType,
    Filter, FilterList, Get, ListOperator, MultiRequest, MultiResponse, MutateRequest, MutateResponse, MutationProto,
    MutationType, QualifierValue, RegionAction, ValueComparator,
};

mod results;

/// These actions on the region of row `r`.
fn batch(model: &Arc<Model>, action: Vec<Action>) -> MultiRequest {
    MultiRequest {
        region_action: vec![RegionAction {
            region: model.region("r"),
            action,
            ..RegionAction::default()
        }],
        ..MultiRequest::default()
    }
}

/// A put of row `r` whose cells are in the cell block.
fn put_of_block(index: u32, cells: i32) -> Action {
    Action {
        index: Some(index),
        mutation: Some(MutationProto {
            row: Some("r".into()),
            mutate_type: Some(MutationType::Put as i32),
            associated_cell_count: Some(cells),
            ..MutationProto::default()
        }),
        ..Action::default()
    }
}

/// A cell of row `r`.
fn encoded_cell(qualifier: &str) -> BytesMut {
    let cell = CellRef {
        row: b"r",
        family: b"info",
        qualifier: qualifier.as_bytes(),
        timestamp: 1,
        kind: CellType::Put,
        value: b"v",
    };
    let mut encoded = BytesMut::new();
    cell.encode(&mut encoded).unwrap();
    encoded
}

#[tokio::test]
async fn a_put_whose_cell_cannot_be_read_is_refused_alone() {
    let model = Model::new(&[""]);
    let front_end = model.front_end(&Pool::default());
    let (mut client, _served) = Client::connect(&front_end, 4 << 20, None).await;
    let mut tagged = encoded_cell("tagged");
    tagged[3] += 6;
    tagged.extend_from_slice(&[0, 4, 0, 2, 8, 1]);
    let mut of_unknown_type = encoded_cell("unknown");
    let at = of_unknown_type.len() - 2;
    of_unknown_type[at] = 77;
    // Two cells for each put. The second one of a refused put leaves the block, too.
    let parts = [
        encoded_cell("a"),
        encoded_cell("b"),
        tagged,
        encoded_cell("c"),
        encoded_cell("d"),
        of_unknown_type,
        encoded_cell("e"),
        encoded_cell("f"),
    ];
    let block = Bytes::from(parts.concat());
    let request = batch(&model, (0..4).map(|index| put_of_block(index, 2)).collect());
    client.send("Multi", &request, &block).await;
    let found: MultiResponse = message(&client.response().await);
    let results = &found.region_action_result[0].result_or_exception;
    let refused = results.iter().filter(|result| result.exception.is_some());
    let refused: Vec<(Option<u32>, String)> = refused
        .map(|result| (result.index, result.exception.clone().unwrap().name))
        .collect();
    let class = stele_wire::exception::DO_NOT_RETRY.to_owned();
    assert_eq!(refused, [(Some(1), class.clone()), (Some(2), class)], "{results:?}");
    let mutations = model.mutations.lock();
    let written = mutations.iter().map(|mutation| match mutation {
        Mutation::Put { qualifier, .. } => qualifier.escape_ascii().to_string(),
        other => unreachable!("another mutation: {other:?}"),
    });
    assert_eq!(written.collect::<String>(), "abef");
}

#[tokio::test]
async fn cells_that_are_passed_over_let_other_calls_run() {
    let model = Model::new(&[""]);
    let front_end = model.front_end(&Pool::default());
    let (mut client, _served) = Client::connect(&front_end, 16 << 20, None).await;
    let block = Bytes::from(encoded_cell("q").repeat(100_000));
    // An atomic batch is converted as a whole; that of an unknown region is passed over.
    for is_known in [true, false] {
        let mut request = batch(&model, (0..100).map(|index| put_of_block(index, 1_000)).collect());
        request.region_action[0].atomic = Some(true);
        if !is_known {
            request.region_action[0].region.value = "unknown".into();
        }
        client.send("Multi", &request, &block).await;
        let turns = count_turns();
        let response = client.response().await;
        let turns = turns.get();
        let found: MultiResponse = message(&response);
        let exception = found.region_action_result[0].exception.clone();
        assert_eq!(exception.is_none(), is_known, "{exception:?}");
        assert!(turns >= if is_known { 40 } else { 8 }, "{turns} turns");
    }
}

#[tokio::test]
async fn a_batch_of_reads_in_memory_lets_other_calls_run() {
    let model = Model::new(&[""]);
    model.put("r", "q", "v");
    let front_end = model.front_end(&Pool::default());
    let (mut client, _served) = Client::connect(&front_end, 4 << 20, None).await;
    let action = |index| Action {
        index: Some(index),
        get: Some(Get {
            row: "r".into(),
            ..Get::default()
        }),
        ..Action::default()
    };
    let request = batch(&model, (0..2_000).map(action).collect());
    let turns = count_turns();
    let response = client.call("Multi", &request).await;
    let turns = turns.get();
    let found: MultiResponse = message(&response);
    assert_eq!(found.region_action_result[0].result_or_exception.len(), 2_000);
    assert!(turns >= 25, "a pause every 67 actions; {turns} turns");
}

#[tokio::test]
async fn a_batch_of_filtered_reads_lets_other_calls_run() {
    let model = Model::new(&[""]);
    for n in 0..100 {
        model.put("r", &format!("q{n}"), "v");
    }
    let front_end = model.front_end(&Pool::default());
    let (mut client, _served) = Client::connect(&front_end, 4 << 20, None).await;
    let filter = |class: &str, message: Option<FilterList>| Filter {
        name: format!("org.apache.hadoop.hbase.filter.{class}").into(),
        serialized_filter: message.map(|message| message.encode_to_vec().into()),
    };
    let list = FilterList {
        operator: ListOperator::MustPassOne as i32,
        filters: vec![filter("FilterAllFilter", None); 200],
    };
    let action = |index| Action {
        index: Some(index),
        get: Some(Get {
            row: "r".into(),
            filter: Some(filter("FilterList", Some(list.clone()))),
            ..Get::default()
        }),
        ..Action::default()
    };
    let request = batch(&model, (0..30).map(action).collect());
    let turns = count_turns();
    let response = client.call("Multi", &request).await;
    let turns = turns.get();
    let found: MultiResponse = message(&response);
    let results = &found.region_action_result[0].result_or_exception;
    assert!(results.iter().all(|result| result.exception.is_none()), "{results:?}");
    assert!(turns >= 30, "a pause after each read of 20,100 tests; {turns} turns");
}

#[tokio::test]
async fn a_batch_is_charged_before_it_is_decoded() {
    let model = Model::new(&[""]);
    let front_end = model.front_end(&Pool::default().limited(Part::Requests, 1 << 20));
    let (mut client, _served) = Client::connect(&front_end, 1 << 20, None).await;
    let request = |actions| batch(&model, vec![Action::default(); actions]);
    let response = client.call("Multi", &request(10_000)).await;
    let refused = response.header.exception.expect("twenty kilobytes that take megabytes");
    assert!(
        refused.exception_class_name().contains("CallQueueTooBig"),
        "{refused:?}"
    );
    // A cell of a cell block is small, too, and becomes a change.
    let put = |cells: usize| {
        batch(
            &model,
            vec![Action {
                mutation: Some(MutationProto {
                    row: Some("r".into()),
                    mutate_type: Some(MutationType::Put as i32),
                    associated_cell_count: Some(i32::try_from(cells).unwrap()),
                    ..MutationProto::default()
                }),
                ..Action::default()
            }],
        )
    };
    let cell = CellRef {
        row: b"r",
        family: b"f",
        qualifier: b"",
        timestamp: 1,
        kind: CellType::Put,
        value: b"",
    };
    let mut block = BytesMut::new();
    (0..10_000).for_each(|_| cell.encode(&mut block).unwrap());
    client.send("Multi", &put(10_000), &block.freeze()).await;
    let response = client.response().await;
    assert!(failure(&response).contains("CallQueueTooBig"), "{response:?}");
    // All of it came back.
    let served = client.call("Multi", &request(1_000)).await;
    let found: MultiResponse = message(&served);
    assert_eq!(found.region_action_result[0].result_or_exception.len(), 1_000);
}

#[tokio::test]
async fn a_delete_of_a_row_is_charged_for_every_family() {
    let mut model = Model::new(&[""]);
    let schema = Arc::make_mut(&mut Arc::get_mut(&mut model).unwrap().schema);
    let family = schema.families[&FamilyId(1)].clone();
    for number in 100..1_100 {
        let name = format!("f{number}");
        schema
            .families
            .insert(FamilyId(number), Family { name, ..family.clone() });
    }
    let front_end = model.front_end(&Pool::default().limited(Part::Requests, 4 << 20));
    let (mut client, _served) = Client::connect(&front_end, 1 << 20, None).await;
    let delete = |index: u32| Action {
        index: Some(index),
        mutation: Some(MutationProto {
            row: Some("r".into()),
            mutate_type: Some(MutationType::Delete as i32),
            ..MutationProto::default()
        }),
        ..Action::default()
    };
    let request = batch(&model, (0..1_000).map(delete).collect());
    let found: MultiResponse = message(&client.call("Multi", &request).await);
    let results = &found.region_action_result[0].result_or_exception;
    let refused = results.iter().filter(|result| result.exception.is_some()).count();
    assert!((900..1_000).contains(&refused), "{refused} of a thousand");
}

/// The others of its batch are written.
#[tokio::test]
async fn a_put_with_a_long_qualifier_is_refused_alone() {
    let model = Model::new(&[""]);
    let front_end = model.front_end(&Pool::default());
    let (mut client, _served) = Client::connect(&front_end, 4 << 20, None).await;
    let action = |index: u32, qualifier: usize| Action {
        index: Some(index),
        mutation: Some(MutationProto {
            row: Some("r".into()),
            mutate_type: Some(MutationType::Put as i32),
            column_value: vec![ColumnValue {
                family: "info".into(),
                qualifier_value: vec![QualifierValue {
                    qualifier: Some(vec![b'q'; qualifier].into()),
                    ..QualifierValue::default()
                }],
            }],
            ..MutationProto::default()
        }),
        ..Action::default()
    };
    let request = batch(
        &model,
        vec![
            action(0, limits::QUALIFIER_BYTES_MAX),
            action(1, limits::QUALIFIER_BYTES_MAX + 1),
        ],
    );
    let found: MultiResponse = message(&client.call("Multi", &request).await);
    let results = &found.region_action_result[0].result_or_exception;
    let refused = results.iter().filter(|result| result.exception.is_some());
    let refused: Vec<Option<u32>> = refused.map(|result| result.index).collect();
    assert_eq!((results.len(), refused), (2, vec![Some(1)]), "{results:?}");
}

/// Whether the newest value of `info:q` in row `r` is this.
fn equals(value: &'static str) -> Condition {
    let comparator = ValueComparator {
        comparable: ByteArrayComparable {
            value: Some(value.into()),
        },
    };
    Condition {
        row: "r".into(),
        family: Some("info".into()),
        qualifier: Some("q".into()),
        compare_type: Some(CompareType::Equal as i32),
        comparator: Some(Comparator {
            name: BINARY_COMPARATOR.into(),
            serialized_comparator: Some(comparator.encode_to_vec().into()),
        }),
        ..Condition::default()
    }
}

/// A put into row `r`.
fn put(index: u32, family: &'static str) -> Action {
    Action {
        index: Some(index),
        mutation: Some(MutationProto {
            row: Some("r".into()),
            mutate_type: Some(MutationType::Put as i32),
            column_value: vec![ColumnValue {
                family: family.into(),
                qualifier_value: vec![QualifierValue {
                    qualifier: Some("q".into()),
                    value: Some("new".into()),
                    ..QualifierValue::default()
                }],
            }],
            ..MutationProto::default()
        }),
        ..Action::default()
    }
}

#[tokio::test]
async fn families_of_a_conditional_batch_are_checked_when_its_condition_holds() {
    let model = Model::new(&[""]);
    model.put("r", "q", "old");
    let front_end = model.front_end(&Pool::default());
    let (mut client, _served) = Client::connect(&front_end, 1 << 20, None).await;
    for (value, holds) in [("other", false), ("old", true)] {
        // A client states the condition for the request, or for each of its operations.
        for of_request in [false, true] {
            let mut request = batch(&model, vec![put(0, "info"), put(1, "absent")]);
            request.region_action[0].atomic = Some(true);
            match of_request {
                false => request.region_action[0].condition = Some(equals(value)),
                true => request.condition = Some(equals(value)),
            }
            let found: MultiResponse = message(&client.call("Multi", &request).await);
            let result = &found.region_action_result[0];
            let thrown = result.exception.as_ref().map(|exception| &*exception.name);
            assert_eq!(
                thrown,
                holds.then_some(exception::NO_SUCH_FAMILY),
                "{value} {of_request}"
            );
            let processed = (result.processed, result.result_or_exception.len());
            assert_eq!(processed, if holds { (None, 0) } else { (Some(false), 2) });
            assert_eq!(found.processed, (!holds).then_some(!of_request));
        }
    }
    assert!(model.steps.lock().is_empty(), "nothing was changed");
    // Without a condition nothing decides about the family.
    let mut request = batch(&model, vec![put(0, "absent")]);
    request.region_action[0].atomic = Some(true);
    let found: MultiResponse = message(&client.call("Multi", &request).await);
    let thrown = found.region_action_result[0].exception.as_ref();
    assert_eq!(
        thrown.map(|exception| &*exception.name),
        Some(exception::NO_SUCH_FAMILY)
    );
}

/// A delete of the newest version of `info:q`.
fn delete_newest(index: u32, row: &'static str) -> Action {
    Action {
        index: Some(index),
        mutation: Some(MutationProto {
            row: Some(row.into()),
            mutate_type: Some(MutationType::Delete as i32),
            column_value: vec![ColumnValue {
                family: "info".into(),
                qualifier_value: vec![QualifierValue {
                    qualifier: Some("q".into()),
                    delete_type: Some(DeleteType::OneVersion as i32),
                    ..QualifierValue::default()
                }],
            }],
            ..MutationProto::default()
        }),
        ..Action::default()
    }
}

/// HBase reads the versions before it carries out the first delete of a batch.
#[tokio::test]
async fn two_deletes_of_a_newest_version_in_one_batch_delete_the_same_version() {
    let model = Model::new(&[""]);
    let front_end = model.front_end(&Pool::default());
    let (mut client, _served) = Client::connect(&front_end, 1 << 20, None).await;
    let actions = vec![
        delete_newest(0, "r"),
        put(1, "info"),
        delete_newest(2, "s"),
        delete_newest(3, "r"),
    ];
    let found: MultiResponse = message(&client.call("Multi", &batch(&model, actions)).await);
    let results = &found.region_action_result[0].result_or_exception;
    assert!(results.iter().all(|result| result.exception.is_none()), "{results:?}");
    let mut indexes: Vec<u32> = results.iter().filter_map(|result| result.index).collect();
    indexes.sort_unstable();
    assert_eq!(indexes, [0, 1, 2, 3]);
    let steps = model.steps.lock();
    let is_delete = |step: &Step| matches!(step, Step::DeleteNewest { .. });
    assert!(steps.iter().all(is_delete));
    assert_eq!(steps.len(), 2, "one for each row");
    assert_eq!(model.mutations.lock().len(), 1);
    // The put into the column of a delete is no version that the delete could mean.
    assert_eq!(*model.written.lock(), ["operation r", "operation s", "mutation r"]);
}

/// A client may send it with other mutations, which count.
#[tokio::test]
async fn an_increment_or_append_without_columns_does_nothing() {
    let model = Model::new(&[""]);
    let front_end = model.front_end(&Pool::default());
    let (mut client, _served) = Client::connect(&front_end, 1 << 20, None).await;
    let empty = |index: u32, kind: MutationType| Action {
        index: Some(index),
        mutation: Some(MutationProto {
            row: Some("r".into()),
            mutate_type: Some(kind as i32),
            ..MutationProto::default()
        }),
        ..Action::default()
    };
    let (increment, append) = (empty(0, MutationType::Increment), empty(1, MutationType::Append));
    for atomic in [false, true] {
        let mut request = batch(&model, vec![increment.clone(), append.clone(), put(2, "info")]);
        request.region_action[0].atomic = Some(atomic);
        let found: MultiResponse = message(&client.call("Multi", &request).await);
        let result = &found.region_action_result[0];
        let results = &result.result_or_exception;
        let failed = results.iter().find_map(|result| result.exception.as_ref());
        assert_eq!((results.len(), failed, &result.exception), (3, None, &None), "{atomic}");
    }
    for mutation in [increment.mutation, append.mutation].into_iter().flatten() {
        let request = MutateRequest {
            region: model.region("r"),
            mutation,
            condition: None,
            nonce_group: None,
        };
        let found: MutateResponse = message(&client.call("Mutate", &request).await);
        assert_eq!(found.result.and_then(|result| result.associated_cell_count), Some(0));
    }
    assert_eq!(
        model.steps.lock().len() + model.mutations.lock().len(),
        2,
        "the two puts"
    );
    // HBase's clients refuse one.
    let request = batch(&model, vec![empty(0, MutationType::Put)]);
    let found: MultiResponse = message(&client.call("Multi", &request).await);
    let refused = &found.region_action_result[0].result_or_exception[0];
    assert!(refused.exception.is_some(), "a put without columns");
}

/// Clients look a column up by binary search. Numbers of families have the order in which they were made.
#[test]
fn results_of_one_change_are_sorted_by_column() {
    let mut schema = TableSchema::new(TableId(1), TableName::new("default", "t"));
    for (id, name) in [(1, "z"), (2, "a")] {
        let family = Family {
            name: name.to_owned(),
            gc_rule: None,
            value_type: ValueType::Bytes,
            deletes: Deletes::default(),
            group: GroupId(0),
            front_end_data: Vec::new(),
        };
        schema.families.insert(FamilyId(id), family);
    }
    let change = |columns: &[(u32, &'static str)]| RowChange {
        row: "r".into(),
        kind: MutationType::Increment,
        steps: columns
            .iter()
            .map(|(family, qualifier)| {
                let operation = RmwOperation::Increment(1);
                Step::Modify(RmwRule::new(FamilyId(*family), (*qualifier).into(), operation))
            })
            .collect(),
        returns: true,
        durability: None,
        token: None,
    };
    let changes = [change(&[(1, "y"), (1, ""), (2, "q")]), change(&[(2, "b")])];
    let returned = super::returned_columns(&schema, &changes);
    let returned: Vec<(u32, &[u8])> = returned
        .iter()
        .map(|(family, column)| (family.0, &column[..]))
        .collect();
    assert_eq!(returned, [(2, &b"q"[..]), (1, b""), (1, b"y"), (2, b"b")]);
}
