use super::super::{Columns, Put, Scan, TableSpec, TargetUrl};
use super::*;

/// A fresh store with table `bench-t` of families `f` and `g`.
async fn table(name: &str) -> (Arc<dyn Target>, Arc<dyn Connection>) {
    let target = open(&TargetUrl::parse(&format!("memory://{name}")).unwrap()).unwrap();
    let spec = TableSpec {
        name: "bench-t".into(),
        families: vec!["f".into(), "g".into()],
        max_versions: 2,
        ..TableSpec::default()
    };
    target.create_table(&spec).await.unwrap();
    let connection = target.connect().await.unwrap();
    (target, connection)
}

fn put(key: &str, cells: &[(&str, &str, &str)]) -> Put {
    let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    Put {
        key: bytes(key),
        cells: cells
            .iter()
            .map(|(f, q, v)| (Arc::from(*f), bytes(q), bytes(v)))
            .collect(),
    }
}

fn text(row: &Row) -> String {
    let utf8 = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    let cells = row.cells.iter();
    let cells: Vec<_> = cells
        .map(|c| format!("{}:{}={}", utf8(&c.family), utf8(&c.qualifier), utf8(&c.value)))
        .collect();
    format!("{} {}", utf8(&row.key), cells.join(" "))
}

#[tokio::test]
async fn columns_and_versions_are_selected() {
    let (_, c) = table("columns").await;
    for value in ["1", "2", "3"] {
        c.put(
            "bench-t",
            put("r", &[("f", "a", value), ("f", "b", value), ("g", "a", value)]),
        )
        .await
        .unwrap();
    }
    let mut columns = Columns::default();
    let get = async |columns: &Columns| {
        c.get("bench-t", "r".into(), columns)
            .await
            .unwrap()
            .map(|row| text(&row))
    };
    assert_eq!(get(&columns).await.unwrap(), "r f:a=3 f:b=3 g:a=3");
    columns.families = vec!["f".into()];
    columns.qualifiers = vec!["b".into()];
    columns.versions = 5;
    assert_eq!(get(&columns).await.unwrap(), "r f:b=3 f:b=2");
    columns.qualifiers = vec!["z".into()];
    assert_eq!(get(&columns).await, None);
}

#[tokio::test]
async fn scans_go_on_past_one_batch_and_keep_to_range_and_limit() {
    let (_, c) = table("scans").await;
    let key = |i: usize| format!("k{i:04}");
    let puts = (0..1000).map(|i| put(&key(i), &[("f", "a", "v")])).collect();
    c.put_many("bench-t", puts).await.unwrap();
    let scan = |start: usize, end: usize, limit| Scan {
        start: key(start).into(),
        end: key(end).into(),
        limit,
        ..Scan::default()
    };
    for (scan, stop, expected) in [
        (Scan::default(), usize::MAX, 0..1000),
        (scan(10, 700, None), usize::MAX, 10..700),
        (scan(10, 700, Some(300)), usize::MAX, 10..310),
        (scan(10, 700, Some(300)), 200, 10..210),
    ] {
        let mut seen = Vec::new();
        let sink = &mut |row: &Row| {
            seen.push(row.key.clone());
            if seen.len() < stop {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        };
        c.scan("bench-t", &scan, sink).await.unwrap();
        assert_eq!(
            seen,
            expected.map(|i| Bytes::from(key(i))).collect::<Vec<_>>(),
            "{scan:?}"
        );
    }
}

#[tokio::test]
async fn counters_and_conditions() {
    let (_, c) = table("counters").await;
    let increment = async |by| c.increment("bench-t", "r".into(), "f", "n".into(), by).await.unwrap();
    assert_eq!(increment(5).await, 5);
    assert_eq!(increment(-7).await, -2);
    let check = async |expected: Option<&'static str>, value| {
        let expected = expected.map(Bytes::from);
        let put = put("s", &[("f", "a", value)]);
        c.check_and_put("bench-t", "f", "a".into(), expected, put)
            .await
            .unwrap()
    };
    assert!(!check(Some("x"), "1").await);
    assert!(check(None, "1").await);
    assert!(!check(None, "2").await);
    assert!(check(Some("1"), "2").await);
    let bad = c.increment("bench-t", "s".into(), "f", "a".into(), 1).await;
    assert!(matches!(bad, Err(TargetError::Refused(_))), "{bad:?}");
}

#[tokio::test]
async fn deleted_cells_are_gone_and_their_bytes_with_them() {
    let (target, c) = table("deletes").await;
    for _ in 0..3 {
        c.put(
            "bench-t",
            put("r", &[("f", "a", "1"), ("f", "b", "1"), ("g", "a", "1")]),
        )
        .await
        .unwrap();
    }
    let get = async || {
        c.get("bench-t", "r".into(), &Columns::default())
            .await
            .unwrap()
            .map(|row| text(&row))
    };
    c.delete("bench-t", "r".into(), Some("f"), &["a".into()]).await.unwrap();
    assert_eq!(get().await.unwrap(), "r f:b=1 g:a=1");
    c.delete("bench-t", "r".into(), Some("f"), &[]).await.unwrap();
    assert_eq!(get().await.unwrap(), "r g:a=1");
    c.delete("bench-t", "r".into(), None, &[]).await.unwrap();
    assert_eq!(get().await, None);
    let store = STORES.lock().get("deletes").unwrap().clone();
    assert_eq!(store.table("bench-t").unwrap().lock().bytes(), 0);
    target.drop_table("bench-t").await.unwrap();
    target.drop_table("bench-t").await.unwrap();
    assert!(c.get("bench-t", "r".into(), &Columns::default()).await.is_err());
}

#[tokio::test]
async fn what_no_server_would_take_is_refused() {
    let (target, c) = table("refused").await;
    assert!(c.put("bench-t", put("r", &[("h", "a", "1")])).await.is_err());
    assert!(c.put("bench-t", put("", &[("f", "a", "1")])).await.is_err());
    assert!(c.put("bench-u", put("r", &[("f", "a", "1")])).await.is_err());
    let again = TableSpec {
        name: "bench-t".into(),
        families: vec!["f".into()],
        ..TableSpec::default()
    };
    assert!(target.create_table(&again).await.is_err());
    assert!(open(&TargetUrl::parse("memory://a?conections=3").unwrap()).is_err());
}
