use super::*;
use std::pin::pin;
use stele_types::{ErrorKind, TableName};
use v2::mutate_rows_request::Entry;
use v2::value::Kind as ValueKind;

fn mutate(row: &'static str, mutations: Vec<v2::Mutation>) -> v2::MutateRowRequest {
    v2::MutateRowRequest {
        table_name: TABLE.into(),
        row_key: row.into(),
        mutations,
        ..Default::default()
    }
}

async fn entry_codes(harness: &Harness, entries: Vec<Entry>) -> Result<Vec<(i64, i32)>, Status> {
    let request = v2::MutateRowsRequest {
        table_name: TABLE.into(),
        entries,
        ..Default::default()
    };
    let mut stream = harness.data().mutate_rows(request).await?.into_inner();
    let mut codes = Vec::new();
    while let Some(response) = stream.message().await? {
        codes.extend(
            response
                .entries
                .iter()
                .map(|e| (e.index, e.status.as_ref().unwrap().code)),
        );
    }
    Ok(codes)
}

async fn matches(harness: &Harness, row: &'static str) -> bool {
    let check = v2::CheckAndMutateRowRequest {
        table_name: TABLE.into(),
        row_key: row.into(),
        false_mutations: vec![set("f", "seen", 0, "")],
        ..Default::default()
    };
    harness
        .data()
        .check_and_mutate_row(check)
        .await
        .unwrap()
        .into_inner()
        .predicate_matched
}

#[tokio::test]
async fn a_bad_mutation_applies_nothing() {
    let harness = Harness::with_table().await;
    let half_bad = mutate("r", vec![set("f", "q", 0, "v"), set("none", "q", 0, "v")]);
    let error = harness.data().mutate_row(half_bad).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    assert!(error.message().contains("Requested column family not found"), "{error}");
    assert!(!matches(&harness, "r").await);
    for (request, expected) in [
        (mutate("r", vec![]), Code::InvalidArgument),
        (mutate("", vec![set("f", "q", 0, "v")]), Code::InvalidArgument),
        (mutate("r", vec![set("f", "q", 1, "v")]), Code::InvalidArgument),
        (mutate("r", vec![set("f", "q", -1, "v")]), Code::Ok),
    ] {
        assert_eq!(code(harness.data().mutate_row(request).await), expected);
    }
}

#[tokio::test]
async fn entries_fail_one_by_one() {
    let harness = Harness::with_table().await;
    let entry = |row: &'static str, mutations| Entry {
        row_key: row.into(),
        mutations,
        idempotency: None,
    };
    let entries = vec![
        entry("a", vec![set("f", "q", 0, "v")]),
        entry("b", vec![set("none", "q", 0, "v")]),
        entry("", vec![set("f", "q", 0, "v")]),
        entry("c", vec![]),
        entry("d", vec![set("f", "q", 0, "v")]),
    ];
    let (ok, invalid, not_found) = (Code::Ok as i32, Code::InvalidArgument as i32, Code::NotFound as i32);
    assert_eq!(
        entry_codes(&harness, entries).await.unwrap(),
        [(0, ok), (1, not_found), (2, invalid), (3, invalid), (4, ok)]
    );
    assert!(matches(&harness, "a").await && !matches(&harness, "b").await && matches(&harness, "d").await);
    assert_eq!(code(entry_codes(&harness, vec![]).await), Code::InvalidArgument);
    assert_eq!(
        code(entry_codes(&harness, vec![entry("a", vec![])]).await),
        Code::InvalidArgument
    );
    let many = vec![entry("a", vec![set("f", "q", 0, "v"); 100_001])];
    assert_eq!(code(entry_codes(&harness, many).await), Code::InvalidArgument);
    let all_bad = vec![entry("", vec![set("f", "q", 0, "v")])];
    assert_eq!(entry_codes(&harness, all_bad).await.unwrap(), [(0, invalid)]);
}

#[tokio::test]
async fn deletes_of_rows_are_charged_for_every_family() {
    let harness = Harness::with_limits(CallLimits {
        request_bytes_max: 100 << 20,
        overdraft_request_bytes: 0,
        ..CallLimits::default()
    });
    let mut request = table_request("t");
    if let Some(table) = &mut request.table {
        table.column_families = (0..100).map(|n| (format!("f{n}"), Default::default())).collect();
    }
    harness.tables().create_table(request).await.unwrap();
    let delete = || v2::Mutation {
        mutation: Some(Kind::DeleteFromRow(Default::default())),
    };
    let many = || mutate("r", vec![delete(); 100_000]);
    assert_eq!(
        code(harness.data().mutate_row(many()).await),
        Code::Ok,
        "one tombstone each"
    );
    harness.fake.keep_deleted(&TableName::new("i", "t"));
    assert_eq!(code(harness.data().mutate_row(many()).await), Code::ResourceExhausted);
    let entries = vec![Entry {
        row_key: "r".into(),
        mutations: vec![delete(); 100_000],
        idempotency: None,
    }];
    assert_eq!(code(entry_codes(&harness, entries).await), Code::ResourceExhausted);
    let check = v2::CheckAndMutateRowRequest {
        table_name: TABLE.into(),
        row_key: "r".into(),
        false_mutations: vec![delete(); 100_000],
        ..Default::default()
    };
    assert_eq!(
        code(harness.data().check_and_mutate_row(check).await),
        Code::ResourceExhausted
    );
    assert_eq!(
        code(harness.data().mutate_row(mutate("r", vec![delete(); 10])).await),
        Code::Ok
    );
}

#[tokio::test]
async fn a_request_is_checked_before_its_table() {
    let harness = Harness::with_table().await;
    let none = v2::MutateRowRequest {
        table_name: TABLE.replace("tables/", "tables/no-"),
        ..mutate("r", Vec::new())
    };
    assert_eq!(
        code(harness.data().mutate_row(none.clone()).await),
        Code::InvalidArgument
    );
    let some = v2::MutateRowRequest {
        mutations: vec![set("f", "q", 0, "v")],
        ..none
    };
    assert_eq!(code(harness.data().mutate_row(some).await), Code::NotFound);
}

#[tokio::test]
async fn errors_of_the_service_interface_keep_their_kind() {
    let harness = Harness::with_table().await;
    for (kind, expected) in [
        (ErrorKind::Busy, Code::Unavailable),
        (ErrorKind::Unavailable, Code::Unavailable),
        (ErrorKind::ResourceExhausted, Code::ResourceExhausted),
        (ErrorKind::Corruption, Code::DataLoss),
    ] {
        harness.fake.fail_next(kind);
        let request = mutate("r", vec![set("f", "q", 0, "v")]);
        assert_eq!(code(harness.data().mutate_row(request).await), expected);
    }
}

#[tokio::test]
async fn conditions_choose_the_branch() {
    let harness = Harness::with_table().await;
    let check = |yes, no| v2::CheckAndMutateRowRequest {
        table_name: TABLE.into(),
        row_key: "r".into(),
        true_mutations: yes,
        false_mutations: no,
        ..Default::default()
    };
    let write = || vec![set("f", "q", 0, "")];
    assert_eq!(
        code(harness.data().check_and_mutate_row(check(vec![], vec![])).await),
        Code::InvalidArgument
    );
    let answer = harness
        .data()
        .check_and_mutate_row(check(vec![], write()))
        .await
        .unwrap()
        .into_inner();
    assert!(!answer.predicate_matched);
    let answer = harness
        .data()
        .check_and_mutate_row(check(write(), vec![]))
        .await
        .unwrap()
        .into_inner();
    assert!(answer.predicate_matched, "a cell with an empty value is a cell");
    let keyless = v2::CheckAndMutateRowRequest {
        row_key: Bytes::new(),
        ..check(write(), vec![])
    };
    assert_eq!(
        code(harness.data().check_and_mutate_row(keyless).await),
        Code::InvalidArgument
    );
    let bad_branch = check(write(), vec![set("none", "q", 0, "")]);
    assert_eq!(
        code(harness.data().check_and_mutate_row(bad_branch).await),
        Code::NotFound
    );
}

#[tokio::test]
async fn read_modify_write_returns_what_it_wrote() {
    use v2::read_modify_write_rule::Rule;
    let harness = Harness::with_table().await;
    let rule = |qualifier: &'static str, rule| v2::ReadModifyWriteRule {
        family_name: "f".into(),
        column_qualifier: qualifier.into(),
        rule: Some(rule),
    };
    let request = |rules| v2::ReadModifyWriteRowRequest {
        table_name: TABLE.into(),
        row_key: "r".into(),
        rules,
        ..Default::default()
    };
    let rules = vec![
        rule("n", Rule::IncrementAmount(40)),
        rule("s", Rule::AppendValue("x".into())),
        rule("n", Rule::IncrementAmount(2)),
    ];
    let row = harness
        .data()
        .read_modify_write_row(request(rules))
        .await
        .unwrap()
        .into_inner()
        .row
        .unwrap();
    assert_eq!(row.key, "r");
    let columns = &row.families[0].columns;
    assert_eq!(columns.len(), 2);
    assert_eq!(columns[0].cells[0].value[..], 42i64.to_be_bytes());
    assert_eq!(columns[1].cells[0].value, "x");
    let on_text = request(vec![rule("s", Rule::IncrementAmount(1))]);
    assert_eq!(
        code(harness.data().read_modify_write_row(on_text).await),
        Code::InvalidArgument
    );
    assert_eq!(
        code(harness.data().read_modify_write_row(request(vec![])).await),
        Code::InvalidArgument
    );
}

#[tokio::test]
async fn sums_add_up() {
    let harness = Harness::with_table().await;
    let value = |kind| {
        Some(v2::Value {
            r#type: None,
            kind: Some(kind),
        })
    };
    for amount in [40, 2] {
        let add = v2::mutation::AddToCell {
            family_name: "sum".into(),
            column_qualifier: value(ValueKind::RawValue("q".into())),
            timestamp: value(ValueKind::RawTimestampMicros(0)),
            input: value(ValueKind::IntValue(amount)),
        };
        let add = v2::Mutation {
            mutation: Some(Kind::AddToCell(add)),
        };
        harness.data().mutate_row(mutate("r", vec![add])).await.unwrap();
    }
    let read = v2::ReadRowsRequest {
        table_name: TABLE.into(),
        ..Default::default()
    };
    let mut stream = harness.data().read_rows(read).await.unwrap().into_inner();
    let response = stream.message().await.unwrap().unwrap();
    assert_eq!(response.chunks[0].value[..], 42i64.to_be_bytes());
}

/// Adds to a cell of the aggregate family.
fn add(amount: i64) -> v2::Mutation {
    let value = |kind| {
        Some(v2::Value {
            kind: Some(kind),
            ..Default::default()
        })
    };
    let add = v2::mutation::AddToCell {
        family_name: "sum".into(),
        column_qualifier: value(ValueKind::RawValue("q".into())),
        timestamp: value(ValueKind::RawTimestampMicros(0)),
        input: value(ValueKind::IntValue(amount)),
    };
    v2::Mutation {
        mutation: Some(Kind::AddToCell(add)),
    }
}

fn idempotency(token: &'static str, seconds: i64) -> Option<v2::Idempotency> {
    Some(v2::Idempotency {
        token: token.into(),
        start_time: Some(prost_types::Timestamp { seconds, nanos: 5_000 }),
    })
}

async fn sum_of(harness: &Harness, row: &'static str) -> i64 {
    let read = v2::ReadRowsRequest {
        table_name: TABLE.into(),
        rows: Some(v2::RowSet {
            row_keys: vec![row.into()],
            row_ranges: Vec::new(),
        }),
        ..Default::default()
    };
    let mut stream = harness.data().read_rows(read).await.unwrap().into_inner();
    let response = stream.message().await.unwrap().unwrap();
    // The aggregate family comes behind the others.
    let sum = response.chunks.last().unwrap();
    i64::from_be_bytes(sum.value[..].try_into().unwrap())
}

#[tokio::test]
async fn an_addition_with_a_token_counts_once() {
    let harness = Harness::with_table().await;
    let request = |token, row| v2::MutateRowRequest {
        idempotency: idempotency(token, 1_700_000_000),
        ..mutate(row, vec![set("f", "q", 0, "v"), add(5)])
    };
    for token in ["token-01", "token-01", "token-02", "token-02"] {
        harness.data().mutate_row(request(token, "r")).await.unwrap();
    }
    assert_eq!(sum_of(&harness, "r").await, 10);
    // A token without a date, or with a date of zero, is never too old.
    for start_time in [None, Some(prost_types::Timestamp::default())] {
        let undated = v2::MutateRowRequest {
            idempotency: Some(v2::Idempotency {
                token: "token-04".into(),
                start_time,
            }),
            ..mutate("u", vec![add(5)])
        };
        harness.data().mutate_row(undated).await.unwrap();
    }
    assert_eq!(sum_of(&harness, "u").await, 5);
    let entry = |row: &'static str, mutation, idempotency| Entry {
        row_key: row.into(),
        mutations: vec![mutation],
        idempotency,
    };
    let (token, short) = (idempotency("token-03", 1_700_000_000), idempotency("token", 1));
    let entries = || {
        vec![
            entry("a", set("f", "q", 0, "v"), token.clone()),
            entry("b", add(1), token.clone()),
            entry("c", add(1), short.clone()),
            entry("c", add(1), None),
            entry("d", add(1), token.clone()),
            entry("e", set("f", "q", 0, "v"), short.clone()),
        ]
    };
    for _ in 0..3 {
        let (ok, invalid) = (Code::Ok as i32, Code::InvalidArgument as i32);
        let codes = entry_codes(&harness, entries()).await.unwrap();
        assert_eq!(codes, [(0, ok), (1, ok), (2, invalid), (3, ok), (4, ok), (5, ok)]);
    }
    let mut sums = Vec::new();
    for row in ["b", "c", "d"] {
        sums.push(sum_of(&harness, row).await);
    }
    assert_eq!(sums, [1, 3, 1]);
}

#[tokio::test]
async fn a_token_of_a_wrong_length_or_date_is_refused_where_it_counts() {
    let harness = Harness::with_table().await;
    for idempotency in [
        idempotency("token-01", -1),
        idempotency("token-01", i64::MAX),
        idempotency("token-0", 1_700_000_000),
        Some(v2::Idempotency {
            token: vec![1; 257].into(),
            ..idempotency("", 1).unwrap()
        }),
    ] {
        let request = |mutation| v2::MutateRowRequest {
            idempotency: idempotency.clone(),
            ..mutate("r", vec![mutation])
        };
        let (added, put) = (request(add(5)), request(set("f", "q", 0, "v")));
        assert_eq!(code(harness.data().mutate_row(added).await), Code::InvalidArgument);
        assert_eq!(code(harness.data().mutate_row(put).await), Code::Ok);
    }
}

/// Families have the same numbers in every table.
#[tokio::test]
async fn a_write_does_not_land_in_a_table_that_has_taken_the_name() {
    let harness = Harness::with_table().await;
    let waits = harness.fake.writes.lock().await;
    let (mut plain, mut conditional) = (harness.data(), harness.data());
    let mut plain = pin!(plain.mutate_row(mutate("r", vec![set("f", "q", 0, "v")])));
    let mut conditional = pin!(conditional.check_and_mutate_row(v2::CheckAndMutateRowRequest {
        table_name: TABLE.into(),
        row_key: "s".into(),
        false_mutations: vec![set("f", "q", 0, "v")],
        ..Default::default()
    }));
    let env = TokioRuntime::current();
    for _ in 0..10 {
        assert!(futures::poll!(&mut plain).is_pending() && futures::poll!(&mut conditional).is_pending());
        env.yield_now().await;
    }
    let dropped = admin::DeleteTableRequest { name: TABLE.into() };
    harness.tables().delete_table(dropped).await.unwrap();
    let mut other = table_request("t");
    if let Some(table) = &mut other.table {
        table.column_families.remove("f");
    }
    harness.tables().create_table(other).await.unwrap();
    drop(waits);
    assert_eq!(code(plain.await), Code::NotFound);
    assert_eq!(code(conditional.await), Code::NotFound);
}
