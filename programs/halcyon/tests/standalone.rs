//! The program as an operator meets it: started, asked, stopped, started wrong.
#![allow(clippy::disallowed_methods)] // looks at files and clocks from outside

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use halcyon_client::{ConnectOptions, Connection, Registry, cluster_id};
use halcyon_proto::pb;

const ANY_PORTS: [&str; 10] = [
    "--zookeeper-port",
    "0",
    "--master-port",
    "0",
    "--regionserver-port",
    "0",
    "--master-info-port",
    "0",
    "--regionserver-info-port",
    "0",
];

fn command(data: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_halcyon"));
    command.arg("standalone").arg("--data").arg(data).args(more);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A running server; killed if a test ends without stopping it.
struct Server {
    child: Child,
    lines: Vec<String>,
}

impl Server {
    #[allow(clippy::zombie_processes)] // ends before it is let go
    fn start(data: &Path) -> Server {
        let mut child = command(data, &ANY_PORTS).spawn().unwrap();
        let mut lines = Vec::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            lines.push(line.unwrap());
            if lines.last().unwrap().starts_with("ready") {
                // Nobody reads the log; it must not fill its pipe.
                let mut log = child.stderr.take().unwrap();
                std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
                return Server { child, lines };
            }
        }
        let _ = child.kill();
        let mut log = String::new();
        child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        panic!("not ready: {lines:?}\n{log}");
    }

    fn address(&self, of: &str) -> SocketAddr {
        let line = self.lines.iter().find_map(|line| line.strip_prefix(&format!("{of} "))).unwrap();
        line.parse().unwrap_or_else(|_| panic!("{line:?}"))
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(sent.unwrap().success());
    }

    fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + Duration::from_secs(30);
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the server does not end");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A directory of this test's own, empty.
fn fresh_dir(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("halcyon-standalone-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    dir
}

/// Exit code and what was said on the standard error.
fn refused(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

async fn master(server: &Server) -> Connection {
    Connection::connect(server.address("master"), &ConnectOptions::new("MasterService")).await.unwrap()
}

async fn create_table(server: &Server, name: &str) {
    let family = pb::ColumnFamilySchema { name: "f".into(), ..Default::default() };
    let qualifier = name.to_string().into();
    let table_name = pb::TableName { namespace: "default".into(), qualifier };
    let table_schema =
        pb::TableSchema { table_name: Some(table_name), column_families: vec![family], ..Default::default() };
    let request = pb::CreateTableRequest { table_schema, ..Default::default() };
    let master = master(server).await;
    let answer: pb::CreateTableResponse = master.call("CreateTable", &request).await.unwrap();
    for _ in 0..500 {
        let request = pb::GetProcedureResultRequest { proc_id: answer.proc_id.unwrap() };
        let result: pb::GetProcedureResultResponse =
            master.call("getProcedureResult", &request).await.unwrap();
        if result.state == pb::get_procedure_result_response::State::Finished as i32 {
            assert_eq!(result.exception, None);
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{name} is not created");
}

async fn table_names(server: &Server) -> Vec<String> {
    let master = master(server).await;
    let request = pb::GetTableNamesRequest::default();
    let answer: pb::GetTableNamesResponse = master.call("GetTableNames", &request).await.unwrap();
    let names = answer.table_names.into_iter();
    names.map(|name| String::from_utf8(name.qualifier.to_vec()).unwrap()).collect()
}

#[tokio::test]
async fn a_cluster_lives_through_stop_and_kill() {
    let data = fresh_dir("life");
    let mut server = Server::start(&data);
    let registry = Registry::connect(server.address("regionserver")).await.unwrap();
    let id = registry.cluster_id().await.unwrap();
    assert_eq!(cluster_id(server.address("master")).await.unwrap(), id);
    let master_name = registry.active_master().await.unwrap();
    assert_eq!(master_name.address(), server.address("master").to_string());
    let region_server = registry.meta_server().await.unwrap();
    assert_eq!(region_server.address(), server.address("regionserver").to_string());
    assert_eq!(registry.region_servers().await.unwrap(), [region_server]);
    create_table(&server, "t1").await;
    assert_eq!(table_names(&server).await, ["t1"]);
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));

    let mut server = Server::start(&data);
    assert_eq!(cluster_id(server.address("regionserver")).await.unwrap(), id);
    create_table(&server, "t2").await;
    server.signal("KILL");
    server.wait();

    let mut server = Server::start(&data);
    assert_eq!(table_names(&server).await, ["t1", "t2"]);
    server.signal("INT");
    assert_eq!(server.wait().code(), Some(0));
    fs::remove_dir_all(&data).unwrap();
}

#[tokio::test]
async fn services_that_are_not_there_say_so() {
    let data = fresh_dir("services");
    let server = Server::start(&data);
    for service in ["LockService", "HbckService"] {
        let options = ConnectOptions::new(service);
        let connection = Connection::connect(server.address("master"), &options).await.unwrap();
        let asked = connection.call::<pb::ClusterId>("RequestLock", &pb::ClusterId::default()).await;
        let error = asked.unwrap_err();
        assert!(error.to_string().contains("UnsupportedOperationException: RequestLock"), "{error}");
    }
    drop(server);
    fs::remove_dir_all(&data).unwrap();
}

#[tokio::test]
async fn a_client_can_end_the_cluster() {
    let data = fresh_dir("shutdown");
    let mut server = Server::start(&data);
    let _: pb::ShutdownResponse =
        master(&server).await.call("Shutdown", &pb::ShutdownRequest {}).await.unwrap();
    assert_eq!(server.wait().code(), Some(0));
    fs::remove_dir_all(&data).unwrap();
}

#[test]
fn what_is_in_use_is_told_in_a_sentence() {
    let (data, other) = (fresh_dir("in-use"), fresh_dir("in-use-2"));
    let server = Server::start(&data);
    let (code, said) = refused(&mut command(&data, &ANY_PORTS));
    assert_eq!(code, Some(1));
    assert!(said.contains("is in use by another process"), "{said}");

    let port = server.address("master").port().to_string();
    let mut ports = ANY_PORTS;
    ports[3] = &port;
    let (code, said) = refused(&mut command(&other, &ports));
    assert_eq!(code, Some(1));
    assert!(said.contains("cannot listen for the master") && said.contains("in use"), "{said}");
    drop(server);
    for dir in [data, other] {
        fs::remove_dir_all(dir).unwrap();
    }
}

#[test]
fn a_newer_format_is_left_alone() {
    let data = fresh_dir("newer");
    fs::create_dir_all(&data).unwrap();
    fs::write(data.join("hbase.version"), b"PBUF\x0a\x019").unwrap();
    let (code, said) = refused(&mut command(&data, &ANY_PORTS));
    assert_eq!(code, Some(1));
    assert!(said.contains("newer"), "{said}");
    fs::remove_dir_all(&data).unwrap();
}

#[test]
fn properties_come_from_the_file_and_those_without_effect_are_named() {
    let config = fresh_dir("config");
    fs::create_dir_all(&config).unwrap();
    let property =
        |name: &str, value: &str| format!("<property><name>{name}</name><value>{value}</value></property>");
    let text = [
        property("hbase.rootdir", "file:///somewhere"),
        property("hbase.master.port", "17000"),
        property("hbase.cluster.distributed", "true"),
        property("no.such.property", "1"),
    ]
    .concat();
    fs::write(config.join("hbase-site.xml"), format!("<configuration>{text}</configuration>")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_halcyon"));
    command.arg("standalone").arg("--config").arg(&config).args(["--print-settings", "--memory", "256m"]);
    let output = command.output().unwrap();
    let (printed, said) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(printed.contains("hbase.rootdir = /somewhere\n"), "{printed}");
    assert!(printed.contains("hbase.master.port = 17000\n"), "{printed}");
    assert!(printed.contains("halcyon.memory.bytes = 268435456\n"), "{printed}");
    assert!(said.contains("hbase.cluster.distributed is not used: standalone is one process"), "{said}");
    assert!(said.contains("no.such.property is not used"), "{said}");
    assert!(!said.contains('\x1b'), "colours are for terminals: {said}");
    fs::remove_dir_all(&config).unwrap();

    let (code, said) = refused(command.arg("--hostname").arg("h"));
    assert_eq!(code, Some(1));
    assert!(said.contains("cannot read the configuration"), "{said}");
}
