//! A standalone server as a process of its own, and a client that says what it wants in HBase's messages.
#![allow(dead_code, clippy::disallowed_methods)] // each test uses its part; files, clocks and threads from outside

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use halcyon_cell::Cell;
use halcyon_client::{Answer, ClientError, ConnectOptions, Connection};
use halcyon_proto::pb;
use halcyon_schema::RegionInfo;
use prost::Message;

pub const PORTS: [&str; 5] = ["zookeeper", "master", "regionserver", "master-info", "regionserver-info"];

/// Names a directory in HDFS, `hdfs://host:port/...`, below which servers of tests have their root directories.
const TEST_ROOT: &str = "HALCYON_TEST_ROOT";

/// A directory of this test's own, empty; removed by the test if it ends well.
pub fn fresh_dir(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("halcyon-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    dir
}

/// A directory with an `hbase-site.xml` of these properties.
pub fn site(dir: &Path, properties: &[(&str, &str)]) -> PathBuf {
    let config = dir.with_extension("conf");
    fs::create_dir_all(&config).unwrap();
    let property = |(name, value): &(&str, &str)| {
        format!("<property><name>{name}</name><value>{value}</value></property>")
    };
    let text: String = properties.iter().map(property).collect();
    fs::write(config.join("hbase-site.xml"), format!("<configuration>{text}</configuration>")).unwrap();
    config
}

/// A running server on ports of its own; killed if a test ends without stopping it.
pub struct Server {
    child: Child,
    lines: Vec<String>,
    log: Arc<Mutex<String>>,
}

impl Server {
    /// Starts and waits until it is ready. Its root directory is `data`, or one of that name below [`TEST_ROOT`].
    pub fn start(data: &Path, flags: &[&str]) -> Server {
        let Ok(root) = std::env::var(TEST_ROOT) else { return Server::start_on_this_machine(data, flags) };
        let root = format!("{root}{}", data.display());
        let mut flags: Vec<&str> = flags.to_vec();
        if let Some(at) = flags.iter().position(|flag| *flag == "--wal-sync") {
            flags.drain(at..at + 2); // a root directory in HDFS has its own way
        }
        flags.extend(["--root", &root]);
        Server::start_on_this_machine(data, &flags)
    }

    /// [`Server::start`] for tests that look at files or change them: `data` is the root directory.
    #[allow(clippy::zombie_processes)] // ends before it is let go
    pub fn start_on_this_machine(data: &Path, flags: &[&str]) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_halcyon"));
        command.arg("standalone").arg("--data").arg(data).args(flags);
        for port in PORTS {
            command.arg(format!("--{port}-port")).arg("0");
        }
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let said = BufReader::new(child.stderr.take().unwrap());
        let kept = Arc::clone(&log);
        let listening = std::thread::spawn(move || {
            for line in said.lines().map_while(Result::ok) {
                kept.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        let mut lines = Vec::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            lines.push(line.unwrap());
            if lines.last().unwrap().starts_with("ready") {
                return Server { child, lines, log };
            }
        }
        let _ = child.kill();
        let _ = listening.join();
        panic!("not ready: {lines:?}\n{}", log.lock().unwrap());
    }

    pub fn address(&self, of: &str) -> SocketAddr {
        let line = self.lines.iter().find_map(|line| line.strip_prefix(&format!("{of} "))).unwrap();
        let line = line.trim_start_matches("http://").trim_end_matches('/');
        line.parse().unwrap_or_else(|_| panic!("{line:?}"))
    }

    /// What it has written to its log so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub fn resident_bytes(&self) -> u64 {
        let statm = fs::read_to_string(format!("/proc/{}/statm", self.child.id())).unwrap();
        statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    }

    /// What is resident without pages of files. The code of a test's program, with its assertions, is 45 MiB and more of such pages; the
    /// kernel can drop them, and no budget counts them.
    pub fn anonymous_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line =
            status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("Linux 4.5 and later");
        line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// SIGTERM; the server has closed everything when this returns.
    pub fn stop(mut self) {
        let sent = Command::new("kill").arg("-TERM").arg(self.child.id().to_string()).status();
        assert!(sent.unwrap().success());
        let status = self.wait();
        assert_eq!(status.code(), Some(0), "{}", self.log());
    }

    /// SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.wait();
    }

    fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + Duration::from_secs(60);
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        panic!("the server does not end\n{}", self.log());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Connections to all services of one server.
pub struct Client {
    pub rows: Connection,
    pub admin: Connection,
    pub master: Connection,
}

pub fn specifier(region: &RegionInfo) -> pb::RegionSpecifier {
    pb::RegionSpecifier { r#type: 1, value: region.region_name().clone() }
}

pub fn table_name(name: &str) -> pb::TableName {
    pb::TableName { namespace: "default".into(), qualifier: name.to_string().into() }
}

pub fn family(name: &str) -> pb::ColumnFamilySchema {
    pb::ColumnFamilySchema { name: name.to_string().into(), ..Default::default() }
}

/// A put whose cells stand in the cell block.
pub fn put(cells: usize) -> pb::MutationProto {
    pb::MutationProto {
        mutate_type: Some(pb::mutation_proto::MutationType::Put as i32),
        associated_cell_count: Some(cells as i32),
        ..Default::default()
    }
}

pub fn get(row: &[u8]) -> pb::Get {
    pb::Get { row: Bytes::copy_from_slice(row), ..Default::default() }
}

/// The exception's class without its package; panics if it is none.
pub fn class(error: &ClientError) -> String {
    let exception = error.remote().unwrap_or_else(|| panic!("an exception, not {error}"));
    exception.simple_class().to_string()
}

pub fn decoded<M: Message + Default>(answer: &Answer) -> M {
    M::decode(answer.message.clone()).unwrap()
}

impl Client {
    pub async fn connect(server: &Server) -> Client {
        Client::with(server, &ConnectOptions::new("ClientService")).await
    }

    /// `rows` says how the connection to `ClientService` is made.
    pub async fn with(server: &Server, rows: &ConnectOptions) -> Client {
        let region_server = server.address("regionserver");
        let connect = |address, service| async move {
            Connection::connect(address, &ConnectOptions::new(service)).await.unwrap()
        };
        Client {
            rows: Connection::connect(region_server, rows).await.unwrap(),
            admin: connect(region_server, "AdminService").await,
            master: connect(server.address("master"), "MasterService").await,
        }
    }

    pub async fn create_table(
        &self,
        name: &str,
        families: Vec<pb::ColumnFamilySchema>,
        splits: &[&[u8]],
    ) -> Vec<RegionInfo> {
        // Blocks of a few hundred bytes are below what HBase thinks sane.
        let unchecked =
            pb::BytesBytesPair { first: "hbase.table.sanity.checks".into(), second: "false".into() };
        let table_schema = pb::TableSchema {
            table_name: Some(table_name(name)),
            attributes: vec![unchecked],
            column_families: families,
            ..Default::default()
        };
        let split_keys = splits.iter().map(|key| Bytes::copy_from_slice(key)).collect();
        let request = pb::CreateTableRequest { table_schema, split_keys, ..Default::default() };
        let created: pb::CreateTableResponse = self.master.call("CreateTable", &request).await.unwrap();
        self.finish(created.proc_id.unwrap()).await;
        self.regions(name).await
    }

    /// Disables and deletes a table.
    pub async fn drop_table(&self, name: &str) {
        let table_name = table_name(name);
        let disable = pb::DisableTableRequest { table_name: table_name.clone(), ..Default::default() };
        let disabled: pb::DisableTableResponse = self.master.call("DisableTable", &disable).await.unwrap();
        self.finish(disabled.proc_id.unwrap()).await;
        let delete = pb::DeleteTableRequest { table_name, ..Default::default() };
        let deleted: pb::DeleteTableResponse = self.master.call("DeleteTable", &delete).await.unwrap();
        self.finish(deleted.proc_id.unwrap()).await;
    }

    /// Waits for a procedure of the master.
    pub async fn finish(&self, proc_id: u64) {
        let request = pb::GetProcedureResultRequest { proc_id };
        for _ in 0..5_000 {
            let result: pb::GetProcedureResultResponse =
                self.master.call("getProcedureResult", &request).await.unwrap();
            if result.state == pb::get_procedure_result_response::State::Finished as i32 {
                assert_eq!(result.exception, None);
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        panic!("procedure {proc_id} does not end");
    }

    /// The online regions of a table in the order of their keys.
    pub async fn regions(&self, table: &str) -> Vec<RegionInfo> {
        let request = pb::GetOnlineRegionRequest {};
        let online: pb::GetOnlineRegionResponse = self.admin.call("GetOnlineRegion", &request).await.unwrap();
        let regions = online.region_info.iter().map(|info| RegionInfo::from_pb(info).unwrap());
        let mut regions: Vec<_> = regions.filter(|region| region.table().qualifier() == table).collect();
        regions.sort_by(|a, b| a.start_key().cmp(b.start_key()));
        regions
    }

    pub async fn mutate(
        &self,
        region: &RegionInfo,
        mutation: pb::MutationProto,
        cells: &[Cell],
    ) -> Result<pb::MutateResponse, ClientError> {
        let request =
            pb::MutateRequest { region: specifier(region), mutation, condition: None, nonce_group: None };
        let answer = self.call("Mutate", &request, cells).await?;
        Ok(decoded(&answer))
    }

    pub async fn put(&self, region: &RegionInfo, row: &str, value: &[u8]) -> Result<(), ClientError> {
        let cell = Cell::put(row.as_bytes(), b"f", b"q", i64::MAX, value);
        self.mutate(region, put(1), &[cell]).await.map(|_| ())
    }

    /// A call of `ClientService` with cells.
    pub async fn call(
        &self,
        method: &str,
        request: &impl Message,
        cells: &[Cell],
    ) -> Result<Answer, ClientError> {
        let mut block = self.rows.cell_block();
        if let Some(block) = &mut block {
            cells.iter().for_each(|cell| block.push(cell));
        }
        self.rows.call_with_cells(method, request, block, Some(Duration::from_secs(60))).await
    }

    pub async fn get(&self, region: &RegionInfo, get: pb::Get) -> Result<Vec<Cell>, ClientError> {
        let request = pb::GetRequest { region: specifier(region), get };
        Ok(self.call("Get", &request, &[]).await?.cells)
    }

    /// The value of `f:q` in a row.
    pub async fn value(&self, region: &RegionInfo, row: &str) -> Result<Option<Vec<u8>>, ClientError> {
        let cells = self.get(region, get(row.as_bytes())).await?;
        Ok(cells.first().map(|cell| cell.value().to_vec()))
    }

    pub async fn flush(&self, region: &RegionInfo) -> Result<(), ClientError> {
        let request = pb::FlushRegionRequest { region: specifier(region), ..Default::default() };
        let _: pb::FlushRegionResponse = self.admin.call("FlushRegion", &request).await?;
        Ok(())
    }

    /// Turns compactions of the server on or off.
    pub async fn switch_compactions(&self, enabled: bool) {
        let request = pb::CompactionSwitchRequest { enabled };
        let _: pb::CompactionSwitchResponse = self.admin.call("CompactionSwitch", &request).await.unwrap();
    }

    /// Where the files of a region are, as the server says.
    pub async fn store_files(&self, region: &RegionInfo) -> Result<Vec<PathBuf>, ClientError> {
        let request = pb::GetStoreFileRequest { region: specifier(region), family: Vec::new() };
        let files: pb::GetStoreFileResponse = self.admin.call("GetStoreFile", &request).await?;
        Ok(files.store_file.into_iter().map(PathBuf::from).collect())
    }

    /// Asks for a compaction and waits until the region says that none is going on.
    pub async fn compact(&self, region: &RegionInfo, major: bool) -> Result<(), ClientError> {
        let request =
            pb::CompactRegionRequest { region: specifier(region), major: Some(major), family: None };
        let _: pb::CompactRegionResponse = self.admin.call("CompactRegion", &request).await?;
        let ask = pb::GetRegionInfoRequest {
            region: specifier(region),
            compaction_state: Some(true),
            ..Default::default()
        };
        for _ in 0..10_000 {
            let state: pb::GetRegionInfoResponse = self.admin.call("GetRegionInfo", &ask).await?;
            if state.compaction_state() == pb::get_region_info_response::CompactionState::None {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("the compaction does not end");
    }
}

/// Files of every family of a region, by path.
pub fn store_files(data: &Path, region: &RegionInfo) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for family in fs::read_dir(region.dir(data)).unwrap().map(|entry| entry.unwrap()) {
        let name = family.file_name().into_string().unwrap();
        if name.starts_with('.') || name == "recovered.edits" || !family.path().is_dir() {
            continue;
        }
        files.extend(fs::read_dir(family.path()).unwrap().map(|entry| entry.unwrap().path()));
    }
    files.retain(|file| file.is_file());
    files.sort();
    files
}
