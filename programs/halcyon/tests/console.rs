//! The console's page and JSON of a running server: what `docs/CONSOLE.md` promises.

#![allow(clippy::disallowed_methods)] // the time is the real one

use crate::common;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::common::{Client, Server, family, fresh_dir, get, put, specifier};
use bytes::Bytes;
use halcyon_cell::Cell;
use halcyon_proto::pb;
use halcyon_schema::RegionInfo;
use serde_json::Value;

/// An answer of an info port.
struct Page {
    status: u16,
    head: String,
    body: String,
}

impl Page {
    fn get(address: SocketAddr, path: &str, headers: &str) -> Page {
        let mut stream = TcpStream::connect(address).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Page { status, head: head.to_lowercase(), body: body.to_string() }
    }
}

fn api(address: SocketAddr, path: &str) -> Value {
    let page = Page::get(address, &format!("/api/v1/{path}"), "");
    assert_eq!(page.status, 200, "{path}: {}", page.body);
    assert!(page.head.contains("content-type: application/json"), "{}", page.head);
    serde_json::from_str(&page.body).unwrap_or_else(|error| panic!("{path}: {error}: {}", page.body))
}

/// Looks again until the answer is as wanted.
fn wait_for(address: SocketAddr, path: &str, what: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let answer = api(address, path);
        if is_wanted(&answer) {
            return answer;
        }
        assert!(Instant::now() < deadline, "{path}: no {what} in {answer:#}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn series<'v>(answer: &'v Value, name: &str) -> &'v [Value] {
    let all = answer["series"].as_array().unwrap();
    let one = all.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("no series {name}"));
    one["values"].as_array().unwrap()
}

fn sum(points: &[Value]) -> f64 {
    points.iter().filter_map(Value::as_f64).sum()
}

async fn put_rows(client: &Client, region: &RegionInfo, rows: std::ops::Range<usize>) {
    for row in rows {
        let key = format!("{row:04}");
        let cell = Cell::put(key.as_bytes(), b"f", b"q", i64::MAX, b"a value that no page shows");
        client.mutate(region, put(1), &[cell]).await.unwrap();
    }
}

async fn read_rows(client: &Client, region: &RegionInfo, rows: std::ops::Range<usize>) {
    for row in rows {
        assert!(client.value(region, &format!("{row:04}")).await.unwrap().is_some());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_of_the_console_are_those_of_the_load() {
    let dir = fresh_dir("console-load");
    let server = Server::start(&dir, &["--memory", "256m"]);
    let (master, region_server) = (server.address("master-info"), server.address("regionserver-info"));
    let client = Client::connect(&server).await;
    let regions = client.create_table("orders", vec![family("f")], &[b"0500", b"<b>\x00&"]).await;
    // The first look at a region's counters is the base of what follows.
    wait_for(master, "tables", "table", |it| {
        it["tables"].as_array().unwrap().iter().any(|t| t["name"] == "orders")
    });
    tokio::time::sleep(Duration::from_secs(6)).await;
    put_rows(&client, &regions[0], 0..300).await;
    put_rows(&client, &regions[1], 500..600).await;
    client.flush(&regions[0]).await.unwrap();
    read_rows(&client, &regions[0], 0..200).await;

    let path = "series?range=15m&names=calls.,wal.,cache.,memory.,latency.";
    let grown = wait_for(master, path, "calls", |it| {
        let at_least = |name, count: f64| sum(series(it, name)) >= count;
        at_least("calls.mutate", 400.0) && at_least("calls.get", 200.0)
    });
    assert_eq!((sum(series(&grown, "calls.mutate")), sum(series(&grown, "calls.get"))), (400.0, 200.0));
    assert_eq!(sum(series(&grown, "calls.failed")), 0.0);
    assert!(series(&grown, "wal.sync_mean").iter().any(|ms| ms.as_f64().is_some_and(|ms| ms > 0.0)));
    assert!(series(&grown, "wal.sync_longest").iter().any(|ms| ms.as_f64().is_some_and(|ms| ms > 0.0)));
    assert!(series(&grown, "latency.write.p99").iter().any(|ms| ms.as_f64().is_some_and(|ms| ms > 0.0)));
    let hits = series(&grown, "cache.hit.data").iter().filter_map(Value::as_f64).fold(0.0, f64::max);
    assert!(hits > 0.5 && hits <= 1.0, "{hits}");
    assert!(series(&grown, "memory.resident").iter().all(|it| it.is_null() || it.as_f64().unwrap() > 1e6));

    // both ports show the same server, and say whose port they are
    let (of_master, of_server) = (api(master, "summary"), api(region_server, "summary"));
    assert_eq!((&of_master["role"], &of_server["role"]), (&"master".into(), &"region-server".into()));
    assert_eq!(of_master["regions_count"], of_server["regions_count"]);
    assert_eq!(of_master["server"], of_server["server"]);
    assert!(of_master["health"]["sentence"].as_str().unwrap().ends_with('.'), "{of_master}");

    let tables = api(master, "tables");
    let orders = tables["tables"].as_array().unwrap().iter().find(|table| table["name"] == "orders").unwrap();
    assert_eq!((&orders["regions_count"], &orders["writes_count"]), (&3.into(), &400.into()));
    assert_eq!((&orders["state"], &orders["families"][0]), (&"enabled".into(), &"f".into()));
    assert!(orders["files_count"].as_u64().unwrap() >= 1 && orders["file_bytes"].as_u64().unwrap() > 0);

    let by_key = api(master, "regions?table=orders&order=key");
    let keys: Vec<&str> =
        by_key["regions"].as_array().unwrap().iter().map(|it| it["start"].as_str().unwrap()).collect();
    assert_eq!(keys, ["", "0500", "<b>\\x00&"]);
    let page = api(master, "regions?table=orders&order=key&limit=1&offset=1");
    assert_eq!((&page["count"], &page["regions"][0]["start"]), (&3.into(), &"0500".into()));
    let largest = api(master, "regions?table=orders&order=size&limit=1");
    assert_eq!(largest["regions"][0]["start"], "", "the one that was flushed");

    let rows_of = |requests: &str| {
        let map = wait_for(
            master,
            &format!("keys?range=15m&table=orders&requests={requests}"),
            "requests",
            |map| map["values"][0].as_array().is_some_and(|row| sum(row) > 0.0),
        );
        let step = map["step_s"].as_f64().unwrap();
        // Rows are parts of regions.
        let mut regions = vec![0.0; 3];
        let rows = map["rows"].as_array().unwrap().iter().zip(map["values"].as_array().unwrap());
        for (row, values) in rows {
            let start = row["start"].as_str().unwrap();
            let region = if start < "0500" { 0 } else { 1 + usize::from(start >= "<") };
            regions[region] += sum(values.as_array().unwrap()) * step;
        }
        regions
    };
    let close = |rows: &[f64], wanted: &[f64]| {
        rows.len() == wanted.len() && rows.iter().zip(wanted).all(|(is, wanted)| (is - wanted).abs() < 0.5)
    };
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let (writes, reads) = (rows_of("writes"), rows_of("reads"));
        if close(&writes, &[300.0, 100.0, 0.0]) && close(&reads, &[200.0, 0.0, 0.0]) {
            break;
        }
        assert!(Instant::now() < deadline, "{writes:?} {reads:?}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }

    // a key that is read more than all others
    let path = "keys?range=15m&table=orders&requests=reads";
    let deadline = Instant::now() + Duration::from_secs(240); // keys are sampled, and a busy machine reads few
    let hot = loop {
        for _ in 0..10 {
            read_rows(&client, &regions[0], 42..43).await;
        }
        let map = api(master, path);
        if let Some(hot) = map["hot_keys"].as_array().unwrap().first() {
            break hot.clone();
        }
        assert!(Instant::now() < deadline, "{map:#}");
    };
    assert_eq!((&hot["table"], &hot["key"]), (&"orders".into(), &"0042".into()), "{hot}");
    assert!(hot["reads_per_s"].as_f64().unwrap() > 1.0 && hot["writes_per_s"] == 0.0, "{hot}");
    let map = api(master, path);
    let hot_row = map["rows"].as_array().unwrap().iter().find(|row| row["is_one_key"] == true);
    assert_eq!(hot_row.expect("a row of the hot key")["start"], "0042");
    assert!(api(master, "keys?range=15m&table=others")["hot_keys"].as_array().unwrap().is_empty());

    let memory = api(master, "memory");
    assert_eq!(memory["budget_bytes"], 256 << 20);
    let of_console = memory["parts"].as_array().unwrap().iter().find(|part| part["name"] == "console");
    let held_bytes = of_console.expect("the console counts itself")["held_bytes"].as_u64().unwrap();
    assert!((1_000..13 << 20).contains(&held_bytes), "{held_bytes}");
    assert!(
        memory["parts"].as_array().unwrap().len() > 5 && memory["resident_bytes"].as_u64().unwrap() > 1 << 20
    );
    let settings = api(master, "settings");
    let named = |name: &str| {
        let all = settings["settings"].as_array().unwrap();
        all.iter().find(|it| it["name"] == name).unwrap_or_else(|| panic!("no setting {name}")).clone()
    };
    let budget = named("halcyon.memory.bytes");
    assert_eq!((&budget["value"], &budget["source"]), (&"268435456".into(), &"option".into()));
    assert_eq!(named("hbase.hstore.flusher.count")["source"], "default");

    // values of cells are nowhere
    for path in [
        "/",
        "/state",
        "/api/v1/keys?range=15m",
        "/api/v1/regions",
        "/api/v1/tables",
        "/api/v1/stalls?range=1h",
    ] {
        assert!(!Page::get(master, path, "").body.contains("that no page shows"), "{path}");
    }
    server.stop();
    let _ = std::fs::remove_dir_all(&dir);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_is_whole_and_other_programs_get_text() {
    let dir = fresh_dir("console-page");
    let server = Server::start(&dir, &[]);
    for port in ["master-info", "regionserver-info"] {
        let address = server.address(port);
        let page = Page::get(address, "/", "Accept: text/html,application/xhtml+xml\r\n");
        assert_eq!(page.status, 200);
        assert!(
            page.head.contains("content-security-policy: default-src 'none'; script-src 'self'"),
            "{}",
            page.head
        );
        assert!(page.body.starts_with("<!doctype html>"), "{}", page.body);
        let text = Page::get(address, "/", "Accept: */*\r\n");
        assert!(text.body.starts_with("halcyon ") && text.body.contains("\nsettings\n"), "{}", text.body);
        assert_eq!(text.body.lines().next(), Page::get(address, "/state", "").body.lines().next());
        // everything that the page names is there, and is not sent twice
        for named in page.body.split('"').filter(|part| part.starts_with("/console/")) {
            let asset = Page::get(address, named, "");
            assert!(asset.status == 200 && !asset.body.is_empty(), "{named}");
            assert!(asset.head.contains("x-content-type-options: nosniff"), "{named}: {}", asset.head);
            let tag = asset.head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap().to_string();
            assert_eq!(Page::get(address, named, &format!("If-None-Match: {tag}\r\n")).status, 304);
        }
        for path in ["/memory", "/stalls", "/stalls.json", "/metrics", "/console"] {
            assert_eq!(Page::get(address, path, "").status, 200, "{path}");
        }
    }
    server.stop();
    let _ = std::fs::remove_dir_all(&dir);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_parameters_are_refused_by_name() {
    let dir = fresh_dir("console-bad");
    let server = Server::start(&dir, &[]);
    let address = server.address("master-info");
    for (path, named) in [
        ("series", "range"),
        ("series?range=2h", "range"),
        ("series?range=15m&after_ms=soon", "after_ms"),
        ("series?range=15m&names=no.such", "no.such"),
        ("series?range=15m&rang=1h", "rang"),
        ("stalls?range=", "range"),
        ("stalls", "range"),
        ("keys?range=15m&requests=some", "requests"),
        ("keys?range=15m&rows=0", "rows"),
        ("keys?range=15m&rows=201", "rows"),
        ("keys?range=15m&rows=-1", "rows"),
        ("regions?limit=0", "limit"),
        ("regions?limit=99999999999999999999", "limit"),
        ("regions?order=random", "order"),
        ("regions?offset=x", "offset"),
        ("summary?x=1", "x"),
        ("settings?verbose=1", "verbose"),
    ] {
        let page = Page::get(address, &format!("/api/v1/{path}"), "");
        assert_eq!(page.status, 400, "{path}: {}", page.body);
        let answer: Value =
            serde_json::from_str(&page.body).unwrap_or_else(|_| panic!("{path}: {}", page.body));
        assert!(answer["error"].as_str().unwrap().contains(named), "{path}: {answer}");
    }
    for path in ["/api/v1/nothing", "/api/v2/summary", "/console/../Cargo.toml", "/console/nothing.js"] {
        assert_eq!(Page::get(address, path, "").status, 404, "{path}");
    }
    // odd ones that are allowed
    for path in
        ["regions?offset=999999999", "keys?range=24h&table=%3Cscript%3E", "series?range=24h&after_ms=-5"]
    {
        api(address, path);
    }
    server.stop();
    let _ = std::fs::remove_dir_all(&dir);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_procedure_is_listed_while_it_runs() {
    let dir = fresh_dir("console-procedures");
    let server = Server::start(&dir, &[]);
    let address = server.address("master-info");
    let client = Client::connect(&server).await;
    client.create_table("slow", vec![family("f")], &[]).await;
    assert_eq!(api(address, "procedures")["procedures"], Value::Array(Vec::new()));
    let regions = client.regions("slow").await;
    let read = pb::GetRequest { region: specifier(&regions[0]), get: get(b"x") };
    client.call("Get", &read, &[]).await.unwrap();
    let splits: Vec<Bytes> = (0..200).map(|at| Bytes::from(format!("{at:03}"))).collect();
    let table_schema = pb::TableSchema {
        table_name: Some(common::table_name("many")),
        column_families: vec![family("f")],
        ..Default::default()
    };
    let request = pb::CreateTableRequest { table_schema, split_keys: splits, ..Default::default() };
    let created: pb::CreateTableResponse = client.master.call("CreateTable", &request).await.unwrap();
    let listed = api(address, "procedures");
    let one = &listed["procedures"][0];
    assert_eq!(
        (&one["id"], &one["name"]),
        (&created.proc_id.unwrap().into(), &"CreateTableProcedure".into())
    );
    let locks = listed["locks"].as_array().unwrap();
    let held = locks.iter().find(|lock| lock["resource"].as_str().unwrap().contains("many")).unwrap();
    assert_eq!((&held["mode"], &held["holders"][0]), (&"exclusive".into(), &one["id"]), "{listed}");
    client.finish(created.proc_id.unwrap()).await;
    assert_eq!(api(address, "procedures")["procedures"], Value::Array(Vec::new()));
    server.stop();
    let _ = std::fs::remove_dir_all(&dir);
}
