//! What bounds every result on this machine: a call that does nothing, a log and nothing else, bytes sent and nothing else.
//!
//! Each is driven as the generators are driven, so that a result can be given as a share of the possible. The RPC server
//! runs in this process on a thread of its own: processor time of a call is that of both sides.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use halcyon_cell::Cell;
use halcyon_client::{ClientError, ConnectOptions, Connection};
use halcyon_env::{Env, spawn_thread};
use halcyon_proto::pb;
use halcyon_rpc::{Call, Outcome, Reply, RpcServer, RpcSettings, Service, Services};
use halcyon_wal::{Durability, SyncMode, Wal, WalConfig, WalEntry};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use crate::args::ReportArgs;
use crate::run::{
    Client, Done, Outcome as RunOutcome, Plan, Step, result_json, result_text, run, write_json,
};

const KINDS: &[&str] = &["call"];
const STEP: Step = Step::Done(Done { operations: 1, kind: Some(0) });
/// Longest the log's driver sleeps without work; ends it in time.
const DRIVER_WAIT: Duration = Duration::from_millis(20);

#[derive(Clone, Debug, Args)]
pub struct LimitsArgs {
    /// Clients at work.
    #[arg(long, default_value_t = 64, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    pub clients: usize,
    /// Connections that they share.
    #[arg(long, default_value_t = 4, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    pub connections: usize,
    /// Bytes of a log entry's value and of a message.
    #[arg(long, default_value_t = 1_000, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=16_000_000))]
    pub value_size: usize,
    /// Seconds for each.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: u64,
    /// Where to write the log: a directory on the disk that is to be measured; only what is made in it is removed.
    #[arg(long, default_value = ".")]
    pub dir: PathBuf,
    #[command(flatten)]
    pub report: ReportArgs,
}

/// Measures all limits, one after the other.
pub async fn limits(env: &Env, args: &LimitsArgs) -> Result<(), String> {
    let measure = Measure { env, args, report: ReportArgs { json: None, ..args.report.clone() } };
    let mut results = Vec::new();
    results.push(measure.calls().await?);
    for mode in [SyncMode::Written, SyncMode::Fsync] {
        results.push(measure.log(mode).await?);
    }
    results.push(measure.sends().await?);
    if let Some(file) = &args.report.json {
        write_json(env, file, &Value::Array(results.iter().map(|(json, _)| json.clone()).collect()))?;
    }
    match results.into_iter().find_map(|(_, partial)| partial) {
        None => Ok(()),
        Some(why) => Err(format!("the result is partial: {why}")),
    }
}

struct Measure<'a> {
    env: &'a Env,
    args: &'a LimitsArgs,
    report: ReportArgs,
}

/// A result as JSON, and why it is partial if it is.
type Measured = (Value, Option<String>);

impl Measure<'_> {
    async fn run<C: Client>(&self, name: &str, clients: Vec<C>, bytes: usize) -> Measured {
        let plan = Plan {
            env: self.env,
            name: format!("limits: {name}"),
            report: &self.report,
            kinds: KINDS,
            operations: None,
            time_max: Some(Duration::from_secs(self.args.seconds)),
        };
        let clients = clients.into_iter().map(|client| (client, plan.recorder())).collect();
        let outcome: RunOutcome = run(&plan, clients).await;
        print!("{}", result_text(&plan, &outcome, None));
        let megabytes = outcome.totals.operations as f64 * bytes as f64 / 1e6 / outcome.elapsed_s;
        if bytes > 0 {
            println!("  {megabytes:.1} MB/s");
        }
        let extra = json!({ "bytes_per_operation": bytes, "megabytes_per_s": megabytes });
        (result_json(&plan, &outcome, None, extra), outcome.partial)
    }

    /// Calls of a service that answers at once.
    async fn calls(&self) -> Result<Measured, String> {
        let failed = |error: &dyn std::fmt::Display| format!("a call that does nothing: {error}");
        let (ready, address) = oneshot::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let clock = Arc::clone(&self.env.clock);
        let server = spawn_thread("limits-server", move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let Ok(runtime) = runtime else { return };
            runtime.block_on(async {
                let any = ([127, 0, 0, 1], 0).into();
                let Ok(bound) = RpcServer::bind(any, RpcSettings::default(), clock).await else { return };
                let server =
                    bound.serve(Services::from([("MasterService", Arc::new(Nothing) as _)]), "limits");
                let _ = ready.send(server.local_addr());
                let _ = stopped.await;
                server.stop(Duration::from_millis(100)).await;
            });
        });
        let server = server.map_err(|error| failed(&error))?;
        let address = address.await.map_err(|_| failed(&"the server did not start"))?;
        let mut connections = Vec::new();
        for _ in 0..self.args.connections {
            let connection = Connection::connect(address, &ConnectOptions::new("MasterService")).await;
            connections.push(Arc::new(connection.map_err(|error| failed(&error))?));
        }
        let caller =
            |number: usize| Caller { connection: Arc::clone(&connections[number % connections.len()]) };
        let callers = (0..self.args.clients).map(caller).collect();
        let measured = self.run("a call that does nothing", callers, 0).await;
        drop(stop);
        server.join().map_err(|_| failed(&"the server broke"))?;
        Ok(measured)
    }

    /// Appends to a log of ours, which many share, each waiting for its own.
    async fn log(&self, mode: SyncMode) -> Result<Measured, String> {
        let name = match mode {
            SyncMode::Written => "a log, written",
            SyncMode::Fsync => "a log, fsync",
        };
        let dir = std::path::absolute(&self.args.dir).map_err(|error| error.to_string())?;
        let dir = dir.join(format!("halcyon-limits-{}", std::process::id()));
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", dir.display());
        // beside files of somebody else's nothing is removed
        if self.env.fs.exists(&dir) {
            return Err(failed(&"is there already"));
        }
        let mut config = WalConfig::new(dir.join("WALs"), dir.join("oldWALs"), "limits");
        config.sync_mode = mode;
        let wal = Wal::open(self.env.clone(), config).map_err(|error| failed(&error))?;
        let stopping = Arc::new(AtomicBool::new(false));
        let (driven, stop) = (Arc::clone(&wal), Arc::clone(&stopping));
        let driver = spawn_thread("limits-log", move || {
            while !stop.load(Ordering::Relaxed) {
                driven.wait_for_work(DRIVER_WAIT);
                driven.drive();
            }
        });
        let driver = driver.map_err(|error| failed(&error))?;
        let appender = |number: usize| Appender {
            wal: Arc::clone(&wal),
            // a region of its own, so that its numbers rise without a lock
            region: format!("{number:032x}").into_bytes(),
            seq: 0,
            cell: Cell::put(
                format!("{number:026}").as_bytes(),
                b"info0",
                b"0",
                1,
                &vec![b'v'; self.args.value_size],
            ),
        };
        let appenders: Vec<Appender> = (0..self.args.clients).map(appender).collect();
        let bytes = appenders[0].cell.bytes().len();
        let measured = self.run(name, appenders, bytes).await;
        stopping.store(true, Ordering::Relaxed);
        let ended = driver.join().map_err(|_| failed(&"the log's driver broke"));
        drop(wal);
        self.env.fs.remove_dir_all(&dir).map_err(|error| failed(&error))?;
        ended.map(|()| measured)
    }

    /// Messages over loopback, one `write` each, to a reader that throws them away.
    async fn sends(&self) -> Result<Measured, String> {
        let failed = |error: std::io::Error| format!("a plain send: {error}");
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let accepting = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut buffer = vec![0; 256 << 10];
                    while matches!(stream.read(&mut buffer).await, Ok(1..)) {}
                });
            }
        });
        let mut senders = Vec::new();
        for _ in 0..self.args.connections {
            let stream = TcpStream::connect(address).await.map_err(failed)?;
            stream.set_nodelay(true).map_err(failed)?;
            senders.push(Sender { stream, message: vec![b'v'; self.args.value_size] });
        }
        let measured = self.run("a plain send", senders, self.args.value_size).await;
        accepting.abort();
        Ok(measured)
    }
}

/// Answers everything at once.
struct Nothing;

impl Service for Nothing {
    fn call(&self, _call: Call) -> Outcome {
        Outcome::Ready(Ok(Reply::message(&pb::IsMasterRunningResponse { is_master_running: true })))
    }
}

struct Caller {
    connection: Arc<Connection>,
}

impl Client for Caller {
    async fn step(&mut self) -> Result<Step, ClientError> {
        let request = pb::IsMasterRunningRequest {};
        let _: pb::IsMasterRunningResponse = self.connection.call("IsMasterRunning", &request).await?;
        Ok(STEP)
    }
}

struct Appender {
    wal: Arc<Wal>,
    region: Vec<u8>,
    seq: u64,
    cell: Cell,
}

impl Client for Appender {
    async fn step(&mut self) -> Result<Step, ClientError> {
        self.seq += 1;
        let (done, result) = oneshot::channel();
        let completion = Box::new(move |result: &halcyon_cell::Result<()>| {
            let _ = done.send(result.clone()); // the run may be over
        });
        let entry = WalEntry {
            region: &self.region,
            table: b"limits",
            seq: self.seq,
            write_time_ms: 1,
            nonce_group: 0,
            nonce: 0,
            cells: &[self.cell.get()],
        };
        self.wal.append(&entry, Durability::SyncWal, completion).map_err(std::io::Error::other)?;
        match result.await {
            Ok(result) => result.map_err(std::io::Error::other)?,
            Err(_) => return Err(ClientError::Closed),
        }
        Ok(STEP)
    }
}

struct Sender {
    stream: TcpStream,
    message: Vec<u8>,
}

impl Client for Sender {
    async fn step(&mut self) -> Result<Step, ClientError> {
        self.stream.write_all(&self.message).await?;
        Ok(STEP)
    }
}
