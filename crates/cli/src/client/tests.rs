//! Tests of names and headers, and of repetitions against a server that fails.

use super::*;
use fake::Fake;

fn table() -> TableRef {
    "i/t".parse().unwrap()
}

#[tokio::test]
async fn a_restore_of_unknown_outcome_is_not_repeated() {
    for code in [Code::Aborted, Code::DeadlineExceeded, Code::Cancelled] {
        let (fake, client) = Fake::start(stele_adminapi::RESTORE_SNAPSHOT_PATH, &[Some(code)]).await;
        let failed = client.restore_snapshot(&"i/s".parse().unwrap(), &table(), true).await;
        let said = format!("{:#}", failed.unwrap_err());
        assert_eq!(fake.calls(), 1, "{said}");
        assert!(
            said.contains("not known") && said.contains("`stele scan i/t`"),
            "{said}"
        );
    }
}

#[tokio::test]
async fn a_change_that_was_not_begun_is_repeated() {
    let drop_table = "/google.bigtable.admin.v2.BigtableTableAdmin/DeleteTable";
    let (fake, client) = Fake::start(
        drop_table,
        &[Some(Code::Unavailable), Some(Code::Unavailable), Some(Code::Aborted)],
    )
    .await;
    let said = format!("{:#}", client.drop_table(&table()).await.unwrap_err());
    assert_eq!(fake.calls(), 3, "{said}");
    assert!(said.contains("`stele tables i`"), "{said}");
    let (fake, client) = Fake::start(drop_table, &[Some(Code::NotFound)]).await;
    let said = format!("{:#}", client.drop_table(&table()).await.unwrap_err());
    assert_eq!(
        (fake.calls(), &*said),
        (1, "cannot drop i/t: NotFound: said the server")
    );
}

#[tokio::test]
async fn reads_and_dated_writes_are_repeated() {
    let get_table = "/google.bigtable.admin.v2.BigtableTableAdmin/GetTable";
    let (fake, client) = Fake::start(get_table, &[Some(Code::Aborted), Some(Code::Cancelled)]).await;
    assert_eq!(client.get_table(&table()).await.unwrap(), None);
    assert_eq!(fake.calls(), 3);
}

#[tokio::test]
async fn a_deletion_of_unknown_outcome_is_not_repeated() {
    let mutate_rows = "/google.bigtable.v2.Bigtable/MutateRows";
    let entry = || Entry {
        row_key: "r".into(),
        ..Entry::default()
    };
    let (fake, client) = Fake::start(mutate_rows, &[Some(Code::Unavailable), Some(Code::Aborted)]).await;
    let failed = client.mutate_row_once(&table(), entry()).await.unwrap_err();
    assert_eq!((fake.calls(), failed.code()), (2, Code::Aborted));
    let (fake, client) = Fake::start(mutate_rows, &[Some(Code::Unavailable), Some(Code::Aborted)]).await;
    let failed = client.mutate_row(&table(), entry()).await.unwrap_err();
    assert_eq!((fake.calls(), failed.code()), (3, Code::NotFound));
}

#[test]
fn tables_are_named_in_two_parts() {
    let table: TableRef = "debian/packages".parse().unwrap();
    assert_eq!((&*table.instance, &*table.table), ("debian", "packages"));
    assert_eq!(table.to_string(), "debian/packages");
    for bad in ["packages", "/packages", "debian/", "a/b/c", ""] {
        assert!(bad.parse::<TableRef>().is_err(), "{bad}");
    }
}

#[test]
fn the_features_header_decodes() {
    let header = Features::new(None).unwrap().features;
    let bytes = URL_SAFE.decode(header.as_bytes()).unwrap();
    let flags = v2::FeatureFlags::decode(&bytes[..]).unwrap();
    assert!(flags.reverse_scans && flags.last_scanned_row_responses && !flags.routing_cookie);
}

#[test]
fn routing_header_is_encoded() {
    let request = routed("projects/p/instances/i/tables/t", ());
    let header = request.metadata().get("x-goog-request-params").unwrap();
    assert_eq!(header, "table_name=projects%2Fp%2Finstances%2Fi%2Ftables%2Ft");
}
