use super::super::open;
use super::*;

const TABLE: &str = "bench-lies";

fn put(key: usize, value: usize) -> Put {
    Put {
        key: format!("k{key:04}").into(),
        cells: vec![("f".into(), "q".into(), format!("v{value}").into())],
    }
}

/// A store of 100 rows, and a connection to it that lies.
async fn lying(lie: &str) -> (Arc<dyn Connection>, Arc<dyn Connection>) {
    let store = format!("memory://lying-{}", lie.replace(':', "-"));
    let honest = open(&store).await.unwrap();
    let spec = TableSpec {
        name: TABLE.into(),
        families: vec!["f".into()],
        ..TableSpec::default()
    };
    honest.create_table(&spec).await.unwrap();
    let liar = open(&format!("{store}?lie={lie}")).await.unwrap();
    assert_eq!(liar.name(), "memory-lying");
    assert!(liar.describe().await.unwrap().iter().any(|(_, text)| text == lie));
    (honest.connect().await.unwrap(), liar.connect().await.unwrap())
}

async fn scan(connection: &dyn Connection) -> Vec<Row> {
    let mut rows = Vec::new();
    let sink = &mut |row: &Row| {
        rows.push(row.clone());
        ControlFlow::Continue(())
    };
    connection.scan(TABLE, &Scan::default(), sink).await.unwrap();
    rows
}

async fn value(connection: &dyn Connection, key: usize) -> Bytes {
    let row = connection
        .get(TABLE, format!("k{key:04}").into(), &Columns::default())
        .await;
    row.unwrap().unwrap().cells.swap_remove(0).value
}

#[tokio::test]
async fn dropped_rows_are_acknowledged_and_not_there() {
    let (honest, liar) = lying("drop:10").await;
    for key in 0..25 {
        liar.put(TABLE, put(key, 0)).await.unwrap();
    }
    liar.put_many(TABLE, (25..100).map(|key| put(key, 0)).collect())
        .await
        .unwrap();
    let there: Vec<_> = scan(&*honest).await.into_iter().map(|row| row.key).collect();
    let expected = (0..100).filter(|key| key % 10 != 9);
    assert_eq!(there, expected.map(|key| put(key, 0).key).collect::<Vec<_>>());
}

#[tokio::test]
async fn stale_gets_answer_the_value_before() {
    let (_, liar) = lying("stale:5").await;
    liar.put(TABLE, put(0, 1)).await.unwrap();
    for _ in 0..20 {
        assert_eq!(value(&*liar, 0).await, "v1", "there is nothing older");
    }
    liar.put_many(TABLE, vec![put(0, 2), put(1, 1)]).await.unwrap();
    assert_eq!(value(&*liar, 1).await, "v1");
    let mut values = Vec::new();
    for _ in 0..10 {
        values.push(value(&*liar, 0).await);
    }
    assert_eq!(values, ["v1", "v2", "v2", "v2", "v2", "v1", "v2", "v2", "v2", "v2"]);
}

#[tokio::test]
async fn wrong_values_differ_in_one_bit() {
    let (honest, liar) = lying("wrong:10").await;
    honest
        .put_many(TABLE, (0..100).map(|key| put(key, key)).collect())
        .await
        .unwrap();
    let rows = scan(&*liar).await;
    let truth = scan(&*honest).await;
    let differing = rows.iter().zip(&truth).filter(|(row, truth)| row != truth).count();
    assert_eq!((rows.len(), differing), (100, 10));
    let mut wrong = 0;
    for key in 0..100 {
        let (value, truth) = (value(&*liar, key).await, put(key, key).cells.swap_remove(0).2);
        let bits: u32 = value.iter().zip(&truth).map(|(a, b)| (a ^ b).count_ones()).sum();
        wrong += bits;
    }
    assert_eq!(wrong, 10);
}

#[tokio::test]
async fn skipped_rows_are_missing_from_scans_only() {
    let (honest, liar) = lying("skip:10").await;
    honest
        .put_many(TABLE, (0..95).map(|key| put(key, key)).collect())
        .await
        .unwrap();
    assert_eq!(scan(&*liar).await.len(), 86);
    // The count continues from scan to scan: the fifth row is the hundredth.
    let second = scan(&*liar).await;
    assert_eq!(second.len(), 85);
    assert!(second.iter().all(|row| row.key != put(4, 0).key));
    assert_eq!(value(&*liar, 4).await, "v4");
}

#[tokio::test]
async fn failing_calls_are_not_made() {
    let (honest, liar) = lying("fail:3").await;
    let mut failed = Vec::new();
    for key in 0..9 {
        if liar.put(TABLE, put(key, 0)).await.is_err() {
            failed.push(key);
        }
    }
    assert_eq!(failed, [2, 5, 8]);
    assert_eq!(scan(&*honest).await.len(), 6);
}

#[tokio::test]
async fn slow_calls_take_longer() {
    let (_, liar) = lying("slow:3").await;
    let mut slow = Vec::new();
    for key in 0..4 {
        let started = std::time::Instant::now();
        liar.put(TABLE, put(key, 0)).await.unwrap();
        slow.push(started.elapsed() >= Duration::from_millis(SLOW_MS));
    }
    // A stalled machine may make the others slow as well, but not this one fast.
    assert!(slow[2], "{slow:?}");
}

#[tokio::test]
async fn lies_must_make_sense() {
    let target = open("memory://lying-parse").await.unwrap();
    for (lie, good) in [
        ("drop:1", true),
        ("drop", false),
        ("drop:0", false),
        ("drop:x", false),
        ("steal:1", false),
    ] {
        assert_eq!(wrap(target.clone(), lie).is_ok(), good, "{lie}");
    }
}
