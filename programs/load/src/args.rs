//! Options that all load generators share.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use halcyon_client::{Cluster, ClusterAddress, ClusterOptions};
use halcyon_rpc::Codec;

use crate::ingest::IngestArgs;
use crate::limits::LimitsArgs;
use crate::pe::PeArgs;
use crate::shape::ShapeArgs;
use crate::ycsb::YcsbArgs;

/// Generate load on Halcyon or HBase and measure it.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Run a command of HBase's PerformanceEvaluation.
    Pe(Box<PeArgs>),
    /// Run YCSB's core workloads A to F.
    Ycsb(YcsbArgs),
    /// Run Accumulo's continuous ingest (linked lists of random rows) or its verifier.
    Ingest(IngestArgs),
    /// Run a shape of load that the others do not make: counters, queues, large values and more; answers are checked.
    Shape(Box<ShapeArgs>),
    /// Measure this machine's upper bounds: no-op calls, WAL appends, network sends.
    Limits(LimitsArgs),
}

impl BenchCommand {
    pub fn report(&self) -> &ReportArgs {
        match self {
            BenchCommand::Pe(args) => &args.report,
            BenchCommand::Ycsb(args) => &args.report,
            BenchCommand::Ingest(args) => args.report(),
            BenchCommand::Limits(args) => &args.report,
            BenchCommand::Shape(args) => &args.report,
        }
    }
}

/// How to find the cluster.
#[derive(Clone, Debug, Args)]
pub struct ClusterArgs {
    /// ZooKeeper servers of the cluster.
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',', default_value = "127.0.0.1:2181")]
    pub zookeeper: Vec<String>,
    /// Base znode of the cluster.
    #[arg(long, value_name = "PATH", default_value = "/hbase")]
    pub znode_parent: String,
    /// Use the RPC registry instead of ZooKeeper: masters or region servers of the cluster.
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',')]
    pub registry: Vec<String>,
    /// Timeout of one call.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub call_timeout: u64,
    /// Timeout of one operation with all retries; exceeding it ends the run.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub operation_timeout: u64,
}

impl ClusterArgs {
    /// Connects. The error is a sentence that names the address.
    pub async fn connect(&self, connections: usize, codec: Codec) -> Result<Cluster, String> {
        let address = if self.registry.is_empty() {
            let base = self.znode_parent.trim_end_matches('/').to_string();
            ClusterAddress::ZooKeeper { quorum: self.zookeeper.clone(), base }
        } else {
            ClusterAddress::Registry { servers: self.registry.clone() }
        };
        let mut options = ClusterOptions {
            connections_per_server: connections.max(1),
            call_timeout: Duration::from_secs(self.call_timeout.max(1)),
            operation_timeout: Duration::from_secs(self.operation_timeout.max(1)),
            ..ClusterOptions::default()
        };
        options.connect.codec = Some(codec);
        Cluster::connect(address, options).await.map_err(|error| format!("cannot find the cluster: {error}"))
    }
}

/// How a run is paced and reported.
#[derive(Clone, Debug, Args)]
pub struct ReportArgs {
    /// Open loop: operations per second of all clients together. Latency counts from the planned start.
    #[arg(long, aliases = ["throttle", "target"], value_name = "PER SECOND", value_parser = positive)]
    pub rate: Option<f64>,
    /// Length of the warm-up, which is not measured.
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub warmup: u64,
    /// Extend the warm-up until the rates of three consecutive seconds differ by less than 5 %, but not beyond this. A run
    /// that is not steady by then is measured and marked partial.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub warmup_max: Option<u64>,
    /// List each operation slower than this in the JSON file.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 10.0, value_parser = positive)]
    pub slow_ms: f64,
    /// Write the results to this file as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Interval between progress lines when the output is not a terminal.
    #[arg(long = "progress-period", value_name = "SECONDS", default_value_t = 10)]
    pub period: u64,
    /// Threads that run all clients.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=256))]
    pub runtime_threads: usize,
    /// Process id of a local server, to measure its CPU time.
    #[arg(long, value_name = "PID")]
    pub server_pid: Option<u32>,
    /// Seed of the random generator [default: a new one for each run].
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(number),
        _ => Err("expected a number above 0".to_string()),
    }
}
