//! Load generators: `halcyon bench pe|ycsb|ingest|limits|shape`, for Halcyon and for HBase alike.
//!
//! - `pe/`: the commands and options of HBase's PerformanceEvaluation, with its tables, row keys and values
//! - `ycsb/`: YCSB's core workloads with their property files
//! - `ingest/`: linked lists of random rows, which show a lost write, and their verifier
//! - `limits/`: no-op calls, WAL appends alone, network sends alone
//! - `shape/`: counters, queues, large values, time series and others, whose answers are checked
//! - `run/`: shared by all: clients, pace, latencies, progress, results
//! - `random.rs`: random numbers; `args.rs`: shared options
//!
//! `halcyon bench` is the command, and this crate is `halcyon-load`; `programs/bench` is the engine benchmark. All calls go
//! through `halcyon-client` and do not depend on the server. A client is a task, not a thread.
//!
//! When you add a generator, also touch `docs/LOAD.md`.

pub mod args;
pub mod ingest;
pub mod limits;
pub mod pe;
pub mod random;
pub mod run;
pub mod shape;
pub mod ycsb;

use halcyon_env::Env;

use crate::args::BenchCommand;

/// Runs one generator to its end. The error is a sentence for the user; results were printed before.
pub fn bench(command: BenchCommand) -> Result<(), String> {
    let threads = command.report().runtime_threads;
    // Few threads that are busy cost less than many that wake each other.
    let mut runtime = match threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = runtime.worker_threads(threads).enable_all().build();
    let runtime = runtime.map_err(|error| format!("no runtime: {error}"))?;
    let env = Env::real();
    let result = runtime.block_on(async {
        match command {
            BenchCommand::Pe(args) => pe::pe(&env, &args).await,
            BenchCommand::Ycsb(args) => ycsb::ycsb(&env, &args).await,
            BenchCommand::Ingest(args) => ingest::ingest(&env, &args).await,
            BenchCommand::Limits(args) => limits::limits(&env, &args).await,
            BenchCommand::Shape(args) => shape::shape(&env, &args).await,
        }
    });
    runtime.shutdown_background();
    result
}
