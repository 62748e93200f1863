//! Steps on rows, without a tablet.

use super::*;
use stele_client::RmwRule;
use stele_types::{Family, GroupId, TableId, TableName, ValueType};

const NOW: Timestamp = Timestamp(100);
const FAMILY: FamilyId = FamilyId(1);

/// The mutations of steps on a row with these cells, as text.
fn resolved(cells: &[Cell], steps: Vec<Step>) -> Vec<String> {
    let mut schema = TableSchema::new(TableId(1), TableName::new("n", "t"));
    let family = Family {
        name: "f".into(),
        gc_rule: None,
        value_type: ValueType::Bytes,
        deletes: Default::default(),
        group: GroupId(0),
        front_end_data: Vec::new(),
    };
    schema.families.insert(FAMILY, family);
    let times = Times { now: NOW, puts: NOW };
    let (mutations, _) = resolve(&schema, cells, steps, times, 1 << 20).expect("they apply");
    let show = |mutation: &Mutation| match mutation {
        Mutation::Put {
            qualifier, timestamp, ..
        } => format!("put {}@{}", qualifier.escape_ascii(), timestamp.0),
        Mutation::DeleteVersion {
            qualifier, timestamp, ..
        } => format!("delete {}@{}", qualifier.escape_ascii(), timestamp.0),
        other => unreachable!("another mutation: {other:?}"),
    };
    mutations.iter().map(show).collect()
}

fn delete(qualifier: &'static str) -> Step {
    Step::DeleteNewest {
        family: FAMILY,
        qualifier: qualifier.into(),
    }
}

fn put(qualifier: &'static str, timestamp: i64) -> Step {
    Step::Mutate(Mutation::Put {
        family: FAMILY,
        qualifier: qualifier.into(),
        timestamp: Timestamp(timestamp),
        value: "v".into(),
    })
}

fn increment(qualifier: &'static str) -> Step {
    Step::Modify(RmwRule::new(FAMILY, qualifier.into(), RmwOperation::Increment(1)))
}

/// In HBase it is a delete at the server's time.
#[test]
fn a_delete_of_a_version_that_is_not_there_hides_the_cell_of_its_own_operation() {
    let cells = [Cell::put(FAMILY, "there".into(), Timestamp(7), "v".into())];
    let steps = vec![
        delete("there"),
        delete("counted"),
        delete("put"),
        increment("counted"),
        put("put", NOW.0),
        put("there", NOW.0),
        delete("old"),
        put("old", 99),
        delete("no"),
    ];
    let expected = [
        "delete there@7",
        "delete counted@100",
        "delete put@100",
        "put counted@100",
        "put put@100",
        "put there@100",
        "put old@99",
    ];
    assert_eq!(resolved(&cells, steps), expected);
    assert_eq!(
        resolved(&cells, vec![delete("no"), delete("there")]),
        ["delete there@7"]
    );
    assert_eq!(resolved(&cells, vec![delete("no")]), [""; 0]);
}
