//! What bounds every result on this machine: calls that do nothing, a log and nothing else, bytes sent and nothing else.
//!
//! - `calls.rs`: calls through our RPC that do nothing, at several numbers of connections and of calls at once
//! - `log.rs`: appends to a log of ours, each waiting for its own
//! - `sends.rs`: bytes over loopback, in writes of several sizes
//!
//! Each is driven as the generators are driven, so that a result can be given as a share of the possible: beside a run with
//! so many clients and connections belongs the call that does nothing with as many.

mod calls;
mod log;
mod sends;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use halcyon_env::Env;
use halcyon_wal::SyncMode;
use serde_json::{Value, json};

use crate::args::ReportArgs;
use crate::limits::calls::{Concurrency, Question};
use crate::run::{Client, Done, Outcome, Plan, Step, result_json, result_text, run, write_json};

const KINDS: &[&str] = &["call"];
const STEP: Step = Step::Done(Done { operations: 1, kind: Some(0) });

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    Calls,
    Log,
    Send,
}

#[derive(Clone, Debug, Args)]
pub struct LimitsArgs {
    /// Measure only these.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "calls,log,send")]
    pub only: Vec<Part>,
    /// No-op calls: pairs of connections and concurrent calls.
    #[arg(
        long,
        value_name = "CONNECTIONSxCALLS,...",
        value_delimiter = ',',
        default_value = "1x1,1x16,4x4,4x64,16x256"
    )]
    pub calls: Vec<Concurrency>,
    /// Concurrent WAL appends.
    #[arg(long, default_value_t = 64, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    pub clients: usize,
    /// Connections of the send test.
    #[arg(long, default_value_t = 1, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    pub connections: usize,
    /// Value size in bytes of a WAL entry and of the cell in a get's response.
    #[arg(long, default_value_t = 1_000, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=16_000_000))]
    pub value_size: usize,
    /// Sizes in bytes of the writes of the send test.
    #[arg(
        long,
        value_name = "BYTES,...",
        value_delimiter = ',',
        default_value = "1000,65536,1048576",
        value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=64_000_000)
    )]
    pub send_sizes: Vec<usize>,
    /// Duration of each measurement.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: u64,
    /// Directory for the WAL, on the disk to measure. Only files created by the test are removed.
    #[arg(long, default_value = ".")]
    pub dir: PathBuf,
    #[command(flatten)]
    pub report: ReportArgs,
}

/// Measures all limits, one after the other.
pub async fn limits(env: &Env, args: &LimitsArgs) -> Result<(), String> {
    let measure = Measure { env, args, report: ReportArgs { json: None, ..args.report.clone() } };
    let mut results = Vec::new();
    if args.only.contains(&Part::Calls) {
        for question in [Question::Nothing, Question::Get] {
            for concurrency in &args.calls {
                results.push(measure.calls(question, *concurrency).await?);
            }
        }
    }
    if args.only.contains(&Part::Log) {
        for mode in [SyncMode::Written, SyncMode::Fsync] {
            results.push(measure.log(mode).await?);
        }
    }
    if args.only.contains(&Part::Send) {
        for size in &args.send_sizes {
            results.push(measure.sends(1, *size).await?);
        }
        results.push(measure.sends(sends::PIECES, sends::PIECE_LEN).await?);
    }
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
    /// `bytes` are those of one operation, 0 if they are not what matters; `shape` joins the JSON.
    async fn run<C: Client>(&self, name: &str, clients: Vec<C>, bytes: usize, shape: Value) -> Measured {
        let plan = Plan {
            env: self.env,
            name: format!("limits: {name}"),
            report: &self.report,
            kinds: KINDS,
            operations: None,
            time_max: Some(Duration::from_secs(self.args.seconds)),
        };
        let clients = clients.into_iter().map(|client| (client, plan.recorder())).collect();
        let outcome: Outcome = run(&plan, clients).await;
        print!("{}", result_text(&plan, &outcome, None));
        let megabytes = outcome.totals.operations as f64 * bytes as f64 / 1e6 / outcome.elapsed_s;
        if bytes > 0 {
            println!("  {megabytes:.1} MB/s");
        }
        let extra = json!({ "bytes_per_operation": bytes, "megabytes_per_s": megabytes, "shape": shape });
        (result_json(&plan, &outcome, None, extra), outcome.partial)
    }
}
