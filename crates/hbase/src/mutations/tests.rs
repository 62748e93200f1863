//! Mutations through the front end, over a table in memory.

use super::{Converter, FamilySearch, atomic};
use crate::pace::Pace;
use crate::test_service::{Client, Model, count_turns, failure, message};
use bytes::{Bytes, BytesMut};
use std::sync::Arc;
use stele_client::Step;
use stele_env::tokio_env::TokioRuntime;
use stele_memory::Pool;
use stele_types::schema::Family;
use stele_types::{DeleteRule, FamilyId, Mutation, TimeUnit, Timestamp};
use stele_wire::cell::{Cell, CellReader, CellRef, CellType};
use stele_wire::exception;
use stele_wire::messages::{
    Action, ColumnValue, DeleteType, MultiRequest, MultiResponse, MutateRequest, MutationProto, MutationType,
    NameBytesPair, QualifierValue, RegionAction,
};

/// A delete of row `r` that deletes columns of family `info`, at its own time.
fn delete(columns: &[&str], kind: DeleteType, timestamp: Option<u64>) -> MutationProto {
    let column = |name: &&str| QualifierValue {
        qualifier: Some(name.to_string().into()),
        delete_type: Some(kind as i32),
        timestamp,
        ..QualifierValue::default()
    };
    MutationProto {
        row: Some("r".into()),
        mutate_type: Some(MutationType::Delete as i32),
        column_value: vec![ColumnValue {
            family: "info".into(),
            qualifier_value: columns.iter().map(column).collect(),
        }],
        ..MutationProto::default()
    }
}

/// Each mutation of an atomic batch sees the row as it was before the batch.
#[tokio::test]
async fn deletes_of_a_newest_version_count_in_each_mutation_anew() {
    let cases: [(&[&[&str]], &str); 4] = [
        (&[&["q"], &["q"]], "q"),
        (&[&["q", "q"]], "qq"),
        (&[&["q"], &["p", "q", "q"], &["q"]], "qpq"),
        (&[&["q", "q", "q"], &["q", "q"], &["p"]], "qqqp"),
    ];
    for (mutations, deleted) in cases {
        let model = Model::new(&[""]);
        let front_end = model.front_end(&Pool::default());
        let (mut client, _served) = Client::connect(&front_end, 1 << 20, None).await;
        let action = |columns: &&[&str]| Action {
            mutation: Some(delete(columns, DeleteType::OneVersion, None)),
            ..Action::default()
        };
        let request = MultiRequest {
            region_action: vec![RegionAction {
                region: model.region("r"),
                atomic: Some(true),
                action: mutations.iter().map(action).collect(),
                ..RegionAction::default()
            }],
            ..MultiRequest::default()
        };
        let response = client.call("Multi", &request).await;
        assert!(response.header.exception.is_none(), "{}", failure(&response));
        let steps = std::mem::take(&mut *model.steps.lock());
        let columns = steps.iter().map(|step| match step {
            Step::DeleteNewest { qualifier, .. } => String::from_utf8_lossy(qualifier),
            other => unreachable!("another step: {other:?}"),
        });
        assert_eq!(columns.collect::<String>(), deleted, "{mutations:?}");
    }
}

/// In HBase the writes of one change have one sequence number, and a delete hides its own.
#[test]
fn a_delete_by_sequence_hides_the_puts_of_its_change_in_either_order() {
    let mut schema = stele_types::TableSchema::clone(&Model::new(&[""]).schema);
    let (qualifier, timestamp) = (Bytes::from_static(b"q"), Timestamp(5));
    let family = FamilyId(1);
    let put = Step::Mutate(Mutation::Put {
        family,
        qualifier: qualifier.clone(),
        timestamp,
        value: Bytes::new(),
    });
    let deletes = [
        Step::MutateNow(Mutation::DeleteFamily {
            family,
            up_to: timestamp,
        }),
        Step::DeleteNewest { family, qualifier },
    ];
    for rule in [None, Some(DeleteRule::ByTimestamp), Some(DeleteRule::BySequence)] {
        if let Some(family) = schema.families.get_mut(&family) {
            family.deletes.rule = rule;
        }
        for delete in &deletes {
            let steps = atomic(&schema, [vec![delete.clone()], vec![put.clone()]]);
            let is_put_first = matches!(steps[..], [Step::Mutate(Mutation::Put { .. }), _]);
            assert_eq!(
                is_put_first,
                rule == Some(DeleteRule::BySequence),
                "{rule:?} {delete:?}"
            );
            let steps = atomic(&schema, [vec![put.clone()], vec![delete.clone()]]);
            assert!(matches!(steps[..], [Step::Mutate(Mutation::Put { .. }), _]));
        }
    }
}

/// The time ranges of the mutations that a delete becomes, in a table that was made through another front end.
async fn ranges(granularity: i64, mutation: MutationProto) -> Vec<(i64, i64)> {
    let mut model = Model::new(&[""]);
    let schema = Arc::make_mut(&mut Arc::get_mut(&mut model).unwrap().schema);
    (schema.time_unit, schema.granularity) = (TimeUnit::Micros, granularity);
    let front_end = model.front_end(&Pool::default());
    let (mut client, _served) = Client::connect(&front_end, 1 << 20, None).await;
    let request = MutateRequest {
        region: model.region("r"),
        mutation,
        condition: None,
        nonce_group: None,
    };
    let response = client.call("Mutate", &request).await;
    assert!(response.header.exception.is_none(), "{}", failure(&response));
    let range = |mutation: &Mutation| match *mutation {
        Mutation::DeleteVersion { timestamp, .. } => (timestamp.0, timestamp.0),
        Mutation::DeleteColumn { from, to, .. } => (from.0, to.0),
        Mutation::DeleteFamily { up_to, .. } => (Timestamp::MIN.0, up_to.0),
        ref other => unreachable!("another mutation: {other:?}"),
    };
    let mutations = model.mutations.lock();
    mutations.iter().map(range).collect()
}

/// A client sees a cell of any microsecond at its whole millisecond.
#[tokio::test]
async fn a_delete_covers_all_cells_that_are_shown_at_its_time() {
    use DeleteType::{Family, MultipleVersions, OneVersion};
    let at = |kind| delete(&["q"], kind, Some(7));
    let from_first = |to: i64| vec![(Timestamp::MIN.0, to)];
    assert_eq!(ranges(1, at(OneVersion)).await, [(7_000, 7_999)]);
    assert_eq!(ranges(1, at(MultipleVersions)).await, from_first(7_999));
    assert_eq!(ranges(1, at(Family)).await, from_first(7_999));
    let whole = MutationProto {
        row: Some("r".into()),
        mutate_type: Some(MutationType::Delete as i32),
        timestamp: Some(7),
        ..MutationProto::default()
    };
    let of_row = ranges(1, whole.clone()).await;
    assert!(!of_row.is_empty() && of_row.iter().all(|range| *range == (Timestamp::MIN.0, 7_999)));
    // Such a table has cells at whole milliseconds only.
    assert_eq!(ranges(1_000, at(OneVersion)).await, [(7_000, 7_000)]);
    assert_eq!(ranges(1_000, at(MultipleVersions)).await, from_first(7_000));
    // The last millisecond there is.
    let last = i64::MAX / 1_000;
    let latest = delete(&["q"], MultipleVersions, Some(last as u64));
    assert_eq!(ranges(1, latest).await, from_first(i64::MAX));
}

/// A load takes no other deletes of a version.
#[test]
fn a_loaded_delete_of_a_version_is_at_one_time() {
    let mut schema = Model::new(&[""]).schema.as_ref().clone();
    (schema.time_unit, schema.granularity) = (TimeUnit::Micros, 1);
    let converter = Converter {
        schema: &schema,
        nonce_group: None,
        now: Timestamp(0),
        memory: None,
    };
    let time_of = |kind| {
        let cell = Cell {
            row: "r".into(),
            family: "info".into(),
            qualifier: "q".into(),
            timestamp: 7,
            kind,
            value: Bytes::new(),
        };
        match converter.loaded(cell, None, &mut FamilySearch::default()).unwrap().1 {
            Mutation::DeleteVersion { timestamp, .. } => timestamp.0,
            Mutation::DeleteColumn {
                from: Timestamp::MIN,
                to,
                ..
            } => to.0,
            other => unreachable!("another mutation: {other:?}"),
        }
    };
    assert_eq!(time_of(CellType::Delete), 7_000);
    assert_eq!(time_of(CellType::DeleteColumn), 7_999);
}

/// A table may have thousands of families, and one put a cell of each, over and over.
#[tokio::test]
async fn families_of_many_cells_are_not_scanned_for_each() {
    let mut schema = Model::new(&[""]).schema.as_ref().clone();
    let template = schema.families.values().next().unwrap().clone();
    let family = |n: u32| Family {
        name: format!("f{n}"),
        ..template.clone()
    };
    schema.families = (0..20_000).map(|n| (FamilyId(n), family(n))).collect();
    let mut block = BytesMut::new();
    for cell in 0..100_000 {
        let family = format!("f{}", 19_999 - cell % 20_000);
        let cell = CellRef {
            row: b"r",
            family: family.as_bytes(),
            qualifier: b"q",
            timestamp: 7,
            kind: CellType::Put,
            value: &[],
        };
        cell.encode(&mut block).unwrap();
    }
    let converter = Converter {
        schema: &schema,
        nonce_group: None,
        now: Timestamp(0),
        memory: None,
    };
    let put = MutationProto {
        row: Some("r".into()),
        mutate_type: Some(MutationType::Put as i32),
        associated_cell_count: Some(100_000),
        ..MutationProto::default()
    };
    let mut search = FamilySearch::default();
    let env = TokioRuntime::current();
    let (mut cells, mut pace) = (CellReader::new(block.freeze()), Pace::new(&env));
    let turns = count_turns();
    let change = converter.convert(put, &mut cells, &mut search, &mut pace).await;
    assert_eq!(change.unwrap().steps.len(), 100_000);
    assert!(turns.get() >= 25, "a pause every 2,000 cells; {} turns", turns.get());
    assert!((1..1_000_000).contains(&search.passed()), "{} names", search.passed());
}

/// A client that asks for such rights would take the cell for protected.
#[tokio::test]
async fn mutations_with_rights_on_cells_are_refused() {
    let kinds = [
        MutationType::Put,
        MutationType::Delete,
        MutationType::Increment,
        MutationType::Append,
    ];
    let cases = kinds
        .into_iter()
        .flat_map(|kind| ["acl", "VISIBILITY"].map(|name| (kind, name)));
    for (kind, attribute) in cases {
        let model = Model::new(&[""]);
        let (mut client, _served) = Client::connect(&model.front_end(&Pool::default()), 1 << 20, None).await;
        let mut mutation = MutationProto {
            mutate_type: Some(kind as i32),
            attribute: vec![NameBytesPair {
                name: attribute.to_owned(),
                value: Some(Bytes::from_static(b"x")),
            }],
            ..delete(&["q"], DeleteType::OneVersion, Some(7))
        };
        mutation.column_value[0].qualifier_value[0].value = Some(Bytes::from_static(&[0; 8]));
        let request = MutateRequest {
            region: model.region("r"),
            mutation: mutation.clone(),
            condition: None,
            nonce_group: None,
        };
        let refused = client.call("Mutate", &request).await;
        assert_eq!(failure(&refused), exception::DO_NOT_RETRY, "{kind:?} {attribute}");
        for atomic in [false, true] {
            let action = |attributes: &[NameBytesPair]| Action {
                mutation: Some(MutationProto {
                    attribute: attributes.to_vec(),
                    ..mutation.clone()
                }),
                ..Action::default()
            };
            let batch = MultiRequest {
                region_action: vec![RegionAction {
                    region: model.region("r"),
                    atomic: Some(atomic),
                    action: vec![action(&mutation.attribute)],
                    ..RegionAction::default()
                }],
                ..MultiRequest::default()
            };
            let answer: MultiResponse = message(&client.call("Multi", &batch).await);
            let of_region = &answer.region_action_result[0];
            let of_action = of_region
                .result_or_exception
                .first()
                .and_then(|found| found.exception.as_ref());
            let refused = of_region.exception.as_ref().or(of_action).expect("refused");
            assert_eq!(refused.name, exception::DO_NOT_RETRY);
            let text = String::from_utf8_lossy(refused.value.as_deref().unwrap_or_default()).into_owned();
            assert!(text.contains(attribute) && text.contains("not supported"), "{text}");
        }
        assert!(model.steps.lock().is_empty() && model.mutations.lock().is_empty());
    }
}
