use super::*;
use crate::test_service::Model;
use stele_env::tokio_env::TokioRuntime;
use stele_types::{FamilyId, Timestamp};
use stele_wire::messages::{BINARY_COMPARATOR, ByteArrayComparable, ValueComparator};

/// Whether the newest value of `info:q` is less than `m`.
fn less_than_m() -> messages::Condition {
    let comparator = ValueComparator {
        comparable: ByteArrayComparable {
            value: Some(Bytes::from_static(b"m")),
        },
    };
    messages::Condition {
        row: Bytes::from_static(b"row"),
        family: Some(Bytes::from_static(b"info")),
        qualifier: Some(Bytes::from_static(b"q")),
        // The given value is greater than the stored one.
        compare_type: Some(CompareType::Greater as i32),
        comparator: Some(messages::Comparator {
            name: Bytes::from_static(BINARY_COMPARATOR.as_bytes()),
            serialized_comparator: Some(comparator.encode_to_vec().into()),
        }),
        ..messages::Condition::default()
    }
}

#[tokio::test]
async fn a_condition_means_the_same_on_the_server_of_the_row() {
    let (env, pool, schema) = (
        TokioRuntime::current(),
        Pool::default(),
        Model::new(&[""]).schema.clone(),
    );
    let tests = ConditionTests::new(env.clone(), &pool);
    let memory = pool.of(Part::Responses);
    let condition = decode((&env, &memory), &schema, &less_than_m()).ok().unwrap();
    let ConditionTest::Cells(test) = condition.test else {
        unreachable!("a value is compared");
    };
    let encoded = test.encoded().unwrap();
    let again = tests.decode(&schema, &encoded).unwrap();
    for (value, holds) in [("a", true), ("m", false), ("z", false)] {
        let cell = Cell::put(FamilyId(1), Bytes::from_static(b"q"), Timestamp(5), value.into());
        let decided = Ok((holds, Some(Timestamp(5))));
        assert_eq!(test.decide(std::slice::from_ref(&cell)), decided, "{value}");
        assert_eq!(again.decide(&[cell]), decided, "{value}");
    }
    assert_eq!(again.encoded(), Some(encoded.clone()));

    let unknown = EncodedTest {
        language: 9,
        ..encoded.clone()
    };
    let malformed = EncodedTest {
        test: Bytes::from_static(b"\xff"),
        ..encoded
    };
    let kind = |encoded: &EncodedTest| tests.decode(&schema, encoded).err().map(|error| error.kind);
    assert_eq!(kind(&unknown), Some(ErrorKind::Unimplemented));
    assert_eq!(kind(&malformed), Some(ErrorKind::InvalidArgument));
}

/// Such a qualifier is not part of the read, which then finds other columns of the family.
#[tokio::test]
async fn a_condition_on_a_qualifier_of_any_length_sees_its_column_only() {
    let (env, pool, schema) = (
        TokioRuntime::current(),
        Pool::default(),
        Model::new(&[""]).schema.clone(),
    );
    let memory = pool.of(Part::Responses);
    let cell = |qualifier: &Bytes| Cell::put(FamilyId(1), qualifier.clone(), Timestamp(5), Bytes::from_static(b"a"));
    for bytes in [1, 30 << 10, 1 << 20] {
        let qualifier = Bytes::from(vec![b'x'; bytes]);
        let given = messages::Condition {
            qualifier: Some(qualifier.clone()),
            ..less_than_m()
        };
        let condition = decode((&env, &memory), &schema, &given).ok().unwrap();
        let ConditionTest::Cells(test) = condition.test else {
            unreachable!("a value is compared");
        };
        condition.reads.unwrap().compile(&schema).unwrap();
        let other = cell(&Bytes::from_static(b"q"));
        let holds = |cells: &[Cell]| test.decide(cells).map(|(holds, _)| holds);
        assert_eq!(holds(std::slice::from_ref(&other)), Ok(false));
        assert_eq!(holds(&[other, cell(&qualifier)]), Ok(true));
    }
}
