//! A standalone server of this benchmark's own, and a table in it.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use halcyon_cell::{Cell, LATEST_TIMESTAMP};
use halcyon_client::{ConnectOptions, Connection};
use halcyon_proto::pb;
use halcyon_schema::RegionInfo;
use prost::Message;

use crate::Failure;
use crate::halcyon::{FAMILY, QUALIFIER};
use crate::keys::{Key, key};

const TABLE: &str = "bench";
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
const STOP_TIME_MAX: Duration = Duration::from_secs(60);
const PORTS: [&str; 5] = ["zookeeper", "master", "regionserver", "master-info", "regionserver-info"];

#[derive(Args, Clone, Debug)]
pub struct ServerOptions {
    /// The program `halcyon`
    #[arg(long)]
    pub halcyon: PathBuf,
    /// Its data directory; emptied before and after
    #[arg(long, default_value = "/tmp/halcyon-server-bench")]
    pub data: PathBuf,
    /// Its `--memory`
    #[arg(long, default_value = "1g")]
    pub memory: String,
    /// Its `--wal-sync`
    #[arg(long, default_value = "fsync")]
    pub wal_sync: String,
    /// Regions of the table
    #[arg(long, default_value_t = 4)]
    pub regions: u64,
    /// The table's `MEMSTORE_FLUSHSIZE`, MiB: small, so that flushes and compactions come often
    #[arg(long, default_value_t = 8)]
    pub flush_mib: u64,
}

impl fmt::Display for ServerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ServerOptions { memory, wal_sync, regions, flush_mib, .. } = self;
        write!(f, "{regions} regions, flushed at {flush_mib} MiB; server with {memory}, wal {wal_sync}")
    }
}

/// A running server; killed if it is let go without being stopped.
pub struct Server {
    child: Child,
    lines: Vec<String>,
    options: ServerOptions,
}

/// A line of the page `/stalls`.
#[derive(Clone, Debug)]
pub struct Stall {
    pub at_ms: i64,
    pub ms: f64,
    pub cause: String,
    pub detail: String,
}

/// How many calls took no longer than so many seconds, as `/metrics` tells.
#[derive(Clone, Debug, Default)]
pub struct CallTimes {
    up_to: Vec<(f64, u64)>,
}

impl CallTimes {
    /// Without what was there before.
    pub fn since(mut self, before: &CallTimes) -> CallTimes {
        for (bucket, before) in self.up_to.iter_mut().zip(&before.up_to) {
            bucket.1 -= before.1;
        }
        self
    }

    pub fn count(&self) -> u64 {
        self.up_to.last().map_or(0, |(_, count)| *count)
    }

    /// The bound, in milliseconds, that this share of the calls did not exceed. Bounds are half a doubling apart.
    pub fn at(&self, share: f64) -> f64 {
        let wanted = (self.count() as f64 * share).ceil() as u64;
        self.up_to.iter().find(|(_, count)| *count >= wanted).map_or(0.0, |(bound, _)| bound * 1e3)
    }
}

impl Server {
    /// Starts it on ports of its own and waits until it is ready.
    pub fn start(options: &ServerOptions) -> Result<Server, Failure> {
        empty(options)?;
        let mut command = Command::new(&options.halcyon);
        command.arg("standalone").arg("--data").arg(&options.data);
        command.args(["--memory", &options.memory, "--wal-sync", &options.wal_sync]);
        for port in PORTS {
            command.args([&format!("--{port}-port"), "0"]);
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).env("HALCYON_LOG", "warn").spawn();
        let child = child.map_err(|error| format!("{}: {error}", options.halcyon.display()))?;
        let mut server = Server { child, lines: Vec::new(), options: options.clone() };
        let output = server.child.stdout.take().ok_or("no output of the server")?;
        for line in BufReader::new(output).lines() {
            server.lines.push(line?);
            if server.lines.last().is_some_and(|line| line.starts_with("ready")) {
                return Ok(server);
            }
        }
        Err(format!("the server did not become ready: {:?}", server.lines).into())
    }

    /// Where one of [`PORTS`] is.
    fn address(&self, of: &str) -> Result<SocketAddr, Failure> {
        let line = self.lines.iter().find_map(|line| line.strip_prefix(&format!("{of} ")));
        let line = line.ok_or_else(|| format!("the server names no {of}"))?;
        Ok(line.trim_start_matches("http://").trim_end_matches('/').parse()?)
    }

    fn page(&self, path: &str) -> Result<String, Failure> {
        let mut stream = TcpStream::connect(self.address("regionserver-info")?)?;
        write!(stream, "GET {path} HTTP/1.1\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (_, body) = answer.split_once("\r\n\r\n").ok_or_else(|| format!("{path}: no page"))?;
        Ok(body.to_string())
    }

    /// The waits that the monitor remembers one by one.
    pub fn stalls(&self) -> Result<Vec<Stall>, Failure> {
        let read = |line: &str| {
            let mut parts = line.splitn(4, "  ");
            let at_ms = parts.next()?.parse().ok()?;
            let ms = parts.next()?.parse().ok()?;
            let cause = parts.next()?.to_string();
            Some(Stall { at_ms, ms, cause, detail: parts.next().unwrap_or_default().to_string() })
        };
        Ok(self.page("/stalls")?.lines().filter_map(read).collect())
    }

    /// How many flushes and compactions there were, by the names on `/metrics`.
    pub fn counters(&self) -> Result<BTreeMap<String, f64>, Failure> {
        let page = self.page("/metrics")?;
        let of_interest = |name: &str| {
            !name.contains('{') && name.ends_with("_total") && {
                name.contains("flushes") || name.contains("compactions") || name.contains("held_back")
            }
        };
        let lines = page.lines().filter_map(|line| line.rsplit_once(' '));
        let counters = lines.filter(|(name, _)| of_interest(name));
        Ok(counters.filter_map(|(name, value)| Some((name.to_string(), value.parse().ok()?))).collect())
    }

    /// What calls of each class took inside the server until now: seconds and how many took no longer.
    pub fn call_times(&self) -> Result<BTreeMap<String, CallTimes>, Failure> {
        let page = self.page("/metrics")?;
        let mut times: BTreeMap<String, CallTimes> = BTreeMap::new();
        for line in page.lines() {
            let Some(line) = line.strip_prefix("halcyon_rpc_call_seconds_bucket{class=\"") else { continue };
            let bucket = line.split_once("\",le=\"").and_then(|(class, line)| {
                let (bound, count) = line.split_once("\"} ")?;
                let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().ok()? };
                Some((class.to_string(), (bound, count.parse::<u64>().ok()?)))
            });
            let (class, bucket) = bucket.ok_or_else(|| format!("no bucket: {line}"))?;
            times.entry(class).or_default().up_to.push(bucket);
        }
        Ok(times)
    }

    /// Milliseconds that the threads of each name have run, and have waited for a processor to run on.
    pub fn threads(&self) -> Result<BTreeMap<String, (f64, f64)>, Failure> {
        let mut threads: BTreeMap<String, (f64, f64)> = BTreeMap::new();
        for task in std::fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let task = task?.path();
            // One that ended meanwhile is passed over.
            let Ok(name) = std::fs::read_to_string(task.join("comm")) else { continue };
            let Ok(times) = std::fs::read_to_string(task.join("schedstat")) else { continue };
            let mut nanos = times.split_whitespace().flat_map(str::parse::<f64>);
            let (ran, waited) = (nanos.next().unwrap_or(0.0) / 1e6, nanos.next().unwrap_or(0.0) / 1e6);
            let sum = threads.entry(name.trim().to_string()).or_default();
            *sum = (sum.0 + ran, sum.1 + waited);
        }
        Ok(threads)
    }

    /// Ends it as an operator does, and removes its data.
    pub fn stop(mut self) -> Result<(), Failure> {
        let sent = Command::new("kill").arg("-TERM").arg(self.child.id().to_string()).status()?;
        let deadline = Instant::now() + STOP_TIME_MAX;
        while sent.success() && self.child.try_wait()?.is_none() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        let ended = self.child.try_wait()?.is_some_and(|status| status.success());
        empty(&self.options)?;
        if ended { Ok(()) } else { Err("the server did not end well".into()) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
            let _ = empty(&self.options);
        }
    }
}

fn empty(options: &ServerOptions) -> Result<(), Failure> {
    match std::fs::remove_dir_all(&options.data) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// A connection to the rows of the table. *Thread safety*: calls of many tasks share it.
pub struct Table {
    rows: Connection,
    regions: Vec<RegionInfo>,
}

impl Table {
    /// Makes the table, split evenly over keys below `rows`, and opens it on so many connections.
    pub async fn make(server: &Server, rows: u64, connections: usize) -> Result<Vec<Table>, Failure> {
        let options = &server.options;
        let address = server.address("regionserver")?;
        let master = server.address("master")?;
        let master = Connection::connect(master, &ConnectOptions::new("MasterService")).await?;
        create(&master, options, rows).await?;
        let admin = Connection::connect(address, &ConnectOptions::new("AdminService")).await?;
        let mut regions = online(&admin).await?;
        let deadline = Instant::now() + CALL_TIMEOUT;
        while (regions.len() as u64) < options.regions && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(50)).await;
            regions = online(&admin).await?;
        }
        if regions.len() as u64 != options.regions {
            return Err(format!("{} regions are open, not {}", regions.len(), options.regions).into());
        }
        let mut tables = Vec::new();
        for _ in 0..connections {
            let rows = Connection::connect(address, &ConnectOptions::new("ClientService")).await?;
            tables.push(Table { rows, regions: regions.clone() });
        }
        Ok(tables)
    }

    fn region(&self, key: &Key) -> pb::RegionSpecifier {
        let after = self.regions.partition_point(|region| region.start_key().as_ref() <= key.as_slice());
        let region = &self.regions[after.saturating_sub(1)];
        pb::RegionSpecifier { r#type: 1, value: region.region_name().clone() }
    }

    /// Reads a row that is there.
    pub async fn get(&self, key: &Key) -> Result<(), Failure> {
        let get = pb::Get { row: Bytes::copy_from_slice(key), ..Default::default() };
        let request = pb::GetRequest { region: self.region(key), get };
        let answer = self.rows.call_with_cells("Get", &request, None, Some(CALL_TIMEOUT)).await?;
        if answer.cells.len() == 1 { Ok(()) } else { Err("a row is not there".into()) }
    }

    /// Writes a row.
    pub async fn put(&self, key: &Key, value: &[u8]) -> Result<(), Failure> {
        let mut block = self.rows.cell_block().ok_or("no cell blocks")?;
        block.push(&cell(key, value));
        let region = self.region(key);
        let request = pb::MutateRequest { region, mutation: put(), condition: None, nonce_group: None };
        self.rows.call_with_cells("Mutate", &request, Some(block), Some(CALL_TIMEOUT)).await?;
        Ok(())
    }

    /// Writes rows in order of their keys with one request.
    pub async fn put_all(&self, rows: &[(Key, &[u8])]) -> Result<(), Failure> {
        let mut block = self.rows.cell_block().ok_or("no cell blocks")?;
        let mut request = pb::MultiRequest::default();
        for (index, (key, value)) in rows.iter().enumerate() {
            block.push(&cell(key, value));
            let region = self.region(key);
            if request.region_action.last().is_none_or(|last| last.region.value != region.value) {
                request.region_action.push(pb::RegionAction { region, ..Default::default() });
            }
            let action = pb::Action::of_mutation(index as u32, put());
            request.region_action.last_mut().expect("one was added").action.push(action);
        }
        let answer = self.rows.call_with_cells("Multi", &request, Some(block), Some(CALL_TIMEOUT)).await?;
        let response = pb::MultiResponse::decode(answer.message)?;
        let failed = response.region_action_result.iter().any(|result| {
            result.exception.is_some() || result.result_or_exception.iter().any(|one| one.exception.is_some())
        });
        if failed { Err("rows were refused".into()) } else { Ok(()) }
    }
}

fn cell(key: &Key, value: &[u8]) -> Cell {
    Cell::put(key, FAMILY, QUALIFIER, LATEST_TIMESTAMP, value)
}

/// A put of one cell, which stands in the cell block.
fn put() -> pb::MutationProto {
    pb::MutationProto {
        mutate_type: Some(pb::mutation_proto::MutationType::Put as i32),
        associated_cell_count: Some(1),
        ..Default::default()
    }
}

/// The table's open regions, in order of their keys.
async fn online(admin: &Connection) -> Result<Vec<RegionInfo>, Failure> {
    let request = pb::GetOnlineRegionRequest {};
    let online: pb::GetOnlineRegionResponse = admin.call("GetOnlineRegion", &request).await?;
    let mut regions = Vec::new();
    for info in &online.region_info {
        let region = RegionInfo::from_pb(info)?;
        if region.table().qualifier() == TABLE {
            regions.push(region);
        }
    }
    regions.sort_by(|a, b| a.start_key().cmp(b.start_key()));
    Ok(regions)
}

async fn create(master: &Connection, options: &ServerOptions, rows: u64) -> Result<(), Failure> {
    let attribute = |first: &'static str, second: String| pb::BytesBytesPair {
        first: Bytes::from_static(first.as_bytes()),
        second: second.into(),
    };
    let family = pb::ColumnFamilySchema {
        name: Bytes::from_static(FAMILY),
        attributes: vec![attribute("CACHE_DATA_ON_WRITE", "true".to_string())],
        ..Default::default()
    };
    let table_schema = pb::TableSchema {
        table_name: Some(pb::TableName { namespace: "default".into(), qualifier: TABLE.into() }),
        attributes: vec![attribute("MEMSTORE_FLUSHSIZE", (options.flush_mib << 20).to_string())],
        column_families: vec![family],
        ..Default::default()
    };
    let split = |at: u64| Bytes::copy_from_slice(&key(rows * at / options.regions));
    let split_keys = (1..options.regions).map(split).collect();
    let request = pb::CreateTableRequest { table_schema, split_keys, ..Default::default() };
    let _: pb::CreateTableResponse = master.call("CreateTable", &request).await?;
    Ok(())
}
