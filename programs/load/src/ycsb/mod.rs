//! YCSB's core workloads: `load` fills a table, `run` works upon it.
//!
//! - `properties.rs`: property files; `workload.rs`: what they say
//! - `aging.rs`: flushes while the workload runs, until files were compacted
//! - `keys.rs`, `distributions.rs`: which record, and what its key is
//!
//! Checked against YCSB 0.17 (`CoreWorkload`, `ScrambledZipfianGenerator`, `SkewedLatestGenerator`): a table that one
//! has loaded can be used by the other. As in its HBase bindings a field is a column of one family; table and family
//! come from the properties `table` and `columnfamily`, and `hbase.presplit`, `hbase.recreate` say how to make the table.

mod aging;
mod distributions;
mod keys;
mod properties;
mod workload;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use clap::{Args, ValueEnum};
use halcyon_cell::Cell;
use halcyon_client::{ClientError, Cluster, Mutation, Scan, Table};
use halcyon_env::Env;
use halcyon_proto::pb;
use halcyon_rpc::Codec;
use halcyon_schema::{FamilyDescriptor, TableDescriptor, TableName};
use serde_json::json;

pub use distributions::{Distribution, Zipfian};
pub use keys::{Inserted, KeyFormat, fnv_hash};

use crate::args::{ClusterArgs, ReportArgs};
use crate::random::{Random, random_seed};
use crate::run::{Client, Done, Outcome, Plan, Recorder, Step, conclude, run};
use crate::ycsb::aging::{Aged, Aging};
use crate::ycsb::properties::Properties;
use crate::ycsb::workload::{KINDS, Operation, Workload};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Phase {
    /// Insert the records.
    Load,
    /// Do the operations.
    Run,
}

/// Options of YCSB, and ours.
#[derive(Clone, Debug, Args)]
pub struct YcsbArgs {
    #[arg(value_enum)]
    pub phase: Phase,
    /// One of the core workloads, a to f.
    #[arg(long, value_name = "LETTER")]
    pub workload: Option<String>,
    /// Files of properties; later ones win.
    #[arg(short = 'P', long = "properties", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Single properties, which win over files.
    #[arg(short, value_name = "KEY=VALUE")]
    pub property: Vec<String>,
    /// Clients at work.
    #[arg(long, default_value_t = 1, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    pub threads: usize,
    /// Flush the table once in this time, and see to it that files were compacted: a table as after days of use.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub flush_every: Option<u64>,
    /// Connections to each server that the clients share.
    #[arg(long, default_value_t = 4, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    pub connections: usize,

    #[command(flatten)]
    pub cluster: ClusterArgs,
    #[command(flatten)]
    pub report: ReportArgs,
}

/// Runs one phase.
pub async fn ycsb(env: &Env, args: &YcsbArgs) -> Result<(), String> {
    let properties = read_properties(env, args)?;
    let is_load = args.phase == Phase::Load;
    let workload = Arc::new(Workload::of(&properties, is_load)?);
    let cluster = args.cluster.connect(args.connections, Codec::KeyValue).await?;
    let name = TableName::parse(workload.table.as_bytes()).map_err(|error| error.to_string())?;
    prepare(&cluster, &name, &workload).await?;

    let seed = args.report.seed.unwrap_or_else(random_seed);
    let operations = if is_load { workload.insert_count } else { workload.operations };
    let shared = Arc::new(Shared {
        inserted: Inserted::new(if is_load { workload.insert_start } else { workload.records }),
        left: AtomicU64::new(operations),
        is_load,
    });
    let phase = if is_load { "load" } else { "run" };
    let plan = Plan {
        env,
        name: format!("ycsb {phase}"),
        report: &args.report,
        kinds: KINDS,
        operations: Some(operations),
        time_max: (workload.seconds_max > 0).then(|| Duration::from_secs(workload.seconds_max)),
    };
    let clients = (0..args.threads).map(|number| {
        let recorder = plan.recorder();
        let client = YcsbClient {
            table: cluster.table(name.clone(), number),
            requests: workload.requests.clone(),
            workload: Arc::clone(&workload),
            shared: Arc::clone(&shared),
            random: Random::fork(seed, number as u64),
            recorder: Arc::clone(&recorder),
        };
        (client, recorder)
    });
    let clients = clients.collect();
    let (outcome, aged) = match args.flush_every {
        None => (run(&plan, clients).await, None),
        Some(period) => {
            let (outcome, aged) = age(&plan, clients, &Aging::new(&cluster, &name), period).await?;
            (outcome, Some(aged))
        }
    };
    let extra = json!({ "phase": phase, "clients": args.threads, "connections": args.connections,
        "properties": properties.all(), "seed": seed, "aged": aged.map(Aged::to_json) });
    conclude(&plan, &outcome, Some(&cluster), extra)
}

/// Runs the workload and flushes its table meanwhile.
async fn age(
    plan: &Plan<'_>,
    clients: Vec<(YcsbClient, Arc<Recorder>)>,
    aging: &Aging<'_>,
    period_s: u64,
) -> Result<(Outcome, Aged), String> {
    let failed = |error: ClientError| format!("the table could not be aged: {error}");
    let mut outcome = tokio::select! {
        outcome = run(plan, clients) => outcome,
        error = aging.flush_every(Duration::from_secs(period_s)) => return Err(failed(error)),
    };
    let aged = aging.settle().await.map_err(failed)?;
    if let Some(why) = aged.refused() {
        outcome.partial.get_or_insert(why);
    }
    Ok((outcome, aged))
}

fn read_properties(env: &Env, args: &YcsbArgs) -> Result<Properties, String> {
    let mut properties = match &args.workload {
        None if args.files.is_empty() && args.property.is_empty() => {
            return Err("which workload? --workload a, or -P FILE".to_string());
        }
        None => Properties::default(),
        Some(name) => Properties::core(&name.to_ascii_lowercase())
            .ok_or_else(|| format!("--workload: unknown workload '{name}', expected a to f"))?,
    };
    for file in &args.files {
        let named = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
        let bytes = env.fs.read(file).map_err(|error| named(&error))?;
        let text = String::from_utf8(bytes).map_err(|error| named(&error))?;
        properties.add_file(&text).map_err(|error| named(&error))?;
    }
    for property in &args.property {
        properties.add(property).map_err(|error| format!("-p: {error}"))?;
    }
    Ok(properties)
}

/// Makes the table if it is to be made, and looks whether it is there.
async fn prepare(cluster: &Cluster, name: &TableName, workload: &Workload) -> Result<(), String> {
    let failed = |error: ClientError| format!("table {name}: {error}");
    let admin = cluster.admin().await.map_err(failed)?;
    let found = admin.descriptor(name).await.map_err(failed)?;
    let is_there = found.is_some();
    if let Some(found) = found.filter(|_| !workload.recreate) {
        return match found.family(&workload.family) {
            Some(_) => Ok(()),
            None => Err(format!("table {name} has no family {}", workload.family.escape_ascii())),
        };
    }
    if workload.presplit == 0 {
        return Err(format!("there is no table {name}; -p hbase.presplit=N makes it with N regions"));
    }
    if is_there {
        admin.drop_table(name).await.map_err(failed)?;
    }
    let family = FamilyDescriptor::new(&workload.family).map_err(|error| error.to_string())?;
    let table = TableDescriptor::new(name.clone()).with_family(family);
    admin.create_table(&table, workload.splits()).await.map_err(failed)
}

/// What all clients share.
struct Shared {
    inserted: Inserted,
    /// Operations that no client has begun.
    left: AtomicU64,
    is_load: bool,
}

struct YcsbClient {
    table: Table,
    workload: Arc<Workload>,
    requests: Distribution,
    shared: Arc<Shared>,
    random: Random,
    recorder: Arc<Recorder>,
}

impl Client for YcsbClient {
    async fn step(&mut self) -> Result<Step, ClientError> {
        let taken =
            self.shared.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if taken.is_err() {
            return Ok(Step::End);
        }
        let operation = match self.shared.is_load {
            true => Operation::Insert,
            false => self.workload.operation(&mut self.random),
        };
        match operation {
            Operation::Read => {
                let key = self.draw();
                self.read(key).await?;
            }
            Operation::Update => {
                let key = self.draw();
                self.update(key).await?;
            }
            Operation::ReadModifyWrite => {
                let key = self.draw();
                self.read(key.clone()).await?;
                self.update(key).await?;
            }
            Operation::Insert => self.insert().await?,
            Operation::Scan => self.scan().await?,
        }
        Ok(Step::Done(Done { operations: 1, kind: Some(operation as usize) }))
    }
}

impl YcsbClient {
    /// The key of a record that is there.
    fn draw(&mut self) -> Bytes {
        let number = self.requests.draw(&mut self.random, self.shared.inserted.count());
        self.workload.keys.key(number)
    }

    /// What a read or a scan asks for.
    fn columns(&mut self) -> Vec<pb::Column> {
        let qualifier = match self.workload.read_all_fields {
            true => Vec::new(),
            false => vec![self.field()],
        };
        vec![pb::Column { family: self.workload.family.clone(), qualifier }]
    }

    fn field(&mut self) -> Bytes {
        let fields = &self.workload.fields;
        fields[self.random.below(fields.len() as u64) as usize].clone()
    }

    async fn read(&mut self, key: Bytes) -> Result<(), ClientError> {
        let get = pb::Get { row: key, column: self.columns(), ..Default::default() };
        if self.table.get(get).await?.is_empty() {
            self.recorder.error("NotFound");
        }
        Ok(())
    }

    async fn update(&mut self, key: Bytes) -> Result<(), ClientError> {
        let fields = match self.workload.write_all_fields {
            true => self.workload.fields.clone(),
            false => vec![self.field()],
        };
        self.put(key, &fields).await
    }

    async fn insert(&mut self) -> Result<(), ClientError> {
        let number = self.shared.inserted.begin();
        let workload = Arc::clone(&self.workload);
        self.put(workload.keys.key(number), &workload.fields).await?;
        self.shared.inserted.acknowledge(number);
        Ok(())
    }

    async fn put(&mut self, key: Bytes, fields: &[Bytes]) -> Result<(), ClientError> {
        let cell = |field: &Bytes| {
            let value = self.workload.value(&mut self.random);
            Cell::put(&key, &self.workload.family, field, i64::MAX, &value)
        };
        let cells = fields.iter().map(cell).collect();
        let mutation = Mutation::put(key.clone(), cells).with_durability(self.workload.durability);
        self.table.mutate(&mutation).await.map(|_| ())
    }

    async fn scan(&mut self) -> Result<(), ClientError> {
        let len = self.workload.scan_len(&mut self.random);
        let first = self.draw();
        let scan = pb::Scan { start_row: Some(first.clone()), column: self.columns(), ..Default::default() };
        let mut scan = self.table.scan(Scan::from(scan).caching(len).limit(len));
        // the record at which it begins is there
        if scan.next().await?.is_none_or(|row| row.key() != first) {
            self.recorder.error("NotFound");
        }
        while scan.next().await?.is_some() {}
        scan.close().await;
        Ok(())
    }
}
