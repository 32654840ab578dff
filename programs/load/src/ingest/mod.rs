//! Continuous ingest: linked lists of random rows, so that a lost write shows.
//!
//! - `node.rs`: a node's bytes; `write.rs`: the writer; `verify.rs`: the verifier
//!
//! A write that was acknowledged and is not there any more leaves a reference that leads nowhere: UNDEFINED. Writes
//! that were never acknowledged may be there or not, and nothing refers to them. As Accumulo's continuous ingest
//! (`ContinuousIngest`, `ContinuousVerify`), with one family for its random ones, as HBase's tables have to name theirs.

mod node;
mod verify;
mod write;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use clap::{Args, Subcommand};
use halcyon_client::{ClientError, Cluster};
use halcyon_env::Env;
use halcyon_rpc::Codec;
use halcyon_schema::{FamilyDescriptor, TableDescriptor, TableName};
use parking_lot::Mutex;
use serde_json::json;

use crate::args::{ClusterArgs, ReportArgs};
use crate::random::{Random, random_seed};
use crate::run::{Plan, conclude, run};

/// Options of both parts.
#[derive(Clone, Debug, Args)]
pub struct CommonArgs {
    #[arg(long, default_value = "ci")]
    pub table: String,
    /// Number of clients.
    #[arg(long, default_value_t = 4, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    pub clients: usize,
    /// Connections to each server that the clients share [default: one for each client].
    #[arg(long)]
    pub connections: Option<usize>,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    #[command(flatten)]
    pub report: ReportArgs,
}

#[derive(Clone, Debug, Args)]
pub struct IngestArgs {
    #[command(subcommand)]
    pub part: Part,
}

#[derive(Clone, Debug, Subcommand)]
pub enum Part {
    /// Write nodes.
    Write(WriteArgs),
    /// Read all nodes and report missing ones.
    Verify(VerifyArgs),
}

#[derive(Clone, Debug, Args)]
pub struct WriteArgs {
    /// Nodes to write, by all clients together.
    #[arg(long, default_value_t = 1_000_000)]
    pub nodes: u64,
    /// Stop after this time.
    #[arg(long, value_name = "SECONDS")]
    pub time: Option<u64>,
    /// Nodes in one batch.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub batch: u64,
    /// Distance in nodes between a node and the one that it references; rounded up to whole batches.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub layer: u64,
    /// Regions of a new table.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub presplit: u32,
    #[command(flatten)]
    pub common: CommonArgs,
}

#[derive(Clone, Debug, Args)]
pub struct VerifyArgs {
    /// Rows in one scan call.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub caching: u32,
    #[command(flatten)]
    pub common: CommonArgs,
}

impl IngestArgs {
    fn common(&self) -> &CommonArgs {
        match &self.part {
            Part::Write(args) => &args.common,
            Part::Verify(args) => &args.common,
        }
    }

    pub(crate) fn report(&self) -> &ReportArgs {
        &self.common().report
    }
}

/// Writes or verifies.
pub async fn ingest(env: &Env, args: &IngestArgs) -> Result<(), String> {
    let common = args.common();
    let name = TableName::parse(common.table.as_bytes()).map_err(|error| error.to_string())?;
    let connections = common.connections.unwrap_or(common.clients);
    let cluster = common.cluster.connect(connections, Codec::KeyValue).await?;
    match &args.part {
        Part::Write(args) => write(env, &cluster, &name, args).await,
        Part::Verify(args) => verify(env, &cluster, &name, args).await,
    }
}

async fn write(env: &Env, cluster: &Cluster, name: &TableName, args: &WriteArgs) -> Result<(), String> {
    let made = prepare(cluster, name, args.presplit).await;
    made.map_err(|error| format!("table {name}: {error}"))?;
    let seed = args.common.report.seed.unwrap_or_else(random_seed);
    let left = Arc::new(AtomicU64::new(args.nodes));
    let plan = Plan {
        env,
        name: "ingest write".to_string(),
        report: &args.common.report,
        kinds: &["batch"],
        operations: Some(args.nodes),
        time_max: args.time.map(Duration::from_secs),
    };
    let clients = (0..args.common.clients).map(|number| {
        // another run is another writer, whatever the seed
        let writer = format!("{:016x}-{number}", random_seed());
        let random = Random::fork(seed, number as u64);
        let table = cluster.table(name.clone(), number);
        let writer = write::Writer::new(table, writer, random, Arc::clone(&left), args.batch, args.layer);
        (writer, plan.recorder())
    });
    let outcome = run(&plan, clients.collect()).await;
    let extra = json!({ "table": args.common.table, "clients": args.common.clients, "batch": args.batch,
        "layer": args.layer, "seed": seed });
    conclude(&plan, &outcome, Some(cluster), extra)
}

/// Makes the table, divided evenly, if it is not there.
async fn prepare(cluster: &Cluster, name: &TableName, regions: u32) -> Result<(), ClientError> {
    let admin = cluster.admin().await?;
    if admin.descriptor(name).await?.is_some() {
        return Ok(());
    }
    let family = FamilyDescriptor::new(node::FAMILY).expect("the family's name follows the rules");
    let splits = (1..regions).map(|at| node::row_key(node::ROW_END / u64::from(regions) * u64::from(at)));
    admin.create_table(&TableDescriptor::new(name.clone()).with_family(family), splits.collect()).await
}

async fn verify(env: &Env, cluster: &Cluster, name: &TableName, args: &VerifyArgs) -> Result<(), String> {
    let found = Arc::new(Mutex::new(verify::Found::default()));
    let count = args.common.clients;
    let plan = Plan {
        env,
        name: "ingest verify".to_string(),
        report: &args.common.report,
        kinds: &["thousand rows"],
        operations: None,
        time_max: None,
    };
    let clients = (0..count).map(|number| {
        let table = cluster.table(name.clone(), number);
        let found = Arc::clone(&found);
        let reader = verify::Reader::new(&table, number as u64, count as u64, args.caching, found);
        (reader, plan.recorder())
    });
    let outcome = run(&plan, clients.collect()).await;
    let mut found = found.lock();
    let verdict = found.judge();
    // a part of the nodes says nothing about the rest
    if outcome.partial.is_none() {
        println!(
            "REFERENCED {}\nUNREFERENCED {}\nUNDEFINED {}\nCORRUPT {}",
            verdict.referenced, verdict.unreferenced, verdict.undefined, verdict.corrupt
        );
        for (row, referrer) in &verdict.undefined_rows {
            println!("  undefined {row:016x}, referred to by {referrer:016x}");
        }
        for key in &found.corrupt_keys {
            println!("  corrupt {key}");
        }
    }
    let extra = json!({ "table": args.common.table, "referenced": verdict.referenced,
        "unreferenced": verdict.unreferenced, "undefined": verdict.undefined, "corrupt": verdict.corrupt });
    conclude(&plan, &outcome, Some(cluster), extra)?;
    match verdict.undefined + verdict.corrupt {
        0 => Ok(()),
        _ => Err(format!("{} nodes are undefined, {} corrupt", verdict.undefined, verdict.corrupt)),
    }
}
