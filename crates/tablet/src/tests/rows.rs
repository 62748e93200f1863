//! Lists of single rows.

use super::*;
use stele_filter::{CompiledFilter, Filter};
use stele_storage::faulty::{FaultPlan, FaultyStorage};
use stele_types::{Cell, RowRange};

fn name(n: u32) -> Bytes {
    Bytes::from(format!("row{:05}", n * 7))
}

/// A tablet over a storage that counts reads, with two thousand rows of some hundred bytes in runs that overlap, in a
/// memtable and in both; and the content of those rows.
async fn filled(cache_bytes: usize) -> (Arc<Tablet>, Arc<FaultyStorage>) {
    filled_with(cache_bytes, None).await
}

async fn filled_with(cache_bytes: usize, filter_bits: Option<u32>) -> (Arc<Tablet>, Arc<FaultyStorage>) {
    let env = TokioRuntime::current();
    let device = FaultyStorage::new(env.clone());
    let storage: Arc<dyn Storage> = device.clone();
    let files = FileRegistry::new(storage.clone(), Arc::new(Cache::new(cache_bytes)), 1);
    let context = TabletContext {
        env,
        storage,
        files: Arc::new(files),
        memory: MemoryAccount::default(),
        metrics: TabletMetrics::new(&Metrics::new()),
        tokens: crate::TokenMemory::default(),
    };
    let manifest = Manifest {
        tablet: 1,
        table: 1,
        epoch: 1,
        ..Manifest::default()
    };
    let mut schema = TableSchema::clone(&schema(DeleteRule::BySequence, None));
    schema.groups[0].options.filter_bits_per_row = filter_bits;
    let tablet = Tablet::create(context, Arc::new(schema), manifest).await.unwrap();
    let value: &'static str = Box::leak("v".repeat(600).into_boxed_str());
    for n in 0..2_000 {
        write_row(&tablet, name(n), vec![put(1, value)]);
    }
    tablet.flush().await.unwrap();
    for n in (0..2_000).step_by(3) {
        write_row(&tablet, name(n), vec![put(2, "newer"), put(1, value)]);
    }
    tablet.flush().await.unwrap();
    for n in (0..2_000).step_by(50) {
        write_row(&tablet, name(n), vec![put(3, "newest")]);
    }
    (tablet, device)
}

/// Every eleventh row that is there, and one between each two that is not.
fn list() -> Vec<Bytes> {
    let present = (0..2_000).step_by(11).map(name);
    present
        .flat_map(|row| [row.clone(), Bytes::from([&row[..], b"!"].concat())])
        .collect()
}

async fn read_list(
    tablet: &Arc<Tablet>,
    rows: &[Bytes],
    filter: Option<Arc<CompiledFilter>>,
) -> Vec<(Bytes, Vec<Cell>)> {
    let spec = ScanSpec {
        rows: RowSet::new(rows.iter().map(RowRange::single).collect()),
        filter,
        reversed: false,
        raw: false,
        rows_limit: None,
    };
    let mut scanner = TabletScanner::new(tablet.clone(), spec);
    let mut found = Vec::new();
    while let Some(batch) = scanner.next_batch().await.unwrap() {
        found.extend(batch.shared_rows().map(|(row, cells)| (row, cells.to_vec())));
        if found.len() == rows.len() / 2 {
            assert_eq!(batch.scanned_through.as_ref(), rows.last());
        }
    }
    found
}

#[tokio::test]
async fn a_list_of_rows_is_what_each_of_them_is() {
    let (tablet, device) = filled(8 << 20).await;
    let rows = list();
    let newest = Arc::new(Filter::CellsPerColumn(1).compile(&tablet.schema()).unwrap());
    for filter in [None, Some(newest)] {
        let mut expected = Vec::new();
        for row in &rows {
            let batch = tablet.get_row(row, filter.as_ref()).unwrap().expect("all is in memory");
            expected.extend(batch.shared_rows().map(|(row, cells)| (row, cells.to_vec())));
        }
        assert_eq!(expected.len(), rows.len() / 2);
        for read_miss in [0.0, 0.5, 1.0] {
            device.set_plan(FaultPlan {
                read_miss,
                ..FaultPlan::default()
            });
            assert_eq!(read_list(&tablet, &rows, filter.clone()).await, expected, "{read_miss}");
        }
        device.set_plan(FaultPlan::default());
    }
}

/// Blocks are fetched once, though some are fetched ahead of their turn; without a cache at most once ahead and once more.
#[tokio::test]
async fn what_is_fetched_ahead_is_not_fetched_again() {
    for (cache_bytes, reads_max) in [(8 << 20, 1.1), (0, 4.0)] {
        let (tablet, device) = filled(cache_bytes).await;
        tablet.compact_all().await.unwrap();
        let rows: Vec<Bytes> = (0..2_000).step_by(40).map(name).collect();
        device.set_plan(FaultPlan {
            read_miss: 1.0,
            ..FaultPlan::default()
        });
        let before = device.counts().reads;
        assert_eq!(read_list(&tablet, &rows, None).await.len(), rows.len());
        let reads = (device.counts().reads - before) as f64 / rows.len() as f64;
        assert!(
            reads <= reads_max,
            "{reads} reads a row with {cache_bytes} bytes of cache"
        );
    }
}

/// A row that is not there costs no more than one that is: a long list of them is handed out in batches.
#[tokio::test]
async fn rows_that_are_not_there_end_batches_too() {
    // Outside of all files, and in their midst without a filter that says so.
    for (before, filter_bits) in [("none", None), ("row00000-", Some(0))] {
        let (tablet, _) = filled_with(8 << 20, filter_bits).await;
        let rows: Vec<_> = (0..10_000).map(|n| Bytes::from(format!("{before}{n:05}"))).collect();
        let spec = ScanSpec {
            rows: RowSet::new(rows.iter().map(RowRange::single).collect()),
            filter: None,
            reversed: false,
            raw: false,
            rows_limit: None,
        };
        let mut scanner = TabletScanner::new(tablet.clone(), spec);
        let mut through = Vec::new();
        while let Some(batch) = scanner.next_batch().await.unwrap() {
            assert!(batch.is_empty());
            through.push(batch.scanned_through);
        }
        assert!(through.len() > 2 && through.is_sorted(), "{through:?}");
        assert_eq!(through.last().unwrap().as_ref(), rows.last());
    }
}

/// The rest of a range behind a batch may be a single row.
#[tokio::test]
async fn a_scan_never_comes_back_to_what_it_has_passed() {
    let tablet = tablet(schema(DeleteRule::BySequence, None)).await;
    for row in ["a\0", "b"] {
        let value = Box::leak("v".repeat(2 << 20).into_boxed_str());
        write_row(&tablet, Bytes::from(row), vec![put(1, value)]);
    }
    for reversed in [false, true] {
        // Behind the row that is read last in a batch, one is left.
        let (start, end) = if reversed { ("a", "c") } else { ("0", "b\0\0") };
        let range = RowRange {
            start: Bytes::from(start),
            end: Some(Bytes::from(end)),
        };
        let spec = ScanSpec {
            rows: RowSet::new(vec![range]),
            filter: None,
            reversed,
            raw: false,
            rows_limit: None,
        };
        let mut scanner = TabletScanner::new(tablet.clone(), spec);
        let mut through = Vec::new();
        while let Some(batch) = scanner.next_batch().await.unwrap() {
            through.push(batch.scanned_through.unwrap());
        }
        if reversed {
            through.reverse();
        }
        assert!(through.len() >= 2 && through.is_sorted(), "{through:?}");
    }
}

/// Rows of one cell behind each other, of several columns, and of more versions than fit in a block, all in one file.
#[tokio::test]
async fn rows_of_a_list_may_be_unlike_each_other() {
    let (tablet, device) = filled(0).await;
    let value: &'static str = Box::leak("v".repeat(600).into_boxed_str());
    for n in (0..2_000).step_by(5) {
        let versions = if n % 2 == 0 { 1 } else { 40 };
        let mut mutations: Vec<Mutation> = (0..versions).map(|version| put(10 + version, value)).collect();
        mutations.push(Mutation::Put {
            family: FamilyId(1),
            qualifier: Bytes::from_static(b"z"),
            timestamp: Timestamp(1),
            value: Bytes::from_static(b"behind"),
        });
        write_row(&tablet, name(n), mutations);
    }
    tablet.flush().await.unwrap();
    tablet.compact_all().await.unwrap();
    let spec = ScanSpec {
        rows: RowSet::all(),
        filter: None,
        reversed: false,
        raw: false,
        rows_limit: None,
    };
    let (mut scanner, mut all) = (TabletScanner::new(tablet.clone(), spec), Vec::new());
    while let Some(batch) = scanner.next_batch().await.unwrap() {
        all.extend(batch.shared_rows().map(|(row, cells)| (row, cells.to_vec())));
    }
    let rows: Vec<Bytes> = (0..2_000).filter(|n| n % 5 < 2).map(name).collect();
    let expected: Vec<_> = all.into_iter().filter(|(row, _)| rows.contains(row)).collect();
    assert_eq!(expected.len(), rows.len());
    for read_miss in [0.0, 0.5, 1.0] {
        device.set_plan(FaultPlan {
            read_miss,
            ..FaultPlan::default()
        });
        assert!(read_list(&tablet, &rows, None).await == expected, "{read_miss}");
    }
}

/// A filter passes nothing, and each block is read slowly.
#[tokio::test]
async fn a_batch_ends_after_a_second_with_the_rows_that_were_read() {
    let (tablet, device) = filled(0).await;
    let other = Filter::ColumnRange {
        family: "f".to_owned(),
        start: std::ops::Bound::Included(Bytes::from_static(b"x")),
        end: std::ops::Bound::Unbounded,
    };
    let compiled = other.compile(&tablet.schema()).unwrap();
    let spec = ScanSpec {
        rows: RowSet::all(),
        filter: Some(Arc::new(compiled)),
        reversed: false,
        raw: false,
        rows_limit: None,
    };
    let slow = std::time::Duration::from_millis(400);
    device.set_plan(FaultPlan {
        read_miss: 1.0,
        latency_min: slow,
        latency_max: slow,
        ..FaultPlan::default()
    });
    let mut scanner = TabletScanner::new(tablet.clone(), spec);
    let begin = tablet.env().now();
    let mut through = Vec::new();
    while let Some(batch) = scanner.next_batch().await.unwrap() {
        through.push((batch.scanned_through.unwrap(), tablet.env().now() - begin));
        if through.len() == 2 {
            device.set_plan(FaultPlan::default());
        }
    }
    let second = std::time::Duration::from_secs(1);
    let before_thousand = |(row, at): &(Bytes, std::time::Duration)| *row < name(1_000) && *at >= second;
    assert!(through.iter().take(2).all(before_thousand), "{through:?}");
    assert!(through[1].1 < 10 * second, "{through:?}");
    assert!(through.is_sorted());
}
