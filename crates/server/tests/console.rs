//! The console of a real process, the commands over it, and `deploy/`.

use crate::support::server::{Server, stele};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
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
    // A server prints its addresses before it has made all of its metrics. The first sizes of the pools come last.
    let end = Instant::now() + Duration::from_secs(60);
    let metrics = loop {
        let metrics = server.get("/metrics").1;
        if ["\nstele_connections ", "\nstele_memory_granted_bytes{"]
            .iter()
            .all(|late| metrics.contains(late))
        {
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
            // A family with labels is in the text once it has a value; one never has one without damage. The others are of clusters,
            // and of servers on object stores.
            let is_elsewhere = [
                "stele_corruption_total",
                stele_cluster::CHECK_FINDINGS,
                stele_cluster::TABLETS_UNSERVED_SECONDS,
                "stele_objects_clock_offset_seconds",
            ]
            .contains(&name);
            assert!(
                known.contains(name) || known.contains(base) || is_elsewhere,
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

/// A request with these headers, as a script of the console or another page sends it.
fn request(server: &Server, head: &str, headers: &[&str], body: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(&server.http).unwrap();
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let length = body.len();
    write!(
        stream,
        "{head} HTTP/1.1\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

const HERE: &str = "Host: localhost:8088";
const JSON: &str = "Content-Type: application/json";
const OWN: &str = "X-Stele-Console: 1";

/// The rows of an answer as text.
fn rows(answer: &Value) -> String {
    let rows = answer["rows"].as_array().unwrap().iter();
    let text: Vec<String> = rows
        .map(|row| {
            let cells = row["cells"].as_array().unwrap().iter();
            let values: Vec<&str> = cells.map(|cell| cell["value"].as_str().unwrap()).collect();
            format!("{}={}", row["row"].as_str().unwrap(), values.join(","))
        })
        .collect();
    text.join(" ")
}

#[test]
fn rows_are_browsed_and_cells_are_changed() {
    let dir = TempDir::new().unwrap();
    let server = start(&dir);
    server.says(&["create-table", "shop/orders", "--family", "f", "--family", "g"]);
    for (row, cell) in [("a1", "f:q=x"), ("a2", "f:q=y"), ("a3", "g:q=x"), ("b1", "f:q=x")] {
        server.says(&["put", "shop/orders", row, cell]);
    }
    let get = |parameters: &str| {
        request(
            &server,
            &format!("GET /api/rows?table=shop/orders&{parameters}"),
            &[HERE],
            "",
        )
    };
    // In base64, x is eA== and y is eQ==.
    assert_eq!(rows(&get("").1), "a1=eA== a2=eQ== a3=eA== b1=eA==");
    let (_, page) = get("prefix=a&limit=2");
    assert_eq!((rows(&page).as_str(), &page["next"]), ("a1=eA== a2=eQ==", &"a2".into()));
    let (_, page) = get("prefix=a&limit=2&after=a2");
    assert_eq!((rows(&page).as_str(), &page["next"]), ("a3=eA==", &Value::Null));
    assert_eq!(rows(&get("value=y").1), "a2=eQ==");
    assert_eq!(rows(&get("family=g").1), "a3=eA==");
    assert_eq!(get("value=(").0, 400);
    assert_eq!(get("prefix=%5Cq").0, 400);
    let post = |path: &str, headers: &[&str], body: &str| request(&server, &format!("POST {path}"), headers, body);
    let place = r#""table":"shop/orders","row":"a1","family":"f","column":"q""#;
    let own = [HERE, JSON, OWN];
    let (status, written) = post("/api/cell", &own, &format!("{{{place},\"value\":\"eg==\"}}"));
    assert_eq!(status, 200, "{written}");
    assert_eq!(rows(&get("limit=1").1), "a1=eg==");
    let time = written["time"].as_str().unwrap();
    let (_, cell) = request(
        &server,
        &format!("GET /api/cell?table=shop/orders&row=a1&family=f&column=q&time={time}"),
        &[HERE],
        "",
    );
    assert_eq!((&cell["value"], &cell["bytes"]), (&"eg==".into(), &1.into()));
    assert_eq!(
        post("/api/cell/delete", &own, &format!("{{{place},\"time\":{time}}}")).0,
        200
    );
    assert_eq!(rows(&get("limit=1").1), "a1=eA==", "the version before");
    // Above 2^53 numbers of JavaScript are even, and in steps of 1,000 most are not exact.
    let late = "9007199254741001000";
    let (status, written) = post(
        "/api/cell",
        &own,
        &format!("{{{place},\"value\":\"eg==\",\"time\":\"{late}\"}}"),
    );
    assert_eq!((status, &written["time"]), (200, &late.into()));
    assert_eq!(get("limit=1").1["rows"][0]["cells"][0]["time"], late);
    let digits = format!("{{{place},\"time\":\"{late}\"}}");
    assert_eq!(post("/api/cell/delete", &own, &digits).0, 200);
    assert_eq!(rows(&get("limit=1").1), "a1=eA==", "the version before");
    // The column without a name, whose parameter the page leaves out.
    let nameless = place.replace("\"q\"", "\"\"");
    let (status, written) = post("/api/cell", &own, &format!("{{{nameless},\"value\":\"eg==\"}}"));
    assert_eq!(status, 200, "{written}");
    let time = written["time"].as_str().unwrap();
    let (status, cell) = request(
        &server,
        &format!("GET /api/cell?table=shop/orders&row=a1&family=f&time={time}"),
        &[HERE],
        "",
    );
    assert_eq!((status, &cell["value"]), (200, &"eg==".into()), "{cell}");
    let nameless = format!("{{{nameless},\"time\":{time}}}");
    assert_eq!(post("/api/cell/delete", &own, &nameless).0, 200);
    // Changes of other pages, and requests for another host, are refused.
    let value = format!("{{{place},\"value\":\"eg==\"}}");
    for headers in [
        &[HERE, JSON][..],
        &[HERE, OWN],
        &[HERE, JSON, OWN, "Origin: http://evil.example"],
        &[HERE, JSON, OWN, "Sec-Fetch-Site: cross-site"],
        &["Host: evil.example", JSON, OWN],
    ] {
        assert_eq!(post("/api/cell", headers, &value).0, 403, "{headers:?}");
    }
    assert_eq!(
        request(&server, "GET /api/rows?table=shop/orders", &["Host: evil.example"], "").0,
        403
    );
    let wrong = [
        format!("{{{place}}}"),
        format!("{{{place},\"value\":\"!\"}}"),
        format!("{{{},\"value\":\"eg==\"}}", place.replace("a1", "")),
        "[]".to_owned(),
    ];
    for body in wrong {
        assert_eq!(post("/api/cell", &own, &body).0, 400, "{body}");
    }
    let unknown = format!("{{{},\"value\":\"eg==\"}}", place.replace("\"f\"", "\"h\""));
    assert_eq!(post("/api/cell", &own, &unknown).0, 404);
    let large = format!("{{{place},\"value\":\"{}\"}}", "A".repeat(1 << 20));
    assert_eq!(post("/api/cell", &own, &large).0, 413);
    assert_eq!(rows(&get("limit=1").1), "a1=eA==", "nothing was changed");
}

#[test]
fn callers_of_the_console_have_their_rights() {
    let dir = TempDir::new().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let token = |name: &str| {
        let output = stele(&["token", "create", name, "--file", &path("tokens")])
            .output()
            .unwrap();
        fs::write(path(name), &output.stdout).unwrap();
        format!(
            "Authorization: Bearer {}",
            String::from_utf8_lossy(&output.stdout).trim()
        )
    };
    let (alice, bob) = (token("alice"), token("bob"));
    let (tokens, audit) = (path("tokens"), path("audit"));
    let settings = [
        "--access",
        "rules",
        "--superusers",
        "alice",
        "--tokens",
        &tokens,
        "--audit-log",
        &audit,
    ];
    let server = Server::start(&dir.path().join("data"), &settings);
    let root = ["--token-file", &path("alice")];
    server.says(&[&["create-table", "shop/orders", "--family", "f"], &root[..]].concat());
    let cell = r#"{"table":"shop/orders","row":"r","family":"f","column":"q","value":"eg=="}"#;
    let ask = |head: &str, token: &str, body: &str| request(&server, head, &["Host: any", JSON, OWN, token], body);
    for page in [
        "overview",
        "history",
        "tables",
        "tablets",
        "rows?table=shop/orders",
        "rules",
        "snapshots",
        "me",
    ] {
        let head = format!("GET /api/{page}");
        assert_eq!(request(&server, &head, &["Host: any"], "").0, 401, "{page}");
        assert_eq!(ask(&head, "Authorization: Bearer stele_a_b", "").0, 401, "{page}");
        assert_eq!(ask(&head, &alice, "").0, 200, "{page}");
    }
    for (page, status) in [
        ("overview", 403),
        ("history", 403),
        ("tablets", 403),
        ("slow", 403),
        ("tables", 200),
    ] {
        assert_eq!(ask(&format!("GET /api/{page}"), &bob, "").0, status, "{page}");
    }
    assert_eq!(ask("GET /api/tables", &bob, "").1["total"], 0, "bob sees no table");
    assert_eq!(ask("GET /api/rows?table=shop/orders", &bob, "").0, 403);
    let rule = r#"{"resource":"shop/orders","change":"grant","member":"bob","rights":["read"]}"#;
    assert_eq!(ask("POST /api/rules", &bob, rule).0, 403);
    assert_eq!(ask("POST /api/rules", &alice, rule).0, 200);
    assert_eq!(ask("POST /api/cell", &alice, cell).0, 200);
    assert_eq!(rows(&ask("GET /api/rows?table=shop/orders", &bob, "").1), "r=eg==");
    assert_eq!(ask("POST /api/cell", &bob, cell).0, 403);
    assert_eq!(
        request(&server, "POST /api/cell", &["Host: any", JSON, &alice], cell).0,
        403,
        "no header"
    );
    let rules = ask("GET /api/rules", &alice, "").1;
    assert_eq!(rules["resources"][0]["rules"][0]["member"], "user:bob");
    let sums = |token: &str| {
        let tables = ask("GET /api/tables", token, "").1;
        let table = &tables["tables"][0];
        (table["served"].as_u64(), table["memtable_bytes"].as_u64() > Some(0))
    };
    assert_eq!((sums(&alice), sums(&bob)), ((Some(1), true), (Some(1), true)));
    assert_eq!(ask("POST /api/rules", &alice, &rule.replace("grant", "revoke")).0, 200);
    assert_eq!(ask("GET /api/rows?table=shop/orders", &bob, "").0, 403);
    let part = ["grant", "bob", "read", "shop/orders", "--prefix", "a"];
    server.says(&[&part[..], &root[..]].concat());
    assert_eq!(sums(&bob), (Some(1), false), "sizes tell of all rows");
    let top = ["top", "--once", "--http", &server.http, "--token-file", &path("alice")];
    assert!(server.client(&top).status.success());
    assert_eq!(server.stop(Signal::TERM), Some(0));
    let log = fs::read_to_string(dir.path().join("audit/log/audit-00000001.jsonl")).unwrap();
    for (operation, outcome) in [
        ("console_put", "done"),
        ("set_rules", "done"),
        ("mutate_rows", "denied"),
    ] {
        let has = |line: &str| line.contains(operation) && line.contains(&format!("\"{outcome}\""));
        assert!(log.lines().any(has), "{operation}: {log}");
    }
    assert!(log.contains("\"unauthenticated\"") && !log.contains("eg=="), "{log}");
}

/// A caller that may see the cluster does not know the rows of tables that it may not read.
#[test]
fn row_keys_are_for_callers_who_may_read_the_table() {
    let dir = TempDir::new().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let token = |name: &str| {
        let output = stele(&["token", "create", name, "--file", &path("tokens")])
            .output()
            .unwrap();
        fs::write(path(name), &output.stdout).unwrap();
        format!(
            "Authorization: Bearer {}",
            String::from_utf8_lossy(&output.stdout).trim()
        )
    };
    token("root");
    let bob = token("bob");
    let (tokens, data) = (path("tokens"), dir.path().join("data"));
    let settings = ["--access", "rules", "--superusers", "root", "--tokens", &tokens];
    let server = Server::start(
        &data,
        &[&settings[..], &["--slow-call", "1ms", "--durability", "none"]].concat(),
    );
    let root = |arguments: &[&str]| server.says(&[arguments, &["--token-file", &path("root")]].concat());
    let table = "shop/orders";
    root(&["create-table", table, "--family", "f", "--split", "secret03000"]);
    let rows: String = (0..6_000).map(|n| format!("secret{n:05},{n}\n")).collect();
    fs::write(path("rows.csv"), format!("key,value\n{rows}")).unwrap();
    root(&["import", table, &path("rows.csv"), "--key", "key", "--family", "f"]);
    root(&["grant", "bob", "view", "cluster"]);
    let ask = |page: &str| request(&server, &format!("GET /api/{page}"), &["Host: any", &bob], "");
    let heat = "heat?table=shop/orders";
    let end = Instant::now() + Duration::from_secs(60);
    let has_calls = |slow: &Value| {
        let calls = slow["calls"].as_array().unwrap();
        calls
            .iter()
            .any(|call| call["kind"] == "scan" && call["end"].is_string())
    };
    loop {
        root(&["count", table, "--prefix", "secret0"]);
        let is_warm = ask(heat).1["starts"].as_array().is_some_and(|starts| starts.len() > 1);
        if is_warm && has_calls(&ask("slow").1) {
            break;
        }
        assert!(Instant::now() < end, "{} {}", ask("slow").1, ask(heat).1);
    }
    let tablets = ask("tablets?table=shop/orders").1;
    let id = tablets["tablets"][1]["id"].as_str().unwrap().to_owned();
    let pages = ["slow", heat, "tablets?table=shop/orders", &format!("tablet?id={id}")];
    for page in pages {
        let (status, answer) = ask(page);
        let text = answer.to_string();
        assert_eq!(status, 200, "{page}: {text}");
        assert!(!text.contains("secret") && text.contains("hidden"), "{page}: {text}");
    }
    let part = format!("{heat}&start=secret01000");
    assert_eq!(ask(&part).0, 403, "operations of chosen rows would tell of them");
    root(&["grant", "bob", "read", table]);
    for page in pages.iter().copied().chain([part.as_str()]) {
        let (status, answer) = ask(page);
        assert!(
            status == 200 && answer.to_string().contains("secret"),
            "{page}: {answer}"
        );
    }
}
