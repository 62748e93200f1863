use super::*;

#[test]
fn numbers_are_short() {
    assert_eq!(
        [0.0, 1234.56, 0.000123456, -99.999, 1e9].map(short),
        [0.0, 1235.0, 0.0001235, -100.0, 1e9]
    );
    assert!(short(f64::NAN).is_nan());
    assert_eq!(serde_json::to_string(&f64::NAN).unwrap(), "null");
}

#[test]
fn tables_have_two_names() {
    assert_eq!(table_name("a/b/c").unwrap(), TableName::new("a", "b/c"));
    for bad in ["a", "/b", "a/", ""] {
        assert_eq!(table_name(bad).unwrap_err().status, StatusCode::BAD_REQUEST, "{bad}");
    }
}

/// A table with a family `f`.
pub(super) fn schema() -> stele_types::TableSchema {
    use stele_types::*;
    let family = Family {
        name: "f".to_owned(),
        gc_rule: None,
        value_type: ValueType::Bytes,
        deletes: Default::default(),
        group: GroupId(0),
        front_end_data: Vec::new(),
    };
    TableSchema {
        families: [(FamilyId(1), family)].into(),
        next_family: FamilyId(2),
        ..TableSchema::new(TableId(1), TableName::new("n", "t"))
    }
}
