//! The load generators against a server of their own: what they write is there, and what is lost is noticed.
#![allow(clippy::disallowed_methods)] // files, clocks and processes from outside

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use bytes::Bytes;
use common::{Server, fresh_dir};
use halcyon_cell::{Cell, CellType};
use halcyon_client::{Action, Cluster, ClusterAddress, ClusterOptions, Mutation, MutationType, Scan};
use halcyon_proto::pb;
use halcyon_schema::{FamilyDescriptor, TableDescriptor, TableName};

fn command(server: &Server, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_halcyon"));
    command.arg("bench").args(line.split_whitespace());
    command.arg("--zookeeper").arg(server.address("zookeeper").to_string());
    command
}

fn bench(server: &Server, line: &str) -> Output {
    command(server, line).output().unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The whole output of a run that went well.
fn run(server: &Server, line: &str) -> String {
    let output = bench(server, line);
    assert!(output.status.success(), "{line}: {}", said(&output));
    assert!(!said(&output).contains("failed"), "{line}: {}", said(&output));
    said(&output)
}

async fn cluster(server: &Server) -> Cluster {
    let quorum = vec![server.address("zookeeper").to_string()];
    let address = ClusterAddress::ZooKeeper { quorum, base: "/hbase".to_string() };
    let options = ClusterOptions { connections_per_server: 2, ..ClusterOptions::default() };
    Cluster::connect(address, options).await.unwrap()
}

/// Every row of a table, by a scan of three rows each call.
async fn rows(cluster: &Cluster, table: &str, scan: pb::Scan) -> Vec<Vec<Cell>> {
    let table = cluster.table(TableName::parse(table.as_bytes()).unwrap(), 0);
    let mut scan = table.scan(Scan::from(scan).caching(3));
    let mut rows = Vec::new();
    while let Some(row) = scan.next().await.unwrap() {
        rows.push(row.into_cells());
    }
    rows
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_finds_its_way_through_many_regions() {
    let data = fresh_dir("bench-client");
    let server = Server::start(&data, &[]);
    let by_registry = ClusterAddress::Registry { servers: vec![server.address("master").to_string()] };
    let cluster_by_registry = Cluster::connect(by_registry, ClusterOptions::default()).await.unwrap();
    let cluster = cluster(&server).await;
    let name = TableName::parse(b"t").unwrap();
    let admin = cluster.admin().await.unwrap();
    assert!(admin.descriptor(&name).await.unwrap().is_none());
    let descriptor = TableDescriptor::new(name.clone()).with_family(FamilyDescriptor::new("f").unwrap());
    let splits = ["d", "h", "m"].map(|key| Bytes::from(key.to_string()));
    admin.create_table(&descriptor, splits.to_vec()).await.unwrap();
    assert_eq!(admin.regions_count(&name).await.unwrap(), 4);

    let table = cluster.table(name.clone(), 1);
    let keys: Vec<String> = ('a'..='z').map(String::from).collect();
    let put = |key: &String| {
        let cell = Cell::put(key.as_bytes(), b"f", b"q", i64::MAX, key.as_bytes());
        Action::Mutate(Mutation::put(Bytes::from(key.clone()), vec![cell]))
    };
    table.batch_all(&keys.iter().map(put).collect::<Vec<_>>()).await.unwrap();
    let get = |key: &str| pb::Get { row: Bytes::from(key.to_string()), ..Default::default() };
    let gets = ["z", "nowhere", "a"].map(|key| Action::Get(get(key).into()));
    let found = table.batch_all(&gets).await.unwrap();
    assert_eq!(found.iter().map(|row| row.len()).collect::<Vec<_>>(), [1, 0, 1]);
    assert_eq!(found[2][0].value(), b"a");
    assert_eq!(cluster_by_registry.table(name.clone(), 0).get(get("k")).await.unwrap()[0].value(), b"k");

    let key = |row: &Vec<Cell>| String::from_utf8(row[0].row().to_vec()).unwrap();
    let all = rows(&cluster, "t", pb::Scan::default()).await;
    assert_eq!(all.iter().map(key).collect::<Vec<_>>(), keys);
    let reversed = pb::Scan { reversed: Some(true), ..Default::default() };
    let all = rows(&cluster, "t", reversed).await;
    assert_eq!(all.iter().map(key).collect::<String>(), keys.concat().chars().rev().collect::<String>());
    let part = pb::Scan {
        start_row: Some(Bytes::from_static(b"c")),
        stop_row: Some(Bytes::from_static(b"m")),
        ..Default::default()
    };
    assert_eq!(rows(&cluster, "t", part).await.iter().map(key).collect::<String>(), "cdefghijkl");
    let mut limited = table.scan(Scan::new().caching(4).limit(6));
    let mut count = 0;
    while limited.next().await.unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, 6);

    admin.flush(&name).await.unwrap();
    admin.drop_table(&name).await.unwrap();
    let error = table.get(get("a")).await.unwrap_err();
    assert_eq!(error.class(), "TableNotFoundException", "{error}");
    server.stop();
    std::fs::remove_dir_all(&data).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn performance_evaluation_works_upon_its_table() {
    let data = fresh_dir("bench-pe");
    let server = Server::start(&data, &["--wal-sync", "written"]);
    let missing = bench(&server, "pe --rows=10 randomRead 1");
    assert!(
        !missing.status.success() && said(&missing).contains("there is no table TestTable"),
        "{}",
        said(&missing)
    );

    let json = data.with_extension("json");
    let line =
        format!("pe --rows=500 --presplit=3 --flushCommits=true --json {} sequentialWrite 2", json.display());
    let text = run(&server, &line);
    assert!(text.contains("1000 operations") && text.contains("us per operation"), "{text}");
    let result = std::fs::read_to_string(&json).unwrap();
    for word in [
        "\"benchmark\": \"pe sequentialWrite\"",
        "\"operations\": 1000",
        "\"partial\": null",
        "\"p99.9\"",
        "\"p99.9_us\"",
        "\"started_ms\": 1",
        "\"slow_left_out\": 0",
    ] {
        assert!(result.contains(word), "{word}: {result}");
    }
    let cluster = cluster(&server).await;
    let found = rows(&cluster, "TestTable", pb::Scan::default()).await;
    assert_eq!(found.len(), 1_000);
    assert_eq!(found[999][0].row(), b"00000000000000000000000999");
    assert_eq!((found[0][0].family(), found[0][0].qualifier()), (&b"info0"[..], &b"0"[..]));
    assert_eq!(found[0][0].value().len(), 1_000);

    for line in [
        "--rows=200 randomRead 3",
        "--rows=200 --multiGet=7 --oneCon=true randomRead 2",
        "--rows=200 --addColumns=false sequentialRead 2",
        "--rows=500 --caching=7 scan 2",
        "--rows=500 --reversed-is-not-an-option reverseScan 2",
        "--rows=500 reverseScan 2",
        "--rows=20 randomSeekScan 2",
        "--rows=20 scanRange10 2",
        "--rows=20 scanRange100 2",
        "--rows=5 --filterAll scanRange1000 1",
        "--rows=2 filterScan 1",
        "--rows=100 --rate=1000 randomRead 4",
        "--rows=200 --autoFlush=true --valueRandom randomWrite 4",
        "--rows=200 --autoFlush=true --multiPut=9 --writeToWAL=false randomWrite 2",
        "--rows=50 --table=Cas increment 3",
        "--rows=50 --table=Cas append 3",
        "--rows=50 --table=Cas checkAndMutate 2",
        "--rows=50 --table=Cas checkAndPut 2",
        "--rows=50 --table=Gone checkAndDelete 1",
        "--rows=60 --table=Wide --families=3 --columns=4 --usetags=true --numoftags=2 --compress=ZSTD sequentialWrite 1",
        "--rows=60 --families=3 --columns=4 --table=Wide sequentialRead 1",
        "--rows=500 --caching=7 --asyncPrefetch scan 2",
        "--rows=100 asyncRandomWrite 1",
        "--rows=100 --table=Async --autoFlush=true --multiPut=7 asyncSequentialWrite 1",
        "--rows=500 sequentialDelete 2",
    ] {
        if line.contains("not-an-option") {
            assert!(!bench(&server, &format!("pe {line}")).status.success());
            continue;
        }
        run(&server, &format!("pe {line}"));
    }
    let line = format!(
        "pe --rows=4000 --rate=2000 --warmup 1 --slow-ms 0.001 --json {} randomRead 2",
        json.display()
    );
    let text = run(&server, &line);
    assert!(text.contains("after a warm-up of 1 s with "), "{text}");
    let result = std::fs::read_to_string(&json).unwrap();
    let number = |name: &str| -> f64 {
        let (_, rest) = result.split_once(&format!("\"{name}\": ")).unwrap();
        rest.split([',', '\n']).next().unwrap().parse().unwrap()
    };
    assert_eq!(number("operations") + number("warmup_operations"), 8_000.0, "{text}");
    assert!((1_500.0..2_500.0).contains(&number("warmup_operations")), "{text}");
    // every read takes longer than a microsecond; those that were under way when the warm-up ended are not measured
    let slow = result.matches("\"at_s\"").count() as f64;
    assert!(slow <= number("operations") && slow > number("operations") - 100.0, "{slow}: {text}");
    // regions that do not exist, in hbase:meta until they are cleaned up
    let regions_count = async || {
        let admin = cluster.admin().await.unwrap();
        admin.regions_count(&TableName::parse(b"Cas").unwrap()).await.unwrap()
    };
    assert_eq!(regions_count().await, 1);
    run(&server, "pe --table=Cas --rows=120 metaWrite 1");
    assert_eq!(regions_count().await, 121);
    let text = run(&server, "pe --table=Cas --rows=120 metaRandomRead 2");
    assert!(text.contains("found 240 rows, 0 cells") && text.contains("not there 0"), "{text}");
    let text = run(&server, "pe --table=Cas --rows=120 cleanMeta 1");
    assert!(text.contains("found 120 rows") && text.contains("not there 0"), "{text}");
    assert_eq!(regions_count().await, 1);
    let text = run(&server, "pe --table=Cas --rows=120 cleanMeta 1");
    assert!(text.contains("found 0 rows") && text.contains("not there 120"), "the real region stays: {text}");
    assert_eq!(regions_count().await, 1);
    let text = run(&server, "pe --table=Wide --rows=70 --families=3 --columns=4 sequentialRead 1");
    assert!(text.contains("found 60 rows, 720 cells, 720000 bytes of values; not there 10"), "{text}");
    let counter = |row: &Vec<Cell>| {
        row.iter().find(|cell| cell.qualifier() == b"IncrementTest").unwrap().value().to_vec()
    };
    let found = rows(&cluster, "Cas", pb::Scan::default()).await;
    assert_eq!(found.len(), 50);
    assert!(found.iter().all(|row| counter(row) == 3i64.to_be_bytes()), "each of three clients counts once");
    let appended =
        |row: &Vec<Cell>| row.iter().find(|cell| cell.qualifier() == b"AppendTest").unwrap().value().len();
    assert!(found.iter().all(|row| appended(row) == 3 * 26));
    assert_eq!(rows(&cluster, "Gone", pb::Scan::default()).await.len(), 0);
    let found = rows(&cluster, "Wide", pb::Scan::default()).await;
    assert!(found.len() == 60 && found.iter().all(|row| row.len() == 12));
    assert_eq!(rows(&cluster, "TestTable", pb::Scan::default()).await.len(), 0);
    server.stop();
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::remove_file(&json).unwrap();
}

#[test]
fn ycsb_runs_its_workloads() {
    let data = fresh_dir("bench-ycsb");
    let server = Server::start(&data, &["--wal-sync", "written"]);
    let missing = bench(&server, "ycsb run --workload a");
    assert!(said(&missing).contains("hbase.presplit"), "{}", said(&missing));
    run(&server, "ycsb load --workload a --threads 3 -p recordcount=500 -p hbase.presplit=4");
    for workload in ["a", "b", "c", "d", "e", "f"] {
        let line =
            format!("ycsb run --workload {workload} --threads 4 -p recordcount=500 -p operationcount=1000");
        let text = run(&server, &line);
        assert!(text.contains("1000 operations"), "{text}");
    }
    let files = data.with_extension("properties");
    std::fs::write(&files, "recordcount=500\noperationcount=200\nreadproportion=1\nupdateproportion=0\n")
        .unwrap();
    let text = run(
        &server,
        &format!("ycsb run -P {} -p requestdistribution=hotspot --target 2000", files.display()),
    );
    assert!(text.contains("200 operations") && text.contains("READ latency"), "{text}");
    server.stop();
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::remove_file(&files).unwrap();
}

/// The number behind a word of the verifier.
fn told(text: &str, word: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{word} ")));
    line.unwrap_or_else(|| panic!("{word}: {text}")).parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_node_is_noticed() {
    let data = fresh_dir("bench-lost");
    let server = Server::start(&data, &["--wal-sync", "written"]);
    run(&server, "ingest write --nodes 5000 --batch 100 --layer 500 --clients 2");
    let text = run(&server, "ingest verify --clients 3");
    assert_eq!((told(&text, "UNDEFINED"), told(&text, "CORRUPT")), (0, 0));
    assert_eq!(told(&text, "REFERENCED") + told(&text, "UNREFERENCED"), 5_000);
    assert_eq!(told(&text, "REFERENCED"), 4_000, "all but the last layer of each client");

    // a node that somebody refers to
    let cluster = cluster(&server).await;
    let nodes = rows(&cluster, "ci", pb::Scan::default()).await;
    let before = |row: &Vec<Cell>| {
        let value = String::from_utf8(row[0].value().to_vec()).unwrap();
        value.split(':').nth(2).map(str::to_string).filter(|before| !before.is_empty())
    };
    let lost = Bytes::from(nodes.iter().find_map(before).unwrap());
    let marker = Cell::build(&lost, b"ci", b"", i64::MAX, CellType::DeleteFamily, b"", b"", 0);
    let delete = Mutation::new(MutationType::Delete, lost.clone(), vec![marker]);
    let table = cluster.table(TableName::parse(b"ci").unwrap(), 0);
    table.mutate(&delete).await.unwrap();
    let corrupt = Mutation::put(
        nodes[7][0].row().to_vec().into(),
        vec![Cell::put(nodes[7][0].row(), b"ci", nodes[7][0].qualifier(), i64::MAX, b"not what was written")],
    );
    table.mutate(&corrupt).await.unwrap();
    let output = bench(&server, "ingest verify");
    let text = said(&output);
    assert!(!output.status.success());
    assert!(told(&text, "UNDEFINED") >= 1 && told(&text, "UNDEFINED") <= 2, "{text}");
    assert_eq!(told(&text, "CORRUPT"), 1);
    assert!(text.contains(&format!("undefined {}", std::str::from_utf8(&lost).unwrap())), "{text}");
    server.stop();
    std::fs::remove_dir_all(&data).unwrap();
}

#[test]
fn acknowledged_nodes_survive_a_kill() {
    let data = fresh_dir("bench-kill");
    for round in 0..2 {
        let server = Server::start(&data, &[]);
        if round == 0 {
            run(&server, "ingest write --nodes 200 --batch 50 --layer 50"); // creating the table takes its time
        }
        let json = data.with_extension("json");
        let line = format!(
            "ingest write --nodes 100000000 --batch 50 --layer 200 --clients 4 --operation-timeout 2 --json {}",
            json.display()
        );
        let mut writing = command(&server, &line);
        let writing = writing.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(1_500 + 500 * round));
        server.kill();
        let output = writing.wait_with_output().unwrap();
        let text = said(&output);
        assert!(
            !output.status.success() && text.contains("the result is partial: an operation failed"),
            "{text}"
        );
        assert!(
            std::fs::read_to_string(&json).unwrap().contains("\"partial\": \"an operation failed"),
            "{text}"
        );
        std::fs::remove_file(&json).unwrap();

        let server = Server::start(&data, &[]);
        let text = run(&server, "ingest verify");
        assert_eq!((told(&text, "UNDEFINED"), told(&text, "CORRUPT")), (0, 0), "{text}");
        assert!(told(&text, "REFERENCED") > 500, "{text}");
        server.stop();
    }
    std::fs::remove_dir_all(&data).unwrap();
}

#[test]
fn limits_are_measured_and_nothing_stays() {
    let dir = fresh_dir("bench-limits");
    std::fs::create_dir_all(&dir).unwrap();
    let json = dir.with_extension("json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_halcyon"));
    let command = command.args(["bench", "limits", "--seconds", "1", "--clients", "4", "--connections", "2"]);
    let command = command.args(["--calls", "1x1,2x8", "--send-sizes", "1000,65536", "--dir"]);
    let output = command.arg(&dir).arg("--json").arg(&json).output().unwrap();
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    let result = std::fs::read_to_string(&json).unwrap();
    for name in [
        "a call that does nothing, connections 1, calls at once 1",
        "a call that does nothing, connections 2, calls at once 8",
        "a get that is answered with a cell at hand, connections 2, calls at once 8",
        "a log, written",
        "a log, fsync",
        "a plain send, 1000 bytes a write",
        "a plain send, 65536 bytes a write",
        "a plain send, 64 pieces of 16384 bytes a write",
    ] {
        assert!(text.contains(&format!("limits: {name}: ")), "{text}");
        assert!(result.contains(name), "{result}");
    }
    assert_eq!(text.matches("MB/s").count(), 7, "{text}");
    assert!(!text.contains(" 0 operations"), "{text}");
    std::fs::remove_dir(&dir).expect("nothing was left in it");
    std::fs::remove_file(&json).unwrap();
}

#[test]
fn no_cluster_is_told_within_seconds_and_an_interrupt_keeps_what_was_measured() {
    let start = std::time::Instant::now();
    let mut nowhere = Command::new(env!("CARGO_BIN_EXE_halcyon"));
    let nowhere =
        nowhere.args(["bench", "pe", "--zookeeper", "127.0.0.1:1", "randomRead", "1"]).output().unwrap();
    assert!(
        !nowhere.status.success() && said(&nowhere).contains("cannot find the cluster"),
        "{}",
        said(&nowhere)
    );
    assert!(start.elapsed() < Duration::from_secs(10));

    let data = fresh_dir("bench-interrupt");
    let server = Server::start(&data, &["--wal-sync", "written"]);
    let json: PathBuf = data.with_extension("json");
    let line = format!("pe --rows=1000000 --autoFlush=true --json {} randomWrite 2", json.display());
    let writing = command(&server, &line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let sent = Command::new("kill").arg("-INT").arg(writing.id().to_string()).status().unwrap();
    assert!(sent.success());
    let output = writing.wait_with_output().unwrap();
    assert!(
        said(&output).contains("(partial)") && said(&output).contains("interrupted"),
        "{}",
        said(&output)
    );
    let is_marked =
        |json: &Path| std::fs::read_to_string(json).unwrap().contains("\"partial\": \"interrupted\"");
    assert!(is_marked(&json));
    server.stop();
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::remove_file(&json).unwrap();
}
