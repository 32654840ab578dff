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
async fn methods_that_a_service_does_not_have_say_so() {
    let data = fresh_dir("services");
    let server = Server::start(&data);
    for (service, method) in [("LockService", "FixMeta"), ("HbckService", "RequestLock")] {
        let options = ConnectOptions::new(service);
        let connection = Connection::connect(server.address("master"), &options).await.unwrap();
        let asked = connection.call::<pb::ClusterId>(method, &pb::ClusterId::default()).await;
        let error = asked.unwrap_err();
        assert!(error.to_string().contains(&format!("UnsupportedOperationException: {method}")), "{error}");
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
    let holder = format!(".halcyon.lock is locked by process {}", server.child.id());
    assert!(said.contains("is in use by another process") && said.contains(&holder), "{said}");

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

/// `UpdateConfiguration` answered that it had been done, and nothing was read.
#[tokio::test]
async fn a_changed_site_file_is_in_force_after_an_update() {
    let data = fresh_dir("update");
    let conf = config("update-conf", &[("hbase.hstore.compaction.min", "4")]);
    let flags = [&ANY_PORTS[..], &["--config", conf.to_str().unwrap()]].concat();
    let mut child = command(&data, &flags).spawn().unwrap();
    let mut lines = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        lines.push(line.unwrap());
        if lines.last().unwrap().starts_with("ready") {
            break;
        }
    }
    let log = child.stderr.take().unwrap();
    let server = Server { child, lines };
    let address = server.address("regionserver");
    let admin = Connection::connect(address, &ConnectOptions::new("AdminService")).await.unwrap();
    let update = async || {
        let request = pb::UpdateConfigurationRequest {};
        admin.call::<pb::UpdateConfigurationResponse>("UpdateConfiguration", &request).await
    };
    let changed = [
        ("hbase.hstore.compaction.min", "5"),
        ("hbase.master.cleaner.interval", "70000"),
        ("hbase.hstore.flusher.count", "7"),
    ];
    let same = config("update-conf", &changed);
    assert_eq!(same, conf);
    update().await.unwrap();
    fs::write(conf.join("hbase-site.xml"), "<configuration>").unwrap();
    let error = update().await.unwrap_err().to_string();
    assert!(
        error.contains("the configuration was not updated") && error.contains("hbase-site.xml"),
        "{error}"
    );
    server.signal("KILL");
    drop(server);
    let mut said = String::new();
    BufReader::new(log).read_to_string(&mut said).unwrap();
    for line in [
        "configuration update: in force setting=\"hbase.hstore.compaction.min = 5\"",
        "configuration update: needs a restart setting=\"hbase.hstore.flusher.count = 7\"",
        "configuration update: needs a restart setting=\"hbase.master.cleaner.interval = 70000\"",
    ] {
        assert_eq!(said.matches(line).count(), 1, "{line}\n{said}");
    }
    for dir in [data, conf] {
        fs::remove_dir_all(dir).unwrap();
    }
}

/// The kernel may take seconds to clear a killed process away; a start in between ended at once.
#[test]
fn a_start_waits_for_the_process_before_it() {
    let data = fresh_dir("waits");
    let mut server = Server::start(&data);
    let next = std::thread::spawn({
        let data = data.clone();
        move || said_until_ready(&mut command(&data, &ANY_PORTS))
    });
    std::thread::sleep(Duration::from_secs(1));
    server.signal("KILL");
    let pid = server.child.id();
    server.wait();
    let said = next.join().unwrap();
    assert!(
        said.contains("waiting for the data directory") && said.contains(&format!("process {pid}")),
        "{said}"
    );
    fs::remove_dir_all(&data).unwrap();
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

/// A configuration directory with these properties.
fn config(name: &str, properties: &[(&str, &str)]) -> PathBuf {
    let config = fresh_dir(name);
    fs::create_dir_all(&config).unwrap();
    let property = |(name, value): &(&str, &str)| {
        format!("<property><name>{name}</name><value>{value}</value></property>")
    };
    let text: String = properties.iter().map(property).collect();
    fs::write(config.join("hbase-site.xml"), format!("<configuration>{text}</configuration>")).unwrap();
    config
}

/// A site file asked for Kerberos, and the server started all the same, open to all.
#[test]
fn what_would_be_lost_in_silence_refuses_the_start() {
    let data = fresh_dir("unsafe");
    fs::create_dir_all(data.join("data/hbase/acl")).unwrap();
    let config = config(
        "unsafe-conf",
        &[
            ("hbase.security.authentication", "kerberos"),
            ("hbase.rpc.protection", "${env.HALCYON_TEST_PROTECTION:-privacy}"),
        ],
    );
    let config_dir = config.to_str().unwrap();
    let flags = [&ANY_PORTS[..], &["--config", config_dir]].concat();
    let (code, said) = refused(command(&data, &flags).env_remove("HALCYON_TEST_PROTECTION"));
    assert_eq!(code, Some(78), "{said}");
    let acl = data.join("data/hbase/acl");
    let expected = format!(
        "halcyon: refuses to start, as Halcyon lacks what was found:\n  \
         kerberos: hbase.security.authentication = kerberos in hbase-site.xml: clients are not authenticated\n  \
         rpc-protection: hbase.rpc.protection = privacy in hbase-site.xml: traffic is not encrypted\n  \
         acls: table hbase:acl in {}: permissions of tables and cells are not enforced\n\
         To start without it, and accept its loss, add: --accept-without kerberos --accept-without rpc-protection \
         --accept-without acls\n",
        acl.display()
    );
    assert!(said.ends_with(&expected), "{said}");
    assert!(!data.join(".halcyon.lock").exists(), "nothing was changed");

    let flags =
        [&flags[..], &["--accept-without", "kerberos", "--accept-without", "rpc-protection"]].concat();
    let (code, said) = refused(&mut command(&data, &flags));
    assert_eq!(code, Some(78), "{said}");
    assert!(said.ends_with("add: --accept-without acls\n"), "{said}");
    for dir in [data, config] {
        fs::remove_dir_all(dir).unwrap();
    }
}

/// Runs until the server is ready, and returns what it said on the standard error.
fn said_until_ready(command: &mut Command) -> String {
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let ready = lines.map_while(Result::ok).any(|line| line.starts_with("ready"));
    child.kill().unwrap();
    let said = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
    assert!(ready, "{said}");
    said
}

#[test]
fn what_was_accepted_is_said_at_every_start_and_so_is_an_open_address() {
    let data = fresh_dir("accepted");
    let config = config("accepted-conf", &[("hbase.security.authorization", "true")]);
    let config_dir = config.to_str().unwrap();
    let flags = [&ANY_PORTS[..], &["--config", config_dir, "--accept-without", "authorization"]].concat();
    for _ in 0..2 {
        let said = said_until_ready(&mut command(&data, &flags));
        let warning =
            "accepted losses (--accept-without):\n  authorization: hbase.security.authorization = true";
        assert_eq!(said.matches(warning).count(), 1, "{said}");
        assert!(!said.contains("every client that reaches this address"), "{said}");
    }
    let said = said_until_ready(&mut command(&data, &[&flags[..], &["--bind", "0.0.0.0"]].concat()));
    assert_eq!(said.matches("every client that reaches this address").count(), 1, "{said}");
    for dir in [data, config] {
        fs::remove_dir_all(dir).unwrap();
    }
}

#[test]
fn references_in_the_site_file_are_resolved_or_refused() {
    let printed = |value: &str| {
        let config =
            config("references", &[("hbase.rootdir", value), ("my.data", "/srv/${env.HALCYON_TEST_DIR}")]);
        let mut command = Command::new(env!("CARGO_BIN_EXE_halcyon"));
        command.arg("standalone").arg("--print-settings").arg("--config").arg(&config);
        let output = command.env("HALCYON_TEST_DIR", "here").output().unwrap();
        fs::remove_dir_all(&config).unwrap();
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let (code, said) = printed("file://${my.data}/hbase");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("hbase.rootdir = /srv/here/hbase\n"), "{said}");
    let (code, said) = printed("${hadoop.tmp.dir}/hbase");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("hbase.rootdir: nothing defines ${hadoop.tmp.dir}"), "{said}");
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
