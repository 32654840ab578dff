//! `halcyon tune`: looks at a running cluster for some time and says what to change, each with the number behind it.
//!
//! ```text
//! look.rs        ClusterStatus from the master; /metrics (Halcyon) or /jmx (HBase) from each server's info port
//!                -> readings.rs: one vocabulary for both -> numbers.rs: what grew, and means, over the time
//! rules/         one function for each rule: numbers -> fine, a finding, or not measured
//! report.rs      text or JSON
//! ```
//!
//! A rule speaks only of numbers that were measured. A server whose info port does not answer is judged by its
//! ClusterStatus alone, and the report says which rules had no number.
//!
//! When you add a rule, also touch `docs/TOP.md`, and give it a test on made-up numbers.

mod args;
mod look;
mod numbers;
mod readings;
mod report;
mod rules;

use std::io::{self, Write};

use halcyon_env::Env;

pub use args::TuneArgs;

/// Looks, judges and prints. The error is a sentence for the user.
pub fn tune(args: TuneArgs) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start threads: {error}"))?;
    let numbers = runtime.block_on(async {
        let cluster = args.cluster.connect(1, halcyon_rpc::Codec::KeyValue).await?;
        look::look(&cluster, &args, &*Env::real().clock).await
    });
    runtime.shutdown_background();
    let numbers = numbers?;
    let judged = rules::judge(&numbers);
    let text = if args.json { report::json(&numbers, &judged) } else { report::text(&numbers, &judged) };
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(format!("standard output: {error}")),
        _ => Ok(()),
    }
}
