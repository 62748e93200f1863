//! A device that cannot read some sectors: a repair saves the rest.

use super::*;
use std::ops::Bound;
use stele_client::ReadRows;
use stele_storage::past_unreadable::FILLER;
use stele_types::{ErrorKind, RowRange, RowSet};

/// Bytes that are lost with one that cannot be read.
const SECTOR: usize = 4 << 10;

fn of<'a>(rows: &'a [Bytes], letter: &'static [u8]) -> impl Iterator<Item = &'a Bytes> {
    rows.iter().filter(move |row| row.starts_with(letter))
}

#[tokio::test]
async fn a_sector_of_an_sstable_costs_its_rows_alone() {
    // In a block, in the footer, and in the first block as well as in the last.
    for places in [vec![50_000], vec![usize::MAX], vec![5_000, 100_000]] {
        let folder = folder().await;
        let path = folder.list("sst/").await.unwrap()[0].path.clone();
        let original = folder.read_all(&path).await.unwrap();
        let is_whole = places == [usize::MAX];
        for at in &places {
            let at = (*at).min(original.len() - 1) as u64;
            folder.make_unreadable(&path, at..at + 1);
        }
        assert!(check(folder.clone()).await.is_damaged());
        let (text, in_order) = run(&folder, true).await;
        assert!(in_order && text.contains(&path), "{text}");

        let (text, in_order) = run(&folder, false).await;
        assert!(in_order && text.contains("bytes that cannot be read"), "{text}");
        let kept = folder.read_all(&format!("damaged/{path}")).await.unwrap();
        assert_eq!(kept.len(), original.len());
        let changed = kept.iter().zip(&original).filter(|(kept, was)| kept != was);
        let changed: Vec<u8> = changed.map(|(kept, _)| *kept).collect();
        assert!(changed.len() <= places.len() * SECTOR && changed.iter().all(|byte| *byte == FILLER));

        let left = rows(&start(folder.clone()).await).await;
        assert_eq!(of(&left, b"p").count(), 20, "{text}");
        let expected = if is_whole { 3..4 } else { 10..23 };
        let found = of(&left, b"a").count();
        assert!(expected.contains(&found), "{found} rows left\n{text}");
    }
}

#[tokio::test]
async fn a_server_starts_on_a_file_that_it_cannot_open() {
    let folder = folder().await;
    let path = folder.list("sst/").await.unwrap()[0].path.clone();
    let len = folder.read_all(&path).await.unwrap().len() as u64;
    folder.make_unreadable(&path, len - 1..len);
    let node = start(folder.clone()).await;
    let read = |start: &'static str, end: &'static str| {
        let range = RowRange::from_bounds(Bound::Included(start.into()), Bound::Excluded(end.into()));
        let request = ReadRows::new(TableName::new("space", "table"), RowSet::new(vec![range]));
        node.service.read_rows(request)
    };
    let mut others = read("p", "q").await.unwrap();
    let mut found = 0;
    while let Some(batch) = others.next().await.unwrap() {
        found += batch.shared_rows().count();
    }
    assert_eq!(found, 20);
    let mut lost = read("a", "b").await.unwrap();
    let error = loop {
        match lost.next().await {
            Ok(Some(_)) => {}
            Ok(None) => unreachable!("rows are missing in silence"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind, ErrorKind::Corruption, "{error}");
}

#[tokio::test]
async fn a_sector_of_the_log_costs_its_records_alone() {
    for from_the_end in [9_000, 100] {
        let folder = folder().await;
        let path = log_with(&folder, b"a21").await;
        let len = folder.read_all(&path).await.unwrap().len() as u64;
        let at = len - from_the_end;
        folder.make_unreadable(&path, at..at + 1);
        assert!(check(folder.clone()).await.is_damaged(), "{from_the_end}");
        let (text, in_order) = run(&folder, true).await;
        assert!(in_order && text.contains("lost: "), "{text}");
        let (text, in_order) = run(&folder, false).await;
        assert!(in_order && text.contains("damaged/log/"), "{text}");
        let left = rows(&start(folder.clone()).await).await;
        // A sector lies in one record of 6 KB, or in two.
        assert!((41..43).contains(&left.len()), "{} rows left\n{text}", left.len());
    }
}

#[tokio::test]
async fn a_manifest_of_which_a_sector_cannot_be_read_is_a_damaged_one() {
    let folder = folder().await;
    let path = folder.list("tablets/").await.unwrap()[0].path.clone();
    folder.make_unreadable(&path, 30..31);
    let (text, in_order) = run(&folder, false).await;
    assert!(!in_order && text.contains("not done without --accept-loss"), "{text}");
    let (text, in_order) = run_as(&folder, ACCEPTING).await.unwrap();
    assert!(in_order, "{text}");
    assert_eq!(rows(&start(folder.clone()).await).await.len(), 43, "{text}");
}

#[tokio::test]
async fn the_catalog_gives_nothing_up_in_silence() {
    let folder = folder().await;
    let path = newest(&folder, "coord/log-").await;
    let len = folder.read_all(&path).await.unwrap().len() as u64;
    folder.make_unreadable(&path, len - 1..len);
    let (text, in_order) = run(&folder, false).await;
    assert!(
        !in_order && text.contains("say --accept-loss") && text.contains("lost: every change"),
        "{text}"
    );
    assert_eq!(folder.list("damaged/").await.unwrap(), []);
}

#[tokio::test]
async fn a_check_names_the_file_and_the_place() {
    for (prefix, at) in [("sst/", 50_000), ("tablets/", 30), ("log/", 9_000)] {
        let folder = folder().await;
        let path = match prefix {
            "log/" => log_with(&folder, b"a21").await,
            _ => folder.list(prefix).await.unwrap()[0].path.clone(),
        };
        folder.make_unreadable(&path, at..at + 1);
        let found = check(folder.clone()).await.findings;
        let is_it = |finding: &&crate::check::report::Finding| finding.file == path && finding.offset == Some(at);
        assert!(found.iter().any(|finding| is_it(&finding)), "{path} at {at}: {found:?}");
    }
}
