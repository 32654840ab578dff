//! Which parts of HBase's interface work: `docs/compatibility/*.tsv` say it, and a server is asked here.
//!
//! Each RPC method, filter and attribute of the tables is tried. One that is marked *refused* answers its refusal with
//! the words of its line, do-not-retry; one that is marked otherwise does not. That shows no effect: a line that is marked
//! *works* also names a test that does, and the test has to be there. The methods are those of `base/proto/services`. `UPDATE=1`
//! writes `docs/COMPATIBILITY.md` from the tables.
#![allow(clippy::disallowed_methods)] // reads the source tree

mod named_tests;

use crate::common;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::common::{Client, Server, fresh_dir, get, table_name};
use bytes::Bytes;
use halcyon_client::{ClientError, ConnectOptions, Connection, RemoteException};
use halcyon_proto::pb;
use prost::Message;

const CALL_TIME_MAX: Duration = Duration::from_secs(30);
/// Services that clients reach through `ExecService` of a region, with the method that carries them.
const ENDPOINTS: &[(&str, &str)] = &[
    ("AccessControlService", "ExecService"),
    ("AggregateService", "ExecService"),
    ("AuthenticationService", "ExecService"),
    ("BulkDeleteService", "ExecService"),
    ("ExportService", "ExecService"),
    ("MultiRowMutationService", "ExecService"),
    ("RSGroupAdminService", "ExecMasterService"),
    ("RowProcessorService", "ExecService"),
    ("VisibilityLabelsService", "ExecService"),
];
/// Methods that end the server: tried last, each on a server of its own.
const ENDING: &[&str] = &["Shutdown", "StopMaster"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Lines of a table without its head, cut at tabs.
fn table(name: &str) -> Vec<Vec<String>> {
    let path = root().join("docs/compatibility").join(name);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(|line| line.split('\t').map(str::to_string).collect()).collect()
}

/// What a server did with a request that may be refused.
#[derive(Debug)]
enum Answer {
    Taken,
    Exception(Box<RemoteException>),
    Closed,
}

impl Answer {
    fn of<T>(result: Result<T, ClientError>) -> Answer {
        match result {
            Ok(_) => Answer::Taken,
            Err(ClientError::Remote(exception)) => Answer::Exception(exception),
            Err(ClientError::Io(error)) if error.kind() == std::io::ErrorKind::TimedOut => panic!("{error}"),
            Err(_) => Answer::Closed,
        }
    }

    /// Whether the method itself is not supported, whatever the request says.
    fn is_refusal(&self) -> bool {
        let Answer::Exception(exception) = self else { return false };
        exception.trace.contains("UnsupportedOperationException")
            || exception.simple_class() == "UnknownProtocolException"
    }

    fn contains(&self, words: &str) -> bool {
        let Answer::Exception(exception) = self else { return false };
        exception.trace.contains(words) || exception.class.contains(words)
    }

    fn is_do_not_retry(&self) -> bool {
        matches!(self, Answer::Exception(exception) if exception.do_not_retry)
    }
}

/// The complaint about one line, if its status does not agree with what the server did.
fn disagreement(what: &str, status: &str, note: &str, answer: &Answer, is_refusal: bool) -> Option<String> {
    let agrees = match status {
        "closed" => matches!(answer, Answer::Closed),
        "refused" => is_refusal && answer.is_do_not_retry() && !note.is_empty() && answer.contains(note),
        "partly" | "ignored" => !note.is_empty() && !is_refusal && !matches!(answer, Answer::Closed),
        "works" | "answered" => !is_refusal && !matches!(answer, Answer::Closed),
        _ => false,
    };
    (!agrees).then(|| format!("{what} is marked {status:?} with {note:?}, and the server answers {answer:?}"))
}

fn assert_none(complaints: &[String]) {
    assert!(complaints.is_empty(), "{} lines:\n{}", complaints.len(), complaints.join("\n"));
}

#[test]
fn every_method_of_hbase_has_its_line() {
    let proto = root().join("base/proto");
    let files = protox::compile(["services.proto"], [proto.join("services"), proto.join("proto")]).unwrap();
    let mut methods = Vec::new();
    for service in files.file.iter().flat_map(|file| &file.service) {
        methods.extend(service.method.iter().map(|method| (service.name(), method.name())));
    }
    let lines = table("rpc.tsv");
    let listed: Vec<(&str, &str)> = lines.iter().map(|line| (line[0].as_str(), line[1].as_str())).collect();
    assert!(methods.len() > 200, "{}", methods.len());
    assert_eq!(listed, methods);
}

#[test]
fn every_admin_call_leads_to_methods_that_have_their_line() {
    let rpc: BTreeMap<String, String> =
        table("rpc.tsv").into_iter().map(|line| (line[1].clone(), line[3].clone())).collect();
    let rank =
        |status: &str| ["works", "answered", "partly", "refused"].iter().position(|known| *known == status);
    let mut complaints = Vec::new();
    for line in table("admin.tsv") {
        let (name, status) = (&line[0], line[2].as_str());
        for method in line[1].split(", ").filter(|method| *method != "-") {
            let of_method = rpc.get(method).map(String::as_str);
            // what an Admin call needs cannot be worse than the call itself
            if of_method.and_then(rank).is_none_or(|needed| rank(status).is_none_or(|own| own < needed)) {
                complaints.push(format!("Admin.{name} is marked {status}, and {method} {of_method:?}"));
            }
        }
    }
    assert_none(&complaints);
}

/// The test that a line names, behind its note; empty if it names none.
fn test_of(line: &[String], status_at: usize) -> &str {
    line.get(status_at + 2).map_or("", String::as_str)
}

async fn connect(server: &Server, service: &str) -> Connection {
    let port = if service == "MasterService" { "master" } else { "regionserver" };
    Connection::connect(server.address(port), &ConnectOptions::new(service)).await.unwrap()
}

async fn call(server: &Server, service: &str, method: &str, request: &impl Message) -> Answer {
    let connection = connect(server, service).await;
    Answer::of(connection.call_with_cells(method, request, None, Some(CALL_TIME_MAX)).await)
}

/// Calls a method with an empty request, or with one whose values are supported where an empty one has others.
async fn try_method(server: &Server, service: &str, method: &str) -> Answer {
    // an empty request names no coprocessor service, so the built-in one is called
    if (service, method) == ("ClientService", "ExecService") {
        return Box::pin(try_method(server, "MultiRowMutationService", "MutateRows")).await;
    }
    let carrier = ENDPOINTS.iter().find(|(name, _)| *name == service).map(|(_, carrier)| *carrier);
    let Some(carrier) = carrier else {
        let to_default = "DEFAULT".to_string();
        return match method {
            "GetLogEntries" if service == "MasterService" => {
                let log_class_name = "BalancerDecisionsRequest".to_string();
                let request = pb::LogRequest { log_class_name, ..Default::default() };
                call(server, service, method, &request).await
            }
            "SetQuota" => {
                let (user_name, remove_all) = (Some("somebody".to_string()), Some(true));
                let request = pb::SetQuotaRequest { user_name, remove_all, ..Default::default() };
                call(server, service, method, &request).await
            }
            "ModifyTableStoreFileTracker" => {
                let request =
                    pb::ModifyTableStoreFileTrackerRequest { dst_sft: to_default, ..Default::default() };
                call(server, service, method, &request).await
            }
            "ModifyColumnStoreFileTracker" => {
                let request =
                    pb::ModifyColumnStoreFileTrackerRequest { dst_sft: to_default, ..Default::default() };
                call(server, service, method, &request).await
            }
            _ => call(server, service, method, &()).await,
        };
    };
    let region = pb::RegionSpecifier { r#type: 1, value: Bytes::new() };
    let service_call = pb::CoprocessorServiceCall {
        row: Bytes::new(),
        service_name: format!("hbase.pb.{service}"),
        method_name: method.to_string(),
        request: Bytes::new(),
    };
    let request = pb::CoprocessorServiceRequest { region, call: service_call };
    let to = if carrier == "ExecMasterService" { "MasterService" } else { "ClientService" };
    call(server, to, carrier, &request).await
}

#[tokio::test]
async fn every_method_does_what_its_line_says() {
    let data = fresh_dir("compatibility-rpc");
    let config = common::site(&data, &[("hbase.quota.enabled", "true")]);
    let flags = ["--config", config.to_str().unwrap()];
    let server = Server::start(&data, &flags);
    let mut complaints = Vec::new();
    for line in table("rpc.tsv") {
        let [service, method, _, status, note, ..] = &line[..] else { panic!("five columns: {line:?}") };
        // answered before a connection has a service
        if ENDING.contains(&method.as_str()) || service == "ConnectionRegistryService" {
            continue;
        }
        let answer = try_method(&server, service, method).await;
        let is_refusal = answer.is_refusal();
        complaints.extend(disagreement(&format!("{service}.{method}"), status, note, &answer, is_refusal));
    }
    server.stop();
    for method in ENDING {
        let mut server = Server::start(&data, &flags);
        let answer = try_method(&server, "MasterService", method).await;
        // the response may be lost as the server ends
        assert!(!answer.is_refusal(), "{method}: {answer:?}");
        for _ in 0..600 {
            if *method != "Shutdown" || !server.is_running() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(*method != "Shutdown" || !server.is_running(), "the server runs on after {method}");
    }
    assert_none(&complaints);
    let _ = fs::remove_dir_all(&data);
}

#[tokio::test]
async fn every_filter_does_what_its_line_says() {
    let data = fresh_dir("compatibility-filters");
    let server = Server::start(&data, &[]);
    let client = Client::connect(&server).await;
    let region = client.create_table("t", vec![common::family("f")], &[]).await.remove(0);
    client.put(&region, "r", b"value").await.unwrap();
    let mut complaints = Vec::new();
    for line in table("filters.tsv") {
        let [kind, class, status, note, ..] = &line[..] else { panic!("four columns: {line:?}") };
        let full = match class.contains('.') {
            true => class.clone(),
            false => format!("org.apache.hadoop.hbase.filter.{class}"),
        };
        let filter = match kind.as_str() {
            "filter" => pb::Filter { name: full, serialized_filter: Some(Bytes::new()) },
            _ => {
                let comparator = pb::Comparator { name: full, serialized_comparator: Some(Bytes::new()) };
                let compare = pb::CompareFilter { compare_op: 2, comparator: Some(comparator) };
                let row = pb::RowFilter { compare_filter: compare };
                pb::Filter {
                    name: "org.apache.hadoop.hbase.filter.RowFilter".to_string(),
                    serialized_filter: Some(Bytes::from(row.encode_to_vec())),
                }
            }
        };
        let answer = Answer::of(client.get(&region, pb::Get { filter: Some(filter), ..get(b"r") }).await);
        // an empty message is damaged to most filters: they say so by name, and are known
        let is_refusal = answer.contains(&format!("unknown {kind} class"));
        complaints.extend(disagreement(class, status, note, &answer, is_refusal));
    }
    server.stop();
    assert_none(&complaints);
    let _ = fs::remove_dir_all(&data);
}

/// A table whose only purpose is one attribute.
fn with_attribute(number: usize, scope: &str, name: &str, value: &str) -> pb::CreateTableRequest {
    let pair = || pb::BytesBytesPair { first: name.to_string().into(), second: value.to_string().into() };
    let mut family = common::family("f");
    let mut schema =
        pb::TableSchema { table_name: Some(table_name(&format!("t{number}"))), ..Default::default() };
    let configuration = pb::NameStringPair { name: name.to_string(), value: value.to_string() };
    match (scope, name.starts_with("hbase.")) {
        ("table", _) => schema.attributes.push(pair()),
        ("family", true) => family.configuration.push(configuration),
        ("family", false) => family.attributes.push(pair()),
        _ => panic!("{scope} is no scope"),
    }
    if value == "ROWPREFIX_FIXED_LENGTH" {
        let length = ("RowPrefixBloomFilter.prefix_length".to_string(), "4".to_string());
        family.configuration.push(pb::NameStringPair { name: length.0, value: length.1 });
    }
    schema.column_families.push(family);
    pb::CreateTableRequest { table_schema: schema, ..Default::default() }
}

/// Makes a table and waits for its procedure.
async fn create(client: &Client, request: &pb::CreateTableRequest) -> Answer {
    let created: Result<pb::CreateTableResponse, _> = client.master.call("CreateTable", request).await;
    let created = match created {
        Ok(created) => created,
        Err(error) => return Answer::of::<()>(Err(error)),
    };
    let ask = pb::GetProcedureResultRequest { proc_id: created.proc_id.unwrap() };
    for _ in 0..6_000 {
        let result: pb::GetProcedureResultResponse =
            client.master.call("getProcedureResult", &ask).await.unwrap();
        if result.state == pb::get_procedure_result_response::State::Finished as i32 {
            let Some(exception) = result.exception else { return Answer::Taken };
            let generic = exception.generic_exception.unwrap_or_default();
            let (class, trace) = (generic.class_name().to_string(), generic.message().to_string());
            let exception = RemoteException { class, trace, do_not_retry: true, server_overloaded: false };
            return Answer::Exception(Box::new(exception));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("a table was neither created nor refused: {request:?}");
}

#[tokio::test]
async fn every_attribute_does_what_its_line_says() {
    let data = fresh_dir("compatibility-attributes");
    let store = root().join("base/crypto/testdata/same.jceks");
    let parameters = format!("jceks://{}?password=st0re-pass", store.display());
    let properties =
        [("hbase.crypto.keyprovider.parameters", &*parameters), ("hbase.crypto.master.key.name", "master")];
    let config = common::site(&data, &properties);
    let server = Server::start(&data, &["--config", config.to_str().unwrap()]);
    let client = Client::connect(&server).await;
    let mut complaints = Vec::new();
    for (number, line) in table("attributes.tsv").into_iter().enumerate() {
        let [scope, name, value, status, note, ..] = &line[..] else { panic!("five columns: {line:?}") };
        let answer = create(&client, &with_attribute(number, scope, name, value)).await;
        let is_refusal = matches!(answer, Answer::Exception(_));
        complaints.extend(disagreement(
            &format!("{scope} {name}={value}"),
            status,
            note,
            &answer,
            is_refusal,
        ));
    }
    server.stop();
    assert_none(&complaints);
    let _ = fs::remove_dir_all(&data);
    let _ = fs::remove_dir_all(&config);
}

/// What a page of the info port says.
fn http_get(address: std::net::SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn the_page_of_metrics_lists_every_series() {
    let data = fresh_dir("compatibility-metrics");
    let tier = format!("file:{}", data.with_extension("tier").display());
    let properties = [("hbase.bucketcache.ioengine", tier.as_str()), ("hbase.bucketcache.size", "16")];
    let config = common::site(&data, &properties);
    let server = Server::start(&data, &["--config", config.to_str().unwrap()]);
    let metrics = http_get(server.address("regionserver-info"), "/metrics");
    let mut served: BTreeSet<String> = BTreeSet::new();
    for line in metrics.lines() {
        let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) else {
            continue;
        };
        served.insert(if kind == "counter" { format!("{name}_total") } else { name.to_string() });
    }
    let page = fs::read_to_string(root().join("docs/METRICS.md")).unwrap();
    let listed = page.lines().filter_map(|line| line.strip_prefix("| `halcyon_")?.split('`').next());
    // What only the active master of a cluster has is looked at in tests/browser_cluster.rs.
    let listed = listed.filter(|name| !name.starts_with("cluster_"));
    let listed: BTreeSet<String> = listed.map(|name| format!("halcyon_{name}")).collect();
    server.stop();
    assert!(served.len() > 40, "{metrics}");
    assert_eq!(listed, served, "docs/METRICS.md (left) and /metrics (right)");
    let _ = fs::remove_dir_all(&data);
    let _ = fs::remove_dir_all(&config);
    let _ = fs::remove_file(data.with_extension("tier"));
}

/// Starts a server that ends before it is ready, and returns what it wrote to standard error.
fn ends_at_start(data: &Path, config: &Path, option: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_halcyon"));
    command.arg("standalone").arg("--data").arg(data).arg("--config").arg(config).args(option);
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn every_property_does_what_its_line_says() {
    let data = fresh_dir("compatibility-properties");
    let lines = table("properties.tsv");
    let of_status = |status: &str| -> Vec<Vec<String>> {
        lines.iter().filter(|line| line[2] == status).cloned().collect()
    };
    let (ignored, refused) = (of_status("ignored"), of_status("refused"));
    assert_eq!(ignored.len() + refused.len(), lines.len());
    let properties: Vec<(&str, &str)> =
        ignored.iter().map(|line| (line[0].as_str(), line[1].as_str())).collect();
    let (code, said) = ends_at_start(&data, &common::site(&data, &properties), &["--print-settings"]);
    assert_eq!(code, Some(0), "{said}");
    let mut complaints: Vec<String> = ignored
        .iter()
        .filter(|line| !said.contains(&format!("{} is not used", line[0])))
        .map(|line| format!("{} is marked ignored, and its start does not say so", line[0]))
        .collect();
    for line in refused {
        let config = common::site(&data, &[(line[0].as_str(), line[1].as_str())]);
        let (code, said) = ends_at_start(&data, &config, &[]);
        if code != Some(78) || !said.contains(&line[3]) {
            complaints
                .push(format!("{} is marked refused, and the start ends with {code:?}: {said}", line[0]));
        }
    }
    assert_none(&complaints);
    let _ = fs::remove_dir_all(&data);
    let _ = fs::remove_dir_all(data.with_extension("conf"));
}

/// The page, from the tables.
fn page() -> String {
    let introduction = fs::read_to_string(root().join("docs/compatibility/introduction.txt")).unwrap();
    let mut page = introduction;
    let count = |status: &str| table("rpc.tsv").iter().filter(|line| line[3] == status).count();
    let (works, answered) = (count("works"), count("answered"));
    let (partly, refused, closed) = (count("partly"), count("refused"), count("closed"));
    let _ = write!(
        page,
        "\n## RPC methods\n\nOf {} methods {works} work, {answered} are answered, {partly} work in part, {refused} are \
         refused, and {closed} belong to services that are not registered.\n",
        table("rpc.tsv").len()
    );
    let mut service = String::new();
    for line in table("rpc.tsv") {
        if line[0] != service {
            service.clone_from(&line[0]);
            let _ = write!(
                page,
                "\n### {service}\n\n| method | HBase | status | note | test |\n|---|---|---|---|---|\n"
            );
        }
        let end = end_of(&line, 3);
        let _ = writeln!(page, "| `{}` | {} | {} | {end} |", line[1], line[2], line[3]);
    }
    page.push_str("\n## Admin\n\n| call | RPC methods | status | note | test |\n|---|---|---|---|---|\n");
    for line in table("admin.tsv") {
        let (note, test) = (&line[3], quoted(test_of(&line, 2)));
        let _ = writeln!(page, "| `{}` | {} | {} | {note} | {test} |", line[0], line[1], line[2]);
    }
    page.push_str(
        "\n## Filters and comparators\n\n| class | kind | status | note | test |\n|---|---|---|---|---|\n",
    );
    for line in table("filters.tsv") {
        let _ = writeln!(page, "| `{}` | {} | {} | {} |", line[1], line[0], line[2], end_of(&line, 2));
    }
    page.push_str(
        "\n## Table and family attributes\n\n| attribute | value | of | status | note | test |\n|---|---|---|---|---|---|\n",
    );
    for line in table("attributes.tsv") {
        let (value, end) = (line[2].replace('|', "\\|"), end_of(&line, 3));
        let _ = writeln!(page, "| `{}` | `{value}` | {} | {} | {end} |", line[1], line[0], line[3]);
    }
    page.push_str(
        "\n## Properties of HBase that are refused or ignored\n\n[Configuration](CONFIGURATION.md) lists the properties that work.\n\n| property | status | note |\n|---|---|---|\n",
    );
    for line in table("properties.tsv") {
        let _ = writeln!(page, "| `{}` | {} | {} |", line[0], line[2], noted(&line[2], &line[3]));
    }
    page
}

/// The note and the test of a line, two cells of the page.
fn end_of(line: &[String], status_at: usize) -> String {
    format!("{} | {}", noted(&line[status_at], &line[status_at + 1]), quoted(test_of(line, status_at)))
}

/// The name of a test, as code.
fn quoted(test: &str) -> String {
    match test.is_empty() {
        true => String::new(),
        false => format!("`{test}`"),
    }
}

/// The words of a refusal are quoted.
fn noted(status: &str, note: &str) -> String {
    if status == "refused" { format!("\"{note}\"") } else { note.to_string() }
}

#[test]
fn the_page_is_made_from_the_tables() {
    let path = root().join("docs/COMPATIBILITY.md");
    let page = page();
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(written == page, "docs/COMPATIBILITY.md is not what its tables say; run this test with UPDATE=1");
}
