//! Options that all generators share.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use halcyon_client::{Cluster, ClusterAddress, ClusterOptions};
use halcyon_rpc::Codec;

use crate::ingest::IngestArgs;
use crate::limits::LimitsArgs;
use crate::pe::PeArgs;
use crate::ycsb::YcsbArgs;

/// Loads a server, Halcyon or HBase, and measures it.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// The commands of HBase's PerformanceEvaluation.
    Pe(Box<PeArgs>),
    /// YCSB's core workloads, A to F.
    Ycsb(YcsbArgs),
    /// Accumulo's continuous ingest: linked lists of random rows, and their verifier.
    Ingest(IngestArgs),
    /// What bounds every result on this machine.
    Limits(LimitsArgs),
}

impl BenchCommand {
    pub fn report(&self) -> &ReportArgs {
        match self {
            BenchCommand::Pe(args) => &args.report,
            BenchCommand::Ycsb(args) => &args.report,
            BenchCommand::Ingest(args) => args.report(),
            BenchCommand::Limits(args) => &args.report,
        }
    }
}

/// Where the cluster is.
#[derive(Clone, Debug, Args)]
pub struct ClusterArgs {
    /// ZooKeeper servers of the cluster.
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',', default_value = "127.0.0.1:2181")]
    pub zookeeper: Vec<String>,
    /// Base znode of the cluster.
    #[arg(long, value_name = "PATH", default_value = "/hbase")]
    pub znode_parent: String,
    /// Find the cluster through its masters or region servers instead (the RPC registry).
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',')]
    pub registry: Vec<String>,
    /// Seconds that one call may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub call_timeout: u64,
    /// Seconds that an operation may take with all retries; one that takes longer ends the run.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub operation_timeout: u64,
}

impl ClusterArgs {
    /// Connects; the error says in a sentence where there was no cluster.
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
        Cluster::connect(address, options).await.map_err(|error| format!("no cluster: {error}"))
    }
}

/// How a run is made and told of.
#[derive(Clone, Debug, Args)]
pub struct ReportArgs {
    /// Operations a second, all clients together; latency counts from the moment an operation should have begun.
    #[arg(long, aliases = ["throttle", "target"], value_name = "PER SECOND", value_parser = positive)]
    pub rate: Option<f64>,
    /// Let the clients work for so long before anything is measured.
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub warmup: u64,
    /// Tell of every operation that took longer, one by one, in the JSON file.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 10.0, value_parser = positive)]
    pub slow_ms: f64,
    /// Write results here as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Seconds from one line of progress to the next where there is no terminal.
    #[arg(long = "progress-period", value_name = "SECONDS", default_value_t = 10)]
    pub period: u64,
    /// Threads that all clients share.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=256))]
    pub runtime_threads: usize,
    /// The server's process, whose processor time is to be measured too.
    #[arg(long, value_name = "PID")]
    pub server_pid: Option<u32>,
    /// Seed of everything that is random [default: another one each time].
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(number),
        _ => Err("it is a number above 0".to_string()),
    }
}
