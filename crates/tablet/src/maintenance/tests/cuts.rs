//! Drops of rows use up a manifest's space, and rewriting files frees it.

use super::*;
use stele_types::key;

/// Rows with keys of 32 KB: a reference to each by itself has 64 KB of bounds.
const ROWS: usize = 300;

/// No file is in as many parts, or has as little left, as would cause a rewrite. But together their bounds take much of
/// the manifest: further drops of rows would be refused before long, and for ever.
#[tokio::test]
async fn bounds_that_fill_the_manifest_are_a_reason_to_compact() {
    let bench = Bench::of_files(1 << 20).await;
    let tablet = &bench.tablet;
    let long = "x".repeat(32_000);
    let row = |n: usize| Bytes::from(format!("{n:05}{long}"));
    (0..ROWS).for_each(|n| bench.write_row(row(n)));
    tablet.flush().await.unwrap();
    tablet.compact_all().await.unwrap();
    assert!(!tablet.compaction_due());

    let prefixes: Vec<Bytes> = (0..ROWS).map(|n| Bytes::from(key::row_prefix(&row(n)))).collect();
    let files = tablet.state().groups[0].files.clone();
    let begin = |file: &HeldFile| prefixes.iter().position(|row| file.first_key().starts_with(row));
    let begins: Vec<usize> = files.iter().map(|file| begin(file).unwrap()).collect();
    let ends = begins.iter().skip(1).copied().chain([ROWS]);
    let mut parts = Vec::new();
    for ((file, begin), end) in files.iter().zip(&begins).zip(ends) {
        assert!(end - begin < 60, "too many rows in one file");
        parts.extend((*begin..end).map(|n| FileRef {
            lower: Some(prefixes[n].clone()),
            upper: prefixes.get(n + 1).cloned(),
            referenced: file.reference.referenced / (end - begin) as u64,
            ..file.reference.clone()
        }));
    }
    let change = |manifest: &mut Manifest| manifest.set_files(GroupId(0), parts);
    tablet.commit((&[], None), change, |_| {}).await.unwrap();
    assert_eq!(tablet.state().groups[0].runs().count(), 1);

    let mut jobs = 0;
    while tablet.compact_if_due().await.unwrap() {
        jobs += 1;
        assert!(jobs < 100, "compactions do not come to an end");
    }
    assert!(
        (1..files.len()).contains(&jobs),
        "{jobs} of {} files rewritten",
        files.len()
    );
    assert!(!tablet.state().is_cut_up());
    for n in 0..ROWS {
        let found = tablet.get_row(&row(n), None).unwrap().unwrap();
        assert_eq!(found.rows().map(|(_, cells)| cells.len()).sum::<usize>(), 1, "row {n}");
    }
}
