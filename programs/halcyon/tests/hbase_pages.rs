//! HBase's addresses on the info ports of a running server, and `docs/compatibility/metrics.tsv`.
//!
//! `metrics.tsv` lists every attribute that `/jmx` of HBase 2.6.4 has, and what of it is filled here. `HALCYON_WRITE_DOCS=1`
//! writes its third column anew.

#![allow(clippy::disallowed_methods)] // files of this directory, and real sockets

use crate::common;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::common::{Client, Server, family, fresh_dir, put};
use halcyon_cell::Cell;
use halcyon_env::sim::Dice;
use halcyon_proto::pb;
use serde_json::Value;

/// Status and body of an answer.
fn ask(address: SocketAddr, path: &str, headers: &str) -> (u16, String) {
    ask_by("GET", address, path, headers)
}

fn ask_by(method: &str, address: SocketAddr, path: &str, headers: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let host = if headers.contains("Host:") { "" } else { "Host: localhost\r\n" };
    let request = format!("{method} {path} HTTP/1.1\r\n{host}Connection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{path}: no answer: {answer}"));
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_string())
}

fn page(address: SocketAddr, path: &str) -> String {
    let (status, body) = ask(address, path, "");
    assert_eq!(status, 200, "{path}: {body}");
    body
}

fn json(address: SocketAddr, path: &str) -> Value {
    serde_json::from_str(&page(address, path)).unwrap()
}

fn beans(address: SocketAddr, query: &str) -> Vec<Value> {
    json(address, &format!("/jmx{query}"))["beans"].as_array().unwrap().clone()
}

/// A server with a table of two regions. Seven rows were written and read.
struct Lab {
    server: Server,
    master: SocketAddr,
    region_server: SocketAddr,
}

impl Lab {
    async fn start(name: &str) -> Lab {
        let server = Server::start(&fresh_dir(name), &["--memory", "256m"]);
        let (master, region_server) = (server.address("master-info"), server.address("regionserver-info"));
        let client = Client::connect(&server).await;
        let regions = client.create_table("orders", vec![family("f")], &[b"<b>\x00&"]).await;
        for row in 0..7u8 {
            let cell = Cell::put(&[b'0' + row], b"f", b"q", i64::MAX, b"a value that no page shows");
            client.mutate(&regions[0], put(1), &[cell]).await.unwrap();
            assert!(client.value(&regions[0], &row.to_string()).await.unwrap().is_some());
        }
        Lab { server, master, region_server }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_have_hbases_names_and_are_true() {
    let lab = Lab::start("hbase-pages-numbers").await;
    let server = &beans(lab.region_server, "?qry=Hadoop:service=HBase,name=RegionServer,sub=Server")[0];
    let number = |name: &str| server[name].as_u64().unwrap_or_else(|| panic!("no {name} in {server:#}"));
    assert!(number("writeRequestCount") >= 7 && number("readRequestCount") >= 7);
    assert!(number("rpcMutateRequestCount") >= 7 && number("rpcGetRequestCount") >= 7);
    let regions = json(lab.region_server, "/api/v1/summary")["regions_count"].clone();
    assert_eq!(server["regionCount"], regions);
    let writes = "Namespace_default_table_orders_metric_writeRequestCount";
    let of_table = format!("?get=Hadoop:service=HBase,name=RegionServer,sub=Tables::{writes}");
    assert_eq!(beans(lab.region_server, &of_table)[0][writes], 7);
    operations_are_timed(&lab);
    let ipc = &beans(lab.region_server, "?qry=Hadoop:sub=IPC,*")[0];
    assert!(
        ipc["TotalCallTime_num_ops"].as_u64().unwrap() >= 14 && ipc["receivedBytes"].as_u64().unwrap() > 0
    );
    let master = &beans(lab.master, "?qry=Hadoop:service=HBase,name=Master,sub=Server")[0];
    assert_eq!((&master["numRegionServers"], &master["tag.isActiveMaster"]), (&1.into(), &"true".into()));
    assert!(master["clusterRequests"].as_u64().unwrap() >= 14);
    moves_are_counted(&lab).await;
    let prometheus = page(lab.region_server, "/prometheus");
    let of_mutates = |line: &&str| line.starts_with("server_rpc_mutate_request_count{");
    let line = prometheus.lines().find(of_mutates).unwrap();
    assert!(line.contains("context=\"regionserver\"") && !line.ends_with(" 0"), "{line}");
    for refused in ["get=nonsense", "qry=nonsense", "callback=f"] {
        assert_eq!(ask(lab.region_server, &format!("/jmx?{refused}"), "").0, 400, "{refused}");
    }
    lab.server.stop();
}

/// A call is counted when its answer was given to the socket: its client may be faster.
fn operations_are_timed(lab: &Lab) {
    let bean =
        |sub| beans(lab.region_server, &format!("?qry=Hadoop:name=RegionServer,sub={sub},*"))[0].clone();
    let name = |op: &str, end: &str| format!("Namespace_default_table_orders_metric_{op}Time_{end}");
    let deadline = Instant::now() + Duration::from_secs(20);
    let latencies = loop {
        let latencies = bean("TableLatencies");
        if ["get", "put"].iter().all(|op| latencies[name(op, "num_ops")] == 7) {
            break latencies;
        }
        assert!(Instant::now() < deadline, "{latencies:#}");
        std::thread::sleep(Duration::from_millis(50));
    };
    for op in ["get", "put"] {
        let [min, p99, max] =
            ["min", "99th_percentile", "max"].map(|end| latencies[name(op, end)].as_f64().unwrap());
        assert!(0.0 < min && min <= p99 && p99 <= max, "{latencies:#}");
    }
    let server = bean("Server");
    let count = |op: &str| server[format!("{op}_num_ops")].as_u64().unwrap();
    assert!(count("Get") >= 7 && count("Put") >= 7 && count("CheckAndPut") == 0, "{server:#}");
}

/// One region is moved, and one move is refused.
async fn moves_are_counted(lab: &Lab) {
    let client = Client::connect(&lab.server).await;
    let region = client.regions("orders").await.remove(0);
    let unknown = pb::RegionSpecifier { r#type: 1, value: "orders,,1.x.".into() };
    for (region, is_known) in [(common::specifier(&region), true), (unknown, false)] {
        let request = pb::MoveRegionRequest { region, dest_server_name: None };
        let moved: Result<pb::MoveRegionResponse, _> = client.master.call("MoveRegion", &request).await;
        assert_eq!(moved.is_ok(), is_known);
    }
    let ask =
        |sub: &str| beans(lab.master, &format!("?qry=Hadoop:service=HBase,name=Master,sub={sub}"))[0].clone();
    let assignment = ask("AssignmentManager");
    let [submitted, failed, ended] = ["MoveSubmittedCount", "MoveFailedCount", "MoveTime_num_ops"]
        .map(|name| assignment[name].as_u64().unwrap());
    assert_eq!((submitted - failed, ended), (1, 1), "{assignment:#}");
    assert!(assignment["MoveTime_mean"].as_f64().unwrap() >= 0.0);
    assert_eq!(assignment["SplitSubmittedCount"], 0);
    assert_eq!(ask("Snapshots")["SnapshotTime_num_ops"], 0);
    assert_eq!(ask("Procedure")["numMasterWALs"], 0);
    let quotas = ask("Quotas");
    assert_eq!(
        (&quotas["numSpaceQuotas"], &quotas["tag.tableSpaceQuotaOverview"]),
        (&0.into(), &"[]".into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_at_hbases_addresses_and_show_no_values() {
    let lab = Lab::start("hbase-pages-pages").await;
    for address in [lab.master, lab.region_server] {
        let status = if address == lab.master { "/master-status" } else { "/rs-status" };
        let others = ["/table.jsp?name=orders", "/dump", "/stacks", "/logs/", "/conf", "/jmx", "/prometheus"];
        for path in [status].into_iter().chain(others) {
            let body = page(address, path);
            assert!(!body.contains("a value that no page shows"), "{path}");
            assert!(!body.contains('\0'), "{path}: a key is not escaped");
            let is_plain_text = ["/dump", "/stacks"].contains(&path);
            assert!(is_plain_text || !body.contains("<b>"), "{path}: a key is markup");
        }
        assert_eq!(page(address, "/health"), "OK\n");
        assert!(page(address, "/table.jsp?name=orders").contains("&lt;b&gt;\\x00&amp;"));
        assert_eq!(ask(address, "/table.jsp?name=none", "").0, 404);
        assert_eq!(ask(address, "/table.jsp?name=a%00b", "").0, 400);
        assert_eq!(ask(address, "/table.jsp", "").0, 400);
    }
    const NAME: &str = "hbase.ipc.warn.response.time";
    let conf = json(lab.master, "/conf?format=json");
    let properties = conf["properties"].as_array().unwrap();
    assert_eq!(properties.iter().find(|property| property["key"] == NAME).unwrap()["value"], "10000");
    assert!(page(lab.master, "/conf").contains(&format!("<name>{NAME}</name><value>10000</value>")));
    let (_, accepted) = ask(lab.master, "/conf", "Accept: application/json\r\n");
    assert_eq!(serde_json::from_str::<Value>(&accepted).unwrap(), conf);
    assert_eq!(ask(lab.master, "/conf?format=yaml", "").0, 400);
    lab.server.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_level_of_the_log_changes() {
    let lab = Lab::start("hbase-pages-log").await;
    let before = page(lab.master, "/logLevel");
    assert!(before.contains("Filter in force: ") && !before.contains("halcyon_coord=debug"), "{before}");
    const CHANGE: &str = "/logLevel?log=halcyon_coord&level=debug";
    let (status, how) = ask(lab.master, CHANGE, "");
    assert!(status == 405 && how.contains("curl -X POST"), "a link changes nothing: {status} {how}");
    assert!(!page(lab.master, "/logLevel").contains("halcyon_coord=debug"));
    let (status, changed) = ask_by("POST", lab.master, CHANGE, "Content-Length: 0\r\n");
    assert_eq!(status, 200, "{changed}");
    assert!(changed.contains("halcyon_coord=debug\n"), "{changed}");
    assert!(page(lab.region_server, "/logLevel").contains("halcyon_coord=debug"), "there is one log");
    for bad in ["level=loud", "log=a%0ab&level=info", "log=a%2Cb&level=info"] {
        assert_eq!(ask_by("POST", lab.master, &format!("/logLevel?{bad}"), "").0, 400, "{bad}");
    }
    assert_eq!(ask_by("POST", lab.master, "/logLevel?log=halcyon_coord", "").0, 400, "no level");
    for site in
        ["Sec-Fetch-Site: cross-site\r\n", "Sec-Fetch-Site: same-site\r\n", "Origin: http://evil.example\r\n"]
    {
        let (status, _) = ask_by("POST", lab.master, "/logLevel?level=off", site);
        assert_eq!(status, 403, "another site may not change it: {site}");
        assert_eq!(ask(lab.master, "/prof?seconds=1", site).0, 403, "nor take a profile: {site}");
    }
    lab.server.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_name_another_host_are_refused() {
    let lab = Lab::start("hbase-pages-host").await;
    for path in ["/", "/jmx", "/api/v1/summary", "/metrics"] {
        let (status, body) = ask(lab.master, path, "Host: evil.example:16010\r\n");
        assert_eq!(status, 403, "{path}");
        assert!(body.contains("hbase.regionserver.hostname"), "{body}");
        assert_eq!(ask(lab.master, path, "Host: 127.0.0.1\r\n").0, 200, "{path}");
    }
    lab.server.stop();
}

const PATHS: [&str; 8] =
    ["/jmx", "/prometheus", "/conf", "/table.jsp", "/logLevel", "/dump", "/health", "/rs-status"];
const NAMES: [&str; 9] = ["qry", "get", "excl", "description", "callback", "name", "format", "log", "level"];
/// Bits of values: with them random queries come further than the first look at them.
const BITS: [&str; 18] = [
    "",
    "%",
    "%00",
    "%ff%fe",
    "*",
    "*:*,*",
    "::",
    "a:b=",
    "%F0%9F%92%A9",
    "[a-z]*",
    "[",
    "..%2f..",
    "%3Cscript%3E",
    "Hadoop:service=HBase,name=",
    ",sub=",
    "default:",
    "hbase:meta",
    "?",
];

/// Whatever the query, a port answers with a status of its own and goes on. The seed is in the message of a failure;
/// `HALCYON_SEED` repeats it.
#[tokio::test(flavor = "multi_thread")]
async fn garbage_in_parameters_is_answered() {
    let lab = Lab::start("hbase-pages-garbage").await;
    let expect_answer = |target: &str| {
        let (status, body) = ask(lab.region_server, target, "");
        assert!([200, 400, 404, 405].contains(&status), "{target}: {status}");
        assert!(!body.contains("<script>"), "{target}");
    };
    let long = "x".repeat(4000);
    for path in PATHS {
        for name in NAMES {
            for value in BITS.into_iter().chain([long.as_str()]) {
                expect_answer(&format!("{path}?{name}={value}"));
                expect_answer(&format!("{path}?{name}={value}&{name}={value}"));
            }
        }
    }
    let seed = std::env::var("HALCYON_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_261_123);
    println!("HALCYON_SEED={seed}");
    let mut dice = Dice::new(seed);
    for _ in 0..1000 {
        let mut target = format!("{}?", PATHS[dice.below(PATHS.len())]);
        for _ in 0..=dice.below(3) {
            target += &format!("{}=", NAMES[dice.below(NAMES.len())]);
            for _ in 0..dice.below(6) {
                match dice.below(3) {
                    0 => target += &format!("%{:02x}", dice.below(256)),
                    1 => target.push(char::from(b'a' + dice.below(26) as u8)),
                    _ => target += BITS[dice.below(BITS.len())],
                }
            }
            target.push('&');
        }
        expect_answer(&target);
    }
    assert_eq!(page(lab.region_server, "/health"), "OK\n");
    lab.server.stop();
}

// ---- docs/compatibility/metrics.tsv ----

const HISTOGRAM: [&str; 12] = [
    "num_ops",
    "min",
    "max",
    "mean",
    "25th_percentile",
    "median",
    "75th_percentile",
    "90th_percentile",
    "95th_percentile",
    "98th_percentile",
    "99th_percentile",
    "99.9th_percentile",
];

type Filled = BTreeMap<(String, String), BTreeSet<String>>;

/// `Namespace_default_table_t_region_x_metric_y`: the name with stars for table and region.
fn without_table(name: &str) -> String {
    match name.split_once("_metric_") {
        Some((before, metric)) if before.starts_with("Namespace_") => {
            let region = if before.contains("_region_") { "_region_*" } else { "" };
            format!("Namespace_*_table_*{region}_metric_{metric}")
        }
        _ => name.to_string(),
    }
}

/// Attributes of our beans, by HBase's name of the source; of histograms, what they have.
fn filled(lab: &Lab) -> Filled {
    let mut filled = Filled::new();
    for address in [lab.master, lab.region_server] {
        for bean in beans(address, "?qry=Hadoop:service=HBase,*") {
            let source = bean["modelerType"].as_str().unwrap().to_string();
            let names = bean.as_object().unwrap().keys();
            for name in names.filter(|name| !["name", "modelerType"].contains(&name.as_str())) {
                let name = without_table(name);
                let part =
                    |end: &&str| name.strip_suffix(*end)?.strip_suffix('_').map(|base| format!("{base}_*"));
                let (name, part) = match HISTOGRAM.iter().find_map(|end| Some((part(end)?, *end))) {
                    Some(of_histogram) => of_histogram,
                    None => (name, ""),
                };
                filled.entry((source.clone(), name)).or_default().insert(part.to_string());
            }
        }
    }
    filled
}

/// The third column.
fn status(parts: Option<&BTreeSet<String>>) -> String {
    match parts {
        None => "-".to_string(),
        Some(parts) if parts.contains("") => "yes".to_string(),
        Some(parts) => {
            HISTOGRAM.iter().copied().filter(|end| parts.contains(*end)).collect::<Vec<_>>().join(" ")
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_of_metrics_says_what_is_filled() {
    let lab = Lab::start("hbase-pages-list").await;
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/compatibility/metrics.tsv"));
    let mut filled = filled(&lab);
    let mut line_of = |line: &str| {
        if line.starts_with('#') {
            return line.to_string();
        }
        let columns: Vec<&str> = line.split('\t').collect();
        let parts = filled.remove(&(columns[0].to_string(), columns[1].to_string()));
        format!("{}\t{}\t{}\t{}", columns[0], columns[1], status(parts.as_ref()), columns[3])
    };
    let written = std::fs::read_to_string(&path).unwrap();
    let expected: Vec<String> = written.lines().map(&mut line_of).collect();
    assert_eq!(filled, Filled::new(), "HBase has no such names");
    if std::env::var_os("HALCYON_WRITE_DOCS").is_some() {
        std::fs::write(&path, expected.join("\n") + "\n").unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap();
    for (written, expected) in written.lines().zip(&expected) {
        // Which extremes and percentiles there are depends on how long calls took.
        let start = |line: &str| line.split("num_ops").next().unwrap_or_default().to_string();
        assert_eq!(start(written), start(expected), "run this test with HALCYON_WRITE_DOCS=1");
    }
    lab.server.stop();
}
