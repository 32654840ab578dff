//! HBase's PerformanceEvaluation, its commands and options by their names.
//!
//! - `options.rs`: the command line, and how many rows of how many that means
//! - `rows.rs`: row keys, values and columns as PerformanceEvaluation makes them: a table that one has loaded can be
//!   read by the other
//! - `table.rs`: which table is made, or made anew
//! - `write.rs`, `read.rs`, `scan.rs`, `cas.rs`, `meta.rs`: the commands
//! - `found.rs`: how much of what was asked for was there
//!
//! Checked against `org.apache.hadoop.hbase.PerformanceEvaluation` of 2.6. What differs: clients are tasks; a buffer
//! of puts is counted by the bytes of its cells, not by the Java heap they take; a read command never deletes the
//! table; `--usetags` sends the tags, which Java's client leaves out unless its codec is set; the commands of
//! `hbase:meta` are for the table of `--table`. There are no region replicas, no tracing and no MapReduce.

mod cas;
mod found;
mod meta;
mod options;
mod read;
mod rows;
mod scan;
mod table;
mod write;

use std::sync::Arc;
use std::time::Duration;

use halcyon_client::Cluster;
use halcyon_env::Env;
use halcyon_rpc::Codec;
use halcyon_schema::TableName;
use serde_json::json;

pub use options::{Command, PeArgs};
pub use rows::{format_row, generate_value};

use crate::pe::found::Found;
use crate::pe::options::Options;
use crate::random::{Random, random_seed};
use crate::run::{Client, Done, Plan, Recorder, Step, conclude, run};

/// Kinds of operations: a row, and a buffer of puts on its way to the server.
const KINDS: &[&str] = &["row", "flush"];
const ROW: usize = 0;
const FLUSH: usize = 1;

/// Runs one command.
pub async fn pe(env: &Env, args: &PeArgs) -> Result<(), String> {
    let options = Arc::new(Options::of(args)?);
    let name = TableName::parse(options.args.table.as_bytes()).map_err(|error| error.to_string())?;
    let connections = if args.one_con { 1 } else { args.conn_count.unwrap_or(args.clients) };
    let codec = if args.use_tags { Codec::KeyValueWithTags } else { Codec::KeyValue };
    let cluster = args.cluster.connect(connections, codec).await?;
    table::prepare(&cluster, &name, &options).await?;

    let seed = args.report.seed.unwrap_or_else(random_seed);
    let every = options.every();
    let rows = options.rows_per_client.div_ceil(every) * u64::from(args.cycles) * args.clients as u64;
    let plan = Plan {
        env,
        name: format!("pe {}", options.command_name()),
        report: &args.report,
        kinds: KINDS,
        operations: args.seconds.is_none().then_some(rows),
        time_max: args.seconds.map(Duration::from_secs),
    };
    let found = Arc::new(Found::default());
    let clients = (0..args.clients).map(|number| {
        let recorder = plan.recorder();
        let shared = Shared { env, cluster: &cluster, name: &name, options: &options, found: &found, seed };
        (PeClient::new(&shared, number, &recorder), recorder)
    });
    let outcome = run(&plan, clients.collect()).await;
    if args.latency_threshold > 0 {
        let rows = &outcome.totals.latencies[ROW].1;
        let over = rows.count_between(args.latency_threshold * 1_000, u64::MAX);
        println!("  {over} rows took {} ms or longer", args.latency_threshold);
    }
    if options.is_read() {
        println!("  {found}");
    }
    let extra = json!({
        "table": options.args.table,
        "found": options.is_read().then(|| found.to_json()),
        "clients": args.clients,
        "connections": connections,
        "rows_per_client": options.rows_per_client,
        "total_rows": options.total_rows,
        "value_bytes": args.value_size,
        "seed": seed,
    });
    conclude(&plan, &outcome, Some(&cluster), extra)?;
    if args.flush_commits && options.is_write() {
        let flushed = async { cluster.admin().await?.flush(&name).await };
        flushed.await.map_err(|error| format!("the table could not be flushed: {error}"))?;
    }
    Ok(())
}

/// One client: walks its rows and does the command for each.
struct PeClient {
    options: Arc<Options>,
    work: Work,
    random: Random,
    start: u64,
    end: u64,
    next: u64,
    cycles_left: u32,
}

enum Work {
    Write(write::Writer),
    Read(read::Reader),
    Scan(Box<scan::Scans>),
    Cas(cas::Cas),
    Meta(meta::Meta),
}

/// What all clients have in common.
struct Shared<'a> {
    env: &'a Env,
    cluster: &'a Cluster,
    name: &'a TableName,
    options: &'a Arc<Options>,
    found: &'a Arc<Found>,
    seed: u64,
}

impl PeClient {
    fn new(shared: &Shared<'_>, number: usize, recorder: &Arc<Recorder>) -> PeClient {
        use Command::*;
        let &Shared { env, cluster, name, options, found, seed } = shared;
        let (table, found) = (cluster.table(name.clone(), number), Arc::clone(found));
        let start = match options.args.command {
            // clients overlap on purpose
            Increment | Append | CheckAndMutate | CheckAndPut | CheckAndDelete => 0,
            _ if options.args.start_row > 0 => options.args.start_row,
            _ => number as u64 * options.rows_per_client,
        };
        let work = match options.args.command {
            SequentialWrite | RandomWrite | SequentialDelete | RandomDelete => Work::Write(
                write::Writer::new(table, Arc::clone(options), Arc::clone(&env.clock), Arc::clone(recorder)),
            ),
            SequentialRead | RandomRead => Work::Read(read::Reader::new(table, Arc::clone(options), found)),
            Increment | Append | CheckAndMutate | CheckAndPut | CheckAndDelete => {
                Work::Cas(cas::Cas::new(table, Arc::clone(options)))
            }
            Scan | ReverseScan | RandomSeekScan | FilterScan | ScanRange10 | ScanRange100 | ScanRange1000
            | ScanRange10000 => {
                Work::Scan(Box::new(scan::Scans::new(table, Arc::clone(options), start, found)))
            }
            MetaWrite | MetaRandomRead | CleanMeta => {
                Work::Meta(meta::Meta::new(cluster, name, Arc::clone(options), number, env, found))
            }
        };
        PeClient {
            work,
            random: Random::fork(seed, number as u64),
            start,
            end: start + options.rows_per_client,
            next: start,
            cycles_left: options.args.seconds.map_or(options.args.cycles, |_| u32::MAX),
            options: Arc::clone(options),
        }
    }

    /// The next row whose number the sample takes.
    fn next_row(&mut self) -> Option<u64> {
        let every = self.options.every();
        loop {
            if self.next >= self.end {
                self.cycles_left = self.cycles_left.saturating_sub(1);
                if self.cycles_left == 0 || self.start == self.end {
                    return None;
                }
                self.next = self.start;
            }
            let row = self.next;
            self.next += 1;
            if row.is_multiple_of(every) {
                return Some(row);
            }
        }
    }
}

impl Client for PeClient {
    async fn step(&mut self) -> Result<Step, halcyon_client::ClientError> {
        let Some(row) = self.next_row() else { return Ok(Step::End) };
        // PerformanceEvaluation leaves the first row out, too
        let is_measured = row - self.start > self.options.args.measure_after;
        let random = &mut self.random;
        let is_sent = match &mut self.work {
            Work::Write(writer) => writer.row(row, random).await?,
            Work::Read(reader) => reader.row(row, random).await?,
            Work::Scan(scans) => scans.row(random).await?,
            Work::Cas(cas) => cas.row(row).await?,
            Work::Meta(meta) => meta.row(row, random).await?,
        };
        Ok(Step::Done(Done { operations: 1, kind: (is_measured && is_sent).then_some(ROW) }))
    }

    async fn finish(&mut self) -> Result<(), halcyon_client::ClientError> {
        match &mut self.work {
            Work::Write(writer) => writer.finish().await,
            Work::Read(reader) => reader.finish().await,
            Work::Scan(scans) => scans.finish().await,
            Work::Cas(_) | Work::Meta(_) => Ok(()),
        }
    }
}
