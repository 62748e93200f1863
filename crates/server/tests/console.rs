//! The console of a real process, the commands over it, and `deploy/`.

use crate::support::server::Server;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A server on which every call that takes a millisecond is slow.
fn start(dir: &TempDir) -> Server {
    Server::start(
        dir.path(),
        &["--slow-call", "1ms", "--durability", "none", "--hbase", "127.0.0.1:0"],
    )
}

/// The JSON of a call, with its status.
fn api(server: &Server, path: &str) -> (u16, Value) {
    let (status, answer) = server.get(path);
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    let value = serde_json::from_str(body);
    assert!(value.is_ok(), "{path}: {body}");
    (status, value.unwrap())
}

/// The answer of a call that must succeed.
fn ok(server: &Server, path: &str) -> Value {
    let (status, answer) = api(server, path);
    assert_eq!(status, 200, "{path}: {answer}");
    answer
}

/// Asks until an answer is as wanted; some come about every five seconds.
fn until(server: &Server, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let answer = ok(server, path);
        if wanted(&answer) {
            return answer;
        }
        assert!(Instant::now() < end, "{path}: {answer}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// A table with some thousand rows.
fn fill(server: &Server, dir: &TempDir) {
    let file = dir.path().join("rows.csv");
    let rows: String = (0..6_000).map(|n| format!("key{n:05},value of {n}\n")).collect();
    fs::write(&file, format!("key,value\n{rows}")).unwrap();
    let import = [
        "import",
        "shop/orders",
        file.to_str().unwrap(),
        "--key",
        "key",
        "--family",
        "f",
        "--create",
    ];
    server.says(&import);
}

#[test]
fn the_page_and_its_files_are_served_with_a_policy() {
    let dir = TempDir::new().unwrap();
    let server = start(&dir);
    let (status, page) = server.get("/");
    assert_eq!(status, 200);
    assert!(page.contains("content-security-policy: default-src 'none'"), "{page}");
    let files: Vec<&str> = page
        .split("\"/console/")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect();
    assert!(files.len() > 10, "{files:?}");
    for file in files {
        assert_eq!(server.get(&format!("/console/{file}")).0, 200, "{file}");
    }
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(server.get(path).0, 200, "{path}");
    }
    assert_eq!(server.get("/console/../Cargo.toml").0, 404);
    assert_eq!(api(&server, "/api/nothing").0, 404);
}

#[test]
fn the_api_tells_what_the_server_does() {
    let dir = TempDir::new().unwrap();
    let server = start(&dir);
    fill(&server, &dir);
    assert_eq!(server.says(&["count", "shop/orders"]).trim(), "6000");

    let tables = ok(&server, "/api/tables?search=orders");
    assert_eq!(
        (&tables["total"], &tables["tables"][0]["table"]),
        (&1.into(), &"shop/orders".into())
    );
    let tablets = ok(&server, "/api/tablets?table=shop/orders&sort=size&limit=1");
    let tablet = &tablets["tablets"][0];
    assert!(tablet["memtable_bytes"].as_u64().unwrap() > 6_000, "{tablet}");
    let id = tablet["id"].as_str().unwrap();
    let page = ok(&server, &format!("/api/tablet?id={id}"));
    assert!(
        page["mutations"].as_u64().unwrap() >= 6_000 && page["groups"][0]["runs"].is_array(),
        "{page}"
    );

    let overview = until(&server, "/api/overview", |overview| {
        overview["values"]["memtables"].as_f64() > Some(0.0)
    });
    assert_eq!(overview["stage"], "ready");
    assert!(
        overview["memory"]
            .as_array()
            .unwrap()
            .iter()
            .any(|part| part["name"] == "heat" && part["used"].as_u64() > Some(0))
    );
    let history = ok(&server, "/api/history?points=1");
    assert_eq!(history["times"].as_array().unwrap().len(), 1);

    let slow = ok(&server, "/api/slow?order=slowest&limit=5");
    assert!(slow["count"].as_u64().unwrap() > 0, "{slow}");
    let call = &slow["calls"][0];
    assert!(
        call["table"] == "shop/orders" && call["seconds"].as_f64().unwrap() >= 0.001,
        "{call}"
    );
    assert_eq!(ok(&server, "/api/snapshots")["total"], 0);
}

#[test]
fn the_heat_map_shows_what_is_read() {
    let dir = TempDir::new().unwrap();
    let server = start(&dir);
    fill(&server, &dir);
    let heat = until(&server, "/api/heat?table=shop/orders", |heat| {
        server.says(&["count", "shop/orders"]);
        let sum = |name: &str| {
            heat[name]
                .as_array()
                .unwrap()
                .iter()
                .filter_map(Value::as_u64)
                .sum::<u64>()
        };
        sum("reads") > 6_000
    });
    let (columns, starts) = (
        heat["columns"].as_array().unwrap().len(),
        heat["starts"].as_array().unwrap().len(),
    );
    assert_eq!(heat["reads"].as_array().unwrap().len(), columns * starts);
    // A scan is seen at all of its rows, and not only where its batches end.
    let read = |range: usize| (0..columns).any(|column| heat["reads"][column * starts + range].as_u64() > Some(0));
    let ranges_read = (0..starts).filter(|range| read(*range)).count();
    assert!(ranges_read > 20, "{ranges_read} of {starts}");
    let part = ok(
        &server,
        "/api/heat?table=shop/orders&start=key01000&end=key02000&ranges=4",
    );
    let starts = part["starts"].as_array().unwrap();
    assert!(
        starts.len() <= 4 && starts[0] == "key01000" && part["end"] == "key02000",
        "{part}"
    );
}

#[test]
fn mistakes_are_answered_with_a_sentence() {
    let dir = TempDir::new().unwrap();
    let server = start(&dir);
    for (path, status) in [
        ("/api/tablets?sort=colour", 400),
        ("/api/tablets?tabel=a/b", 400),
        ("/api/tablets?table=nonsense", 400),
        ("/api/tablets?table=no/such", 404),
        ("/api/tablet?id=99", 404),
        ("/api/tablet", 400),
        ("/api/heat?table=no/such", 404),
        ("/api/overview?x=1", 400),
        ("/api/history?since=yesterday", 400),
        ("/api/tablets?limit=-1", 400),
    ] {
        let (found, answer) = api(&server, path);
        assert!(
            found == status && answer["error"].as_str().is_some_and(|text| !text.is_empty()),
            "{path}: {found} {answer}"
        );
    }
}

#[test]
fn top_and_slow_print_the_same_figures() {
    let dir = TempDir::new().unwrap();
    let server = start(&dir);
    fill(&server, &dir);
    server.says(&["count", "shop/orders"]);
    let top = server.says(&["top", "--once", "--http", &server.http]);
    assert!(top.contains("ready") && top.contains("shop/orders"), "{top}");
    let slow = server.says(&["slow", "--slowest", "--http", &server.http]);
    assert!(
        slow.contains("of 1.0ms or longer") && slow.contains("shop/orders"),
        "{slow}"
    );
    let output = server.client(&["slow", "--http", "127.0.0.1:1"]);
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("cannot connect"));
}

/// Every metric that the dashboard and the alerts name exists, and every metric of the console's series.
#[test]
fn deployed_files_name_metrics_that_exist() {
    let dir = TempDir::new().unwrap();
    let server = start(&dir);
    // A server prints its addresses before it has made all of its metrics.
    let end = Instant::now() + Duration::from_secs(60);
    let metrics = loop {
        let metrics = server.get("/metrics").1;
        if metrics.contains("\nstele_connections ") {
            break metrics;
        }
        assert!(Instant::now() < end, "{metrics}");
        std::thread::sleep(Duration::from_millis(50));
    };
    let known: BTreeSet<&str> = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut named = 0;
    for file in ["deploy/grafana/stele.json", "deploy/prometheus/alerts.yml"] {
        let text = fs::read_to_string(root.join(file)).unwrap();
        for name in words(&text) {
            let base = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| name.strip_suffix(end))
                .unwrap_or(name);
            // A family with labels is in the text once it has a value; this one never has one without damage.
            assert!(
                known.contains(name) || known.contains(base) || name == "stele_corruption_total",
                "{file}: {name}"
            );
            named += 1;
        }
    }
    assert!(named > 50, "{named}");
    for selector in stele_console::series::SERIES
        .iter()
        .flat_map(|series| series.selectors())
    {
        assert!(known.contains(selector.metric), "{}", selector.metric);
    }
    let dashboard: Value =
        serde_json::from_str(&fs::read_to_string(root.join("deploy/grafana/stele.json")).unwrap()).unwrap();
    assert!(dashboard["panels"].as_array().unwrap().len() > 15);
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("stele_"))
}
