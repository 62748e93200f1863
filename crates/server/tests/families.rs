//! Thousands of families in one table, through the Bigtable API of a real process.

use crate::support::server;

use googleapis_tonic_google_bigtable_v2::google::bigtable::v2;
use server::Server;
use stele_adminapi::{Change, Modification, Options};
use stele_cli::client::admin::NewFamily;
use stele_cli::client::read::ReadQuery;
use stele_cli::client::{Client, TableRef};
use v2::mutate_rows_request::Entry;
use v2::mutation::{Mutation, SetCell};
use v2::row_filter::Filter;

/// HBase has been seen to time out at 550.
const FAMILIES: usize = 5_000;

fn name(number: usize) -> String {
    format!("f{number:04}")
}

fn family(number: usize) -> NewFamily {
    NewFamily {
        name: name(number),
        versions_max: Some(1),
    }
}

fn set(number: usize) -> v2::Mutation {
    v2::Mutation {
        mutation: Some(Mutation::SetCell(SetCell {
            family_name: name(number),
            column_qualifier: "q".into(),
            timestamp_micros: 1_000,
            value: number.to_string().into(),
        })),
    }
}

/// The families of all cells of the table, as far as the filter lets them through.
async fn read(client: &Client, table: &TableRef, filter: Option<Filter>) -> Vec<String> {
    let filter = filter.map(|filter| v2::RowFilter { filter: Some(filter) });
    let mut rows = client.read_rows(
        table,
        ReadQuery {
            filter,
            ..ReadQuery::default()
        },
    );
    let mut families = Vec::new();
    while let Some(row) = rows.next().await.unwrap() {
        families.extend(row.cells.into_iter().map(|cell| cell.family.to_string()));
    }
    families
}

#[tokio::test]
async fn five_thousand_families_in_two_groups_survive_a_kill() {
    let scratch = tempfile::tempdir().unwrap();
    let data = scratch.path().join("data");
    let table: TableRef = "main/wide".parse().unwrap();
    let all: Vec<NewFamily> = (0..FAMILIES).map(family).collect();
    let expected: Vec<String> = (0..FAMILIES).map(name).collect();
    let by_name = || Some(Filter::FamilyNameRegexFilter("f0007|f4999".into()));

    let server = Server::start(&data, &["--memory", "128MiB"]);
    let client = Client::connect(&server.bigtable, "stele").await.unwrap();
    assert!(client.create_table(&table, &all[..FAMILIES / 2], &[]).await.unwrap());
    client.create_families(&table, &all[FAMILIES / 2..]).await.unwrap();
    let entry = Entry {
        row_key: "row".into(),
        mutations: (0..FAMILIES).map(set).collect(),
        ..Entry::default()
    };
    assert!(client.mutate_rows(&table, &[entry]).await.unwrap().is_empty());
    assert_eq!(read(&client, &table, None).await, expected);
    assert_eq!(read(&client, &table, by_name()).await, ["f0007", "f4999"]);
    // Half of them move to a group of their own, with their cells.
    let modification = |change| Modification {
        group: "odd".to_owned(),
        change: Some(change),
    };
    let mut changes = vec![modification(Change::Create(Options::default()))];
    changes.extend(
        (1..FAMILIES)
            .step_by(2)
            .map(|n| modification(Change::MoveFamily(name(n)))),
    );
    let groups = client.modify_locality_groups(&table, changes).await.unwrap();
    assert_eq!(
        (groups[0].families.len(), groups[1].families.len()),
        (FAMILIES / 2, FAMILIES / 2)
    );
    assert_eq!(read(&client, &table, by_name()).await, ["f0007", "f4999"]);
    drop(server);

    let server = Server::start(&data, &["--memory", "128MiB"]);
    let client = Client::connect(&server.bigtable, "stele").await.unwrap();
    assert_eq!(read(&client, &table, None).await, expected);
    assert_eq!(read(&client, &table, by_name()).await, ["f0007", "f4999"]);
    drop(server);
}
