//! Shapes of load that other generators do not make: `halcyon bench shape NAME`.
//!
//! - `counter.rs`, `cas.rs`: increments and compare-and-set upon few rows
//! - `queue.rs`, `poll.rs`: rows that are written, found at the front and deleted; a queue that is empty most of the time
//! - `values.rs`, `regions.rs`: large values; many regions; both by `own_rows.rs`
//! - `gets.rs`: many gets in one call; `series.rs`: rows of thousands of columns
//! - `value.rs`: keys, and values that say which row and version they belong to
//!
//! Every shape makes its table anew and knows each answer: what a client reads must be what was acknowledged before. A wrong
//! answer counts as an error by its class, and makes the run partial. After the last operation most shapes read once more
//! what must be there.

mod cas;
mod counter;
mod gets;
mod own_rows;
mod poll;
mod queue;
mod regions;
mod series;
mod value;
mod values;

use std::time::Duration;

use bytes::Bytes;
use clap::{Args, ValueEnum};
use halcyon_client::{ClientError, Cluster, Table};
use halcyon_env::Env;
use halcyon_rpc::Codec;
use halcyon_schema::{FamilyDescriptor, TableDescriptor, TableName};
use serde_json::json;

use crate::args::{ClusterArgs, ReportArgs};
use crate::random::random_seed;
use crate::run::{Outcome, Plan, conclude};

/// The family and, but for time series, the column of all shapes.
const FAMILY: &[u8] = b"f";
const QUALIFIER: &[u8] = b"q";

/// Classes of wrong answers.
const NOT_FOUND: &str = "NotFound";
const WRONG_VALUE: &str = "WrongValue";
/// Something that was taken and deleted came again.
const TWICE: &str = "Twice";
/// Something that was acknowledged was passed over.
const LOST: &str = "Lost";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shape {
    /// Increment counters; --rows 1 is one hot counter.
    Counter,
    /// Compare-and-set: read a version, and replace it if it is still there.
    Cas,
    /// Producers put rows; consumers scan from the front and delete what they found.
    Queue,
    /// Poll a queue that was drained and is empty most of the time.
    Poll,
    /// Put and get large values.
    Values,
    /// Get many random rows in one call.
    Gets,
    /// Time series: append points to rows of many columns, and read whole rows.
    Series,
    /// Put and get rows of many regions.
    Regions,
}

/// Run a shape of load whose answers are checked.
#[derive(Clone, Debug, Args)]
pub struct ShapeArgs {
    #[arg(value_enum)]
    pub shape: Shape,
    /// Number of clients; of a queue half of them produce.
    #[arg(long, default_value_t = 16, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    pub clients: usize,
    /// Connections to each server that the clients share.
    #[arg(long, default_value_t = 4, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    pub connections: usize,
    /// Stop after this time.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,
    /// Counters, rows, series, rows that wait in a queue at most, or rows drained before the first poll [default: by shape].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub rows: Option<u64>,
    /// Size of a value in bytes, where it can be chosen [default: by shape].
    #[arg(long, value_name = "BYTES", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(16..=10_000_000))]
    pub value_size: Option<usize>,
    /// Regions of the table [default: by shape].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub regions: Option<u32>,
    /// Gets in one call, or rows that a consumer takes at once.
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub batch: u32,
    /// Columns of a row of a time series.
    #[arg(long, value_name = "COUNT", default_value_t = 3_600, value_parser = clap::value_parser!(u32).range(2..=65_536))]
    pub columns: u32,
    /// The table; made anew if it is there [default: Shape and the name].
    #[arg(long)]
    pub table: Option<String>,

    #[command(flatten)]
    pub cluster: ClusterArgs,
    #[command(flatten)]
    pub report: ReportArgs,
}

/// Sizes of a shape unless options say otherwise: rows, bytes of a value, regions.
fn defaults(shape: Shape) -> (u64, usize, u32) {
    match shape {
        Shape::Counter => (1_000, 8, 4),
        Shape::Cas => (100, 8, 4),
        Shape::Queue => (1_000, 100, 4),
        Shape::Poll => (10_000, 100, 1),
        Shape::Values => (256, 1 << 20, 4),
        Shape::Gets => (100_000, 100, 10),
        Shape::Series => (64, 8, 4),
        Shape::Regions => (50_000, 100, 500),
    }
}

/// What a shape works with.
struct Setup<'a> {
    env: &'a Env,
    args: &'a ShapeArgs,
    cluster: &'a Cluster,
    name: TableName,
    rows: u64,
    value_len: usize,
    regions: u32,
    seed: u64,
}

impl<'a> Setup<'a> {
    fn plan(&self) -> Plan<'a> {
        Plan {
            env: self.env,
            name: format!("shape {}", shape_name(self.args.shape)),
            report: &self.args.report,
            kinds: kinds(self.args.shape),
            operations: None,
            time_max: Some(Duration::from_secs(self.args.seconds)),
        }
    }

    /// The table on the connections of a client.
    fn table(&self, client: usize) -> Table {
        self.cluster.table(self.name.clone(), client)
    }

    /// Makes the table without a row, divided at these keys.
    async fn make_table(&self, splits: Vec<Bytes>) -> Result<(), ClientError> {
        let admin = self.cluster.admin().await?;
        if admin.descriptor(&self.name).await?.is_some() {
            admin.drop_table(&self.name).await?;
        }
        let family = FamilyDescriptor::new(FAMILY).expect("the family's name follows the rules");
        admin.create_table(&TableDescriptor::new(self.name.clone()).with_family(family), splits).await
    }
}

/// Kinds of operations.
fn kinds(shape: Shape) -> &'static [&'static str] {
    match shape {
        Shape::Counter => counter::KINDS,
        Shape::Cas => cas::KINDS,
        Shape::Queue => queue::KINDS,
        Shape::Poll => poll::KINDS,
        Shape::Values | Shape::Regions => own_rows::KINDS,
        Shape::Gets => gets::KINDS,
        Shape::Series => series::KINDS,
    }
}

fn shape_name(shape: Shape) -> String {
    shape.to_possible_value().expect("no shape is hidden").get_name().to_string()
}

/// Runs one shape.
pub async fn shape(env: &Env, args: &ShapeArgs) -> Result<(), String> {
    let (rows, value_len, regions) = defaults(args.shape);
    let table = args.table.clone().unwrap_or_else(|| format!("Shape-{}", shape_name(args.shape)));
    let cluster = args.cluster.connect(args.connections, Codec::KeyValue).await?;
    let setup = Setup {
        env,
        args,
        cluster: &cluster,
        name: TableName::parse(table.as_bytes()).map_err(|error| error.to_string())?,
        rows: args.rows.unwrap_or(rows),
        value_len: args.value_size.unwrap_or(value_len),
        regions: args.regions.unwrap_or(regions),
        seed: args.report.seed.unwrap_or_else(random_seed),
    };
    refuse(&setup)?;
    let mut outcome = match args.shape {
        Shape::Counter => counter::run_shape(&setup).await,
        Shape::Cas => cas::run_shape(&setup).await,
        Shape::Queue => queue::run_shape(&setup).await,
        Shape::Poll => poll::run_shape(&setup).await,
        Shape::Values => values::run_shape(&setup).await,
        Shape::Gets => gets::run_shape(&setup).await,
        Shape::Series => series::run_shape(&setup).await,
        Shape::Regions => regions::run_shape(&setup).await,
    }
    .map_err(|error| format!("table {table}: {error}"))?;
    mark_errors(&mut outcome);
    let extra = json!({ "shape": shape_name(args.shape), "table": table, "clients": args.clients, "rows": setup.rows,
        "connections": args.connections, "value_bytes": setup.value_len, "regions": setup.regions, "batch": args.batch,
        "columns": args.columns, "seed": setup.seed });
    conclude(&setup.plan(), &outcome, Some(&cluster), extra)
}

/// What cannot be done, said before anything is.
fn refuse(setup: &Setup<'_>) -> Result<(), String> {
    let (shape, clients) = (setup.args.shape, setup.args.clients);
    if shape == Shape::Queue && clients < 2 {
        return Err("--clients: a queue needs a producer and a consumer".to_string());
    }
    if shape == Shape::Queue && setup.args.report.rate.is_some() {
        return Err("--rate: producers of a queue wait for its consumers, not for a rate".to_string());
    }
    let owned = matches!(shape, Shape::Values | Shape::Regions | Shape::Series);
    if owned && setup.rows < clients as u64 {
        return Err(format!("--rows: each of the {clients} clients needs a row of its own"));
    }
    Ok(())
}

/// A run with a wrong answer is partial: its rate is not that of a server that works.
fn mark_errors(outcome: &mut Outcome) {
    let classes: Vec<String> =
        outcome.totals.errors.iter().map(|(class, count)| format!("{class} {count}")).collect();
    if !classes.is_empty() {
        outcome.partial.get_or_insert(format!("wrong answers: {}", classes.join(", ")));
    }
}

/// Adds what was found after the last operation. What could not be checked makes the run partial, and what was measured stays.
fn add_check(outcome: &mut Outcome, class: &str, wrong: Result<u64, ClientError>) {
    match wrong {
        Ok(count) => add_errors(outcome, class, count),
        Err(error) => {
            outcome.partial.get_or_insert(format!("what must be there could not be read: {error}"));
        }
    }
}

/// Adds wrong answers that were found after the last operation.
fn add_errors(outcome: &mut Outcome, class: &str, count: u64) {
    if count > 0 {
        *outcome.totals.errors.entry(class.to_string()).or_default() += count;
    }
}
