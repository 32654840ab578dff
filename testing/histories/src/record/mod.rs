//! The recorder: processes that work on a table with `halcyon-client`, and write down each operation.
//!
//! A process is a task that has one operation at a time. Rows are named by the machine's clock ([`names`]), so that
//! recorders of both clients work on the same rows at the same time, and what they recorded can be checked together.
//!
//! Gets, scans, appends and increments are retried by the client: reads change nothing, and the others carry nonces. A put,
//! delete or check-and-mutate that is repeated after a lost answer may happen twice; it has one attempt, and is "unknown"
//! after an error. An error says for certain that nothing happened ("refused") only if the first attempt got it, and it is
//! one that servers send before they write ([`errors`]).
//!
//! Some operations are of rows of an earlier time, so that flushes, compactions and replays lie between a write and a read.
//!
//! At the end, when the faults are over, each row is read once more.

mod errors;
mod names;
mod output;
mod workload;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use halcyon_client::{Cluster, ClusterAddress, ClusterOptions, RetryPolicy, TableName};
use halcyon_env::sim::Dice;

use crate::history::{History, Kind};
use names::Clock;
use output::Output;
use workload::Worker;

/// How often a process looks for the file that ends its work.
const LOOK: Duration = Duration::from_millis(200);
/// Time for the reads at the end, which wait until every region is open.
const LAST_READS: Duration = Duration::from_secs(90);

/// Arguments of `record`.
#[derive(Clone, Debug, clap::Args)]
pub struct RecordArgs {
    /// What the rows are: lists, registers, rows or versions.
    #[arg(value_parser = kind)]
    kind: Kind,
    /// ZooKeeper servers of the cluster.
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',', default_value = "127.0.0.1:2181")]
    zookeeper: Vec<String>,
    /// Table with the families f and g. Each history needs a new one.
    #[arg(long)]
    table: String,
    /// File of the history, which is overwritten.
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    /// End the work when this file exists.
    #[arg(long, value_name = "FILE")]
    stop: Option<PathBuf>,
    /// End the work after this time.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    seconds: u64,
    /// Processes.
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = RangedU64ValueParser::<usize>::new().range(1..=50))]
    processes: usize,
    /// Number of the first process, 0 to 50; recorders that work at the same time need different ones.
    #[arg(long, value_name = "NUMBER", default_value_t = 50, value_parser = clap::value_parser!(u8).range(0..=50))]
    first_process: u8,
    /// Operations of each process in a second, at most.
    #[arg(long, value_name = "COUNT", default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: u32,
    /// Time after which a process uses new rows, most of the time (but for kind rows).
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    period: u64,
    /// Timeout of one call.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 3_000, value_parser = clap::value_parser!(u64).range(1..=600_000))]
    call_timeout: u64,
    /// Timeout of an operation with all retries.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 30_000, value_parser = clap::value_parser!(u64).range(1..=600_000))]
    operation_timeout: u64,
    /// Leave out deletes. HBase hides a put that comes in the same millisecond as a delete before it.
    #[arg(long)]
    no_deletes: bool,
    /// Answers that each process must get to each of its actions. With fewer the recorder fails.
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    least: u64,
    /// Seed of the choices.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
}

fn kind(text: &str) -> Result<Kind, String> {
    Kind::of_name(text).ok_or_else(|| "expected lists, registers, rows or versions".to_string())
}

/// What all processes share.
struct Shared {
    args: RecordArgs,
    clock: Clock,
    /// When the recorder began.
    begun_ns: u64,
    output: Output,
    /// Retries errors.
    patient: halcyon_client::Table,
    /// Has one attempt.
    single: halcyon_client::Table,
    /// Pause before a first retry: an answer that came earlier is that of the first attempt.
    pause: Duration,
    stop: AtomicBool,
}

/// Records a history. Returns a sentence about it; the error is one as well.
pub fn record(args: &RecordArgs) -> Result<String, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start threads: {error}"))?;
    runtime.block_on(run(args))
}

async fn run(args: &RecordArgs) -> Result<String, String> {
    let name = TableName::parse(args.table.as_bytes())
        .map_err(|error| format!("{:?} is no name of a table: {error}", args.table))?;
    let clock = Clock::of_machine()?;
    let options = ClusterOptions {
        call_timeout: Duration::from_millis(args.call_timeout),
        operation_timeout: Duration::from_millis(args.operation_timeout),
        ..ClusterOptions::default()
    };
    let single = ClusterOptions {
        operation_timeout: options.call_timeout,
        retry: RetryPolicy { retries_max: 0, ..options.retry },
        ..options.clone()
    };
    let pause = options.retry.pause;
    let connect = async |options: ClusterOptions| {
        let cluster = Cluster::connect(ClusterAddress::zookeeper(args.zookeeper.clone()), options).await;
        cluster.map_err(|error| format!("cannot find the cluster: {error}"))
    };
    let patient = connect(options).await?.table(name.clone(), 0);
    patient
        .get(halcyon_client::Get::new("0"))
        .await
        .map_err(|error| format!("cannot read the table {}: {error}", args.table))?;
    let single = connect(single).await?.table(name, 0);
    let head = History {
        clock: clock.name().to_string(),
        table: args.table.clone(),
        columns: if args.kind == Kind::Rows { workload::COLUMNS } else { 0 },
        clients: vec![format!("halcyon-client {}", env!("CARGO_PKG_VERSION"))],
        ..History::new(args.kind)
    };
    let output = Output::create(&args.output, &head)?;
    let args = args.clone();
    let shared = Arc::new(Shared {
        args,
        begun_ns: clock.now_ns(),
        clock,
        output,
        patient,
        single,
        pause,
        stop: AtomicBool::new(false),
    });
    work(&shared).await?;
    read_all(&shared).await?;
    let (count, unknown) = shared.output.finish()?;
    let processes: Vec<_> = (0..shared.args.processes)
        .map(|at| workload::name(u64::from(shared.args.first_process) + at as u64))
        .collect();
    let actions = workload::actions(shared.args.kind, shared.args.no_deletes);
    shared.output.expect_answers(&processes, actions, shared.args.least)?;
    Ok(format!("recorded {count} operations, {unknown} without an answer"))
}

fn failed(error: tokio::task::JoinError) -> String {
    format!("a process failed: {error}")
}

fn worker(shared: &Arc<Shared>, at: usize) -> Worker {
    let number = u64::from(shared.args.first_process) + at as u64;
    let seed = shared.args.seed.wrapping_mul(1_000_003).wrapping_add(number);
    Worker::new(Arc::clone(shared), number, Dice::new(seed))
}

/// All processes work until the time is over or the file is there. One that ends before ends them all, and is the error: they
/// end by errors only.
async fn work(shared: &Arc<Shared>) -> Result<(), String> {
    let workers: Vec<_> =
        (0..shared.args.processes).map(|at| tokio::spawn(worker(shared, at).work())).collect();
    let end = tokio::time::Instant::now() + Duration::from_secs(shared.args.seconds);
    let is_asked = || shared.args.stop.as_ref().is_some_and(|stop| stop.exists());
    while tokio::time::Instant::now() < end && !is_asked() && !workers.iter().any(|one| one.is_finished()) {
        tokio::time::sleep(LOOK).await;
    }
    shared.stop.store(true, Ordering::Release);
    for worker in workers {
        worker.await.map_err(failed)??;
    }
    Ok(())
}

/// Reads each row that was used, once. A row that cannot be read is an error: then the history would miss what it is for.
async fn read_all(shared: &Arc<Shared>) -> Result<(), String> {
    let rows = shared.output.rows();
    let processes = shared.args.processes;
    let readers: Vec<_> = (0..processes)
        .map(|at| {
            let rows: Vec<String> = rows.iter().skip(at).step_by(processes).cloned().collect();
            tokio::spawn(worker(shared, at).read_all(rows, LAST_READS))
        })
        .collect();
    for reader in readers {
        reader.await.map_err(failed)??;
    }
    Ok(())
}
